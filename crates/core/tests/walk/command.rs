//! Chooses commands, legal and illegal, and commits what passes.

use crate::chance::{Chance, mix};
use crate::guard;
use crate::journal::Journal;
use crate::world::{Facts, World};
use instar_core::cascade::{Planned, expand, record};
use instar_core::id::{Entity, Kind};
use instar_core::machine::{self, Answer, By, Table, agent_drive, agent_lifecycle, apply, session};
use std::collections::HashMap;
use std::sync::LazyLock;
use uuid::Uuid;

pub(crate) enum Outcome {
    Committed,
    Refused,
}

/// Events that end things: rare, or no walk would get anywhere.
const HARSH: &[&str] = &[
    "close_requested",
    "kill",
    "kill_forced",
    "delete",
    "parent_closed",
    "session_closing",
    "cancel_mission",
    "reject_mission",
    "system_error",
    "cancel_hop",
    "stop_hop",
    "cancel_step",
    "delete_step",
    "user_cancel",
    "budget_exhausted",
    "ttl_exceeded",
    "cancel",
    "init_error",
    "delete_asset",
    "reject_asset",
    "corruption_detected",
    "error_threshold",
    "stop",
    "hold",
    "unresolvable",
    "max_iterations_reached",
    "execution_error",
    "worker_lost",
    "recovery_exhausted",
    "plan_rejected",
    "validation_unrepairable",
    "agent_lost",
    "start_timeout",
];

/// A step that leads deeper: by chance alone a walk would hardly get as far as a finished mission.
struct Way {
    machine: &'static str,
    from: &'static str,
    event: &'static str,
    by: By,
}

const fn way(machine: &'static str, from: &'static str, event: &'static str, by: By) -> Way {
    Way { machine, from, event, by }
}

static WAYS: &[Way] = &[
    way("session", "paused", "resume_requested", By::User),
    way("session", "suspended", "reset", By::User),
    way("agent_lifecycle", "spawning", "init_complete", By::System),
    way("agent_drive", "idle", "start", By::User),
    way("agent_drive", "stopped", "start", By::User),
    way("turn", "queued", "start_turn", By::System),
    way("turn", "streaming", "tool_calls_received", By::Agent),
    way("tool_call", "awaiting_approval", "approved", By::User),
    way("tool_call", "executing", "success", By::System),
    way("tool_call", "executing", "execution_error", By::System),
    way("mission", "AWAITING_APPROVAL", "approve_mission", By::User),
    way("hop", "HOP_PLAN_STARTED", "propose_hop_plan", By::Agent),
    way("hop", "HOP_PLAN_PROPOSED", "approve_hop_plan", By::User),
    way("hop", "HOP_PLAN_READY", "start_hop_impl", By::Agent),
    way("hop", "HOP_IMPL_STARTED", "propose_hop_impl", By::Agent),
    way("hop", "HOP_IMPL_PROPOSED", "approve_hop_impl", By::User),
    way("hop", "HOP_IMPL_READY", "execute_hop", By::User),
    way("tool_step", "AWAITING_CONFIGURATION", "select_tool", By::Agent),
    way("tool_step", "READY_TO_CONFIGURE", "complete_configuration", By::System),
    way("tool_step", "READY_TO_EXECUTE", "start_step", By::System),
    way("plan", "goal_received", "decompose_goal", By::Agent),
    way("plan", "planning", "plan_drafted", By::Agent),
    way("plan", "planning", "plan_approved", By::User),
    way("hop", "FAILED", "retry_hop", By::User),
    way("mission", "IN_PROGRESS", "resume_mission", By::User),
    way("hop", "HOP_IMPL_READY", "request_hop_changes", By::User),
    way("tool_step", "CANCELLED", "reset_step", By::User),
    way("tool_step", "FAILED", "fix_step", By::User),
    way("tool_step", "FAILED", "accept_result", By::User),
    way("hop", "FAILED", "fix_hop", By::User),
    way("hop", "FAILED", "replan_hop", By::User),
    way("asset", "READY_FOR_PROCESSING", "provide_value", By::User),
    way("plan", "reviewing", "critique_passed", By::Agent),
    way("plan", "reviewing", "max_iterations_reached", By::System),
    way("plan", "blocked", "unresolvable", By::System),
    way("plan", "blocked", "dependency_resolved", By::System),
    way("task", "pending", "assign", By::System),
    way("task", "running", "complete", By::Agent),
];

