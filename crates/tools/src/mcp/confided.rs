//! What a server was told in confidence: by its configuration, and by calls that brought an account's fields. A server
//! can repeat it at any time, in the answer to somebody else, in its list of tools or in its last words, so all that it
//! says is looked through for all of it.

use instar_core::secret::Redactor;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of so many calls with different secrets they are remembered; the oldest are forgotten first.
const CALLS_MAX: usize = 256;

pub(super) struct Confided(Mutex<Known>);

struct Known {
    own: Arc<Redactor>,
    calls: VecDeque<Arc<Redactor>>,
    all: Arc<Redactor>,
}

impl Confided {
    pub(super) fn new(own: Arc<Redactor>) -> Confided {
        Confided(Mutex::new(Known { all: own.clone(), own, calls: VecDeque::new() }))
    }

    /// Everything until now.
    pub(super) fn now(&self) -> Arc<Redactor> {
        self.known().all.clone()
    }

    /// A call is about to tell it this.
    pub(super) fn add(&self, call: &Arc<Redactor>) {
        let mut known = self.known();
        if known.all.covers(call) {
            return;
        }
        known.calls.push_back(call.clone());
        if known.calls.len() > CALLS_MAX {
            known.calls.pop_front();
        }
        known.all = Arc::new(Redactor::union(known.calls.iter().chain([&known.own]).map(|one| &**one)));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use instar_core::secret::Secret;

    fn knows(text: &str) -> Arc<Redactor> {
        Arc::new(Redactor::new([&Secret::new(text).unwrap()]))
    }

    #[test]
    fn all_that_was_told_is_kept_and_the_oldest_calls_are_forgotten_first() {
        let confided = Confided::new(knows("its-own-token"));
        let hides = |text: &str| {
            let mut said = format!("<{text}>");
            confided.now().text(&mut said);
            said == "<[redacted]>"
        };
        for n in 0..=CALLS_MAX {
            confided.add(&knows(&format!("secret-{n:04}")));
            confided.add(&knows(&format!("secret-{n:04}")));
        }
        assert!(hides("its-own-token") && hides("secret-0001") && hides("secret-0256"));
        assert!(!hides("secret-0000") && !hides("innocent"));
    }
}
