//! What the model is sent, and what the API says about it later.

use crate::world::{World, plain, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Refusal, Reply, Request};
use instar_tests::puppet;
use serde_json::{Value, json};

pub(crate) static PLAIN: Group = Group {
    name: "context",
    config: "",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        what_was_sent_is_shown_to_the_byte_whatever_came_later,
        slots_are_filled_in_when_a_call_is_made,
        a_conversation_that_is_too_long_is_summarised_once,
        a_message_that_is_too_long_ends_its_turn_with_advice,
        nothing_is_shown_of_a_call_that_was_not_made,
        what_was_sent_is_known_while_a_call_waits_and_after,
    ],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_context",
    config: "[lease]\nttl_ms = 600\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![what_was_sent_is_known_of_a_turn_that_another_worker_takes_over],
};

/// Requests of this scenario's agents, oldest first.
pub(crate) fn requests(world: &World) -> Vec<Request> {
    let own = format!("[{}]", world.name);
    let mut requests = world.fleet().model.requests();
    requests.retain(|request| request.body["messages"][0]["content"].as_str().is_some_and(|s| s.contains(&own)));
    requests
}

/// A context in OpenAI's words: written here a second time, and not by the product's adapter.
fn on_the_wire(context: &Value) -> Vec<Value> {
    let mut wire: Vec<Value> = Vec::new();
    if let Some(system) = context["system"].as_str() {
        wire.push(json!({"role": "system", "content": system}));
    }
    for message in context["messages"].as_array().into_iter().flatten() {
        let next = match message["role"].as_str() {
            Some("user") => json!({"role": "user", "content": message["text"]}),
            Some("tool") => {
                let content = message["content"].as_str().unwrap_or_default();
                let content =
                    if message["is_error"] == true { format!("Error: {content}") } else { content.to_owned() };
                json!({"role": "tool", "tool_call_id": message["call_id"], "content": content})
            }
            _ => {
                let mut said = json!({"role": "assistant"});
                if message["text"] != "" {
                    said["content"] = message["text"].clone();
                }
                if let Some(calls) = message["tool_calls"].as_array() {
                    let call = |call: &Value| {
                        let arguments = call["arguments"].to_string();
                        let function = json!({"name": call["name"], "arguments": arguments});
                        json!({"id": call["id"], "type": "function", "function": function})
                    };
                    said["tool_calls"] = calls.iter().map(call).collect();
                }
                said
            }
        };
        match wire.last_mut() {
            // Neighbours of one role are joined; an answer with calls has its results behind it.
            Some(last) if last["role"] == next["role"] && next["role"] != "tool" => {
                let words = [&last["content"], &next["content"]].map(|w| w.as_str().unwrap_or_default());
                last["content"] = json!(words.join("\n\n"));
                if let Some(calls) = next.get("tool_calls") {
                    last["tool_calls"] = calls.clone();
                }
            }
            _ => wire.push(next),
        }
    }
    wire
}

fn is_what_was_received(context: &Value, request: &Request) -> Result<()> {
    ensure!(context["exact"] == true, "{context:#}");
    let (shown, received) = (on_the_wire(context), request.messages());
    let plain = |messages: &[Value]| {
        messages
            .iter()
            .map(|m| {
                let mut m = m.clone();
                if m["content"].is_null()
                    && let Some(fields) = m.as_object_mut()
                {
                    fields.remove("content");
                }
                m.to_string()
            })
            .collect::<Vec<_>>()
    };
    let (shown, received) = (plain(&shown), plain(received));
    ensure!(shown == received, "shown {shown:#?}\nreceived {received:#?}");
    let offered: Vec<&str> =
        context["tools"].as_array().into_iter().flatten().filter_map(|t| t["name"].as_str()).collect();
    ensure!(offered == request.tools(), "{offered:?}");
    let messages = context["statistics"]["sent"]["messages"].as_u64().context("statistics")?;
    let listed = context["messages"].as_array().map_or(0, Vec::len) + usize::from(context["system"].is_string());
    ensure!(messages == listed as u64, "{:#}", context["statistics"]);
    Ok(())
}

