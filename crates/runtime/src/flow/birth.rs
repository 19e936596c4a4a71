//! A session and its agents come into being, as commits.
//!
//! There is no process to start for an agent: once its row says what it is made of, it is ready, so
//! that both of its births are one commit. Only one whose tools nobody knows yet stays in the making
//! until they are heard of. The first agent of a session is its root, and makes it active: when it is
//! ready, or when it is spoken to before.

use super::budget::{PAYERS, open as open_budget, payers_of};
use super::nudge::{is_autonomous, nudge_later};
use super::turn::timer;
use super::{FlowError, birth, step};
use instar_core::budget::Limits;
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::{By, Move, Phase, Refusal, agent_drive, agent_lifecycle, session as session_machine};
use instar_core::rune::payload::{
    AgentDriveStarted, AgentLoaded, AgentReady, AgentSpawning, SessionActivated, SessionCreated,
};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, session, timer as timer_row};
use instar_store::{Change, Commit};
use serde_json::{Value, json};
use uuid::Uuid;

/// A timer that looks whether what an agent in the making waits for is known by now.
pub const BIRTH_TIMER: &str = "birth";

/// What a session is made of.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    pub namespace: String,
    pub name: Option<String>,
    pub config: Value,
    pub budget: Value,
}

/// What an agent is made of.
#[derive(Clone, Debug, Default)]
pub struct NewAgent {
    pub name: String,
    pub role: String,
    pub model: String,
    /// The agent's `config` column: system_prompt, tools, loop, approval_mode, budget.
    pub config: Value,
    /// Names and patterns of the tools it may use.
    pub tools: Vec<String>,
    pub parent: Option<AgentId>,
    /// A server has yet to say which tools these are: until then it is in the making.
    pub unbound: bool,
    /// It is no new one, but one that was described elsewhere.
    pub loaded: Option<Loaded>,
}

/// A definition that is imported.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Where it comes from, in the words of whoever brings it.
    pub origin: Option<String>,
    /// It takes up work by itself.
    pub auto_start: bool,
}

impl NewAgent {
    /// Names those whose budgets it draws on besides its own.
    pub(super) fn paid_by(&mut self, payers: Option<Value>) {
        if let Some(payers) = payers {
            self.config = object(std::mem::take(&mut self.config));
            self.config[PAYERS] = payers;
        }
    }
}

/// A commit and the rows as they will be when it has landed.
pub struct Born {
    pub commit: Commit,
    pub session: session::Model,
    pub agents: Vec<agent::Model>,
}

/// A session, with its root agent if one is given.
pub fn open(
    new: NewSession,
    root: Option<NewAgent>,
    actor: Actor,
    traceparent: Option<String>,
) -> Result<Born, FlowError> {
    let id = SessionId::from(Uuid::now_v7());
    let root_id = root.is_some().then(|| AgentId::from(Uuid::now_v7()));
    let table = &session_machine::TABLE;
    let mut births = vec![birth(table, "create_session", actor.by)?];
    let ready = root.as_ref().is_some_and(|root| !root.unbound);
    if ready {
        births.push(step(table, births[0].to(), "agent_ready", By::System)?);
    }
    let mut commit = Commit::new(id, actor.clone()).traced(traceparent);
    let at = commit.at();
    let status = births.last().map_or("created", Move::to);
    let mut row = session::Model {
        id: id.uuid(),
        namespace: new.namespace,
        name: new.name,
        status: status.into(),
        epoch: 0,
        version: 0,
        head_seq: 0,
        published_seq: 0,
        sealed_seq: 0,
        root_agent_id: root_id.map(AgentId::uuid),
        config: object(new.config),
        budget: object(new.budget),
        final_hash: None,
        holds: None,
        reset_at: None,
        created_at: at,
        updated_at: at,
    };
    commit.bear(&session::TABLE, id, &births, row.clone());
    let config = if row.config == json!({}) { Value::Null } else { row.config.clone() };
    let told = SessionCreated { name: row.name.clone(), config, root_agent_id: root_id };
    commit.rune(Draft::new(id, &told)?);
    open_budget(&mut commit, id.into(), &Limits::of(&row.budget));
    let mut agents = Vec::new();
    row.head_seq = 1;
    if let (Some(mut root), Some(root_id)) = (root, root_id) {
        root.paid_by(payers_of(id, &row.budget, None));
        agents.push(spawn(&mut commit, id, root_id, root, actor.by)?);
        row.head_seq = 2;
        if ready {
            commit.rune(Draft::new(id, &SessionActivated { root_agent_id: Some(root_id) })?);
            row.head_seq = 4;
        }
    }
    Ok(Born { commit, session: row, agents })
}

