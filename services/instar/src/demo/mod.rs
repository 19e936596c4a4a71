//! `instar dev --demo`: three agents, a mission that runs by itself and one on which a person decides, on the scripted
//! model, told on standard error as they work.
//!
//! Goes through the API like anybody else.

mod walk;

use crate::catalog;
use crate::describe;
use crate::output::note;
use anyhow::Result;
use futures::StreamExt;
use instar_client::{Client, Event, Mode, NewAgent, NewSession, Rune};
use instar_runtime::config::Config;
use instar_runtime::drain::Drain;
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;

const MODEL: &str = "demo";
const TOOL: &str = "announce";

/// Name, tools, approval mode, what it is told. The scripted model calls the first tool it is given.
const CAST: [(&str, &str, &str, &str); 3] = [
    ("echo", "echo", "full_access", "Say it back: a state between two transitions."),
    ("clock", "now", "full_access", "What time is it?"),
    ("herald", TOOL, "auto", "Announce that the fleet is at sea."),
];

/// Who plans and implements the mission, and what it may use for that.
const NAVIGATOR: &str = "navigator";
const NAVIGATES_BY: [&str; 4] = ["propose_hop_plan", "propose_hop_impl", "ask_person", "echo"];

/// A model that answers offline, and a tool with an effect, so that somebody has to approve it.
pub(crate) fn prepare(config: &mut Config) {
    let scripted = instar_runtime::config::ModelConfig { name: MODEL.into(), ..catalog::scripted() };
    if config.models.iter().all(|model| model.name != MODEL) {
        config.models.push(scripted);
    }
    if config.tools.iter().all(|tool| tool["name"] != TOOL) {
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        config.tools.push(json!({
            "name": TOOL, "kind": "command", "command": ["cat"], "parameters": text,
            "description": "Announces a text to everybody.", "side_effects": true,
        }));
    }
    if config.tools.iter().all(|tool| tool["name"] != walk::TOOL) {
        config.tools.push(json!({
            "name": walk::TOOL, "kind": "command", "command": ["false"], "parameters": {"type": "object"},
            "description": "Takes soundings along the coast.", "side_effects": true,
        }));
    }
}

pub(crate) async fn run(server: String, key: String, key_file: Option<PathBuf>, drain: Drain) {
    let outcome = tokio::select! {
        outcome = play(&server, &key, key_file) => outcome,
        () = drain.draining() => return,
    };
    if let Err(error) = outcome {
        note(&format!("demo: {error:#}"));
    }
}

async fn play(server: &str, key: &str, key_file: Option<PathBuf>) -> Result<()> {
    let client = Client::new(server, Some(key))?;
    let session = client.create_session(&NewSession { name: Some("demo".into()), ..Default::default() }).await?;
    note(&format!("demo: session {}; look on with: instar events {} --follow", session.id, session.id));
    let mut names = HashMap::new();
    for (name, tool, approval_mode, _) in CAST {
        let new = NewAgent {
            name: name.into(),
            model: MODEL.into(),
            tools: vec![tool.into()],
            approval_mode: Some(approval_mode.into()),
            ..NewAgent::default()
        };
        let agent = client.create_agent(&session.id, &new).await?;
        names.insert(agent.id, name);
    }
    let mission = set_out(&client, &session.id).await?;
    note(&format!("demo: mission {mission}; its gates open by policy: instar mission show {mission}"));
    let second = client.create_session(&NewSession { name: Some("survey".into()), ..Default::default() }).await?;
    let walk = async {
        let mission = walk::run(&client, server, key, &second.id, MODEL).await?;
        note(&format!("demo: the survey is complete; how it came about: instar mission show {mission}"));
        Ok(())
    };
    let approve = approve(server, key_file);
    let mut story = Story { approve, names, tools: HashMap::new(), over: 0, arrived: false };
    let mut events = client.events(&session.id, session.head_seq);
    for (agent, name) in &story.names {
        let words = CAST.iter().find(|cast| cast.0 == *name).map_or("hello", |cast| cast.3);
        client.send_message(agent, words, Mode::Queue).await?;
    }
    let fleet = async {
        while story.over < CAST.len() || !story.arrived {
            match events.next().await {
                Some(Ok(Event::Rune(rune))) => story.tell(&rune),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(anyhow::Error::from(error)),
                None => break,
            }
        }
        Ok(())
    };
    tokio::try_join!(walk, fleet)?;
    note(&format!("demo: over; check its log with: instar verify {}", session.id));
    Ok(())
}

