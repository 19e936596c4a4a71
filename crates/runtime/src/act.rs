//! A command on an entity with everything it causes, as one commit.
//!
//! Pause, resume, close, start, stop, terminate, approve, deny, cancel: each is an event on a
//! machine. The cascades say what else moves; the transition writer makes it all of one piece. For
//! the hot path of a turn the services build their commits by hand.

use crate::asset::Fresh;
use crate::cut::Cut;
use crate::hub::Hub;
use crate::own::Own;
use crate::snapshot::{Missions, PLAN_BLOCKED, Row, Said, Snapshot, doom, is_by_plan, settle, stopped_hop};
use crate::step::STEP_TIMER;
use crate::{flow, guard, hold, tell};
use instar_core::cascade::{self, Fact, Planned, Reach};
use instar_core::decide::STOPPED_BY_PERSON;
use instar_core::id::{AgentId, CallId, Entity, HopId, Kind, MissionId, PlanId, SessionId, StepId, TurnId};
use instar_core::machine::{Answer as Cell, By, Move, Phase, Refusal, Table as Machine, apply, turn as turn_machine};
use instar_core::rune::payload::MissionAttention;
use instar_core::rune::{Actor, Draft, Rune};
use instar_store::clock;
use instar_store::entity::{
    agent, asset, asset_version, budget, hop, mission, plan, session, task, timer, tool_call, tool_step, turn,
};
use instar_store::{Answer, Change, Commit, StoreError, Table};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use uuid::Uuid;

/// How often a command looks again when the rows changed under it.
const LOOKS_MAX: usize = 8;
/// The event of a turn that has passed its deadline.
const LATE: &str = turn_machine::Event::TurnDeadline.token();
/// The event of a turn whose worker was asked to end it and does not react.
const UNHEEDED: &str = turn_machine::Event::InterruptTimeout.token();

