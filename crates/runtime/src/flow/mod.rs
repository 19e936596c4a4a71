//! The hot path of a turn as commits: message, claim, tool calls, results, resume, end.
//!
//! Pure: rows in, a commit out. Each names the rows it was worked out from by version or epoch, so
//! that one that was overtaken does not land and the caller looks again. Whatever happens at one
//! moment is one commit.

mod birth;
mod call;
mod end;
mod message;
mod turn;

pub use birth::{Born, NewAgent, NewSession, join, open};
pub use call::{CALL_ATTEMPTS_MAX, Outcome, lost, result, result_json, start, state_after, status_token};
pub use end::{Ending, Fatal, complete, complete_by_limit, fail, interrupt};
pub use message::{Accepted, Mode, message, steer, take_waiting};
pub use turn::{
    APPROVAL_TIMER, Asked, Loss, RESUME_TIMER, Spoken, Verdict, call_row, calls, checkpoint, claim, hand_back, park,
    recover, resume, said_row, used, waits,
};

use instar_core::machine::{Answer, By, Move, Refusal, Table, apply};

/// What stops a step of the path.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error(transparent)]
    Refused(Box<Refusal>),
    #[error("{0} calls of the turn have no result yet: it is resumed when the last one is in")]
    Open(i64),
    #[error("a rune could not be told: {0}")]
    Untold(#[from] serde_json::Error),
}

/// The move of an event that must not be ignored here.
fn step(table: &'static Table, from: &str, event: &str, by: By) -> Result<Move, FlowError> {
    taken(apply(table, Some(from), event, by), table, from, event)
}

fn birth(table: &'static Table, event: &str, by: By) -> Result<Move, FlowError> {
    taken(apply(table, None, event, by), table, "none", event)
}

fn taken(answer: Answer, table: &'static Table, from: &str, event: &str) -> Result<Move, FlowError> {
    match answer {
        Answer::Moves(mv) => Ok(mv),
        Answer::Refused(no) => Err(FlowError::Refused(no)),
        Answer::Ignored { .. } => Err(FlowError::Refused(Box::new(Refusal {
            machine: table.name,
            from: from.to_owned(),
            event: event.to_owned(),
            allowed: Vec::new(),
            advice: "it is already so".to_owned(),
        }))),
    }
}
