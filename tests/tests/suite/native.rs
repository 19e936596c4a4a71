//! Tools that act on the store: who calls is known, and what they change comes with their result.

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, Utc};
use instar_core::id::{AgentId, SessionId};
use instar_runtime::config::Config;
use instar_runtime::flow::{self, Mode};
use instar_store::entity::broadcast;
use instar_testkit::model::{Reply, Request, Script};
use instar_testkit::wait;
use instar_tests::stage::Stage;
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::{audit, cast, on_both};
use serde_json::{Value, json};

/// Follows the user: `search_messages fox 2` is a call, `think …` is thought and repeated.
fn seeker() -> Script {
    Script::function(|request: &Request| {
        if !request.tool_results().is_empty() {
            return Reply::text("That is what there is.");
        }
        let text = request.user_text();
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            [tool, query, limit] if tool.starts_with("search_") => {
                Reply::call(tool, json!({"query": query.replace('+', " "), "limit": limit.parse::<u64>().unwrap_or(0)}))
            }
            [tool, query] if tool.starts_with("search_") => {
                Reply::call(tool, json!({"query": query.replace('+', " ")}))
            }
            ["think", rest @ ..] => Reply::call("echo", json!({"text": "x"})).thinking(&rest.join(" ")),
            _ => Reply::text(format!("You said {text}")),
        }
    })
}

/// Whoever can sign a hint can tell of a call that nobody recorded: a look may come of it, and no more.
async fn the_result_of_what_is_no_call_is_dropped_and_noted(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, seeker(), Config::default()).await?;
    let (session, agent) = agent(&troupe, None).await?;
    let turn = troupe.send(agent, "hello", Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let before = audit::runes(&stage.store, session).await?.len();
    let call: instar_core::id::CallId = cast::fresh();
    let row = instar_bus::message::Call {
        agent_id: agent.to_string(),
        name: "echo".into(),
        arguments: json!({"text": "nobody asked"}).to_string(),
        digest: String::new(),
        effect: "read_only".into(),
    };
    let forged = instar_runtime::Startable { session, turn: Some(turn), call, owner: None, row: Some(row) };
    troupe.context.hub.wake_call(forged, false, None);
    let told = wait::until_ok(WITHIN, || async {
        let mut runes = audit::runes(&stage.store, session).await?;
        let told = runes.split_off(before);
        ensure!(!told.is_empty(), "nothing was noted");
        Ok(told)
    })
    .await?;
    let [told] = told.as_slice() else { anyhow::bail!("{told:?}") };
    ensure!(told.kind == "system.invariant_violation", "{told:?}");
    let said = told.payload.get();
    ensure!(said.contains("INV-TOOL-CALL-BEFORE-RESULT") && said.contains(&call.to_string()), "{said}");
    ensure!(stage.store.call(call).await?.is_none() && !said.contains("nobody asked"), "{said}");
    Ok(())
}

async fn agent(troupe: &Troupe, session: Option<SessionId>) -> Result<(SessionId, AgentId)> {
    let store = troupe.context.hub.store();
    let session = match session {
        Some(session) => session,
        None => cast::session(store).await?,
    };
    let tools = ["echo", "search_messages", "search_reasoning", "search_broadcasts"];
    Ok((session, cast::agent_like(store, session, json!({"tools": tools})).await?))
}