/// A mission that a fleet can run unattended. Answers its id.
async fn set_out(client: &Client, session: &str) -> Result<String> {
    let new = NewAgent {
        name: NAVIGATOR.into(),
        model: MODEL.into(),
        tools: NAVIGATES_BY.map(String::from).into(),
        ..NewAgent::default()
    };
    let agent = client.create_agent(session, &new).await?;
    let mission = json!({
        "name": "log", "goal": "an entry in the log", "success_criteria": ["it is written"],
        "outputs": [{"name": "entry", "type": "string"}], "agent_id": agent.id,
        "gates": {"mission": "auto", "plan": "auto", "impl": "auto", "execute": "auto", "retry": "auto"},
    });
    Ok(client.create_mission(session, &mission).await?.id)
}

/// The command that approves, but for the call's id.
fn approve(server: &str, key_file: Option<PathBuf>) -> String {
    match key_file {
        Some(file) => format!("instar --server {server} --key \"$(cat '{}')\" approve", file.display()),
        None => format!("INSTAR_API_KEY=… instar --server {server} approve"),
    }
}

struct Story {
    approve: String,
    names: HashMap<String, &'static str>,
    /// Calls, and the tools they are of.
    tools: HashMap<String, String>,
    /// Turns that have ended.
    over: usize,
    /// The mission has ended.
    arrived: bool,
}

impl Story {
    fn tell(&mut self, rune: &Rune) {
        if ["mission.", "hop.", "step.", "asset."].iter().any(|family| rune.kind.starts_with(family)) {
            self.arrived |= matches!(rune.kind.as_str(), "mission.completed" | "mission.failed" | "mission.cancelled");
            return note(&format!("demo: {} {}", rune.kind, describe::rune(rune)));
        }
        let Some(name) = rune.agent_id.as_ref().and_then(|agent| self.names.get(agent)).copied() else {
            // A result may name its turn only.
            return self.tell_call(rune, "a tool");
        };
        match rune.kind.as_str() {
            "agent.message_received" => note(&format!("demo: {name} is told: {}", describe::rune(rune))),
            "turn.started" => note(&format!("demo: {name} begins a turn")),
            "turn.assistant_final" => note(&format!("demo: {name} says: {}", describe::rune(rune))),
            "turn.completed" => {
                self.over += 1;
                note(&format!("demo: {name} is done"));
            }
            "turn.interrupted" | "turn.error" => {
                self.over += 1;
                note(&format!("demo: {name} ends with {}: {}", rune.kind, describe::rune(rune)));
            }
            _ => self.tell_call(rune, name),
        }
    }

    fn tell_call(&mut self, rune: &Rune, name: &str) {
        let call = &rune.entity_id;
        match rune.kind.as_str() {
            "tool.call" => {
                self.tools.insert(call.clone(), rune.text("tool_name").unwrap_or_default());
                note(&format!("demo: {name} wants {}", describe::rune(rune)));
            }
            "tool.approval_requested" => {
                note(&format!("demo: {name} waits, at no cost, until somebody decides:"));
                note(&format!("demo:   {} {call}", self.approve));
            }
            "tool.approved" => note(&format!("demo: {call} is approved {}", describe::rune(rune))),
            "tool.result" => {
                let tool = self.tools.get(call).map_or(call.as_str(), String::as_str);
                note(&format!("demo: {tool} gives {}", describe::rune(rune)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn what_the_demo_needs_can_be_had() {
        let mut config = Config::default();
        prepare(&mut config);
        prepare(&mut config);
        let catalog = Catalog::build(&config).ok().unwrap();
        assert!(catalog.models.get(MODEL).is_ok());
        let tool = catalog.tools.get(TOOL).unwrap();
        assert!(tool.spec().side_effects);
        for tool in CAST.iter().map(|cast| cast.1).chain(NAVIGATES_BY).chain(walk::TOOLS) {
            assert!(catalog.tools.get(tool).is_some(), "{tool}");
        }
    }
}
