//! Thousands of commands by people, agents and the system against missions, wise and unwise ones: no commit leaves a
//! pair that the coordination tables do not allow, every refusal says what may be done instead, and the log folds to
//! the rows.

use anyhow::{Context, Result, bail, ensure};
use instar_core::cascade::{Fact, Reach};
use instar_core::decide::{Attempt, Call, Effect, FailureClass, Tries};
use instar_core::id::{AssetId, CallId, Entity, HopId, Kind, MissionId, SessionId, StepId};
use instar_core::machine::{self, By, Table};
use instar_core::rune::Actor;
use instar_runtime::mission::{self, HopForm, MissionEdit, MissionForm, StepForm, Terms};
use instar_runtime::{Act, ActError, Done, Hub, Missions, Row};
use instar_store::entity::{hop as hop_row, mission as mission_row};
use instar_tests::cast::{self, fresh};
use instar_tests::stage::{self, Stage};
use instar_tests::{audit, on_both};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;
use std::collections::HashMap;

/// Numbers that come again with their seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n.max(1)
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

/// Rows of missions and hops that the walks may miss: M19, since no session is closed.
const MISSING_MAX: usize = 1;
/// The same of short walks.
const MISSING_MAX_SHORT: usize = 20;

struct Walk {
    hub: Hub,
    session: SessionId,
    chance: Chance,
    landed: usize,
    refused: usize,
    tried: Tried,
}

/// How often something was tried in a state of a machine, over all walks.
type Tried = HashMap<(&'static str, String, &'static str), usize>;

/// Somebody's command on something.
type Choice = (Entity, &'static Table, &'static str, By);

fn actor(by: By) -> Actor {
    // Nobody decides on his own request.
    Actor::new(by, by.token())
}

impl Walk {
    async fn begin(stage: &Stage, seed: u64, tried: Tried) -> Result<Walk> {
        let hub = Hub::new(stage.store.clone(), stage::bus(stage).await?);
        let session = cast::session(hub.store()).await?;
        Ok(Walk { hub, session, chance: Chance(seed), landed: 0, refused: 0, tried })
    }

    async fn rows(&mut self) -> Result<Missions> {
        let all = mission_row::Entity::find()
            .filter(mission_row::Column::SessionId.eq(self.session.uuid()))
            .order_by_asc(mission_row::Column::Id)
            .all(self.hub.store().db())
            .await?;
        let Some(one) = self.chance.pick(&all) else { return Ok(Missions::default()) };
        Ok(Missions::of(self.hub.store().mission_rows(MissionId::from(one.id), None).await?))
    }

    async fn step(&mut self) -> Result<()> {
        let rows = self.rows().await?;
        let Some(mission) = rows.missions.values().next().cloned() else { return self.propose().await };
        match self.chance.below(100) {
            0..3 => self.propose().await,
            3..45 => self.forward(&rows, &mission).await,
            45..80 => self.anything(&rows, &mission, true).await,
            _ => self.anything(&rows, &mission, false).await,
        }
    }

    async fn propose(&mut self) -> Result<()> {
        let session = self.hub.store().session(self.session).await?.context("a session")?;
        let outputs =
            if self.chance.percent(80) { json!([{"name": "map"}]) } else { json!([{"name": "map"}, {"name": "key"}]) };
        let form: MissionForm = serde_json::from_value(json!({"name": "m", "goal": "g", "outputs": outputs}))?;
        let by = if self.chance.percent(50) { By::User } else { By::Agent };
        let act = mission::mission(&session, &form, &Terms::default(), actor(by)).0;
        self.carry_out(act).await
    }

    /// Something that leads deeper.
    async fn forward(&mut self, rows: &Missions, mission: &mission_row::Model) -> Result<()> {
        let of = MissionId::from(mission.id);
        let Some(hop) = rows.current_hop(mission).cloned() else {
            let table = &machine::mission::TABLE;
            let event = match mission.status.as_str() {
                "AWAITING_APPROVAL" => "approve_mission",
                "IN_PROGRESS" => return self.plan(rows, mission).await,
                _ => "reset_mission",
            };
            if event == "reset_mission" {
                return self.carry_out(mission::reset_mission(rows, mission, &[], None, actor(By::User))?.0).await;
            }
            return self.carry_out(Act::new(self.session, of, table, event, actor(By::User))).await;
        };
        let (id, table) = (HopId::from(hop.id), &machine::hop::TABLE);
        let event = match hop.status.as_str() {
            "HOP_PLAN_STARTED" => {
                let act =
                    mission::hop_plan(rows, &hop, "propose_hop_plan", plan(rows, &mut self.chance), actor(By::Agent));
                return self.carry_out(act?).await;
            }
            "HOP_PLAN_PROPOSED" => "approve_hop_plan",
            "HOP_PLAN_READY" | "HOP_IMPL_STARTED" => return self.implement(rows, &hop).await,
            "HOP_IMPL_PROPOSED" => "approve_hop_impl",
            "HOP_IMPL_READY" => "execute_hop",
            "EXECUTING" => return self.run(rows, &hop).await,
            "FAILED" => match (mission.status.as_str(), hop.phase.as_deref()) {
                ("FAILED", _) => {
                    let act = Act::new(self.session, of, &machine::mission::TABLE, "retry_mission", actor(By::User));
                    return self.carry_out(act).await;
                }
                (_, Some("plan" | "resolve")) => "replan_hop",
                (_, Some("impl")) => "fix_hop",
                _ => "retry_hop",
            },
            _ => "delete_hop",
        };
        let act = Act::new(self.session, id, table, event, actor(By::User));
        let act = self.begin_next(act, rows, hop.id, None);
        self.carry_out(act).await
    }