type Events = Vec<(&'static str, By)>;

/// What each state allows to whom, looked up once.
static LEGAL: LazyLock<HashMap<(&'static str, &'static str), Events>> = LazyLock::new(|| {
    let mut legal = HashMap::new();
    for table in machine::ALL {
        for (i, state) in table.states.iter().enumerate() {
            let by = |by: By| table.allowed(Some(i as u8), by).into_iter().map(move |event| (event, by));
            let all: Events = [By::User, By::Agent, By::System, By::Policy].into_iter().flat_map(by).collect();
            legal.insert((table.name, state.token), all);
        }
    }
    legal
});

/// What a walk mostly plays with.
#[derive(Clone, Copy)]
enum Theme {
    Agents,
    Missions,
    Plans,
    Everything,
}

pub(crate) struct Walker {
    pub(crate) world: World,
    pub(crate) journal: Journal,
    /// The moves of the last commit.
    pub(crate) last: Vec<Planned>,
    chance: Chance,
    theme: Theme,
    ids: u64,
}

pub(crate) fn tables(kind: Kind) -> Vec<&'static Table> {
    machine::ALL.into_iter().filter(|t| Kind::of_machine(t.name) == Some(kind)).collect()
}

impl Walker {
    /// A session that is just opened; `seen` is told of that commit.
    pub(crate) fn new(seed: u64, seen: impl FnOnce(&Walker)) -> Walker {
        let world = World::new(seed, Facts::Random);
        let mut chance = Chance::new(seed);
        let theme = [Theme::Agents, Theme::Missions, Theme::Plans, Theme::Everything][chance.below(4)];
        let mut walker = Walker { world, journal: Journal::default(), last: vec![], chance, theme, ids: 0 };
        let session = walker.world.session;
        walker.command(session, &session::TABLE, "create_session", By::User);
        seen(&walker);
        // Most sessions get going, so that most steps are about what happens in them.
        if walker.chance.percent(90) {
            let root = walker.world.owned(session, Kind::Agent)[0];
            walker.command(root, &agent_lifecycle::TABLE, "init_complete", By::System);
            walker.command(root, &agent_drive::TABLE, "start", By::User);
        }
        match walker.theme {
            Theme::Missions => walker.bear(Kind::Mission, "propose_mission", session),
            Theme::Plans => walker.bear(Kind::Plan, "goal_received", session),
            Theme::Agents | Theme::Everything => walker.bear(Kind::Agent, "spawn", session),
        };
        walker
    }

    pub(crate) fn step(&mut self) -> Outcome {
        match self.chance.below(100) {
            0..14 => self.birth(),
            14..64 => self.forward(),
            _ => self.anything(),
        }
    }

