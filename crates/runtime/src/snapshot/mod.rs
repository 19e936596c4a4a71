//! A session's live rows as one consistent-enough picture: what cascades are worked out on.
//!
//! The picture may be old when the commit is made; every row that moves is expected in the version
//! that was read, so that an old picture costs a second look and never a wrong decision.

mod mission;
mod plan;
pub(crate) mod settle;

pub(crate) use mission::closed;
pub(crate) use mission::is_by_plan;
pub use mission::{Missions, REPAIRS_MAX, Row, asset_ids, attempts, gates, mapped_assets};
pub(crate) use settle::failed_phase;
pub use settle::stopped_hop;
pub(crate) use settle::{DOUBTFUL, GATE_TIMEOUT, INPUT_MISSING, MISSED_MAX, PLAN_BLOCKED, TAKEN_UP, forgive, missed};

pub(crate) use plan::Plans;

use crate::flow::{NUDGE, is_late_too_often};
use chrono::{DateTime, Utc};
use instar_core::budget::Kind as Limit;
use instar_core::cascade::{Fact, Reach, View};
use instar_core::decide;
use instar_core::id::{AssetId, CallId, Entity, HopId, Kind, MissionId, SessionId, StepId};
use instar_core::machine::Table as Machine;
use instar_store::entity::{agent, session, tool_call, turn};
use instar_store::{Store, StoreError};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;
use uuid::Uuid;

/// What a command knows that no row tells.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// How the attempt behind a step's call went.
    pub attempt: Option<decide::Attempt>,
    /// What policy has to judge, by new call.
    pub gates: HashMap<Uuid, decide::Call>,
    /// How far a failure reaches.
    pub class: Option<decide::FailureClass>,
    /// Versions of assets that it writes.
    pub fresh: Vec<crate::asset::Fresh>,
    /// A turn has passed its deadline.
    pub(crate) late: bool,
    /// Nobody said why: its reason is only its own name.
    pub(crate) wordless: bool,
}

pub struct Snapshot {
    pub session: session::Model,
    /// In order of age.
    pub agents: BTreeMap<Uuid, agent::Model>,
    /// Turns that have not ended, in order of age.
    pub turns: Vec<turn::Model>,
    /// Calls that have no result yet.
    pub calls: Vec<tool_call::Model>,
    /// Missions that the command can reach.
    pub missions: Missions,
    pub(crate) plans: Plans,
    /// What the command itself says, such as whether a pause interrupts.
    pub facts: HashSet<Fact>,
    pub said: Said,
    /// Whom the command itself means: what it brings forth, leaves out or changes, and of what.
    pub relations: Vec<(Reach, Entity, Entity)>,
    /// Rows that the command brings along and that are not there yet.
    pub unborn: HashSet<Entity>,
    /// Where turns and calls were when the first of them was looked for.
    turn_places: OnceLock<HashMap<Uuid, usize>>,
    call_places: OnceLock<HashMap<Uuid, usize>>,
}

impl Snapshot {
    /// What a command about this entity can reach. `None`: there is no such session.
    pub async fn load(store: &Store, id: SessionId, about: Entity) -> Result<Option<Snapshot>, StoreError> {
        let db = store.db();
        let Some(session) = session::Entity::find_by_id(id.uuid()).one(db).await? else { return Ok(None) };
        let mut snapshot = Snapshot {
            session,
            agents: BTreeMap::new(),
            turns: Vec::new(),
            calls: Vec::new(),
            missions: Missions::default(),
            plans: Plans::default(),
            facts: HashSet::new(),
            said: Said::default(),
            relations: Vec::new(),
            unborn: HashSet::new(),
            turn_places: OnceLock::new(),
            call_places: OnceLock::new(),
        };
        let of_mission = snapshot.load_mission(store, about).await?;
        // A hop that a plan carries out takes that along, with its tasks and their turns.
        if !of_mission || snapshot.missions.hops.values().any(is_by_plan) {
            snapshot.load_agents(store).await?;
            snapshot.plans = Plans::load(store, id.uuid()).await?;
        }
        // Whatever the command is about may end a plan, and with it the hop that it carries out.
        for hop in snapshot.plans.hops() {
            if !snapshot.missions.hops.contains_key(&hop) {
                snapshot.load_mission(store, Entity::from(HopId::from(hop))).await?;
            }
        }
        if about.kind == Kind::Session {
            let rows = store.live_missions(id).await?;
            snapshot.add_missions(rows);
        }
        Ok(Some(snapshot))
    }

