//! What a row's `when` demands of other rows before a command may make it. Consequences are not asked: their cause
//! was.

use crate::snapshot::{Snapshot, asset_ids, is_by_plan, stopped_hop};
use instar_core::cascade::Reach;
use instar_core::decide::{HopPhase, fix_hop};
use instar_core::id::{Entity, Kind};
use instar_core::machine::{By, Move, Refusal};
use instar_store::entity::{asset, hop, mission, tool_step};
use uuid::Uuid;

/// `Err` says what stands against it and what to do.
pub(crate) fn passes(snapshot: &Snapshot, entity: Entity, mv: &Move, by: By) -> Result<(), Box<Refusal>> {
    if !matches!(entity.kind, Kind::Mission | Kind::Hop | Kind::ToolStep | Kind::Asset) {
        return Ok(());
    }
    match held_up(snapshot, entity, mv, by).or_else(|| advice(snapshot, entity, mv)) {
        None => Ok(()),
        Some(advice) => {
            let (table, from) = (mv.table(), mv.from());
            let allowed = table.allowed(from.and_then(|state| table.state(state)), by);
            Err(Box::new(Refusal {
                machine: table.name,
                from: from.unwrap_or("none").to_owned(),
                event: mv.event().to_owned(),
                allowed: allowed.into_iter().filter(|event| *event != mv.event()).collect(),
                advice,
            }))
        }
    }
}

/// Whoever is no person does nothing to the hops of a mission that a person has stopped.
fn held_up(snapshot: &Snapshot, entity: Entity, mv: &Move, by: By) -> Option<String> {
    let on_hop = entity.kind == Kind::Hop && mv.row() != "H35" && by != By::User;
    let mission = snapshot.missions.mission_of(entity).filter(|_| on_hop)?;
    let stopped = stopped_hop(mission).filter(|_| mission.status == "IN_PROGRESS")?;
    Some(format!("a person has stopped hop {stopped}: its mission goes on when a person resumes it"))
}

