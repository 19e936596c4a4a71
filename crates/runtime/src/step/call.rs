//! The call that a step begins with.

use crate::act::Act;
use crate::asset::Fresh;
use crate::snapshot::{Missions, Row, Snapshot, mapped_assets};
use chrono::{DateTime, Duration, Utc};
use instar_core::cascade::Reach;
use instar_core::decide::{self, Approval, Chosen, Effect, Mode};
use instar_core::id::{AssetId, Entity, Kind};
use instar_core::machine::tool_call::Event;
use instar_core::mapping;
use instar_store::clock;
use instar_store::entity::{agent, session, tool_call, tool_step};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// By name and arguments; `None` for a tool that a step cannot run.
type Choose = dyn Fn(&str, &Value) -> Option<Chosen> + Send + Sync;

/// The tools that a process knows, as far as calls of steps depend on them.
#[derive(Clone)]
pub struct Tools {
    choose: Arc<Choose>,
    /// How long a person has to approve a call; `None`: for ever.
    approval: Option<Duration>,
}

impl Tools {
    pub fn new(
        choose: impl Fn(&str, &Value) -> Option<Chosen> + Send + Sync + 'static,
        approval_timeout_ms: u64,
    ) -> Tools {
        let approval = i64::try_from(approval_timeout_ms).ok().filter(|ms| *ms > 0).map(Duration::milliseconds);
        Tools { choose: Arc::new(choose), approval }
    }
}

/// What calls of a mission's steps are made with.
#[derive(Clone)]
pub struct Bench {
    tools: Tools,
    mode: Mode,
    /// Whose policy holds, where no person has approved the steps.
    judge: Option<agent::Model>,
}

impl Bench {
    pub fn new(tools: &Tools, mode: Mode) -> Bench {
        Bench { tools: tools.clone(), mode, judge: None }
    }

    /// By the policy of this agent: its mode, and what it says of single tools.
    pub fn judged_by(mut self, agent: Option<agent::Model>) -> Bench {
        self.judge = agent;
        self
    }

    /// Lets the step that begins by a command on a hop, a step or a step's call have its call in the same commit.
    /// `fresh`: the versions that the command writes.
    pub fn begin<'a>(&self, act: Act<'a>, fresh: Vec<Fresh>) -> Act<'a> {
        let (bench, entity) = (self.clone(), act.entity);
        act.preparing(move |snapshot| {
            bench.bring(snapshot, entity, &fresh);
            Ok(())
        })
    }

    pub(super) fn bring(&self, snapshot: &mut Snapshot, cause: Entity, fresh: &[Fresh]) {
        let Some(step) = next(snapshot, cause).cloned() else { return };
        let has_call = |(reach, of, _): &(Reach, Entity, Entity)| *reach == Reach::NewCallOfStep && of.id == step.id;
        // A second one would have its effect a second time.
        if snapshot.relations.iter().any(has_call) {
            return;
        }
        let Some((call, judged)) = self.call_of(&snapshot.missions, &snapshot.session, &step, fresh) else { return };
        let entity = Entity::new(Kind::ToolCall, call.id);
        snapshot.said.gates.insert(call.id, judged);
        snapshot.relations.push((Reach::NewCallOfStep, Entity::new(Kind::ToolStep, step.id), entity));
        snapshot.bring(Row::Call(call));
    }

    /// The row of a step's call and what policy has to judge. One that cannot be made is not valid, and says why.
    pub(super) fn call_of(
        &self,
        missions: &Missions,
        session: &session::Model,
        step: &tool_step::Model,
        fresh: &[Fresh],
    ) -> Option<(tool_call::Model, decide::Call)> {
        let mission = missions.missions.get(&step.mission_id)?;
        let at = clock::now();
        let made = arguments(missions, step, fresh);
        let name = step.tool.clone().unwrap_or_default();
        let (arguments, chosen, why) = match made {
            Ok(arguments) => match (self.tools.choose)(&name, &arguments) {
                Some(chosen) => (arguments, Some(chosen), None),
                None => (arguments, None, Some(format!("there is no tool {name:?} that a step can run"))),
            },
            Err(why) => (json!({}), None, Some(why)),
        };
        let effect = chosen.as_ref().map_or(Effect::AtMostOnce, |chosen| chosen.effect);
        let outside = self.judge.as_ref().filter(|_| chosen.is_some()).and_then(|agent| agent.outside(&arguments));
        let judged = decide::Call {
            valid: chosen.is_some(),
            outside_sandbox: outside.is_some(),
            side_effects: effect != Effect::ReadOnly,
            spec: chosen.as_ref().map_or(Approval::Inherit, |chosen| chosen.approval),
            policy_override: self.judge.as_ref().map_or(Approval::Inherit, |agent| agent.approval_of(&name)),
            mode: self.mode,
        };
        let gated = decide::gate(judged);
        let why = why.or(outside.map(|why| format!("not run: {why}")));
        let asks = gated.event == Event::RequiresApproval;
        let row = tool_call::Model {
            id: Uuid::now_v7(),
            session_id: step.session_id,
            // A call of a step acts for the mission; where no agent has that, for nobody.
            agent_id: mission.agent_id.or(session.root_agent_id).unwrap_or_default(),
            turn_id: None,
            step_id: Some(step.id),
            status: String::new(),
            epoch: 0,
            version: 0,
            owner: None,
            iteration: step.attempts + 1,
            position: step.sequence,
            name,
            provider_call_id: None,
            arguments,
            digest: chosen.map(|chosen| chosen.digest).unwrap_or_default(),
            effect: effect.token().to_owned(),
            attempts: 0,
            approval: asks.then(|| json!({"requested_at": at, "reason": gated.reason})),
            result_status: None,
            result: why.map(|why| json!({"output": null, "error": why})),
            waits_for: None,
            expires_at: self.tools.approval.filter(|_| asks).map(|allowed| at + allowed),
            traceparent: step.traceparent.clone(),
            created_at: at,
            updated_at: at,
            ended_at: None::<DateTime<Utc>>,
        };
        Some((row, judged))
    }
}

