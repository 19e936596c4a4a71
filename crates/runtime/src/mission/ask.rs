//! Asking a mission's agent for what it has to do next: a message with everything it needs to know, and a turn.

use crate::flow::{FlowError, Why, queue_for};
use crate::snapshot::{Missions, TAKEN_UP, mapped_assets, missed, stopped_hop};
use instar_core::decide::HopPhase;
use instar_core::id::{AgentId, AssetId, HopId, MessageId, MissionId, SessionId, TurnId};
use instar_core::machine::{Answer, By, agent_drive, apply};
use instar_core::rune::Draft;
use instar_core::rune::payload::AgentDriveStarted;
use instar_store::entity::{agent, hop, message, mission, tool_step, turn};
use instar_store::{Change, Commit};
use serde_json::{Value, json};
use std::fmt::Write;
use uuid::Uuid;

/// Why a turn is there in which a mission's agent is asked for something.
pub const MISSION_CAUSE: &str = "mission";
/// Where such a message comes from.
pub const MISSION_SOURCE: &str = "mission";
const FEEDBACK: &str = "A person wants it changed:";

/// What a mission's agent has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Propose the mission once more.
    Revise,
    /// Propose the plan of the next hop, which there is not yet.
    Begin,
    /// Propose the plan of the current hop.
    Plan,
    /// Propose the steps of a hop whose plan is accepted, which nobody has begun.
    Resolve,
    /// Propose the steps of the current hop.
    Implement,
}

impl Task {
    /// `None`: it is not the agent's turn.
    pub fn of(mission: &mission::Model, hop: Option<&hop::Model>) -> Option<Task> {
        match (mission.status.as_str(), hop.map(|hop| hop.status.as_str())) {
            ("IN_PROGRESS", None) if stopped_hop(mission).is_some() => None,
            ("AWAITING_APPROVAL", _) if mission.feedback.is_some() => Some(Task::Revise),
            ("IN_PROGRESS", None) => Some(Task::Begin),
            ("IN_PROGRESS", Some("HOP_PLAN_STARTED")) => Some(Task::Plan),
            ("IN_PROGRESS", Some("HOP_PLAN_READY")) => Some(Task::Resolve),
            ("IN_PROGRESS", Some("HOP_IMPL_STARTED")) => Some(Task::Implement),
            _ => None,
        }
    }

    /// The tool that answers it.
    pub const fn tool(self) -> &'static str {
        match self {
            Task::Revise => "propose_mission",
            Task::Begin | Task::Plan => "propose_hop_plan",
            Task::Resolve | Task::Implement => "propose_hop_impl",
        }
    }

    /// The event by which the agent says that it cannot; `None`: there is no hop yet that could fail for it.
    pub const fn failure(self) -> Option<&'static str> {
        match self {
            Task::Plan => Some("hop_plan_failed"),
            Task::Implement => Some("hop_impl_failed"),
            Task::Revise | Task::Begin | Task::Resolve => None,
        }
    }
}

/// Whether a mission's agent may take up its hop again: one that failed before its steps were chosen. A mission that
/// failed with it is for a person to retry.
pub fn may_replan(mission: &mission::Model, hop: &hop::Model) -> bool {
    let early = matches!(hop.phase.as_deref().and_then(HopPhase::parse), Some(HopPhase::Plan | HopPhase::Resolve));
    mission.status == "IN_PROGRESS" && hop.status == "FAILED" && early
}

/// The mission that a turn is about, if it is one in which its agent is asked for something.
pub fn mission_of(turn: &turn::Model) -> Option<MissionId> {
    turn.input["mission_id"].as_str()?.parse().ok()
}

/// What the agent reads.
pub(super) fn prompt(
    rows: &Missions,
    mission: &mission::Model,
    hop: Option<&hop::Model>,
    task: Task,
    tools: &[String],
) -> String {
    let mut text = format!("Mission {} ({}).\nGoal: {}\n", mission.name, MissionId::from(mission.id), mission.goal);
    for (i, one) in mission.success_criteria.as_array().into_iter().flatten().enumerate() {
        let head = if i == 0 { "It is a success if:\n" } else { "" };
        let _ = writeln!(text, "{head}- {}", one.as_str().unwrap_or_default());
    }
    text.push_str("Its assets:\n");
    for asset in rows.assets.values().filter(|asset| asset.mission_id == mission.id) {
        let (id, many) = (AssetId::from(asset.id), if asset.is_array { " list" } else { "" });
        let about = asset.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
        let _ =
            writeln!(text, "- {} ({id}), {}, {}{many}, {}{about}", asset.name, asset.role, asset.kind, asset.status);
    }
    if missed(mission) > 0 {
        text.push_str(
            "A hop that was to be the last is done, and not every output is READY: that is still to be made.\n",
        );
    }
    if let Some(hop) = hop.filter(|_| matches!(task, Task::Plan | Task::Resolve | Task::Implement)) {
        let _ = writeln!(text, "Hop {}: {} ({}).", hop.sequence, hop.name, HopId::from(hop.id));
        for (name, said) in [("Goal", &hop.goal), ("Description", &hop.description)] {
            if let Some(said) = said {
                let _ = writeln!(text, "{name}: {said}");
            }
        }
        if matches!(task, Task::Resolve | Task::Implement) {
            let _ = writeln!(text, "It reads {} and makes {}.", hop.inputs, hop.outputs);
        }
        steps(&mut text, rows, hop, task);
        let said = |field: &str| hop.error.as_ref().and_then(|error| error[field].as_str());
        if let Some(error) = said("message") {
            let _ = writeln!(text, "What went wrong: {error}");
        }
        if let Some(why) = said(TAKEN_UP) {
            let _ = writeln!(text, "You have taken it up again, because: {why}");
        }
    }
    let feedback = match task {
        Task::Revise => mission.feedback.as_deref(),
        _ => hop.and_then(|hop| hop.feedback.as_deref()),
    };
    if let Some(said) = feedback {
        let _ = writeln!(text, "{FEEDBACK} {said}");
    }
    if mission.asked > 0 {
        text.push_str("You have ended your turn without a proposal.\n");
    }
    text.push_str(match task {
        Task::Revise => "Propose the mission again, changed as wanted, with propose_mission and its mission_id.",
        Task::Begin | Task::Plan => {
            "Propose the next hop with propose_hop_plan: what it reads, what it makes, and whether it is the last."
        }
        Task::Resolve | Task::Implement => {
            "The plan is accepted. Propose its steps with propose_hop_impl: tools that you have, in order, with the \
             assets that each reads and writes."
        }
    });
    if matches!(task, Task::Implement) && hop.is_some_and(|hop| rows.steps_of(hop.id).any(is_done)) {
        text.push_str(" Propose only what is still to be done: the steps that are done are not run again.");
    }
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    if has("ask_person") {
        text.push_str(" If something is not clear, ask with ask_person instead.");
    }
    if has("fail_hop") && !matches!(task, Task::Revise) {
        text.push_str(" If it cannot be done at all, say so with fail_hop, and why.");
    }
    text
}

