//! Turns through worker, runner and scheduler, on both backends.

use anyhow::{Context, Result, ensure};
use instar_core::id::{AgentId, SessionId, TurnId};
use instar_core::machine::{tool_call as call_machine, turn as turn_machine};
use instar_runtime::config::Config;
use instar_runtime::flow::Mode;
use instar_runtime::{Act, Done};
use instar_store::Answer;
use instar_testkit::model::{Reply, Script};
use instar_tests::fleet::tool_turn;
use instar_tests::stage::Stage;
use instar_tests::troupe::Troupe;
use instar_tests::{audit, cast, on_both};
use serde_json::json;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(20);

async fn agent(troupe: &Troupe, config: serde_json::Value) -> Result<(SessionId, AgentId)> {
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    let agent = cast::agent_like(store, session, config).await?;
    Ok((session, agent))
}

fn tools() -> serde_json::Value {
    json!({"tools": ["echo", "now", "charge", "put"]})
}

async fn a_message_becomes_a_turn_with_a_tool_and_an_answer(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (session, agent) = agent(&troupe, tools()).await?;
    let turn = troupe.send(agent, "echo hello", Mode::Queue).await?.context("a turn")?;
    let ended = troupe.ended(turn).await?;
    assert_eq!((ended.status.as_str(), ended.iterations, ended.attempts), ("completed", 2, 1));
    ensure!(ended.output.as_deref().is_some_and(|text| text.starts_with("The tool has answered")));
    let calls = troupe.calls(turn).await?;
    assert_eq!((calls.len(), calls[0].status.as_str()), (1, "completed_result"));
    troupe.audit(session).await
}

async fn turn_after_turn_the_model_sees_what_was_said_and_the_log_holds(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (session, agent) = agent(&troupe, tools()).await?;
    for n in 0..5 {
        let turn = troupe.send(agent, &format!("echo number{n}"), Mode::Queue).await?.context("a turn")?;
        let ended = troupe.ended(turn).await?;
        assert_eq!((ended.status.as_str(), ended.iterations, ended.attempts), ("completed", 2, 1));
    }
    let last = troupe.model.requests().pop().context("a request")?;
    let said = format!("{:?}", last.messages());
    for n in 0..5 {
        ensure!(said.contains(&format!("echo number{n}")), "number{n} in {said}");
    }
    assert_eq!(last.tool_results().len(), 1);
    troupe.audit(session).await
}

async fn an_effect_happens_once_and_carries_the_call_as_its_key(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (session, agent) = agent(&troupe, tools()).await?;
    let turn = troupe.send(agent, "charge one", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(turn).await?.status, "completed");
    let call = &troupe.calls(turn).await?[0];
    assert_eq!(call.attempts, 1, "its start was recorded before the effect");
    let effects = troupe.tool.ledger().effects();
    let key = instar_core::id::CallId::from(call.id).to_string();
    assert_eq!(effects.iter().map(|e| e.key.as_deref()).collect::<Vec<_>>(), [Some(key.as_str())]);
    troupe.audit(session).await
}

