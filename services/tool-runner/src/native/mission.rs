//! What a mission's agent says to people: a mission, a plan, steps, a question.
//!
//! The proposal and the call's result are one commit. What is wrong with a proposal is the call's result, so that the
//! agent can mend it in the same turn.

use super::{Caller, Failed, Plan, error_of, success};
use crate::runner::Runner;
use instar_core::decide::{Awaits, FailureClass};
use instar_core::id::{HopId, MissionId, SessionId};
use instar_core::machine::{By, hop as hop_machine};
use instar_core::rune::{Actor, Draft, Rune};
use instar_runtime::flow;
use instar_runtime::mission::{self, AssetForm, Faults, HopForm, MissionEdit, MissionForm, StepForm, Task, Terms};
use instar_runtime::{Act, ActError, Missions};
use instar_store::entity::{hop, mission as mission_row, tool_step};
use instar_store::{Change, Commit, Landed};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Missions of one agent that are looked at where none is named.
const MISSIONS_MAX: u64 = 20;

/// A mission that a proposal may be about.
struct Found {
    rows: Missions,
    mission: mission_row::Model,
    hop: Option<hop::Model>,
}

enum Next {
    Go(Box<Found>),
    Answer(Plan),
}

fn refuse(why: impl Into<String>) -> Plan {
    Plan::Answer(error_of(why))
}

fn faults(faults: Faults) -> Plan {
    let said: Vec<String> =
        faults.into_iter().map(|(at, what)| format!("{}: {what}", at.trim_start_matches('/'))).collect();
    refuse(said.join("; "))
}

/// The arguments as a form, without the field that names the mission.
fn form<T: DeserializeOwned>(caller: &Caller<'_>) -> Result<T, Plan> {
    let mut fields = caller.call.arguments.clone();
    if let Some(fields) = fields.as_object_mut() {
        fields.remove("mission_id");
    }
    serde_json::from_value(fields).map_err(|no| refuse(no.to_string()))
}

async fn find(caller: &Caller<'_>, wanted: &[Task]) -> Result<Next, Failed> {
    let waits = |mission: &mission_row::Model, hop: Option<&hop::Model>| {
        Task::of(mission, hop).is_some_and(|task| wanted.contains(&task))
    };
    find_where(caller, waits).await
}

/// The mission meant: named, that of the turn, or the only one of the agent's for which this holds.
async fn find_where(
    caller: &Caller<'_>,
    fits: impl Fn(&mission_row::Model, Option<&hop::Model>) -> bool,
) -> Result<Next, Failed> {
    let store = caller.runner.hub.store();
    let named = match caller.call.arguments["mission_id"].as_str() {
        Some(text) => match text.parse::<MissionId>() {
            Ok(id) => Some(id),
            Err(no) => return Ok(Next::Answer(refuse(format!("mission_id: {no}")))),
        },
        None => match caller.turn() {
            Some(turn) => store.turn(turn).await?.and_then(|turn| mission::mission_of(&turn)),
            None => None,
        },
    };
    // One that is named is found among however many there are.
    let own: Vec<mission_row::Model> = match named {
        Some(id) => store.mission_of(caller.agent(), id).await?.into_iter().collect(),
        None => store.missions_of(caller.agent(), MISSIONS_MAX).await?,
    };
    let (mut fit, mut stopped) = (Vec::new(), None);
    for mission in own {
        let rows = Missions::of(store.mission_rows(MissionId::from(mission.id), None).await?);
        let hop = rows.current_hop(&mission).cloned();
        if mission::stopped_hop(&mission).is_some() {
            stopped = Some(MissionId::from(mission.id));
        }
        if fits(&mission, hop.as_ref()) {
            fit.push(Found { rows, mission, hop });
        }
    }
    Ok(match (fit.pop(), fit.is_empty(), stopped) {
        (Some(found), true, _) => Next::Go(Box::new(found)),
        (Some(_), false, _) => Next::Answer(refuse("several missions wait for this: name one with mission_id")),
        (None, _, Some(id)) => {
            let why = format!("a person has stopped the hop of mission {id}, which waits for a person: end your turn");
            Next::Answer(refuse(why))
        }
        (None, _, None) => Next::Answer(refuse("no mission of yours waits for this now")),
    })
}

