//! What becomes of work whose process died, whose session or agent was stopped, whose time ran out or
//! whose hint was lost: through worker, runner and scheduler, on both backends.
//!
//! The dead are played by the test: it registers them, writes what they would have written, and
//! stops renewing.

use anyhow::{Context as _, Result, ensure};
use instar_core::cascade::Fact;
use instar_core::decide::TURN_ATTEMPTS_MAX;
use instar_core::id::{AgentId, CallId, Entity, SessionId, TurnId, WorkerId};
use instar_core::machine::{
    Table, agent_drive, agent_lifecycle, session as session_machine, tool_call as call_machine, turn as turn_machine,
};
use instar_core::rune::Rune;
use instar_core::rune::payload::ResultStatus;
use instar_runtime::config::Config;
use instar_runtime::drain::{Drain, Drained};
use instar_runtime::flow::{self, Asked, Ending, Fatal, Mode, Outcome, Spoken, Verdict};
use instar_runtime::{Act, ActError, Context, Done, Hub, Ready};
use instar_store::entity::{agent, session, timer, tool_call, turn};
use instar_store::{Answer, Commit, Store};
use instar_testkit::model::{Reply, Script};
use instar_testkit::wait;
use instar_tests::cast::{self, fresh, land, person};
use instar_tests::fleet::tool_turn;
use instar_tests::stage::{self, Stage};
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{audit, on_both};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, IntoActiveModel, QueryFilter, Set};
use serde_json::{Value, json};
use std::time::Duration;

/// Long enough to write a few commits, short enough to wait for.
const LEASE: Duration = Duration::from_millis(400);

async fn members(store: &Store, config: Value) -> Result<(SessionId, AgentId)> {
    let session = cast::session(store).await?;
    Ok((session, cast::agent_like(store, session, config).await?))
}

async fn session_row(store: &Store, id: SessionId) -> Result<session::Model> {
    session::Entity::find_by_id(id.uuid()).one(store.db()).await?.context("session")
}

async fn agent_row(store: &Store, id: AgentId) -> Result<agent::Model> {
    store.agent(id).await?.context("agent")
}

async fn turn_row(store: &Store, id: TurnId) -> Result<turn::Model> {
    store.turn(id).await?.context("turn")
}

async fn call_row(store: &Store, id: CallId) -> Result<tool_call::Model> {
    store.call(id).await?.context("call")
}

async fn head(store: &Store, id: SessionId) -> Result<i64> {
    Ok(session_row(store, id).await?.head_seq)
}

/// Stored, and nobody is told.
async fn whisper(store: &Store, session: SessionId, agent: AgentId, text: &str) -> Result<TurnId> {
    let (rows, agent) = (session_row(store, session).await?, agent_row(store, agent).await?);
    let sent = flow::message(&rows, &agent, false, text, person(), None)?;
    land(store, sent.commit).await?;
    sent.turn.context("a turn")
}

/// A process that will not renew its lease.
async fn doomed(store: &Store, service: &str) -> Result<WorkerId> {
    let id = fresh();
    store.register_worker(id, service, LEASE, json!({})).await?;
    Ok(id)
}

fn minutes() -> chrono::Duration {
    chrono::Duration::minutes(5)
}

fn spoken(text: &str) -> Spoken {
    Spoken { text: text.into(), ..Spoken::default() }
}

/// A turn that a worker claimed, with the rows as that worker knows them.
struct Claimed {
    worker: WorkerId,
    turn: turn::Model,
    agent: agent::Model,
}

async fn claimed(store: &Store, agent: AgentId, id: TurnId, worker: WorkerId) -> Result<Claimed> {
    let commit = flow::claim(
        &agent_row(store, agent).await?,
        &turn_row(store, id).await?,
        &[],
        None,
        worker,
        minutes(),
        Vec::new(),
    )?;
    land(store, commit).await?;
    Ok(Claimed { worker, turn: turn_row(store, id).await?, agent: agent_row(store, agent).await? })
}

impl Claimed {
    /// Everything that a worker can still want to write about a turn it thinks it has.
    fn late_writes(&self) -> Result<Vec<(&'static str, Commit)>> {
        let Claimed { worker, turn, agent } = self;
        let ending = || Ending {
            turn,
            agent,
            worker: *worker,
            waiting: &[],
            pause: chrono::Duration::seconds(2),
            calls_max: 10,
            letters_max: 0,
            day: flow::Day::default(),
        };
        let soon = chrono::Utc::now() + chrono::Duration::seconds(1);
        Ok(vec![
            ("checkpoint", flow::checkpoint(turn, *worker, "late", 0)?),
            ("calls", flow::calls(turn, *worker, &spoken("late"), vec![asked("echo", json!({"text": "late"}))])?),
            ("hand_back", flow::hand_back(turn, *worker, &spoken("late"), 0)?),
            ("park", flow::park(turn, *worker, soon, "rate_limited", "late", &spoken("late"))?),
            ("complete", flow::complete(ending(), &spoken("late"))?.0),
            ("interrupt", flow::interrupt(ending(), "interrupt", "late", &spoken("late"))?.0),
            ("fail", flow::fail(ending(), "stream_error", "late", "late", &spoken("late"), Fatal::Drive)?.0),
        ])
    }

    async fn writes_nothing(&self, store: &Store) -> Result<()> {
        let session = SessionId::from(self.turn.session_id);
        for (what, commit) in self.late_writes()? {
            let runes = audit::runes(store, session).await?.len();
            let answer = store.commit(commit).await?;
            ensure!(!matches!(answer, Answer::Moved(_)), "{what} of a dead worker landed: {answer:?}");
            // The new owner may write meanwhile; none of it is the dead one's.
            let dead = self.worker.to_string();
            let new = audit::runes(store, session).await?.split_off(runes);
            ensure!(new.iter().all(|rune| rune.actor.id != dead), "{what}: {new:?}");
        }
        Ok(())
    }
}

fn asked(name: &str, arguments: Value) -> Asked {
    Asked {
        id: fresh(),
        provider_call_id: Some(format!("c_{name}")),
        name: name.into(),
        arguments,
        digest: "d".into(),
        effect: "read_only",
        verdict: Verdict::Free,
    }
}

