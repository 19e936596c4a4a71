//! Proposals as commands: a mission, a hop's plan, a hop's steps, and new revisions of them.
//!
//! Each looks at the rows as they are when it is worked out; what it finds unfit changes nothing and is told.

use super::form::{ASSETS_MAX, AssetForm, HopForm, MissionEdit, MissionForm, OutputForm, Place, StepForm, Terms};
use crate::act::{Act, ActError};
use crate::asset::Fresh;
use crate::snapshot::{Missions, Row, Snapshot, asset_ids, closed};
use instar_core::cascade::Reach;
use instar_core::id::{AgentId, AssetId, Entity, HopId, Kind, MissionId, SessionId, StepId};
use instar_core::machine::{By, asset as asset_machine, hop as hop_machine, mission as mission_machine};
use instar_core::rune::Actor;
use instar_store::clock;
use instar_store::entity::{asset, asset_version, hop, mission, session, tool_step};
use serde_json::json;
use uuid::Uuid;

/// A mission with its assets. Answers the row that is born.
pub fn mission<'a>(
    session: &session::Model,
    form: &MissionForm,
    terms: &Terms,
    actor: Actor,
) -> (Act<'a>, mission::Model) {
    let at = clock::now();
    let author = actor.id.clone();
    let row = form.row(session.id, terms, &author, at);
    let id = MissionId::from(row.id);
    let mut act = Act::new(SessionId::from(session.id), id, &mission_machine::TABLE, "propose_mission", actor);
    act = act.reason("proposed").bringing(Row::Mission(row.clone()));
    for (role, forms) in [("input", &form.inputs), ("output", &form.outputs)] {
        let place = Place { session: session.id, mission: row.id, hop: None, role, author: &author };
        for asset in forms {
            act = bear_asset(act, Reach::NewAssetsOfMission, id, asset.row(&place, at));
        }
    }
    (act, row)
}

fn bear_asset<'a>(act: Act<'a>, reach: Reach, of: impl Into<Entity>, row: asset::Model) -> Act<'a> {
    let id = AssetId::from(row.id);
    act.bringing(Row::Asset(row)).meaning(reach, of, id)
}

/// Another revision of a mission's proposal. `rows` is the mission as it was looked at; if its assets changed since,
/// the command does not land.
pub fn revise_mission<'a>(
    rows: &Missions,
    id: MissionId,
    edit: MissionEdit,
    actor: Actor,
) -> Result<Act<'a>, ActError> {
    let row = rows.missions.get(&id.uuid()).ok_or(ActError::Absent(id.into()))?;
    let at = clock::now();
    let author = actor.id.clone();
    let seen = row.version;
    let mut act = Act::new(SessionId::from(row.session_id), id, &mission_machine::TABLE, "revise_mission", actor);
    let mut edited: Vec<(Uuid, AssetForm)> = Vec::new();
    for (role, forms) in [("input", &edit.inputs), ("output", &edit.outputs)] {
        let Some(forms) = forms else { continue };
        let place = Place { session: row.session_id, mission: row.id, hop: None, role, author: &author };
        let known: Vec<&asset::Model> =
            rows.assets.values().filter(|asset| asset.role == role && asset.hop_id.is_none()).collect();
        for form in forms {
            match known.iter().find(|asset| asset.name == form.name) {
                Some(asset) if differs(asset, form) => {
                    edited.push((asset.id, form.clone()));
                    act = act.meaning(Reach::EditedAssetsOfMission, id, AssetId::from(asset.id));
                }
                Some(_) => {}
                None => act = bear_asset(act, Reach::NewAssetsOfMission, id, form.row(&place, at)),
            }
        }
        for gone in known.iter().filter(|asset| !forms.iter().any(|form| form.name == asset.name)) {
            act = act.meaning(Reach::DroppedAssetsOfMission, id, AssetId::from(gone.id));
        }
    }
    let told = json!({"changes": edit});
    Ok(act
        .reason("revised")
        .telling("mission.revised", told)
        .provided(move |snapshot| unchanged(snapshot, id, seen))
        .editing(move |snapshot| {
            for (asset, form) in &edited {
                if let Some(row) = snapshot.missions.assets.get_mut(asset) {
                    form.apply(row);
                }
            }
            if let Some(row) = snapshot.missions.missions.get_mut(&id.uuid()) {
                edit.apply(row);
            }
        }))
}

