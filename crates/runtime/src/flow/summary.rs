//! What was said before a turn, as a summary: from then on contexts begin with it.

use super::turn::{begin, ids, used};
use super::{FlowError, settle_summary, step, with_summary};
use crate::context::SUMMARY;
use instar_core::budget::{Reservation, Spent};
use instar_core::id::{MessageId, TurnId, WorkerId};
use instar_core::machine::{By, turn as turn_machine};
use instar_core::rune::Draft;
use instar_core::rune::payload::{MemoryCandidate, MemoryCommitted, TurnUsage, Usage};
use instar_store::clock;
use instar_store::entity::{message, turn};
use instar_store::{Change, Commit};
use serde_json::json;
use uuid::Uuid;

/// The message that it becomes. It stands for everything up to `last`, from the turn's next provider call on; `from` is
/// the first turn that it does not stand for, if that is an earlier one.
pub fn summary_row(turn: &turn::Model, text: &str, last: MessageId, from: Option<TurnId>) -> message::Model {
    let mut data = json!({"iteration": turn.iterations + 1, "up_to": last});
    if let Some(from) = from {
        data["from"] = json!(from);
    }
    message::Model {
        id: Uuid::now_v7(),
        session_id: turn.session_id,
        agent_id: turn.agent_id,
        turn_id: Some(turn.id),
        version: 0,
        role: "user".into(),
        source: SUMMARY.into(),
        mode: "queue".into(),
        content: text.into(),
        data: Some(data),
        created_at: clock::now(),
    }
}

/// A summary is about to be made: the turn's row says so, and what it may come to is set aside. `None`: nothing is
/// limited.
pub fn begin_summary(
    turn: &turn::Model,
    worker: WorkerId,
    most: Usage,
    last: MessageId,
) -> Result<(Commit, Option<Reservation>), FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .expecting("turn", "streaming")
            .epoch(turn.epoch)
            .version(turn.version)
            .set(turn::Column::Input, turn.input.clone()),
    );
    let made = with_summary(&mut commit, turn, most);
    let memory = json!({"kind": SUMMARY, "up_to": last});
    commit.rune(Draft::new(turn_id, &MemoryCandidate { memory })?.agent(agent_id).turn(turn_id));
    Ok((commit, made))
}

/// What the provider made of it is booked, whether it is of use or not; `row`: from now on it stands for what it
/// sums up. Answers what is still set aside.
pub fn end_summary(
    turn: &turn::Model,
    worker: WorkerId,
    row: Option<&message::Model>,
    usage: Usage,
    estimated: bool,
) -> Result<(Commit, Option<Reservation>), FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let reported = step(&turn_machine::TABLE, &turn.status, "usage_reported", By::System)?;
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(reported)
            .epoch(turn.epoch)
            .version(turn.version)
            .set(turn::Column::Input, turn.input.clone())
            .set(turn::Column::Usage, used(turn, usage)),
    );
    let left = settle_summary(&mut commit, turn, Spent { usage, ..Spent::default() });
    let told = TurnUsage { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens, estimated };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    if let Some(row) = row {
        commit.insert(&message::TABLE, row.clone());
        let up_to = row.data.as_ref().map(|data| data["up_to"].clone()).unwrap_or_default();
        let memory =
            json!({"kind": SUMMARY, "message_id": MessageId::from(row.id), "up_to": up_to, "content": row.content});
        commit.rune(Draft::new(turn_id, &MemoryCommitted { memory })?.agent(agent_id).turn(turn_id));
    }
    Ok((commit, left))
}