async fn what_was_sent_is_shown_to_the_byte_whatever_came_later(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"]})).await?;
    let mut turns = Vec::new();
    for words in ["echo one|two:three", "just \"words\"", "echo four", "and é"] {
        let turn = world.turn(&agent, words).await?;
        ensure!(turn["status"] == "completed", "{turn}");
        turns.push((text(&turn, "id")?, turn["iterations"].as_u64().context("iterations")?));
    }
    let requests = requests(&world);
    let show = async || {
        let mut shown = Vec::new();
        for (turn, calls) in &turns {
            for number in 1..=*calls {
                shown.push(world.get(&format!("/v1/turns/{turn}/context?iteration={number}")).await?);
            }
        }
        anyhow::Ok(shown)
    };
    let first = show().await?;
    ensure!(first.len() == requests.len() && first.len() == 6, "{} of {}", first.len(), requests.len());
    for (context, request) in first.iter().zip(&requests) {
        is_what_was_received(context, request)?;
    }
    // The latest tool loop of earlier turns is there, and no other.
    let last = &first[5];
    ensure!(last["statistics"]["sent"]["tool_calls"] == 1 && last.to_string().contains("echo four"), "{last:#}");
    ensure!(world.get(&format!("/v1/turns/{}/context", turns[2].0)).await? == first[4]);

    // Other instructions, another name, no tools any more, and more to remember.
    let patch = json!({"system_prompt": format!("[{}] Be brief.", world.name), "name": "bob", "tools": ["now"]});
    world.request("PATCH", &format!("/v1/agents/{agent}"), Some(patch)).await?.is(200);
    let turn = world.turn(&agent, "words again").await?;
    let then = show().await?;
    for (before, after) in first.iter().zip(&then) {
        ensure!(before == after, "before {before:#}\nafter {after:#}");
    }
    let latest = world.get(&format!("/v1/turns/{}/context", text(&turn, "id")?)).await?;
    is_what_was_received(&latest, self::requests(&world).last().context("a request")?)
}

async fn slots_are_filled_in_when_a_call_is_made(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let prompt = format!(
        "[{}] {{{{AGENT_NAME}}}} of {{{{SESSION_NAME}}}}, {{{{DATE}}}}, {{{{UNKNOWN}}}}, {{{{LATEST_BROADCAST}}}}",
        world.name
    );
    let agent = world.agent(&session, json!({"system_prompt": prompt})).await?;
    let turn = text(&world.turn(&agent, "hello").await?, "id")?;
    let path = format!("/v1/turns/{turn}/context");
    let context = world.get(&path).await?;
    is_what_was_received(&context, requests(&world).last().context("a request")?)?;
    let system = text(&context, "system")?;
    let begins = format!("[{0}] ada of {0}, 20", world.name);
    ensure!(system.starts_with(&begins) && system.contains("{{UNKNOWN}}, (there is no broadcast)"), "{system}");
    world.request("PATCH", &format!("/v1/agents/{agent}"), Some(json!({"name": "bob"}))).await?.is(200);
    ensure!(world.get(&path).await? == context);
    Ok(())
}

const SUMMARY: &str = "Summary of what was said before:";

fn too_long(request: &Request) -> bool {
    let said = request.body["messages"].to_string();
    said.len() > 8_000 && !said.contains(SUMMARY)
}