async fn command(
    troupe: &Troupe,
    session: SessionId,
    entity: impl Into<Entity>,
    table: &'static Table,
    event: &str,
) -> Result<Vec<Rune>> {
    let act = Act::new(session, entity, table, event, person());
    match act.carry_out(&troupe.context.hub).await? {
        Done::Moved { runes } => {
            troupe.context.hub.follow(&runes);
            Ok(runes)
        }
        Done::Ignored => Ok(Vec::new()),
    }
}

/// Words for a while: `n` pieces, one every 50 ms.
fn talk(n: usize) -> Reply {
    Reply::chunks((0..n).map(|i| format!("word{i} "))).slow(Duration::ZERO, Duration::from_millis(50))
}

fn kinds(runes: &[Rune]) -> Vec<&str> {
    runes.iter().map(|rune| rune.kind.as_str()).collect()
}

async fn a_turn_whose_owner_died_goes_on_and_nothing_the_dead_one_writes_lands(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let (session, agent) = members(store, json!({})).await?;
    let id = whisper(store, session, agent, "hello").await?;
    let zombie = claimed(store, agent, id, doomed(store, "agent-worker").await?).await?;
    assert_eq!((zombie.turn.epoch, zombie.turn.attempts), (1, 1));

    let script = Script::function(|_| Reply::text("done").slow(Duration::from_millis(1_500), Duration::ZERO));
    let troupe = Troupe::start(&stage, script, Config::default()).await?;
    // While the new owner streams.
    wait::until_ok(WITHIN, || async {
        let turn = troupe.turn(id).await?;
        ensure!(turn.epoch > zombie.turn.epoch, "epoch {}", turn.epoch);
        Ok(())
    })
    .await?;
    zombie.writes_nothing(store).await?;
    let ended = troupe.ended(id).await?;
    assert_eq!((ended.status.as_str(), ended.output.as_deref()), ("completed", Some("done")));
    assert_eq!((ended.epoch, ended.attempts), (2, 2));
    // And after the end.
    let before = (head(store, session).await?, turn_row(store, id).await?, agent_row(store, agent).await?);
    zombie.writes_nothing(store).await?;
    assert_eq!((head(store, session).await?, turn_row(store, id).await?, agent_row(store, agent).await?), before);
    let runes = audit::runes(store, session).await?;
    ensure!(kinds(&runes).contains(&"turn.recovered"), "{:?}", kinds(&runes));
    troupe.audit(session).await
}

async fn a_worker_that_loses_its_lease_lets_go_and_the_turn_goes_on_under_a_new_epoch(stage: Stage) -> Result<()> {
    let script = Script::function(|_| talk(40));
    let mut config = Config::default();
    // Long enough that nobody but this test takes it away.
    config.lease.ttl_ms = 1_500;
    let troupe = Troupe::start(&stage, script, config).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({})).await?;
    let id = troupe.send(agent, "talk", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(id, "streaming").await?;
    let first = agent_row(store, agent).await?.owner.context("an owner")?;
    store.release_lease(first.into()).await?;
    let ended = troupe.ended(id).await?;
    assert_eq!((ended.status.as_str(), ended.epoch, ended.attempts), ("completed", 2, 2));
    ensure!(agent_row(store, agent).await?.owner != Some(first), "it registered as a new worker");
    troupe.audit(session).await
}

/// A turn that has cost all the workers that it may, of an agent that takes no more than one other.
async fn poisoned(store: &Store, session: SessionId, agent: AgentId) -> Result<TurnId> {
    let id = whisper(store, session, agent, "poison").await?;
    claimed(store, agent, id, doomed(store, "agent-worker").await?).await?;
    for _ in 1..TURN_ATTEMPTS_MAX {
        let worker = doomed(store, "agent-worker").await?;
        let (agent, turn) = (agent_row(store, agent).await?, turn_row(store, id).await?);
        land(store, flow::recover(&agent, &turn, worker, flow::Loss::Died, "")?).await?;
    }
    assert_eq!(turn_row(store, id).await?.attempts, i64::from(TURN_ATTEMPTS_MAX));
    Ok(id)
}

async fn a_turn_that_costs_too_many_workers_ends_with_an_error(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let (session, agent) = members(store, json!({})).await?;
    let id = poisoned(store, session, agent).await?;
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::text("never")), Config::default()).await?;
    let ended = troupe.ended(id).await?;
    assert_eq!(ended.status, "error");
    assert_eq!(ended.error.context("an error")?["error_type"], "worker_lost");
    let row = agent_row(store, agent).await?;
    assert_eq!((row.lifecycle.as_str(), row.drive.as_str(), row.owner), ("idle", "errored", None));
    assert_eq!(troupe.model.requests().len(), 0);
    troupe.audit(session).await
}

