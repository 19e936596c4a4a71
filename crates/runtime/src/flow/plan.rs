//! A plan's way as commits: the goal, a turn for somebody who works on it, the graph of its tasks, the tasks that a
//! critique asks for. What one of these causes elsewhere follows the cascades; those that only move rows that are
//! there go through [`crate::Act`].

use super::birth::{NewAgent, Newborn, bear};
use super::message::{Why, queue_for};
use super::turn::timer;
use super::{FlowError, birth, step};
use crate::plan::{Purpose, Work};
use chrono::{DateTime, Duration, Utc};
use instar_core::id::{AgentId, HopId, MessageId, PlanId, SessionId, TaskId, TurnId};
use instar_core::machine::{By, Refusal, agent_drive, agent_lifecycle, plan as plan_machine, task as task_machine};
use instar_core::plan::{Finding, Limits, Priority, passes};
use instar_core::rune::payload::{
    AgentDriveStarted, AgentReady, PlanCreated, PlanCritique, PlanGoalReceived, PlanPlanningStarted, PlanTaskAssigned,
    PlanTaskCancelled, PlanTaskStarted, PlanTaskUpdated, PlanUpdated,
};
use instar_core::rune::{Actor, Draft};
use instar_store::entity::{agent, critique, message, plan, plan_turn, session, task, timer as timer_row, turn};
use instar_store::{Change, Commit};
use serde_json::{Value, json};
use uuid::Uuid;

/// A timer that looks whether a plan has had its time.
pub const PLAN_TIMER: &str = "plan_wall_time";
/// A timer that ends the agents that a plan made for itself, once it has ended.
pub const DISMISS_TIMER: &str = "plan_dismiss";
/// Where the configuration of an agent names the plan that it was made for.
pub const MADE_FOR: &str = "plan_id";
/// Why a turn is there that makes or judges a plan.
pub const PLAN_CAUSE: &str = "plan";
/// Why a turn is there that does a task of one.
pub const TASK_CAUSE: &str = "task";
/// Where the message comes from with which such a turn begins.
const PLAN_SOURCE: &str = "system";

/// What a plan is made of.
#[derive(Clone, Debug, Default)]
pub struct NewPlan {
    pub goal: String,
    pub autonomy: String,
    pub config: Value,
    pub budget: Value,
    pub hop: Option<HopId>,
    /// Who makes it; else whoever is found.
    pub orchestrator: Option<AgentId>,
}

/// A goal is set. The commit and the row as it will be.
pub fn set_goal(
    session: &session::Model,
    new: NewPlan,
    actor: Actor,
    traceparent: Option<String>,
) -> Result<(Commit, plan::Model), FlowError> {
    let id = PlanId::from(Uuid::now_v7());
    let mut commit = Commit::new(SessionId::from(session.id), actor).traced(traceparent);
    let row = bear_plan(&mut commit, session, id, new)?;
    Ok((commit, row))
}

/// The same as part of another commit.
pub fn bear_plan(
    commit: &mut Commit,
    session: &session::Model,
    id: PlanId,
    new: NewPlan,
) -> Result<plan::Model, FlowError> {
    let table = &plan_machine::TABLE;
    if session.status != "active" {
        let advice = format!("the session is {}: a goal can be set in an active one", session.status);
        let (machine, from, event) = (table.name, "none".into(), "goal_received".into());
        return Err(FlowError::Refused(Box::new(Refusal { machine, from, event, allowed: Vec::new(), advice })));
    }
    let born = birth(table, "goal_received", By::User)?;
    let row = plan_row(session.id, id, new, commit.at());
    commit.bear(&plan::TABLE, id, &[born], row.clone());
    let hop = row.hop_id.map(HopId::from);
    let told = PlanGoalReceived { goal: row.goal.clone(), hop_id: hop, autonomy: Some(row.autonomy.clone()) };
    commit.rune(Draft::new(id, &told)?);
    attend_birth(commit, &row);
    Ok(row)
}

/// What comes with the birth of a plan, whoever bears it: its session is active, and its time runs.
pub(crate) fn attend_birth(commit: &mut Commit, row: &plan::Model) {
    let at = commit.at();
    commit.change(Change::entity(&session::TABLE, SessionId::from(row.session_id)).expecting("session", "active"));
    let limits: Limits = serde_json::from_value(row.budget.clone()).unwrap_or_default();
    if let Some(ms) = limits.max_wall_time_ms {
        let due = at + Duration::milliseconds(i64::try_from(ms).unwrap_or(i64::MAX / 2_000));
        let entity = PlanId::from(row.id).to_string();
        commit.insert(&timer_row::TABLE, timer(row.session_id, PLAN_TIMER, entity, due, at));
    }
}

