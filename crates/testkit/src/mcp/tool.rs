//! The tools, and what each does wrong.

use super::{Fault, Out, Outbox, Server};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// A line of the witness file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Witnessed {
    pub what: String,
    /// The key that came with the request.
    pub key: Option<String>,
}

impl Witnessed {
    /// What was done, in order; nothing if nothing was.
    pub fn read(path: impl AsRef<Path>) -> Vec<Witnessed> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    pub fn count(path: impl AsRef<Path>, what: &str) -> usize {
        Self::read(path).iter().filter(|line| line.what == what).count()
    }
}

type Answer = Result<Value, (i32, String)>;

fn said(text: &str) -> Answer {
    Ok(json!({"content": [{"type": "text", "text": text}]}))
}

impl Server {
    pub(super) fn witness(&self, what: &str, meta: &Value) {
        let Some(path) = &self.options.witness else { return };
        let line = format!("{}\n", json!({"what": what, "key": meta["instar/idempotency_key"]}));
        let file = File::options().create(true).append(true).open(path);
        // One write: several servers may share the file.
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_data()));
        if let Err(error) = written {
            eprintln!("the witness is blind: {error}");
            std::process::exit(4);
        }
    }

    pub(super) fn definitions(&self) -> Vec<Value> {
        let tool = |name: &str, description: &str, properties: Value, hints: Value| {
            let schema = json!({"type": "object", "properties": properties});
            json!({"name": name, "description": description, "inputSchema": schema, "annotations": hints})
        };
        let (token, ms) = (json!({"token": {"type": "string"}}), json!({"ms": {"type": "integer"}}));
        let (acts, state) = (json!({}), self.state());
        let mut tools = vec![
            tool("now", &state.description, json!({}), json!({"readOnlyHint": true})),
            tool("charge", "Takes money", token.clone(), acts.clone()),
            tool("put", "Puts something", token.clone(), json!({"idempotentHint": true})),
            tool("die", "Acts, then ends without an answer", token.clone(), acts.clone()),
            tool("die_once", "Ends the first time it is called", token, json!({"readOnlyHint": true})),
            tool("slow", "Takes its time, and stops when told to", ms.clone(), acts.clone()),
            tool("stubborn", "Takes its time, whatever it is told", ms.clone(), acts.clone()),
            tool("fail", "Fails", json!({}), acts.clone()),
            tool("refuse", "Is refused", json!({}), acts.clone()),
            tool("flood", "Says a lot", json!({"bytes": {"type": "integer"}}), acts.clone()),
            tool("garbage", "Says nonsense, then answers", json!({}), acts.clone()),
            tool("mute", "Never answers", json!({}), acts.clone()),
            tool("spawn", "Leaves a process behind", json!({}), acts.clone()),
            tool("change", "Changes what now says of itself", json!({"to": {"type": "string"}}), acts.clone()),
            tool("add", "Brings one tool more", json!({}), acts.clone()),
            tool("odd name/with-everything", "Has a name that is none", json!({}), acts.clone()),
            tool("secret", "Tells what it was started with", json!({}), acts.clone()),
            tool("repeat", "Says what it is told, in every way", json!({"text": {"type": "string"}}), acts.clone()),
        ];
        if state.added {
            tools.push(tool("added", "Was not there before", json!({}), acts.clone()));
        }
        match self.options.fault {
            Some(Fault::Many) => tools.extend((0..10_000).map(|n| tool(&format!("t{n}"), "", json!({}), acts.clone()))),
            Some(Fault::Large) => tools.push(tool("large", &"x".repeat(1 << 20), json!({}), acts)),
            _ => {}
        }
        tools
    }

    /// `None`: it is not answered.
    pub(super) async fn call(&self, request: &Value, out: &Outbox) -> Option<Answer> {
        let params = &request["params"];
        let (name, given, meta) = (params["name"].as_str().unwrap_or_default(), &params["arguments"], &params["_meta"]);
        let ms = given["ms"].as_u64().unwrap_or(100);
        Some(match name {
            "now" => Ok(json!({
                "content": [{"type": "text", "text": "{\"time\": \"noon\"}"}], "structuredContent": {"time": "noon"},
            })),
            "charge" | "put" => {
                self.witness(name, meta);
                said(&format!("did {name}"))
            }
            "die" => {
                self.witness(name, meta);
                eprintln!("gone with {}", given["token"].as_str().unwrap_or_default());
                std::process::exit(9);
            }
            "die_once" => {
                let first = self.options.witness.as_ref().is_some_and(|path| Witnessed::count(path, name) == 0);
                self.witness(name, meta);
                if first {
                    std::process::exit(9);
                }
                said("here again")
            }
            "slow" | "stubborn" => return self.take_time(request, name, ms, out).await,
            "fail" => Ok(json!({"content": [{"type": "text", "text": "there is no such zone"}], "isError": true})),
            "refuse" => Err((-32602, "that is no argument".to_owned())),
            "flood" => said(&"word ".repeat(given["bytes"].as_u64().unwrap_or(0) as usize / 5)),
            "garbage" => {
                for text in
                    ["not json", "{\"jsonrpc\":\"2.0\"}", "[]", "{\"jsonrpc\":\"2.0\",\"id\":777,\"result\":{}}"]
                {
                    let _ = out.send(Out::Raw(text.to_owned()));
                }
                said("after all")
            }
            "mute" => std::future::pending().await,
            "spawn" => {
                // In a session of its own, so that only who looks for descendants finds it.
                let made = std::process::Command::new("setsid").args(["sleep", "1000"]).spawn();
                said(if made.is_ok() { "left one behind" } else { "could not" })
            }
            "change" => {
                self.state().description = given["to"].as_str().unwrap_or("another").to_owned();
                self.tell_of_change(out);
                said("changed")
            }
            "add" => {
                self.state().added = true;
                self.tell_of_change(out);
                said("added")
            }
            "secret" => said(&std::env::var("MCP_TEST_SECRET").unwrap_or_default()),
            "repeat" => {
                let text = given["text"].as_str().unwrap_or_default();
                eprintln!("told {text}");
                let params = json!({"progressToken": meta["progressToken"], "progress": 1, "message": text});
                let _ = out.send(Out::Message(
                    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                ));
                Ok(
                    json!({"content": [{"type": "text", "text": format!("I was told {text}.")}], "structuredContent": {"told": text}}),
                )
            }
            "odd name/with-everything" | "added" => said(name),
            other => Err((-32602, format!("no tool {other}"))),
        })
    }

    fn tell_of_change(&self, out: &Outbox) {
        let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let _ = out.send(Out::Message(told));
    }

    async fn take_time(&self, request: &Value, name: &str, ms: u64, out: &Outbox) -> Option<Answer> {
        let (token, id) = (&request["params"]["_meta"]["progressToken"], request["id"].to_string());
        self.witness(name, &request["params"]["_meta"]);
        let steps = 10;
        for step in 1..=steps {
            tokio::time::sleep(Duration::from_millis(ms / steps)).await;
            if name == "slow" && self.state().cancelled.contains(&id) {
                self.witness("stopped", &Value::Null);
                return None;
            }
            let params = json!({"progressToken": token, "progress": step, "total": steps, "message": "on the way"});
            let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            let _ = out.send(Out::Message(told));
        }
        self.witness(&format!("{name} done"), &Value::Null);
        Some(said("there at last"))
    }
}