/// What a dead worker had said of an answer is told by whoever finds the turn, and is kept where nobody says it again.
async fn what_a_dead_worker_had_said_is_kept(stage: Stage) -> Result<()> {
    const SAID: &str = "once upon a time";
    let store = &stage.store;
    let hub = Hub::new(store.clone(), stage::deaf()?);
    let mut turns = Vec::new();
    for way in ["recovered", "interrupted", "given up"] {
        let (session, agent) = members(store, json!({})).await?;
        let id = match way {
            "given up" => poisoned(store, session, agent).await?,
            _ => {
                let id = whisper(store, session, agent, "tell me").await?;
                claimed(store, agent, id, doomed(store, "agent-worker").await?).await?;
                id
            }
        };
        let (turn, owner) = (turn_row(store, id).await?, agent_row(store, agent).await?.owner.context("an owner")?);
        for (piece, index) in [(&SAID[..10], 0), (&SAID[10..], 10)] {
            land(store, flow::checkpoint(&turn, owner.into(), piece, index)?).await?;
        }
        if way == "interrupted" {
            let act = Act::new(session, id, &turn_machine::TABLE, "request_control", person())
                .reason("enough")
                .telling("turn.control_requested", json!({"action": "interrupt"}));
            ensure!(matches!(act.carry_out(&hub).await?, Done::Moved { .. }), "nothing was asked");
        }
        turns.push((way, session, id));
    }
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::text("done")), Config::default()).await?;
    for (way, session, id) in turns {
        let ended = troupe.ended(id).await?;
        let runes = audit::runes(store, session).await?;
        let told = |kind: &str| {
            let rune =
                runes.iter().rfind(|rune| rune.kind.as_str() == kind).with_context(|| format!("{way}: no {kind}"))?;
            anyhow::Ok(serde_json::from_str::<Value>(rune.payload.get())?["partial_output"].clone())
        };
        match way {
            "recovered" => {
                assert_eq!((ended.status.as_str(), ended.output.as_deref()), ("completed", Some("done")));
                assert_eq!(told("turn.recovered")?, SAID);
            }
            "interrupted" => {
                assert_eq!((ended.status.as_str(), ended.output.as_deref()), ("interrupted", Some(SAID)));
                assert_eq!((told("turn.recovered")?, told("turn.interrupted")?), (json!(SAID), json!(SAID)));
            }
            _ => {
                assert_eq!(ended.status, "error");
                assert_eq!(told("turn.error")?, SAID);
            }
        }
        if way != "recovered" {
            let said = store.messages(ended.agent_id.into(), 10).await?;
            ensure!(said.iter().any(|message| message.content == SAID), "{way}: {said:?}");
        }
        troupe.audit(session).await?;
    }
    assert_eq!(troupe.model.requests().len(), 1, "one of them was made again");
    Ok(())
}

/// What a person, or the end of a parent, asked of an agent while it was in a turn is so when that turn has ended, also
/// when it ends because no worker outlives it.
async fn what_was_asked_of_an_agent_outlives_every_worker_of_its_turn(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let hub = Hub::new(store.clone(), stage::deaf()?);
    let ask = async |session: SessionId, entity: Entity, table: &'static Table, event: &str| {
        // The message waits behind the turn, and shall not be begun on.
        let row = turn::Entity::find().filter(turn::Column::SessionId.eq(session.uuid())).one(store.db()).await?;
        let agent = row.context("a turn")?.agent_id.into();
        let (rows, row) = (session_row(store, session).await?, agent_row(store, agent).await?);
        land(store, flow::message(&rows, &row, true, "and then", person(), None)?.commit).await?;
        match Act::new(session, entity, table, event, person()).carry_out(&hub).await? {
            Done::Moved { .. } => anyhow::Ok(()),
            Done::Ignored => anyhow::bail!("{event} was ignored"),
        }
    };
    let mut asked = Vec::new();
    for event in ["kill", "parent_closed", "stop", "pause_requested"] {
        let (session, agent) = members(store, json!({})).await?;
        let parent = agent;
        let agent = match event {
            "parent_closed" => cast::child(store, session, parent).await?,
            _ => agent,
        };
        let turn = poisoned(store, session, agent).await?;
        match event {
            "kill" => ask(session, agent.into(), &agent_lifecycle::TABLE, "kill").await?,
            "parent_closed" => ask(session, parent.into(), &agent_lifecycle::TABLE, "kill").await?,
            "stop" => ask(session, agent.into(), &agent_drive::TABLE, "stop").await?,
            _ => ask(session, session.into(), &session_machine::TABLE, event).await?,
        }
        asked.push((event, session, agent, turn));
    }
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::text("never")), Config::default()).await?;
    for (event, session, agent, turn) in asked {
        let ended = troupe.ended(turn).await?;
        assert_eq!(ended.error.context("an error")?["error_type"], "worker_lost", "{event}");
        let row = agent_row(store, agent).await?;
        let (lifecycle, drive) = match event {
            "kill" | "parent_closed" => ("terminated", "errored"),
            "stop" => ("idle", "stopped"),
            _ => ("idle", "errored"),
        };
        assert_eq!((row.lifecycle.as_str(), row.drive.as_str(), row.owner), (lifecycle, drive, None), "{event}");
        if event == "pause_requested" {
            assert_eq!(session_row(store, session).await?.status, "paused");
        }
        let live = troupe.live_turn(agent).await?;
        ensure!(live.is_none_or(|turn| turn.status == "queued" && event == "stop"), "{event}: it goes on");
        let (_, wrong) = audit::log(store, session).await?;
        ensure!(wrong.is_empty(), "{event}: {wrong:#?}");
    }
    assert_eq!(troupe.model.requests().len(), 0);
    Ok(())
}

/// A turn with one call of `tool` that a runner has begun; both its worker and that runner are dead.
async fn abandoned(troupe: &Troupe, tool: &str, effect: &'static str) -> Result<(SessionId, TurnId, CallId)> {
    let store = troupe.context.hub.store();
    let spec = troupe.tools.get(tool).context("the tool")?;
    let arguments = json!({"token": "once"});
    for _ in 0..5 {
        let (session, agent) = members(store, json!({"tools": [tool]})).await?;
        let id = whisper(store, session, agent, "use it").await?;
        let worker = doomed(store, "agent-worker").await?;
        // The troupe's own worker may find the turn first if this process was held up.
        let Ok(claimed) = claimed(store, agent, id, worker).await else { continue };
        let mut call = asked(tool, arguments.clone());
        (call.digest, call.effect, call.verdict) = (spec.digest(&arguments), effect, Verdict::Approved);
        let call_id = call.id;
        land(store, flow::calls(&claimed.turn, worker, &spoken(""), vec![call])?).await?;
        let runner = doomed(store, "tool-runner").await?;
        if let Answer::Moved(_) = store.commit(flow::start(&call_row(store, call_id).await?, runner)?).await? {
            return Ok((session, id, call_id));
        }
    }
    anyhow::bail!("the troupe was always first")
}