    async fn load_agents(&mut self, store: &Store) -> Result<(), StoreError> {
        let (db, id) = (store.db(), self.session.id);
        let agents = agent::Entity::find().filter(agent::Column::SessionId.eq(id)).all(db).await?;
        self.agents = agents.into_iter().map(|a| (a.id, a)).collect();
        self.turns = turn::Entity::find()
            .filter(turn::Column::SessionId.eq(id))
            .filter(turn::Column::EndedAt.is_null())
            .order_by_asc(turn::Column::Id)
            .all(db)
            .await?;
        self.calls = tool_call::Entity::find()
            .filter(tool_call::Column::SessionId.eq(id))
            .filter(tool_call::Column::EndedAt.is_null())
            .order_by_asc(tool_call::Column::Position)
            .all(db)
            .await?;
        Ok(())
    }

    /// Of a command about a mission or what belongs to one: that mission, and nothing else of the session. Says
    /// whether it is such a command.
    async fn load_mission(&mut self, store: &Store, about: Entity) -> Result<bool, StoreError> {
        let (mission, hop) = match about.kind {
            Kind::Mission => (Some(about.id), None),
            Kind::Hop => {
                let hop = store.hop(HopId::from(about.id)).await?;
                (hop.as_ref().map(|hop| hop.mission_id), hop.map(|hop| hop.id))
            }
            Kind::ToolStep => {
                let step = store.step(StepId::from(about.id)).await?;
                (step.as_ref().map(|step| step.mission_id), step.map(|step| step.hop_id))
            }
            Kind::Asset => (store.asset(AssetId::from(about.id)).await?.map(|asset| asset.mission_id), None),
            Kind::ToolCall => {
                let Some(call) = store.call(CallId::from(about.id)).await? else { return Ok(false) };
                let Some(step) = call.step_id else { return Ok(false) };
                let step = store.step(StepId::from(step)).await?;
                self.calls.push(call);
                (step.as_ref().map(|step| step.mission_id), step.map(|step| step.hop_id))
            }
            _ => return Ok(false),
        };
        if let Some(mission) = mission {
            let rows = store.mission_rows(MissionId::from(mission), hop.map(HopId::from)).await?;
            if rows.missions.iter().all(|mission| mission.session_id == self.session.id) {
                self.add_missions(rows);
            }
        }
        Ok(true)
    }

    fn add_missions(&mut self, mut rows: instar_store::MissionRows) {
        let new = std::mem::take(&mut rows.calls).into_iter();
        let known: HashSet<Uuid> = self.calls.iter().map(|call| call.id).collect();
        self.calls.extend(new.filter(|call| !known.contains(&call.id)));
        self.missions.add(rows);
    }

    /// A mission that the command is about without being about an entity of it yet.
    pub(crate) async fn load_also(&mut self, store: &Store, mission: MissionId) -> Result<(), StoreError> {
        let rows = store.mission_rows(mission, None).await?;
        if rows.missions.iter().all(|mission| mission.session_id == self.session.id) {
            self.add_missions(rows);
        }
        Ok(())
    }

    /// A row that the command brings along.
    pub(crate) fn bring(&mut self, row: Row) {
        self.unborn.insert(row.entity());
        match row {
            Row::Mission(row) => drop(self.missions.missions.insert(row.id, row)),
            Row::Hop(row) => drop(self.missions.hops.insert(row.id, row)),
            Row::Step(row) => self.missions.put_step(row),
            Row::Asset(row) => drop(self.missions.assets.insert(row.id, row)),
            Row::Call(row) => self.calls.push(row),
            Row::Plan(row) => self.plans.plans.push(row),
        }
    }