async fn messages_that_come_meanwhile_get_the_next_turn_together(stage: Stage) -> Result<()> {
    let slow = Script::function(|request| {
        let reply = Reply::text(format!("heard: {}", request.messages().len()));
        reply.slow(Duration::from_millis(300), Duration::ZERO)
    });
    let troupe = Troupe::start(&stage, slow, Config::default()).await?;
    let (session, agent) = agent(&troupe, json!({})).await?;
    let first = troupe.send(agent, "one", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(first, "streaming").await?;
    ensure!(troupe.send(agent, "two", Mode::Queue).await?.is_none());
    ensure!(troupe.send(agent, "three", Mode::Queue).await?.is_none());
    assert_eq!(troupe.ended(first).await?.status, "completed");
    let next = troupe.live_turn(agent).await?.context("the next turn")?;
    let next = troupe.ended(next.id.into()).await?;
    assert_eq!((next.status.as_str(), next.iterations), ("completed", 1));
    let request = troupe.model.requests().pop().context("a request")?;
    let said = format!("{:?}", request.messages());
    let at = |word: &str| said.find(word).with_context(|| format!("{word} in {said}"));
    ensure!(at("one")? < at("heard")? && at("heard")? < at("two")? && at("two")? < at("three")?, "{said}");
    troupe.audit(session).await
}

fn folding(ms: u64) -> Config {
    let mut config = Config::default();
    config.worker.fold_ms = ms;
    config
}

/// Kinds of the runes of a turn, those of one commit together.
async fn commits(troupe: &Troupe, session: SessionId, turn: TurnId) -> Result<Vec<Vec<String>>> {
    let mut commits: Vec<(_, Vec<String>)> = Vec::new();
    for rune in troupe.context.hub.store().runes(session, 0, 200).await? {
        if rune.turn_id != Some(turn) {
            continue;
        }
        match commits.last_mut() {
            Some((command, kinds)) if *command == rune.command_id => kinds.push(rune.kind),
            _ => commits.push((rune.command_id, vec![rune.kind])),
        }
    }
    Ok(commits.into_iter().map(|(_, kinds)| kinds).collect())
}

/// Whether claim and resume share a commit with what the model answered.
async fn folds(stage: &Stage, fold_ms: u64) -> Result<[bool; 2]> {
    let troupe = Troupe::start(stage, tool_turn(), folding(fold_ms)).await?;
    let (session, agent) = agent(&troupe, tools()).await?;
    let first = troupe.send(agent, "echo one", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(first).await?.status, "completed");
    let turn = troupe.send(agent, "echo two", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(turn).await?.status, "completed");
    let commits = commits(&troupe, session, turn).await?;
    let shares = |one: &str, other: &str| {
        let with = commits.iter().find(|kinds| kinds.iter().any(|kind| kind == one));
        with.is_some_and(|kinds| kinds.iter().any(|kind| kind == other))
    };
    troupe.audit(session).await?;
    Ok([shares("turn.started", "turn.tool_calls_received"), shares("turn.tools_finished", "turn.completed")])
}

async fn what_an_owner_begins_is_written_with_an_answer_that_comes_soon(stage: Stage) -> Result<()> {
    assert_eq!(folds(&stage, 60_000).await?, [true, true]);
    Ok(())
}

async fn what_an_owner_begins_is_written_by_itself_if_nothing_waits_for_the_answer(stage: Stage) -> Result<()> {
    assert_eq!(folds(&stage, 0).await?, [false, false]);
    Ok(())
}

/// The second turn of an agent, whose model speaks while nothing of it is written.
async fn unwritten_turn(troupe: &Troupe) -> Result<(SessionId, AgentId, TurnId)> {
    let (session, agent) = agent(troupe, json!({})).await?;
    let first = troupe.send(agent, "one", Mode::Queue).await?.context("a turn")?;
    troupe.ended(first).await?;
    let asked = troupe.model.counts().requests;
    let turn = troupe.send(agent, "two", Mode::Queue).await?.context("a turn")?;
    instar_testkit::wait::until(BOUND, || async { troupe.model.counts().requests > asked }).await;
    assert_eq!(troupe.turn(turn).await?.status, "queued");
    Ok((session, agent, turn))
}

fn slow_to_answer() -> Script {
    Script::function(|_| Reply::text("heard").slow(Duration::from_millis(400), Duration::ZERO))
}

async fn a_message_that_comes_before_the_claim_is_written_is_answered_too(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, slow_to_answer(), folding(60_000)).await?;
    let (session, agent, turn) = unwritten_turn(&troupe).await?;
    ensure!(troupe.send(agent, "three", Mode::Queue).await?.is_none(), "it waits behind the one that is queued");
    assert_eq!(troupe.ended(turn).await?.status, "completed");
    let next = troupe.live_turn(agent).await?.context("the next turn")?;
    assert_eq!(troupe.ended(next.id.into()).await?.status, "completed");
    troupe.audit(session).await
}