fn differs(row: &asset::Model, form: &AssetForm) -> bool {
    let mut after = row.clone();
    form.apply(&mut after);
    after != *row
}

/// What was worked out from rows that have changed since must be worked out anew.
fn unchanged(snapshot: &Snapshot, id: MissionId, seen: i64) -> Result<(), ActError> {
    let found = snapshot.missions.missions.get(&id.uuid()).map(|row| row.version);
    if found == Some(seen) { Ok(()) } else { Err(ActError::Contended) }
}

/// A hop of a mission: with its plan where there is one, else for an agent to plan.
pub fn hop<'a>(
    rows: &Missions,
    mission: &mission::Model,
    form: Option<HopForm>,
    actor: Actor,
) -> Result<(Act<'a>, hop::Model), ActError> {
    let at = clock::now();
    let (session, of) = (SessionId::from(mission.session_id), MissionId::from(mission.id));
    let row = hop::Model {
        id: Uuid::now_v7(),
        session_id: mission.session_id,
        mission_id: mission.id,
        sequence: mission.hops + 1,
        author: actor.id.clone(),
        executor: "steps".into(),
        traceparent: mission.traceparent.clone(),
        created_at: at,
        status: String::new(),
        epoch: 0,
        version: 0,
        revision: i64::from(form.is_some() && actor.by == By::User),
        name: format!("hop {}", mission.hops + 1),
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
        updated_at: at,
        ended_at: None,
    };
    let id = HopId::from(row.id);
    let manual = form.is_some() && actor.by == By::User;
    let event = if manual { "create_hop_manually" } else { "start_hop_plan" };
    let mut act = Act::new(session, id, &hop_machine::TABLE, event, actor).within(of).bringing(Row::Hop(row.clone()));
    if let Some(form) = form {
        act = planned(act, rows, &row, form)?;
        // An agent that plans at once begins and proposes in one.
        act = if manual { act } else { act.then(id, &hop_machine::TABLE, "propose_hop_plan") };
    }
    let seen = mission.version;
    Ok((act.provided(move |snapshot| unchanged(snapshot, of, seen)), row))
}

/// The plan of a hop, proposed by an agent or changed by anybody.
pub fn hop_plan<'a>(
    rows: &Missions,
    hop: &hop::Model,
    event: &'static str,
    form: HopForm,
    actor: Actor,
) -> Result<Act<'a>, ActError> {
    let of = MissionId::from(hop.mission_id);
    let seen = rows.missions.get(&hop.mission_id).map(|mission| mission.version).unwrap_or_default();
    let act = Act::new(SessionId::from(hop.session_id), HopId::from(hop.id), &hop_machine::TABLE, event, actor);
    let told = json!({"changes": form});
    let act = planned(act, rows, hop, form)?;
    Ok(act.telling("hop.plan_revised", told).provided(move |snapshot| unchanged(snapshot, of, seen)))
}

