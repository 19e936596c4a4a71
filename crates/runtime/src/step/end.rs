//! What the end of a step's call means: a step done, tried again or failed, with everything that follows.

use super::Bench;
use crate::act::{Act, ActError};
use crate::asset::{Fresh, schema_of};
use crate::flow::{self, Outcome};
use crate::hub::Hub;
use instar_core::asset::Schema;
use instar_core::asset::lineage::Version;
use instar_core::decide::{Attempt, Effect, FailureClass, Tries};
use instar_core::id::{AssetId, CallId, HopId, SessionId, StepId};
use instar_core::machine::{tool_call as machine, tool_step as step_machine};
use instar_core::mapping;
use instar_core::rune::Actor;
use instar_core::rune::payload::ResultStatus;
use instar_store::Change;
use instar_store::entity::{tool_call, tool_step};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

/// More than this of an answer is not kept beside the assets that it went into.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// How the call of a step ended.
#[derive(Clone, Debug)]
pub struct End {
    pub outcome: Outcome,
    /// Trying again may help.
    pub retryable: bool,
    /// How far a failure reaches; recoverable unless told.
    pub class: Option<FailureClass>,
}

/// An end with what its answer came to.
#[derive(Clone, Debug)]
pub struct Ended {
    end: End,
    fresh: Vec<Fresh>,
    /// Why the answer cannot be kept.
    misfit: Option<String>,
    reason: String,
}

impl Ended {
    pub fn status(&self) -> ResultStatus {
        self.end.outcome.status
    }
}

impl Hub {
    /// Takes a step's answer apart and keeps what goes into assets. `Err` is worth another try.
    pub async fn step_ended(&self, call: &tool_call::Model, end: End) -> Result<Ended, crate::AssetError> {
        let mut ended = Ended { end, fresh: Vec::new(), misfit: None, reason: String::new() };
        if ended.status() == ResultStatus::Success {
            match self.take_apart(call, &ended.end.outcome).await? {
                Ok(fresh) => ended.fresh = fresh,
                Err(why) => ended.misfit = Some(why),
            }
        }
        let known = ended.misfit.clone().or(ended.end.outcome.error.clone());
        ended.reason = known.unwrap_or_else(|| flow::status_token(ended.status()));
        Ok(ended)
    }

    async fn take_apart(
        &self,
        call: &tool_call::Model,
        outcome: &Outcome,
    ) -> Result<Result<Vec<Fresh>, String>, crate::AssetError> {
        let Some(step) = call.step_id else { return Ok(Err("the call is none of a step's".into())) };
        let Some(step) = self.store().step(StepId::from(step)).await? else {
            return Ok(Err("its step is gone".into()));
        };
        self.take_apart_for(&step, call, outcome).await
    }

    async fn take_apart_for(
        &self,
        step: &tool_step::Model,
        call: &tool_call::Model,
        outcome: &Outcome,
    ) -> Result<Result<Vec<Fresh>, String>, crate::AssetError> {
        if outcome.truncated {
            let why = "the tool's answer is not whole: raise its max_output_bytes, or have it answer with less";
            return Ok(Err(why.into()));
        }
        let said = |faults: Vec<mapping::Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let results = match mapping::results(&step.result_mapping) {
            Ok(results) => results,
            Err(faults) => return Ok(Err(said(faults))),
        };
        let schemas = self.schemas(&mapping::written(&results)).await?;
        let written = match mapping::outputs(&results, &outcome.output, |id| schemas.get(&id)) {
            Ok(written) => written,
            Err(faults) => return Ok(Err(said(faults))),
        };
        let from = read_by(&call.arguments);
        let mut fresh = Vec::new();
        for one in written {
            let Some(schema) = schemas.get(&one.asset) else { continue };
            match self.keep(one.asset, schema, one.content).await {
                Ok(kept) => {
                    let (step, call) = (StepId::from(step.id), Some(CallId::from(call.id)));
                    fresh.push(kept.made_by(step, call, from.clone()));
                }
                Err(error) if error.passes() => return Err(error),
                Err(error) => return Ok(Err(format!("the result {:?} cannot be kept: {error}", one.result))),
            }
        }
        Ok(Ok(fresh))
    }