/// A command with the call's result, as one commit.
async fn settle(caller: &Caller<'_>, act: Act<'_>, said: Value) -> Result<Plan, Failed> {
    match act.prepare(&caller.runner.hub).await {
        Ok(Some(commit)) => {
            let outcome = success(said);
            Ok(Plan::Commit(Box::new(commit.then(caller.result(&outcome)?)), outcome))
        }
        Ok(None) => Ok(refuse("it is already so")),
        Err(ActError::Store(error)) => Err(error.into()),
        Err(ActError::Contended) => Err(Failed::Contended),
        Err(no) => Ok(refuse(no.to_string())),
    }
}

pub(super) async fn propose_mission(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let form: MissionForm = match form(caller) {
        Ok(form) => form,
        Err(plan) => return Ok(plan),
    };
    if let Err(wrong) = form.check() {
        return Ok(faults(wrong));
    }
    let Some((session, own)) = caller.rows().await? else { return Ok(refuse("you are no longer there")) };
    if caller.call.arguments.get("mission_id").is_some() {
        let found = match find(caller, &[Task::Revise]).await? {
            Next::Go(found) => found,
            Next::Answer(plan) => return Ok(plan),
        };
        let id = MissionId::from(found.mission.id);
        let edit = MissionEdit::from(form);
        let act = match mission::revise_mission(&found.rows, id, edit, caller.actor()) {
            Ok(act) => act,
            Err(no) => return Ok(refuse(no.to_string())),
        };
        let said = json!({"mission_id": id, "revision": found.mission.revision + 1, "state": "waits for approval"});
        return settle(caller, act, said).await;
    }
    // How a mission is run is for people to say: what they say for all of a session holds for what agents propose.
    let mut terms = match Option::<Terms>::deserialize(&session.config["missions"]) {
        Ok(terms) => terms.unwrap_or_default(),
        // Gates must not open otherwise than people have said.
        Err(no) => return Ok(refuse(format!("the session's config.missions cannot be read: {no}; tell a person"))),
    };
    let held = own.tools();
    let works = mission::TOOLS.iter().all(|tool| held.iter().any(|name| name == tool));
    terms.agent_id = works.then(|| caller.agent());
    let (act, row) = mission::mission(&session, &form, &terms, caller.actor());
    let said = json!({"mission_id": MissionId::from(row.id), "revision": 1, "state": "waits for approval"});
    settle(caller, act, said).await
}

pub(super) async fn propose_plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let form: HopForm = match form(caller) {
        Ok(form) => form,
        Err(plan) => return Ok(plan),
    };
    if let Err(wrong) = form.check(true) {
        return Ok(faults(wrong));
    }
    let found = match find(caller, &[Task::Begin, Task::Plan]).await? {
        Next::Go(found) => found,
        Next::Answer(plan) => return Ok(plan),
    };
    let act = match &found.hop {
        Some(hop) => mission::hop_plan(&found.rows, hop, "propose_hop_plan", form, caller.actor())
            .map(|act| (act, HopId::from(hop.id))),
        None => mission::hop(&found.rows, &found.mission, Some(form), caller.actor())
            .map(|(act, hop)| (act, HopId::from(hop.id))),
    };
    match act {
        Ok((act, hop)) => {
            let said = json!({"hop_id": hop, "state": "waits for approval"});
            settle(caller, act, said).await
        }
        Err(no) => Ok(refuse(no.to_string())),
    }
}

pub(super) async fn propose_impl(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let mut steps: Vec<StepForm> = match serde_json::from_value(caller.call.arguments["steps"].clone()) {
        Ok(steps) => steps,
        Err(no) => return Ok(refuse(format!("steps: {no}"))),
    };
    if let Err(wrong) = StepForm::check_all(&steps, true) {
        return Ok(faults(wrong));
    }
    let scratch = match caller.call.arguments.get("scratch") {
        Some(forms) => match serde_json::from_value::<Vec<AssetForm>>(forms.clone()) {
            Ok(forms) => forms,
            Err(no) => return Ok(refuse(format!("scratch: {no}"))),
        },
        None => Vec::new(),
    };
    if let Err(wrong) = AssetForm::check_all("scratch", &scratch) {
        return Ok(faults(wrong));
    }
    let mut found = match find(caller, &[Task::Resolve, Task::Implement]).await? {
        Next::Go(found) => found,
        Next::Answer(plan) => return Ok(plan),
    };
    let Some(hop) = found.hop.clone() else { return Ok(refuse("no mission of yours waits for this now")) };
    let hop = &hop;
    if found.rows.assets.len() + scratch.len() > mission::ASSETS_MAX {
        return Ok(refuse(format!("scratch: a mission has at most {} assets", mission::ASSETS_MAX)));
    }
    let next = caller.runner.hub.store().next_step_number(HopId::from(hop.id)).await?;
    // Their ids are known before the steps that name them are.
    let own = mission::scratch(hop, &scratch, &caller.actor());
    mission::name_scratch(&mut steps, &own);
    let (act, rows) = mission::hop_impl(&found.rows, hop, &steps, next, caller.actor());
    let act = mission::bearing_scratch(act, &own);
    found.rows.assets.extend(own.into_iter().map(|row| (row.id, row)));
    let wrong = wrong_with(caller, &found.rows, hop, &rows).await?;
    if !wrong.is_empty() {
        return invalid(caller, hop, &found, wrong).await;
    }
    let said = json!({"hop_id": HopId::from(hop.id), "steps": rows.len(), "state": "waits for approval"});
    settle(caller, act, said).await
}

