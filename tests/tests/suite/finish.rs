//! Why an answer ended, and what becomes of one that the model did not end by itself.

use anyhow::{Context, Result, bail, ensure};
use instar_core::id::{AgentId, SessionId};
use instar_core::machine::{By, turn as turn_machine};
use instar_core::rune::payload::TurnAssistantDelta;
use instar_core::rune::{Actor, Draft};
use instar_runtime::config::{Config, ModelConfig};
use instar_runtime::flow::Mode;
use instar_runtime::{Act, Done};
use instar_store::Commit;
use instar_store::entity::turn;
use instar_testkit::model::{Finish, Reply, Script};
use instar_testkit::wait;
use instar_tests::stage::Stage;
use instar_tests::troupe::Troupe;
use instar_tests::{audit, cast, on_both};
use serde_json::json;
use std::time::Duration;

fn anthropic() -> Config {
    let model = ModelConfig { name: "default".into(), provider: "anthropic".into(), ..ModelConfig::default() };
    Config { models: vec![model], ..Config::default() }
}

async fn agent(troupe: &Troupe) -> Result<(SessionId, AgentId)> {
    let store = troupe.context.hub.store();
    let session = cast::session(store).await?;
    Ok((session, cast::agent_like(store, session, json!({})).await?))
}

async fn ask(troupe: &Troupe, agent: AgentId, words: &str) -> Result<turn::Model> {
    let turn = troupe.send(agent, words, Mode::Queue).await?.context("a turn")?;
    troupe.ended(turn).await
}

/// What the newest `turn.completed` says.
async fn told(troupe: &Troupe, session: SessionId) -> Result<Option<String>> {
    let runes = audit::runes(troupe.context.hub.store(), session).await?;
    let last = runes.iter().rfind(|rune| rune.kind == "turn.completed").context("turn.completed")?;
    let payload: serde_json::Value = serde_json::from_str(last.payload.get())?;
    Ok(payload["finish_reason"].as_str().map(str::to_owned))
}

async fn an_answer_that_is_not_whole_says_so(stage: Stage) -> Result<()> {
    for config in [Config::default(), anthropic()] {
        let script = Script::replies([
            Reply::text("well"),
            Reply::text("I was about to").finish(Finish::Length),
            Reply::text("I would rather not").finish(Finish::Refusal),
        ]);
        let troupe = Troupe::start(&stage, script, config).await?;
        let (session, agent) = agent(&troupe).await?;
        for expected in ["stop", "length", "refusal"] {
            let ended = ask(&troupe, agent, "say something").await?;
            assert_eq!((ended.status.as_str(), ended.finish_reason.as_deref()), ("completed", Some(expected)));
            ensure!(ended.output.is_some_and(|text| !text.is_empty()), "what it said is kept");
            assert_eq!(told(&troupe, session).await?.as_deref(), Some(expected));
        }
        troupe.audit(session).await?;
    }
    Ok(())
}

async fn a_provider_that_pauses_is_sent_what_it_said_and_goes_on(stage: Stage) -> Result<()> {
    let script = Script::replies([Reply::text("First I looked.").finish(Finish::Pause).usage(10, 5)])
        .then(|_| Reply::text("Then I found it.").usage(20, 7));
    let troupe = Troupe::start(&stage, script, anthropic()).await?;
    let (session, agent) = agent(&troupe).await?;
    let ended = ask(&troupe, agent, "look for it").await?;
    assert_eq!((ended.status.as_str(), ended.finish_reason.as_deref()), ("completed", Some("stop")));
    assert_eq!((ended.iterations, ended.attempts, ended.output.as_deref()), (2, 1, Some("Then I found it.")));
    assert_eq!((&ended.usage["input_tokens"], &ended.usage["output_tokens"]), (&json!(30), &json!(12)));
    let request = troupe.model.requests().pop().context("a request")?;
    let last = request.messages().last().context("a message")?.clone();
    assert_eq!(last["role"], "assistant");
    ensure!(last["content"].to_string().contains("First I looked."), "{last}");
    troupe.audit(session).await
}