async fn a_message_that_waits_while_tools_run_does_not_cost_the_answer(stage: Stage) -> Result<()> {
    let script = Script::function(|request| {
        let call = |n: u32| Reply::call("charge", json!({"token": n.to_string()}));
        if request.tool_results().is_empty() { call(1).and(call(2)) } else { Reply::text("done") }
    });
    let troupe = Troupe::start(&stage, script, folding(60_000)).await?;
    let (session, agent) = agent(&troupe, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = troupe.send(agent, "go", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "tool_executing").await?;
    ensure!(troupe.send(agent, "and then?", Mode::Queue).await?.is_none());
    for call in troupe.calls(turn).await? {
        let id = instar_core::id::CallId::from(call.id);
        let act = Act::new(session, id, &call_machine::TABLE, "approved", cast::person())
            .telling("tool.approved", json!({"approver": "p", "digest": call.digest}));
        let Done::Moved { runes } = act.carry_out(&troupe.context.hub).await? else { anyhow::bail!("not approved") };
        troupe.context.hub.follow(&runes);
    }
    let ended = troupe.ended(turn).await?;
    assert_eq!((ended.status.as_str(), ended.output.as_deref()), ("completed", Some("done")));
    ensure!(troupe.live_turn(agent).await?.is_some(), "what waited has its turn");
    Ok(())
}

async fn a_turn_that_ends_before_its_claim_is_written_stays_ended(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, slow_to_answer(), folding(60_000)).await?;
    let (session, agent, turn) = unwritten_turn(&troupe).await?;
    let act = Act::new(session, turn, &turn_machine::TABLE, "interrupt", cast::person()).reason("enough");
    ensure!(matches!(act.carry_out(&troupe.context.hub).await?, Done::Moved { .. }));
    // The next one is answered: the agent was left as it was.
    let next = troupe.send(agent, "three", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(next).await?.status, "completed");
    assert_eq!(troupe.turn(turn).await?.status, "interrupted");
    troupe.audit(session).await
}

async fn an_approval_waits_in_the_database_only_and_then_the_turn_goes_on(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let config = json!({"tools": ["charge"], "approval_mode": "auto"});
    let (session, agent) = agent(&troupe, config).await?;
    let turn = troupe.send(agent, "charge two", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "tool_executing").await?;
    let call = troupe.calls(turn).await?.remove(0);
    assert_eq!(call.status, "awaiting_approval");
    assert_eq!(troupe.tool.ledger().count(), 0);
    let id = instar_core::id::CallId::from(call.id);
    let act = Act::new(session, id, &call_machine::TABLE, "approved", cast::person())
        .telling("tool.approved", json!({"approver": "p", "digest": call.digest}));
    let Done::Moved { runes } = act.carry_out(&troupe.context.hub).await? else { anyhow::bail!("not approved") };
    troupe.context.hub.follow(&runes);
    assert_eq!(troupe.ended(turn).await?.status, "completed");
    assert_eq!(troupe.tool.ledger().count(), 1);
    troupe.audit(session).await
}

