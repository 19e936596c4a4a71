//! A session's live rows as one consistent-enough picture: what cascades are worked out on.
//!
//! The picture may be old when the commit is made; every row that moves is expected in the version
//! that was read, so that an old picture costs a second look and never a wrong decision.

use instar_core::cascade::{Fact, Reach, View};
use instar_core::decide;
use instar_core::id::{Entity, Kind, SessionId};
use instar_core::machine::Table as Machine;
use instar_store::entity::{agent, session, tool_call, turn};
use instar_store::{Store, StoreError};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

pub struct Snapshot {
    pub session: session::Model,
    /// In order of age.
    pub agents: BTreeMap<Uuid, agent::Model>,
    /// Turns that have not ended, in order of age.
    pub turns: Vec<turn::Model>,
    /// Calls that have no result yet.
    pub calls: Vec<tool_call::Model>,
    /// What the command itself says, such as whether a pause interrupts.
    pub facts: HashSet<Fact>,
}

impl Snapshot {
    /// `None`: there is no such session.
    pub async fn load(store: &Store, id: SessionId) -> Result<Option<Snapshot>, StoreError> {
        let db = store.db();
        let Some(session) = session::Entity::find_by_id(id.uuid()).one(db).await? else { return Ok(None) };
        let agents = agent::Entity::find().filter(agent::Column::SessionId.eq(id.uuid())).all(db).await?;
        let turns = turn::Entity::find()
            .filter(turn::Column::SessionId.eq(id.uuid()))
            .filter(turn::Column::EndedAt.is_null())
            .order_by_asc(turn::Column::Id)
            .all(db)
            .await?;
        let calls = tool_call::Entity::find()
            .filter(tool_call::Column::SessionId.eq(id.uuid()))
            .filter(tool_call::Column::EndedAt.is_null())
            .order_by_asc(tool_call::Column::Position)
            .all(db)
            .await?;
        let agents = agents.into_iter().map(|a| (a.id, a)).collect();
        Ok(Some(Snapshot { session, agents, turns, calls, facts: HashSet::new() }))
    }

    pub fn turn(&self, id: Uuid) -> Option<&turn::Model> {
        self.turns.iter().find(|t| t.id == id)
    }

    pub fn call(&self, id: Uuid) -> Option<&tool_call::Model> {
        self.calls.iter().find(|c| c.id == id)
    }

    /// The version that an entity's row was read in; `None` for one that is not in the picture.
    pub fn version(&self, entity: Entity) -> Option<i64> {
        match entity.kind {
            Kind::Session => (self.session.id == entity.id).then_some(self.session.version),
            Kind::Agent => self.agents.get(&entity.id).map(|a| a.version),
            Kind::Turn => self.turn(entity.id).map(|t| t.version),
            Kind::ToolCall => self.call(entity.id).map(|c| c.version),
            _ => None,
        }
    }

    fn agent_of(&self, entity: Entity) -> Option<&agent::Model> {
        let id = match entity.kind {
            Kind::Agent => entity.id,
            Kind::Turn => self.turn(entity.id)?.agent_id,
            Kind::ToolCall => self.call(entity.id)?.agent_id,
            _ => return None,
        };
        self.agents.get(&id)
    }
}

/// Whether the turn was asked to end because its agent shall.
pub(crate) fn is_kill(turn: &turn::Model) -> bool {
    turn.control.as_ref().is_some_and(|control| control["cause"] == "kill")
}

fn entities(kind: Kind, ids: impl Iterator<Item = Uuid>) -> Vec<Entity> {
    ids.map(|id| Entity::new(kind, id)).collect()
}

impl View for Snapshot {
    fn state(&self, table: &'static Machine, entity: Entity) -> Option<&str> {
        match table.name {
            "session" => (self.session.id == entity.id).then_some(self.session.status.as_str()),
            "agent_lifecycle" => self.agents.get(&entity.id).map(|a| a.lifecycle.as_str()),
            "agent_drive" => self.agents.get(&entity.id).map(|a| a.drive.as_str()),
            "turn" => self.turn(entity.id).map(|t| t.status.as_str()),
            "tool_call" => self.call(entity.id).map(|c| c.status.as_str()),
            _ => None,
        }
    }

    fn related(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        let session = || vec![Entity::new(Kind::Session, self.session.id)];
        let agent = || entities(Kind::Agent, self.agent_of(of).map(|a| a.id).into_iter());
        let turns = || entities(Kind::Turn, self.turns.iter().filter(|t| t.agent_id == of.id).map(|t| t.id));
        match reach {
            Reach::SessionOfAgent | Reach::SessionOfTurn => session(),
            Reach::AgentsOfSession => entities(Kind::Agent, self.agents.keys().copied()),
            Reach::ChildrenOfAgent => {
                let children = self.agents.values().filter(|a| a.parent_id == Some(of.id));
                entities(Kind::Agent, children.map(|a| a.id))
            }
            Reach::LifecycleOfAgent | Reach::DriveOfAgent | Reach::AgentOfTurn | Reach::DriveOfTurn => agent(),
            Reach::DriveOfParent => entities(Kind::Agent, self.agent_of(of).and_then(|a| a.parent_id).into_iter()),
            Reach::LiveTurnsOfSession => entities(Kind::Turn, self.turns.iter().map(|t| t.id)),
            Reach::LiveTurnOfAgent | Reach::QueuedTurnsOfAgent => turns(),
            Reach::OpenCallsOfTurn => {
                entities(Kind::ToolCall, self.calls.iter().filter(|c| c.turn_id == Some(of.id)).map(|c| c.id))
            }
            // A worker resumes a turn whose last result is there: `open_calls` at zero says so.
            Reach::TurnOfCall => Vec::new(),
            // Missions, plans and newcomers are not part of this picture.
            _ => Vec::new(),
        }
    }

    fn fact(&self, of: Entity, fact: Fact) -> bool {
        match fact {
            Fact::Root => self.session.root_agent_id == Some(of.id),
            // Asked of the agent while it was in a turn; carried out when that ends.
            Fact::KillPending => {
                self.turns.iter().any(|t| t.agent_id == of.id && is_kill(t)) || self.facts.contains(&fact)
            }
            other => self.facts.contains(&other),
        }
    }

    fn tries(&self, _: Entity) -> decide::Tries {
        decide::Tries { made: 0, max: 1 }
    }

    fn gate(&self, _: Entity) -> Option<decide::Call> {
        None
    }

    fn finished_tools(&self, turn: Entity) -> decide::FinishedTools {
        let made = self.turn(turn.id).map_or(0, |t| t.iterations);
        decide::FinishedTools {
            provider_calls: u32::try_from(made).unwrap_or(u32::MAX),
            provider_calls_max: decide::PROVIDER_CALLS_MAX,
            ended_by_tool: false,
            pending: decide::Pending::default(),
        }
    }

    fn attempt(&self, _: Entity) -> decide::Attempt {
        decide::Attempt {
            status: instar_core::rune::payload::ResultStatus::Unknown,
            outputs_fit: false,
            retryable: false,
            effect: decide::Effect::AtMostOnce,
            attempts: decide::Tries { made: 1, max: 1 },
        }
    }

    fn failed_hop(&self, _: Entity) -> decide::FailedHop {
        decide::FailedHop {
            phase: decide::HopPhase::Plan,
            class: decide::FailureClass::Recoverable,
            attempts: decide::Tries { made: 1, max: 1 },
            on_hop_failure: decide::OnHopFailure::default(),
        }
    }
}