async fn a_call_that_must_not_be_risked_twice_ends_as_unknown_and_a_person_says_what_it_was(
    stage: Stage,
) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let store = troupe.context.hub.store();
    let (session, id, call) = abandoned(&troupe, "charge", "at_most_once").await?;
    let ended = troupe.ended(id).await?;
    assert_eq!(ended.status, "completed", "the model is told and decides: {:?}", ended.error);
    let row = call_row(store, call).await?;
    assert_eq!((row.status.as_str(), row.result_status.as_deref(), row.attempts), ("error_result", Some("unknown"), 1));
    assert_eq!(troupe.tool.requests(), 0, "it was not run again");
    let told = troupe.model.requests().last().context("a request")?.tool_results();
    ensure!(told.len() == 1 && told[0].content.contains("not known"), "{told:?}");

    // The dead runner's late result changes nothing.
    let late =
        Outcome { status: ResultStatus::Success, output: json!("late"), error: None, duration_ms: 1, truncated: false };
    let as_known = tool_call::Model { status: "executing".into(), ..row.clone() };
    let answer = store.commit(flow::result(&as_known, cast::system(), &late)?).await?;
    ensure!(!matches!(answer, Answer::Moved(_)), "{answer:?}");

    let resolve = || {
        Act::new(session, call, &call_machine::TABLE, "resolve", person())
            .telling("tool.resolved", json!({"outcome": "success", "output": {"id": 7}}))
    };
    let Done::Moved { runes } = resolve().carry_out(&troupe.context.hub).await? else { anyhow::bail!("not resolved") };
    assert_eq!(kinds(&runes), ["tool.resolved"]);
    assert_eq!(call_row(store, call).await?.status, "error_result", "it stays ended");
    let refused = command(&troupe, session, call, &call_machine::TABLE, "approved").await;
    ensure!(matches!(refused.map_err(|e| e.downcast::<ActError>()), Err(Ok(ActError::Refused(_)))));
    troupe.audit(session).await
}

async fn a_call_that_may_be_repeated_runs_again_under_the_same_key(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let store = troupe.context.hub.store();
    let (session, id, call) = abandoned(&troupe, "put", "idempotent").await?;
    let ended = troupe.ended(id).await?;
    assert_eq!(ended.status, "completed", "{:?}", ended.error);
    let row = call_row(store, call).await?;
    assert_eq!((row.status.as_str(), row.attempts), ("completed_result", 2));
    let effects = troupe.tool.ledger().effects();
    let key = call.to_string();
    assert_eq!(effects.iter().map(|e| (e.name.as_str(), e.key.as_deref())).collect::<Vec<_>>(), [("put", Some(&*key))]);
    let runes = audit::runes(store, session).await?;
    let of_call: Vec<_> = runes.iter().filter(|rune| rune.entity.id == call.uuid()).collect();
    let reclaimed = of_call.iter().find(|rune| rune.kind == "tool.reclaimed").context("reclaimed")?;
    let payload: Value = serde_json::from_str(reclaimed.payload.get())?;
    assert_eq!(payload["idempotency_key"], key);
    assert_eq!(of_call.iter().filter(|rune| rune.kind == "tool.started").count(), 2);
    troupe.audit(session).await
}

/// The database refuses whatever anybody writes to calls of `charge` that a runner has begun.
async fn poison(store: &Store) -> Result<()> {
    let statements: &[&str] = match store.is_postgres() {
        true => &[
            "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poisoned'; END $$",
            "CREATE TRIGGER poisoned BEFORE UPDATE ON tool_calls FOR EACH ROW \
             WHEN (OLD.owner IS NOT NULL AND OLD.name = 'charge') EXECUTE FUNCTION poison()",
        ],
        false => &["CREATE TRIGGER poisoned BEFORE UPDATE ON tool_calls WHEN OLD.owner IS NOT NULL AND \
             OLD.name = 'charge' BEGIN SELECT RAISE(ABORT, 'poisoned'); END"],
    };
    for statement in statements {
        store.db().execute_unprepared(statement).await?;
    }
    Ok(())
}

async fn a_call_that_cannot_be_settled_does_not_keep_the_others_from_it(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let store = troupe.context.hub.store();
    poison(store).await?;
    let (_, _, stuck) = abandoned(&troupe, "charge", "at_most_once").await?;
    let (_, turn, call) = abandoned(&troupe, "put", "idempotent").await?;
    ensure!(stuck < call, "it is looked at first");
    let ended = troupe.ended(turn).await?;
    assert_eq!((ended.status.as_str(), call_row(store, call).await?.attempts), ("completed", 2));
    assert_eq!(call_row(store, stuck).await?.status, "executing");
    Ok(())
}

