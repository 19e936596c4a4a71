//! Rows in memory, and what the list of cascades can ask of them: all of it, unlike the pictures that services have.

use crate::cast;
use instar_core::cascade::{Fact, Reach, View};
use instar_core::decide::{self, Effect, FailureClass, HopPhase, OnHopFailure, PROVIDER_CALLS_MAX, Tries};
use instar_core::id::{AgentId, CallId, Entity, Kind, PlanId, SessionId, TaskId, TurnId, WorkerId};
use instar_core::machine::{By, Table};
use instar_core::rune::Actor;
use instar_core::rune::payload::ResultStatus;
use instar_runtime::plan::Work;
use instar_store::Commit;
use instar_store::entity::{agent, plan, session, task, tool_call, turn};
use serde_json::json;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// See the module's header. What services read one of is first in its list.
#[derive(Clone)]
pub struct World {
    pub worker: WorkerId,
    pub session: session::Model,
    pub agents: Vec<agent::Model>,
    pub turns: Vec<turn::Model>,
    pub calls: Vec<tool_call::Model>,
    pub plans: Vec<plan::Model>,
    pub tasks: Vec<task::Model>,
    pub facts: HashSet<Fact>,
    /// What policy has to say to new calls, in their order.
    pub judged: HashMap<Entity, decide::Call>,
    pub(super) relations: Vec<(Reach, Entity, Entity)>,
    /// Where entities are after moves of the command so far.
    pub(super) moved: HashMap<(&'static str, Entity), &'static str>,
}

impl World {
    /// An active session with an agent that takes work and has none.
    pub fn new() -> World {
        let session = cast::session_row(cast::fresh(), "active");
        let agent = cast::agent_row(cast::fresh(), SessionId::from(session.id), "idle", "running");
        World {
            worker: cast::fresh(),
            session,
            agents: vec![agent],
            turns: Vec::new(),
            calls: Vec::new(),
            plans: Vec::new(),
            tasks: Vec::new(),
            facts: HashSet::new(),
            judged: HashMap::new(),
            relations: Vec::new(),
            moved: HashMap::new(),
        }
    }

    /// The same with a turn in this state, which is its worker's if it has begun.
    pub fn with_turn(status: &str) -> World {
        let mut world = World::new();
        let (session, agent) = (SessionId::from(world.session.id), &mut world.agents[0]);
        let mut turn = cast::turn_row(cast::fresh(), session, AgentId::from(agent.id), status);
        if status != "queued" {
            agent.lifecycle = "running_turn".into();
            (agent.epoch, agent.owner) = (1, Some(world.worker.uuid()));
            (turn.epoch, turn.attempts, turn.iterations) = (1, 1, 1);
        }
        world.turns.push(turn);
        world
    }

    /// The same with calls of the turn, none of which has a result.
    pub fn with_calls(states: &[&str]) -> World {
        let mut world = World::with_turn("tool_executing");
        let (session, agent, turn) = (world.session.id, world.agents[0].id, world.turns[0].id);
        world.turns[0].open_calls = states.len() as i64;
        let call = |state: &&str| {
            let ids = (SessionId::from(session), AgentId::from(agent), TurnId::from(turn));
            cast::call_row(cast::fresh::<CallId>(), ids.0, ids.1, ids.2, state)
        };
        world.calls = states.iter().map(call).collect();
        world
    }

    /// A plan in this state with a task in that.
    pub fn with_plan(plan: &str, task: &str) -> World {
        let mut world = World::new();
        let session = SessionId::from(world.session.id);
        world.plans.push(cast::plan_row(cast::fresh(), session, plan));
        let plan = PlanId::from(world.plans[0].id);
        world.tasks.push(cast::task_row(cast::fresh::<TaskId>(), session, plan, task));
        world
    }

    pub fn knowing(mut self, facts: &[Fact]) -> World {
        self.facts.extend(facts);
        self
    }

    /// The agent waits for a reason to run.
    pub fn idle(mut self) -> World {
        self.agents[0].drive = "idle".into();
        self
    }