    /// One of the steps that lead deeper.
    fn forward(&mut self) -> Outcome {
        let mut ahead: Vec<(Entity, &'static Way)> = Vec::new();
        for entity in &self.world.all {
            for machine in machine::ALL.iter().filter(|t| Kind::of_machine(t.name) == Some(entity.kind)) {
                let state = self.world.get(machine, *entity);
                let ways = WAYS.iter().filter(|w| w.machine == machine.name && Some(w.from) == state);
                ahead.extend(ways.map(|way| (*entity, way)));
            }
        }
        let Some((entity, way)) = self.chance.pick(&ahead) else { return Outcome::Refused };
        self.command(entity, machine::by_name(way.machine).expect("a machine"), way.event, way.by)
    }

    /// Any event that the tables allow to somebody, now and then one that they do not.
    fn anything(&mut self) -> Outcome {
        for _ in 0..4 {
            let Some(entity) = self.someone() else { continue };
            let table = self.chance.pick(&tables(entity.kind)).expect("a machine");
            let Some(from) = self.world.get(table, entity) else { continue };
            let (event, by) = if self.chance.percent(95) {
                let Some(legal) = self.chance.pick(&LEGAL[&(table.name, from)]) else { continue };
                legal
            } else {
                let by = [By::User, By::Agent, By::System, By::Policy][self.chance.below(4)];
                (table.events[self.chance.below(table.events.len())].token, by)
            };
            if HARSH.contains(&event) && self.chance.percent(80) {
                continue;
            }
            return self.command(entity, table, event, by);
        }
        Outcome::Refused
    }

    fn someone(&mut self) -> Option<Entity> {
        let entity = self.chance.pick(&self.world.all)?;
        let fits = match (self.theme, entity.kind) {
            (Theme::Everything, _) | (_, Kind::Session) => true,
            (Theme::Agents, kind) => matches!(kind, Kind::Agent | Kind::Turn | Kind::ToolCall),
            (Theme::Missions, kind) => !matches!(kind, Kind::Agent | Kind::Turn | Kind::Plan | Kind::Task),
            (Theme::Plans, kind) => matches!(kind, Kind::Agent | Kind::Turn | Kind::Plan | Kind::Task | Kind::Hop),
        };
        (fits || self.chance.percent(10)).then_some(entity)
    }

    fn any(&mut self, kind: Kind) -> Option<Entity> {
        let all: Vec<Entity> = self.world.all.iter().filter(|e| e.kind == kind).copied().collect();
        self.chance.pick(&all)
    }

    fn birth(&mut self) -> Outcome {
        let session = self.world.session;
        let choices: &[(Kind, &str)] = match self.theme {
            Theme::Agents => &[(Kind::Agent, "spawn"), (Kind::Turn, "queue_turn")],
            Theme::Missions => &[
                (Kind::Mission, "propose_mission"),
                (Kind::Hop, "start_hop_plan"),
                (Kind::Hop, "create_hop_manually"),
                (Kind::Hop, "start_hop_plan"),
                (Kind::ToolStep, "create_step"),
                (Kind::ToolCall, "call"),
                (Kind::Asset, "propose_asset"),
                (Kind::Asset, "register_asset"),
                (Kind::Asset, "create_intermediate"),
            ],
            Theme::Plans => &[(Kind::Plan, "goal_received"), (Kind::Turn, "queue_turn"), (Kind::Agent, "spawn")],
            Theme::Everything => &[
                (Kind::Agent, "spawn"),
                (Kind::Turn, "queue_turn"),
                (Kind::Mission, "propose_mission"),
                (Kind::Hop, "start_hop_plan"),
                (Kind::Plan, "goal_received"),
                (Kind::ToolStep, "create_step"),
                (Kind::Asset, "register_asset"),
            ],
        };
        let (kind, event) = choices[self.chance.below(choices.len())];
        let owner = match kind {
            Kind::Agent if self.chance.percent(50) => Some(session),
            Kind::Agent | Kind::Turn => self.any(Kind::Agent),
            Kind::Hop => self.any(Kind::Mission),
            Kind::ToolStep => self.any(Kind::Hop),
            Kind::ToolCall => self.any(Kind::ToolStep),
            Kind::Asset => self.any(Kind::Mission),
            _ => Some(session),
        };
        let Some(owner) = owner else { return Outcome::Refused };
        self.bear(kind, event, owner)
    }

    fn bear(&mut self, kind: Kind, event: &str, owner: Entity) -> Outcome {
        self.ids += 1;
        let entity = Entity::new(kind, Uuid::from_u128(u128::from(mix(self.world.seed, self.ids)) << 64 | 7));
        self.world.give(entity, owner);
        let table = tables(kind)[0];
        let by = *table.events[table.event(event).expect("an event") as usize].by.first().expect("somebody");
        let outcome = self.command(entity, table, event, by);
        if let (Outcome::Committed, Kind::Plan) = (&outcome, kind)
            && let Some(hop) = self.any(Kind::Hop).filter(|_| self.chance.percent(60))
        {
            self.world.hop_of_plan.insert(entity, hop);
        }
        outcome
    }

    pub(crate) fn command(&mut self, entity: Entity, table: &'static Table, event: &str, by: By) -> Outcome {
        let from = self.world.get(table, entity);
        let Answer::Moves(mv) = apply(table, from, event, by) else {
            let answer = expand(&self.world, entity, table, event, by);
            assert!(answer.is_err() || answer.is_ok_and(|moves| moves.is_empty()), "an illegal event moved something");
            return Outcome::Refused;
        };
        let offered = mv.row() == "K2" && self.offer(entity);
        let committed = guard::passes(&self.world, entity, mv.row(), event) && self.commit(entity, table, event, by);
        if offered && !committed {
            self.world.agent_of_task.remove(&entity);
        }
        if committed { Outcome::Committed } else { Outcome::Refused }
    }

    /// Looks for an agent that could take the task.
    fn offer(&mut self, task: Entity) -> bool {
        let free = |a: &Entity| {
            self.world.get(&agent_lifecycle::TABLE, *a) == Some("idle")
                && ["idle", "running"].contains(&self.world.get(&agent_drive::TABLE, *a).unwrap_or(""))
                && !self.world.agent_of_task.values().any(|busy| busy == a)
        };
        let agent = self.world.owned(self.world.session, Kind::Agent).iter().copied().find(free);
        agent.is_some_and(|agent| self.world.agent_of_task.insert(task, agent).is_none())
    }

    fn commit(&mut self, entity: Entity, table: &'static Table, event: &str, by: By) -> bool {
        let planned = expand(&self.world, entity, table, event, by).expect("its cell moves");
        let Ok(entries) = record(&planned) else { return false };
        self.world.write(&planned);
        self.journal.append(&self.world, entries, by);
        self.last = planned;
        true
    }
}