async fn a_denial_is_a_result_that_the_model_sees(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (session, agent) = agent(&troupe, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = troupe.send(agent, "charge three", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "tool_executing").await?;
    let id = instar_core::id::CallId::from(troupe.calls(turn).await?[0].id);
    let act = Act::new(session, id, &call_machine::TABLE, "denied", cast::person()).reason("too dear");
    let Done::Moved { runes } = act.carry_out(&troupe.context.hub).await? else { anyhow::bail!("not denied") };
    troupe.context.hub.follow(&runes);
    assert_eq!(troupe.ended(turn).await?.status, "completed");
    assert_eq!(troupe.tool.ledger().count(), 0);
    let told = troupe.model.requests().last().context("a request")?.tool_results();
    ensure!(told.len() == 1 && told[0].content.contains("too dear"), "{told:?}");
    troupe.audit(session).await
}

async fn what_policy_or_schema_refuse_never_runs_and_the_turn_goes_on_at_once(stage: Stage) -> Result<()> {
    let script = Script::function(|request| {
        if !request.tool_results().is_empty() {
            return Reply::text("I see.");
        }
        Reply::call("charge", json!({"token": "x"}))
            .and(Reply::call("put", json!({"wrong": 1})))
            .and(Reply::call("nothing", json!({})))
            .and(Reply::call_raw("echo", "{not json"))
    });
    let troupe = Troupe::start(&stage, script, Config::default()).await?;
    let (session, agent) =
        agent(&troupe, json!({"tools": ["charge", "put", "echo"], "approval_mode": "read_only"})).await?;
    let turn = troupe.send(agent, "go", Mode::Queue).await?.context("a turn")?;
    let ended = troupe.ended(turn).await?;
    assert_eq!(ended.status, "completed", "{:?}", ended.error);
    let calls = troupe.calls(turn).await?;
    let states: Vec<_> = calls.iter().map(|c| c.status.as_str()).collect();
    assert_eq!(states, ["denied", "error_result", "error_result", "error_result"]);
    assert_eq!(troupe.tool.ledger().count(), 0);
    let told = troupe.model.requests().last().context("a request")?.tool_results();
    ensure!(told.iter().any(|r| r.content.contains("token")), "names the missing field: {told:?}");
    ensure!(told.iter().any(|r| r.content.contains("you may call")), "names the tools there are: {told:?}");
    troupe.audit(session).await
}

async fn calls_with_side_effects_run_in_order_and_others_side_by_side(stage: Stage) -> Result<()> {
    let script = Script::function(|request| {
        if !request.tool_results().is_empty() {
            return Reply::text("done");
        }
        let call = |n: u32| Reply::call("charge", json!({"token": n.to_string()}));
        call(1).and(call(2)).and(Reply::call("echo", json!({"text": "a"}))).and(call(3))
    });
    let troupe = Troupe::start(&stage, script, Config::default()).await?;
    let (session, agent) = agent(&troupe, tools()).await?;
    let turn = troupe.send(agent, "go", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(turn).await?.status, "completed");
    let calls = troupe.calls(turn).await?;
    let keys: Vec<_> = calls
        .iter()
        .filter(|c| c.name == "charge")
        .map(|c| Some(instar_core::id::CallId::from(c.id).to_string()))
        .collect();
    let done: Vec<_> = troupe.tool.ledger().effects().into_iter().map(|e| e.key).collect();
    assert_eq!(done, keys, "in the order in which they were asked for");
    troupe.audit(session).await
}

async fn an_interrupt_cuts_a_long_answer_and_keeps_what_was_said(stage: Stage) -> Result<()> {
    let script = Script::function(|request| {
        if request.user_text() == "and now?" {
            return Reply::text(format!("{} messages", request.messages().len()));
        }
        Reply::chunks((0..400).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(50))
    });
    let mut config = Config::default();
    config.worker.interrupt_grace_ms = 200;
    config.worker.checkpoint_ms = 100;
    let troupe = Troupe::start(&stage, script, config).await?;
    let (session, agent) = agent(&troupe, json!({})).await?;
    let turn = troupe.send(agent, "talk", Mode::Queue).await?.context("a turn")?;
    // Until something was kept.
    let store = troupe.context.hub.store();
    instar_testkit::wait::until(Duration::from_secs(10), || async {
        audit::runes(store, session).await.is_ok_and(|runes| runes.iter().any(|r| r.kind == "turn.assistant_delta"))
    })
    .await;
    ensure!(troupe.send(agent, "and now?", Mode::Interrupt).await?.is_none());
    let ended = troupe.ended(turn).await?;
    assert_eq!(ended.status, "interrupted");
    ensure!(ended.output.as_deref().is_some_and(|text| text.starts_with("word0 ")), "{:?}", ended.output);
    let next = troupe.live_turn(agent).await?;
    if let Some(next) = next {
        troupe.ended(next.id.into()).await?;
    }
    troupe.audit(session).await
}

async fn a_turn_whose_provider_sends_no_text_shows_that_it_is_at_work(stage: Stage) -> Result<()> {
    // Arguments of calls, piece by piece: nothing of that is kept before the answer is whole.
    let calls = (0..50).map(|n| Reply::call("echo", json!({"text": format!("call {n}")})));
    let whole = calls.reduce(Reply::and).context("calls")?.slow(Duration::ZERO, Duration::from_millis(100));
    let mut config = Config::default();
    config.scheduler.watchdog_ms = 10_000;
    let troupe = Troupe::start(&stage, Script::replies([whole]), config).await?;
    let (session, agent) = agent(&troupe, json!({"tools": ["echo"]})).await?;
    let turn = troupe.send(agent, "think", Mode::Queue).await?.context("a turn")?;
    instar_testkit::wait::until_ok(Duration::from_secs(30), || async {
        let runes = audit::runes(troupe.context.hub.store(), session).await?;
        let shown = runes.iter().filter(|rune| rune.kind == "turn.assistant_delta").count();
        ensure!(shown >= 2, "shown {shown} times");
        Ok(())
    })
    .await?;
    let row = troupe.turn(turn).await?;
    ensure!(row.status == "streaming" && row.iterations == 0, "the answer is not whole yet: {row:?}");
    Ok(())
}

async fn a_steer_while_tools_run_ends_the_turn_after_them_and_starts_its_own(stage: Stage) -> Result<()> {
    let script = Script::function(|request| match request.user_text().contains("something else") {
        true => Reply::text("Something else."),
        false => Reply::call("charge", json!({"token": "four"})),
    });
    let troupe = Troupe::start(&stage, script, Config::default()).await?;
    let (session, agent) = agent(&troupe, json!({"tools": ["charge"], "approval_mode": "auto"})).await?;
    let turn = troupe.send(agent, "charge four", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "tool_executing").await?;
    ensure!(troupe.send(agent, "say something else", Mode::Steer).await?.is_none());
    assert_eq!(troupe.turn(turn).await?.status, "tool_executing", "held back until the tools finish");
    let call = troupe.calls(turn).await?.remove(0);
    let id = instar_core::id::CallId::from(call.id);
    let act = Act::new(session, id, &call_machine::TABLE, "approved", cast::person())
        .telling("tool.approved", json!({"approver": "p", "digest": call.digest}));
    let Done::Moved { runes } = act.carry_out(&troupe.context.hub).await? else { anyhow::bail!("not approved") };
    troupe.context.hub.follow(&runes);
    assert_eq!(troupe.ended(turn).await?.status, "interrupted");
    instar_testkit::wait::until(Duration::from_secs(10), || async {
        troupe.live_turn(agent).await.is_ok_and(|live| live.is_none())
    })
    .await;
    assert_eq!(troupe.model.requests().len(), 2, "no provider call follows the tools of the steered turn");
    troupe.audit(session).await
}

async fn a_steer_while_the_model_speaks_takes_effect_at_once(stage: Stage) -> Result<()> {
    let script = Script::function(|request| match request.user_text().contains("something else") {
        true => Reply::text("Something else."),
        false => Reply::chunks((0..20).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(40)),
    });
    let troupe = Troupe::start(&stage, script, Config::default()).await?;
    let (session, agent) = agent(&troupe, json!({})).await?;
    let turn = troupe.send(agent, "talk", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "streaming").await?;
    instar_testkit::wait::until(BOUND, || async { troupe.model.counts().answered == 1 }).await;
    ensure!(troupe.send(agent, "something else", Mode::Steer).await?.is_none());
    let ended = troupe.ended(turn).await?;
    assert_eq!(ended.status, "interrupted", "{:?}", ended.error);
    ensure!(ended.output.as_deref().is_none_or(|text| !text.contains("word19")), "where it is: {:?}", ended.output);
    instar_testkit::wait::until(Duration::from_secs(10), || async {
        troupe.live_turn(agent).await.is_ok_and(|live| live.is_none())
    })
    .await;
    ensure!(troupe.model.requests().last().context("a request")?.user_text().contains("something else"));
    troupe.audit(session).await
}

async fn a_kill_outlives_an_interrupt_that_comes_after_it(stage: Stage) -> Result<()> {
    use instar_core::machine::{agent_lifecycle, turn as turn_machine};
    let script = Script::function(|_| {
        Reply::chunks((0..400).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(50))
    });
    let mut config = Config::default();
    config.worker.interrupt_grace_ms = 300;
    let troupe = Troupe::start(&stage, script, config).await?;
    let (session, agent) = agent(&troupe, json!({})).await?;
    let turn = troupe.send(agent, "talk", Mode::Queue).await?.context("a turn")?;
    troupe.in_state(turn, "streaming").await?;
    let hub = &troupe.context.hub;
    let kill = Act::new(session, agent, &agent_lifecycle::TABLE, "kill", cast::person());
    // By its row alone: told of it, the worker would have ended the turn before the interrupt comes.
    let kill = kill.prepare(hub).await?.context("not asked to end")?;
    let Answer::Moved(_) = hub.store().commit(kill).await? else { anyhow::bail!("not asked to end") };
    let more = Act::new(session, turn, &turn_machine::TABLE, "request_control", cast::person()).reason("now");
    let Done::Moved { runes } = more.carry_out(hub).await? else { anyhow::bail!("not interrupted") };
    hub.follow(&runes);
    assert_eq!(troupe.ended(turn).await?.status, "interrupted");
    let row = hub.store().agent(agent).await?.context("agent")?;
    assert_eq!(row.lifecycle, "terminated");
    troupe.audit(session).await
}

async fn the_limit_of_provider_calls_ends_a_turn_without_an_error(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.worker.repeated_calls_max = 0;
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::call("now", json!({}))), config).await?;
    let (session, agent) = agent(&troupe, tools()).await?;
    let turn = troupe.send(agent, "loop", Mode::Queue).await?.context("a turn")?;
    let ended = troupe.ended(turn).await?;
    assert_eq!((ended.status.as_str(), ended.iterations), ("completed", 10));
    troupe.audit(session).await
}

