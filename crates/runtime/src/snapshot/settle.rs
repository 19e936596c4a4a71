//! What a move does to its row: the new state, and the columns that change along. What a command says itself (a
//! feedback, a new plan) it writes into the rows after this.

use super::mission::is_live;
use super::{Missions, Snapshot};
use chrono::{DateTime, Duration, Utc};
use instar_core::cascade::{Fact, Planned, Reach};
use instar_core::decide::{self, Effect, FailureClass, GatePolicy, HopPhase, STOPPED_BY_PERSON};
use instar_core::id::{AssetId, Entity, HopId, Kind, PlanId};
use instar_core::machine::Move;
use instar_store::entity::{asset, hop, mission, tool_step};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// Why a person should look: nobody has decided in time.
pub(crate) const GATE_TIMEOUT: &str = "gate_timeout";
/// The same: a step of a hop that runs waits for an input that nobody makes.
pub(crate) const INPUT_MISSING: &str = "input_missing";
/// The same: the plan that carries the hop out cannot go on.
pub(crate) const PLAN_BLOCKED: &str = "plan_blocked";
/// The same: a hop that was to be the last has left an output of the mission open.
pub(crate) const OUTPUTS_MISSING: &str = "outputs_missing";
/// So many of them in a row, and the agent is asked for no further one: each is paid for.
pub(crate) const MISSED_MAX: i64 = 3;
/// In a step's error: its tool may have taken effect, so that only a person can say to make it again.
pub(crate) const DOUBTFUL: &str = "doubtful";
/// In a hop's error: why its agent has taken it up again after that.
pub(crate) const TAKEN_UP: &str = "taken_up";

impl Snapshot {
    /// Takes moves over into the rows of missions, hops, steps, assets and calls.
    pub(crate) fn settle(&mut self, planned: &[Planned], reason: &str, at: DateTime<Utc>) {
        for Planned { entity, mv, cause, .. } in planned {
            self.unborn.remove(entity);
            match entity.kind {
                Kind::Mission => {
                    let cause = cause.and_then(|cause| planned.get(cause)).map(|cause| cause.entity);
                    self.settle_mission(entity.id, mv, cause, reason, at);
                }
                Kind::Hop => self.settle_hop(entity.id, mv, reason, at),
                Kind::ToolStep => {
                    let call = self.newcomer(Reach::NewCallOfStep, *entity);
                    let calls = self.calls.iter().filter(|call| call.step_id == Some(entity.id));
                    let latest = calls.max_by_key(|call| call.id);
                    let effect = latest.and_then(|call| Effect::parse(&call.effect)).unwrap_or(Effect::AtMostOnce);
                    // A call that could not be made says why itself.
                    let told = latest.and_then(|call| call.result.as_ref()).and_then(|result| result["error"].as_str());
                    let reason = told.unwrap_or(reason).to_owned();
                    let doubtful = mv.row() == "ST8" && self.said.attempt.is_some_and(decide::Attempt::is_doubtful);
                    if let Some(row) = self.missions.step_mut(entity.id) {
                        settle_step(row, mv, call, effect, &reason, at);
                        if doubtful && let Some(error) = &mut row.error {
                            error[DOUBTFUL] = json!(true);
                        }
                        let mission = row.mission_id;
                        self.missions.found_input(mission, mv);
                    }
                }
                Kind::Asset => {
                    let fresh = self.said.fresh.iter().find(|fresh| fresh.asset.uuid() == entity.id).cloned();
                    if let Some(row) = self.missions.assets.get_mut(&entity.id) {
                        settle_asset(row, mv, reason, at);
                        if let Some(fresh) = fresh.filter(|_| writes_content(mv)) {
                            fresh.settle(row, at);
                        }
                    }
                }
                Kind::ToolCall => {
                    if let Some(row) = self.calls.iter_mut().find(|call| call.id == entity.id) {
                        row.status = mv.to().to_owned();
                        if mv.row() == "C14" {
                            (row.ended_at, row.result_status) = (Some(at), Some("error".into()));
                        }
                    }
                }
                Kind::Plan => self.settle_plan(entity.id, mv, reason, at),
                _ => {}
            }
        }
        let unborn = &self.unborn;
        self.relations.retain(|(_, _, entity)| unborn.contains(entity));
    }