/// A goal that nobody has worked on.
pub(crate) fn plan_row(session: Uuid, id: PlanId, new: NewPlan, at: DateTime<Utc>) -> plan::Model {
    plan::Model {
        id: id.uuid(),
        session_id: session,
        hop_id: new.hop.map(HopId::uuid),
        goal: new.goal,
        autonomy: new.autonomy,
        config: new.config,
        budget: new.budget,
        status: plan_machine::State::GoalReceived.token().into(),
        epoch: 0,
        version: 0,
        iteration: 1,
        revision: 0,
        drafted: false,
        asked: 0,
        orchestrator_id: new.orchestrator.map(AgentId::uuid),
        critic_id: None,
        turn_id: None,
        feedback: None,
        reason: None,
        summary: None,
        created_at: at,
        updated_at: at,
        ended_at: None,
    }
}

/// Who gets a turn for a plan.
pub enum Hand<'a> {
    /// It has nothing to do.
    Free(&'a agent::Model),
    /// It is made for this.
    New(NewAgent),
}

/// Somebody who was given a turn.
#[derive(Clone, Copy, Debug)]
pub struct Engaged {
    pub agent: AgentId,
    pub turn: TurnId,
    pub epoch: i64,
    pub owner: Option<Uuid>,
}

/// A turn for an agent, with what it is to do: written to the agent's row, so that whoever gives it something else
/// at the same moment looks again.
fn engage(
    commit: &mut Commit,
    session: SessionId,
    hand: Hand<'_>,
    turn: TurnId,
    told: &Told<'_>,
) -> Result<Engaged, FlowError> {
    commit.change(Change::entity(&session::TABLE, session).expecting("session", "active"));
    let wakes = |drive: &str| step(&agent_drive::TABLE, drive, "task_assigned", By::System);
    let started = || AgentDriveStarted { reason: Some("task".into()), relaunched_from: None };
    let engaged = match hand {
        Hand::Free(free) => {
            let id = AgentId::from(free.id);
            let mut change =
                Change::entity(&agent::TABLE, id).expecting("agent_lifecycle", "idle").version(free.version);
            if free.drive == "idle" {
                change = change.moving(wakes("idle")?);
                commit.rune(Draft::new(id, &started())?.agent(id));
            } else {
                change = change.expecting("agent_drive", "running");
            }
            commit.change(change.set(agent::Column::NudgeCount, 0i64).set(agent::Column::LetterCount, None::<i64>));
            Engaged { agent: id, turn, epoch: free.epoch, owner: free.owner }
        }
        Hand::New(new) => {
            let (id, tools) = (AgentId::from(Uuid::now_v7()), new.tools.clone());
            let ready = step(&agent_lifecycle::TABLE, "spawning", "init_complete", By::System)?;
            let after = [ready, wakes("idle")?];
            bear(commit, session, Newborn { id, new, by: By::System, after: &after, last_error: None })?;
            commit.rune(Draft::new(id, &AgentReady { tools })?.agent(id));
            commit.rune(Draft::new(id, &started())?.agent(id));
            Engaged { agent: id, turn, epoch: 0, owner: None }
        }
    };
    let (message, at) = (MessageId::from(Uuid::now_v7()), commit.at());
    let row = message::Model {
        id: message.uuid(),
        session_id: session.uuid(),
        agent_id: engaged.agent.uuid(),
        turn_id: Some(turn.uuid()),
        version: 0,
        role: "user".into(),
        source: PLAN_SOURCE.into(),
        mode: "queue".into(),
        content: told.text.to_owned(),
        data: Some(json!(told.work)),
        created_at: at,
    };
    commit.insert(&message::TABLE, row);
    let cause = if told.work.task.is_some() { TASK_CAUSE } else { PLAN_CAUSE };
    let why = Why { cause, message_ids: vec![message], input: told.work.input() };
    queue_for(commit, session, engaged.agent, turn, why, None)?;
    let link = plan_turn::Model {
        id: turn.uuid(),
        session_id: session.uuid(),
        plan_id: told.work.plan.uuid(),
        task_id: told.work.task.map(TaskId::uuid),
        purpose: told.work.purpose.token().into(),
        created_at: at,
        version: 0,
    };
    commit.insert(&plan_turn::TABLE, link);
    Ok(engaged)
}