    /// What a person says that a call of unknown outcome came to, taken apart as its answer would have been. `None`: its
    /// step is not FAILED by it, and nothing follows but that it is known.
    pub async fn step_resolved(
        &self,
        call: &tool_call::Model,
        output: &Value,
    ) -> Result<Option<Result<Resolved, String>>, crate::AssetError> {
        let Some(step) = call.step_id else { return Ok(None) };
        let (Some(step), last) = (self.store().step(StepId::from(step)).await?, Some(call.id)) else {
            return Ok(None);
        };
        let hop = self.store().hop(HopId::from(step.hop_id)).await?;
        let executed = hop.is_some_and(|hop| hop.status == "FAILED" && hop.phase.as_deref() == Some("execute"));
        if !executed || step.status != "FAILED" || step.call_id != last {
            return Ok(None);
        }
        let (output, error, duration_ms) = (output.clone(), None, 0);
        let said = Outcome { status: ResultStatus::Success, output, error, duration_ms, truncated: false };
        let fresh = self.take_apart_for(&step, call, &said).await?;
        Ok(Some(fresh.map(|fresh| Resolved { step: StepId::from(step.id), fresh })))
    }

    async fn schemas(&self, assets: &[AssetId]) -> Result<BTreeMap<AssetId, Schema>, crate::AssetError> {
        let mut schemas = BTreeMap::new();
        for id in assets {
            if let Some(row) = self.store().asset(*id).await? {
                schemas.insert(*id, schema_of(&row));
            }
        }
        Ok(schemas)
    }

    /// Values that a person gives in place of a step's answer, by result or by asset: every one that is mapped.
    pub async fn step_supplied(
        &self,
        step: &tool_step::Model,
        given: &serde_json::Map<String, Value>,
    ) -> Result<Result<Vec<Fresh>, String>, crate::AssetError> {
        let said = |faults: Vec<mapping::Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let results = match mapping::results(&step.result_mapping) {
            Ok(results) => results,
            Err(faults) => return Ok(Err(said(faults))),
        };
        let mut output = serde_json::Map::new();
        for (name, target) in &results {
            let mapping::Target::Asset(id) = target else { continue };
            match given.get(name).or_else(|| given.get(&id.to_string())) {
                Some(value) => drop(output.insert(name.clone(), value.clone())),
                None => return Ok(Err(format!("there is no value for the result {name:?}, which {id} waits for"))),
            }
        }
        let schemas = self.schemas(&mapping::written(&results)).await?;
        let written = match mapping::outputs(&results, &Value::Object(output), |id| schemas.get(&id)) {
            Ok(written) => written,
            Err(faults) => return Ok(Err(said(faults))),
        };
        let mut fresh = Vec::new();
        for one in written {
            let Some(schema) = schemas.get(&one.asset) else { continue };
            let kept = self.keep(one.asset, schema, one.content).await?;
            fresh.push(kept.made_by(StepId::from(step.id), None, Vec::new()));
        }
        Ok(Ok(fresh))
    }
}

/// What a call of unknown outcome has made after all, for its step.
#[derive(Clone, Debug)]
pub struct Resolved {
    step: StepId,
    fresh: Vec<Fresh>,
}

/// A step that failed because nobody knew whether its call had succeeded is done: it had. No other call is made for it.
pub fn accept<'a>(call: &tool_call::Model, resolved: Resolved, actor: Actor) -> Act<'a> {
    let Resolved { step, fresh } = resolved;
    let done = json!({"call_id": CallId::from(call.id), "outputs": outputs(&fresh)});
    let act = Act::new(SessionId::from(call.session_id), step, &step_machine::TABLE, "accept_result", actor)
        .reason("its call had succeeded")
        .editing(move |snapshot| keep_result(snapshot, step.uuid(), &done));
    fresh.into_iter().fold(act, Act::writing)
}

/// The versions that a call reads.
fn read_by(arguments: &Value) -> Vec<Version> {
    arguments.as_object().into_iter().flat_map(|fields| fields.values()).filter_map(mapping::reference).collect()
}

