//! The hot path of a turn as commits: message, claim, tool calls, results, resume, end.
//!
//! Pure: rows in, a commit out. Each names the rows it was worked out from by version or epoch, so
//! that one that was overtaken does not land and the caller looks again. Whatever happens at one
//! moment is one commit.

mod birth;
mod broadcast;
mod budget;
mod call;
mod child;
mod daily;
mod end;
mod excerpt;
mod letter;
mod message;
mod nudge;
mod plan;
mod relaunch;
mod summary;
mod turn;
mod wait;

pub use birth::{BIRTH_TIMER, Born, Loaded, NewAgent, NewSession, counted, join, live_state, open, open_state, ready};
pub use broadcast::{
    BROADCAST_TIMER, brief, broadcast, broadcast_more, may_broadcast, message_of, recipients_max, skips,
};
pub use budget::{
    CLOCK_TIMER, PAYERS, booked, is_limit, lift, limit, on_budget, payers, reserve, reserved, session_scope, settle,
    spent, unheard,
};
use budget::{book, settle_summary, with_summary};
pub use call::{
    CALL_ATTEMPTS_MAX, Outcome, RUNNER_LOST, event, kills_runners, lost, progress, result, result_json, runs_again,
    start, state_after, status_token,
};
pub use child::{
    AGENT_CAUSE, AGENT_SOURCE, Child, Letter, Told, Waits as LetterWaits, bear_child, fail_child, finish_child,
    letter_waits, tell,
};
pub use daily::{
    COST_PER_DAY, Ceiling, DAILY_LIMIT, DAY_TIMER, Day, TURNS_PER_DAY, Today, amount, go_on_today, new_day,
    rest_for_today, rests_for_today,
};
pub use end::{
    CALLS_MAX, Ending, Fatal, ORPHANS_TIMER, complete, complete_by_limit, fail, give_up, interrupt, provider_calls_max,
};
pub(crate) use end::{count_late, is_late_too_often};
pub use excerpt::{inputs, results};
pub use letter::letters_are_enough;
pub use message::{Accepted, Mode, message, steer, take_up};
pub(crate) use message::{Why, queue_for};
pub use nudge::{NUDGE, NUDGE_TIMER, is_autonomous, nudge, nudge_later};
pub use plan::{
    Critique, DISMISS_TIMER, Engaged, Hand, MADE_FOR, NewPlan, NewTask, PLAN_CAUSE, PLAN_TIMER, TASK_CAUSE,
    ask_for_critique, ask_for_plan, ask_for_report, assign, bear_plan, draft, follow_up, leave_failed, set_goal,
};
pub(crate) use plan::{attend_birth, plan_row};
pub use relaunch::{RELAUNCH_AFTER, RELAUNCH_TIMER, RELAUNCHES_MAX, relaunch, relaunch_after};
pub use summary::{begin_summary, end_summary, summary_row};
pub(crate) use turn::timer;
pub use turn::{
    APPROVAL_TIMER, Asked, CUT_OFF, Loss, RESUME_TIMER, Spoken, Verdict, call_row, calls, calls_in_mind, cause_with,
    checkpoint, claim, hand_back, is_last, park, pause, recover, resume, said_row, used, used_with, waits,
};
pub use wait::{WAIT_TIMER, Waits, has_waited, wait, wait_for_account};

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