/// Gives a hop its plan, with the asset that it makes.
fn planned<'a>(act: Act<'a>, rows: &Missions, hop: &hop::Model, form: HopForm) -> Result<Act<'a>, ActError> {
    let at = clock::now();
    let id = HopId::from(hop.id);
    let there = |asset: &AssetId| rows.assets.get(&asset.uuid()).is_some_and(|row| row.mission_id == hop.mission_id);
    let stray = form.inputs.iter().flatten().find(|asset| !there(asset));
    if let Some(stray) = stray {
        return Err(ActError::Unfit(format!("inputs: {stray} is no asset of this mission; it has: {}", names(rows))));
    }
    let own: Vec<&asset::Model> = rows.assets.values().filter(|asset| asset.hop_id == Some(hop.id)).collect();
    let (mut act, mut outputs, mut edited) = (act, None, None);
    match &form.output {
        None => {}
        Some(OutputForm { asset_id: Some(asset), .. }) if !there(asset) => {
            let why = format!("output: {asset} is no asset of this mission; it has: {}", names(rows));
            return Err(ActError::Unfit(why));
        }
        Some(OutputForm { asset_id: Some(asset), .. }) => {
            // What the hop proposes itself is accepted with its plan.
            let named = rows.assets.get(&asset.uuid()).filter(|row| row.hop_id != Some(hop.id));
            if let Some((row, why)) = named.and_then(|row| Some((row, closed(&row.status)?))) {
                return Err(ActError::Unfit(format!("output: nothing can be written into {}: {why}", row.name)));
            }
            outputs = Some(*asset);
        }
        Some(OutputForm { asset: Some(new), .. }) => {
            let proposed = |asset: &&&asset::Model| asset.name == new.name && asset.status == "AWAITING_APPROVAL";
            match own.iter().find(proposed) {
                Some(same) => {
                    let asset = AssetId::from(same.id);
                    act = act.meaning(Reach::EditedAssetsOfHop, id, asset);
                    (outputs, edited) = (Some(asset), Some((same.id, new.clone())));
                }
                None if rows.assets.len() >= ASSETS_MAX => {
                    return Err(ActError::Unfit(format!("a mission has at most {ASSETS_MAX} assets")));
                }
                None => {
                    let author = act.actor.id.clone();
                    let place = Place {
                        session: hop.session_id,
                        mission: hop.mission_id,
                        hop: Some(hop.id),
                        role: "intermediate",
                        author: &author,
                    };
                    let row = new.row(&place, at);
                    outputs = Some(AssetId::from(row.id));
                    act = bear_asset(act, Reach::NewAssetsOfHop, id, row);
                }
            }
        }
        Some(OutputForm { asset_id: None, asset: None }) => {}
    }
    if let Some(kept) = outputs {
        for gone in own.iter().filter(|asset| asset.id != kept.uuid()) {
            act = act.meaning(Reach::DroppedAssetsOfHop, id, AssetId::from(gone.id));
        }
    }
    let made = outputs.map(|id| vec![id.uuid()]).unwrap_or_else(|| asset_ids(&hop.outputs));
    let open = |row: &&asset::Model| row.role == "output" && row.mission_id == hop.mission_id && row.status != "READY";
    let lacking = rows.assets.values().filter(open).filter(|row| !made.contains(&row.id));
    let lacking: Vec<&str> = lacking.map(|row| row.name.as_str()).collect();
    if form.is_final.unwrap_or(hop.is_final) && !lacking.is_empty() {
        let lacking = lacking.join(", ");
        return Err(ActError::Unfit(format!(
            "is_final: after this hop the mission would still lack {lacking}: say is_final false and make it in a \
             later hop, or have a person provide it first"
        )));
    }
    Ok(act.editing(move |snapshot| {
        if let Some((asset, form)) = &edited
            && let Some(row) = snapshot.missions.assets.get_mut(asset)
        {
            form.apply(row);
        }
        if let Some(row) = snapshot.missions.hops.get_mut(&id.uuid()) {
            form.apply(row);
            if let Some(output) = outputs {
                row.outputs = json!([output]);
            }
        }
    }))
}

