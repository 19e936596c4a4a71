//! What commands on missions and on hops share: the caller's words into the command, the revision it was made from,
//! and what the mission does by itself afterwards.

use crate::call::Call;
use crate::idempotency::Shown;
use crate::problem::{Problem, runes_of};
use axum::http::StatusCode;
use instar_core::decide::HopPhase;
use instar_core::id::{AgentId, Entity, HopId, Kind, MissionId, SessionId};
use instar_core::machine::{hop as hop_machine, mission as mission_machine};
use instar_core::rune::Actor;
use instar_core::vocabulary::{self, Raise};
use instar_runtime::{Act, ActError, Missions, mission as flow};
use instar_store::entity::{hop, mission, session};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How often a command looks again when the rows changed under it.
const LOOKS_MAX: usize = 8;

/// A body that was checked field by field, as a whole.
pub(crate) fn read<T: DeserializeOwned>(body: Value) -> Result<T, Problem> {
    serde_json::from_value(body).map_err(|no| Problem::invalid(vec![(String::new(), no.to_string())]))
}

/// Why, as the caller says it.
pub(crate) fn reason<'a>(call: &'a Call, default: &'a str) -> &'a str {
    let said = |name: &str| call.body.get(name).and_then(Value::as_str);
    said("reason").or(said("feedback")).unwrap_or(default)
}

fn feedback(call: &Call) -> Option<String> {
    call.body.get("feedback").and_then(Value::as_str).map(str::to_owned)
}

fn expected(call: &Call) -> Option<i64> {
    call.body.get("revision").and_then(Value::as_i64)
}

/// Only as long as the proposal is the one that the caller has seen.
pub(crate) fn of_revision<'a>(call: &Call, act: Act<'a>) -> Act<'a> {
    act.at_revision(expected(call))
}

/// Only as long as the revision is the one that the caller has seen.
pub(crate) fn same_revision(call: &Call, found: i64) -> Result<(), Problem> {
    match expected(call) {
        Some(expected) if expected != found => Err(ActError::Stale { expected, found }.into()),
        _ => Ok(()),
    }
}

pub(crate) fn on_mission<'a>(call: &'a Call, row: &mission::Model, event: &'a str) -> Act<'a> {
    let (id, session, said) = (MissionId::from(row.id), SessionId::from(row.session_id), feedback(call));
    let mut act = Act::new(session, id, &mission_machine::TABLE, event, call.actor()).reason(reason(call, event));
    act.traceparent.clone_from(&call.traceparent);
    of_revision(call, act).editing(move |snapshot| {
        if let (Some(said), Some(row)) = (&said, snapshot.missions.missions.get_mut(&id.uuid())) {
            row.feedback = Some(said.clone());
        }
    })
}

pub(crate) fn on_hop<'a>(call: &'a Call, row: &hop::Model, event: &'a str) -> Act<'a> {
    let (id, session, said) = (HopId::from(row.id), SessionId::from(row.session_id), feedback(call));
    let mut act = Act::new(session, id, &hop_machine::TABLE, event, call.actor()).reason(reason(call, event));
    act.traceparent.clone_from(&call.traceparent);
    of_revision(call, act).editing(move |snapshot| {
        if let (Some(said), Some(row)) = (&said, snapshot.missions.hops.get_mut(&id.uuid())) {
            row.feedback = Some(said.clone());
        }
    })
}

/// Carries a command out and lets the mission go on. A step that it starts has its call in the same commit.
pub(crate) async fn land<'a>(call: &'a Call, act: Act<'a>, mission: MissionId, shown: Shown) -> Result<(), Problem> {
    let (hub, entity) = (call.api.hub(), act.entity);
    let session = act.session;
    let act = call.mark(act, session, shown);
    if matches!(act.event, "approve_hop_impl" | "execute_hop") {
        inspect(call, HopId::from(entity.id), mission).await?;
    }
    let act = match entity.kind {
        Kind::Hop => hub.bench(&call.api.steps, mission).await?.begin(act, Vec::new()),
        _ => act,
    };
    match act.carry_out(hub).await {
        Ok(done) => hub.follow(&runes_of(done)),
        Err(ActError::Refused(no)) => return Err(overtaken(call, entity, Problem::refused(&no)).await),
        Err(error) => return Err(error.into()),
    }
    advance(call, mission).await;
    Ok(())
}

/// Steps that cannot be run any more are not approved or executed: they go back to whoever implements the hop.
async fn inspect(call: &Call, hop: HopId, mission: MissionId) -> Result<(), Problem> {
    let hub = call.api.hub();
    let found = hub.inspect_hop(hop, expected(call), &Actor::system("api")).await?;
    if found.wrong.is_empty() {
        return Ok(());
    }
    hub.follow(&found.runes);
    advance(call, mission).await;
    let status = hub.store().hop(hop).await?.map(|hop| hop.status).unwrap_or_default();
    let why = format!(
        "the steps cannot be run any more: {}; they are not accepted any longer, and the hop is {status}",
        found.wrong.join("; ")
    );
    Err(Problem::conflict("validation_failed", why).with("errors", found.wrong).with("hop_status", status))
}