struct Told<'a> {
    text: &'a str,
    work: Work,
}

fn at_hand(hand: &Hand<'_>) -> Option<AgentId> {
    match hand {
        Hand::Free(agent) => Some(AgentId::from(agent.id)),
        Hand::New(_) => None,
    }
}

/// A turn for the orchestrator, to make a plan or to make it anew.
pub fn ask_for_plan(
    plan: &plan::Model,
    hand: Hand<'_>,
    text: &str,
    actor: Actor,
) -> Result<(Commit, Engaged), FlowError> {
    let (id, session, turn) = (PlanId::from(plan.id), SessionId::from(plan.session_id), TurnId::from(Uuid::now_v7()));
    let mut commit = Commit::new(session, actor);
    let mut change = Change::entity(&plan::TABLE, id)
        .version(plan.version)
        .set(plan::Column::TurnId, turn.uuid())
        .set(plan::Column::Asked, plan.asked + 1);
    if plan.status == "goal_received" {
        change = change.moving(step(&plan_machine::TABLE, &plan.status, "decompose_goal", By::System)?);
        commit.rune(Draft::new(id, &PlanPlanningStarted { agent_id: at_hand(&hand) })?);
    } else {
        change = change.expecting("plan", "planning");
    }
    let work = Work::on_draft(plan);
    let engaged = engage(&mut commit, session, hand, turn, &Told { text, work })?;
    commit.change(change.set(plan::Column::OrchestratorId, engaged.agent.uuid()));
    Ok((commit, engaged))
}

/// A turn for the critic.
pub fn ask_for_critique(
    plan: &plan::Model,
    hand: Hand<'_>,
    text: &str,
    actor: Actor,
) -> Result<(Commit, Engaged), FlowError> {
    let (id, session, turn) = (PlanId::from(plan.id), SessionId::from(plan.session_id), TurnId::from(Uuid::now_v7()));
    let mut commit = Commit::new(session, actor);
    let work = Work::on_verdict(plan);
    let engaged = engage(&mut commit, session, hand, turn, &Told { text, work })?;
    commit.change(
        Change::entity(&plan::TABLE, id)
            .expecting("plan", "reviewing")
            .version(plan.version)
            .set(plan::Column::TurnId, turn.uuid())
            .set(plan::Column::Asked, plan.asked + 1)
            .set(plan::Column::CriticId, engaged.agent.uuid()),
    );
    Ok((commit, engaged))
}

/// A task is given to an agent, with the turn in which it does it.
pub fn assign(
    of: &plan::Model,
    task: &task::Model,
    hand: Hand<'_>,
    text: &str,
    actor: Actor,
) -> Result<(Commit, Engaged), FlowError> {
    let (id, plan, session) = (TaskId::from(task.id), PlanId::from(task.plan_id), SessionId::from(task.session_id));
    let turn = TurnId::from(Uuid::now_v7());
    let mut commit = Commit::new(session, actor);
    let assigned = step(&task_machine::TABLE, &task.status, "assign", By::System)?;
    let work = Work::on_task(of, task, Purpose::Task);
    let engaged = engage(&mut commit, session, hand, turn, &Told { text, work })?;
    commit.change(Change::entity(&plan::TABLE, plan).expecting("plan", "executing"));
    commit.change(
        Change::entity(&task::TABLE, id)
            .moving(assigned)
            .version(task.version)
            .set(task::Column::OwnerId, engaged.agent.uuid())
            .set(task::Column::TurnId, turn.uuid())
            .set(task::Column::Asked, 0i64)
            .set(task::Column::AssignedAt, commit.at()),
    );
    let told = PlanTaskAssigned { agent_id: engaged.agent, plan_id: Some(plan) };
    commit.rune(Draft::new(id, &told)?.agent(engaged.agent).turn(turn));
    Ok((commit, engaged))
}