async fn money_errors_are_not_retried_and_stop_the_agent(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::spend_limit()), Config::default()).await?;
    let (session, agent) = agent(&troupe, json!({})).await?;
    let turn = troupe.send(agent, "hi", Mode::Queue).await?.context("a turn")?;
    assert_eq!(troupe.ended(turn).await?.status, "error");
    assert_eq!(troupe.model.requests().len(), 1);
    let row = troupe.context.hub.store().agent(agent).await?.context("agent")?;
    assert_eq!(row.drive, "errored");
    ensure!(row.last_error.is_some());
    troupe.audit(session).await
}

async fn a_long_wait_of_the_provider_is_a_timer_and_then_the_turn_goes_on(stage: Stage) -> Result<()> {
    let script = Script::replies([Reply::rate_limited(Some(Duration::from_secs(4)))]).then(|_| Reply::text("at last"));
    let troupe = Troupe::start(&stage, script, Config::default()).await?;
    let (session, agent) = agent(&troupe, json!({})).await?;
    let turn = troupe.send(agent, "hi", Mode::Queue).await?.context("a turn")?;
    let store = troupe.context.hub.store();
    instar_testkit::wait::until(Duration::from_secs(10), || async {
        troupe.turn(turn).await.is_ok_and(|t| t.control.is_some_and(|c| c["action"] == "wait"))
    })
    .await;
    assert_eq!(store.agent(agent).await?.context("agent")?.owner, None, "nobody holds it");
    let ended = troupe.ended(turn).await?;
    assert_eq!((ended.status.as_str(), ended.output.as_deref(), ended.attempts), ("completed", Some("at last"), 1));
    troupe.audit(session).await
}