async fn an_approval_that_nobody_gives_is_a_timeout_and_no_denial(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.worker.approval_timeout_ms = 300;
    let troupe = Troupe::start(&stage, tool_turn(), config).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let id = troupe.send(agent, "charge five", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(id).await?.status, "completed");
    let call = troupe.calls(id).await?.remove(0);
    assert_eq!((call.status.as_str(), call.result_status.as_deref()), ("timeout_result", Some("timeout")));
    assert_eq!(troupe.tool.requests(), 0);
    let told = troupe.model.requests().last().context("a request")?.tool_results();
    ensure!(told.len() == 1 && told[0].content.contains("in time"), "{told:?}");
    ensure!(!told[0].content.contains("denied"), "{told:?}");
    let runes = audit::runes(store, session).await?;
    ensure!(!kinds(&runes).contains(&"tool.denied"));
    // Too late.
    let late = command(&troupe, session, CallId::from(call.id), &call_machine::TABLE, "approved").await;
    ensure!(matches!(late.map_err(|e| e.downcast::<ActError>()), Err(Ok(ActError::Refused(_)))));
    wait::until_ok(WITHIN, || async {
        let left = timer::Entity::find().filter(timer::Column::SessionId.eq(session.uuid())).all(store.db()).await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

async fn the_clock_of_an_approval_stands_still_while_its_session_is_paused(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.worker.approval_timeout_ms = 1_000;
    let troupe = Troupe::start(&stage, tool_turn(), config).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let id = troupe.send(agent, "charge six", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(id, "tool_executing").await?;
    command(&troupe, session, session, &session_machine::TABLE, "pause_requested").await?;
    let clock = || async {
        let timer = timer::Entity::find().filter(timer::Column::SessionId.eq(session.uuid())).one(store.db()).await?;
        Ok::<_, anyhow::Error>(timer.context("the timer")?.due_at)
    };
    let due = clock().await?;
    wait::until_ok(WITHIN, || async {
        ensure!(clock().await? > due, "the timer was not due yet");
        Ok(())
    })
    .await?;
    assert_eq!(troupe.calls(id).await?[0].status, "awaiting_approval");
    command(&troupe, session, session, &session_machine::TABLE, "resume_requested").await?;
    assert_eq!(troupe.ended(id).await?.status, "completed");
    assert_eq!(troupe.calls(id).await?[0].result_status.as_deref(), Some("timeout"));
    troupe.audit(session).await
}

async fn input_of_a_paused_session_waits_and_starts_when_it_is_resumed(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::function(|r| Reply::text(r.user_text())), Config::default()).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({})).await?;
    let (other_session, other) = members(store, json!({})).await?;
    command(&troupe, session, session, &session_machine::TABLE, "pause_requested").await?;
    let id = troupe.send(agent, "held", Mode::Queue).await?.context("a turn")?;
    ensure!(troupe.send(agent, "held too", Mode::Queue).await?.is_none());
    // What was told of later is over: the hint for the held turn was heard and came to nothing.
    for text in ["one", "two"] {
        let turn = troupe.send(other, text, Mode::Queue).await?.context("a turn")?;
        assert_eq!(troupe.ended(turn).await?.status, "completed");
    }
    let before = head(store, session).await?;
    assert_eq!(troupe.turn(id).await?.status, "queued");
    assert_eq!(troupe.model.requests().len(), 2, "nothing of the paused session was asked");
    // Nor does the sweep take it up.
    let swept = whisper(store, other_session, other, "swept").await?;
    assert_eq!(troupe.ended(swept).await?.status, "completed");
    assert_eq!((troupe.turn(id).await?.status.as_str(), head(store, session).await?), ("queued", before));

    command(&troupe, session, session, &session_machine::TABLE, "resume_requested").await?;
    let waiting = troupe.turn(id).await?;
    troupe.context.hub.wake_turn(Ready::of(&waiting, "released"), None, None);
    assert_eq!(troupe.ended(id).await?.status, "completed");
    wait::until_ok(WITHIN, || async {
        ensure!(troupe.live_turn(agent).await?.is_none() && store.waiting(agent).await?.is_empty());
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

async fn a_pause_that_interrupts_ends_what_runs_and_what_it_said_is_in_the_history(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.worker.checkpoint_ms = 50;
    let script = Script::function(|r| if r.user_text() == "talk" { talk(400) } else { Reply::text("back") });
    let troupe = Troupe::start(&stage, script, config).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({})).await?;
    let id = troupe.send(agent, "talk", Mode::Queue).await?.context("a turn")?;
    spoke(store, session).await?;
    let act = Act::new(session, session, &session_machine::TABLE, "pause_requested", person());
    let Done::Moved { runes } = act.given(Fact::InterruptInFlight).carry_out(&troupe.context.hub).await? else {
        anyhow::bail!("not paused")
    };
    troupe.context.hub.follow(&runes);
    assert_eq!(troupe.ended(id).await?.status, "interrupted");
    assert_eq!(agent_row(store, agent).await?.lifecycle, "idle");
    command(&troupe, session, session, &session_machine::TABLE, "resume_requested").await?;
    let next = troupe.send(agent, "and now?", Mode::Queue).await?.context("a turn")?;
    let next = troupe.ended(next).await?;
    assert_eq!((next.status.as_str(), next.output.as_deref()), ("completed", Some("back")));
    troupe.audit(session).await
}

/// Until something of an answer was kept.
async fn spoke(store: &Store, session: SessionId) -> Result<()> {
    wait::until_ok(WITHIN, || async {
        let runes = audit::runes(store, session).await?;
        ensure!(kinds(&runes).contains(&"turn.assistant_delta"), "{:?}", kinds(&runes));
        Ok(())
    })
    .await
}

fn hasty() -> Config {
    let mut config = Config::default();
    config.worker.interrupt_grace_ms = 200;
    config.worker.checkpoint_ms = 50;
    config
}

/// A turn that still runs may write meanwhile; of the message there is nothing.
async fn refuses_messages(troupe: &Troupe, session: SessionId, agent: AgentId, words: &str) -> Result<()> {
    let store = troupe.context.hub.store();
    let heard = || async {
        let runes = audit::runes(store, session).await?;
        let kinds = ["agent.message_received", "turn.queued", "agent.drive_started"];
        Ok::<_, anyhow::Error>(runes.iter().filter(|rune| kinds.contains(&rune.kind.as_str())).count())
    };
    let (before, said) = (heard().await?, store.messages(agent, 100).await?.len());
    let refused = troupe.send(agent, "hello?", Mode::Queue).await;
    let why = format!("{:?}", refused.as_ref().err().map(ToString::to_string));
    ensure!(refused.is_err() && why.contains(words), "{refused:?}");
    assert_eq!(heard().await?, before);
    let after = store.messages(agent, 100).await?;
    ensure!(after.len() >= said && after.iter().all(|message| message.content != "hello?"), "{after:?}");
    Ok(())
}

async fn a_stop_interrupts_the_turn_that_runs_and_the_agent_takes_no_more(stage: Stage) -> Result<()> {
    // It does not wait as long as an interrupt may.
    let mut config = hasty();
    (config.worker.interrupt_grace_ms, config.worker.stop_grace_ms) = (600_000, 200);
    let troupe = Troupe::start(&stage, Script::function(|_| talk(4_000)), config).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({})).await?;
    let id = troupe.send(agent, "talk", Mode::Queue).await?.context("a turn")?;
    spoke(store, session).await?;
    command(&troupe, session, agent, &agent_drive::TABLE, "stop").await?;
    refuses_messages(&troupe, session, agent, "stopped").await?;
    let ended = troupe.ended(id).await?;
    assert_eq!(ended.status, "interrupted");
    ensure!(ended.output.as_deref().is_some_and(|text| text.starts_with("word0 ")), "{:?}", ended.output);
    let row = agent_row(store, agent).await?;
    assert_eq!((row.lifecycle.as_str(), row.drive.as_str()), ("idle", "stopped"));
    refuses_messages(&troupe, session, agent, "relaunch").await?;
    // Relaunched, it works again.
    troupe.model.set_script(Script::function(|_| Reply::text("back")));
    command(&troupe, session, agent, &agent_drive::TABLE, "start").await?;
    let next = troupe.send(agent, "hello again", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(next).await?.status, "completed");
    troupe.audit(session).await
}

async fn a_stop_while_a_call_waits_for_a_person_ends_call_and_turn(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), hasty()).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let id = troupe.send(agent, "charge seven", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(id, "tool_executing").await?;
    command(&troupe, session, agent, &agent_drive::TABLE, "stop").await?;
    assert_eq!(troupe.ended(id).await?.status, "interrupted");
    let call = troupe.calls(id).await?.remove(0);
    assert_eq!((call.status.as_str(), call.result_status.as_deref()), ("cancelled_result", Some("cancelled")));
    assert_eq!(agent_row(store, agent).await?.drive, "stopped");
    assert_eq!((troupe.tool.requests(), troupe.model.requests().len()), (0, 1));
    troupe.audit(session).await
}

async fn an_agent_is_ended_after_its_turn_or_at_once(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::function(|_| talk(400)), hasty()).await?;
    let store = troupe.context.hub.store();
    for event in ["kill", "kill_forced"] {
        let (session, agent) = members(store, json!({})).await?;
        let id = troupe.send(agent, "talk", Mode::Queue).await?.context("a turn")?;
        spoke(store, session).await?;
        ensure!(troupe.send(agent, "and then", Mode::Queue).await?.is_none());
        command(&troupe, session, agent, &agent_lifecycle::TABLE, event).await?;
        assert_eq!(troupe.ended(id).await?.status, "interrupted", "{event}");
        let row = wait::until_ok(WITHIN, || async {
            let row = agent_row(store, agent).await?;
            ensure!(row.lifecycle == "terminated", "it is {}", row.lifecycle);
            Ok(row)
        })
        .await?;
        assert_eq!((row.drive.as_str(), row.owner), ("stopped", None), "{event}");
        refuses_messages(&troupe, session, agent, "stopped").await?;
        ensure!(troupe.live_turn(agent).await?.is_none(), "{event}: what waited gets no turn");
        troupe.audit(session).await?;
    }
    Ok(())
}

async fn an_agent_is_ended_while_its_call_waits_for_a_person(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), hasty()).await?;
    let store = troupe.context.hub.store();
    for event in ["kill", "kill_forced"] {
        let (session, agent) = members(store, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
        let id = troupe.send(agent, "charge eight", Mode::Queue).await?.context("a turn")?;
        troupe.in_state(id, "tool_executing").await?;
        command(&troupe, session, agent, &agent_lifecycle::TABLE, event).await?;
        assert_eq!(troupe.ended(id).await?.status, "interrupted", "{event}");
        wait::until_ok(WITHIN, || async {
            let row = agent_row(store, agent).await?;
            ensure!(row.lifecycle == "terminated", "{event}: it is {} and {}", row.lifecycle, row.drive);
            Ok(())
        })
        .await?;
        assert_eq!(troupe.calls(id).await?[0].result_status.as_deref(), Some("cancelled"), "{event}");
        troupe.audit(session).await?;
    }
    Ok(())
}

