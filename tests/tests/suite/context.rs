//! What agents see of their past, through worker, runner and scheduler on both backends.

use anyhow::{Context, Result, ensure};
use instar_core::context::{Budget, digest};
use instar_core::id::{AgentId, MessageId, SessionId, TurnId};
use instar_core::rune::Draft;
use instar_core::rune::payload::ConfigUpdated;
use instar_runtime::config::{Config, ModelConfig};
use instar_runtime::context::{Facts, Frozen, Rows, Setting, compose};
use instar_runtime::flow::{self, Mode};
use instar_store::entity::{agent, message};
use instar_store::{Answer, Change, Commit};
use instar_testkit::model::{Reply, Request, Script};
use instar_testkit::wait;
use instar_tests::fleet::tool_turn;
use instar_tests::stage::Stage;
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{cast, on_both};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::{Value, json};

async fn agent(troupe: &Troupe, config: Value) -> Result<(SessionId, AgentId)> {
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    Ok((session, cast::agent_like(store, session, config).await?))
}

async fn ask(troupe: &Troupe, agent: AgentId, words: &str) -> Result<Request> {
    let turn = troupe.send(agent, words, Mode::Queue).await?.context("a turn")?;
    let ended = troupe.ended(turn).await?;
    ensure!(ended.status == "completed", "{ended:?}");
    troupe.model.requests().pop().context("a request")
}

/// A write that the worker does not know of: what it knows of the agent no longer holds.
async fn touch(troupe: &Troupe, session: SessionId, id: AgentId) -> Result<()> {
    let mut commit = Commit::new(session, cast::person());
    commit.change(Change::new(&agent::TABLE, id.uuid()).set(agent::Column::Role, "touched"));
    commit.rune(Draft::new(id, &ConfigUpdated { changes: json!({"role": "touched"}) })?.agent(id));
    let landed = troupe.context.hub.commit(commit).await?;
    ensure!(matches!(landed, Answer::Moved(_)), "{landed:?}");
    Ok(())
}