fn advice(snapshot: &Snapshot, entity: Entity, mv: &Move) -> Option<String> {
    let session = snapshot.session.status.as_str();
    // What is left of a closing session is ended before it is closed.
    let ends = mv.row() == "M19" && session == "closing";
    if !ends && matches!(session, "closing" | "closed" | "archived") {
        return Some(format!("its session is {session}"));
    }
    let inactive = || (session != "active").then(|| format!("its session is {session}: it must be active"));
    let rows = &snapshot.missions;
    let mission = rows.mission_of(entity);
    let hop = match entity.kind {
        Kind::Hop => rows.hops.get(&entity.id),
        Kind::ToolStep => rows.step(entity.id).and_then(|step| rows.hops.get(&step.hop_id)),
        _ => None,
    };
    match mv.row() {
        "M1" => inactive(),
        "M15" => {
            let born = |(reach, of, _): &(Reach, Entity, Entity)| *reach == Reach::NewMissionOfMission && *of == entity;
            let alone = !snapshot.relations.iter().any(born);
            inactive().or(alone.then(|| "no new instance comes with it: POST /v1/missions/{id}/reset makes one".into()))
        }
        "M8" => {
            let open = mission.and_then(|mission| unready_output(snapshot, mission));
            let runs = mission.and_then(|mission| rows.current_hop(mission)).is_some_and(|h| h.status == "EXECUTING");
            open.map(|name| format!("its output {name} is not READY"))
                .or(runs.then(|| "its hop is EXECUTING: stop it first".to_owned()))
        }
        "M14" => {
            let hop = mission.and_then(|mission| rows.current_hop(mission));
            match hop.filter(|hop| hop.status == "FAILED") {
                None => Some("it has no failed hop to try again: reset it instead".into()),
                Some(hop) => spent(snapshot, hop),
            }
        }
        "M20" => {
            let mission = mission.filter(|mission| stopped_hop(mission).is_none())?;
            Some(format!("no hop of it was stopped by a person since: it waits for {}", mission.awaits))
        }
        "H1" | "H2" | "H34" => no_place(snapshot, mission, hop, mv.row()),
        "H12" if hop.is_some_and(is_by_plan) => None,
        "H12" => has_live_steps(snapshot, entity).err(),
        "H16" | "H19" if hop.is_some_and(is_by_plan) => {
            Some("a plan carries it out, there are no steps to change: cancel it, reset it and edit its plan".into())
        }
        "H15" => unready_step(snapshot, hop?, "configure it first"),
        "H20" => {
            let hop = hop?;
            let ready = |asset: &&Uuid| rows.assets.get(asset).is_some_and(|asset| asset.status == "READY");
            let inputs = asset_ids(&hop.inputs);
            let lacking = inputs.iter().find(|asset| !ready(asset)).filter(|_| is_by_plan(hop));
            let lacking = lacking.map(|asset| rows.assets.get(asset).map_or("an input", |asset| asset.name.as_str()));
            let lacking = lacking.map(|name| format!("its input {name} is not READY: provide or make it first"));
            let open = || rows.steps_of(hop.id).filter(|step| is_live(step) && step.status != "COMPLETED");
            let closed = || match is_by_plan(hop) {
                true => rows.closed_output(&asset_ids(&hop.outputs)),
                false => open().find_map(|step| rows.closed_output_of(step.id)),
            };
            inactive()
                .or(lacking)
                .or_else(|| unready_step(snapshot, hop, "configure it first"))
                .or_else(|| {
                    let missing = open().next().filter(|step| !rows.has_inputs(step.id));
                    missing.map(|step| format!("an input of step {} is not READY: provide or make it first", step.name))
                })
                .or_else(|| closed().map(|(name, why)| format!("it cannot make {name}: {why}")))
        }
        "H27" => {
            let running = mission.is_some_and(|mission| mission.status == "IN_PROGRESS");
            let open = unready_hop_output(snapshot, hop?);
            (!running)
                .then(|| "its mission is not in progress: retry the mission first".to_owned())
                .or(open
                    .map(|name| format!("its output {name} is not READY: provide it, or give its value in outputs")))
        }
        "H28" => match phase(hop?) {
            Some(phase) => match fix_hop(phase) {
                Ok(event) if event.token() == mv.event() => None,
                Ok(event) => Some(format!("it failed in phase {}: use {}", phase.token(), event.token())),
                Err(no) => Some(no.to_string()),
            },
            None => None,
        },
        "H29" => {
            let hop = hop?;
            match phase(hop) {
                Some(HopPhase::Execute) | None => spent(snapshot, hop),
                Some(HopPhase::Plan | HopPhase::Resolve) => Some("it was never executed: use replan_hop".into()),
                Some(HopPhase::Impl) => Some("it was never executed: use fix_hop".into()),
            }
        }
        "H30" => match phase(hop?) {
            Some(HopPhase::Plan | HopPhase::Resolve) => None,
            _ => Some("its plan was accepted: use fix_hop, or retry_hop if it was executed".into()),
        },
        "ST5" => {
            let (hop, step) = (hop?, rows.step(entity.id)?);
            let first = rows.steps_of(hop.id).find(|step| is_live(step) && step.status != "COMPLETED");
            (hop.status != "EXECUTING")
                .then(|| "its hop is not EXECUTING".to_owned())
                .or((first.map(|first| first.id) != Some(step.id)).then(|| "an earlier step is not COMPLETED".into()))
                .or_else(inactive)
                .or((!rows.has_inputs(step.id)).then(|| "an input of it is not READY".into()))
                .or_else(|| rows.closed_output_of(step.id).map(|(name, why)| format!("it cannot make {name}: {why}")))
        }
        "ST9" | "ST14" | "ST17" if hop.is_some_and(|hop| hop.status == "EXECUTING") && mv.row() != "ST9" => {
            Some("its hop is EXECUTING: stop it first".into())
        }
        "ST12" | "ST16" if hop.is_none_or(|hop| hop.status != "HOP_IMPL_STARTED") => {
            Some("its hop must be HOP_IMPL_STARTED".into())
        }
        "ST16" => {
            let step = rows.step(entity.id)?;
            let behind = rows.steps_of(step.hop_id).any(|s| s.sequence > step.sequence && s.status == "COMPLETED");
            behind.then(|| "a later step is COMPLETED: nothing runs before what was finished".into())
        }
        "ST18" => {
            let unmade = rows.unmade_output(&rows.step(entity.id)?.result_mapping);
            unmade
                .map(|(name, status)| format!("its output {name} is {status} and takes no value: stop its hop instead"))
        }
        "ST20" => {
            let (hop, step) = (hop?, rows.step(entity.id)?);
            let makes = super::snapshot::mapped_assets(&step.result_mapping);
            let given = |id: &Uuid| snapshot.said.fresh.iter().any(|fresh| fresh.asset.uuid() == *id);
            let executed = hop.status == "FAILED" && phase(hop) == Some(HopPhase::Execute);
            (!executed)
                .then(|| "its hop has not failed in its execution".to_owned())
                .or_else(|| {
                    let closed = rows.closed_output(&makes);
                    closed.map(|(name, why)| format!("nothing can be written into its output {name}: {why}"))
                })
                .or_else(|| {
                    let missing = !makes.iter().all(given);
                    missing
                        .then(|| "its outputs are missing: resolve its call as a success, with its output".to_owned())
                })
        }
        "AS11" => {
            let maps = |step: &&tool_step::Model| super::snapshot::mapped_assets(&step.result_mapping);
            let makes = |step: &&tool_step::Model| step.status == "EXECUTING" && maps(step).contains(&entity.id);
            let step = rows.steps.iter().find(makes);
            let hop = mission.and_then(|mission| rows.current_hop(mission)).filter(|hop| hop.status == "EXECUTING");
            let planned = hop.filter(|hop| is_by_plan(hop) && asset_ids(&hop.outputs).contains(&entity.id));
            step.map(|step| format!("step {} makes it: cancel that step or stop its hop", step.name))
                .or(planned.map(|hop| format!("the plan of hop {} makes it: stop that hop", hop.sequence)))
        }
        "AS16" => {
            let named = rows.steps.iter().find(|step| {
                let mapped = super::snapshot::mapped_assets;
                is_live(step)
                    && step.status != "COMPLETED"
                    && [mapped(&step.parameter_mapping), mapped(&step.result_mapping)].concat().contains(&entity.id)
            });
            let named = named.map(|step| format!("step {} refers to it: change or cancel that first", step.name));
            named.or_else(|| promised(snapshot, mission, entity.id))
        }
        "AS3" => promised(snapshot, mission, entity.id),
        _ => None,
    }
}

