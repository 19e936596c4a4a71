//! What a server was told in confidence: by its configuration, and by calls that brought an account's fields. A server
//! can repeat it at any time, in the answer to somebody else, in its list of tools or in its last words, so all that it
//! says is looked through for all of it.

use instar_core::secret::Redactor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Different secrets that a server may be told. Each is looked for in all that it says, so there is a limit; nothing is
/// ever forgotten, since the server may not forget it either.
const TOLD_MAX: usize = 1_024;

/// Kept with the server, not with a connection to it: one that is reached anew may be the one that was told.
pub(super) struct Confided(Mutex<Known>);

struct Known {
    told: Vec<Arc<Redactor>>,
    all: Arc<Redactor>,
}

/// It was told as much as can be looked for.
#[derive(Debug)]
pub(super) struct TooMuch;

impl std::fmt::Display for TooMuch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the server was given {TOLD_MAX} different secrets since this runner began, more cannot be kept out of what \
             it says: restart the runner, or give the server fewer accounts"
        )
    }
}

impl Confided {
    pub(super) fn new() -> Confided {
        Confided(Mutex::new(Known { told: Vec::new(), all: Arc::new(Redactor::union([])) }))
    }

    /// Everything until now.
    pub(super) fn now(&self) -> Arc<Redactor> {
        self.known().all.clone()
    }

    /// It is about to be told this.
    pub(super) fn add(&self, secrets: &Arc<Redactor>) -> Result<(), TooMuch> {
        let mut known = self.known();
        if known.all.covers(secrets) {
            return Ok(());
        }
        if known.told.len() >= TOLD_MAX {
            return Err(TooMuch);
        }
        known.told.push(secrets.clone());
        known.all = Arc::new(Redactor::union(known.told.iter().map(|one| &**one)));
        Ok(())
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
    fn nothing_that_was_told_is_forgotten_and_what_could_not_be_kept_is_not_told() {
        let confided = Confided::new();
        let hides = |text: &str| {
            let mut said = format!("<{text}>");
            confided.now().text(&mut said);
            said == "<[redacted]>"
        };
        for n in 0..TOLD_MAX {
            confided.add(&knows(&format!("secret-{n:04}"))).unwrap();
            confided.add(&knows(&format!("secret-{n:04}"))).unwrap();
        }
        assert!(confided.add(&knows("one-too-many")).is_err());
        assert!(confided.add(&knows("secret-0007")).is_ok(), "it is known");
        assert!(hides("secret-0000") && hides("secret-1023") && !hides("innocent"));
    }
}