fn is_done(step: &tool_step::Model) -> bool {
    step.status == "COMPLETED"
}

/// The steps that are there, so that nobody proposes a second time what has had its effect, and everybody knows why
/// the others were not taken.
fn steps(text: &mut String, rows: &Missions, hop: &hop::Model, task: Task) {
    let named = |step: &tool_step::Model| match &step.tool {
        Some(tool) => format!("{} (tool {tool})", step.name),
        None => format!("{} (no tool)", step.name),
    };
    for (i, step) in rows.steps_of(hop.id).filter(|step| is_done(step)).enumerate() {
        let head = if i == 0 { "These steps are done and stay, with what they have made:\n" } else { "" };
        let made = mapped_assets(&step.result_mapping).into_iter().filter_map(|id| rows.assets.get(&id));
        let made = made.map(|asset| format!("{} ({})", asset.name, AssetId::from(asset.id))).collect::<Vec<_>>();
        let made = if made.is_empty() { "nothing that is kept".to_owned() } else { made.join(", ") };
        let _ = writeln!(text, "{head}- {}: {made}", named(step));
    }
    if !matches!(task, Task::Resolve | Task::Implement) {
        return;
    }
    let open = |step: &&tool_step::Model| !is_done(step) && !matches!(step.status.as_str(), "CANCELLED" | "deleted");
    for (i, step) in rows.steps_of(hop.id).filter(open).enumerate() {
        let head = if i == 0 { "Your proposal takes the place of these:\n" } else { "" };
        let _ = write!(text, "{head}- {}, {}", named(step), step.status);
        let error = step.error.as_ref().and_then(|error| error["message"].as_str());
        let wrong = step.validation_errors.as_ref().and_then(Value::as_array).into_iter().flatten();
        for said in error.into_iter().chain(wrong.filter_map(Value::as_str)) {
            let _ = write!(text, "; {said}");
        }
        text.push('\n');
    }
}

/// Puts the question into a commit: the message, a turn for it, and the agent, which must be free.
pub(super) fn ask(
    commit: &mut Commit,
    mission: MissionId,
    agent: &agent::Model,
    content: String,
) -> Result<TurnId, FlowError> {
    let id = AgentId::from(agent.id);
    let (message, turn_id, at) = (MessageId::from(Uuid::now_v7()), TurnId::from(Uuid::now_v7()), commit.at());
    let mut change = Change::entity(&agent::TABLE, id).expecting("agent_lifecycle", "idle").version(agent.version);
    match apply(&agent_drive::TABLE, Some(&agent.drive), "task_assigned", By::System) {
        Answer::Moves(wakes) => {
            change = change.moving(wakes);
            let told = AgentDriveStarted { reason: Some("mission".into()), relaunched_from: None };
            commit.rune(Draft::new(id, &told)?.agent(id));
        }
        // It takes work already. Written, so that whoever queues a turn for it at the same moment looks again.
        _ => change = change.expecting("agent_drive", "running").set(agent::Column::Owner, agent.owner),
    }
    commit.change(change);
    let row = message::Model {
        id: message.uuid(),
        session_id: agent.session_id,
        agent_id: agent.id,
        turn_id: Some(turn_id.uuid()),
        version: 0,
        role: "user".into(),
        source: MISSION_SOURCE.into(),
        mode: "queue".into(),
        content,
        data: Some(json!({"mission_id": mission})),
        created_at: at,
    };
    commit.insert(&message::TABLE, row);
    let why = Why { cause: MISSION_CAUSE, message_ids: vec![message], input: json!({"mission_id": mission}) };
    queue_for(commit, SessionId::from(agent.session_id), id, turn_id, why, None)?;
    Ok(turn_id)
}