/// Agents in a session that is open: all of them or none.
pub fn join(
    session: &session::Model,
    new: Vec<NewAgent>,
    actor: Actor,
    traceparent: Option<String>,
) -> Result<Born, FlowError> {
    let (session_id, table) = (SessionId::from(session.id), &session_machine::TABLE);
    let open = takes_agents(session)?;
    let mut commit = Commit::new(session_id, actor.clone()).traced(traceparent);
    let (mut row, mut agents) = (session.clone(), Vec::new());
    for mut new in new {
        new.paid_by(payers_of(session_id, &session.budget, None));
        agents.push(spawn(&mut commit, session_id, AgentId::from(Uuid::now_v7()), new, actor.by)?);
    }
    let root = agents.first().filter(|_| session.status == "created" && session.root_agent_id.is_none());
    let mut change = Change::entity(&session::TABLE, session_id);
    if !Limits::any(&session.budget) {
        // Should it get its first limit meanwhile, its new agents must know of that.
        change = change.version(session.version);
    }
    if let Some(root) = root {
        change = change.set(session::Column::RootAgentId, root.id);
        row.root_agent_id = Some(root.id);
        row.version += 1;
    }
    match root.filter(|root| root.lifecycle != "spawning") {
        Some(root) => {
            let active = step(table, &session.status, "agent_ready", By::System)?;
            commit.change(change.moving(active));
            commit.rune(Draft::new(session_id, &SessionActivated { root_agent_id: Some(root.id.into()) })?);
            row.status = active.to().into();
        }
        // The version: of two that would be the first, one is.
        None if root.is_some() => drop(commit.change(change.expecting("session", open).version(session.version))),
        None => drop(commit.change(change.expecting("session", open))),
    }
    Ok(Born { commit, session: row, agents })
}

/// Counts on the agents of a session being as many as they were when its row was read, before they were counted: of
/// two who would both take the last place, one looks again. Only those who make agents write this row for its own
/// sake, so that nobody else waits for it.
pub fn counted(commit: &mut Commit, session: &session::Model) {
    let row = Change::entity(&session::TABLE, SessionId::from(session.id)).version(session.version);
    commit.change(row.set(session::Column::Name, session.name.clone()));
}

/// What an agent waited for in the making is known: it is ready, and its session with it if it is the first.
pub fn ready(session: &session::Model, agent: &agent::Model, actor: Actor) -> Result<Commit, FlowError> {
    let (id, session_id) = (AgentId::from(agent.id), SessionId::from(session.id));
    let ready = step(&agent_lifecycle::TABLE, &agent.lifecycle, "init_complete", By::System)?;
    let mut commit = Commit::new(session_id, actor);
    commit.change(Change::entity(&agent::TABLE, id).moving(ready).version(agent.version));
    commit.rune(Draft::new(id, &AgentReady { tools: agent.tools() })?.agent(id));
    if session.status == "created" && session.root_agent_id == Some(agent.id) {
        let active = step(&session_machine::TABLE, &session.status, "agent_ready", By::System)?;
        commit.change(Change::entity(&session::TABLE, session_id).moving(active));
        commit.rune(Draft::new(session_id, &SessionActivated { root_agent_id: Some(id) })?);
    }
    if agent.drive == "running" && is_autonomous(agent) {
        let now = commit.at();
        nudge_later(&mut commit, agent, agent.epoch, now);
    }
    Ok(commit)
}

/// The state of a session whose log has not had its last rune, to be expected of it.
pub fn live_state(session: &session::Model) -> Option<&'static str> {
    let table = &session_machine::TABLE;
    let state = table.state(&session.status).filter(|_| table.phase(&session.status) == Some(Phase::Live));
    state.map(|state| table.states[state as usize].token)
}