/// The owner of a task is asked once more what came of it.
pub fn ask_for_report(
    of: &plan::Model,
    task: &task::Model,
    owner: &agent::Model,
    text: &str,
    actor: Actor,
) -> Result<(Commit, Engaged), FlowError> {
    let (id, plan, session) = (TaskId::from(task.id), PlanId::from(task.plan_id), SessionId::from(task.session_id));
    let turn = TurnId::from(Uuid::now_v7());
    let mut commit = Commit::new(session, actor);
    let work = Work::on_task(of, task, Purpose::Report);
    let engaged = engage(&mut commit, session, Hand::Free(owner), turn, &Told { text, work })?;
    commit.change(Change::entity(&plan::TABLE, plan).expecting("plan", "executing"));
    commit.change(
        Change::entity(&task::TABLE, id)
            .expecting("task", "running")
            .version(task.version)
            .set(task::Column::TurnId, turn.uuid())
            .set(task::Column::Asked, task.asked + 1),
    );
    Ok((commit, engaged))
}

/// The turn in which a task is done begins: part of its claim. Whoever takes the task back ends the turn that waits
/// for it in the same commit, so that a claim finds both or neither.
pub(super) fn start_task(commit: &mut Commit, turn: &turn::Model) -> Result<(), FlowError> {
    let Some(Work { task: Some(id), purpose: Purpose::Task, attempt, .. }) = Work::of(turn) else { return Ok(()) };
    let started = step(&task_machine::TABLE, "assigned", "start", By::System)?;
    let at = commit.at();
    commit.change(Change::entity(&task::TABLE, id).moving(started).set(task::Column::StartedAt, at));
    let (agent, turn) = (AgentId::from(turn.agent_id), TurnId::from(turn.id));
    let told = PlanTaskStarted { turn_id: Some(turn), attempt };
    commit.rune(Draft::new(id, &told)?.agent(agent).turn(turn));
    Ok(())
}

/// A task as its plan names it.
#[derive(Clone, Debug)]
pub struct NewTask {
    pub id: TaskId,
    pub key: String,
    pub title: String,
    pub description: String,
    pub priority: Priority,
    pub role: String,
    pub deps: Vec<TaskId>,
    pub success_criteria: Vec<String>,
    pub attempts_max: i64,
}

impl NewTask {
    fn told(&self) -> Value {
        json!({
            "id": self.id, "key": self.key, "title": self.title, "description": self.description,
            "priority": self.priority, "role": self.role, "deps": self.deps,
            "success_criteria": self.success_criteria,
        })
    }
}

/// Births of tasks; they ride on the rune that is told next.
fn add(commit: &mut Commit, plan: &plan::Model, iteration: i64, tasks: &[NewTask]) -> Result<(), FlowError> {
    let (born, at) = (birth(&task_machine::TABLE, "add_task", By::Agent)?, commit.at());
    for new in tasks {
        let row = task::Model {
            id: new.id.uuid(),
            session_id: plan.session_id,
            plan_id: plan.id,
            key: new.key.clone(),
            title: new.title.clone(),
            description: new.description.clone(),
            priority: new.priority.token().into(),
            role: new.role.clone(),
            deps: json!(new.deps.iter().map(|id| id.uuid()).collect::<Vec<_>>()),
            success_criteria: json!(new.success_criteria),
            status: born.to().into(),
            epoch: 0,
            version: 0,
            attempt: 1,
            attempts_max: new.attempts_max,
            iteration,
            asked: 0,
            owner_id: None,
            turn_id: None,
            result: None,
            evidence: json!([]),
            error: None,
            assigned_at: None,
            started_at: None,
            created_at: at,
            updated_at: at,
            ended_at: None,
        };
        commit.bear(&task::TABLE, new.id, &[born], row);
    }
    Ok(())
}