    fn newcomer(&self, reach: Reach, of: Entity) -> Option<Uuid> {
        self.relations.iter().find(|(by, from, _)| *by == reach && *from == of).map(|(_, _, entity)| entity.id)
    }

    /// What a proposal consists of is changed by itself: the proposal is another one, and whoever has seen the one
    /// before decides nothing. A change of the proposal as a whole counts its revisions itself.
    pub(crate) fn revise_owner(&mut self, change: &Planned) {
        let (id, row) = (change.entity.id, change.mv.row());
        let (mission, hop) = match row {
            "AS1" | "AS3" | "AS16" | "AS17" | "AS20" => {
                let Some(asset) = self.missions.assets.get(&id) else { return };
                let current = self.missions.missions.get(&asset.mission_id).and_then(|m| m.current_hop_id);
                let concerns = |hop: &&hop::Model| {
                    let named = [super::asset_ids(&hop.inputs), super::asset_ids(&hop.outputs)].concat();
                    asset.hop_id == Some(hop.id) || named.contains(&id)
                };
                let hop = current.and_then(|hop| self.missions.hops.get(&hop)).filter(concerns);
                (Some(asset.mission_id), hop.map(|hop| hop.id))
            }
            "ST9" | "ST14" | "ST17" => (None, self.missions.step(id).map(|step| step.hop_id)),
            _ => return,
        };
        let mission = mission.and_then(|mission| self.missions.missions.get_mut(&mission));
        if let Some(mission) = mission.filter(|mission| mission.status == "AWAITING_APPROVAL") {
            mission.revision += 1;
        }
        let proposed = ["HOP_PLAN_PROPOSED", "HOP_IMPL_PROPOSED"];
        let hop = hop.and_then(|hop| self.missions.hops.get_mut(&hop));
        if let Some(hop) = hop.filter(|hop| proposed.contains(&hop.status.as_str())) {
            hop.revision += 1;
        }
    }

    /// Writes down for every mission who has to act next, and when a person is reminded of it.
    pub(crate) fn reckon(&mut self, at: DateTime<Utc>) {
        let ids: Vec<Uuid> = self.missions.missions.keys().copied().collect();
        ids.into_iter().for_each(|id| self.missions.reckon(id, at));
    }

    /// A plan that cannot go on calls people to the mission whose hop it carries out, until it does.
    fn settle_plan(&mut self, id: Uuid, mv: &Move, reason: &str, at: DateTime<Utc>) {
        let Some(hop) = self.plan(id).and_then(|plan| plan.hop_id) else { return };
        let mission = self.missions.hops.get(&hop).map(|hop| hop.mission_id);
        let Some(mission) = mission.and_then(|mission| self.missions.missions.get_mut(&mission)) else { return };
        let blocked = mission.attention.as_ref().is_some_and(|attention| attention["reason"] == PLAN_BLOCKED);
        match mv.row() {
            "P10" => {
                let (hop, plan) = (HopId::from(hop), PlanId::from(id));
                mission.attention =
                    Some(json!({"reason": PLAN_BLOCKED, "hop_id": hop, "plan_id": plan, "detail": reason, "at": at}));
            }
            "P16" if blocked => mission.attention = None,
            _ => {}
        }
    }

