//! Every way to stop an answer that is being given, and answers that go on until somebody does.

use crate::fleet::Fleet;
use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use instar_client::{Event, Mode, NewAgent, NewSession};
use instar_testkit::model::{Reply, Request};
use instar_testkit::wait;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const WITHIN: Duration = Duration::from_secs(60);
const TALK: &str = "talk until";

pub const WAYS: [&str; 11] = [
    "interrupt",
    "message",
    "steering message",
    "steer",
    "stop",
    "pause",
    "terminate",
    "force",
    "close",
    "plan",
    "limit",
];

/// Path and body of the request for it, of all but the last two.
pub fn request(way: &str, session: &str, agent: &str, turn: &str) -> (String, Value) {
    match way {
        "interrupt" => (format!("turns/{turn}/interrupt"), json!({})),
        "message" => (format!("agents/{agent}/messages"), json!({"content": "and now?", "mode": "interrupt"})),
        "steering message" => (format!("agents/{agent}/messages"), json!({"content": "and now?", "mode": "steer"})),
        "steer" => (format!("turns/{turn}/steer"), json!({"content": "and now?"})),
        "stop" => (format!("agents/{agent}/stop"), json!({})),
        "pause" => (format!("sessions/{session}/pause"), json!({"in_flight": "interrupt"})),
        "terminate" => (format!("agents/{agent}/terminate"), json!({})),
        "force" => (format!("agents/{agent}/terminate"), json!({"force": true})),
        _ => (format!("sessions/{session}/close"), json!({})),
    }
}

/// Two minutes of words to whoever is to talk, and what it takes to get there.
pub fn talks(request: &Request) -> Reply {
    let text = request.user_text();
    let said = text.find(TALK).map(|at| text[at..].split_inclusive('.').next().unwrap_or_default());
    match said {
        Some(said) if request.tools().contains(&"propose_plan") => {
            let task = json!({"id": "t1", "title": "talk", "description": said, "deps": []});
            Reply::call("propose_plan", json!({"tasks": [task]}))
        }
        Some(_) => {
            let words = (0..4_000).map(|n| format!("word{n} "));
            Reply::chunks(words).slow(Duration::ZERO, Duration::from_millis(30))
        }
        None if text == "two calls" => {
            Reply::call("echo", json!({"text": "a"})).and(Reply::call("echo", json!({"text": "b"})))
        }
        None => Reply::text("Done."),
    }
}

/// An answer that is being given.
pub struct Talk {
    pub way: &'static str,
    pub session: String,
    pub turn: String,
    /// The number of its request to the model.
    pub request: u64,
    agent: String,
    plan: Option<String>,
}

impl Talk {
    /// Returns when a follower of its session has heard so many pieces of it.
    pub async fn begin(fleet: &Fleet, way: &'static str, n: usize, pieces: usize) -> Result<Talk> {
        let budget = (way == "limit").then(|| json!({"max_tool_calls": 1}));
        let session = fleet.client.create_session(&NewSession { budget, ..NewSession::default() }).await?.id;
        let new = |name: &str| NewAgent {
            name: name.into(),
            model: "default".into(),
            tools: vec!["echo".into()],
            ..NewAgent::default()
        };
        let agent = fleet.client.create_agent(&session, &new("talker")).await?.id;
        let said = format!("{TALK} {way} {n}.");
        let plan = match way {
            "plan" => {
                Some(fleet.client.create_plan(&session, &json!({"goal": said.as_str(), "autonomy": "auto"})).await?.id)
            }
            _ => {
                fleet.client.send_message(&agent, &said, Mode::Queue).await?;
                None
            }
        };
        let turn = heard(fleet, &session, pieces).await.with_context(|| said.clone())?;
        let own =
            |request: &&Request| request.user_text().contains(&said) && !request.tools().contains(&"propose_plan");
        let request = fleet.model.requests().iter().find(own).context("it was not asked")?.number;
        Ok(Talk { way, session, turn, request, agent, plan })
    }

    /// Has it stopped; says when that was answered. A limit is used up when the session is seen to be suspended.
    pub async fn stop(&self, fleet: &Fleet, http: &reqwest::Client) -> Result<Instant> {
        if self.way == "limit" {
            let tools = vec!["echo".into()];
            let new = NewAgent { name: "caller".into(), model: "default".into(), tools, ..NewAgent::default() };
            let caller = fleet.client.create_agent(&self.session, &new).await?.id;
            fleet.client.send_message(&caller, "two calls", Mode::Queue).await?;
            return wait::until_ok(WITHIN, || async {
                let session = fleet.client.session(&self.session).await?;
                ensure!(session.status == "suspended", "it is {}", session.status);
                Ok(Instant::now())
            })
            .await;
        }
        let (path, body) = match &self.plan {
            Some(plan) => (format!("plans/{plan}/cancel"), json!({})),
            None => request(self.way, &self.session, &self.agent, &self.turn),
        };
        let asked = http.post(format!("http://127.0.0.1:{}/v1/{path}", fleet.port())).bearer_auth(fleet.key());
        let answer = asked.json(&body).send().await?;
        let (status, told) = (answer.status(), answer.text().await?);
        let answered = Instant::now();
        ensure!(status.is_success(), "{}: {told}", self.way);
        Ok(answered)
    }

    /// When the model's server saw that nobody listens any more.
    pub async fn given_up(&self, fleet: &Fleet) -> Result<Instant> {
        wait::until_ok(WITHIN, || async {
            let gone = fleet.model.given_up();
            Ok(gone.iter().find(|one| one.request == self.request).context("the provider still speaks")?.at)
        })
        .await
        .with_context(|| self.way)
    }
}

/// The turn that speaks in a session, when so many pieces have come of it.
async fn heard(fleet: &Fleet, session: &str, pieces: usize) -> Result<String> {
    let mut events = fleet.client.events(session, 0);
    let hear = async {
        let mut heard = 0;
        while let Some(event) = events.next().await {
            if let Event::Delta(delta) = event?
                && delta.text.contains("word")
            {
                heard += 1;
                if heard >= pieces {
                    return Ok(delta.turn_id);
                }
            }
        }
        anyhow::bail!("the stream ended")
    };
    tokio::time::timeout(WITHIN, hear).await.context("nothing was said")?
}