/// The graph of a plan's tasks, the first time or anew; what an earlier draft has and nobody began is left out.
pub fn draft(
    mut commit: Commit,
    plan: &plan::Model,
    tasks: &[task::Model],
    new: &[NewTask],
) -> Result<Commit, FlowError> {
    let (id, first, at) = (PlanId::from(plan.id), plan.revision == 0, commit.at());
    let event = if first { "plan_drafted" } else { "plan_revised" };
    let moved = step(&plan_machine::TABLE, &plan.status, event, By::Agent)?;
    commit.change(
        Change::entity(&plan::TABLE, id)
            .moving(moved)
            .version(plan.version)
            .set(plan::Column::Revision, plan.revision + 1)
            .set(plan::Column::Drafted, true)
            .set(plan::Column::Asked, 0i64)
            .set(plan::Column::Feedback, None::<String>),
    );
    let dropped: Vec<&task::Model> = tasks.iter().filter(|task| task.status == "pending").collect();
    add(&mut commit, plan, plan.iteration, new)?;
    let told: Vec<Value> = new.iter().map(NewTask::told).collect();
    if first {
        commit.rune(Draft::new(id, &PlanCreated { tasks: told })?);
    } else {
        let dropped: Vec<TaskId> = dropped.iter().map(|task| TaskId::from(task.id)).collect();
        let changes = json!({"added": told, "dropped": dropped});
        commit.rune(Draft::new(id, &PlanUpdated { changes, iteration: plan.iteration })?);
    }
    for task in dropped {
        let id = TaskId::from(task.id);
        let cancelled = step(&task_machine::TABLE, &task.status, "cancel", By::System)?;
        let change = Change::entity(&task::TABLE, id).moving(cancelled).version(task.version);
        commit.change(change.set(task::Column::EndedAt, at));
        commit.rune(Draft::new(id, &PlanTaskCancelled { reason: Some("left out by a later draft".into()) })?);
    }
    Ok(commit)
}

/// What a critic said.
#[derive(Clone, Debug)]
pub struct Critique {
    pub summary: String,
    pub findings: Vec<Finding>,
}

impl Critique {
    pub fn rune(&self) -> Result<PlanCritique, FlowError> {
        let findings = self.findings.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        Ok(PlanCritique { pass: passes(&self.findings), findings, summary: Some(self.summary.clone()) })
    }

    /// Kept with the plan.
    pub fn keep(&self, commit: &mut Commit, plan: &plan::Model, critic: AgentId) -> Result<(), FlowError> {
        let row = critique::Model {
            id: Uuid::now_v7(),
            session_id: plan.session_id,
            plan_id: plan.id,
            agent_id: critic.uuid(),
            iteration: plan.iteration,
            pass: passes(&self.findings),
            summary: self.summary.clone(),
            findings: serde_json::to_value(&self.findings)?,
            created_at: commit.at(),
            version: 0,
        };
        commit.insert(&critique::TABLE, row);
        Ok(())
    }
}

/// The critic wants another plan: what has failed in this one is not tried again beside it.
pub fn leave_failed(commit: &mut Commit, tasks: &[task::Model]) {
    for task in tasks.iter().filter(|task| task.status == "failed" && task.attempt < task.attempts_max) {
        let change = Change::entity(&task::TABLE, TaskId::from(task.id)).expecting("task", "failed");
        commit.change(change.version(task.version).set(task::Column::AttemptsMax, task.attempt));
    }
}

/// The critic wants tasks tried again or added: the next iteration begins with both.
pub fn follow_up(
    mut commit: Commit,
    plan: &plan::Model,
    critique: &Critique,
    again: &[&task::Model],
    new: &[NewTask],
) -> Result<Commit, FlowError> {
    let (id, iteration) = (PlanId::from(plan.id), plan.iteration + 1);
    let moved = step(&plan_machine::TABLE, &plan.status, "critique_found_issues", By::Agent)?;
    commit.rune(Draft::new(id, &critique.rune()?)?);
    commit.change(
        Change::entity(&plan::TABLE, id)
            .moving(moved)
            .version(plan.version)
            .set(plan::Column::Iteration, iteration)
            .set(plan::Column::Asked, 0i64)
            .set(plan::Column::TurnId, None::<Uuid>),
    );
    add(&mut commit, plan, iteration, new)?;
    let retried: Vec<TaskId> = again.iter().map(|task| TaskId::from(task.id)).collect();
    let changes = json!({"added": new.iter().map(NewTask::told).collect::<Vec<_>>(), "retried": retried});
    commit.rune(Draft::new(id, &PlanUpdated { changes, iteration })?);
    for task in again {
        let id = TaskId::from(task.id);
        let retried = step(&task_machine::TABLE, &task.status, "retry", By::System)?;
        commit.change(
            Change::entity(&task::TABLE, id)
                .moving(retried)
                .version(task.version)
                .set(task::Column::Attempt, task.attempt + 1)
                .set(task::Column::OwnerId, None::<Uuid>)
                .set(task::Column::TurnId, None::<Uuid>)
                .set(task::Column::EndedAt, None::<DateTime<Utc>>),
        );
        let told = PlanTaskUpdated { reason: "the critic wants it tried again".into(), attempt: task.attempt + 1 };
        commit.rune(Draft::new(id, &told)?);
    }
    Ok(commit)
}
