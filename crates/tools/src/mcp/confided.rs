//! What a server was told in confidence: by its configuration, and by calls that brought an account's fields. A server
//! can repeat it at any time, in the answer to somebody else, in its list of tools or in its last words, so all that it
//! says is looked through for all of it.

use instar_core::secret::Redactor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Different secrets that a server may be told. Each is kept in all its writings, so there is a limit; nothing is ever
/// forgotten, since the server may not forget it either.
const TOLD_MAX: usize = 16_384;

/// Kept with the server, not with a connection to it: one that is reached anew may be the one that was told.
pub(super) struct Confided(Mutex<Arc<Redactor>>);

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
        Confided(Mutex::default())
    }

    /// Everything until now.
    pub(super) fn now(&self) -> Arc<Redactor> {
        self.known().clone()
    }

    /// It is about to be told this.
    pub(super) fn add(&self, secrets: &Arc<Redactor>) -> Result<(), TooMuch> {
        let mut known = self.known();
        if known.covers(secrets) {
            return Ok(());
        }
        let all = Redactor::union([&**known, &**secrets]);
        if all.len() > TOLD_MAX {
            return Err(TooMuch);
        }
        *known = Arc::new(all);
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Arc<Redactor>> {
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
        confided.add(&knows("secret-00000")).unwrap();
        let many: Vec<_> = (1..TOLD_MAX).map(|n| Secret::new(format!("secret-{n:05}")).unwrap()).collect();
        confided.add(&Arc::new(Redactor::new(&many))).unwrap();
        assert!(confided.add(&knows("one-too-many")).is_err());
        assert!(confided.add(&knows("secret-00007")).is_ok(), "it is known");
        assert!(hides("secret-00000") && hides("secret-16383") && !hides("innocent"));
    }
}