/// The step that a command lets begin, if it lets any: the first one that is not done, besides the one that the
/// command is about.
fn next(snapshot: &Snapshot, cause: Entity) -> Option<&tool_step::Model> {
    let rows = &snapshot.missions;
    let (hop, ending) = match cause.kind {
        Kind::Hop => (cause.id, None),
        Kind::ToolStep => {
            let step = rows.step(cause.id)?;
            (step.hop_id, (step.status == "EXECUTING").then_some(step.id))
        }
        Kind::ToolCall => {
            let step = rows.step(snapshot.call(cause.id)?.step_id?)?;
            (step.hop_id, Some(step.id))
        }
        _ => return None,
    };
    let done = |step: &&tool_step::Model| matches!(step.status.as_str(), "COMPLETED" | "CANCELLED" | "deleted");
    rows.steps_of(hop).find(|step| !done(step) && Some(step.id) != ending)
}

/// References to the versions that a step reads: the pinned ones of the hop's inputs, the newest of what steps
/// before it have made.
fn arguments(missions: &Missions, step: &tool_step::Model, fresh: &[Fresh]) -> Result<Value, String> {
    let said = |faults: Vec<mapping::Fault>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let parameters = mapping::parameters(&step.parameter_mapping).map_err(said)?;
    let hop = missions.hops.get(&step.hop_id).ok_or("its hop is gone")?;
    // Before the hop runs its pins are those of an earlier execution.
    let pins = hop.input_versions.as_ref().filter(|_| hop.status == "EXECUTING");
    let pin = |id: AssetId| {
        let asset = missions.assets.get(&id.uuid())?;
        let earlier = missions.steps_of(step.hop_id).filter(|other| other.sequence < step.sequence);
        let made_here = earlier
            .filter(|other| other.status != "CANCELLED")
            .any(|other| mapped_assets(&other.result_mapping).contains(&id.uuid()));
        let pinned = pins.and_then(|pins| pins.get(id.to_string())).and_then(Value::as_i64);
        let newest = asset.content_version + i64::from(fresh.iter().any(|fresh| fresh.asset == id));
        let version = pinned.filter(|_| !made_here).unwrap_or(newest);
        (version > 0).then_some(version)
    };
    mapping::arguments(&parameters, pin).map_err(said)
}
