//! Every way to stop an answer ends it where it is: soon, with what was said, and nothing more is paid for.

use crate::plan::{self, Lines, task};
use crate::turn::next_answers;
use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Reply, Request};
use instar_testkit::wait;
use instar_tests::stopping;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(crate) static PLAIN: Group = Group {
    name: "stop",
    config: "",
    environment: &[],
    at_once: 2,
    scenarios: scenarios![
        every_way_ends_an_answer_where_it_is,
        a_plan_that_is_cancelled_ends_the_answer_of_its_task,
        a_limit_that_is_used_up_ends_answers_of_others,
        a_provider_that_says_nothing_is_not_waited_for,
        calls_that_nobody_has_recorded_are_not_made,
        what_steers_goes_before_what_was_queued,
    ],
};

/// The worker does not react: the thread that is about to end the turn sleeps.
pub(crate) static FROZEN: Group = Group {
    name: "frozen_stop",
    config: "[worker]\ninterrupt_grace_ms = 300\ncheckpoint_ms = 100\n",
    environment: &[("INSTAR_CRASH_AT", "worker.cut.before:wait")],
    at_once: 1,
    scenarios: scenarios![a_worker_that_does_not_react_is_not_waited_for],
};

/// Three times what is promised, on a machine that does other things as well.
const SOON: Duration = Duration::from_millis(3 * 300);
const WITHIN: Duration = Duration::from_secs(30);
const MARK: &str = "[This answer was cut off here";

/// A minute of words to what begins with `talk`, a short answer to anything else.
fn talks(request: &Request) -> Reply {
    match request.user_text().starts_with("talk") {
        true => Reply::chunks((0..2_000).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(30)),
        false => Reply::text("Done."),
    }
}

/// The number of the request that this was said in.
fn request_of(world: &World, said: &str) -> Result<u64> {
    let requests = world.fleet().model.requests();
    let own = |request: &&Request| request.user_text().contains(said) && request_is_of(world, request);
    Ok(requests.iter().find(own).with_context(|| format!("nobody was asked {said:?}"))?.number)
}

fn request_is_of(world: &World, request: &Request) -> bool {
    let system = request.messages().iter().find(|m| m["role"] == "system").map(|m| m["content"].to_string());
    system.is_some_and(|system| system.contains(&format!("[{}]", world.name)))
}

/// When the provider saw that nobody listens any more.
async fn given_up(world: &World, request: u64) -> Result<Instant> {
    wait::until_ok(WITHIN, || async {
        let gone = world.fleet().model.given_up();
        Ok(gone.iter().find(|one| one.request == request).context("the provider still speaks")?.at)
    })
    .await
}

/// What a session tells of itself, as a client hears it.
struct Events {
    answer: reqwest::Response,
    rest: String,
    /// Whose answer was the first, and what came of it.
    first: Option<Value>,
    said: String,
}

impl Events {
    async fn of(world: &World, session: &str) -> Result<Events> {
        let answer = world.fetch(&format!("/v1/sessions/{session}/events"), None).await?;
        Ok(Events { answer, rest: String::new(), first: None, said: String::new() })
    }

    /// The next event of this kind; pieces of answers on the way are put together.
    async fn next(&mut self, wanted: &str) -> Result<Value> {
        loop {
            while let Some((frame, rest)) = self.rest.split_once("\n\n") {
                let field =
                    |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
                let (kind, data) = (field("event:").to_owned(), field("data:").to_owned());
                self.rest = rest.to_owned();
                let data: Value = serde_json::from_str(&data).unwrap_or_default();
                if kind == "delta" && *self.first.get_or_insert_with(|| data["turn_id"].clone()) == data["turn_id"] {
                    self.said += data["text"].as_str().unwrap_or_default();
                }
                if kind == wanted {
                    return Ok(data);
                }
            }
            let chunk = tokio::time::timeout(WITHIN, self.answer.chunk()).await.context(format!("no {wanted}"))??;
            self.rest += std::str::from_utf8(&chunk.context("the stream ended")?)?;
        }
    }
}

/// An agent that has begun to talk, and who hears it.
struct Talk {
    session: String,
    agent: String,
    turn: String,
    request: u64,
    events: Events,
}

impl Talk {
    async fn begin(world: &World, about: &str) -> Result<Talk> {
        let session = world.session().await?;
        let agent = world.agent(&session, json!({})).await?;
        let mut events = Events::of(world, &session).await?;
        let said = format!("talk about {about}");
        let turn = world.begin(&agent, &said).await?;
        for _ in 0..3 {
            events.next("delta").await?;
        }
        let request = request_of(world, &said)?;
        Ok(Talk { session, agent, turn, request, events })
    }

