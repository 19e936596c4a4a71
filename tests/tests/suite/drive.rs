//! Agents that go on by themselves: the loop, its pause, its breaker, and what must not stop it.

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, SessionId, TurnId, WorkerId};
use instar_core::machine::{By, agent_drive, session as session_machine, turn as turn_machine};
use instar_core::rune::Rune;
use instar_runtime::config::{Config, ModelConfig};
use instar_runtime::drain::Drain;
use instar_runtime::flow::{self, Mode};
use instar_runtime::{Act, Context as Service, Hub};
use instar_store::entity::{agent, broadcast, message, timer, turn};
use instar_testkit::model::{Refusal, Reply, Script};
use instar_testkit::wait;
use instar_tests::stage::{self, Stage};
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{audit, cast, on_both};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const PAUSE_MS: u64 = 50;

fn pausing(ms: u64) -> Config {
    let mut config = Config::default();
    config.scheduler.nudge_pause_ms = ms;
    config
}

fn content() -> Script {
    Script::function(|_| Reply::text("I did a little."))
}

async fn troupe(stage: &Stage) -> Result<Troupe> {
    Troupe::start(stage, content(), pausing(PAUSE_MS)).await
}

/// An autonomous agent whose drive runs; nobody has told it to go on.
async fn autonomous(troupe: &Troupe) -> Result<(SessionId, AgentId)> {
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    Ok((session, cast::agent_like(store, session, json!({"loop": "autonomous"})).await?))
}

async fn looping(troupe: &Troupe) -> Result<(SessionId, AgentId)> {
    let (session, agent) = autonomous(troupe).await?;
    troupe.context.hub.nudge_session(session).await?;
    Ok((session, agent))
}

async fn row(troupe: &Troupe, agent: AgentId) -> Result<agent::Model> {
    troupe.context.hub.store().agent(agent).await?.context("agent")
}

/// The agent when its drive is in this state and it is in no turn.
async fn in_drive(troupe: &Troupe, agent: AgentId, drive: &str) -> Result<agent::Model> {
    wait::until_ok(WITHIN, || async {
        let row = row(troupe, agent).await?;
        ensure!(row.drive == drive && row.lifecycle == "idle", "it is {} and {}", row.drive, row.lifecycle);
        Ok(row)
    })
    .await
}

async fn turns(troupe: &Troupe, agent: AgentId) -> Result<Vec<turn::Model>> {
    let turns = turn::Entity::find().filter(turn::Column::AgentId.eq(agent.uuid())).order_by_asc(turn::Column::Id);
    Ok(turns.all(troupe.context.hub.store().db()).await?)
}

fn causes(turns: &[turn::Model]) -> Vec<(&str, &str)> {
    turns.iter().map(|turn| (turn.cause.as_str(), turn.status.as_str())).collect()
}

async fn timers(troupe: &Troupe, session: SessionId) -> Result<u64> {
    let timers = timer::Entity::find().filter(timer::Column::SessionId.eq(session.uuid()));
    Ok(timers.count(troupe.context.hub.store().db()).await?)
}

/// What the runelog says of an agent's nudges, and whether each `agent.nudged` agrees with it.
fn folded(runes: &[Rune], agent: AgentId) -> Result<i64> {
    let mut count = 0;
    for rune in runes.iter().filter(|rune| rune.agent_id == Some(agent)) {
        let payload: serde_json::Value = serde_json::from_str(rune.payload.get())?;
        match rune.kind.as_str() {
            "agent.message_received" => count = 0,
            "agent.drive_started" if payload["reason"] == "start" => count = 0,
            "agent.nudged" => {
                count += 1;
                ensure!(payload["n"] == count, "{payload} is number {count}");
            }
            _ => {}
        }
    }
    Ok(count)
}

async fn counted(troupe: &Troupe, session: SessionId, agent: AgentId) -> Result<i64> {
    let runes = audit::runes(troupe.context.hub.store(), session).await?;
    let (folded, kept) = (folded(&runes, agent)?, row(troupe, agent).await?.nudge_count);
    ensure!(folded == kept, "the log says {folded}, the row {kept}");
    Ok(kept)
}