async fn a_session_closes_with_everything_in_it_in_order(stage: Stage) -> Result<()> {
    let script = Script::function(|request| match request.user_text().as_str() {
        "talk" => talk(400),
        _ => Reply::call("charge", json!({"token": "nine"})),
    });
    let troupe = Troupe::start(&stage, script, hasty()).await?;
    let store = troupe.context.hub.store();
    let (session, talker) = members(store, json!({})).await?;
    let asker = cast::agent_like(store, session, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let idler = cast::agent_like(store, session, json!({})).await?;
    let streaming = troupe.send(talker, "talk", Mode::Queue).await?.context("a turn")?;
    let waiting = troupe.send(asker, "charge nine", Mode::Queue).await?.context("a turn")?;
    spoke(store, session).await?;
    troupe.in_state(waiting, "tool_executing").await?;
    ensure!(troupe.send(talker, "and then", Mode::Queue).await?.is_none());
    command(&troupe, session, session, &session_machine::TABLE, "close_requested").await?;
    wait::until_ok(WITHIN, || async {
        let row = session_row(store, session).await?;
        ensure!(row.status == "closed", "it is {}", row.status);
        Ok(())
    })
    .await?;
    for turn in [streaming, waiting] {
        assert_eq!(troupe.turn(turn).await?.status, "interrupted");
    }
    for agent in [talker, asker, idler] {
        assert_eq!(agent_row(store, agent).await?.lifecycle, "terminated");
    }
    let runes = audit::runes(store, session).await?;
    let closing = runes.iter().position(|rune| rune.kind == "session.closing").context("closing")?;
    let last = |kind: &str, entity: uuid::Uuid| {
        let at = runes.iter().rposition(|rune| rune.kind == kind && rune.entity.id == entity);
        at.with_context(|| format!("no {kind}"))
    };
    let call = troupe.calls(waiting).await?.remove(0);
    let (result, turn) = (last("tool.result", call.id)?, last("turn.interrupted", waiting.uuid())?);
    ensure!(closing < result && result < turn && turn < last("agent.terminated", asker.uuid())?);
    ensure!(last("turn.interrupted", streaming.uuid())? < last("agent.terminated", talker.uuid())?);
    assert_eq!(runes.last().map(|rune| rune.kind.as_str()), Some("session.closed"));
    refuses_messages(&troupe, session, idler, "no more input").await?;
    // Sealed to the last rune, and nobody's late write opens it again.
    wait::until_ok(WITHIN, || async {
        ensure!(store.last_seal(session).await?.seq == runes.len() as i64);
        Ok(())
    })
    .await?;
    assert_eq!((troupe.tool.requests(), head(store, session).await?), (0, runes.len() as i64));
    troupe.audit(session).await
}

async fn a_worker_that_drains_hands_its_turn_back_and_no_attempt_is_counted(stage: Stage) -> Result<()> {
    let mut config = hasty();
    config.worker.concurrency = 1;
    let script = Script::function(|request| match request.user_text().as_str() {
        "first" => talk(50),
        _ => talk(30),
    });
    let troupe = Troupe::start(&stage, script, config).await?;
    let store = troupe.context.hub.store();
    // The troupe's own worker has its only slot taken.
    let (_, busy) = members(store, json!({})).await?;
    let first = troupe.send(busy, "first", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(first, "streaming").await?;
    let staying = agent_row(store, busy).await?.owner.context("an owner")?;

    let drain = Drain::new();
    let second = Context { drain: drain.clone(), ..troupe.context.clone() };
    instar_agent_worker::start(second, troupe.models.clone(), troupe.tools.clone()).await?;
    let (session, agent) = members(store, json!({})).await?;
    let id = troupe.send(agent, "second", Mode::Queue).await?.context("a turn")?;
    spoke(store, session).await?;
    let leaving = agent_row(store, agent).await?.owner.context("an owner")?;
    ensure!(leaving != staying, "the first worker took both");

    drain.begin();
    assert_eq!(drain.wait_for(Duration::from_secs(10)).await, Drained::Clean);
    ensure!(!store.is_alive(leaving.into()).await?, "its lease was given up");
    let ended = troupe.ended(id).await?;
    assert_eq!((ended.status.as_str(), ended.attempts, ended.epoch), ("completed", 1, 2));
    assert_eq!(agent_row(store, agent).await?.owner, Some(staying));
    let runes = audit::runes(store, session).await?;
    let recovered = runes.iter().find(|rune| rune.kind == "turn.recovered").context("recovered")?;
    let payload: Value = serde_json::from_str(recovered.payload.get())?;
    assert_eq!(payload["reason"], "handed_back");
    assert_eq!(troupe.ended(first).await?.status, "completed");
    troupe.audit(session).await
}

async fn turns_that_take_too_long_are_errors_and_the_third_in_a_row_stops_their_agent(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.worker.turn_deadline_ms = 300;
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::hang()), config).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({})).await?;
    for drive in ["running", "running", "errored"] {
        let id = troupe.send(agent, "hello", Mode::Queue).await?.context("a turn")?;
        let ended = troupe.ended(id).await?;
        assert_eq!(ended.status, "error");
        assert_eq!(ended.error.context("an error")?["error_type"], "timeout");
        let row = agent_row(store, agent).await?;
        assert_eq!((row.lifecycle.as_str(), row.drive.as_str()), ("idle", drive));
    }
    let row = agent_row(store, agent).await?;
    ensure!(row.last_error.is_some_and(|why| why.contains("longer")));
    refuses_messages(&troupe, session, agent, "errored").await?;
    troupe.audit(session).await
}

