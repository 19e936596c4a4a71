//! When to look into rows for what nobody can be told of: while the bus is known to be down, every 50 ms as long as
//! that finds something, else ever more seldom.
//!
//! A hint is only a shortcut to a row, so looking at the rows does the same, at a price. Must not know: what is looked
//! for.

use instar_bus::Watch;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// From one query to the next: at most twenty a second.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(1);
/// A look is followed by a rest of this many times what it took.
const REST_TIMES: u32 = 2;
/// For so long after the bus is back to this process it may be away from one that has something to tell.
const LINGERS: Duration = Duration::from_secs(2);

/// The pace of one process's looks.
pub struct Looking {
    watch: Watch,
    pause: Duration,
    next: Instant,
    /// When the look began that was due last.
    began: Instant,
    until: Option<Instant>,
}

impl Looking {
    pub fn new(watch: Watch) -> Looking {
        let now = Instant::now();
        Looking { watch, pause: LEAST, next: now, began: now, until: None }
    }

    /// Returns when it is time to look; not while the bus is up. Safe to cancel.
    pub async fn due(&mut self) {
        if self.watch.is_up() && self.until.is_none_or(|until| Instant::now() >= until) {
            if self.until.take().is_some() {
                tracing::info!("the bus is up: it tells what there is to do");
            }
            self.watch.down().await;
            tracing::warn!("the bus is down: what there is to do is looked for in the database");
            (self.pause, self.next) = (LEAST, Instant::now());
            self.until = Some(self.next + LINGERS);
        }
        sleep_until(self.next).await;
        self.began = Instant::now();
        if !self.watch.is_up() {
            self.until = Some(Instant::now() + LINGERS);
        }
    }

    /// It was looked, with so many queries.
    pub fn looked(&mut self, found: bool, queries: u32) {
        self.pause = if found { LEAST } else { (self.pause * 2).min(MOST) };
        // A database that is slow has better things to do than to be asked without a pause.
        let rest = self.began.elapsed() * REST_TIMES;
        self.next = Instant::now() + self.pause.max(LEAST * queries).max(rest);
    }
}

/// From one try of the same thing to the next, doubled each time: what could not go on may wait for something else.
const SPACING: Duration = Duration::from_millis(100);
const SPACING_MAX: Duration = Duration::from_millis(800);
const KNOWN_MAX: usize = 10_000;

/// What a look found lately: what is in somebody's hands is not handed out again at every look.
#[derive(Default)]
pub struct Tried(HashMap<Uuid, (i64, Instant, Duration)>);

impl Tried {
    /// Whether to try it now; if so, that is noted. Another version is another thing to try.
    pub fn is_due(&mut self, id: Uuid, version: i64) -> bool {
        let now = Instant::now();
        if self.0.len() >= KNOWN_MAX {
            self.0.retain(|_, (_, next, _)| now < *next);
        }
        let spacing = match self.0.get(&id) {
            Some((known, next, _)) if *known == version && now < *next => return false,
            Some((known, _, spacing)) if *known == version => (*spacing * 2).min(SPACING_MAX),
            _ => SPACING,
        };
        self.0.insert(id, (version, now + spacing, spacing));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_bus::{Bus, Namespace, Options};

    fn looking() -> Looking {
        Looking::new(Bus::local(Namespace::new("instar", []).unwrap(), Options::default()).watch())
    }

    #[tokio::test(start_paused = true)]
    async fn it_looks_often_while_it_finds_something_and_never_more_than_twenty_times_a_second() {
        let mut looking = looking();
        let mut pauses = |found, queries| {
            looking.began = Instant::now();
            looking.looked(found, queries);
            (looking.next - Instant::now()).as_millis()
        };
        assert_eq!([pauses(false, 1), pauses(false, 1), pauses(true, 1), pauses(true, 3)], [100, 200, 50, 150]);
        assert_eq!([(); 6].map(|()| pauses(false, 1)), [100, 200, 400, 800, 1_000, 1_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_look_while_the_bus_is_up() {
        let mut looking = looking();
        assert!(tokio::time::timeout(Duration::from_secs(3_600), looking.due()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_go_on_is_tried_ever_more_seldom() {
        let (mut tried, id, begun) = (Tried::default(), Uuid::from_u128(1), Instant::now());
        let mut due = Vec::new();
        for _ in 0..60 {
            if tried.is_due(id, 1) {
                due.push(begun.elapsed().as_millis());
            }
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        assert_eq!(due, [0, 100, 300, 700, 1_500, 2_300]);
        assert!(tried.is_due(id, 2), "it has moved since");
    }
}
