//! Somebody who wanders through missions by commands, wise and unwise ones, of everybody.

use super::verdict::Tally;
use anyhow::{Context, Result};
use instar_core::cascade::{Fact, Reach};
use instar_core::decide::{Attempt, Call, Effect, FailureClass, Tries};
use instar_core::id::{AssetId, CallId, Entity, HopId, Kind, MissionId, SessionId, StepId};
use instar_core::machine::{self, By, Table};
use instar_core::rune::Actor;
use instar_runtime::mission::{self, HopForm, MissionEdit, MissionForm, StepForm, Terms};
use instar_runtime::{Act, ActError, Hub, Missions, Row};
use instar_store::entity::{hop as hop_row, mission as mission_row};
use instar_tests::cast::{self, fresh};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;
use std::collections::HashMap;

/// Numbers that come again with their seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        // Splitmix: seeds that are neighbours lead far apart.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }

    fn percent(&mut self, p: usize) -> bool {
        self.below(100) < p
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.below(of.len());
        of.get(at)
    }
}

/// What ends things comes rarely, or nothing would get far.
const HARSH: [&str; 8] = [
    "cancel_mission",
    "reject_mission",
    "system_error",
    "cancel_hop",
    "stop_hop",
    "ttl_exceeded",
    "delete_hop",
    "discard_hop",
];

pub(super) struct Walk<'w> {
    hub: &'w Hub,
    pub(super) session: SessionId,
    /// Those that it has proposed, in order.
    missions: Vec<MissionId>,
    chance: Chance,
    pub(super) tally: &'w mut Tally,
    tried: &'w mut Tried,
}

/// How often something was tried in a state of a machine, over all walks of one walker.
pub(super) type Tried = HashMap<(&'static str, String, &'static str), usize>;

/// Somebody's command on something.
type Choice = (Entity, &'static Table, &'static str, By);

fn actor(by: By) -> Actor {
    // Nobody decides on his own request.
    Actor::new(by, by.token())
}

