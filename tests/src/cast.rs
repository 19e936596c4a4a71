//! A session, an agent, a turn, a call: made by commits, as services make them.

use anyhow::{Result, bail};
use chrono::{SubsecRound, Utc};
use instar_core::id::{AgentId, AssetId, CallId, HopId, MissionId, PlanId, SessionId, StepId, TaskId, TurnId};
use instar_core::machine::{self, Answer as Cell, By, Move, Table as Machine};
use instar_core::rune::payload::*;
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, asset, hop, mission, plan, session, task, tool_call, tool_step, turn};
use instar_store::{Answer, Change, Commit, Landed, Store};
use serde_json::json;
use uuid::Uuid;

pub fn fresh<T: From<Uuid>>() -> T {
    T::from(Uuid::now_v7())
}

/// A move that the table must allow.
pub fn mv(machine: &'static Machine, from: Option<&str>, event: &str, by: By) -> Result<Move> {
    match machine::apply(machine, from, event, by) {
        Cell::Moves(mv) => Ok(mv),
        other => bail!("{} from {from:?} by {event}: {other:?}", machine.name),
    }
}

pub fn person() -> Actor {
    Actor::new(By::User, "key_test")
}

pub fn system() -> Actor {
    Actor::system("test")
}

pub async fn land(store: &Store, commit: Commit) -> Result<Landed> {
    match store.commit(commit).await? {
        Answer::Moved(landed) => Ok(landed),
        other => bail!("did not land: {other:?}"),
    }
}

pub fn session_row(id: SessionId, status: &str) -> session::Model {
    let now = Utc::now().trunc_subsecs(6);
    session::Model {
        id: id.uuid(),
        namespace: "default".into(),
        name: None,
        status: status.into(),
        epoch: 0,
        version: 0,
        head_seq: 0,
        published_seq: 0,
        sealed_seq: 0,
        root_agent_id: None,
        config: json!({}),
        budget: json!({}),
        final_hash: None,
        holds: None,
        reset_at: None,
        created_at: now,
        updated_at: now,
    }
}

pub fn agent_row(id: AgentId, session: SessionId, lifecycle: &str, drive: &str) -> agent::Model {
    let now = Utc::now().trunc_subsecs(6);
    agent::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        name: "ada".into(),
        role: "worker".into(),
        model: "scripted".into(),
        lifecycle: lifecycle.into(),
        drive: drive.into(),
        epoch: 0,
        version: 0,
        owner: None,
        parent_id: None,
        nudge_count: 0,
        letter_count: None,
        late_count: None,
        today: None,
        last_error: None,
        config: json!({}),
        usage: json!({}),
        created_at: now,
        updated_at: now,
    }
}

pub fn turn_row(id: TurnId, session: SessionId, agent: AgentId, status: &str) -> turn::Model {
    let now = Utc::now().trunc_subsecs(6);
    turn::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        agent_id: agent.uuid(),
        status: status.into(),
        epoch: 0,
        version: 0,
        cause: "user".into(),
        attempts: 0,
        iterations: 0,
        open_calls: 0,
        input: json!({}),
        output: None,
        finish_reason: None,
        segment: None,
        usage: json!({}),
        reserved: None,
        control: None,
        error: None,
        deadline_at: None,
        traceparent: None,
        created_at: now,
        updated_at: now,
        ended_at: None,
    }
}

pub fn call_row(id: CallId, session: SessionId, agent: AgentId, turn: TurnId, status: &str) -> tool_call::Model {
    let now = Utc::now().trunc_subsecs(6);
    tool_call::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        agent_id: agent.uuid(),
        turn_id: Some(turn.uuid()),
        step_id: None,
        status: status.into(),
        epoch: 0,
        version: 0,
        owner: None,
        iteration: 1,
        position: 0,
        name: "echo".into(),
        provider_call_id: None,
        arguments: json!({"text": "hi"}),
        digest: String::new(),
        effect: "read_only".into(),
        attempts: 0,
        approval: None,
        result_status: None,
        result: None,
        waits_for: None,
        expires_at: None,
        traceparent: None,
        created_at: now,
        updated_at: now,
        ended_at: None,
    }
}