async fn an_agent_goes_on_by_itself_until_three_nudges_led_to_nothing(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = looping(&troupe).await?;
    in_drive(&troupe, agent, "idle").await?;
    let turns = turns(&troupe, agent).await?;
    assert_eq!(causes(&turns), [("nudge", "completed"); 3]);
    for pair in turns.windows(2) {
        let rest = pair[1].created_at - pair[0].ended_at.context("an end")?;
        ensure!(rest >= chrono::Duration::milliseconds(PAUSE_MS as i64), "it rested for {rest}");
    }
    assert_eq!(counted(&troupe, session, agent).await?, 3);
    let runes = audit::runes(troupe.context.hub.store(), session).await?;
    let idled = runes.iter().find(|rune| rune.kind == "agent.drive_idled").context("it rests")?;
    let nudged = runes.iter().rfind(|rune| rune.kind == "agent.nudged").context("nudged")?;
    ensure!(idled.payload.get().contains("\"needs_attention\":true"), "{}", idled.payload.get());
    assert_eq!(idled.command_id, nudged.command_id, "one commit");
    assert_eq!(timers(&troupe, session).await?, 0);
    let db = troupe.context.hub.store().db();
    let said = message::Entity::find().filter(message::Column::AgentId.eq(agent.uuid())).all(db).await?;
    ensure!(said.iter().all(|m| m.role == "assistant"), "a nudge is never stored: {said:?}");
    for request in troupe.model.requests() {
        let said = format!("{:?}", request.messages());
        ensure!(said.contains("Carry on"), "{said}");
    }
    troupe.audit(session).await
}

async fn what_an_agent_causes_itself_may_cost_so_much_a_day(stage: Stage) -> Result<()> {
    let mut config = pausing(PAUSE_MS);
    let price = json!({"input_per_mtok": "100000", "output_per_mtok": "0"});
    let price = Some(serde_json::from_value(price)?);
    config.models = vec![ModelConfig { name: "default".into(), price, ..ModelConfig::default() }];
    config.agents.cost_per_day_max = Some("2".parse().map_err(anyhow::Error::msg)?);
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::text("A step.")), config).await?;
    let (session, agent) = looping(&troupe).await?;
    let row = in_drive(&troupe, agent, "idle").await?;
    // Ten tokens a turn.
    assert_eq!(causes(&turns(&troupe, agent).await?), [("nudge", "completed"); 2]);
    let today = row.today.context("it is counted")?;
    ensure!(today["turns"] == 2 && today["cost"] == "2" && today["rests"] == true, "{today}");
    troupe.audit(session).await
}

async fn a_message_wakes_it_and_the_count_begins_anew(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = looping(&troupe).await?;
    in_drive(&troupe, agent, "idle").await?;
    troupe.send(agent, "look again", Mode::Queue).await?.context("a turn")?;
    wait::until_ok(WITHIN, || async {
        ensure!(turns(&troupe, agent).await?.len() == 7);
        Ok(())
    })
    .await?;
    in_drive(&troupe, agent, "idle").await?;
    let turns = turns(&troupe, agent).await?;
    assert_eq!(
        causes(&turns)[3..],
        [("user", "completed"), ("nudge", "completed"), ("nudge", "completed"), ("nudge", "completed")]
    );
    assert_eq!(counted(&troupe, session, agent).await?, 3);
    troupe.audit(session).await
}

async fn a_reactive_agent_never_goes_on_by_itself(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = looping(&troupe).await?;
    let reactive = cast::agent_like(troupe.context.hub.store(), session, json!({"loop": "reactive"})).await?;
    troupe.send(reactive, "hello", Mode::Queue).await?.context("a turn")?;
    troupe.context.hub.nudge_session(session).await?;
    in_drive(&troupe, agent, "idle").await?;
    in_drive(&troupe, reactive, "running").await?;
    assert_eq!(causes(&turns(&troupe, reactive).await?), [("user", "completed")]);
    troupe.audit(session).await
}

