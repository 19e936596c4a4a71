//! What a commit does, without its values: to hold two ways of working one out against each other.

use super::Commit;
use instar_core::id::{AgentId, Entity};
use instar_core::machine::Move;
use instar_core::rune::Draft;

/// See the module's header.
#[derive(Clone, Debug)]
pub struct Outline {
    /// In the order in which they were made.
    pub moves: Vec<(Entity, Move)>,
    /// In the order of the log.
    pub runes: Vec<RuneOutline>,
}

/// A rune without what it says.
#[derive(Clone, Debug)]
pub struct RuneOutline {
    pub kind: &'static str,
    pub entity: Entity,
    pub agent: Option<AgentId>,
}

impl Commit {
    /// Its moves and the kinds of its runes, as it stands.
    pub fn outline(&self) -> Outline {
        let told = |draft: &Draft| RuneOutline { kind: draft.kind, entity: draft.entity, agent: draft.agent_id };
        Outline {
            moves: self.owed.iter().map(|(entity, mv, _)| (*entity, *mv)).collect(),
            runes: self.drafts.iter().map(told).collect(),
        }
    }
}
