//! A commit that must get an answer: whoever has done something outside writes it down, however
//! long the database is away.

use crate::hub::Hub;
use instar_store::{Answer, Commit, Landed, StoreError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Insisted<E> {
    #[error(transparent)]
    Built(E),
    #[error(transparent)]
    Store(StoreError),
    #[error("given up: what it was for is no longer ours")]
    Ended,
}

impl Hub {
    /// Commits what `build` makes and tries again while the database does not answer, until `until`.
    /// One whose end is not known is looked for before it is made again; if it had landed, its answer
    /// has no counters.
    pub async fn insist<E>(
        &self,
        until: &CancellationToken,
        mut build: impl FnMut() -> Result<Commit, E>,
    ) -> Result<Answer, Insisted<E>> {
        let mut wait = WAIT_MIN;
        let mut unsure = None;
        loop {
            if until.is_cancelled() {
                return Err(Insisted::Ended);
            }
            let tried = match unsure {
                None => {
                    let commit = build().map_err(Insisted::Built)?;
                    let name = (commit.session(), commit.command_id());
                    match self.commit(commit).await {
                        Err(StoreError::Ambiguous(_)) => {
                            unsure = Some(name);
                            continue;
                        }
                        other => other,
                    }
                }
                Some((session, command)) => match self.store().read_back(session, command).await {
                    Ok(runes) if runes.is_empty() => {
                        unsure = None;
                        continue;
                    }
                    Ok(runes) => Ok(Answer::Moved(Landed { runes, counters: vec![] })),
                    Err(error) => Err(error),
                },
            };
            match tried {
                Ok(answer) => return Ok(answer),
                Err(error) if error.retryable() || unsure.is_some() => {
                    tracing::debug!(%error, "the commit is tried again");
                    tokio::select! {
                        () = tokio::time::sleep(wait) => wait = (wait * 2).min(WAIT_MAX),
                        () = until.cancelled() => return Err(Insisted::Ended),
                    }
                }
                Err(error) => return Err(Insisted::Store(error)),
            }
        }
    }
}