/// What the only call of the turn that this message causes came to.
async fn ask(troupe: &Troupe, agent: AgentId, text: &str) -> Result<(String, Value)> {
    let turn = troupe.send(agent, text, Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let call = troupe.calls(turn).await?.pop().context("a call")?;
    Ok((call.result_status.unwrap_or_default(), call.result.unwrap_or_default()))
}

fn found(result: &Value) -> Vec<&str> {
    let matches = result["output"]["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
    matches.iter().filter_map(|one| one["content"].as_str()).collect()
}

async fn an_agent_finds_what_it_was_told_and_said_and_nobody_elses(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, seeker(), Config::default()).await?;
    let (session, agent_id) = agent(&troupe, None).await?;
    let (_, other) = agent(&troupe, Some(session)).await?;
    for text in ["a red Fox", "a blue whale", "the FOX again", "100% of_it"] {
        let turn = troupe.send(agent_id, text, Mode::Queue).await?.context("a turn")?;
        troupe.ended(turn).await?;
    }
    let turn = troupe.send(other, "my own fox", Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let (status, all) = ask(&troupe, agent_id, "search_messages fox").await?;
    assert_eq!(status, "success");
    let expected =
        ["a red Fox", "You said a red Fox", "the FOX again", "You said the FOX again", "search_messages fox"];
    assert_eq!(found(&all), expected, "oldest first, in either case");
    let one = &all["output"]["matches"][1];
    assert_eq!((one["role"].as_str(), one["source"].as_str()), (Some("assistant"), Some("model")));
    ensure!(one["at"].as_str().is_some_and(|at| at.parse::<chrono::DateTime<chrono::Utc>>().is_ok()), "{one}");
    let (_, newest) = ask(&troupe, agent_id, "search_messages said+a 1").await?;
    assert_eq!(found(&newest), ["You said a blue whale"], "the newest of two");
    let (_, literal) = ask(&troupe, agent_id, "search_messages %").await?;
    assert_eq!(found(&literal)[0], "100% of_it");
    let (status, none) = ask(&troupe, other, "search_messages whale").await?;
    assert_eq!((status.as_str(), found(&none)), ("success", vec!["search_messages whale"]), "its own words only");
    let (status, none) = ask(&troupe, other, "search_broadcasts whale").await?;
    assert_eq!((status.as_str(), found(&none).len()), ("success", 0), "nothing found is an answer");
    troupe.audit(session).await
}

/// A broadcast to the agents of the session but for one.
async fn broadcast(troupe: &Troupe, but: AgentId, content: &str, expires_at: Option<DateTime<Utc>>) -> Result<()> {
    let (hub, store) = (&troupe.context.hub, troupe.context.hub.store());
    let session = store.agent(but).await?.context("an agent")?.session_id;
    let row = broadcast::Model {
        id: uuid::Uuid::now_v7(),
        session_id: session,
        content: content.into(),
        standing: true,
        expires_at,
        sender: "key_test".into(),
        created_at: Utc::now(),
        version: 0,
    };
    let audience = store.audience(session.into()).await?;
    let others: Vec<_> = audience.iter().filter(|one| one.agent.id != but.uuid()).collect();
    let commit = flow::broadcast(&row, &others, false, cast::person(), None)?;
    hub.follow(&cast::land(store, commit).await?.runes);
    Ok(())
}

async fn what_still_stands_is_found_by_who_was_not_sent_it(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, seeker(), Config::default()).await?;
    let (session, absent) = agent(&troupe, None).await?;
    let turn = troupe.send(absent, "hello", Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let (_, sent) = agent(&troupe, Some(session)).await?;
    let past = Utc::now() - chrono::Duration::minutes(1);
    broadcast(&troupe, absent, "The BRIDGE is closed", None).await?;
    broadcast(&troupe, absent, "The bridge was open", Some(past)).await?;
    let (status, all) = ask(&troupe, absent, "search_broadcasts bridge").await?;
    assert_eq!((status.as_str(), found(&all)), ("success", vec!["The BRIDGE is closed"]), "the other one has expired");
    let (_, own) = ask(&troupe, absent, "search_messages closed").await?;
    assert_eq!(found(&own), ["search_messages closed"], "it is no message of its own");
    wait::until_ok(WITHIN, || async {
        let (_, all) = ask(&troupe, sent, "search_broadcasts bridge").await?;
        ensure!(found(&all) == ["The BRIDGE is closed", "The bridge was open"], "each once: {all}");
        Ok(())
    })
    .await?;
    troupe.audit(session).await
}

async fn thoughts_are_kept_and_found_though_nothing_was_said(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, seeker(), Config::default()).await?;
    let (session, agent) = agent(&troupe, None).await?;
    ask(&troupe, agent, "think The river is DEEP here").await?;
    let (_, thoughts) = ask(&troupe, agent, "search_reasoning deep").await?;
    assert_eq!(found(&thoughts), ["The river is DEEP here"]);
    let (_, said) = ask(&troupe, agent, "search_messages river").await?;
    assert_eq!(found(&said), ["think The river is DEEP here", "search_messages river"]);
    troupe.audit(session).await
}

async fn an_empty_or_boundless_search_is_refused_in_words(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, seeker(), Config::default()).await?;
    let (session, agent) = agent(&troupe, None).await?;
    for (text, why) in
        [("search_messages +", "query is empty"), ("search_messages x 101", "limit"), ("search_messages x 0", "limit")]
    {
        let (status, result) = ask(&troupe, agent, text).await?;
        assert_eq!(status, "error", "{text}");
        ensure!(result["error"].as_str().is_some_and(|error| error.contains(why)), "{text}: {result}");
    }
    troupe.audit(session).await
}

async fn a_long_match_is_cut_around_its_hit(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, seeker(), Config::default()).await?;
    let (session, agent) = agent(&troupe, None).await?;
    let long = format!("{}NEEDLE{}", "é ".repeat(3_000), " ü".repeat(3_000));
    let turn = troupe.send(agent, &long, Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await?;
    let (_, result) = ask(&troupe, agent, "search_messages needle 3").await?;
    let first = found(&result)[0];
    ensure!(first.chars().count() == 1_000 && first.contains("NEEDLE"), "{} characters", first.chars().count());
    ensure!(result["output"]["matches"][0]["cut"].as_str().is_some_and(|cut| cut.contains("12006")), "{result}");
    troupe.audit(session).await
}

on_both! {
    the_result_of_what_is_no_call_is_dropped_and_noted;
    an_agent_finds_what_it_was_told_and_said_and_nobody_elses;
    what_still_stands_is_found_by_who_was_not_sent_it;
    thoughts_are_kept_and_found_though_nothing_was_said;
    an_empty_or_boundless_search_is_refused_in_words;
    a_long_match_is_cut_around_its_hit;
}
