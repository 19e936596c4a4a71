//! Rows and relations in memory, as the store would have them, and the log they are written with.

use crate::chance::{Map, mix};
use instar_core::cascade::{Fact, Planned, Reach, View};
use instar_core::decide::{self, HopPhase, Tries};
use instar_core::id::{Entity, Kind};
use instar_core::machine::{Table, by_name, session};
use std::cell::RefCell;
use uuid::Uuid;

/// Where facts and newcomers come from.
#[derive(Clone)]
pub(crate) enum Facts {
    /// Thrown anew for every commit.
    Random,
    /// Exactly these hold, policy says this, and there is one of each kind at most. `last`: no
    /// provider call is left.
    Given { facts: Vec<Fact>, gate: Option<decide::Call>, last: bool },
}

#[derive(Clone, Default)]
pub(crate) struct Asked {
    pub(crate) facts: Vec<Fact>,
    pub(crate) gate: bool,
    pub(crate) last: bool,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) seed: u64,
    /// Counts commits, so that each throws its own facts.
    pub(crate) commit: u64,
    pub(crate) facts: Facts,
    pub(crate) session: Entity,
    pub(crate) rows: Map<(&'static str, Entity), &'static str>,
    /// All entities ever born, in order.
    pub(crate) all: Vec<Entity>,
    /// Agent → parent, turn → agent, call → turn or step, hop → mission, step → hop, task → plan,
    /// asset → mission or hop.
    pub(crate) owner: Map<Entity, Entity>,
    pub(crate) owned: Map<(Entity, Kind), Vec<Entity>>,
    pub(crate) current_hop: Map<Entity, Entity>,
    /// Missions whose hop was stopped.
    pub(crate) stopped: Map<Entity, ()>,
    pub(crate) hop_of_plan: Map<Entity, Entity>,
    pub(crate) phase: Map<Entity, HopPhase>,
    pub(crate) agent_of_task: Map<Entity, Entity>,
    pub(crate) turn_of_task: Map<Entity, Entity>,
    pub(crate) depends: Map<Entity, Vec<Entity>>,
    /// Agents that end with their turn, with the fact that says why.
    pub(crate) ending: Map<Entity, Fact>,
    pub(crate) control: Map<Entity, decide::Pending>,
    /// Owners of ids that were given out during this commit.
    given: RefCell<Map<Entity, Entity>>,
    /// What this commit wanted to know.
    pub(crate) asked: RefCell<Asked>,
}

impl World {
    pub(crate) fn new(seed: u64, facts: Facts) -> World {
        let session = Entity::new(Kind::Session, Uuid::from_u128(u128::from(seed) << 64 | 1));
        World {
            seed,
            commit: 0,
            facts,
            session,
            rows: Map::default(),
            all: vec![],
            owner: Map::default(),
            owned: Map::default(),
            current_hop: Map::default(),
            stopped: Map::default(),
            hop_of_plan: Map::default(),
            phase: Map::default(),
            agent_of_task: Map::default(),
            turn_of_task: Map::default(),
            depends: Map::default(),
            ending: Map::default(),
            control: Map::default(),
            given: RefCell::new(Map::default()),
            asked: RefCell::default(),
        }
    }

