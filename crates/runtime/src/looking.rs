//! When to look into rows for what nobody can be told of: while the bus is known to be down, every 50 ms as long as
//! that finds something, else ever more seldom.
//!
//! A hint is only a shortcut to a row, so looking at the rows does the same, at a price. Must not know: what is looked
//! for.

use instar_bus::Watch;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// From one query to the next: at most twenty a second.
const LEAST: Duration = Duration::from_millis(50);
const MOST: Duration = Duration::from_secs(1);
/// A look is followed by a rest of this many times what it took.
const REST_TIMES: u32 = 2;
/// For so long after the bus is back to this process it may be away from one that has something to tell.
const LINGERS: Duration = Duration::from_secs(2);

/// What all that a process looks for has together: in any second at most twenty queries.
#[derive(Clone)]
pub(crate) struct Pace(Arc<Mutex<Instant>>);

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace(Arc::new(Mutex::new(Instant::now())))
    }

    /// Returns when so many queries may be made at once: each of them as far from those of others as if they came
    /// one by one.
    async fn turn(&self, queries: u32) {
        let mut next = self.0.lock().await;
        sleep_until(*next + LEAST * queries.saturating_sub(1)).await;
        *next = Instant::now() + LEAST * queries;
    }
}

/// When one of a process's tasks looks.
pub struct Looking {
    watch: Watch,
    pace: Pace,
    pause: Duration,
    next: Instant,
    /// Since the first query of a look, and how long it waited for others between its queries.
    began: Option<Instant>,
    waited: Duration,
    until: Option<Instant>,
}

impl Looking {
    pub(crate) fn new(watch: Watch, pace: Pace) -> Looking {
        let (pause, next) = (LEAST, Instant::now());
        Looking { watch, pace, pause, next, began: None, waited: Duration::ZERO, until: None }
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
        if !self.watch.is_up() {
            self.until = Some(Instant::now() + LINGERS);
        }
    }

    /// Returns when so many queries may be made: at once while the bus is up.
    pub async fn ask(&mut self, queries: u32) {
        if self.watch.is_up() && self.until.is_none() {
            return;
        }
        let asked = Instant::now();
        self.pace.turn(queries).await;
        match self.began {
            Some(_) => self.waited += asked.elapsed(),
            None => self.began = Some(Instant::now()),
        }
    }

    /// It was looked.
    pub fn looked(&mut self, found: bool) {
        self.pause = if found { LEAST } else { (self.pause * 2).min(MOST) };
        // A database that is slow has better things to do than to be asked without a pause.
        let took = self.began.take().map_or(Duration::ZERO, |began| began.elapsed());
        let rest = took.saturating_sub(std::mem::take(&mut self.waited)) * REST_TIMES;
        self.next = Instant::now() + self.pause.max(rest);
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
        looking_at(Pace::new())
    }

    fn looking_at(pace: Pace) -> Looking {
        Looking::new(Bus::local(Namespace::new("instar", []).unwrap(), Options::default()).watch(), pace)
    }

    type Queries = Arc<std::sync::Mutex<Vec<Instant>>>;

    /// Looks again and again, with so many queries at a time, and always finds something; rests for `every` besides.
    async fn looks(pace: Pace, times: &'static [u32], every: Duration, queries: Queries) {
        let mut looking = looking_at(pace);
        looking.until = Some(Instant::now() + Duration::from_secs(3_600));
        loop {
            looking.due().await;
            for n in times {
                looking.ask(*n).await;
                queries.lock().unwrap().extend((0..*n).map(|_| Instant::now()));
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            looking.looked(true);
            tokio::time::sleep(every).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_looks_often_while_it_finds_something() {
        let mut looking = looking();
        let mut pauses = |found| {
            looking.looked(found);
            (looking.next - Instant::now()).as_millis()
        };
        assert_eq!([pauses(false), pauses(false), pauses(true)], [100, 200, 50]);
        assert_eq!([(); 6].map(|()| pauses(false)), [100, 200, 400, 800, 1_000, 1_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn all_that_a_process_looks_for_takes_at_most_twenty_queries_in_any_second() {
        let (pace, queries) = (Pace::new(), Queries::default());
        let often = Duration::ZERO;
        let all = [
            looks(pace.clone(), &[1], often, queries.clone()),
            looks(pace.clone(), &[1, 2], often, queries.clone()),
            looks(pace.clone(), &[1], Duration::from_millis(500), queries.clone()),
            looks(pace.clone(), &[3], Duration::from_millis(270), queries.clone()),
        ];
        let all = futures::future::join_all(all);
        assert!(tokio::time::timeout(Duration::from_secs(60), all).await.is_err());
        let queries = queries.lock().unwrap();
        let seconds = queries.iter().map(|from| *from..*from + Duration::from_secs(1));
        let most = seconds.map(|second| queries.iter().filter(|at| second.contains(at)).count()).max();
        assert!(most.is_some_and(|most| (15..=20).contains(&most)), "{most:?} in a second");
        assert!(queries.len() > 600, "{} in a minute", queries.len());
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_others_does_not_rest_for_that() {
        let mut looking = looking();
        looking.until = Some(Instant::now() + Duration::from_secs(3_600));
        for _ in 0..3 {
            looking.ask(1).await;
        }
        tokio::time::advance(Duration::from_millis(40)).await;
        looking.looked(true);
        assert_eq!((looking.next - Instant::now()).as_millis(), 80);
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