/// What is left of a promise may not go by itself: a mission without outputs, or a hop without its own, would count as
/// done with nothing made.
fn promised(snapshot: &Snapshot, mission: Option<&mission::Model>, id: Uuid) -> Option<String> {
    let mission = mission.filter(|mission| !matches!(mission.status.as_str(), "COMPLETED" | "CANCELLED"))?;
    let hop = snapshot.missions.current_hop(mission).filter(|hop| asset_ids(&hop.outputs).contains(&id));
    let hop = hop.filter(|hop| !matches!(hop.status.as_str(), "COMPLETED" | "CANCELLED" | "deleted"));
    if let Some(hop) = hop {
        let number = hop.sequence;
        return Some(format!("hop {number} makes it: reject or edit the plan of that hop, or cancel the hop, first"));
    }
    let outputs = snapshot.missions.assets.values();
    let outputs = outputs.filter(|a| a.mission_id == mission.id && a.role == "output" && a.status != "deleted");
    let last = outputs.map(|asset| asset.id).eq([id]);
    let instead = match mission.status.as_str() {
        "AWAITING_APPROVAL" => "revise the mission, or reject it as a whole",
        _ => "refresh or fix it and have it made, or cancel the mission",
    };
    last.then(|| format!("it is the only output that the mission promises: {instead}"))
}