async fn a_conversation_that_is_too_long_is_summarised_once(world: World) -> Result<()> {
    world.script(|request| match too_long(request) {
        true => Reply::refused(Refusal::ContextOverflow),
        false => Reply::text("Noted."),
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    for n in 0..3 {
        let turn = world.turn(&agent, &format!("number {n}: {}", "x".repeat(3_000))).await?;
        ensure!(turn["status"] == "completed", "{turn}");
    }
    // The third was too long and was answered none the less, with a summary of the others.
    let noted = world.runes_of(&session, "turn.usage", 1).await?;
    ensure!(noted.len() == 1, "{noted:#?}");
    let turn = world.turn(&agent, "what was the first number?").await?;
    let context = world.get(&format!("/v1/turns/{}/context", text(&turn, "id")?)).await?;
    is_what_was_received(&context, requests(&world).last().context("a request")?)?;
    let first = &context["messages"][0];
    ensure!(first["source"] == "summary" && text(first, "text")?.starts_with(SUMMARY), "{context:#}");
    ensure!(!context.to_string().contains("number 0") && context.to_string().contains("number 2"), "{context:#}");
    ensure!(world.runes_of(&session, "turn.usage", 1).await?.len() == 1);
    Ok(())
}

async fn a_message_that_is_too_long_ends_its_turn_with_advice(world: World) -> Result<()> {
    world.script(|request| match request.user_text().len() > 8_000 {
        true => Reply::refused(Refusal::ContextOverflow),
        false => Reply::text("Noted."),
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    world.turn(&agent, &"y".repeat(3_000)).await?;
    let turn = world.turn(&agent, &"x".repeat(9_000)).await?;
    let why = turn["error"]["message"].as_str().unwrap_or_default();
    ensure!(turn["status"] == "error" && turn["error"]["error_type"] == "context_overflow", "{turn}");
    ensure!(why.contains("send a shorter message"), "{turn}");
    // Two calls of the conversation, and one for the summary between them.
    ensure!(requests(&world).len() == 3, "{}", requests(&world).len());
    let after = world.turn(&agent, "short").await?;
    ensure!(after["status"] == "completed" || after["status"] == "error", "{after}");
    Ok(())
}

async fn nothing_is_shown_of_a_call_that_was_not_made(world: World) -> Result<()> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = text(&world.turn(&agent, "hello").await?, "id")?;
    for (number, words) in [("2", "has called its model 1 times"), ("0", "from 1"), ("x", "from 1")] {
        let got = world.request("GET", &format!("/v1/turns/{turn}/context?iteration={number}"), None).await?;
        ensure!(got.status == 422 && got.text.contains(words), "{} {}", got.status, got.text);
    }
    let agent = world.agent(&session, json!({"name": "held"})).await?;
    world.act(&format!("/v1/sessions/{session}/pause"), json!({})).await?;
    let turn = world.begin(&agent, "later").await?;
    let got = world.request("GET", &format!("/v1/turns/{turn}/context"), None).await?;
    ensure!(got.status == 409 && got.text.contains("not called its model yet"), "{} {}", got.status, got.text);
    Ok(())
}

/// A call that waits for a person, and one that waits for a time: nobody holds its turn meanwhile.
async fn what_was_sent_is_known_while_a_call_waits_and_after(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = world.session().await?;
    let asks = json!({"tools": ["echo", "wait_for"], "tool_approvals": {"echo": "always"}});
    let agent = world.agent(&session, asks).await?;
    let turn = world.begin(&agent, "call echo {\"text\": \"x\"} ;; well").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    let path = format!("/v1/turns/{turn}/context");
    let waits = world.get(&path).await?;
    is_what_was_received(&waits, requests(&world).last().context("a request")?)?;
    world.act(&format!("/v1/tool-calls/{call}/approve"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    ensure!(world.get(&format!("{path}?iteration=1")).await? == waits);
    is_what_was_received(&world.get(&path).await?, requests(&world).last().context("a request")?)?;

    let turn = world.begin(&agent, "call wait_for {\"timeout_ms\": 1000} ;; well").await?;
    let path = format!("/v1/turns/{turn}/context");
    world.calls(&turn, |calls| calls.len() == 1).await?;
    let waits = world.get(&format!("{path}?iteration=1")).await?;
    ensure!(waits["exact"] == true, "{waits:#}");
    ensure!(world.ended(&turn).await?["status"] == "completed");
    ensure!(world.get(&format!("{path}?iteration=1")).await? == waits);
    is_what_was_received(&world.get(&path).await?, requests(&world).last().context("a request")?)
}

async fn what_was_sent_is_known_of_a_turn_that_another_worker_takes_over(world: World) -> Result<()> {
    world.script(puppet::reply);
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"], "tool_approvals": {"echo": "always"}})).await?;
    let turn = world.begin(&agent, "call echo {\"text\": \"x\"} ;; well").await?;
    let call = world.call_is(&turn, "awaiting_approval").await?;
    world.kill("agent-worker").await?;
    world.act(&format!("/v1/tool-calls/{call}/approve"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    let requests = requests(&world);
    ensure!(requests.len() == 2, "{} requests", requests.len());
    for (number, request) in (1..).zip(&requests) {
        let context = world.get(&format!("/v1/turns/{turn}/context?iteration={number}")).await?;
        is_what_was_received(&context, request)?;
    }
    Ok(())
}