    pub(crate) fn get(&self, table: &Table, entity: Entity) -> Option<&'static str> {
        self.rows.get(&(table.name, entity)).copied()
    }

    pub(crate) fn owned(&self, by: Entity, kind: Kind) -> &[Entity] {
        self.owned.get(&(by, kind)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn session_is(&self, states: &[&str]) -> bool {
        self.get(&session::TABLE, self.session).is_some_and(|s| states.contains(&s))
    }

    /// A number below a hundred that stays the same within a commit.
    fn throw(&self, of: Entity, salt: u64) -> u64 {
        mix(mix(self.seed, self.commit), mix(of.id.as_u128() as u64, salt)) % 100
    }

    /// Ids for what this commit may bring forth.
    fn newcomers(&self, of: Entity, kind: Kind, chances: &[u64], salt: u64) -> Vec<Entity> {
        let full = match &self.facts {
            Facts::Random => self.owned(of, kind).len() > 8,
            Facts::Given { .. } => self.all.iter().any(|e| e.kind == kind),
        };
        if full {
            return vec![];
        }
        let wanted = match self.facts {
            Facts::Random => chances.iter().filter(|p| self.throw(of, salt * 31 + **p) < **p).count(),
            Facts::Given { .. } => 1,
        };
        let id = |i: u64| {
            let high = mix(mix(self.seed, self.commit), salt * 8 + i);
            Entity::new(
                kind,
                Uuid::from_u128(u128::from(high) << 64 | u128::from(mix(of.id.as_u128() as u64, salt * 8 + i))),
            )
        };
        let new: Vec<Entity> = (0..wanted as u64).map(id).collect();
        self.given.borrow_mut().extend(new.iter().map(|e| (*e, of)));
        new
    }

    pub(crate) fn give(&self, entity: Entity, owner: Entity) {
        self.given.borrow_mut().insert(entity, owner);
    }

    pub(crate) fn owner(&self, of: Entity) -> Option<Entity> {
        self.owner.get(&of).copied().or_else(|| self.given.borrow().get(&of).copied())
    }

    fn owner_of_kind(&self, of: Entity, kind: Kind) -> Option<Entity> {
        let owner = self.owner(of)?;
        if owner.kind == kind { Some(owner) } else { None }
    }

    pub(crate) fn agent_of_turn(&self, turn: Entity) -> Option<Entity> {
        let owner = self.owner(turn)?;
        // A turn that a task asked for is born under the task.
        if owner.kind == Kind::Task { self.agent_of_task.get(&owner).copied() } else { Some(owner) }
    }

    /// The asset that a step makes: the hop's first one, else one of the mission.
    fn outputs_of_hop(&self, hop: Entity) -> Vec<Entity> {
        let own = self.owned(hop, Kind::Asset);
        let mission = self.owner(hop).map_or(&[][..], |m| self.owned(m, Kind::Asset));
        own.iter().chain(mission).copied().take(2).collect()
    }

    pub(crate) fn startable(&self, step: Entity) -> bool {
        self.session_is(&["active"]) && self.throw(step, 77) < 90
    }

    /// Takes the moves of a commit over, with the columns that change along.
    pub(crate) fn write(&mut self, planned: &[Planned]) {
        for p in planned {
            if p.mv.from().is_none() && !self.all.contains(&p.entity) {
                self.birth(p.entity);
            }
            let table = by_name(p.mv.machine()).expect("a machine");
            self.rows.insert((table.name, p.entity), p.mv.to());
            self.column(p);
        }
        self.given.borrow_mut().clear();
        self.commit += 1;
    }

    fn birth(&mut self, entity: Entity) {
        self.all.push(entity);
        if entity.kind == Kind::Agent {
            self.owned.entry((self.session, Kind::Agent)).or_default().push(entity);
        }
        let given = self.given.borrow().get(&entity).copied();
        let Some(mut owner) = given else { return };
        if entity.kind == Kind::Turn && owner.kind == Kind::Task {
            self.turn_of_task.insert(owner, entity);
            owner = self.agent_of_task[&owner];
        }
        if entity.kind == Kind::Task {
            let earlier = self.owned(owner, Kind::Task);
            let deps = earlier.last().filter(|_| entity.id.as_u128().is_multiple_of(2)).copied();
            self.depends.insert(entity, deps.into_iter().collect());
        }
        if entity.kind == Kind::Plan && owner.kind == Kind::Hop {
            self.hop_of_plan.insert(entity, owner);
            owner = self.session;
        }
        // A mission that a reset brings forth stands beside the old one, not below it.
        let owner = if entity.kind == Kind::Mission { self.session } else { owner };
        if !(entity.kind == Kind::Agent && owner.kind == Kind::Session) {
            self.owner.insert(entity, owner);
            self.owned.entry((owner, entity.kind)).or_default().push(entity);
        }
    }

    fn column(&mut self, p: &Planned) {
        let e = p.entity;
        if e.kind == Kind::Hop
            && let Some(mission) = self.owner.get(&e)
        {
            self.stopped.remove(mission);
        }
        match p.mv.row() {
            "M17" => {
                self.current_hop.remove(&e);
                self.stopped.insert(e, ());
            }
            "M20" => drop(self.stopped.remove(&e)),
            "L13" => drop(self.ending.insert(e, Fact::KillPending)),
            "L14" => drop(self.ending.insert(e, Fact::ParentEnded)),
            "T16" if p.mv.event() == "steer" => self.control.entry(e).or_default().steer = true,
            "T27" => {
                // A steer brings its own control along; every other one asks for the end.
                let steered = self.control.get(&e).is_some_and(|c| c.steer);
                self.control.entry(e).or_default().interrupt |= !steered;
            }
            "H1" | "H2" | "H34" => drop(self.current_hop.insert(self.owner[&e], e)),
            "M7" | "M18" => drop(self.current_hop.remove(&e)),
            "H6" | "H31" | "H32" | "H33" => self.current_hop.retain(|_, hop| *hop != e),
            "H8" => drop(self.phase.insert(e, HopPhase::Plan)),
            "H11" => drop(self.phase.insert(e, HopPhase::Resolve)),
            "H14" | "H36" => drop(self.phase.insert(e, HopPhase::Impl)),
            "H22" => drop(self.phase.insert(e, HopPhase::Execute)),
            "H26" => {
                let phase = match p.mv.from() {
                    Some("HOP_PLAN_STARTED" | "HOP_PLAN_PROPOSED") => HopPhase::Plan,
                    Some("HOP_PLAN_READY") => HopPhase::Resolve,
                    Some("EXECUTING") => HopPhase::Execute,
                    _ => HopPhase::Impl,
                };
                self.phase.insert(e, phase);
            }
            "K4" | "K5" | "K7" | "K9" | "K10" | "K12" => drop(self.agent_of_task.remove(&e)),
            _ => {}
        }
    }
}

impl View for World {
    fn state(&self, table: &'static Table, entity: Entity) -> Option<&str> {
        self.get(table, entity)
    }

    fn related(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        use Reach::*;
        let one = |e: Option<Entity>| e.into_iter().collect::<Vec<_>>();
        let all = |kind: Kind| self.all.iter().filter(|e| e.kind == kind).copied().collect::<Vec<_>>();
        let own = |kind: Kind| self.owned(of, kind).to_vec();
        let some =
            |found: Vec<Entity>, n: u64| found.into_iter().filter(|e| self.throw(*e, n) < 50).collect::<Vec<_>>();
        match reach {
            Same | LifecycleOfAgent | DriveOfAgent | NextStep => vec![of],
            SessionOfAgent | SessionOfTurn => vec![self.session],
            AgentsOfSession => self.owned(self.session, Kind::Agent).to_vec(),
            NewRootOfSession => self.newcomers(of, Kind::Agent, &[100], 1),
            ChildrenOfAgent => own(Kind::Agent),
            AgentOfTurn | DriveOfTurn => one(self.agent_of_turn(of)),
            DriveOfParent => one(self.owner_of_kind(of, Kind::Agent)),
            DriveOfTask => one(self.agent_of_task.get(&of).copied()),
            LiveTurnsOfSession => all(Kind::Turn),
            LiveTurnOfAgent | QueuedTurnsOfAgent => own(Kind::Turn),
            NewTurnOfAgent if self.session_is(&["closing", "closed", "archived"]) => vec![],
            NewTurnOfAgent => self.newcomers(of, Kind::Turn, &[40], 2),
            TurnOfCall => one(self.owner_of_kind(of, Kind::Turn)),
            TurnOfTask | QueuedTurnOfTask => one(self.turn_of_task.get(&of).copied()),
            TurnOfPlan | QueuedTurnOfPlan => vec![],
            NewTurnOfTask => self.newcomers(of, Kind::Turn, &[100], 3),
            OpenCallsOfTurn | OpenCallOfStep => own(Kind::ToolCall),
            NewCallsOfTurn => self.newcomers(of, Kind::ToolCall, &[100, 40, 20], 4),
            NewCallOfStep => self.newcomers(of, Kind::ToolCall, &[100], 5),
            MissionsOfSession => all(Kind::Mission),
            MissionOfHop => one(self.owner(of)),
            NewMissionOfMission => self.newcomers(of, Kind::Mission, &[100], 6),
            ExecutingHopsOfSession => all(Kind::Hop),
            CurrentHopOfMission => one(self.current_hop.get(&of).copied()),
            HopOfStep => one(self.owner(of)),
            HopOfPlan => one(self.hop_of_plan.get(&of).copied()),
            HopsOfInput => {
                let mission =
                    self.owner(of).filter(|o| o.kind == Kind::Mission).or_else(|| self.owner(self.owner(of)?));
                one(mission.and_then(|m| self.current_hop.get(&m).copied()))
            }
            StepOfCall => one(self.owner_of_kind(of, Kind::ToolStep)),
            StepsOfHop => own(Kind::ToolStep),
            NewStepsOfHop => self.newcomers(of, Kind::ToolStep, &[80, 50, 30], 7),
            EditedStepsOfHop | BrokenStepsOfHop => some(own(Kind::ToolStep), 8),
            SupersededStepsOfHop if self.related(of, NewStepsOfHop).is_empty() => vec![],
            SupersededStepsOfHop => own(Kind::ToolStep),
            AssetsOfMission | OutputsOfMission => own(Kind::Asset),
            NewAssetsOfMission => self.newcomers(of, Kind::Asset, &[100, 40], 9),
            DroppedAssetsOfMission | EditedAssetsOfMission => some(own(Kind::Asset), 10),
            AssetsOfHop => own(Kind::Asset),
            OutputsOfHop => self.outputs_of_hop(of),
            NewAssetsOfHop => self.newcomers(of, Kind::Asset, &[60], 11),
            DroppedAssetsOfHop | EditedAssetsOfHop => some(own(Kind::Asset), 12),
            SuppliedOutputsOfHop => some(self.outputs_of_hop(of), 17),
            OutputsOfStep => self.owner(of).map_or(vec![], |hop| self.outputs_of_hop(hop)),
            OutputsOfPlan => self.hop_of_plan.get(&of).map_or(vec![], |hop| self.outputs_of_hop(*hop)),
            PlansOfSession => all(Kind::Plan),
            PlanOfTask => one(self.owner(of)),
            PlanOfHop => keys(&self.hop_of_plan, of),
            NewPlanOfHop => self.newcomers(of, Kind::Plan, &[100], 16),
            TasksOfPlan => own(Kind::Task),
            NewTasksOfPlan => self.newcomers(of, Kind::Task, &[70, 50, 40], 13),
            FlaggedTasksOfPlan => some(own(Kind::Task), 14),
            DroppedTasksOfPlan => some(own(Kind::Task), 15),
            ResolvedTasksOfPlan => own(Kind::Task),
            TaskOfAgent => keys(&self.agent_of_task, of),
            TaskOfTurn => keys(&self.turn_of_task, of),
            DependantsOfTask => {
                let mut found: Vec<Entity> =
                    self.depends.iter().filter(|(_, deps)| deps.contains(&of)).map(|(task, _)| *task).collect();
                found.sort();
                found
            }
            DependenciesOfTask => self.depends.get(&of).cloned().unwrap_or_default(),
        }
    }

    fn fact(&self, of: Entity, fact: Fact) -> bool {
        match fact {
            Fact::Root => return self.owned(self.session, Kind::Agent).first() == Some(&of),
            Fact::KillPending | Fact::ParentEnded => return self.ending.get(&of) == Some(&fact),
            Fact::Startable => return self.startable(of),
            Fact::Attached => return true,
            Fact::ByPlan => {
                return self.owned(of, Kind::ToolStep).is_empty()
                    && mix(self.seed, of.id.as_u128() as u64).is_multiple_of(3);
            }
            Fact::Final => return mix(self.seed, of.id.as_u128() as u64).is_multiple_of(2),
            _ => {}
        }
        let percent = match fact {
            Fact::Nudged | Fact::NudgeLimit | Fact::Repairable | Fact::InterruptInFlight | Fact::Restart => 50,
            Fact::ToolChosen | Fact::Configured => 75,
            Fact::ErrorThreshold | Fact::SessionBudget | Fact::BudgetTerminates => 15,
            _ => 30,
        };
        match &self.facts {
            Facts::Random => self.throw(of, 100 + fact as u64) < percent,
            Facts::Given { facts, .. } => {
                self.asked.borrow_mut().facts.push(fact);
                facts.contains(&fact)
            }
        }
    }

    fn tries(&self, of: Entity) -> Tries {
        Tries { made: (self.throw(of, 20) % 3) as u32, max: 2 }
    }

    fn gate(&self, call: Entity) -> Option<decide::Call> {
        use decide::{Approval, Mode};
        if let Facts::Given { gate, .. } = &self.facts {
            self.asked.borrow_mut().gate = true;
            return *gate;
        }
        let side_effects = self.throw(call, 30) < 60;
        let judged = decide::Call {
            valid: self.throw(call, 31) < 95,
            outside_sandbox: self.throw(call, 32) < 5,
            side_effects,
            spec: Approval::Inherit,
            policy_override: Approval::Inherit,
            mode: [Mode::FullAccess, Mode::Auto, Mode::Auto, Mode::ReadOnly][self.throw(call, 33) as usize % 4],
        };
        (self.throw(call, 34) < 85).then_some(judged)
    }

    fn finished_tools(&self, turn: Entity) -> decide::FinishedTools {
        let last = match self.facts {
            Facts::Random => self.throw(turn, 40) < 20,
            Facts::Given { last, .. } => {
                self.asked.borrow_mut().last = true;
                last
            }
        };
        decide::FinishedTools {
            provider_calls: if last { 10 } else { 1 },
            provider_calls_max: 10,
            ended_by_tool: false,
            pending: self.control.get(&turn).copied().unwrap_or_default(),
        }
    }

    fn attempt(&self, call: Entity) -> decide::Attempt {
        decide::Attempt {
            status: Default::default(),
            outputs_fit: self.throw(call, 50) < 95,
            retryable: self.throw(call, 51) < 70,
            effect: decide::Effect::Idempotent,
            attempts: self.tries(call),
        }
    }

    fn failed_hop(&self, hop: Entity) -> decide::FailedHop {
        decide::FailedHop {
            phase: self.phase.get(&hop).copied().unwrap_or(HopPhase::Execute),
            class: if self.throw(hop, 60) < 30 {
                decide::FailureClass::Fatal
            } else {
                decide::FailureClass::Recoverable
            },
            attempts: self.tries(hop),
            on_hop_failure: Default::default(),
        }
    }
}

/// In a fixed order, so that a seed replays.
fn keys(map: &Map<Entity, Entity>, value: Entity) -> Vec<Entity> {
    let mut found: Vec<Entity> = map.iter().filter(|(_, v)| **v == value).map(|(k, _)| *k).collect();
    found.sort();
    found
}