pub fn mission_row(id: MissionId, session: SessionId, status: &str) -> mission::Model {
    let now = Utc::now().trunc_subsecs(6);
    mission::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        agent_id: None,
        author: "key_test".into(),
        gates: json!({}),
        gate_timeout_ms: None,
        on_hop_failure: "attention".into(),
        hop_attempts_max: 3,
        detached: false,
        reset_of: None,
        traceparent: None,
        created_at: now,
        status: status.into(),
        epoch: 0,
        version: 0,
        revision: 1,
        name: "map".into(),
        description: None,
        goal: "a map of the coast".into(),
        success_criteria: json!(["it shows every rock"]),
        scope: None,
        metadata: None,
        current_hop_id: None,
        hops: 0,
        awaits: "person".into(),
        asked: 0,
        asked_turn_id: None,
        question: None,
        feedback: None,
        attention: None,
        gate_due_at: None,
        failure: None,
        reset_to: None,
        updated_at: now,
        ended_at: None,
    }
}

pub fn hop_row(id: HopId, session: SessionId, mission: MissionId, sequence: i64, status: &str) -> hop::Model {
    let now = Utc::now().trunc_subsecs(6);
    hop::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        mission_id: mission.uuid(),
        sequence,
        author: "key_test".into(),
        executor: "steps".into(),
        traceparent: None,
        created_at: now,
        status: status.into(),
        epoch: 0,
        version: 0,
        revision: 1,
        name: "sound".into(),
        description: None,
        goal: None,
        success_criteria: json!([]),
        rationale: None,
        alternatives: None,
        inputs: json!([]),
        outputs: json!([]),
        is_final: false,
        plan_accepted_once: false,
        archived: false,
        attempts: 0,
        repairs: 0,
        phase: None,
        failure_class: None,
        error: None,
        feedback: None,
        input_versions: None,
        result: None,
        updated_at: now,
        ended_at: None,
    }
}

pub fn step_row(id: StepId, hop: &hop::Model, sequence: i64, status: &str) -> tool_step::Model {
    let now = Utc::now().trunc_subsecs(6);
    tool_step::Model {
        id: id.uuid(),
        session_id: hop.session_id,
        mission_id: hop.mission_id,
        hop_id: hop.id,
        sequence,
        attempts_max: 3,
        traceparent: None,
        created_at: now,
        status: status.into(),
        epoch: 0,
        version: 0,
        name: format!("step {sequence}"),
        description: None,
        tool: Some("echo".into()),
        parameter_mapping: json!({}),
        result_mapping: json!({}),
        resource_configs: None,
        attempts: 0,
        call_id: None,
        next_at: None,
        validation_errors: None,
        result: None,
        error: None,
        started_at: None,
        updated_at: now,
        ended_at: None,
    }
}

pub fn asset_row(id: AssetId, session: SessionId, mission: MissionId, role: &str, status: &str) -> asset::Model {
    let now = Utc::now().trunc_subsecs(6);
    asset::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        mission_id: mission.uuid(),
        hop_id: None,
        scope: "mission".into(),
        author: "key_test".into(),
        traceparent: None,
        created_at: now,
        status: status.into(),
        epoch: 0,
        version: 0,
        revision: 1,
        role: role.into(),
        name: role.into(),
        description: None,
        kind: "string".into(),
        subtype: None,
        is_array: false,
        schema: json!({"type": "string"}),
        metadata: None,
        content_version: 0,
        promoted_version: None,
        step_id: None,
        summary: None,
        error: None,
        ttl_ms: None,
        expires_at: None,
        updated_at: now,
        ended_at: None,
    }
}

pub fn plan_row(id: PlanId, session: SessionId, status: &str) -> plan::Model {
    let now = Utc::now().trunc_subsecs(6);
    plan::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        hop_id: None,
        goal: "peace".into(),
        autonomy: "manual".into(),
        config: json!({}),
        budget: json!({}),
        status: status.into(),
        epoch: 0,
        version: 0,
        iteration: 1,
        revision: 0,
        drafted: false,
        asked: 0,
        orchestrator_id: None,
        critic_id: None,
        turn_id: None,
        feedback: None,
        reason: None,
        summary: None,
        created_at: now,
        updated_at: now,
        ended_at: None,
    }
}