    /// When the oldest clock that stands while the session is held was set: that of a call that waits for a person,
    /// or one of a budget.
    pub(crate) fn oldest_clock(&self) -> Option<DateTime<Utc>> {
        let limits = |budget: &serde_json::Value| budget.get(Limit::WallTime.field()).is_some_and(|ms| !ms.is_null());
        if limits(&self.session.budget) || self.agents.values().any(|agent| limits(&agent.config["budget"])) {
            return Some(self.session.created_at);
        }
        let waiting = self.calls.iter().filter(|call| call.status == "awaiting_approval");
        waiting.map(|call| call.created_at).min()
    }

    pub fn turn(&self, id: Uuid) -> Option<&turn::Model> {
        let places = self.turn_places.get_or_init(|| places(self.turns.iter().map(|t| t.id)));
        // Those that came since are few.
        let known = places.get(&id).and_then(|at| self.turns.get(*at)).filter(|t| t.id == id);
        known.or_else(|| self.turns.get(places.len()..)?.iter().find(|t| t.id == id))
    }

    pub fn call(&self, id: Uuid) -> Option<&tool_call::Model> {
        let places = self.call_places.get_or_init(|| places(self.calls.iter().map(|c| c.id)));
        let known = places.get(&id).and_then(|at| self.calls.get(*at)).filter(|c| c.id == id);
        known.or_else(|| self.calls.get(places.len()..)?.iter().find(|c| c.id == id))
    }

    /// The version that an entity's row was read in; `None` for one that is not in the picture.
    pub fn version(&self, entity: Entity) -> Option<i64> {
        match entity.kind {
            Kind::Session => (self.session.id == entity.id).then_some(self.session.version),
            Kind::Agent => self.agents.get(&entity.id).map(|a| a.version),
            Kind::Turn => self.turn(entity.id).map(|t| t.version),
            Kind::ToolCall => self.call(entity.id).map(|c| c.version),
            Kind::Plan => self.plan(entity.id).map(|p| p.version),
            Kind::Task => self.task(entity.id).map(|t| t.version),
            _ => self.missions.version(entity),
        }
    }

    fn related_agents(&self, of: Entity, reach: Reach) -> Vec<Entity> {
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
            Reach::OpenCallOfStep => {
                let of_step = self.calls.iter().filter(|c| c.step_id == Some(of.id) && c.ended_at.is_none());
                entities(Kind::ToolCall, of_step.map(|c| c.id))
            }
            Reach::StepOfCall => entities(Kind::ToolStep, self.call(of.id).and_then(|c| c.step_id).into_iter()),
            Reach::OutputsOfPlan => {
                let hop = self.plan(of.id).and_then(|plan| plan.hop_id).map(|hop| Entity::new(Kind::Hop, hop));
                hop.and_then(|hop| self.missions.related(hop, Reach::OutputsOfHop)).unwrap_or_default()
            }
            // A worker resumes a turn whose last result is there: `open_calls` at zero says so.
            Reach::TurnOfCall => Vec::new(),
            // Newcomers are named by the command.
            other => self.plans.related(of, other).unwrap_or_default(),
        }
    }

    fn doomed(&self, agent: Entity, event: &str) -> bool {
        self.turns.iter().any(|turn| turn.agent_id == agent.id && doom(turn) == Some(event))
    }

    /// Whether nobody asked for the turn that the agent is in: it would only meet the turn's error again.
    fn is_nudged(&self, agent: Entity) -> bool {
        let mut begun = self.turns.iter().filter(|turn| turn.agent_id == agent.id && turn.status != "queued");
        begun.any(|turn| turn.cause == NUDGE)
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

/// The event by which the agent of a turn shall end with it: asked while it was in the turn.
pub(crate) fn doom(turn: &turn::Model) -> Option<&'static str> {
    let cause = turn.control.as_ref()?["cause"].as_str()?;
    ["kill", "parent_closed"].into_iter().find(|event| *event == cause)
}

fn places(ids: impl Iterator<Item = Uuid>) -> HashMap<Uuid, usize> {
    ids.enumerate().map(|(at, id)| (id, at)).collect()
}

fn entities(kind: Kind, ids: impl Iterator<Item = Uuid>) -> Vec<Entity> {
    ids.map(|id| Entity::new(kind, id)).collect()
}

