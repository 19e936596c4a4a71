//! Look, build, commit; look again if something moved in between.

use crate::call::Call;
use crate::problem::Problem;
use instar_core::machine::{Answer as Cell, By, Move, Refusal, Table, apply};
use instar_store::{Answer, Commit, Landed};

/// How often a command looks again when the rows changed under it.
const LOOKS_MAX: usize = 8;

/// Commits what `build` makes of the rows as `look` finds them now, with what it says beside it.
pub(crate) async fn settle<'a, R, T, F, Fut, B>(call: &'a Call, look: F, build: B) -> Result<(Landed, T), Problem>
where
    F: Fn(&'a Call) -> Fut,
    Fut: Future<Output = Result<R, Problem>>,
    B: FnMut(R) -> Result<(Commit, T), Problem>,
{
    settle_within(call, LOOKS_MAX, look, build).await
}

/// The same for rows that many write at once, each of whom makes the others look again.
pub(crate) async fn settle_within<'a, R, T, F, Fut, B>(
    call: &'a Call,
    looks: usize,
    look: F,
    mut build: B,
) -> Result<(Landed, T), Problem>
where
    F: Fn(&'a Call) -> Fut,
    Fut: Future<Output = Result<R, Problem>>,
    B: FnMut(R) -> Result<(Commit, T), Problem>,
{
    for _ in 0..looks {
        let (commit, value) = build(look(call).await?)?;
        if let Answer::Moved(landed) = call.api.hub().commit(commit).await? {
            return Ok((landed, value));
        }
    }
    Err(Problem::busy("others keep changing the same rows; try again"))
}

/// The move of a person's event; one that is ignored is no move.
pub(crate) fn raise(table: &'static Table, from: &str, event: &str) -> Result<Option<Move>, Problem> {
    match apply(table, Some(from), event, By::User) {
        Cell::Moves(mv) => Ok(Some(mv)),
        Cell::Ignored { .. } => Ok(None),
        Cell::Refused(no) => Err(Problem::refused(&no)),
    }
}

/// A refusal for a reason that the table does not know.
pub(crate) fn refuse(table: &'static Table, from: &str, event: &str, advice: &str) -> Problem {
    Problem::refused(&Refusal {
        machine: table.name,
        from: from.to_owned(),
        event: event.to_owned(),
        allowed: table.allowed(table.state(from), By::User).into_iter().filter(|e| *e != event).collect(),
        advice: advice.to_owned(),
    })
}