/// Everything that is wrong with the steps, the tools that the agent may not use first: what it cannot call itself it
/// cannot have a step call for it.
async fn wrong_with(
    caller: &Caller<'_>,
    rows: &Missions,
    hop: &hop::Model,
    steps: &[tool_step::Model],
) -> Result<Vec<String>, Failed> {
    let Some((_, own)) = caller.rows().await? else { return Ok(vec!["you are no longer there".into()]) };
    let usable = caller.runner.tools.for_steps_of(&own.tools());
    let names = usable.iter().map(|tool| tool.name()).collect::<Vec<_>>().join(", ");
    let names = if names.is_empty() { "none".to_owned() } else { names };
    let may = |name: &str| usable.iter().find(|tool| tool.name() == name);
    let barred = |step: &&tool_step::Model| {
        let name = step.tool.as_deref();
        name.is_some_and(|name| may(name).is_none() && caller.runner.tools.for_step(name).is_some())
    };
    let wrong: Vec<String> = steps
        .iter()
        .filter(barred)
        .map(|step| {
            let name = step.tool.as_deref().unwrap_or_default();
            format!("step {}: you may not use {name}; a step of yours may run: {names}", step.name)
        })
        .collect();
    if !wrong.is_empty() {
        return Ok(wrong);
    }
    Ok(mission::chain(rows, hop, steps, |name| may(name).map(|tool| tool.face())))
}

/// The chain has errors: recorded with the hop, and told to the agent as the call's result.
async fn invalid(caller: &Caller<'_>, hop: &hop::Model, found: &Found, wrong: Vec<String>) -> Result<Plan, Failed> {
    let outcome = error_of(format!("the steps do not fit together: {}", wrong.join("; ")));
    if hop.status != hop_machine::State::ImplStarted.token() {
        return Ok(Plan::Answer(outcome));
    }
    let system = Actor::new(By::System, caller.runner.id.to_string());
    let spent = hop.repairs + 1 >= i64::from(instar_runtime::REPAIRS_MAX);
    let event = if spent { "hop_impl_failed" } else { "impl_validation_failed" };
    let why = wrong.join("; ");
    let session = SessionId::from(found.mission.session_id);
    let act = Act::new(session, HopId::from(hop.id), &hop_machine::TABLE, event, system.clone())
        .reason(&why)
        .telling("hop.impl_invalid", json!({"errors": wrong}));
    match act.prepare(&caller.runner.hub).await {
        Ok(Some(commit)) => {
            let commit = commit.then(flow::result(caller.call, system, &outcome)?);
            Ok(Plan::Commit(Box::new(commit), outcome))
        }
        Err(ActError::Store(error)) => Err(error.into()),
        _ => Ok(Plan::Answer(outcome)),
    }
}