    fn settle_mission(&mut self, id: Uuid, mv: &Move, cause: Option<Entity>, reason: &str, at: DateTime<Utc>) {
        let by_person = self.facts.contains(&Fact::ByPerson);
        let stopped = cause.and_then(|cause| self.missions.hops.get(&cause.id)).filter(|_| by_person);
        let stopped = stopped.map(|hop| stop(hop, at));
        let hop = self.missions.missions.get(&id).and_then(|mission| mission.current_hop_id).map(HopId::from);
        let lacking = self.missions.lacking(id);
        let Some(row) = self.missions.missions.get_mut(&id) else { return };
        row.status = mv.to().to_owned();
        row.ended_at = (!is_live(mv.table(), mv.to())).then_some(at);
        if mv.row() != "M15" {
            forget_asked(row);
        }
        match mv.row() {
            "M2" | "M6" | "M8" => (row.feedback, row.attention) = (None, None),
            "M4" => {
                row.revision += 1;
                (row.feedback, row.attention) = (None, None);
            }
            "M7" => (row.current_hop_id, row.attention) = (None, None),
            "M17" => (row.current_hop_id, row.attention) = (None, stopped),
            "M20" => row.attention = None,
            "M18" => {
                row.current_hop_id = None;
                let times = missed(row) + 1;
                let detail = format!(
                    "a hop that was to be the last is done, and {lacking} is not READY: provide it (instar asset \
                     provide) and complete the mission (instar mission complete), plan another hop (instar hop create) \
                     or give the mission another agent (instar mission set --agent)"
                );
                row.attention = Some(json!({"reason": OUTPUTS_MISSING, "times": times, "detail": detail, "at": at}));
            }
            "M16" => {
                row.attention = Some(json!({"reason": "hop_failed", "hop_id": hop, "detail": reason, "at": at}));
            }
            "M9" | "M10" | "M11" => {
                row.failure = Some(json!({"reason": reason, "hop_id": hop, "at": at}));
                row.attention = None;
            }
            "M14" => (row.failure, row.attention) = (None, None),
            "M5" | "M12" | "M13" | "M19" => (row.feedback, row.attention) = (None, None),
            _ => {}
        }
    }

    fn settle_hop(&mut self, id: Uuid, mv: &Move, reason: &str, at: DateTime<Utc>) {
        let (class, by_person) = (self.said.class, self.facts.contains(&Fact::ByPerson));
        // The name of a command tells an agent nothing.
        let said = if self.said.wordless { "" } else { reason };
        let said = (mv.row() == "H28" || mv.row() == "H30").then_some(said);
        let versions = (mv.row() == "H20").then(|| self.missions.pinned(id));
        // Why a step failed is why its hop did.
        let failed = self.missions.steps_of(id).find(|step| step.status == "FAILED" && mv.row() == "H22");
        let told = failed.and_then(|step| step.error.as_ref()).and_then(|error| error["message"].as_str());
        let reason = &told.or(said).unwrap_or(reason).to_owned();
        let Some(row) = self.missions.hops.get_mut(&id) else { return };
        settle_hop(row, mv, class, (reason, by_person), at);
        if let Some(versions) = versions {
            row.input_versions = Some(versions);
        }
        let sequence = row.sequence;
        let Some(mission) = self.missions.missions.get_mut(&row.mission_id) else { return };
        if mv.row() != "H37" && mv.row() != "H35" {
            forget_asked(mission);
            // Whatever people were called for, somebody has done something about it; but what is missing is missing
            // until a hop has made it.
            mission.attention = outputs_missing(mission).cloned();
        }
        match mv.row() {
            "H1" | "H2" | "H34" => {
                mission.current_hop_id = Some(id);
                mission.hops = mission.hops.max(sequence);
            }
            // A failed mission does not hear of it, but has no current hop from here on either.
            "H6" | "H31" | "H32" | "H33" if mission.current_hop_id == Some(id) => mission.current_hop_id = None,
            _ => {}
        }
    }
}

impl Missions {
    /// The outputs of a mission that are not there, by name.
    fn lacking(&self, mission: Uuid) -> String {
        let open = |row: &&asset::Model| row.mission_id == mission && row.role == "output" && row.status != "READY";
        let names: Vec<&str> = self.assets.values().filter(open).map(|row| row.name.as_str()).collect();
        names.join(", ")
    }

    /// Writes down who has to act next for a mission, and when a person is reminded of it.
    pub(crate) fn reckon(&mut self, id: Uuid, at: DateTime<Utc>) {
        let Some(standing) = self.missions.get(&id).and_then(|row| self.standing(row)) else { return };
        let timed = standing.gate().is_some_and(|(_, policy)| policy == GatePolicy::Timed);
        let Some(row) = self.missions.get_mut(&id) else { return };
        row.awaits = standing.awaits().token().to_owned();
        let due = row.gate_timeout_ms.map(|ms| at + Duration::milliseconds(ms));
        let reminded = row.attention.as_ref().is_some_and(|attention| attention["reason"] == GATE_TIMEOUT);
        row.gate_due_at = row.gate_due_at.or(due).filter(|_| timed && !reminded);
    }