fn names(rows: &Missions) -> String {
    let named: Vec<String> =
        rows.assets.values().map(|asset| format!("{} ({})", asset.name, AssetId::from(asset.id))).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

/// The steps of a hop, proposed by an agent. They take the place of those of an earlier proposal. `next` is the number
/// of the first.
pub fn hop_impl<'a>(
    rows: &Missions,
    hop: &hop::Model,
    steps: &[StepForm],
    next: i64,
    actor: Actor,
) -> (Act<'a>, Vec<tool_step::Model>) {
    let (at, id, of) = (clock::now(), HopId::from(hop.id), MissionId::from(hop.mission_id));
    let seen = rows.missions.get(&hop.mission_id).map(|mission| mission.version).unwrap_or_default();
    let (session, table) = (SessionId::from(hop.session_id), &hop_machine::TABLE);
    let mut act = match hop.status == hop_machine::State::PlanReady.token() {
        true => Act::new(session, id, table, "start_hop_impl", actor).then(id, table, "propose_hop_impl"),
        false => Act::new(session, id, table, "propose_hop_impl", actor),
    };
    for step in superseded(rows, hop.id) {
        act = act.reason("superseded").meaning(Reach::SupersededStepsOfHop, id, step);
    }
    let mut rows = Vec::new();
    for (form, sequence) in steps.iter().zip(next..) {
        let row = form.row(hop, sequence, at);
        act = act.bringing(Row::Step(row.clone())).meaning(Reach::NewStepsOfHop, id, StepId::from(row.id));
        rows.push(row);
    }
    (act.provided(move |snapshot| unchanged(snapshot, of, seen)), rows)
}

/// Scratch values that only the steps of a hop see.
pub fn scratch(hop: &hop::Model, forms: &[AssetForm], author: &Actor) -> Vec<asset::Model> {
    let at = clock::now();
    let author = author.id.clone();
    let place = Place {
        session: hop.session_id,
        mission: hop.mission_id,
        hop: Some(hop.id),
        role: "intermediate",
        author: &author,
    };
    let born = asset_machine::State::ReadyForProcessing.token();
    let row = |form: &AssetForm| asset::Model { scope: "hop".into(), status: born.into(), ..form.row(&place, at) };
    forms.iter().map(row).collect()
}

/// Lets them be born with the proposal that names them.
pub fn bearing_scratch<'a>(act: Act<'a>, rows: &[asset::Model]) -> Act<'a> {
    rows.iter().cloned().fold(act, |act, row| {
        let id = AssetId::from(row.id);
        act.bringing(Row::Asset(row)).then(id, &asset_machine::TABLE, "create_intermediate")
    })
}

/// Steps of an earlier revision that a new one takes the place of: what is finished stays.
fn superseded(rows: &Missions, hop: Uuid) -> Vec<StepId> {
    let open = |step: &&tool_step::Model| !matches!(step.status.as_str(), "COMPLETED" | "CANCELLED" | "deleted");
    rows.steps_of(hop).filter(open).map(|step| StepId::from(step.id)).collect()
}

/// The steps that would have to fit together after an edit.
pub fn edited(rows: &Missions, hop: Uuid, steps: &[StepForm]) -> Vec<tool_step::Model> {
    let open = |step: &&tool_step::Model| !matches!(step.status.as_str(), "COMPLETED" | "CANCELLED");
    let mut live: Vec<tool_step::Model> = rows.steps_of(hop).filter(open).cloned().collect();
    for step in &mut live {
        let form = steps.iter().find(|form| form.id.is_some_and(|id| id.uuid() == step.id));
        form.into_iter().for_each(|form| form.apply(step));
    }
    live
}