    async fn plan(&mut self, rows: &Missions, mission: &mission_row::Model) -> Result<()> {
        let by = [By::User, By::Agent, By::System][self.chance.below(3)];
        let form = (by != By::System).then(|| plan(rows, &mut self.chance));
        self.carry_out(mission::hop(rows, mission, form, actor(by))?.0).await
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
        self.carry_out(mission::hop_impl(rows, hop, &forms, next, actor(By::Agent)).0).await
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
            return self.carry_out(act).await;
        };
        let open = match step.call_id {
            Some(call) => self.hub.store().call(CallId::from(call)).await?.filter(|call| call.ended_at.is_none()),
            None => None,
        };
        let Some(call) = open else {
            // Between two attempts; its next one is a call of its own.
            let act = Act::new(self.session, HopId::from(hop.id), &machine::hop::TABLE, "stop_hop", actor(By::User));
            return self.carry_out(act).await;
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
        self.carry_out(act).await
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
            return self.carry_out(Act::new(self.session, entity, table, event, actor(By::User))).await;
        }
        let mut by = [By::User, By::User, By::Agent, By::System, By::Policy][self.chance.below(5)];
        let state = state(entity);
        // Mostly what the table allows, so that guards are asked too.
        let legal = table.allowed(state.as_deref().and_then(|state| table.state(state)), by);
        let mut event = match self.chance.pick(&legal).filter(|_| self.chance.0 % 10 < 7) {
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
                mission::hop_plan(rows, &hop, "edit_hop_plan", plan(rows, &mut self.chance), actor(by))?
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
                    Err(_) => return Ok(()),
                }
            }
            "reset_mission" => mission::reset_mission(rows, mission, &[], None, actor(by))?.0,
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
        self.carry_out(act).await
    }

    async fn carry_out(&mut self, act: Act<'_>) -> Result<()> {
        let (machine, event, by) = (act.machine, act.event.to_owned(), act.actor.by);
        match act.carry_out(&self.hub).await {
            Ok(Done::Moved { .. }) => self.landed += 1,
            Ok(Done::Ignored) => {}
            Err(ActError::Refused(no)) => {
                self.refused += 1;
                ensure!(!no.advice.is_empty() && !no.allowed.contains(&event.as_str()), "{no}");
                let state = machine.state(&no.from);
                if no.machine == machine.name && state.is_some() {
                    let legal = machine.allowed(state, by);
                    ensure!(no.allowed.iter().all(|event| legal.contains(event)), "{no}: {legal:?}");
                }
            }
            // The command itself is none: an asset of another mission, an entity that is gone.
            Err(ActError::Unfit(_) | ActError::Absent(_) | ActError::Contended | ActError::Alone(_)) => {
                self.refused += 1
            }
            Err(error) => bail!("{event}: {error}"),
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
    let output = match chance.pick(&outputs).filter(|_| !chance.0.is_multiple_of(3)) {
        Some(id) => json!({"asset_id": id}),
        None => json!({"asset": {"name": format!("asset {}", rows.assets.len())}}),
    };
    let form = json!({"name": "leg", "output": output, "is_final": chance.percent(50)});
    serde_json::from_value(form).expect("a plan")
}

async fn no_command_leads_where_the_tables_do_not(stage: Stage) -> Result<()> {
    let (walks, commands) = if stage.store.is_postgres() { (2, 400) } else { (20, 500) };
    let mut tried = Tried::new();
    let (mut landed, mut refused, mut seen) = (0, 0, std::collections::BTreeSet::new());
    for seed in 1..=walks {
        let mut walk = Walk::begin(&stage, seed * 7_919, tried).await?;
        for n in 0..commands {
            walk.step().await.with_context(|| format!("seed {seed}, command {n}"))?;
        }
        let (runes, wrong) = audit::log(walk.hub.store(), walk.session).await?;
        ensure!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        seen.extend(runes.iter().flat_map(|rune| &rune.moves).map(|moved| moved.row.clone()));
        (landed, refused, tried) = (landed + walk.landed, refused + walk.refused, walk.tried);
    }
    ensure!(landed > commands * walks as usize / 4 && refused > 0, "{landed} landed, {refused} were refused");
    let wanted = || machine::ALL.into_iter().filter(|table| ["mission", "hop"].contains(&table.name));
    let rows = wanted().flat_map(|table| table.rows.iter().map(|row| row.id));
    let missing: Vec<&str> = rows.filter(|row| !seen.contains(*row)).collect();
    let commands = wanted().flat_map(|table| {
        let raised = |row: &&machine::Row| table.raisers(row).iter().any(|by| [By::User, By::Agent].contains(by));
        table.rows.iter().filter(raised).map(|row| row.id)
    });
    let untried: Vec<&str> = commands.filter(|row| missing.contains(row)).collect();
    println!("{landed} commands landed, {refused} were refused; rows not taken: {missing:?}");
    // Where walks are dear there are few of them: they show that the backend does the same.
    let most = if stage.store.is_postgres() { MISSING_MAX_SHORT } else { MISSING_MAX };
    ensure!(missing.len() <= most, "the walks get nowhere: {missing:?}");
    ensure!(stage.store.is_postgres() || untried.is_empty(), "commands that no walk took: {untried:?}");
    Ok(())
}

on_both! {
    no_command_leads_where_the_tables_do_not;
}