    /// A step that begins waits for no input any more.
    fn found_input(&mut self, mission: Uuid, mv: &Move) {
        if let Some(mission) = self.missions.get_mut(&mission).filter(|_| mv.row() == "ST5") {
            mission.attention = mission.attention.take().filter(|attention| attention["reason"] != INPUT_MISSING);
        }
    }

    /// The versions of its inputs that an execution reads.
    fn pinned(&self, hop: Uuid) -> Value {
        let inputs = self.hops.get(&hop).map(|hop| super::asset_ids(&hop.inputs)).unwrap_or_default();
        let versions = inputs.into_iter().filter_map(|id| {
            let asset = self.assets.get(&id)?;
            Some((AssetId::from(id).to_string(), json!(asset.content_version)))
        });
        Value::Object(versions.collect::<Map<String, Value>>())
    }
}

/// What people are told of a mission whose hop one of them has stopped.
fn stop(hop: &hop::Model, at: DateTime<Utc>) -> Value {
    let detail = format!(
        "a person has stopped hop {}: nobody goes on before the mission is resumed (instar mission resume), the hop is \
         proposed again (instar hop reset) or another one is planned (instar hop create)",
        hop.sequence
    );
    json!({"reason": STOPPED_BY_PERSON, "hop_id": HopId::from(hop.id), "detail": detail, "at": at})
}

/// The hop by whose stop a person has held a mission up, if nobody has let it go on since.
pub fn stopped_hop(mission: &mission::Model) -> Option<HopId> {
    let attention = mission.attention.as_ref().filter(|attention| attention["reason"] == STOPPED_BY_PERSON)?;
    attention["hop_id"].as_str()?.parse().ok()
}

/// What people were told of the outputs that no hop has made, whatever else they were called for since.
fn outputs_missing(mission: &mission::Model) -> Option<&Value> {
    let attention = mission.attention.as_ref()?;
    [Some(attention), attention.get("besides")].into_iter().flatten().find(|said| said["reason"] == OUTPUTS_MISSING)
}

/// How many last hops in a row have left an output open.
pub(crate) fn missed(mission: &mission::Model) -> i64 {
    outputs_missing(mission).and_then(|said| said["times"].as_i64()).unwrap_or_default()
}

/// Another agent is not held to what the one before has left open.
pub(crate) fn forgive(mission: &mut mission::Model) {
    let missing = mission.attention.as_mut().filter(|attention| attention["reason"] == OUTPUTS_MISSING);
    missing.into_iter().for_each(|attention| attention["times"] = json!(0));
}

/// What the agent has to do is another thing now.
fn forget_asked(mission: &mut mission::Model) {
    (mission.asked, mission.asked_turn_id, mission.question, mission.gate_due_at) = (0, None, None, None);
}

/// The phase in which a hop failed.
pub(crate) fn failed_phase(mv: &Move) -> Option<HopPhase> {
    Some(match (mv.row(), mv.from()) {
        ("H8", _) | ("H26", Some("HOP_PLAN_STARTED" | "HOP_PLAN_PROPOSED")) => HopPhase::Plan,
        ("H11", _) | ("H26", Some("HOP_PLAN_READY")) => HopPhase::Resolve,
        ("H22", _) | ("H26", Some("EXECUTING")) => HopPhase::Execute,
        ("H14" | "H36" | "H26", _) => HopPhase::Impl,
        _ => return None,
    })
}