    /// The agent was told to end with its turn, by this event.
    pub fn told(mut self, event: &str) -> World {
        self.turns[0].control = Some(json!({"action": "interrupt", "cause": event, "reason": event}));
        self
    }

    /// A commit of the agent itself.
    pub fn as_agent(&self) -> Commit {
        let actor = Actor::new(By::Agent, AgentId::from(self.agents[0].id).to_string());
        Commit::new(SessionId::from(self.session.id), actor)
    }

    pub fn agent(&self) -> Entity {
        Entity::new(Kind::Agent, self.agents[0].id)
    }

    pub fn turn(&self) -> Entity {
        Entity::new(Kind::Turn, self.turns[0].id)
    }

    pub fn call(&self) -> Entity {
        Entity::new(Kind::ToolCall, self.calls[0].id)
    }

    pub fn plan(&self) -> Entity {
        Entity::new(Kind::Plan, self.plans[0].id)
    }

    pub fn task(&self) -> Entity {
        Entity::new(Kind::Task, self.tasks[0].id)
    }

    fn turn_row(&self, id: Uuid) -> Option<&turn::Model> {
        self.turns.iter().find(|turn| turn.id == id)
    }

    fn agent_row(&self, id: Uuid) -> Option<&agent::Model> {
        self.agents.iter().find(|agent| agent.id == id)
    }

    fn call_row(&self, id: Uuid) -> Option<&tool_call::Model> {
        self.calls.iter().find(|call| call.id == id)
    }

    fn is_told(&self, agent: Entity, cause: &str) -> bool {
        let mut own = self.turns.iter().filter(|turn| turn.agent_id == agent.id);
        own.any(|turn| turn.control.as_ref().is_some_and(|control| control["cause"] == cause))
    }