fn is_live(step: &tool_step::Model) -> bool {
    !matches!(step.status.as_str(), "CANCELLED" | "deleted")
}

fn phase(hop: &hop::Model) -> Option<HopPhase> {
    hop.phase.as_deref().and_then(HopPhase::parse)
}

/// Whether an execution has no attempt left.
fn spent(snapshot: &Snapshot, hop: &hop::Model) -> Option<String> {
    let mission = snapshot.missions.missions.get(&hop.mission_id)?;
    let tries = crate::snapshot::attempts(mission, hop);
    let executed = phase(hop) == Some(HopPhase::Execute);
    let fixable = "fix it, complete it by hand or cancel it";
    (executed && !tries.left()).then(|| format!("its {} attempts are used up: {fixable}", tries.max))
}

/// A mission goes one hop at a time.
fn no_place(
    snapshot: &Snapshot,
    mission: Option<&mission::Model>,
    hop: Option<&hop::Model>,
    row: &str,
) -> Option<String> {
    let mission = mission?;
    if mission.status != "IN_PROGRESS" {
        return Some(format!("its mission is {}: it must be IN_PROGRESS", mission.status));
    }
    if row == "H34" && hop.is_some_and(|hop| hop.revision == 0) {
        return Some("it was cancelled before it had a plan: there is nothing to propose again".into());
    }
    let current = snapshot.missions.current_hop(mission)?;
    Some(format!(
        "hop {} ({}) is the mission's current one: finish or cancel it first",
        current.sequence, current.status
    ))
}

fn has_live_steps(snapshot: &Snapshot, hop: Entity) -> Result<(), String> {
    let rows = &snapshot.missions;
    let superseded = |step: &tool_step::Model| {
        let relation = (Reach::SupersededStepsOfHop, hop, Entity::new(Kind::ToolStep, step.id));
        snapshot.relations.contains(&relation)
    };
    if let Some(failed) = rows.steps_of(hop.id).find(|step| step.status == "FAILED" && !superseded(step)) {
        return Err(format!("step {} is FAILED: fix or cancel it first", failed.name));
    }
    if rows.steps_of(hop.id).any(|step| is_live(step) && !superseded(step)) {
        Ok(())
    } else {
        Err("it has no steps: propose at least one".into())
    }
}

fn unready_step(snapshot: &Snapshot, hop: &hop::Model, advice: &str) -> Option<String> {
    if is_by_plan(hop) {
        return None;
    }
    let live: Vec<_> = snapshot.missions.steps_of(hop.id).filter(|step| is_live(step)).collect();
    if live.is_empty() {
        return Some("it has no steps: propose at least one".into());
    }
    let unready = live.iter().find(|step| !matches!(step.status.as_str(), "READY_TO_EXECUTE" | "COMPLETED"));
    unready.map(|step| format!("step {} is {}: {advice}", step.name, step.status))
}

fn unready_output(snapshot: &Snapshot, mission: &mission::Model) -> Option<String> {
    let outputs = snapshot.missions.assets.values().filter(|a| a.mission_id == mission.id && a.role == "output");
    outputs.filter(|asset| asset.status != "READY").map(|asset| asset.name.clone()).next()
}

fn unready_hop_output(snapshot: &Snapshot, hop: &hop::Model) -> Option<String> {
    let supplied = |asset: &&asset::Model| {
        let given = snapshot.said.fresh.iter().any(|fresh| fresh.asset.uuid() == asset.id);
        given && asset.status != "AWAITING_APPROVAL"
    };
    let outputs = asset_ids(&hop.outputs).into_iter().filter_map(|id| snapshot.missions.assets.get(&id));
    outputs.filter(|asset| asset.status != "READY" && !supplied(asset)).map(|asset| asset.name.clone()).next()
}