on_both! {
    a_message_becomes_a_turn_with_a_tool_and_an_answer;
    turn_after_turn_the_model_sees_what_was_said_and_the_log_holds;
    an_effect_happens_once_and_carries_the_call_as_its_key;
    messages_that_come_meanwhile_get_the_next_turn_together;
    what_an_owner_begins_is_written_with_an_answer_that_comes_soon;
    what_an_owner_begins_is_written_by_itself_if_nothing_waits_for_the_answer;
    a_message_that_comes_before_the_claim_is_written_is_answered_too;
    a_message_that_waits_while_tools_run_does_not_cost_the_answer;
    a_turn_that_ends_before_its_claim_is_written_stays_ended;
    an_approval_waits_in_the_database_only_and_then_the_turn_goes_on;
    a_denial_is_a_result_that_the_model_sees;
    what_policy_or_schema_refuse_never_runs_and_the_turn_goes_on_at_once;
    calls_with_side_effects_run_in_order_and_others_side_by_side;
    an_interrupt_cuts_a_long_answer_and_keeps_what_was_said;
    a_turn_whose_provider_sends_no_text_shows_that_it_is_at_work;
    a_steer_while_tools_run_ends_the_turn_after_them_and_starts_its_own;
    a_steer_while_the_model_speaks_takes_effect_at_once;
    a_kill_outlives_an_interrupt_that_comes_after_it;
    the_limit_of_provider_calls_ends_a_turn_without_an_error;
    money_errors_are_not_retried_and_stop_the_agent;
    a_long_wait_of_the_provider_is_a_timer_and_then_the_turn_goes_on;
}