async fn however_many_timers_there_are_it_has_one_loop(stage: Stage) -> Result<()> {
    let pause = 700;
    let troupe = Troupe::start(&stage, content(), pausing(pause)).await?;
    let (session, agent) = looping(&troupe).await?;
    for _ in 0..3 {
        troupe.context.hub.nudge_session(session).await?;
    }
    // A message within the pause leaves a timer behind that is about the past.
    wait::until_ok(WITHIN, || async {
        ensure!(row(&troupe, agent).await?.nudge_count == 1);
        Ok(())
    })
    .await?;
    troupe.send(agent, "and this", Mode::Queue).await?;
    in_drive(&troupe, agent, "idle").await?;
    let turns = turns(&troupe, agent).await?;
    for pair in turns.windows(2).filter(|pair| pair[1].cause == "nudge") {
        let rest = pair[1].created_at - pair[0].ended_at.context("an end")?;
        ensure!(rest >= chrono::Duration::milliseconds(pause as i64), "it rested for {rest}");
    }
    assert_eq!(counted(&troupe, session, agent).await?, 3);
    troupe.audit(session).await
}

async fn command(troupe: &Troupe, session: SessionId, event: &str) -> Result<()> {
    let act = Act::new(session, session, &session_machine::TABLE, event, cast::person());
    act.carry_out(&troupe.context.hub).await?;
    Ok(())
}

async fn a_paused_session_has_no_nudges_and_a_resumed_one_goes_on(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = autonomous(&troupe).await?;
    command(&troupe, session, "pause_requested").await?;
    troupe.context.hub.nudge_session(session).await?;
    wait::until_ok(WITHIN, || async {
        ensure!(timers(&troupe, session).await? == 0, "the timer was not looked at");
        Ok(())
    })
    .await?;
    assert_eq!((turns(&troupe, agent).await?.len(), row(&troupe, agent).await?.drive.as_str()), (0, "running"));
    command(&troupe, session, "resume_requested").await?;
    troupe.context.hub.nudge_session(session).await?;
    in_drive(&troupe, agent, "idle").await?;
    assert_eq!(counted(&troupe, session, agent).await?, 3);
    troupe.audit(session).await
}

async fn a_loop_whose_timer_was_lost_is_found(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = autonomous(&troupe).await?;
    assert_eq!(timers(&troupe, session).await?, 0);
    in_drive(&troupe, agent, "idle").await?;
    assert_eq!(counted(&troupe, session, agent).await?, 3);
    troupe.audit(session).await
}

async fn a_stopped_agent_is_not_nudged(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = autonomous(&troupe).await?;
    let act = Act::new(session, agent, &agent_drive::TABLE, "stop", cast::person());
    act.carry_out(&troupe.context.hub).await?;
    let epoch = row(&troupe, agent).await?.epoch;
    set_timer(&troupe, agent, epoch).await?;
    wait::until_ok(WITHIN, || async {
        ensure!(timers(&troupe, session).await? == 0, "the timer was not looked at");
        Ok(())
    })
    .await?;
    assert_eq!(turns(&troupe, agent).await?.len(), 0);
    troupe.audit(session).await
}

async fn set_timer(troupe: &Troupe, agent: AgentId, epoch: i64) -> Result<()> {
    use sea_orm::IntoActiveModel;
    let (row, store) = (row(troupe, agent).await?, troupe.context.hub.store());
    let timer = timer::Model {
        id: uuid::Uuid::now_v7(),
        session_id: row.session_id,
        kind: flow::NUDGE_TIMER.into(),
        entity: agent.to_string(),
        due_at: store.now().await?,
        claimed_until: None,
        payload: Some(json!({"epoch": epoch})),
        version: 0,
        created_at: store.now().await?,
    };
    timer::Entity::insert(timer.into_active_model()).exec_without_returning(store.db()).await?;
    Ok(())
}

async fn a_nudged_turn_outlives_its_worker_and_counts_once(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = autonomous(&troupe).await?;
    let store = troupe.context.hub.store();
    let (commit, id) = flow::nudge(&row(&troupe, agent).await?, None, cast::system())?;
    cast::land(store, commit).await?;
    let dead: WorkerId = cast::fresh();
    store.register_worker(dead, "agent-worker", Duration::from_millis(300), json!({})).await?;
    let queued = troupe.turn(id).await?;
    let claim =
        flow::claim(&row(&troupe, agent).await?, &queued, &[], None, dead, chrono::Duration::minutes(5), Vec::new())?;
    cast::land(store, claim).await?;
    let ended = troupe.ended(id).await?;
    assert_eq!((ended.status.as_str(), ended.attempts, ended.cause.as_str()), ("completed", 2, "nudge"));
    in_drive(&troupe, agent, "idle").await?;
    assert_eq!(counted(&troupe, session, agent).await?, 3);
    assert_eq!(turns(&troupe, agent).await?.len(), 3);
    troupe.audit(session).await
}