/// The state of a session in which agents come and go, to be expected of it.
pub fn open_state(session: &session::Model) -> Option<&'static str> {
    live_state(session).filter(|state| *state != "closing")
}

pub(super) fn takes_agents(session: &session::Model) -> Result<&'static str, FlowError> {
    open_state(session).ok_or_else(|| {
        FlowError::Refused(Box::new(Refusal {
            machine: agent_lifecycle::TABLE.name,
            from: "none".into(),
            event: "spawn".into(),
            allowed: Vec::new(),
            advice: format!("the session is {}: it takes no more agents", session.status),
        }))
    })
}

fn spawn(
    commit: &mut Commit,
    session: SessionId,
    id: AgentId,
    new: NewAgent,
    by: By,
) -> Result<agent::Model, FlowError> {
    let (tools, unbound) = (new.tools.clone(), new.unbound);
    let starts = new.loaded.as_ref().is_some_and(|loaded| loaded.auto_start);
    let mut after = Vec::new();
    if !unbound {
        after.push(step(&agent_lifecycle::TABLE, "spawning", "init_complete", By::System)?);
    }
    if starts {
        after.push(step(&agent_drive::TABLE, "idle", "start", By::System)?);
    }
    let row = bear(commit, session, Newborn { id, new, by, after: &after, last_error: None })?;
    match unbound {
        false => drop(commit.rune(Draft::new(id, &AgentReady { tools })?.agent(id))),
        true => {
            let at = commit.at();
            commit.insert(&timer_row::TABLE, timer(session.uuid(), BIRTH_TIMER, id.to_string(), at, at));
        }
    }
    if starts {
        let told = AgentDriveStarted { reason: Some("auto_start".into()), relaunched_from: None };
        commit.rune(Draft::new(id, &told)?.agent(id));
        if !unbound && is_autonomous(&row) {
            let now = commit.at();
            nudge_later(commit, &row, row.epoch, now);
        }
    }
    Ok(row)
}

/// An agent that comes into being, and what becomes of it in the same commit.
pub(super) struct Newborn<'a> {
    pub(super) id: AgentId,
    pub(super) new: NewAgent,
    pub(super) by: By,
    /// Moves of both of its machines after its birth, in order.
    pub(super) after: &'a [Move],
    pub(super) last_error: Option<String>,
}

/// The row of an agent and the rune of its birth; those of what follows are the caller's to tell.
pub(super) fn bear(commit: &mut Commit, session: SessionId, born: Newborn<'_>) -> Result<agent::Model, FlowError> {
    let Newborn { id, new, by, after, last_error } = born;
    let drive = match &new.loaded {
        Some(_) => birth(&agent_drive::TABLE, "load", By::System)?,
        None => birth(&agent_drive::TABLE, "create", by)?,
    };
    let mut moves = vec![birth(&agent_lifecycle::TABLE, "spawn", by)?, drive];
    moves.extend(after);
    let now = |machine: &str| {
        let last = moves.iter().rev().find(|mv| mv.machine() == machine);
        last.map_or("", Move::to).to_owned()
    };
    let at = commit.at();
    let row = agent::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        name: new.name,
        role: new.role,
        model: new.model,
        lifecycle: now(agent_lifecycle::TABLE.name),
        drive: now(agent_drive::TABLE.name),
        epoch: 0,
        version: 0,
        owner: None,
        parent_id: new.parent.map(AgentId::uuid),
        nudge_count: 0,
        letter_count: None,
        late_count: None,
        today: None,
        last_error,
        config: object(new.config),
        usage: json!({}),
        created_at: at,
        updated_at: at,
    };
    commit.bear(&agent::TABLE, id, &moves, row.clone());
    open_budget(commit, id.into(), &Limits::of(&row.config["budget"]));
    let told = AgentSpawning {
        name: row.name.clone(),
        role: row.role.clone(),
        model: row.model.clone(),
        parent_id: new.parent,
        config: row.config.clone(),
    };
    commit.rune(Draft::new(id, &told)?.agent(id));
    if let Some(loaded) = new.loaded {
        let told = AgentLoaded { name: row.name.clone(), origin: loaded.origin };
        commit.rune(Draft::new(id, &told)?.agent(id));
    }
    Ok(row)
}

fn object(value: Value) -> Value {
    if value.is_null() { json!({}) } else { value }
}
