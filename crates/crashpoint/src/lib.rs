//! Named points at which a test can end the process for real.
//!
//! `crash_point!("store.commit.before")` leaves no code behind unless the feature `armed` is on.
//! Armed, the variable `INSTAR_CRASH_AT` chooses a point:
//!
//! | value | at that point |
//! |---|---|
//! | `name` | the process kills itself at the first hit |
//! | `name:3` | … at the third hit |
//! | `name:pause` | the process stops itself (SIGSTOP) at the first hit, until somebody continues it |
//! | `name:3:pause` | … at the third hit |
//! | `name:wait` | the thread that hits it first sleeps for two seconds, while the others go on |
//!
//! Armed, `INSTAR_CLOCK_SHIFT_MS` also makes the machine's clock wrong by that much, for this process.
//!
//! It must not know what happens around a point, and depends on nothing, so that every crate can
//! afford it.

mod points;

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub use points::POINTS;

/// The variable that chooses a point.
pub const VARIABLE: &str = "INSTAR_CRASH_AT";

/// The variable that makes the clock wrong, in milliseconds; below zero it is slow.
pub const CLOCK_VARIABLE: &str = "INSTAR_CLOCK_SHIFT_MS";

/// By how many milliseconds the machine's clock is to be wrong: by none, unless armed.
pub fn clock_shift_ms() -> i64 {
    static SHIFT_MS: OnceLock<i64> = OnceLock::new();
    if !cfg!(feature = "armed") {
        return 0;
    }
    *SHIFT_MS.get_or_init(|| std::env::var(CLOCK_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Marks a point. Its name must stand in `points.rs`, or this does not compile.
#[cfg(feature = "armed")]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {{
        const _: () = assert!($crate::is_listed($name), "add this crash point to points.rs");
        $crate::hit($name)
    }};
}

/// Marks a point. Its name must stand in `points.rs`, or this does not compile.
#[cfg(not(feature = "armed"))]
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {{
        const _: () = assert!($crate::is_listed($name), "add this crash point to points.rs");
    }};
}

/// Whether `name` stands in the list. Names under `test.` always do: they are for tests of this
/// mechanism.
pub const fn is_listed(name: &str) -> bool {
    let mut i = 0;
    while i < POINTS.len() {
        if is_same(POINTS[i], name, name.len()) && POINTS[i].len() == name.len() {
            return true;
        }
        i += 1;
    }
    is_same("test.", name, 5)
}

/// Whether the first `len` bytes are there and equal.
const fn is_same(a: &str, b: &str, len: usize) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() < len || b.len() < len {
        return false;
    }
    let mut i = 0;
    while i < len {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[derive(Debug, PartialEq, Eq)]
struct Plan {
    name: String,
    at: u64,
    deed: Deed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Kill,
    Pause,
    Wait,
}

/// How long a thread waits.
const WAIT: std::time::Duration = std::time::Duration::from_secs(2);

impl Plan {
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default().to_owned();
        if !is_listed(&name) {
            return Err(format!("there is no crash point {name:?}; see points.rs for the names"));
        }
        let mut plan = Self { name, at: 1, deed: Deed::Kill };
        for part in parts {
            match (part, part.parse()) {
                ("pause", _) => plan.deed = Deed::Pause,
                ("wait", _) => plan.deed = Deed::Wait,
                (_, Ok(at)) if at > 0 => plan.at = at,
                _ => return Err(format!("{part:?} is neither a count from 1 nor `pause` nor `wait`")),
            }
        }
        Ok(plan)
    }
}

/// What `crash_point!` calls when armed.
pub fn hit(name: &str) {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())?;
        match Plan::parse(&text) {
            Ok(plan) => Some(plan),
            // A run that was meant to crash and cannot must not pass for one that survived.
            Err(why) => {
                say(&format!("{VARIABLE}={text}: {why}"));
                std::process::exit(64);
            }
        }
    });
    let Some(plan) = plan else { return };
    if plan.name == name && HITS.fetch_add(1, Ordering::Relaxed) + 1 == plan.at {
        let tell = |deed: &str| say(&format!("crash point {name}: hit {}, {deed}", plan.at));
        match plan.deed {
            Deed::Pause => {
                tell("stopping this process");
                raise(SIGSTOP);
            }
            Deed::Wait => {
                tell("waiting");
                std::thread::sleep(WAIT);
            }
            Deed::Kill => {
                tell("killing this process");
                raise(SIGKILL);
                std::process::abort();
            }
        }
    }
}

/// Not `eprintln!`, which panics when stderr is closed and is captured by the test harness.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

const SIGKILL: i32 = 9;
const SIGSTOP: i32 = if cfg!(target_os = "linux") { 19 } else { 17 };

#[allow(unsafe_code)]
fn raise(signal: i32) {
    unsafe extern "C" {
        #[link_name = "raise"]
        fn c_raise(signal: i32) -> i32;
    }
    // SAFETY: raise is part of the C library that std links; it takes an integer and touches no
    // memory of ours.
    unsafe {
        c_raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_a_name_a_count_and_what_to_do() {
        let plan = |at, deed| Ok(Plan { name: "test.a".into(), at, deed });
        assert_eq!(Plan::parse("test.a"), plan(1, Deed::Kill));
        assert_eq!(Plan::parse("test.a:3"), plan(3, Deed::Kill));
        assert_eq!(Plan::parse("test.a:pause"), plan(1, Deed::Pause));
        assert_eq!(Plan::parse("test.a:3:pause"), plan(3, Deed::Pause));
        assert_eq!(Plan::parse("test.a:wait"), plan(1, Deed::Wait));
        for wrong in ["", "absent.point", "test.a:0", "test.a:-1", "test.a:stop"] {
            Plan::parse(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_name_is_listed_only_as_a_whole() {
        assert!(is_same("abc", "abd", 2) && !is_same("abc", "abd", 3) && !is_same("ab", "abc", 3));
        assert!(is_listed("test.anything") && !is_listed("test") && !is_listed(""));
    }
}