impl<'w> Walk<'w> {
    pub(super) async fn begin(hub: &'w Hub, seed: u64, tally: &'w mut Tally, tried: &'w mut Tried) -> Result<Walk<'w>> {
        let session = cast::session(hub.store()).await?;
        Ok(Walk { hub, session, missions: Vec::new(), chance: Chance(seed), tally, tried })
    }

    /// One of its missions, as it stands.
    async fn rows(&mut self) -> Result<Missions> {
        let Some(one) = self.chance.pick(&self.missions).copied() else { return Ok(Missions::default()) };
        Ok(Missions::of(self.hub.store().mission_rows(one, None).await?))
    }

    /// One more command; a few together where a new implementation takes the place of another.
    pub(super) async fn step(&mut self) -> Result<()> {
        let rows = self.rows().await?;
        let Some(mission) = rows.missions.values().next().cloned() else { return self.propose().await };
        match self.chance.below(100) {
            0..3 => self.propose().await,
            3..6 => self.nonsense(&rows, &mission).await,
            6..45 => self.forward(&rows, &mission).await,
            45..80 => self.anything(&rows, &mission, true).await,
            _ => self.anything(&rows, &mission, false).await,
        }
    }

    /// The session closes, and whatever is said afterwards comes too late.
    pub(super) async fn close(&mut self) -> Result<()> {
        let table = &machine::session::TABLE;
        self.issue(Act::new(self.session, self.session, table, "close_requested", actor(By::User))).await
    }

    /// What no state would make right: an entity that is not there, a revision that was, somebody else's assets.
    async fn nonsense(&mut self, rows: &Missions, mission: &mission_row::Model) -> Result<()> {
        let by = [By::User, By::Agent][self.chance.below(2)];
        let hop = rows.current_hop(mission).cloned();
        match (self.chance.below(4), hop) {
            (0, _) => {
                let nobody = fresh::<HopId>();
                self.issue(Act::new(self.session, nobody, &machine::hop::TABLE, "cancel_hop", actor(by))).await
            }
            (1, _) => {
                let (id, other) = (MissionId::from(mission.id), mission.revision + 1 + self.chance.below(3) as i64);
                let act = Act::new(self.session, id, &machine::mission::TABLE, "approve_mission", actor(By::User));
                self.issue(act.at_revision(Some(other))).await
            }
            (2, Some(hop)) => {
                let form = HopForm { inputs: Some(vec![fresh::<AssetId>()]), ..plan(rows, &mut self.chance) };
                let made = mission::hop_plan(rows, &hop, "edit_hop_plan", form, actor(by));
                self.worked_out(made, by).await
            }
            (_, Some(hop)) => {
                let step = StepForm { id: Some(fresh()), name: Some("none".into()), ..StepForm::default() };
                let made = mission::edit_impl(rows, &hop, vec![step], actor(by));
                self.worked_out(made, by).await
            }
            (_, None) => {
                let form = HopForm { inputs: Some(vec![fresh::<AssetId>()]), ..plan(rows, &mut self.chance) };
                let made = mission::hop(rows, mission, Some(form), actor(by)).map(|(act, _)| act);
                self.worked_out(made, by).await
            }
        }
    }

    async fn propose(&mut self) -> Result<()> {
        let session = self.hub.store().session(self.session).await?.context("a session")?;
        let outputs =
            if self.chance.percent(80) { json!([{"name": "map"}]) } else { json!([{"name": "map"}, {"name": "key"}]) };
        let form: MissionForm = serde_json::from_value(json!({"name": "m", "goal": "g", "outputs": outputs}))?;
        let by = if self.chance.percent(50) { By::User } else { By::Agent };
        let (act, row) = mission::mission(&session, &form, &Terms::default(), actor(by));
        if self.issued(act).await? {
            self.missions.push(MissionId::from(row.id));
        }
        Ok(())
    }

    /// Something that leads deeper.
    async fn forward(&mut self, rows: &Missions, mission: &mission_row::Model) -> Result<()> {
        let of = MissionId::from(mission.id);
        let Some(hop) = rows.current_hop(mission).cloned() else {
            let table = &machine::mission::TABLE;
            let event = match mission.status.as_str() {
                "AWAITING_APPROVAL" => "approve_mission",
                "IN_PROGRESS" if mission::stopped_hop(mission).is_some() && self.chance.percent(50) => "resume_mission",
                "IN_PROGRESS" => return self.plan(rows, mission).await,
                _ => "reset_mission",
            };
            if event == "reset_mission" {
                return self.reset(rows, mission, By::User).await;
            }
            return self.issue(Act::new(self.session, of, table, event, actor(By::User))).await;
        };
        let (id, table) = (HopId::from(hop.id), &machine::hop::TABLE);
        let event = match hop.status.as_str() {
            "HOP_PLAN_STARTED" => {
                let act =
                    mission::hop_plan(rows, &hop, "propose_hop_plan", plan(rows, &mut self.chance), actor(By::Agent));
                return self.worked_out(act, By::Agent).await;
            }
            "HOP_PLAN_PROPOSED" => "approve_hop_plan",
            "HOP_PLAN_READY" | "HOP_IMPL_STARTED" => return self.implement(rows, &hop).await,
            "HOP_IMPL_PROPOSED" => "approve_hop_impl",
            "HOP_IMPL_READY" => "execute_hop",
            "EXECUTING" => return self.run(rows, &hop).await,
            "FAILED" => match (mission.status.as_str(), hop.phase.as_deref()) {
                ("FAILED", _) => {
                    let act = Act::new(self.session, of, &machine::mission::TABLE, "retry_mission", actor(By::User));
                    return self.issue(act).await;
                }
                (_, Some("plan" | "resolve")) => "replan_hop",
                (_, Some("impl")) => "fix_hop",
                _ => "retry_hop",
            },
            _ => "delete_hop",
        };
        let act = Act::new(self.session, id, table, event, actor(By::User));
        let act = self.begin_next(act, rows, hop.id, None);
        self.issue(act).await
    }

    async fn plan(&mut self, rows: &Missions, mission: &mission_row::Model) -> Result<()> {
        let by = [By::User, By::Agent, By::System][self.chance.below(3)];
        let form = (by != By::System).then(|| plan(rows, &mut self.chance));
        let made = mission::hop(rows, mission, form, actor(by)).map(|(act, _)| act);
        self.worked_out(made, by).await
    }

    async fn implement(&mut self, rows: &Missions, hop: &instar_store::entity::hop::Model) -> Result<()> {
        let next = self.hub.store().next_step_number(HopId::from(hop.id)).await?;
        let output = json!({"output": {"type": "asset_field", "state_asset_id": hop.outputs[0]}});
        let mut forms: Vec<StepForm> = Vec::new();
        for last in [false, true] {
            if last || self.chance.percent(60) {
                let results = if last { output.clone() } else { json!({}) };
                forms.push(serde_json::from_value(json!({"tool_id": "echo", "result_mapping": results}))?);
            }
        }
        self.issue(mission::hop_impl(rows, hop, &forms, next, actor(By::Agent)).0).await
    }

    /// Brings a call for the step that a command may start.
    fn begin_next<'a>(
        &mut self,
        act: Act<'a>,
        rows: &Missions,
        hop: uuid::Uuid,
        besides: Option<uuid::Uuid>,
    ) -> Act<'a> {
        let done = |s: &str| matches!(s, "COMPLETED" | "CANCELLED");
        let Some(step) = rows.steps_of(hop).find(|s| !done(&s.status) && Some(s.id) != besides) else { return act };
        let (id, step) = (fresh::<CallId>(), StepId::from(step.id));
        let mut row = cast::call_row(id, self.session, fresh(), fresh(), "executing");
        (row.turn_id, row.step_id, row.effect) = (None, Some(step.uuid()), "idempotent".into());
        let mut act = act.bringing(Row::Call(row)).meaning(Reach::NewCallOfStep, step, id);
        act.said.gates.insert(id.uuid(), free());
        act
    }

    /// A running step gets the result of its call.
    async fn run(&mut self, rows: &Missions, hop: &instar_store::entity::hop::Model) -> Result<()> {
        let running = rows.steps_of(hop.id).find(|step| step.status == "EXECUTING").cloned();
        let Some(step) = running else {
            let Some(next) = rows.steps_of(hop.id).find(|step| step.status == "READY_TO_EXECUTE") else {
                return Ok(());
            };
            let act = Act::new(
                self.session,
                StepId::from(next.id),
                &machine::tool_step::TABLE,
                "start_step",
                actor(By::System),
            );
            let act = self.begin_next(act, rows, hop.id, None);
            return self.issue(act).await;
        };
        let open = match step.call_id {
            Some(call) => self.hub.store().call(CallId::from(call)).await?.filter(|call| call.ended_at.is_none()),
            None => None,
        };
        let Some(call) = open else {
            // Between two attempts; its next one is a call of its own.
            let act = Act::new(self.session, HopId::from(hop.id), &machine::hop::TABLE, "stop_hop", actor(By::User));
            return self.issue(act).await;
        };
        let event =
            *self.chance.pick(&["success", "success", "success", "execution_error", "cancelled"]).context("one")?;
        let act = Act::new(self.session, CallId::from(call.id), &machine::tool_call::TABLE, event, actor(By::System));
        let mut act =
            act.telling("tool.result", json!({"status": if event == "success" { "success" } else { "error" }}));
        act.said.attempt = Some(Attempt {
            status: Default::default(),
            outputs_fit: self.chance.percent(90),
            retryable: false,
            effect: Effect::Idempotent,
            attempts: Tries { made: 1, max: 1 },
        });
        act.said.class = Some(if self.chance.percent(30) { FailureClass::Fatal } else { FailureClass::Recoverable });
        let act = self.begin_next(act, rows, hop.id, Some(step.id));
        self.issue(act).await
    }

    /// What may be done with a mission and its hops and was tried least often so far.
    fn rarest(&self, all: &[(Entity, &'static Table)], state: impl Fn(Entity) -> Option<String>) -> Option<Choice> {
        let mut choices: Vec<(usize, Choice)> = Vec::new();
        for (entity, table) in all.iter().filter(|(entity, _)| matches!(entity.kind, Kind::Mission | Kind::Hop)) {
            let Some(state) = state(*entity) else { continue };
            for by in [By::User, By::Agent, By::System] {
                for event in table.allowed(table.state(&state), by) {
                    let tried = self.tried.get(&(table.name, state.clone(), event)).copied().unwrap_or_default();
                    choices.push((tried, (*entity, table, event, by)));
                }
            }
        }
        choices.retain(|(_, (_, table, event, _))| !CONSEQUENCES.contains(&(table.name, event)) && !is_birth(event));
        choices.into_iter().min_by_key(|(tried, _)| *tried).map(|(_, choice)| choice)
    }

    /// Any event on anything, by anybody; or, steered, what has come too short.
    async fn anything(&mut self, rows: &Missions, mission: &mission_row::Model, steered: bool) -> Result<()> {
        let mut all: Vec<(Entity, &'static Table)> =
            vec![(Entity::new(Kind::Mission, mission.id), &machine::mission::TABLE)];
        // Also those that have ended.
        let hops = hop_row::Entity::find().filter(hop_row::Column::MissionId.eq(mission.id));
        let hops = hops.order_by_asc(hop_row::Column::Id).all(self.hub.store().db()).await?;
        all.extend(hops.iter().map(|hop| (Entity::new(Kind::Hop, hop.id), &machine::hop::TABLE)));
        all.extend(rows.steps.iter().map(|s| (Entity::new(Kind::ToolStep, s.id), &machine::tool_step::TABLE)));
        all.extend(rows.assets.keys().map(|id| (Entity::new(Kind::Asset, *id), &machine::asset::TABLE)));
        all.push((Entity::from(self.session), &machine::session::TABLE));
        let ended = |id: uuid::Uuid| hops.iter().find(|hop| hop.id == id).map(|hop| hop.status.clone());
        let state = |entity: Entity| match entity.kind {
            Kind::Mission => Some(mission.status.clone()),
            Kind::ToolStep => rows.step(entity.id).map(|step| step.status.clone()),
            Kind::Asset => rows.assets.get(&entity.id).map(|asset| asset.status.clone()),
            _ => ended(entity.id),
        };
        let rarest = self.rarest(&all, state).filter(|_| steered);
        let (entity, table) = match rarest {
            Some((entity, table, ..)) => (entity, table),
            None => *self.chance.pick(&all).context("a mission")?,
        };
        if entity.kind == Kind::Session {
            let event = if self.chance.percent(30) { "pause_requested" } else { "resume_requested" };
            return self.issue(Act::new(self.session, entity, table, event, actor(By::User))).await;
        }
        let mut by = [By::User, By::User, By::Agent, By::System, By::Policy][self.chance.below(5)];
        let state = state(entity);
        // Mostly what the table allows, so that guards are asked too.
        let legal = table.allowed(state.as_deref().and_then(|state| table.state(state)), by);
        let wise = self.chance.percent(70);
        let mut event = match self.chance.pick(&legal).filter(|_| wise) {
            Some(event) => *event,
            None => table.events[self.chance.below(table.events.len())].token,
        };
        match rarest {
            Some((_, _, rare, whose)) => (event, by) = (rare, whose),
            None if HARSH.contains(&event) && self.chance.percent(75) => return Ok(()),
            None => {}
        }
        *self.tried.entry((table.name, state.unwrap_or_default(), event)).or_default() += 1;
        // What follows from other moves is never raised by itself.
        if is_birth(event) || CONSEQUENCES.contains(&(table.name, event)) {
            return Ok(());
        }
        let id = entity.id;
        let mut act = match event {
            "revise_mission" => {
                let edit: MissionEdit = serde_json::from_value(json!({"outputs": [{"name": "chart"}]}))?;
                mission::revise_mission(rows, MissionId::from(id), edit, actor(by))?
            }
            "edit_hop_plan" => {
                let hop = hops.iter().find(|hop| hop.id == id).context("a hop")?.clone();
                match mission::hop_plan(rows, &hop, "edit_hop_plan", plan(rows, &mut self.chance), actor(by)) {
                    Ok(act) => act,
                    Err(no) => return self.tally.unfit(by, no),
                }
            }
            "edit_hop_impl" => {
                let hop = hops.iter().find(|hop| hop.id == id).context("a hop")?;
                let live = rows.steps_of(id).find(|step| step.status == "READY_TO_EXECUTE");
                let steps = live.map(|step| StepForm {
                    id: Some(StepId::from(step.id)),
                    name: Some("again".into()),
                    ..StepForm::default()
                });
                match mission::edit_impl(rows, hop, steps.into_iter().collect(), actor(by)) {
                    Ok(act) => act,
                    Err(no) => return self.tally.unfit(by, no),
                }
            }
            "reset_mission" => return self.reset(rows, mission, by).await,
            _ => Act::new(self.session, entity, table, event, actor(by)),
        };
        if self.chance.percent(50) {
            act = act.given(Fact::Restart).given(Fact::Repairable);
        }
        if entity.kind == Kind::Asset && event == "provide_value" {
            act = act.editing(move |snapshot| {
                if let Some(row) = snapshot.missions.assets.get_mut(&id) {
                    row.content_version += 1;
                }
            });
        }
        if entity.kind == Kind::Hop && self.chance.percent(30) {
            act.said.class = Some(FailureClass::Fatal);
        }
        let hop = match entity.kind {
            Kind::Hop => Some((id, None)),
            Kind::ToolStep => rows.step(id).map(|step| (step.hop_id, (event != "start_step").then_some(id))),
            _ => None,
        };
        if let Some((hop, besides)) = hop {
            act = self.begin_next(act, rows, hop, besides);
        }
        self.issue(act).await
    }

    /// A command that may be found unfit before it is one.
    async fn worked_out(&mut self, made: Result<Act<'_>, ActError>, by: By) -> Result<()> {
        match made {
            Ok(act) => self.issue(act).await,
            Err(no) => self.tally.unfit(by, no),
        }
    }

    async fn issue(&mut self, act: Act<'_>) -> Result<()> {
        self.issued(act).await.map(drop)
    }

    /// Says whether it landed.
    async fn issued(&mut self, act: Act<'_>) -> Result<bool> {
        self.tally.carry_out(self.hub, act).await
    }

    /// The same from the start.
    async fn reset(&mut self, rows: &Missions, mission: &mission_row::Model, by: By) -> Result<()> {
        let (act, row) = mission::reset_mission(rows, mission, &[], None, actor(by))?;
        if self.issued(act).await? {
            self.missions.push(MissionId::from(row.id));
        }
        Ok(())
    }
}

fn is_birth(event: &str) -> bool {
    matches!(event, "propose_mission" | "start_hop_plan" | "create_hop_manually" | "create_step")
        || matches!(event, "propose_asset" | "register_asset" | "create_intermediate")
}

/// Events of the tables that only the cascades raise.
const CONSEQUENCES: &[(&str, &str)] = &[
    ("mission", "final_hop_completed"),
    ("mission", "final_hop_incomplete"),
    ("mission", "hop_completed"),
    ("mission", "hop_failed_critically"),
    ("mission", "hop_design_failed"),
    ("mission", "hop_failed_recoverable"),
    ("mission", "hop_cancelled"),
    ("mission", "session_closing"),
    ("hop", "all_steps_completed"),
    ("hop", "step_failed"),
    ("hop", "mission_cancelled"),
    ("hop", "mission_failed"),
    ("hop", "session_paused"),
    ("hop", "propose_hop_plan"),
    ("hop", "propose_hop_impl"),
    ("tool_step", "step_succeeded"),
    ("tool_step", "step_attempt_failed"),
    ("tool_step", "step_failed"),
    ("tool_step", "retry_step"),
    ("tool_step", "hop_reopened"),
    ("tool_step", "restart_step"),
    ("tool_step", "configuration_failed"),
    ("asset", "start_processing"),
    ("asset", "processing_completed"),
    ("asset", "processing_failed"),
    ("asset", "cancel_processing"),
    ("asset", "reprocess"),
    ("asset", "promote"),
];

fn free() -> Call {
    Call {
        valid: true,
        outside_sandbox: false,
        side_effects: false,
        spec: Default::default(),
        policy_override: Default::default(),
        mode: Default::default(),
    }
}

fn plan(rows: &Missions, chance: &mut Chance) -> HopForm {
    let outputs: Vec<AssetId> =
        rows.assets.values().filter(|asset| asset.role == "output").map(|asset| AssetId::from(asset.id)).collect();
    let promised = chance.percent(67);
    let output = match chance.pick(&outputs).filter(|_| promised) {
        Some(id) => json!({"asset_id": id}),
        None => json!({"asset": {"name": format!("asset {}", rows.assets.len())}}),
    };
    let form = json!({"name": "leg", "output": output, "is_final": chance.percent(50)});
    serde_json::from_value(form).expect("a plan")
}