    /// What was said is in the row, the log and the stream; gives it.
    async fn kept(&mut self, world: &World) -> Result<String> {
        let ended = world.ended(&self.turn).await?;
        let output = text(&ended, "output").with_context(|| ended.to_string())?;
        ensure!(ended["status"] == "interrupted" && output.starts_with("word0 word1 "), "{ended}");
        let runes = world.runes_of(&self.session, "turn.interrupted", 1).await?;
        ensure!(runes[0]["payload"]["partial_output"] == output.as_str(), "{output:?}: {runes:?}");
        let heard = self.events.next("turn.interrupted").await?;
        ensure!(heard["payload"]["partial_output"] == output.as_str(), "{output:?}: {heard}");
        ensure!(output.starts_with(&self.events.said), "{output:?}: heard {:?}", self.events.said);
        Ok(output)
    }
}

async fn every_way_ends_an_answer_where_it_is(world: World) -> Result<()> {
    world.script(talks);
    for way in ["interrupt", "message", "steering message", "steer", "stop", "pause", "terminate", "force", "close"] {
        let mut talk = Talk::begin(&world, way).await?;
        let (agent, turn, session) = (&talk.agent, &talk.turn, &talk.session);
        let (path, body) = stopping::request(way, session, agent, turn);
        world.act(&format!("/v1/{path}"), body).await?;
        let answered = Instant::now();
        let took = given_up(&world, talk.request).await?.saturating_duration_since(answered);
        ensure!(took <= SOON, "{way}: the provider spoke for {took:?}");
        let said = talk.kept(&world).await.context(way)?;
        shown_to_the_model(&world, &talk, way, &said).await.context(way)?;
    }
    Ok(())
}

/// The next context has it as an answer that was cut off.
async fn shown_to_the_model(world: &World, talk: &Talk, way: &str, said: &str) -> Result<()> {
    let (agent, session) = (&talk.agent, &talk.session);
    match way {
        "message" | "steering message" | "steer" => next_answers(world, agent, "and now?").await?,
        "terminate" | "force" | "close" => return Ok(()),
        _ => {
            match way {
                "stop" => drop(world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?),
                "pause" => drop(world.act(&format!("/v1/sessions/{session}/resume"), json!({})).await?),
                _ => {}
            }
            world.turn(agent, "and now?").await?;
        }
    }
    let about = format!("talk about {way}");
    let requests = world.fleet().model.requests();
    let own = |request: &&Request| {
        request.user_text() == "and now?" && request.messages().iter().any(|m| m["content"] == about.as_str())
    };
    let shown = requests.iter().find(own).context("no next context")?;
    let answers = shown.messages().iter().filter(|m| m["role"] == "assistant").collect::<Vec<_>>();
    let shown = answers.first().and_then(|m| m["content"].as_str()).context("no answer in it")?;
    ensure!(shown.starts_with(said) && shown.contains(MARK), "{answers:?}");
    Ok(())
}

async fn a_plan_that_is_cancelled_ends_the_answer_of_its_task(world: World) -> Result<()> {
    let talk = Reply::chunks((0..2_000).map(|n| format!("word{n} "))).slow(Duration::ZERO, Duration::from_millis(30));
    Lines::default().plan(json!([task("a", &[])])).task("a", [talk]).follow(&world);
    let (session, id) = plan::begin(&world, json!({})).await?;
    let mut events = Events::of(&world, &session).await?;
    let running = plan::task_is(&world, &id, "a", "running").await?;
    let turn = text(plan::of(&running, "a"), "turn_id")?;
    while events.next("delta").await?["turn_id"] != turn.as_str() {}
    events.next("delta").await?;
    let request = request_of(&world, "Task a:")?;
    world.act(&format!("/v1/plans/{id}/cancel"), json!({})).await?;
    let answered = Instant::now();
    let took = given_up(&world, request).await?.saturating_duration_since(answered);
    ensure!(took <= SOON, "the provider spoke for {took:?}");
    let ended = world.ended(&turn).await?;
    ensure!(ended["status"] == "interrupted", "{ended}");
    let said = text(&ended, "output")?;
    ensure!(said.starts_with("word0 "), "{ended}");
    let told = world.runes_of(&session, "turn.interrupted", 1).await?;
    ensure!(told[0]["turn_id"] == turn.as_str() && told[0]["payload"]["partial_output"] == said.as_str(), "{told:?}");
    // Whoever goes on with that agent has it as an answer that was cut off.
    let agent = text(&ended, "agent_id")?;
    world.turn(&agent, "and now?").await?;
    let requests = world.fleet().model.requests();
    let own = |request: &&Request| request.user_text() == "and now?" && request_is_of(&world, request);
    let shown = requests.iter().rfind(own).context("no next context")?;
    let answers = shown.messages().iter().filter(|m| m["role"] == "assistant").collect::<Vec<_>>();
    let cut = |m: &&&Value| m["content"].as_str().is_some_and(|text| text.starts_with(&said) && text.contains(MARK));
    ensure!(answers.iter().any(|m| cut(&m)), "{answers:?}");
    Ok(())
}