impl View for Snapshot {
    fn state(&self, table: &'static Machine, entity: Entity) -> Option<&str> {
        if self.unborn.contains(&entity) {
            return None;
        }
        match table.name {
            "session" => (self.session.id == entity.id).then_some(self.session.status.as_str()),
            "agent_lifecycle" => self.agents.get(&entity.id).map(|a| a.lifecycle.as_str()),
            "agent_drive" => self.agents.get(&entity.id).map(|a| a.drive.as_str()),
            "turn" => self.turn(entity.id).map(|t| t.status.as_str()),
            "tool_call" => self.call(entity.id).map(|c| c.status.as_str()),
            "mission" | "hop" | "tool_step" | "asset" => self.missions.status(entity),
            "plan" => self.plan(entity.id).map(|p| p.status.as_str()),
            "task" => self.task(entity.id).map(|t| t.status.as_str()),
            _ => None,
        }
    }

    fn related(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        let named = self.relations.iter().filter(|(by, from, _)| *by == reach && *from == of);
        let mut found: Vec<Entity> = named.map(|(_, _, entity)| *entity).collect();
        let known = self.missions.related(of, reach).unwrap_or_else(|| self.related_agents(of, reach));
        found.extend(known.into_iter().filter(|entity| !self.unborn.contains(entity)));
        found
    }

    fn fact(&self, of: Entity, fact: Fact) -> bool {
        match fact {
            Fact::Root => self.session.root_agent_id == Some(of.id),
            // Asked of the agent while it was in a turn; carried out when that ends.
            Fact::KillPending => self.doomed(of, "kill") || self.facts.contains(&fact),
            Fact::ParentEnded => self.doomed(of, "parent_closed") || self.facts.contains(&fact),
            // Turns that pass their deadline are counted instead.
            Fact::DriveFatal => (self.is_nudged(of) && !self.said.late) || self.facts.contains(&fact),
            Fact::LateTooOften => self.agent_of(of).is_some_and(is_late_too_often),
            Fact::Attached => self.missions.missions.get(&of.id).is_some_and(|mission| !mission.detached),
            Fact::Final => self.missions.hops.get(&of.id).is_some_and(|hop| hop.is_final),
            Fact::ByPlan => self.missions.hops.get(&of.id).is_some_and(is_by_plan),
            Fact::ToolChosen => self.missions.step(of.id).is_some_and(|step| step.tool.is_some()),
            Fact::Configured => self.missions.step(of.id).is_some_and(|step| step.validation_errors.is_none()),
            Fact::Startable => {
                let ready = self.missions.has_inputs(of.id) && self.missions.closed_output_of(of.id).is_none();
                self.session.status == "active" && ready
            }
            Fact::StopOnFirstFailure => self.plans.stops_on_first_failure(of.id),
            other => self.facts.contains(&other),
        }
    }

    fn tries(&self, of: Entity) -> decide::Tries {
        if let Some(tries) = self.plans.tries(of.id) {
            return tries;
        }
        // The finding that is being made counts.
        let repairs = self.missions.hops.get(&of.id).map_or(0, |hop| hop.repairs);
        decide::Tries { made: u32::try_from(repairs).unwrap_or_default() + 1, max: REPAIRS_MAX }
    }

    fn gate(&self, call: Entity) -> Option<decide::Call> {
        self.said.gates.get(&call.id).copied()
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

    fn attempt(&self, call: Entity) -> decide::Attempt {
        let step = self.call(call.id).and_then(|call| call.step_id).and_then(|id| self.missions.step(id));
        let effect = self.call(call.id).and_then(|call| decide::Effect::parse(&call.effect));
        let count = |n: i64| u32::try_from(n).unwrap_or_default();
        self.said.attempt.unwrap_or(decide::Attempt {
            status: instar_core::rune::payload::ResultStatus::Unknown,
            outputs_fit: false,
            retryable: false,
            effect: effect.unwrap_or(decide::Effect::AtMostOnce),
            attempts: step.map_or(decide::Tries { made: 1, max: 1 }, |step| decide::Tries {
                made: count(step.attempts),
                max: count(step.attempts_max),
            }),
        })
    }

    fn failed_hop(&self, hop: Entity) -> decide::FailedHop {
        self.missions.failed_hop(hop.id, self.said.class)
    }
}