async fn an_error_that_a_nudge_would_only_repeat_ends_the_loop(stage: Stage) -> Result<()> {
    let refusing = Script::function(|_| Reply::refused(Refusal::Invalid("no such thing".into())));
    let troupe = Troupe::start(&stage, refusing, pausing(PAUSE_MS)).await?;
    let (session, agent) = looping(&troupe).await?;
    let row = in_drive(&troupe, agent, "errored").await?;
    ensure!(row.last_error.is_some_and(|why| why.contains("no such thing")));
    assert_eq!(causes(&turns(&troupe, agent).await?), [("nudge", "error")]);
    assert_eq!(counted(&troupe, session, agent).await?, 0, "only a completed turn counts");
    troupe.audit(session).await
}

/// The loop ends with the first error of a turn that nobody asked for, whoever wrote it.
async fn ends_its_loop(troupe: &Troupe, session: SessionId, agent: AgentId, why: &str) -> Result<()> {
    let row = in_drive(troupe, agent, "errored").await?;
    ensure!(row.last_error.as_ref().is_some_and(|told| told.contains(why)), "{:?}", row.last_error);
    assert_eq!(causes(&turns(troupe, agent).await?), [("nudge", "error")]);
    let runes = audit::runes(troupe.context.hub.store(), session).await?;
    let errored = runes.iter().find(|rune| rune.kind == "agent.drive_errored").context("it is told")?;
    ensure!(errored.payload.get().contains(why), "{}", errored.payload.get());
    troupe.audit(session).await
}

async fn a_conversation_too_long_for_a_nudge_ends_the_loop(stage: Stage) -> Result<()> {
    let overflown = Script::function(|_| Reply::refused(Refusal::ContextOverflow));
    let troupe = Troupe::start(&stage, overflown, pausing(PAUSE_MS)).await?;
    let (session, agent) = looping(&troupe).await?;
    ends_its_loop(&troupe, session, agent, "longer than the model can read").await
}

async fn a_nudge_of_which_nothing_is_heard_ends_the_loop(stage: Stage) -> Result<()> {
    let mut config = pausing(PAUSE_MS);
    config.scheduler.watchdog_ms = 300;
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::hang()), config).await?;
    let (session, agent) = looping(&troupe).await?;
    ends_its_loop(&troupe, session, agent, "nothing was heard of the turn").await
}

async fn a_tool_that_costs_a_nudge_its_runners_ends_the_loop(stage: Stage) -> Result<()> {
    let charging = Script::function(|_| Reply::call("charge", json!({"token": "nudged"})));
    let troupe = Troupe::start(&stage, charging, pausing(PAUSE_MS)).await?;
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    let config = json!({"loop": "autonomous", "tools": ["charge"], "approval_mode": "auto"});
    let agent = cast::agent_like(store, session, config).await?;
    troupe.context.hub.nudge_session(session).await?;
    let turn = wait::until_ok(WITHIN, || async {
        let turn = troupe.live_turn(agent).await?.context("a turn")?;
        ensure!(turn.status == "tool_executing", "it is {}", turn.status);
        Ok(turn)
    })
    .await?;
    // As the scheduler does it for a call that has cost as many runners as it may.
    let id = TurnId::from(turn.id);
    let act = Act::new(session, id, &turn_machine::TABLE, "tool_crash", cast::system()).reason("tool_crash");
    act.carry_out(&troupe.context.hub).await?;
    ends_its_loop(&troupe, session, agent, "has cost three tool-runners").await
}

/// A broadcast to the agents of the session, as the API sends it.
async fn broadcast(troupe: &Troupe, session: SessionId, expires_at: Option<DateTime<Utc>>) -> Result<()> {
    let (hub, store) = (&troupe.context.hub, troupe.context.hub.store());
    let row = broadcast::Model {
        id: uuid::Uuid::now_v7(),
        session_id: session.uuid(),
        content: "to the gate".into(),
        standing: true,
        expires_at,
        sender: "key_test".into(),
        created_at: Utc::now(),
        version: 0,
    };
    let audience = store.audience(session).await?;
    let first: Vec<_> = audience.iter().collect();
    let commit = flow::broadcast(&row, &first, false, cast::person(), None)?;
    hub.follow(&cast::land(store, commit).await?.runes);
    Ok(())
}