async fn a_limit_that_is_used_up_ends_answers_of_others(world: World) -> Result<()> {
    world.script(|request| match request.user_text().starts_with("talk") {
        true => talks(request),
        false => Reply::call("echo", json!({"text": "a"})).and(Reply::call("echo", json!({"text": "b"}))),
    });
    let new = json!({"name": world.name, "budget": {"max_tool_calls": 1}});
    let session = text(&world.act("/v1/sessions", new).await?, "id")?;
    let mut events = Events::of(&world, &session).await?;
    let talker = world.agent(&session, json!({"name": "bob"})).await?;
    let turn = world.begin(&talker, "talk").await?;
    events.next("delta").await?;
    let caller = world.agent(&session, json!({"tools": ["echo"]})).await?;
    world.turn(&caller, "two calls").await?;
    let suspended = format!("/v1/sessions/{session}");
    world.until(&suspended, |session| session["status"] == "suspended").await?;
    let seen = Instant::now();
    let took = given_up(&world, request_of(&world, "talk")?).await?.saturating_duration_since(seen);
    ensure!(took <= SOON, "the provider spoke for {took:?}");
    let ended = world.ended(&turn).await?;
    ensure!(ended["output"].as_str().is_some_and(|said| said.starts_with("word0 ")), "{ended}");
    let told = world.runes_of(&session, "turn.interrupted", 2).await?;
    let own = told.iter().find(|rune| rune["turn_id"] == turn.as_str()).context("its end")?;
    ensure!(own["payload"]["reason"] == "budget", "{own}");
    ensure!(own["payload"]["partial_output"] == ended["output"], "{own}");
    Ok(())
}

async fn a_provider_that_says_nothing_is_not_waited_for(world: World) -> Result<()> {
    world.script(|_| Reply::hang());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "hello?").await?;
    let request = wait::until_ok(WITHIN, || async { request_of(&world, "hello?") }).await?;
    world.turn_is(&turn, "streaming").await?;
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    let answered = Instant::now();
    let took = given_up(&world, request).await?.saturating_duration_since(answered);
    ensure!(took <= SOON, "the provider was waited for {took:?}");
    ensure!(world.ended(&turn).await?["status"] == "interrupted");
    Ok(())
}

async fn calls_that_nobody_has_recorded_are_not_made(world: World) -> Result<()> {
    let call = |text: &str| Reply::call("echo", json!({"text": text}));
    world.script(move |_| {
        let more = (0..2_000).map(|n| format!("word{n} "));
        let whole = Reply::text("I shall call it. ").and(call("whole")).and(Reply::chunks(more)).and(call("never"));
        whole.slow(Duration::ZERO, Duration::from_millis(30))
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"]})).await?;
    let mut events = Events::of(&world, &session).await?;
    let turn = world.begin(&agent, "go").await?;
    while !events.said.contains("word1 ") {
        events.next("delta").await?;
    }
    world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
    let ended = world.ended(&turn).await?;
    ensure!(ended["output"].as_str().is_some_and(|said| said.starts_with("I shall call it. ")), "{ended}");
    ensure!(world.calls(&turn, |calls| calls.is_empty()).await?.is_empty(), "nothing was called");
    Ok(())
}

async fn what_steers_goes_before_what_was_queued(world: World) -> Result<()> {
    world.script(talks);
    let talk = Talk::begin(&world, "the sea").await?;
    let said = |content: &str, mode: &str| json!({"content": content, "mode": mode});
    let path = format!("/v1/agents/{}/messages", talk.agent);
    world.act(&path, said("queued before", "queue")).await?;
    world.act(&path, said("this first", "steer")).await?;
    let answered = |found: &Value| {
        let turns = found["data"].as_array().cloned().unwrap_or_default();
        turns.len() == 3 && turns.iter().all(|turn| turn["ended_at"].is_string())
    };
    let found = world.until(&format!("/v1/turns?agent={}", talk.agent), answered).await?;
    let input = |at: usize| found["data"][at]["input"].as_array().cloned().unwrap_or_default();
    let contents = |at: usize| input(at).iter().map(|m| m["content"].clone()).collect::<Vec<_>>();
    ensure!(contents(1) == [json!("this first")] && contents(0) == [json!("queued before")], "{found}");
    Ok(())
}

async fn a_worker_that_does_not_react_is_not_waited_for(world: World) -> Result<()> {
    world.script(talks);
    let talk = Talk::begin(&world, "sleep").await?;
    world.runes_of(&talk.session, "turn.assistant_delta", 2).await?;
    world.act(&format!("/v1/turns/{}/interrupt", talk.turn), json!({"reason": "enough"})).await?;
    let ended = world.ended(&talk.turn).await?;
    ensure!(ended["status"] == "interrupted", "{ended}");
    let runes = world.runes_of(&talk.session, "turn.interrupted", 1).await?;
    let told = &runes[0]["payload"];
    ensure!(told["forced"] == true && told["reason"] == "enough", "{runes:?}");
    ensure!(told["partial_output"] == ended["output"], "what was kept: {runes:?} {ended}");
    ensure!(ended["output"].as_str().is_some_and(|said| said.starts_with("word0 ")), "{ended}");
    // Its agent goes on without waiting for it.
    ensure!(world.turn(&talk.agent, "and now?").await?["status"] == "completed");
    Ok(())
}
