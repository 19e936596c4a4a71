//! What ends it when agents do nothing but write to each other. Turns that began with no word of a person since are
//! counted in the agent's row, by whoever queues them; at the limit the agent rests, and its letters wait. Whoever
//! writes a word of a person sets the count back, so that letters wait only where nobody has said anything.

use super::{FlowError, step};
use instar_core::id::AgentId;
use instar_core::machine::{By, agent_drive};
use instar_core::rune::Draft;
use instar_core::rune::payload::AgentDriveIdled;
use instar_store::entity::agent;
use instar_store::{Change, Commit};

/// Why the agent rests, as its rune says it.
const LIMIT: &str = "letter_limit";

/// Whether no letter may cause another turn of the agent. `most` of 0: any number.
pub fn letters_are_enough(agent: &agent::Model, most: u32) -> bool {
    most > 0 && agent.letter_count.unwrap_or(0) >= i64::from(most)
}

/// One more turn for what waits.
pub(super) fn count(agent: &agent::Model, change: Change) -> Change {
    change.set(agent::Column::LetterCount, agent.letter_count.unwrap_or(0) + 1)
}

/// The agent rests until a person looks at it.
pub(super) fn rest(
    commit: &mut Commit,
    agent: &agent::Model,
    change: Change,
    drive: &str,
) -> Result<Change, FlowError> {
    let id = AgentId::from(agent.id);
    let rests = step(&agent_drive::TABLE, drive, "nudge_limit_reached", By::System)?;
    let told = AgentDriveIdled { reason: LIMIT.into(), needs_attention: true };
    commit.rune(Draft::new(id, &told)?.agent(id));
    Ok(change.moving(rests).set(agent::Column::LastError, None::<String>))
}