async fn a_broadcast_sets_the_nudges_back_once_however_long_it_stands(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let (session, agent) = autonomous(&troupe).await?;
    broadcast(&troupe, session, None).await?;
    in_drive(&troupe, agent, "idle").await?;
    assert_eq!(counted(&troupe, session, agent).await?, 3);
    let nudges = ["nudge"; 3].map(|cause| (cause, "completed"));
    assert_eq!(causes(&turns(&troupe, agent).await?), [&[("user", "completed")][..], &nudges].concat());
    for request in troupe.model.requests() {
        let said = format!("{:?}", request.messages());
        ensure!(said.matches("to the gate").count() == 1, "it is in the window, and not repeated: {said}");
    }
    troupe.audit(session).await
}

/// What was said to the model, oldest first.
fn said_to_it(troupe: &Troupe) -> Vec<String> {
    let requests = troupe.model.requests();
    let last = requests.last().map(|request| request.messages().to_vec()).unwrap_or_default();
    let said = last.iter().filter(|message| message["role"] == "user");
    said.filter_map(|message| message["content"].as_str().map(str::to_owned)).collect()
}

async fn who_comes_after_a_broadcast_hears_it_before_anything_else(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    let early = cast::agent_like(store, session, json!({})).await?;
    broadcast(&troupe, session, None).await?;
    wait::until_ok(WITHIN, || async {
        ensure!(causes(&turns(&troupe, early).await?) == [("user", "completed")]);
        Ok(())
    })
    .await?;
    let late = cast::agent_like(store, session, json!({})).await?;
    // What is said in a row is one message to the model.
    let before = "to the gate\n\nhello";
    for (words, heard) in [("hello", vec![before]), ("again", vec![before, "again"])] {
        let turn = troupe.send(late, words, Mode::Queue).await?.context("a turn")?;
        troupe.ended(turn).await?;
        assert_eq!(said_to_it(&troupe), heard);
    }
    let first = turns(&troupe, late).await?.remove(0);
    let heard = message::Entity::find().filter(message::Column::AgentId.eq(late.uuid()));
    let heard = heard.filter(message::Column::Source.eq("broadcast")).all(store.db()).await?;
    assert_eq!(heard.iter().map(|one| one.turn_id).collect::<Vec<_>>(), [Some(first.id)]);
    // Whoever was there hears it once.
    let turn = troupe.send(early, "and you?", Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    assert_eq!(said_to_it(&troupe), ["to the gate", "and you?"]);
    troupe.audit(session).await
}

async fn who_comes_after_a_broadcast_has_expired_does_not_hear_it(stage: Stage) -> Result<()> {
    let troupe = troupe(&stage).await?;
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    cast::agent_like(store, session, json!({})).await?;
    broadcast(&troupe, session, Some(Utc::now() - chrono::Duration::minutes(1))).await?;
    let late = cast::agent_like(store, session, json!({})).await?;
    let turn = troupe.send(late, "hello", Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let requests = troupe.model.requests();
    let asked = requests.iter().find(|request| request.user_text() == "hello").context("the request")?;
    ensure!(!format!("{:?}", asked.messages()).contains("to the gate"), "{:?}", asked.messages());
    wait::until_ok(WITHIN, || async {
        let live = turn::Entity::find().filter(turn::Column::EndedAt.is_null()).count(store.db()).await?;
        ensure!(live == 0);
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

/// A turn of the agent whose provider call fails, whoever would have made it.
async fn fails_by_its_provider(hub: &Hub, agent: AgentId) -> Result<()> {
    let (store, worker) = (hub.store(), cast::fresh());
    let row = store.agent(agent).await?.context("agent")?;
    let session = store.session(row.session_id.into()).await?.context("session")?;
    let sent = flow::message(&session, &row, false, "hello", cast::person(), None)?;
    cast::land(store, sent.commit).await?;
    let id = sent.turn.context("a turn")?;
    let read =
        async || anyhow::Ok((store.agent(agent).await?.context("agent")?, store.turn(id).await?.context("turn")?));
    let (row, turn) = read().await?;
    cast::land(store, flow::claim(&row, &turn, &[], None, worker, chrono::Duration::minutes(5), Vec::new())?).await?;
    let (row, turn) = read().await?;
    let pause = chrono::Duration::seconds(2);
    let (agent, turn) = (&row, &turn);
    let ending = flow::Ending {
        turn,
        agent,
        worker,
        waiting: &[],
        pause,
        calls_max: 10,
        letters_max: 0,
        day: flow::Day::default(),
    };
    let silence = flow::Spoken::default();
    let (commit, _) = flow::fail(ending, "stream_error", "overloaded", "busy", &silence, flow::Fatal::Provider)?;
    cast::land(store, commit).await?;
    Ok(())
}

async fn whoever_is_made_so_is_started_again_after_its_provider_failed(stage: Stage) -> Result<()> {
    // A scheduler and nobody else: turns are what the test makes of them.
    let hub = Hub::new(stage.store.clone(), stage::bus(&stage).await?);
    let context = Service { config: Arc::new(Config::default()), hub, drain: Drain::new() };
    instar_scheduler::start(context.clone()).await?;
    let (hub, store) = (&context.hub, context.hub.store());
    let session = cast::session(store).await?;
    let agent = cast::agent_like(store, session, json!({"relaunch_after_ms": 100})).await?;
    let plain = cast::agent_like(store, session, json!({})).await?;
    fails_by_its_provider(hub, plain).await?;
    let started = async || -> Result<Vec<Rune>> {
        let mut runes = audit::runes(store, session).await?;
        runes.retain(|rune| rune.kind == "agent.drive_started" && rune.payload.get().contains("relaunch_after"));
        Ok(runes)
    };
    for n in 1..=3 {
        fails_by_its_provider(hub, agent).await?;
        wait::until_ok(WITHIN, || async {
            let row = store.agent(agent).await?.context("agent")?;
            ensure!(row.drive == "running" && row.last_error.is_none(), "it is {}", row.drive);
            ensure!(started().await?.len() == n);
            Ok(())
        })
        .await?;
    }
    let runes = started().await?;
    ensure!(runes.iter().all(|rune| rune.actor.by == By::System && rune.agent_id == Some(agent)), "{runes:?}");
    fails_by_its_provider(hub, agent).await?;
    wait::until_ok(WITHIN, || async {
        let timers = timer::Entity::find().filter(timer::Column::SessionId.eq(session.uuid()));
        ensure!(timers.count(store.db()).await? == 0, "the timer was not looked at");
        Ok(())
    })
    .await?;
    for id in [agent, plain] {
        assert_eq!(store.agent(id).await?.context("agent")?.drive, "errored", "a person has to look");
    }
    assert_eq!(started().await?.len(), 3);
    context.drain.begin();
    let wrong = audit::session(store, session).await?;
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

on_both! {
    what_an_agent_causes_itself_may_cost_so_much_a_day;
    whoever_is_made_so_is_started_again_after_its_provider_failed;
    who_comes_after_a_broadcast_hears_it_before_anything_else;
    who_comes_after_a_broadcast_has_expired_does_not_hear_it;
    a_broadcast_sets_the_nudges_back_once_however_long_it_stands;
    an_agent_goes_on_by_itself_until_three_nudges_led_to_nothing;
    a_message_wakes_it_and_the_count_begins_anew;
    a_reactive_agent_never_goes_on_by_itself;
    however_many_timers_there_are_it_has_one_loop;
    a_paused_session_has_no_nudges_and_a_resumed_one_goes_on;
    a_loop_whose_timer_was_lost_is_found;
    a_stopped_agent_is_not_nudged;
    a_nudged_turn_outlives_its_worker_and_counts_once;
    an_error_that_a_nudge_would_only_repeat_ends_the_loop;
    a_conversation_too_long_for_a_nudge_ends_the_loop;
    a_nudge_of_which_nothing_is_heard_ends_the_loop;
    a_tool_that_costs_a_nudge_its_runners_ends_the_loop;
}
