//! What was said before a turn, as a summary: from then on contexts begin with it.

use super::turn::{begin, ids, used};
use super::{FlowError, book, step};
use crate::context::SUMMARY;
use chrono::Utc;
use instar_core::budget::Spent;
use instar_core::id::{MessageId, WorkerId};
use instar_core::machine::{By, turn as turn_machine};
use instar_core::rune::Draft;
use instar_core::rune::payload::{MemoryCommitted, TurnUsage, Usage};
use instar_store::entity::{message, turn};
use instar_store::{Change, Commit};
use serde_json::json;
use uuid::Uuid;

/// The message that it becomes. It stands for everything up to `last`, from the turn's next provider call on.
pub fn summary_row(turn: &turn::Model, text: &str, last: MessageId) -> message::Model {
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
        data: Some(json!({"iteration": turn.iterations + 1, "up_to": last})),
        created_at: Utc::now(),
    }
}

pub fn summarise(
    turn: &turn::Model,
    worker: WorkerId,
    row: &message::Model,
    usage: Usage,
) -> Result<Commit, FlowError> {
    let (agent_id, turn_id) = ids(turn);
    let mut commit = begin(turn, worker, turn.epoch);
    let reported = step(&turn_machine::TABLE, &turn.status, "usage_reported", By::System)?;
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(reported)
            .epoch(turn.epoch)
            .version(turn.version)
            .set(turn::Column::Usage, used(turn, usage)),
    );
    book(&mut commit, turn, Spent { usage, ..Spent::default() });
    commit.insert(&message::TABLE, row.clone());
    let told = TurnUsage { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens, estimated: false };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    let up_to = row.data.as_ref().map(|data| data["up_to"].clone()).unwrap_or_default();
    let memory =
        json!({"kind": SUMMARY, "message_id": MessageId::from(row.id), "up_to": up_to, "content": row.content});
    commit.rune(Draft::new(turn_id, &MemoryCommitted { memory })?.agent(agent_id).turn(turn_id));
    Ok(commit)
}