pub fn task_row(id: TaskId, session: SessionId, plan: PlanId, status: &str) -> task::Model {
    let now = Utc::now().trunc_subsecs(6);
    task::Model {
        id: id.uuid(),
        session_id: session.uuid(),
        plan_id: plan.uuid(),
        key: "a".into(),
        title: "a".into(),
        description: "do a".into(),
        priority: "medium".into(),
        role: "worker".into(),
        deps: json!([]),
        success_criteria: json!([]),
        status: status.into(),
        epoch: 0,
        version: 0,
        attempt: 1,
        attempts_max: 3,
        iteration: 1,
        asked: 0,
        owner_id: None,
        turn_id: None,
        result: None,
        evidence: json!([]),
        error: None,
        assigned_at: None,
        started_at: None,
        created_at: now,
        updated_at: now,
        ended_at: None,
    }
}

/// An active session.
pub async fn session(store: &Store) -> Result<SessionId> {
    let id = fresh();
    session_with(store, id).await?;
    Ok(id)
}

pub async fn session_with(store: &Store, id: SessionId) -> Result<()> {
    let table = &machine::session::TABLE;
    let birth = mv(table, None, "create_session", By::User)?;
    let active = mv(table, Some("created"), "agent_ready", By::System)?;
    let mut commit = Commit::new(id, person());
    commit.bear(&session::TABLE, id, &[birth, active], session_row(id, "active"));
    commit.rune(Draft::new(id, &SessionCreated { name: None, config: json!(null), root_agent_id: None })?);
    commit.rune(Draft::new(id, &SessionActivated { root_agent_id: None })?);
    land(store, commit).await?;
    Ok(())
}

/// An agent that is ready and takes work.
pub async fn agent(store: &Store, session: SessionId) -> Result<AgentId> {
    let id = fresh();
    agent_with(store, session, id).await?;
    Ok(id)
}

pub async fn agent_with(store: &Store, session: SessionId, id: AgentId) -> Result<()> {
    agent_of(store, agent_row(id, session, "idle", "running")).await
}

/// An agent that calls the model `default`, with this configuration.
pub async fn agent_like(store: &Store, session: SessionId, config: serde_json::Value) -> Result<AgentId> {
    let id = fresh();
    let row = agent_row(id, session, "idle", "running");
    agent_of(store, agent::Model { model: "default".into(), config, ..row }).await?;
    Ok(id)
}

/// An agent that another one made, which takes work.
pub async fn child(store: &Store, session: SessionId, parent: AgentId) -> Result<AgentId> {
    let id = fresh();
    let row = agent_row(id, session, "idle", "running");
    agent_of(store, agent::Model { model: "default".into(), parent_id: Some(parent.uuid()), ..row }).await?;
    Ok(id)
}

async fn agent_of(store: &Store, row: agent::Model) -> Result<()> {
    let (id, session) = (AgentId::from(row.id), SessionId::from(row.session_id));
    let (life, drive) = (&machine::agent_lifecycle::TABLE, &machine::agent_drive::TABLE);
    let births = [
        mv(life, None, "spawn", By::User)?,
        mv(drive, None, "create", By::User)?,
        mv(life, Some("spawning"), "init_complete", By::System)?,
        mv(drive, Some("idle"), "start", By::User)?,
    ];
    let mut commit = Commit::new(session, system());
    commit.bear(&agent::TABLE, id, &births, row);
    let spawning = AgentSpawning {
        name: "ada".into(),
        role: "worker".into(),
        model: "scripted".into(),
        parent_id: None,
        config: json!(null),
    };
    commit.rune(Draft::new(id, &spawning)?);
    commit.rune(Draft::new(id, &AgentReady { tools: vec![] })?);
    commit.rune(Draft::new(id, &AgentDriveStarted { reason: None, relaunched_from: None })?);
    land(store, commit).await?;
    Ok(())
}

/// A turn that waits for a worker.
pub async fn turn(store: &Store, session: SessionId, agent: AgentId) -> Result<TurnId> {
    let id = fresh();
    turn_with(store, session, agent, id).await?;
    Ok(id)
}