/// Another revision of steps that wait for approval.
pub fn edit_impl<'a>(
    rows: &Missions,
    hop: &hop::Model,
    steps: Vec<StepForm>,
    actor: Actor,
) -> Result<Act<'a>, ActError> {
    let (id, of) = (HopId::from(hop.id), MissionId::from(hop.mission_id));
    let seen = rows.missions.get(&hop.mission_id).map(|mission| mission.version).unwrap_or_default();
    let mut act = Act::new(SessionId::from(hop.session_id), id, &hop_machine::TABLE, "edit_hop_impl", actor);
    for (i, form) in steps.iter().enumerate() {
        let known = form.id.and_then(|step| rows.step(step.uuid())).filter(|step| step.hop_id == hop.id);
        let Some(step) = known.filter(|step| !matches!(step.status.as_str(), "CANCELLED" | "COMPLETED")) else {
            return Err(ActError::Unfit(format!("steps/{i}/id: name a live step of this hop")));
        };
        act = act.meaning(Reach::EditedStepsOfHop, id, Entity::new(Kind::ToolStep, step.id));
    }
    let told = json!({"changes": {"steps": steps}});
    Ok(act
        .reason("revised")
        .telling("hop.impl_revised", told)
        .provided(move |snapshot| unchanged(snapshot, of, seen))
        .editing(move |snapshot| {
            for form in &steps {
                if let Some(row) = form.id.and_then(|id| snapshot.missions.step_mut(id.uuid())) {
                    form.apply(row);
                }
            }
        }))
}

/// A mission started over as a new instance: what it reads is there again with its value, what it promises is named
/// again, what was made is not. `given` are the values of its inputs as they were looked at.
pub fn reset_mission<'a>(
    rows: &Missions,
    old: &mission::Model,
    given: &[asset_version::Model],
    agent: Option<AgentId>,
    actor: Actor,
) -> Result<(Act<'a>, mission::Model), ActError> {
    let at = clock::now();
    let (id, session) = (MissionId::from(old.id), SessionId::from(old.session_id));
    let author = actor.id.clone();
    let row = mission::Model {
        id: Uuid::now_v7(),
        author: author.clone(),
        agent_id: agent.map(AgentId::uuid).or(old.agent_id),
        reset_of: Some(old.id),
        created_at: at,
        status: "AWAITING_APPROVAL".into(),
        version: 0,
        revision: 1,
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
        updated_at: at,
        ended_at: None,
        ..old.clone()
    };
    let new = MissionId::from(row.id);
    let mut act = Act::new(session, id, &mission_machine::TABLE, "reset_mission", actor)
        .bringing(Row::Mission(row.clone()))
        .meaning(Reach::NewMissionOfMission, id, new);
    for asset in rows.assets.values().filter(|asset| asset.mission_id == old.id && asset.role != "intermediate") {
        let fresh = asset::Model {
            id: Uuid::now_v7(),
            mission_id: row.id,
            hop_id: None,
            author: author.clone(),
            created_at: at,
            status: "AWAITING_APPROVAL".into(),
            version: 0,
            revision: 1,
            content_version: 0,
            promoted_version: None,
            step_id: None,
            summary: None,
            error: None,
            expires_at: None,
            updated_at: at,
            ended_at: None,
            ..asset.clone()
        };
        if !has_input(asset) {
            act = bear_asset(act, Reach::NewAssetsOfMission, new, fresh);
            continue;
        }
        let seen =
            |version: &&asset_version::Model| version.asset_id == asset.id && version.number == asset.content_version;
        let value = given.iter().find(seen).ok_or(ActError::Contended)?;
        let id = AssetId::from(fresh.id);
        let act_with = act.bringing(Row::Asset(fresh)).writing(Fresh::same_as(id, value));
        act = act_with.then(id, &asset_machine::TABLE, "register_asset");
    }
    let seen = old.version;
    let act = act.provided(move |snapshot| unchanged(snapshot, id, seen)).editing(move |snapshot| {
        if let Some(row) = snapshot.missions.missions.get_mut(&id.uuid()) {
            row.reset_to = Some(new.uuid());
        }
    });
    Ok((act, row))
}

/// Whether an asset is an input of its mission that has a value.
pub fn has_input(asset: &asset::Model) -> bool {
    asset.role == "input" && asset.status == asset_machine::State::Ready.token()
}
