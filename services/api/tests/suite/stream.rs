//! Streams: no rune missing, none twice, whatever happens in between.

use crate::kit::{Backend, House, key, on_both, text};
use anyhow::{Context, Result, bail};
use instar_api::Role;
use instar_bus::message::Delta;
use instar_runtime::flow;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Event {
    id: Option<i64>,
    kind: String,
    data: Value,
}

struct Tail {
    response: reqwest::Response,
    buffer: String,
}

impl Tail {
    async fn open(house: &House, path: &str, last: Option<i64>) -> Result<Tail> {
        Tail::of(house, path, &key(Role::Admin), last).await
    }

    async fn of(house: &House, path: &str, key: &str, last: Option<i64>) -> Result<Tail> {
        let mut request = house.request("GET", path, key).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last.to_string());
        }
        let response = request.send().await?;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Ok(Tail { response, buffer: String::new() })
    }

    /// `None`: the stream has ended.
    async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.buffer = rest;
                let field =
                    |name: &str| frame.lines().find_map(|l| l.strip_prefix(&format!("{name}: "))).map(str::to_owned);
                let Some(data) = field("data") else { continue };
                return Ok(Some(Event {
                    id: field("id").map(|id| id.parse()).transpose()?,
                    kind: field("event").context("a kind")?,
                    data: serde_json::from_str(&data)?,
                }));
            }
            match tokio::time::timeout(PATIENCE, self.response.chunk()).await?? {
                Some(bytes) => self.buffer += std::str::from_utf8(&bytes)?,
                None => return Ok(None),
            }
        }
    }

    async fn until(&mut self, kind: &str) -> Result<Event> {
        while let Some(event) = self.next().await? {
            if event.kind == kind {
                return Ok(event);
            }
        }
        bail!("the stream ended before {kind}")
    }
}

async fn a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}/events");
    let writer = async {
        for n in 0..60 {
            house.say(&agent, &format!("m{n}")).await?;
        }
        anyhow::Ok(())
    };
    let reader = async {
        let (mut seen, mut last) = (Vec::new(), None);
        // Comes back every few runes; the last one it saw is its cursor.
        while seen.len() < 66 {
            let mut tail = Tail::open(&house, &path, last).await?;
            for _ in 0..7 {
                if seen.len() == 66 {
                    break;
                }
                let event = tail.next().await?.context("the stream ended")?;
                assert_eq!((event.id, &event.data["kind"]), (event.data["seq"].as_i64(), &json!(event.kind)));
                last = event.id;
                seen.extend(event.id);
            }
        }
        anyhow::Ok(seen)
    };
    let (written, seen) = tokio::join!(writer, reader);
    written?;
    assert_eq!(seen?, (1..=66).collect::<Vec<i64>>());
    Ok(())
}

async fn deltas_reach_who_listens_and_who_joins_late_is_told_what_was_said(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let turn = text(&house.say(&agent, "speak").await?["turn_id"]);
    let worker = house.claim(&agent, &turn).await?;
    let path = format!("/v1/sessions/{session}/events");
    let say = |index: u64, text: &str| {
        house.context.hub.cast_delta(Delta {
            session_id: session.clone(),
            agent_id: agent.clone(),
            turn_id: turn.clone(),
            index,
            text: text.into(),
            kind: "text".into(),
        });
    };
    // Nobody heard the beginning: it comes from the checkpoints.
    for (content, at) in [("Once ", 0), ("upon", 5)] {
        house.land(flow::checkpoint(&house.turn_row(&turn).await?, worker, content, at)?).await?;
    }
    let mut first = Tail::open(&house, &path, None).await?;
    let so_far = first.until("delta").await?;
    assert_eq!((so_far.id, &so_far.data["text"]), (None, &json!("Once upon")));
    assert_eq!((&so_far.data["turn_id"], &so_far.data["agent_id"]), (&json!(turn), &json!(agent)));
    // It was heard from its beginning on: whoever joins is told all of it at once.
    for (index, text) in [(0, "Once upon"), (1, " a time"), (2, " there")] {
        say(index, text);
        let heard = first.until("delta").await?;
        assert_eq!((&heard.data["index"], &heard.data["text"]), (&json!(index), &json!(text)));
    }
    let mut second = Tail::open(&house, &path, Some(4)).await?;
    let so_far = second.until("delta").await?;
    assert_eq!((&so_far.data["text"], &so_far.data["index"]), (&json!("Once upon a time there"), &json!(2)));
    say(3, " was");
    for tail in [&mut first, &mut second] {
        assert_eq!(
            tail.until("delta").await?.data,
            json!({"turn_id": turn, "agent_id": agent, "index": 3, "text": " was", "kind": "text"})
        );
    }
    Ok(())
}