fn results(request: &Request) -> Vec<String> {
    let tool = request.messages().iter().filter(|m| m["role"] == "tool");
    tool.map(|m| m["content"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn the_latest_tool_loop_is_seen_whether_the_agent_is_known_or_read_anew(stage: Stage) -> Result<()> {
    let script = Script::function(|request| {
        match request.user_text().starts_with("echo") && request.tool_results().is_empty() {
            true => Reply::call("echo", json!({"text": request.user_text()})),
            false => Reply::text("Done."),
        }
    });
    let troupe = Troupe::start(&stage, script, Config::default()).await?;
    let (session, agent) = agent(&troupe, json!({"tools": ["echo"]})).await?;
    ask(&troupe, agent, "echo one").await?;
    ask(&troupe, agent, "echo two").await?;
    let warm = ask(&troupe, agent, "words").await?;
    touch(&troupe, session, agent).await?;
    let cold = ask(&troupe, agent, "more words").await?;
    let again = ask(&troupe, agent, "and more").await?;
    for request in [&warm, &cold, &again] {
        let results = results(request);
        ensure!(results.len() == 1 && results[0].contains("echo two"), "{results:?}");
    }
    let [shorter, longer] = [&warm, &cold].map(|request| request.messages());
    ensure!(longer.starts_with(shorter), "{shorter:#?}\n{longer:#?}");
    ensure!(again.messages().starts_with(longer), "{longer:#?}");
    troupe.audit(session).await
}

async fn an_order_is_not_lost_however_much_was_said_since(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.worker.history_messages_max = 2;
    config.worker.history_summaries = false;
    config.scheduler.nudge_pause_ms = 10;
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::text("One step done.")), config).await?;
    let (session, agent) = agent(&troupe, json!({"loop": "autonomous"})).await?;
    troupe.send(agent, "old words", Mode::Queue).await?;
    wait::until_ok(WITHIN, || async {
        let made = troupe.model.requests().len();
        ensure!(made >= 4, "{made} calls");
        Ok(())
    })
    .await?;
    for request in troupe.model.requests() {
        let said = request.body["messages"].to_string();
        ensure!(said.contains("old words"), "{said}");
    }
    let last = troupe.model.requests().pop().context("a request")?;
    ensure!(last.user_text().contains("Carry on"), "{:?}", last.messages());
    wait::until_ok(WITHIN, || async {
        let row = stage.store.agent(agent).await?.context("the agent")?;
        ensure!(row.drive == "idle", "{}", row.drive);
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

async fn what_no_longer_fits_is_summarised_once_and_then_known_by_its_summary(stage: Stage) -> Result<()> {
    // A thousand tokens for the conversation, by estimate four bytes each.
    let mut config = Config::default();
    config.models.push(ModelConfig { name: "default".into(), context_window: Some(2_048), ..ModelConfig::default() });
    let script =
        Script::function(|request| match request.messages()[0]["content"].to_string().contains("keep the memory") {
            true => Reply::text("They count numbers."),
            false => Reply::text("Counted."),
        });
    let troupe = Troupe::start(&stage, script, config).await?;
    let (session, agent) = agent(&troupe, json!({"system_prompt": "You count."})).await?;
    let summaries = |troupe: &Troupe| {
        let asked = |request: &Request| request.messages()[0]["content"].to_string().contains("keep the memory");
        troupe.model.requests().iter().filter(|request| asked(request)).count()
    };
    for n in 0..3 {
        ask(&troupe, agent, &format!("number {n} {}", "x".repeat(1_400))).await?;
    }
    assert_eq!(summaries(&troupe), 1);
    for known in [true, false] {
        if !known {
            touch(&troupe, session, agent).await?;
        }
        let request = ask(&troupe, agent, "go on").await?;
        let said = request.body["messages"].to_string();
        ensure!(
            said.contains("They count numbers.") && said.contains("number 2") && !said.contains("number 1"),
            "{said}"
        );
    }
    assert_eq!(summaries(&troupe), 1);
    let stored = message::Entity::find()
        .filter(message::Column::AgentId.eq(agent.uuid()))
        .filter(message::Column::Source.eq("summary"))
        .all(stage.store.db())
        .await?;
    assert_eq!(stored.iter().map(|row| row.content.as_str()).collect::<Vec<_>>(), ["They count numbers."]);
    troupe.audit(session).await
}

/// What the summariser was given, each time.
fn summed_up(troupe: &Troupe) -> Vec<String> {
    let asked = |request: &Request| request.messages()[0]["content"].to_string().contains("keep the memory");
    troupe.model.requests().iter().filter(|request| asked(request)).map(Request::user_text).collect()
}

async fn a_summary_is_made_of_the_last_one_and_of_all_that_was_said_since(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.models.push(ModelConfig { name: "default".into(), context_window: Some(2_048), ..ModelConfig::default() });
    let script =
        Script::function(|request| match request.messages()[0]["content"].to_string().contains("keep the memory") {
            true => Reply::text("The key lies under the stone."),
            false => Reply::text("Noted."),
        });
    let troupe = Troupe::start(&stage, script, config).await?;
    let (session, agent) = agent(&troupe, json!({"system_prompt": "You note."})).await?;
    for n in 0..20 {
        if summed_up(&troupe).len() > 2 {
            break;
        }
        ask(&troupe, agent, &format!("number {n} {}", "x".repeat(1_400))).await?;
    }
    let asked = summed_up(&troupe);
    ensure!(asked.len() > 2, "{} summaries", asked.len());
    let mut next = 0;
    for (nth, words) in asked.iter().enumerate() {
        ensure!((nth > 0) == words.contains("summary so far: The key lies under the stone."), "{nth}: {words}");
        // However much room there is, none of the messages since then is left out.
        let told: Vec<usize> = (0..20).filter(|n| words.contains(&format!("number {n} x"))).collect();
        let (Some(first), Some(last)) = (told.first(), told.last()) else { anyhow::bail!("{nth}: {words}") };
        ensure!(*first <= next && told.len() == last - first + 1, "{nth}: {told:?} after {next}");
        next = last + 1;
    }
    troupe.audit(session).await
}

/// Sixty messages after one that matters, with a window of twenty; what the last one was sent.
async fn sixty_later(stage: &Stage, summaries: bool) -> Result<(Troupe, SessionId, Request)> {
    let mut config = Config::default();
    (config.worker.history_messages_max, config.worker.history_summaries) = (20, summaries);
    let script =
        Script::function(|request| match request.messages()[0]["content"].to_string().contains("keep the memory") {
            true if request.user_text().contains("under the stone") => Reply::text("The key lies under the stone."),
            true => Reply::text("Numbers were said."),
            false => Reply::text("Noted."),
        });
    let troupe = Troupe::start(stage, script, config).await?;
    let (session, agent) = agent(&troupe, json!({"system_prompt": "You note."})).await?;
    ask(&troupe, agent, "the key lies under the stone").await?;
    for n in 0..60 {
        if n == 35 {
            // From here on somebody who knows the rows only.
            touch(&troupe, session, agent).await?;
        }
        ask(&troupe, agent, &format!("number {n}.")).await?;
    }
    let last = ask(&troupe, agent, "where is the key?").await?;
    let turn = instar_store::entity::turn::Entity::find()
        .filter(instar_store::entity::turn::Column::AgentId.eq(agent.uuid()))
        .order_by_desc(instar_store::entity::turn::Column::Id)
        .one(stage.store.db())
        .await?;
    if summaries {
        is_exact(stage, turn.context("a turn")?.id.into(), 1).await?;
    }
    Ok((troupe, session, last))
}

async fn what_falls_out_of_the_window_is_summarised_now_and_then(stage: Stage) -> Result<()> {
    let (troupe, session, last) = sixty_later(&stage, true).await?;
    let said = last.body["messages"].to_string();
    ensure!(said.contains("under the stone"), "{said}");
    // At least half a window is there as it was said.
    ensure!((55..60).all(|n| said.contains(&format!("number {n}."))) && !said.contains("number 40."), "{said}");
    let asked = summed_up(&troupe);
    // 124 messages, and one summary for every ten of them.
    ensure!((8..=12).contains(&asked.len()), "{} summaries", asked.len());
    // Each message has its part in exactly one.
    for n in 0..45 {
        let in_it = asked.iter().filter(|words| words.contains(&format!("number {n}."))).count();
        ensure!(in_it == 1, "number {n} is in {in_it} summaries");
    }
    troupe.audit(session).await
}

async fn what_falls_out_of_the_window_is_forgotten_where_that_is_wanted(stage: Stage) -> Result<()> {
    let (troupe, _, last) = sixty_later(&stage, false).await?;
    ensure!(!last.body["messages"].to_string().contains("under the stone"), "{:?}", last.body);
    ensure!(summed_up(&troupe).is_empty());
    Ok(())
}

async fn who_is_stopped_does_not_wait_for_a_summary(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.models.push(ModelConfig { name: "default".into(), context_window: Some(2_048), ..ModelConfig::default() });
    let hung = std::sync::atomic::AtomicBool::new(false);
    let script = Script::function(move |request| {
        match request.messages()[0]["content"].to_string().contains("keep the memory") {
            true if !hung.swap(true, std::sync::atomic::Ordering::SeqCst) => Reply::hang(),
            true => Reply::text("Numbers."),
            false => Reply::text("Noted."),
        }
    });
    let troupe = Troupe::start(&stage, script, config).await?;
    let (session, agent) = agent(&troupe, json!({"system_prompt": "You note."})).await?;
    let mut turn = None;
    for n in 0..20 {
        let sent = troupe.send(agent, &format!("number {n} {}", "x".repeat(1_400)), Mode::Queue).await?;
        turn = sent;
        let id = sent.context("a turn")?;
        let over = wait::until_ok(WITHIN, || async {
            let ended = troupe.turn(id).await?.ended_at.is_some();
            ensure!(ended || !summed_up(&troupe).is_empty(), "it goes on");
            Ok(ended)
        });
        if !over.await? {
            break;
        }
    }
    ensure!(!summed_up(&troupe).is_empty(), "no summary was asked for");
    troupe.send(agent, "leave that", Mode::Interrupt).await?;
    let ended = troupe.ended(turn.context("a turn")?).await?;
    ensure!(ended.status == "interrupted", "{ended:?}");
    // What was said instead is answered, after another summary.
    let rest = wait::until_ok(WITHIN, || async {
        let live = troupe.live_turn(agent).await?;
        ensure!(live.is_none() && summed_up(&troupe).len() == 2, "{live:?}");
        Ok(())
    });
    rest.await?;
    troupe.audit(session).await
}

async fn a_summary_that_is_no_shorter_is_not_kept(stage: Stage) -> Result<()> {
    let mut config = Config::default();
    config.models.push(ModelConfig { name: "default".into(), context_window: Some(2_048), ..ModelConfig::default() });
    let script =
        Script::function(|request| match request.messages()[0]["content"].to_string().contains("keep the memory") {
            true => Reply::text("blah ".repeat(2_000)),
            false if request.user_text() == "echo" && rounds(request) < 3 => {
                Reply::call("echo", json!({"text": rounds(request).to_string()}))
            }
            false => Reply::text("Counted."),
        });
    let troupe = Troupe::start(&stage, script, config).await?;
    let (session, agent) = agent(&troupe, json!({"system_prompt": "You count.", "tools": ["echo"]})).await?;
    for n in 0..3 {
        ask(&troupe, agent, &format!("number {n} {}", "x".repeat(1_400))).await?;
    }
    let last = troupe.model.requests().pop().context("a request")?;
    let said = last.body["messages"].to_string();
    ensure!(said.contains("number 2") && !said.contains("number 0") && !said.contains("blah"), "{said}");
    // What it cost is booked all the same.
    let told = instar_tests::audit::runes(&stage.store, session).await?;
    assert_eq!(told.iter().filter(|rune| rune.kind == "turn.usage").count(), 1);
    let used: i64 = usage(&stage, agent).await?;
    assert_eq!(used, 15 * i64::try_from(troupe.model.requests().len())?);
    // Nor is it asked for again: not in the rounds of one turn, not in later turns, not by who reads the rows anew.
    for known in [true, false] {
        if !known {
            touch(&troupe, session, agent).await?;
        }
        let request = ask(&troupe, agent, "echo").await?;
        assert_eq!(rounds(&request), 3);
    }
    let asked = |request: &Request| request.messages()[0]["content"].to_string().contains("keep the memory");
    assert_eq!(troupe.model.requests().iter().filter(|request| asked(request)).count(), 1);
    troupe.audit(session).await
}

/// Results since the last prompt.
fn rounds(request: &Request) -> usize {
    let messages = request.messages();
    let last = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    messages[last..].iter().filter(|message| message["role"] == "tool").count()
}

/// Tokens that the agent has used in turns that are over.
async fn usage(stage: &Stage, agent: AgentId) -> Result<i64> {
    let row = stage.store.agent(agent).await?.context("the agent")?;
    let n = |field: &str| row.usage[field].as_i64().unwrap_or(0);
    Ok(n("input_tokens") + n("output_tokens"))
}

async fn a_turn_notes_what_it_sent_in_a_few_bytes(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, tool_turn(), Config::default()).await?;
    let (_, agent) = agent(&troupe, json!({"tools": ["echo"]})).await?;
    let turn = troupe.send(agent, "echo one", Mode::Queue).await?.context("a turn")?;
    let input = troupe.ended(turn).await?.input;
    let sent = input["sent"].as_array().context("sent")?;
    assert_eq!(sent.len(), 2, "{input}");
    ensure!(input.to_string().len() <= 60, "{input}");
    let runes = stage.store.runes(troupe.turn(turn).await?.session_id.into(), 0, 100).await?;
    let started = runes.iter().find(|rune| rune.kind == "turn.started").context("turn.started")?;
    ensure!(started.payload.get().contains("\"prompt_epoch\":\"msg_"), "{}", started.payload.get());
    Ok(())
}

/// What the rows give for a provider call of a turn, held against what its worker noted when it made the call.
async fn is_exact(stage: &Stage, turn: TurnId, number: u64) -> Result<()> {
    let row = stage.store.turn(turn).await?.context("the turn")?;
    let agent = stage.store.agent(row.agent_id.into()).await?.context("the agent")?;
    let latest = MessageId::from(uuid::Uuid::max());
    let messages = stage.store.messages_up_to(row.agent_id.into(), turn, latest, 1_000).await?;
    let seen = stage.store.calls_seen(row.agent_id.into(), turn, 40).await?;
    let (calls, earlier): (Vec<_>, Vec<_>) = seen.into_iter().partition(|call| call.turn_id == Some(row.id));
    let facts = Facts::default();
    let setting = Setting { facts: &facts, snapshot: &|_| None, budget: Budget(u64::MAX), window: 1_000 };
    let answers = i64::try_from(number)? - 1;
    let (agent, turn) = (&agent, &row);
    let rows = Rows { agent, turn, messages: &messages, calls: &calls, earlier: &earlier, answers };
    let composed = compose(rows, &setting);
    let noted = Frozen::of(&row).words(number).map(str::to_owned);
    ensure!(noted.as_deref() == Some(digest(&composed).as_str()), "{noted:?} {:#?}", composed.messages);
    Ok(())
}

/// As a broadcast leaves one that found the agent in a turn which ended at that very moment.
async fn a_message_that_waited_since_before_the_turns_own_comes_first(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::function(|_| Reply::text("Done.")), Config::default()).await?;
    let (session, id) = agent(&troupe, json!({})).await?;
    ask(&troupe, id, "hello").await?;
    let store = &stage.store;
    let old = MessageId::from(uuid::Uuid::now_v7());
    let row = store.agent(id).await?.context("the agent")?;
    let said = flow::message(
        &store.session(session).await?.context("the session")?,
        &row,
        false,
        "new words",
        cast::person(),
        None,
    )?;
    let mut commit = said.commit;
    commit.insert(
        &message::TABLE,
        message::Model {
            id: old.uuid(),
            session_id: session.uuid(),
            agent_id: id.uuid(),
            turn_id: None,
            version: 0,
            role: "user".into(),
            source: "broadcast".into(),
            mode: "queue".into(),
            content: "old words".into(),
            data: None,
            created_at: commit.at(),
        },
    );
    let Answer::Moved(landed) = troupe.context.hub.commit(commit).await? else { anyhow::bail!("overtaken") };
    troupe.context.hub.follow(&landed.runes);
    let turn = said.turn.context("a turn")?;
    ensure!(troupe.ended(turn).await?.status == "completed");
    let texts = |request: &Request| -> Vec<String> {
        let said = request.messages().iter().filter(|m| m["role"] == "user");
        said.map(|m| m["content"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let sent = texts(&troupe.model.requests().pop().context("a request")?).join("|");
    let (first, second) = (sent.find("old words"), sent.find("new words"));
    ensure!(first.is_some() && first < second, "{sent}");
    is_exact(&stage, turn, 1).await?;
    let runes = store.runes(session, 0, 100).await?;
    let started = runes.iter().rfind(|rune| rune.kind == "turn.started").context("turn.started")?;
    ensure!(started.payload.get().contains(&old.to_string()), "{}", started.payload.get());
    // Nor do later turns see it elsewhere, of a worker that knows the agent or of one that does not.
    for known in [true, false] {
        if !known {
            touch(&troupe, session, id).await?;
        }
        let turn = troupe.send(id, "go on", Mode::Queue).await?.context("a turn")?;
        ensure!(troupe.ended(turn).await?.status == "completed");
        is_exact(&stage, turn, 1).await?;
    }
    Ok(())
}

on_both! {
    a_message_that_waited_since_before_the_turns_own_comes_first;
    the_latest_tool_loop_is_seen_whether_the_agent_is_known_or_read_anew;
    an_order_is_not_lost_however_much_was_said_since;
    what_no_longer_fits_is_summarised_once_and_then_known_by_its_summary;
    a_summary_is_made_of_the_last_one_and_of_all_that_was_said_since;
    what_falls_out_of_the_window_is_summarised_now_and_then;
    what_falls_out_of_the_window_is_forgotten_where_that_is_wanted;
    who_is_stopped_does_not_wait_for_a_summary;
    a_summary_that_is_no_shorter_is_not_kept;
    a_turn_notes_what_it_sent_in_a_few_bytes;
}