fn settle_hop(
    row: &mut hop::Model,
    mv: &Move,
    class: Option<FailureClass>,
    (reason, by_person): (&str, bool),
    at: DateTime<Utc>,
) {
    row.status = mv.to().to_owned();
    row.ended_at = (!is_live(mv.table(), mv.to())).then_some(at);
    if let Some(phase) = failed_phase(mv) {
        row.phase = Some(phase.token().to_owned());
        let class = class.unwrap_or(FailureClass::Recoverable);
        row.failure_class = serde_json::to_value(class).ok().and_then(|class| class.as_str().map(str::to_owned));
        row.error = Some(json!({"message": reason}));
    }
    match mv.row() {
        "H3" | "H7" | "H12" | "H17" => {
            row.revision += 1;
            (row.feedback, row.error) = (None, None);
        }
        "H4" => {
            row.plan_accepted_once = true;
            row.repairs = 0;
        }
        "H13" | "H18" => row.repairs += 1,
        "H20" => row.attempts += 1,
        "H27" => (row.phase, row.failure_class, row.error) = (None, None, None),
        "H29" => {
            (row.phase, row.failure_class, row.error) = (None, None, None);
            row.repairs = 0;
        }
        // Whoever proposes anew is told what went wrong, and what is said to it: by a person, or by itself.
        "H28" | "H30" => {
            (row.phase, row.failure_class, row.repairs) = (None, None, 0);
            let said = Some(reason).filter(|reason| !reason.is_empty());
            row.feedback = said.filter(|_| by_person).map(str::to_owned);
            if let Some(error) = row.error.as_mut().and_then(Value::as_object_mut) {
                error.remove(TAKEN_UP);
                error.extend(said.filter(|_| !by_person).map(|said| (TAKEN_UP.to_owned(), json!(said))));
            }
        }
        "H34" => {
            (row.phase, row.failure_class, row.error) = (None, None, None);
            row.revision += 1;
            row.attempts = 0;
        }
        "H35" => row.archived = true,
        _ => {}
    }
}

/// Whether an asset has a new version by this move.
pub(crate) fn writes_content(mv: &Move) -> bool {
    matches!(mv.row(), "AS5" | "AS9" | "AS17")
}

fn settle_step(
    row: &mut tool_step::Model,
    mv: &Move,
    call: Option<Uuid>,
    effect: Effect,
    reason: &str,
    at: DateTime<Utc>,
) {
    row.status = mv.to().to_owned();
    row.ended_at = (!is_live(mv.table(), mv.to())).then_some(at);
    match mv.row() {
        "ST3" => row.validation_errors = None,
        "ST5" => {
            // One that begins without its call gets it, and is counted, when a runner looks at it.
            row.attempts = i64::from(call.is_some());
            (row.call_id, row.next_at, row.error, row.started_at) = (call, None, None, Some(at));
        }
        "ST7" => {
            row.next_at = Some(at + Duration::milliseconds(decide::back_off_ms(effect, row.attempts)));
            row.error = Some(json!({"message": reason}));
        }
        "ST4" | "ST8" => row.error = Some(json!({"message": reason})),
        "ST11" | "ST12" | "ST19" => (row.attempts, row.next_at, row.error) = (0, None, None),
        "ST20" => row.error = None,
        "ST14" => {
            (row.tool, row.attempts, row.error) = (None, 0, None);
            // Whoever proposes anew reads it.
            row.validation_errors = Some(json!([format!("a person wants it changed: {reason}")]));
        }
        "ST16" => (row.tool, row.attempts, row.error) = (None, 0, None),
        _ => {}
    }
    if mv.changes_state() && mv.to() != "EXECUTING" {
        row.next_at = None;
    }
}

fn settle_asset(row: &mut asset::Model, mv: &Move, reason: &str, at: DateTime<Utc>) {
    row.status = mv.to().to_owned();
    row.ended_at = (!is_live(mv.table(), mv.to())).then_some(at);
    match mv.row() {
        "AS6" | "AS7" | "AS10" => row.error = Some(json!({"message": reason})),
        "AS5" | "AS9" | "AS13" => row.error = None,
        // What is in the making has no time that could run out: its value has, from when it is there. What is brought
        // back has none either.
        "AS4" | "AS12" | "AS14" | "AS15" => (row.error, row.expires_at) = (None, None),
        "AS18" => row.promoted_version = Some(row.content_version),
        "AS20" => row.revision += 1,
        _ => {}
    }
}