async fn an_answer_with_a_pause_that_is_stopped_is_shown_once(stage: Stage) -> Result<()> {
    let script = Script::replies([Reply::text("First I looked.").finish(Finish::Pause), Reply::hang()])
        .then(|_| Reply::text("Back."));
    let troupe = Troupe::start(&stage, script, anthropic()).await?;
    let (session, agent) = agent(&troupe).await?;
    let turn = troupe.send(agent, "look for it", Mode::Queue).await?.context("a turn")?;
    let goes_on = || async { troupe.model.requests().len() == 2 };
    wait::until(Duration::from_secs(30), goes_on).await;
    // As it is until somebody has taken the turn up again: of the answer the log has nothing newer.
    let mut commit = Commit::new(session, Actor::new(By::System, "tests"));
    let piece = TurnAssistantDelta { content: "First I looked.".into(), index: 0 };
    commit.rune(Draft::new(turn, &piece)?.agent(agent).turn(turn));
    troupe.context.hub.store().commit(commit).await?;
    let act = Act::new(session, turn, &turn_machine::TABLE, "turn_deadline", Actor::new(By::System, "tests"));
    let Done::Moved { runes } = act.carry_out(&troupe.context.hub).await? else { bail!("it has not ended") };
    troupe.context.hub.follow(&runes);
    assert_eq!(troupe.ended(turn).await?.status, "error");
    assert_eq!(ask(&troupe, agent, "and now?").await?.output.as_deref(), Some("Back."));
    let request = troupe.model.requests().pop().context("a request")?.body.to_string();
    assert_eq!(request.matches("First I looked.").count(), 1, "{request}");
    troupe.audit(session).await
}

async fn a_provider_that_pauses_for_ever_ends_the_turn(stage: Stage) -> Result<()> {
    let script = Script::function(|_| Reply::text("still at it").finish(Finish::Pause));
    let troupe = Troupe::start(&stage, script, anthropic()).await?;
    let (session, agent) = agent(&troupe).await?;
    let ended = ask(&troupe, agent, "hurry").await?;
    assert_eq!((ended.status.as_str(), ended.iterations), ("completed", 10));
    assert_eq!(ended.finish_reason.as_deref(), Some("pause"));
    troupe.audit(session).await
}

async fn a_model_whose_window_is_full_goes_on_after_a_summary(stage: Stage) -> Result<()> {
    let script = Script::function(|request| {
        let said = request.body.to_string();
        match () {
            () if said.contains("keep the memory") => Reply::text("They said much."),
            () if said.contains("last words") && !said.contains("They said much.") => {
                Reply::text("As I was").finish(Finish::ContextWindow)
            }
            () => Reply::text("Done."),
        }
    });
    let troupe = Troupe::start(&stage, script, anthropic()).await?;
    let (session, agent) = agent(&troupe).await?;
    assert_eq!(ask(&troupe, agent, &"much ".repeat(200)).await?.output.as_deref(), Some("Done."));
    let ended = ask(&troupe, agent, "last words").await?;
    assert_eq!((ended.status.as_str(), ended.output.as_deref()), ("completed", Some("Done.")));
    assert_eq!(ended.finish_reason.as_deref(), Some("stop"));
    assert_eq!(ended.usage["input_tokens"], json!(30), "three calls of ten tokens were made");
    troupe.audit(session).await
}

async fn a_model_whose_window_is_full_of_one_message_stays_cut_off(stage: Stage) -> Result<()> {
    let script = Script::function(|_| Reply::text("As I was").finish(Finish::ContextWindow));
    let troupe = Troupe::start(&stage, script, anthropic()).await?;
    let (session, agent) = agent(&troupe).await?;
    let ended = ask(&troupe, agent, "everything at once").await?;
    assert_eq!((ended.status.as_str(), ended.output.as_deref()), ("completed", Some("As I was")));
    assert_eq!(ended.finish_reason.as_deref(), Some("context_window"));
    troupe.audit(session).await
}

on_both! {
    an_answer_that_is_not_whole_says_so;
    a_provider_that_pauses_is_sent_what_it_said_and_goes_on;
    a_provider_that_pauses_for_ever_ends_the_turn;
    an_answer_with_a_pause_that_is_stopped_is_shown_once;
    a_model_whose_window_is_full_goes_on_after_a_summary;
    a_model_whose_window_is_full_of_one_message_stays_cut_off;
}