async fn a_turn_whose_tool_takes_too_long_ends_and_one_that_waits_for_a_person_does_not(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.worker.turn_deadline_ms = 500;
    let troupe = Troupe::start(&stage, tool_turn(), config).await?;
    let store = troupe.context.hub.store();
    let (patient_session, patient) = members(store, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let waits = troupe.send(patient, "charge ten", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(waits, "tool_executing").await?;
    let id = overdue(&troupe).await?;
    let ended = troupe.ended(id).await?;
    assert_eq!(ended.status, "error", "{:?}", ended.error);
    assert_eq!(troupe.calls(id).await?[0].result_status.as_deref(), Some("cancelled"));
    let late = agent_row(store, ended.agent_id.into()).await?;
    assert_eq!((late.drive.as_str(), late.late_count), ("running", Some(1)));
    troupe.audit(ended.session_id.into()).await?;
    // The same look passed over the one that waits for a person, although it is older than its time.
    let row = troupe.turn(waits).await?;
    ensure!(row.deadline_at.context("a deadline")? < store.now().await?);
    assert_eq!(row.status, "tool_executing");
    let runes = approved(&troupe, patient_session, waits).await?;
    troupe.context.hub.follow(&runes);
    assert_eq!(troupe.ended(waits).await?.status, "completed", "the time a person took is not counted");
    troupe.audit(patient_session).await
}

/// A person approves the turn's only call; nobody is told.
async fn approved(troupe: &Troupe, session: SessionId, turn: TurnId) -> Result<Vec<Rune>> {
    let call = troupe.calls(turn).await?.remove(0);
    let act = Act::new(session, CallId::from(call.id), &call_machine::TABLE, "approved", person())
        .telling("tool.approved", json!({"approver": "p", "digest": call.digest}));
    match act.carry_out(&troupe.context.hub).await? {
        Done::Moved { runes } => Ok(runes),
        Done::Ignored => anyhow::bail!("not approved"),
    }
}

async fn the_time_a_person_took_is_not_held_against_the_turn_when_they_have_decided(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let store = troupe.context.hub.store();
    let (session, agent) = members(store, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let id = troupe.send(agent, "charge eleven", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(id, "tool_executing").await?;
    let call = CallId::from(troupe.calls(id).await?[0].id);
    an_hour_passes(store, id, call).await?;
    // The person took longer than the turn may. From here on the call runs, for a while.
    approved(&troupe, session, id).await?;
    let runner: WorkerId = fresh();
    store.register_worker(runner, "tool-runner", Duration::from_secs(600), json!({})).await?;
    land(store, flow::start(&call_row(store, call).await?, runner)?).await?;
    // One that is really late is ended by the look that also saw ours.
    let late = overdue(&troupe).await?;
    assert_eq!(troupe.ended(late).await?.status, "error");
    let row = troupe.turn(id).await?;
    assert_eq!((row.status.as_str(), row.open_calls), ("tool_executing", 1), "{:?}", row.error);
    let done =
        Outcome { status: ResultStatus::Success, output: json!("hi"), error: None, duration_ms: 1, truncated: false };
    land(store, flow::result(&call_row(store, call).await?, cast::system(), &done)?).await?;
    assert_eq!(troupe.ended(id).await?.status, "completed");
    troupe.audit(session).await
}

/// As if the model had asked for the call an hour ago.
async fn an_hour_passes(store: &Store, id: TurnId, call: CallId) -> Result<()> {
    let (turn, call) = (turn_row(store, id).await?, call_row(store, call).await?);
    let (mut older, mut asked) = (turn.clone().into_active_model(), call.clone().into_active_model());
    older.deadline_at = Set(turn.deadline_at.map(|at| at - chrono::Duration::hours(1)));
    asked.created_at = Set(call.created_at - chrono::Duration::hours(1));
    turn::Entity::update(older).exec(store.db()).await?;
    tool_call::Entity::update(asked).exec(store.db()).await?;
    Ok(())
}

/// A turn that is past its time, with a call that a runner which lives has and does not finish.
async fn overdue(troupe: &Troupe) -> Result<TurnId> {
    let store = troupe.context.hub.store();
    for _ in 0..5 {
        let (session, agent) = members(store, json!({"tools": ["charge"]})).await?;
        let id = whisper(store, session, agent, "hello").await?;
        let (worker, runner): (WorkerId, WorkerId) = (fresh(), fresh());
        for (id, service) in [(worker, "agent-worker"), (runner, "tool-runner")] {
            store.register_worker(id, service, Duration::from_secs(600), json!({})).await?;
        }
        let (rows, row) = (agent_row(store, agent).await?, turn_row(store, id).await?);
        // The troupe's own worker may find the turn first if this process was held up.
        let claim = flow::claim(&rows, &row, &[], None, worker, chrono::Duration::milliseconds(1), Vec::new());
        let Ok(Answer::Moved(_)) = store.commit(claim?).await else { continue };
        let mut call = asked("charge", json!({"token": "x"}));
        (call.effect, call.verdict) = ("at_most_once", Verdict::Approved);
        let call_id = call.id;
        land(store, flow::calls(&turn_row(store, id).await?, worker, &spoken(""), vec![call])?).await?;
        if let Answer::Moved(_) = store.commit(flow::start(&call_row(store, call_id).await?, runner)?).await? {
            return Ok(id);
        }
    }
    anyhow::bail!("the troupe was always first")
}

async fn what_nobody_was_told_of_is_found(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let store = troupe.context.hub.store();
    // A turn.
    let (session, agent) = members(store, json!({"tools": ["echo"]})).await?;
    let id = whisper(store, session, agent, "say something").await?;
    assert_eq!(troupe.ended(id).await?.status, "completed");
    troupe.audit(session).await?;
    // A message that no turn took up.
    let (session, agent) = members(store, json!({})).await?;
    let (rows, row) = (session_row(store, session).await?, agent_row(store, agent).await?);
    land(store, flow::message(&rows, &row, true, "say more", person(), None)?.commit).await?;
    wait::until_ok(WITHIN, || async {
        let turn = turn::Entity::find().filter(turn::Column::AgentId.eq(agent.uuid())).one(store.db()).await?;
        ensure!(turn.context("no turn yet")?.status == "completed");
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

async fn calls_and_results_that_nobody_was_told_of_are_found(stage: Stage) -> Result<()> {
    let store = &stage.store;
    let mut found = Vec::new();
    // A worker died after it had written the calls, another runner after it had written the last result.
    for with_result in [false, true] {
        let (session, agent) = members(store, json!({"tools": ["echo"]})).await?;
        let id = whisper(store, session, agent, "echo it").await?;
        let worker = doomed(store, "agent-worker").await?;
        let claimed = claimed(store, agent, id, worker).await?;
        let arguments = json!({"text": "hi"});
        let mut call = asked("echo", arguments.clone());
        call.digest = instar_tools::Registry::with_builtins().get("echo").context("echo")?.digest(&arguments);
        let call_id = call.id;
        land(store, flow::calls(&claimed.turn, worker, &spoken(""), vec![call])?).await?;
        if with_result {
            let done = Outcome {
                status: ResultStatus::Success,
                output: json!("hi"),
                error: None,
                duration_ms: 1,
                truncated: false,
            };
            land(store, flow::result(&call_row(store, call_id).await?, cast::system(), &done)?).await?;
        }
        found.push((session, id));
    }
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    for (session, id) in found {
        let ended = troupe.ended(id).await?;
        assert_eq!((ended.status.as_str(), ended.attempts), ("completed", 1), "{:?}", ended.error);
        troupe.audit(session).await?;
    }
    Ok(())
}

on_both! {
    a_turn_whose_owner_died_goes_on_and_nothing_the_dead_one_writes_lands;
    a_worker_that_loses_its_lease_lets_go_and_the_turn_goes_on_under_a_new_epoch;
    a_turn_that_costs_too_many_workers_ends_with_an_error;
    what_a_dead_worker_had_said_is_kept;
    what_was_asked_of_an_agent_outlives_every_worker_of_its_turn;
    a_call_that_must_not_be_risked_twice_ends_as_unknown_and_a_person_says_what_it_was;
    a_call_that_may_be_repeated_runs_again_under_the_same_key;
    a_call_that_cannot_be_settled_does_not_keep_the_others_from_it;
    an_approval_that_nobody_gives_is_a_timeout_and_no_denial;
    the_clock_of_an_approval_stands_still_while_its_session_is_paused;
    input_of_a_paused_session_waits_and_starts_when_it_is_resumed;
    a_pause_that_interrupts_ends_what_runs_and_what_it_said_is_in_the_history;
    a_stop_interrupts_the_turn_that_runs_and_the_agent_takes_no_more;
    a_stop_while_a_call_waits_for_a_person_ends_call_and_turn;
    an_agent_is_ended_after_its_turn_or_at_once;
    an_agent_is_ended_while_its_call_waits_for_a_person;
    a_session_closes_with_everything_in_it_in_order;
    a_worker_that_drains_hands_its_turn_back_and_no_attempt_is_counted;
    turns_that_take_too_long_are_errors_and_the_third_in_a_row_stops_their_agent;
    a_turn_whose_tool_takes_too_long_ends_and_one_that_waits_for_a_person_does_not;
    the_time_a_person_took_is_not_held_against_the_turn_when_they_have_decided;
    what_nobody_was_told_of_is_found;
    calls_and_results_that_nobody_was_told_of_are_found;
}