#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error("there is no {0}")]
    Absent(Entity),
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// Others keep changing the same rows.
    #[error("the session is too busy to settle this command now; try again")]
    Contended,
    #[error("row {0} cannot be committed by itself")]
    Alone(&'static str),
    /// It was worked out from a proposal that has been changed since.
    #[error("this is revision {found} by now, not {expected}: look at it again before you decide")]
    Stale { expected: i64, found: i64 },
    #[error("{0}")]
    Unfit(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a rune could not be told: {0}")]
    Untold(#[from] serde_json::Error),
}

impl From<crate::flow::FlowError> for ActError {
    fn from(error: crate::flow::FlowError) -> ActError {
        match error {
            crate::flow::FlowError::Refused(no) => ActError::Refused(no),
            crate::flow::FlowError::Untold(error) => ActError::Untold(error),
            other => ActError::Unfit(other.to_string()),
        }
    }
}

/// What a command did. Nothing to publish or show when it was ignored: it was already so.
#[derive(Debug)]
pub enum Done {
    Moved { runes: Vec<Rune> },
    Ignored,
}

type Prepare<'a> = Box<dyn Fn(&mut Snapshot) -> Result<(), ActError> + Send + Sync + 'a>;
type Edit<'a> = Box<dyn Fn(&mut Snapshot) + Send + Sync + 'a>;
type Check<'a> = Box<dyn Fn(&Snapshot) -> Result<(), ActError> + Send + Sync + 'a>;
type Dressing<'a> = Box<dyn Fn(Change) -> Change + Send + Sync + 'a>;
type Also<'a> = Box<dyn Fn(&mut Commit, &Snapshot) -> Result<(), ActError> + Send + Sync + 'a>;

/// A command, ready to be carried out.
pub struct Act<'a> {
    pub session: SessionId,
    pub entity: Entity,
    pub machine: &'static Machine,
    pub event: &'a str,
    pub actor: Actor,
    /// Why, in words; runes of the cascade carry it.
    pub reason: &'a str,
    /// Fields for the command's own runes, by kind.
    pub payload: Vec<(&'static str, Value)>,
    pub facts: Vec<Fact>,
    pub traceparent: Option<String>,
    /// The state that the session must be in when it lands.
    pub while_session: Option<&'static str>,
    /// A limit that is used up, and how high it is: raised meanwhile, nothing follows from that any more.
    while_limit: Option<(Uuid, i64)>,
    /// Why turns are asked to end, where that is not the event itself.
    cause: Option<&'a str>,
    /// What the command knows that no row tells.
    pub said: Said,
    /// Further events of the same command, in order, each worked out from what the ones before leave behind.
    then: Vec<(Entity, &'static Machine, &'a str)>,
    rows: Vec<Row>,
    relations: Vec<(Reach, Entity, Entity)>,
    mission: Option<MissionId>,
    prepare: Vec<Prepare<'a>>,
    checks: Vec<Check<'a>>,
    edits: Vec<Edit<'a>>,
    also: Vec<Also<'a>>,
    /// Columns of the command's own row.
    own: Option<Dressing<'a>>,
    done: bool,
}

/// What moves, by whose it is.
type Moved<'p> = HashMap<Entity, Vec<&'p Planned>>;

/// A command as it came out of the rows.
pub(crate) struct Plan {
    pub(crate) planned: Vec<Planned>,
    before: Missions,
    pub(crate) after: Snapshot,
    pub(crate) cut: Cut,
    pub(crate) own: Own,
}

impl<'a> Act<'a> {
    pub fn new(
        session: SessionId,
        entity: impl Into<Entity>,
        machine: &'static Machine,
        event: &'a str,
        actor: Actor,
    ) -> Act<'a> {
        let entity = entity.into();
        let (reason, payload, facts) = (event, Vec::new(), Vec::new());
        Act {
            session,
            entity,
            machine,
            event,
            actor,
            reason,
            payload,
            facts,
            traceparent: None,
            while_session: None,
            while_limit: None,
            cause: None,
            said: Said::default(),
            then: Vec::new(),
            rows: Vec::new(),
            relations: Vec::new(),
            mission: None,
            prepare: Vec::new(),
            checks: Vec::new(),
            edits: Vec::new(),
            also: Vec::new(),
            own: None,
            done: false,
        }
    }

    /// It was carried out before: nothing is left to do.
    pub fn done(mut self) -> Act<'a> {
        self.done = true;
        self
    }

    /// One more event in the same commit.
    pub fn then(mut self, entity: impl Into<Entity>, machine: &'static Machine, event: &'a str) -> Act<'a> {
        self.then.push((entity.into(), machine, event));
        self
    }

    /// A row that comes into being by it; its state is where its births lead.
    pub fn bringing(mut self, row: Row) -> Act<'a> {
        self.rows.push(row);
        self
    }

    /// Whom the command means by a relation that no row tells: what is new, changed or left out.
    pub fn meaning(mut self, reach: Reach, of: impl Into<Entity>, entity: impl Into<Entity>) -> Act<'a> {
        self.relations.push((reach, of.into(), entity.into()));
        self
    }

    /// The mission that it is about, where its own entity is not there yet.
    pub fn within(mut self, mission: MissionId) -> Act<'a> {
        self.mission = Some(mission);
        self
    }

    /// What the command works out from the rows before anything moves: rows to bring along, whom it means.
    pub fn preparing(mut self, prepare: impl Fn(&mut Snapshot) -> Result<(), ActError> + Send + Sync + 'a) -> Act<'a> {
        self.prepare.push(Box::new(prepare));
        self
    }

    /// A version that an asset has from the move on by which it is READY.
    pub fn writing(mut self, fresh: Fresh) -> Act<'a> {
        self.said.fresh.push(fresh);
        self
    }

    /// What must hold of the rows, besides what tables and guards demand.
    pub fn provided(mut self, check: impl Fn(&Snapshot) -> Result<(), ActError> + Send + Sync + 'a) -> Act<'a> {
        self.checks.push(Box::new(check));
        self
    }

    /// What the command writes into the rows of missions, hops, steps and assets, after their moves.
    pub fn editing(mut self, edit: impl Fn(&mut Snapshot) + Send + Sync + 'a) -> Act<'a> {
        self.edits.push(Box::new(edit));
        self
    }

    /// Sets columns of the row that the command is about; of a plan or a task.
    pub fn setting(mut self, dress: impl Fn(Change) -> Change + Send + Sync + 'a) -> Act<'a> {
        self.own = Some(Box::new(dress));
        self
    }

    /// What else lands with it: rows of tables without a machine, further runes.
    pub fn also(mut self, also: impl Fn(&mut Commit, &Snapshot) -> Result<(), ActError> + Send + Sync + 'a) -> Act<'a> {
        self.also.push(Box::new(also));
        self
    }

    pub fn reason(mut self, reason: &'a str) -> Act<'a> {
        self.reason = reason;
        self
    }

    pub fn telling(mut self, kind: &'static str, fields: Value) -> Act<'a> {
        self.payload.push((kind, fields));
        self
    }

    pub fn given(mut self, fact: Fact) -> Act<'a> {
        self.facts.push(fact);
        self
    }

    /// Only while the session is in this state.
    pub fn while_session(mut self, state: &'static str) -> Act<'a> {
        self.while_session = Some(state);
        self
    }

    /// Only while this limit is as high as it was when it was found used up. Whoever raises it writes the row of whom
    /// it limits: what is found here holds when the commit lands.
    pub(crate) fn while_limit(mut self, limit: &budget::Model) -> Act<'a> {
        self.while_limit = Some((limit.id, limit.cap));
        self
    }

    /// Turns are asked to end for this reason.
    pub(crate) fn because(mut self, cause: &'a str) -> Act<'a> {
        self.cause = Some(cause);
        self
    }

    /// Looks, works out what moves, commits; looks again if something moved in between.
    pub async fn carry_out(self, hub: &Hub) -> Result<Done, ActError> {
        if self.done {
            return Ok(Done::Ignored);
        }
        // One that does not react would be waited for in vain.
        let mut kept = self.event == UNHEEDED;
        for look in 1..=LOOKS_MAX {
            let snapshot = self.look(hub).await?;
            if self.while_session.is_some_and(|state| state != snapshot.session.status) {
                return Err(ActError::Contended);
            }
            if let Some((limit, cap)) = self.while_limit {
                let found = hub.store().budget(limit).await?;
                if found.is_none_or(|found| found.cap != cap) {
                    return Ok(Done::Ignored);
                }
            }
            let Some(plan) = self.work_out(snapshot)? else { return Ok(Done::Ignored) };
            if !kept && !plan.cuts().is_empty() {
                kept = true;
                hub.have_kept(&plan).await?;
                continue;
            }
            let commit = match self.commit(&hub.filled(plan).await?) {
                Err(error) if is_torn(&error) && look < LOOKS_MAX => continue,
                commit => commit?,
            };
            match hub.commit(commit).await? {
                Answer::Moved(landed) => return Ok(Done::Moved { runes: landed.runes }),
                Answer::Found(_) | Answer::Absent { .. } => continue,
            }
        }
        Err(ActError::Contended)
    }

    /// The commit of a command as things stand, to go together with another one of the same actor. `None`: it is
    /// already so.
    pub async fn prepare(self, hub: &Hub) -> Result<Option<Commit>, ActError> {
        for _ in 1..LOOKS_MAX {
            match self.prepared(hub).await {
                Err(error) if is_torn(&error) => continue,
                commit => return commit,
            }
        }
        self.prepared(hub).await
    }

    async fn prepared(&self, hub: &Hub) -> Result<Option<Commit>, ActError> {
        let Some(plan) = self.work_out(self.look(hub).await?)? else { return Ok(None) };
        self.commit(&hub.filled(plan).await?).map(Some)
    }

    async fn look(&self, hub: &Hub) -> Result<Snapshot, ActError> {
        let snapshot = Snapshot::load(hub.store(), self.session, self.entity).await?;
        let mut snapshot = snapshot.ok_or(ActError::Absent(self.session.into()))?;
        if let Some(mission) = self.mission {
            snapshot.load_also(hub.store(), mission).await?;
        }
        snapshot.facts.extend(self.facts.iter().copied());
        snapshot.said = self.said.clone();
        snapshot.said.wordless = self.reason == self.event;
        snapshot.said.late = self.event == LATE;
        snapshot.relations = self.relations.clone();
        self.rows.iter().cloned().for_each(|row| snapshot.bring(row));
        if self.actor.by == By::User {
            snapshot.facts.insert(Fact::ByPerson);
        }
        allot_plans(&mut snapshot);
        if snapshot.version(self.entity).is_none() {
            self.load_ended(hub, &mut snapshot).await?;
        }
        Ok(snapshot)
    }

    /// `None`: it is already so.
    fn work_out(&self, mut snapshot: Snapshot) -> Result<Option<Plan>, ActError> {
        for prepare in &self.prepare {
            prepare(&mut snapshot)?;
        }
        for check in &self.checks {
            check(&snapshot)?;
        }
        let (before, at) = (snapshot.missions.clone(), clock::now());
        let mut planned: Vec<Planned> = Vec::new();
        let first = (self.entity, self.machine, self.event);
        for (entity, machine, event) in std::iter::once(first).chain(self.then.iter().copied()) {
            let by = self.actor.by;
            if let Cell::Moves(mv) = apply(machine, cascade::View::state(&snapshot, machine, entity), event, by) {
                guard::passes(&snapshot, entity, &mv, by).map_err(ActError::Refused)?;
            }
            let more =
                cascade::expand(&snapshot, entity, machine, event, by).map_err(|no| ActError::Refused(Box::new(no)))?;
            snapshot.settle(&more, self.reason, at);
            let base = planned.len();
            planned.extend(more.into_iter().map(|p| Planned { cause: p.cause.map(|cause| cause + base), ..p }));
        }
        if planned.is_empty() {
            return Ok(None);
        }
        if let Some(own) = planned.iter().find(|p| p.entity == self.entity) {
            snapshot.revise_owner(own);
        }
        for edit in &self.edits {
            edit(&mut snapshot);
        }
        snapshot.reckon(at);
        Ok(Some(Plan { planned, before, after: snapshot, cut: Cut::new(), own: Own::new() }))
    }

    /// A turn, call or plan that has ended is not in the picture; the command may still be about it.
    async fn load_ended(&self, hub: &Hub, snapshot: &mut Snapshot) -> Result<(), ActError> {
        use sea_orm::EntityTrait;
        let (db, id) = (hub.store().db(), self.entity.id);
        match self.entity.kind {
            Kind::Turn => snapshot.turns.extend(turn::Entity::find_by_id(id).one(db).await.map_err(StoreError::from)?),
            Kind::ToolCall => {
                snapshot.calls.extend(tool_call::Entity::find_by_id(id).one(db).await.map_err(StoreError::from)?);
            }
            Kind::Plan | Kind::Task => snapshot.plans.add(hub.store(), self.entity).await?,
            _ => {}
        }
        let ours = |session: uuid::Uuid| session == self.session.uuid();
        let found = snapshot.turn(id).is_some_and(|t| ours(t.session_id))
            || snapshot.call(id).is_some_and(|c| ours(c.session_id))
            || snapshot.plan(id).is_some_and(|p| ours(p.session_id))
            || snapshot.task(id).is_some_and(|t| ours(t.session_id));
        if found { Ok(()) } else { Err(ActError::Absent(self.entity)) }
    }

    fn commit(&self, plan: &Plan) -> Result<Commit, ActError> {
        let Plan { planned, before, after: snapshot, .. } = plan;
        let mut commit = Commit::new(self.session, self.actor.clone()).traced(self.traceparent.clone()).wide();
        let at = commit.at();
        // A session may have thousands of them: none is looked for.
        let mut entities: Vec<Entity> = Vec::new();
        let mut moved = Moved::new();
        for p in planned {
            let of_entity = moved.entry(p.entity).or_default();
            if of_entity.is_empty() {
                entities.push(p.entity);
            }
            of_entity.push(p);
        }
        for entity in &entities {
            let own = &moved[entity];
            let moves: Vec<Move> = own.iter().map(|p| p.mv).collect();
            if is_of_mission(entity.kind) || moves.first().is_some_and(|mv| mv.from().is_none()) {
                write(&mut commit, before, snapshot, *entity, &moves)?;
                continue;
            }
            let table = table(entity.kind).ok_or(ActError::Absent(*entity))?;
            let version = snapshot.version(*entity).ok_or(ActError::Absent(*entity))?;
            let mut change = Change::entity(table, *entity).version(version);
            for p in own {
                let cause = self.cause(snapshot, planned, p);
                change = tell::dress(change.moving(p.mv), p, cause, self.reason, at);
                change = snapshot.plans.dress(change, p, self.reason, at);
                if p.mv.machine() == "session" {
                    change = hold::dress(change, &snapshot.session, &p.mv, snapshot.oldest_clock(), at);
                }
            }
            if let Some(own) = self.own.as_ref().filter(|_| *entity == self.entity) {
                change = own(change);
            }
            change = plan.keep_said(&mut commit, change, *entity, at);
            commit.change(change);
        }
        for row in snapshot.plans.of_moved(&entities) {
            let change = Change::new(&plan::TABLE, row.id).version(row.version);
            commit.change(change.set(plan::Column::Iteration, row.iteration));
        }
        write_along(&mut commit, before, snapshot, &entities, &moved)?;
        self.write_versions(&mut commit, plan);
        set_clocks(&mut commit, before, snapshot, &moved);
        let over = |p: &&Planned| p.mv.machine() == "plan" && p.mv.table().phase(p.mv.to()) == Some(Phase::Terminal);
        for ended in planned.iter().filter(over) {
            let timer = flow::timer(self.session.uuid(), flow::DISMISS_TIMER, ended.entity.to_string(), at, at);
            commit.insert(&timer::TABLE, timer);
        }
        for born in planned.iter().filter(|p| p.mv.row() == "P1").filter_map(|p| snapshot.plan(p.entity.id)) {
            flow::attend_birth(&mut commit, born);
        }
        if let Some(state) = self.while_session {
            commit.change(Change::entity(&session::TABLE, self.session).expecting("session", state));
        }
        self.settle_open_calls(&mut commit, snapshot, planned, &moved);
        self.settle_budgets(&mut commit, plan, &moved);
        self.tell(&mut commit, plan)?;
        for also in &self.also {
            also(&mut commit, snapshot)?;
        }
        Ok(commit)
    }

    /// The content of assets that are READY by this command.
    fn write_versions(&self, commit: &mut Commit, plan: &Plan) {
        let at = commit.at();
        for fresh in &plan.after.said.fresh {
            let entity = Entity::from(fresh.asset);
            let written = plan.planned.iter().any(|p| p.entity == entity && settle::writes_content(&p.mv));
            if let Some(row) = plan.after.missions.assets.get(&entity.id).filter(|_| written) {
                commit.insert(&asset_version::TABLE, fresh.row(row, &self.actor.id, at));
            }
        }
    }

    fn tell(&self, commit: &mut Commit, plan: &Plan) -> Result<(), ActError> {
        let Plan { planned, before, after: snapshot, .. } = plan;
        let scene = tell::mission::Scene {
            before,
            after: &snapshot.missions,
            fresh: &snapshot.said.fresh,
            reason: self.reason,
            actor: &self.actor.id,
        };
        let entries = cascade::record(planned).map_err(|p| ActError::Alone(p.mv.row()))?;
        for entry in entries {
            let mut fields = match is_of_mission(entry.entity.kind) {
                true => tell::mission::payload(&entry, &scene),
                false => match snapshot.call(entry.entity.id).filter(|call| call.step_id.is_some()) {
                    Some(call) => tell::step_call(&entry, call, self.reason, &self.actor.id),
                    None => {
                        let plans = snapshot.plans.tell(&entry, self.reason, &self.actor.id);
                        plans.unwrap_or_else(|| tell::payload(&entry, self.reason, &self.actor.id))
                    }
                },
            };
            let named = |entity: Entity| entity == self.entity || self.then.iter().any(|(e, ..)| *e == entity);
            let own = self.payload.iter().find(|(kind, _)| named(entry.entity) && *kind == entry.kind);
            if let (Some((_, Value::Object(own))), Some(fields)) = (own, fields.as_object_mut()) {
                fields.extend(own.clone());
            }
            if let Some(fields) = fields.as_object_mut() {
                plan.tell_said(entry.entity, entry.kind, fields);
            }
            let mut draft = Draft::raw(entry.kind, entry.entity, RawValue::from_string(fields.to_string())?)?;
            let (agent, turn) = place(snapshot, entry.entity);
            draft.agent_id = agent;
            draft.turn_id = turn;
            draft.moves = entry.moves;
            commit.rune(draft);
        }
        for p in planned.iter().filter(|p| p.mv.row() == "P10") {
            self.tell_mission(commit, snapshot, p.entity)?;
        }
        for p in planned.iter().filter(|p| p.mv.row() == "M17") {
            let row = snapshot.missions.missions.get(&p.entity.id);
            if let Some((row, hop)) = row.and_then(|row| Some((row, stopped_hop(row)?))) {
                let error = json!({"detail": row.attention.as_ref().map(|attention| &attention["detail"])});
                let told = MissionAttention { reason: STOPPED_BY_PERSON.into(), hop_id: Some(hop), error };
                commit.rune(Draft::new(MissionId::from(row.id), &told)?);
            }
        }
        Ok(())
    }

    /// A plan that cannot go on holds up the mission whose hop it carries out.
    fn tell_mission(&self, commit: &mut Commit, snapshot: &Snapshot, plan: Entity) -> Result<(), ActError> {
        let hop = snapshot.plan(plan.id).and_then(|plan| snapshot.missions.hops.get(&plan.hop_id?));
        if let Some(hop) = hop {
            let error = json!({"plan_id": PlanId::from(plan.id), "detail": self.reason});
            let told = MissionAttention { reason: PLAN_BLOCKED.into(), hop_id: Some(HopId::from(hop.id)), error };
            commit.rune(Draft::new(MissionId::from(hop.mission_id), &told)?);
        }
        Ok(())
    }

    /// Why a turn is asked to end. Nothing takes back that its agent shall end with it.
    fn cause(&self, snapshot: &Snapshot, planned: &[Planned], p: &Planned) -> &str {
        let doomed = snapshot.turn(p.entity.id).and_then(doom);
        let orphaned = p.cause.and_then(|at| planned.get(at)).is_some_and(|cause| cause.mv.row() == "L14");
        doomed.unwrap_or(if orphaned { "parent_closed" } else { self.cause.unwrap_or(self.event) })
    }

    /// A turn that ends here gives back what it had set aside, and its agent has used what it had used.
    fn settle_budgets(&self, commit: &mut Commit, plan: &Plan, moved: &Moved<'_>) {
        let snapshot = &plan.after;
        for (p, turn) in plan.ended() {
            flow::settle(commit, turn, flow::unheard(turn));
            let agent = snapshot.agents.get(&turn.agent_id).filter(|_| turn.status != "queued");
            let Some(agent) = agent.filter(|agent| moved.contains_key(&Entity::new(Kind::Agent, agent.id))) else {
                continue;
            };
            let change = Change::entity(&agent::TABLE, AgentId::from(agent.id));
            let change = change.set(agent::Column::Usage, flow::booked(agent, &turn.usage));
            let change = plan.count_own(turn, agent, change, commit.at());
            commit.change(flow::count_late(agent, change, p.mv.event() == LATE));
        }
    }

    /// A turn that goes on while some of its calls end counts them down.
    fn settle_open_calls(&self, commit: &mut Commit, snapshot: &Snapshot, planned: &[Planned], moved: &Moved<'_>) {
        let mut ended: BTreeMap<Uuid, i64> = BTreeMap::new();
        let ends = |p: &&Planned| {
            p.mv.machine() == "tool_call"
                && p.mv.changes_state()
                && p.mv.to() != "awaiting_approval"
                && p.mv.to() != "executing"
        };
        for p in planned.iter().filter(ends) {
            let Some(turn) = snapshot.call(p.entity.id).and_then(|c| c.turn_id) else { continue };
            *ended.entry(turn).or_default() += 1;
        }
        for (id, n) in ended {
            if !moved.contains_key(&Entity::new(Kind::Turn, id)) {
                commit.change(Change::new(&turn::TABLE, id).adding(-n));
            }
        }
    }
}

/// Whether the picture was to blame. Its rows are read one table after the other: an agent may be in a turn in it that
/// had ended by the time the turns were read. What the agent shall be told then has no turn whose rune would tell it
/// (L13, L14), and nothing lands that would be found out by a version. The next look sees both of one moment.
fn is_torn(error: &ActError) -> bool {
    matches!(error, ActError::Alone(_))
}

/// A plan for every hop that could begin with one: born only if the hop does.
fn allot_plans(snapshot: &mut Snapshot) {
    let at = clock::now();
    let ready =
        |hop: &&hop::Model| is_by_plan(hop) && matches!(hop.status.as_str(), "HOP_IMPL_PROPOSED" | "HOP_IMPL_READY");
    let rows = &snapshot.missions;
    let plans: Vec<plan::Model> =
        rows.hops.values().filter(ready).map(|hop| crate::plan::hop::row(rows, &snapshot.session, hop, at)).collect();
    for row in plans {
        let Some(hop) = row.hop_id else { continue };
        snapshot.relations.push((Reach::NewPlanOfHop, Entity::new(Kind::Hop, hop), Entity::new(Kind::Plan, row.id)));
        snapshot.bring(Row::Plan(row));
    }
}

fn table(kind: Kind) -> Option<&'static Table> {
    Some(match kind {
        Kind::Session => &session::TABLE,
        Kind::Agent => &agent::TABLE,
        Kind::Turn => &turn::TABLE,
        Kind::ToolCall => &tool_call::TABLE,
        Kind::Mission => &mission::TABLE,
        Kind::Hop => &hop::TABLE,
        Kind::ToolStep => &tool_step::TABLE,
        Kind::Asset => &asset::TABLE,
        Kind::Plan => &plan::TABLE,
        Kind::Task => &task::TABLE,
    })
}

/// Whether its rows are written as they stand after the command, whatever moved them.
fn is_of_mission(kind: Kind) -> bool {
    matches!(kind, Kind::Mission | Kind::Hop | Kind::ToolStep | Kind::Asset)
}

/// The row of one of these, born or changed.
fn write(
    commit: &mut Commit,
    before: &Missions,
    after: &Snapshot,
    entity: Entity,
    moves: &[Move],
) -> Result<(), ActError> {
    let table = table(entity.kind).ok_or(ActError::Absent(entity))?;
    let (absent, id, rows) = (ActError::Absent(entity), entity.id, &after.missions);
    let mut change = Change::entity(table, entity);
    for mv in moves.iter().filter(|mv| mv.from().is_some()) {
        change = change.moving(*mv);
    }
    let born = moves.first().is_some_and(|mv| mv.from().is_none());
    macro_rules! row {
        ($was:expr, $is:expr) => {{
            let is = $is.ok_or(absent)?.clone();
            match $was.cloned() {
                _ if born => drop(commit.bear(table, entity, moves, is)),
                Some(was) => drop(commit.change(change.version(was.version).between(was, is))),
                None => return Err(ActError::Absent(entity)),
            }
        }};
    }
    match entity.kind {
        Kind::Mission => row!(before.missions.get(&id), rows.missions.get(&id)),
        Kind::Hop => row!(before.hops.get(&id), rows.hops.get(&id)),
        Kind::ToolStep => row!(before.step(id), rows.step(id)),
        Kind::Asset => row!(before.assets.get(&id), rows.assets.get(&id)),
        Kind::ToolCall => row!(None::<&tool_call::Model>, after.call(id)),
        Kind::Plan => row!(None::<&plan::Model>, after.plan(id)),
        _ => return Err(absent),
    }
    Ok(())
}

/// Rows that did not move and are written along: a mission with every command on what belongs to it, so that two of
/// them that saw the same rows cannot both land; others where the command changed them.
fn write_along(
    commit: &mut Commit,
    before: &Missions,
    after: &Snapshot,
    entities: &[Entity],
    moved: &Moved<'_>,
) -> Result<(), ActError> {
    let of: HashSet<Uuid> =
        entities.iter().filter_map(|entity| after.missions.mission_of(*entity)).map(|mission| mission.id).collect();
    let rows = &after.missions;
    let mut along: Vec<Entity> = Vec::new();
    along.extend(rows.missions.values().filter_map(|row| {
        let differs = before.missions.get(&row.id).is_some_and(|was| was != row);
        (differs || of.contains(&row.id)).then(|| Entity::new(Kind::Mission, row.id))
    }));
    let hops = rows.hops.values().filter(|row| before.hops.get(&row.id).is_some_and(|was| was != *row));
    along.extend(hops.map(|row| Entity::new(Kind::Hop, row.id)));
    let steps = rows.steps.iter().filter(|row| before.step(row.id).is_some_and(|was| was != *row));
    along.extend(steps.map(|row| Entity::new(Kind::ToolStep, row.id)));
    let assets = rows.assets.values().filter(|row| before.assets.get(&row.id).is_some_and(|was| was != *row));
    along.extend(assets.map(|row| Entity::new(Kind::Asset, row.id)));
    along.retain(|entity| !moved.contains_key(entity));
    for entity in along {
        write(commit, before, after, entity, &[])?;
        if let Some(mission) = rows.missions.get(&entity.id) {
            commit.change(Change::entity(&mission::TABLE, entity).set(mission::Column::Awaits, mission.awaits.clone()));
        }
    }
    Ok(())
}

/// What has to be looked at later: calls that wait for a person, steps that wait for their next attempt.
fn set_clocks(commit: &mut Commit, before: &Missions, after: &Snapshot, moved: &Moved<'_>) {
    let at = commit.at();
    let born = after.calls.iter().filter(|call| {
        call.step_id.is_some() && call.version == 0 && moved.contains_key(&Entity::new(Kind::ToolCall, call.id))
    });
    for call in born.filter(|call| call.status == "awaiting_approval") {
        if let Some(due) = call.expires_at {
            let entity = CallId::from(call.id).to_string();
            commit.insert(&timer::TABLE, flow::timer(call.session_id, flow::APPROVAL_TIMER, entity, due, at));
        }
    }
    for step in &after.missions.steps {
        let waited = before.step(step.id).and_then(|step| step.next_at);
        if let Some(due) = step.next_at.filter(|due| waited != Some(*due)) {
            let entity = StepId::from(step.id).to_string();
            commit.insert(&timer::TABLE, flow::timer(step.session_id, STEP_TIMER, entity, due, at));
        }
    }
}

/// The agent and turn that a rune about this entity belongs to.
fn place(snapshot: &Snapshot, entity: Entity) -> (Option<AgentId>, Option<TurnId>) {
    match entity.kind {
        Kind::Agent => (Some(AgentId::from(entity.id)), None),
        Kind::Turn => (snapshot.turn(entity.id).map(|t| AgentId::from(t.agent_id)), Some(TurnId::from(entity.id))),
        Kind::ToolCall => {
            let call = snapshot.call(entity.id);
            // A call of a step may act for no agent.
            let agent = call.map(|c| c.agent_id).filter(|agent| !agent.is_nil()).map(AgentId::from);
            (agent, call.and_then(|c| c.turn_id).map(TurnId::from))
        }
        Kind::Task => {
            let task = snapshot.task(entity.id);
            (task.and_then(|t| t.owner_id).map(AgentId::from), task.and_then(|t| t.turn_id).map(TurnId::from))
        }
        _ => (None, None),
    }
}