on_both! {
    a_reader_that_comes_back_misses_nothing_and_sees_nothing_twice;
    deltas_reach_who_listens_and_who_joins_late_is_told_what_was_said;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_word_from_the_bus_the_log_is_still_followed() -> Result<()> {
    let house = House::on(Backend::Postgres).await?;
    let twin = house.twin().await?;
    let (session, agent) = house.fleet().await?;
    let mut tail = Tail::open(&twin, &format!("/v1/sessions/{session}/events?after=4"), None).await?;
    house.say(&agent, "hello").await?;
    assert_eq!(tail.next().await?.context("an event")?.id, Some(5));
    assert_eq!(tail.until("turn.queued").await?.id, Some(7));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_beyond_the_log_and_garbage_are_refused() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}/events");
    let refused = house.get(&format!("{path}?after=99")).await?.refuses(409, "99");
    assert_eq!((&refused["code"], &refused["head_seq"]), (&json!("cursor_ahead"), &json!(4)));
    let mut tail = Tail::open(&house, &path, Some(4)).await?;
    house.say(&agent, "hello").await?;
    assert_eq!(tail.next().await?.context("an event")?.id, Some(5), "the head itself is no cursor beyond it");
    for bad in ["x", "-1", "1e3"] {
        house.get(&format!("{path}?after={bad}")).await?.refuses(422, "after");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_too_many_is_refused_and_a_closed_one_makes_room() -> Result<()> {
    let house = House::with(Backend::Sqlite, |config| config.api.streams_max = 1).await?;
    let (session, _) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}/events");
    let mut tail = Tail::open(&house, &path, None).await?;
    tail.next().await?.context("an event")?;
    let got = house.get(&path).await?;
    assert_eq!(got.headers["retry-after"], "5");
    got.refuses(429, "streams");
    drop(tail);
    instar_testkit::wait::until(PATIENCE, || async {
        house.request("GET", &path, &key(Role::Admin)).send().await.is_ok_and(|response| response.status() == 200)
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_streams_of_a_key_end_with_it_and_those_of_others_go_on() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, agent) = house.fleet().await?;
    let path = format!("/v1/sessions/{session}/events");
    let until = chrono::Utc::now() + chrono::Duration::seconds(13);
    let new = |name: &str, until| json!({"name": name, "role": "viewer", "expires_at": until});
    let revoked = house.post("/v1/keys", new("revoked", None)).await?.is(201);
    let short = house.post("/v1/keys", new("short", Some(until))).await?.is(201);
    let mut stays = Tail::open(&house, &path, None).await?;
    let mut ends = Vec::new();
    for made in [&revoked, &short] {
        let mut tail = Tail::of(&house, &path, &text(&made["key"]), None).await?;
        tail.until("session.activated").await?;
        ends.push(tail);
    }
    // Elsewhere: nobody tells this process to forget it.
    let twin = house.twin().await?;
    let gone = format!("/v1/keys/{}", text(&revoked["id"]));
    twin.as_role(Role::Admin, "DELETE", &gone, None).await?.is(200);
    for mut tail in ends {
        while tail.next().await?.is_some() {}
    }
    house.say(&agent, "still there?").await?;
    stays.until("turn.queued").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_streams_and_waits_for_no_more() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, _) = house.fleet().await?;
    let mut tail = Tail::open(&house, &format!("/v1/sessions/{session}/events"), None).await?;
    tail.until("session.activated").await?;
    house.context.drain.begin();
    assert!(tail.next().await?.is_none(), "the stream ends");
    let drained = house.context.drain.wait_for(PATIENCE).await;
    assert_eq!(drained, instar_runtime::drain::Drained::Clean);
    assert!(house.get("/livez").await.is_err(), "nobody listens any more");
    Ok(())
}