/// A question changes no state: the mission waits for a person until it is answered.
pub(super) async fn ask_person(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let all = [Task::Revise, Task::Begin, Task::Plan, Task::Resolve, Task::Implement];
    let found = match find(caller, &all).await? {
        Next::Go(found) => found,
        Next::Answer(plan) => return Ok(plan),
    };
    let id = MissionId::from(found.mission.id);
    let question = caller.call.arguments["question"].as_str().unwrap_or_default();
    // Nothing moves but the call, which is for its runner to say.
    let system = Actor::new(By::System, caller.runner.id.to_string());
    let session = SessionId::from(found.mission.session_id);
    let mut commit = Commit::new(session, system.clone()).traced(caller.call.traceparent.clone());
    let at = commit.at();
    commit.change(
        Change::entity(&mission_row::TABLE, id)
            .version(found.mission.version)
            .set(mission_row::Column::Question, json!({"text": question, "agent_id": caller.agent(), "at": at}))
            .set(mission_row::Column::Awaits, Awaits::Person.token()),
    );
    let told = instar_core::rune::payload::MissionAttention {
        reason: "question".into(),
        hop_id: found.hop.as_ref().map(|hop| HopId::from(hop.id)),
        error: json!({"question": question}),
    };
    commit.rune(Draft::new(id, &told).map_err(flow::FlowError::from)?);
    let outcome = success(json!({"mission_id": id, "state": "waits for an answer: end your turn"}));
    let commit = commit.then(flow::result(caller.call, system, &outcome)?);
    Ok(Plan::Commit(Box::new(commit), outcome))
}

/// "I cannot": the agent gives the hop up that it was asked for.
pub(super) async fn fail_hop(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let found = match find(caller, &[Task::Plan, Task::Implement]).await? {
        Next::Go(found) => found,
        Next::Answer(plan) => return Ok(plan),
    };
    let event = Task::of(&found.mission, found.hop.as_ref()).and_then(Task::failure);
    let (Some(hop), Some(event)) = (&found.hop, event) else {
        return Ok(refuse("no mission of yours waits for this now"));
    };
    let reason = caller.call.arguments["reason"].as_str().unwrap_or_default();
    let (session, id) = (SessionId::from(hop.session_id), HopId::from(hop.id));
    let mut act = Act::new(session, id, &hop_machine::TABLE, event, caller.actor()).reason(reason);
    // That this agent cannot does not say that nobody can.
    act.said.class = Some(FailureClass::Recoverable);
    settle(caller, act, json!({"hop_id": id, "state": "failed: people decide, end your turn"})).await
}

/// The agent takes up a hop again that failed while it was planned, or for want of tools.
pub(super) async fn replan_hop(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let fits = |mission: &mission_row::Model, hop: Option<&hop::Model>| {
        hop.is_some_and(|hop| mission::may_replan(mission, hop))
    };
    let found = match find_where(caller, fits).await? {
        Next::Go(found) => found,
        Next::Answer(plan) => return Ok(plan),
    };
    let Some(hop) = &found.hop else { return Ok(refuse("no mission of yours waits for this now")) };
    let turn = match caller.turn() {
        Some(turn) => caller.runner.hub.store().turn(turn).await?,
        None => None,
    };
    // Whoever gives up and takes up in one turn goes in circles, and each round is paid for.
    if turn.is_none_or(|turn| hop.ended_at.is_some_and(|failed| turn.created_at <= failed)) {
        let why = "the hop failed in this very turn, and nothing is different yet: end your turn, people decide";
        return Ok(refuse(why));
    }
    let reason = caller.call.arguments["reason"].as_str().unwrap_or_default();
    let (session, id) = (SessionId::from(hop.session_id), HopId::from(hop.id));
    let act = Act::new(session, id, &hop_machine::TABLE, "replan_hop", caller.actor()).reason(reason);
    settle(caller, act, json!({"hop_id": id, "state": "to be planned anew"})).await
}

/// What a proposal lets a mission do by itself, such as a gate that opens by policy. A sweep finds what fails here.
pub(super) fn go_on(runner: &Runner, landed: &Landed) {
    let of_mission = |rune: &&Rune| rune.kind.starts_with("mission.") || rune.kind.starts_with("hop.");
    let Some(rune) = landed.runes.iter().rev().find(of_mission) else { return };
    let (hub, entity, actor) = (runner.hub.clone(), rune.entity, Actor::new(By::System, runner.id.to_string()));
    tokio::spawn(async move {
        let mission = match entity.kind {
            instar_core::id::Kind::Mission => Some(MissionId::from(entity.id)),
            _ => {
                hub.store().hop(HopId::from(entity.id)).await.ok().flatten().map(|hop| MissionId::from(hop.mission_id))
            }
        };
        if let Some(mission) = mission
            && let Err(error) = hub.advance_mission(mission, actor).await
        {
            tracing::debug!(%mission, %error, "the mission did not go on by itself; a sweep will find it");
        }
    });
}