/// The commit that ends a call of a step. It lands only while the call is the runner's own: `call` is as the runner
/// has it.
pub fn finish<'a>(call: &tool_call::Model, ended: &'a Ended, actor: Actor, bench: &Bench) -> Act<'a> {
    let (id, outcome) = (CallId::from(call.id), &ended.end.outcome);
    let effect = Effect::parse(&call.effect).unwrap_or(Effect::AtMostOnce);
    let (status, fits, retryable) = (outcome.status, ended.misfit.is_none(), ended.end.retryable);
    let (bench, epoch, fresh) = (bench.clone(), call.epoch, ended.fresh.clone());
    let told = told(ended, call);
    let kept = json!({"output": told["output"], "error": outcome.error});
    let mut act = Act::new(SessionId::from(call.session_id), id, &machine::TABLE, flow::event(status), actor)
        .reason(&ended.reason)
        .telling("tool.result", told)
        .preparing(move |snapshot| {
            let Some(row) = snapshot.call(id.uuid()) else { return Err(ActError::Absent(id.into())) };
            if row.ended_at.is_none() && row.epoch != epoch {
                return Err(ActError::Unfit("another runner has the call by now".into()));
            }
            let attempts = row.step_id.and_then(|step| snapshot.missions.step(step)).map(tries);
            let attempts = attempts.unwrap_or(Tries { made: 1, max: 1 });
            let unkept = unkept(snapshot, id.uuid()).filter(|_| fits && status == ResultStatus::Success);
            let fits = fits && unkept.is_none();
            if let Some(why) = unkept
                && let Some(row) = snapshot.calls.iter_mut().find(|call| call.id == id.uuid())
            {
                row.result = Some(json!({"error": why}));
            }
            snapshot.said.attempt = Some(Attempt { status, outputs_fit: fits, retryable, effect, attempts });
            if status == ResultStatus::Success && fits {
                bench.bring(snapshot, id.into(), &fresh);
            }
            Ok(())
        })
        .also(move |commit, _| {
            let change = Change::entity(&tool_call::TABLE, id);
            commit.change(change.set(tool_call::Column::Result, kept.clone()));
            Ok(())
        });
    act.said.class = ended.end.class;
    act.traceparent = call.traceparent.clone();
    if fits && status == ResultStatus::Success {
        let done = json!({"call_id": id, "outputs": outputs(&ended.fresh)});
        let step = call.step_id.unwrap_or_default();
        act = act.editing(move |snapshot| keep_result(snapshot, step, &done));
        ended.fresh.iter().fold(act, |act, fresh| act.writing(fresh.clone()))
    } else {
        act
    }
}

fn keep_result(snapshot: &mut crate::Snapshot, step: Uuid, done: &Value) {
    if let Some(step) = snapshot.missions.step_mut(step).filter(|step| step.status == "COMPLETED") {
        step.result = Some(done.clone());
    }
}

/// Why an answer has nowhere to go: an output that is not in the making takes no value, and a step that would count as
/// done without it would have lost it.
fn unkept(snapshot: &crate::Snapshot, call: Uuid) -> Option<String> {
    let step = snapshot.missions.step(snapshot.call(call)?.step_id?)?;
    snapshot.missions.unmade_output(&step.result_mapping).map(|(name, status)| {
        format!("its answer cannot be kept: {name} is {status} and takes no value; supply it by hand once it does")
    })
}

fn tries(step: &tool_step::Model) -> Tries {
    let count = |n: i64| u32::try_from(n).unwrap_or_default();
    Tries { made: count(step.attempts), max: count(step.attempts_max) }
}

/// What went where, in few words.
pub(super) fn outputs(fresh: &[Fresh]) -> Value {
    fresh.iter().map(|fresh| json!({"asset_id": fresh.asset, "sha256": fresh.hash, "bytes": fresh.bytes})).collect()
}

fn told(ended: &Ended, call: &tool_call::Model) -> Value {
    let outcome = &ended.end.outcome;
    let large = instar_core::context::json_bytes(&outcome.output) > OUTPUT_BYTES_MAX;
    // What is large is in the assets; a rune has room for less.
    let output = if large { json!({"kept": outputs(&ended.fresh)}) } else { outcome.output.clone() };
    json!({
        "status": outcome.status,
        "output": output,
        "error": outcome.error,
        "duration_ms": outcome.duration_ms,
        "attempt": call.attempts.max(1),
        "truncated": outcome.truncated || large,
    })
}