    fn known(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        let session = || vec![Entity::new(Kind::Session, self.session.id)];
        let one = |kind: Kind, id: Option<Uuid>| id.map(|id| Entity::new(kind, id)).into_iter().collect::<Vec<_>>();
        let turn = || self.turn_row(of.id);
        match reach {
            Reach::SessionOfAgent | Reach::SessionOfTurn => session(),
            Reach::AgentsOfSession => self.agents.iter().map(|a| Entity::new(Kind::Agent, a.id)).collect(),
            Reach::ChildrenOfAgent => {
                let children = self.agents.iter().filter(|a| a.parent_id == Some(of.id));
                children.map(|a| Entity::new(Kind::Agent, a.id)).collect()
            }
            // Also of one that this commit brings forth.
            Reach::LifecycleOfAgent | Reach::DriveOfAgent => vec![of],
            Reach::DriveOfParent => one(Kind::Agent, self.agent_row(of.id).and_then(|a| a.parent_id)),
            Reach::AgentOfTurn | Reach::DriveOfTurn => one(Kind::Agent, turn().map(|t| t.agent_id)),
            Reach::DriveOfTask => {
                let owner = self.tasks.iter().find(|t| t.id == of.id).and_then(|t| t.owner_id);
                one(Kind::Agent, owner)
            }
            Reach::LiveTurnsOfSession => self.turns.iter().map(|t| Entity::new(Kind::Turn, t.id)).collect(),
            Reach::LiveTurnOfAgent | Reach::QueuedTurnsOfAgent => {
                let own = self.turns.iter().filter(|t| t.agent_id == of.id);
                own.map(|t| Entity::new(Kind::Turn, t.id)).collect()
            }
            Reach::TurnOfCall => one(Kind::Turn, self.call_row(of.id).and_then(|c| c.turn_id)),
            Reach::TurnOfTask | Reach::QueuedTurnOfTask => {
                let own = self.tasks.iter().find(|t| t.id == of.id);
                one(Kind::Turn, own.and_then(|t| t.turn_id))
            }
            Reach::TurnOfPlan | Reach::QueuedTurnOfPlan => {
                one(Kind::Turn, self.plans.iter().find(|p| p.id == of.id).and_then(|p| p.turn_id))
            }
            Reach::OpenCallsOfTurn => {
                let own = self.calls.iter().filter(|c| c.turn_id == Some(of.id) && c.ended_at.is_none());
                own.map(|c| Entity::new(Kind::ToolCall, c.id)).collect()
            }
            Reach::PlansOfSession => self.plans.iter().map(|p| Entity::new(Kind::Plan, p.id)).collect(),
            Reach::PlanOfTask => one(Kind::Plan, self.tasks.iter().find(|t| t.id == of.id).map(|t| t.plan_id)),
            Reach::TasksOfPlan => {
                let own = self.tasks.iter().filter(|t| t.plan_id == of.id);
                own.map(|t| Entity::new(Kind::Task, t.id)).collect()
            }
            Reach::TaskOfTurn => one(Kind::Task, turn().and_then(Work::of).and_then(|w| w.task).map(TaskId::uuid)),
            Reach::TaskOfAgent => {
                let own = self.tasks.iter().filter(|t| t.owner_id == Some(of.id));
                own.map(|t| Entity::new(Kind::Task, t.id)).collect()
            }
            // Whom the command means, it says; of missions there are none here.
            _ => Vec::new(),
        }
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl View for World {
    fn state(&self, table: &'static Table, entity: Entity) -> Option<&str> {
        if let Some(state) = self.moved.get(&(table.name, entity)) {
            return Some(state);
        }
        match table.name {
            "session" => (self.session.id == entity.id).then_some(self.session.status.as_str()),
            "agent_lifecycle" => self.agent_row(entity.id).map(|a| a.lifecycle.as_str()),
            "agent_drive" => self.agent_row(entity.id).map(|a| a.drive.as_str()),
            "turn" => self.turn_row(entity.id).map(|t| t.status.as_str()),
            "tool_call" => self.call_row(entity.id).map(|c| c.status.as_str()),
            "plan" => self.plans.iter().find(|p| p.id == entity.id).map(|p| p.status.as_str()),
            "task" => self.tasks.iter().find(|t| t.id == entity.id).map(|t| t.status.as_str()),
            _ => None,
        }
    }

    fn related(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        let named = self.relations.iter().filter(|(by, from, _)| *by == reach && *from == of);
        let mut found: Vec<Entity> = named.map(|(_, _, entity)| *entity).collect();
        found.extend(self.known(of, reach));
        found
    }

    fn fact(&self, of: Entity, fact: Fact) -> bool {
        let told = match fact {
            Fact::Root => self.session.root_agent_id == Some(of.id),
            Fact::KillPending => self.is_told(of, "kill"),
            Fact::ParentEnded => self.is_told(of, "parent_closed"),
            _ => false,
        };
        told || self.facts.contains(&fact)
    }

    fn tries(&self, of: Entity) -> Tries {
        let task = self.tasks.iter().find(|task| task.id == of.id);
        let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
        task.map_or(Tries { made: 1, max: 1 }, |task| Tries {
            made: count(task.attempt),
            max: count(task.attempts_max),
        })
    }

    fn gate(&self, call: Entity) -> Option<decide::Call> {
        self.judged.get(&call).copied()
    }

    fn finished_tools(&self, turn: Entity) -> decide::FinishedTools {
        let made = self.turn_row(turn.id).map_or(0, |turn| turn.iterations);
        decide::FinishedTools {
            provider_calls: u32::try_from(made).unwrap_or(u32::MAX),
            provider_calls_max: PROVIDER_CALLS_MAX,
            ended_by_tool: false,
            pending: decide::Pending::default(),
        }
    }

    fn attempt(&self, call: Entity) -> decide::Attempt {
        let effect = self.call_row(call.id).and_then(|call| Effect::parse(&call.effect));
        decide::Attempt {
            status: ResultStatus::Unknown,
            outputs_fit: false,
            retryable: false,
            effect: effect.unwrap_or(Effect::AtMostOnce),
            attempts: Tries { made: 1, max: 1 },
        }
    }

    fn failed_hop(&self, _: Entity) -> decide::FailedHop {
        decide::FailedHop {
            phase: HopPhase::Plan,
            class: FailureClass::Recoverable,
            attempts: Tries { made: 1, max: 1 },
            on_hop_failure: OnHopFailure::Attention,
        }
    }
}