/// Whoever comes too late is told which revision there is by now.
async fn overtaken(call: &Call, entity: Entity, problem: Problem) -> Problem {
    let store = call.api.store();
    let revision = match entity.kind {
        Kind::Mission => store.mission(entity.id.into()).await.ok().flatten().map(|row| row.revision),
        Kind::Hop => store.hop(entity.id.into()).await.ok().flatten().map(|row| row.revision),
        _ => None,
    };
    match revision {
        Some(revision) => problem.with("revision", revision),
        None => problem,
    }
}

/// What the mission does by itself now. Should that fail, a sweep finds it.
pub(crate) async fn advance(call: &Call, mission: MissionId) {
    if let Err(error) = call.api.hub().advance_mission(mission, Actor::system("api")).await {
        tracing::debug!(%mission, %error, "the mission did not go on by itself; a sweep will find it");
    }
}

/// A command that is worked out from the rows as they are: once more if they changed meanwhile.
///
/// Answers what it was done to, or what it has made.
pub(crate) async fn again<'a, T: Into<Entity> + Copy>(
    call: &'a Call,
    mission: MissionId,
    hop: Option<HopId>,
    status: StatusCode,
    build: impl Fn(&Missions) -> Result<(Act<'a>, T), ActError>,
) -> Result<T, Problem> {
    let hub = call.api.hub();
    let about = hop.map_or(Entity::from(mission), Entity::from);
    for _ in 0..LOOKS_MAX {
        let rows = Missions::of(hub.store().mission_rows(mission, hop).await?);
        let (mut act, value) = build(&rows)?;
        act.traceparent.clone_from(&call.traceparent);
        let session = act.session;
        let act = call.mark(act, session, Shown::with(status, value));
        match act.carry_out(hub).await {
            Ok(done) => {
                hub.follow(&runes_of(done));
                return Ok(value);
            }
            Err(ActError::Contended) => continue,
            Err(ActError::Refused(no)) => return Err(overtaken(call, about, Problem::refused(&no)).await),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Problem::busy("others keep changing the same rows; try again"))
}

/// A command in the older vocabulary: its events land together.
pub(crate) async fn older(
    call: &Call,
    command: vocabulary::Command,
    mission: &mission::Model,
    hop: Option<&hop::Model>,
    shown: Shown,
) -> Result<(), Problem> {
    let state = hop.and_then(|hop| hop_machine::State::parse(&hop.status));
    let failed = hop.and_then(|hop| hop.phase.as_deref()).and_then(HopPhase::parse);
    let raised =
        vocabulary::translate(command, state, failed).map_err(|no| Problem::conflict("not_now", no.to_string()))?;
    let mut events = raised.into_iter();
    let act = match (events.next(), hop) {
        (Some(Raise::Mission(event)), _) => on_mission(call, mission, event.token()),
        (Some(Raise::Hop(event)), Some(hop)) => on_hop(call, hop, event.token()),
        _ => return Err(Problem::conflict("not_now", "there is no hop to do this to")),
    };
    let act = events.fold(act, |act, raise| match (raise, hop) {
        (Raise::Hop(event), Some(hop)) => act.then(HopId::from(hop.id), &hop_machine::TABLE, event.token()),
        (Raise::Mission(event), _) => act.then(MissionId::from(mission.id), &mission_machine::TABLE, event.token()),
        (Raise::Hop(_), None) => act,
    });
    land(call, act, MissionId::from(mission.id), shown).await
}

/// Whether an agent can be given a mission: it is of the session, lives, and has the tools by which it answers.
pub(crate) async fn fit_agent(call: &Call, session: &session::Model, id: AgentId) -> Result<(), Problem> {
    let row = call.api.store().agent(id).await?.filter(|row| row.session_id == session.id);
    let Some(row) = row else {
        return Err(Problem::field("agent_id", format!("there is no agent {id} in this session")));
    };
    if matches!(row.lifecycle.as_str(), "terminated" | "failed") {
        return Err(Problem::field("agent_id", format!("agent {id} is {}: give it to another one", row.lifecycle)));
    }
    let held = row.tools();
    let missing: Vec<&str> = flow::TOOLS.into_iter().filter(|tool| !held.iter().any(|name| name == tool)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let detail = format!("agent {id} cannot answer: give it the tools {} first", missing.join(", "));
    Err(Problem::field("agent_id", detail))
}