pub async fn turn_with(store: &Store, session: SessionId, agent: AgentId, id: TurnId) -> Result<()> {
    let mut commit = Commit::new(session, system());
    let birth = mv(&machine::turn::TABLE, None, "queue_turn", By::User)?;
    let row = turn_row(id, session, agent, "queued");
    let queued = TurnQueued { cause: "user".into(), number: 0, message_ids: vec![], input: None };
    commit.bear(&turn::TABLE, id, &[birth], row);
    commit.rune(Draft::new(id, &queued)?.agent(agent).turn(id));
    land(store, commit).await?;
    Ok(())
}

/// The claim of a turn: agent and turn in one commit.
pub fn claim(session: SessionId, agent: AgentId, turn_id: TurnId, epoch: i64) -> Result<Commit> {
    let mut commit = Commit::new(session, system()).under_epoch(epoch + 1);
    let assigned = mv(&machine::agent_lifecycle::TABLE, Some("idle"), "turn_assigned", By::System)?;
    let started = mv(&machine::turn::TABLE, Some("queued"), "start_turn", By::System)?;
    commit.change(Change::entity(&session::TABLE, session).expecting("session", "active"));
    commit.change(
        Change::entity(&agent::TABLE, agent)
            .moving(assigned)
            .expecting("agent_drive", "running")
            .epoch(epoch)
            .set(agent::Column::Epoch, epoch + 1),
    );
    commit.change(
        Change::entity(&turn::TABLE, turn_id)
            .moving(started)
            .set(turn::Column::Epoch, epoch + 1)
            .set(turn::Column::Attempts, 1i64),
    );
    let told = TurnStarted { attempt: 1, cause: None, inputs: vec![], model: None, prompt_epoch: None, worker: None };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent).turn(turn_id));
    Ok(commit)
}

/// A running turn that waits for so many calls in this state.
pub async fn waiting_turn(
    store: &Store,
    session: SessionId,
    agent_id: AgentId,
    calls: usize,
    state: &'static str,
) -> Result<(TurnId, Vec<CallId>)> {
    let turn_id = turn(store, session, agent_id).await?;
    land(store, claim(session, agent_id, turn_id, 0)?).await?;
    let ids: Vec<CallId> = (0..calls).map(|_| fresh()).collect();
    let mut commit = Commit::new(session, system()).under_epoch(1);
    let asked = mv(&machine::turn::TABLE, Some("streaming"), "tool_calls_received", By::System)?;
    commit.change(Change::entity(&turn::TABLE, turn_id).moving(asked).epoch(1).adding(calls as i64));
    let told = TurnToolCallsReceived { call_ids: ids.clone(), content: None, reasoning: None };
    commit.rune(Draft::new(turn_id, &told)?.agent(agent_id).turn(turn_id));
    let table = &machine::tool_call::TABLE;
    for id in &ids {
        let mut births = vec![mv(table, None, "call", By::System)?];
        match state {
            "awaiting_approval" => births.push(mv(table, Some("pending_call"), "requires_approval", By::System)?),
            "executing" => births.push(mv(table, Some("pending_call"), "auto_approved", By::System)?),
            _ => {}
        }
        commit.bear(&tool_call::TABLE, *id, &births, call_row(*id, session, agent_id, turn_id, state));
        let told = ToolCall {
            tool_name: "echo".into(),
            arguments: json!({}),
            provenance: None,
            digest: None,
            step_id: None,
            provider_call_id: None,
        };
        commit.rune(Draft::new(*id, &told)?.agent(agent_id).turn(turn_id));
        match state {
            "awaiting_approval" => {
                let told = ToolApprovalRequested { policy_reason: "test".into(), digest: None, expires_at: None };
                commit.rune(Draft::new(*id, &told)?.agent(agent_id).turn(turn_id));
            }
            "executing" => {
                let told = instar_core::rune::payload::ToolApproved { approver: "policy".into(), digest: None };
                commit.rune(Draft::new(*id, &told)?.agent(agent_id).turn(turn_id));
            }
            _ => {}
        }
    }
    land(store, commit).await?;
    Ok((turn_id, ids))
}
