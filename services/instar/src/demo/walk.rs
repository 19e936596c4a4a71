//! The demo's second mission: an agent proposes, a person decides. The person's commands are run as anybody would type
//! them, through this very program.

use crate::output::note;
use anyhow::{Context, Result, bail};
use instar_client::{Client, Hop, NewAgent, Query};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

/// It can fail, and does: so the person has something to put right.
pub(super) const TOOL: &str = "take_soundings";
pub(super) const NAME: &str = "pilot";
pub(super) const TOOLS: [&str; 5] = ["propose_hop_plan", "propose_hop_impl", "ask_person", TOOL, "echo"];
const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// A person at a terminal.
struct Person {
    program: PathBuf,
    server: String,
    key: String,
}

impl Person {
    /// Types a command, and reads the first thing that it shows.
    async fn types(&self, arguments: &[&str]) -> Result<Value> {
        let quoted = |one: &&str| match one.contains([' ', '{', '"']) {
            true => format!("'{one}'"),
            false => (*one).to_owned(),
        };
        note(&format!("demo: $ instar {}", arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")));
        let run = tokio::process::Command::new(&self.program)
            .args(arguments)
            .args(["-o", "json"])
            .env("INSTAR_SERVER", &self.server)
            .env("INSTAR_API_KEY", &self.key)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let done = run.await.context("the command cannot run itself")?;
        if !done.status.success() {
            bail!("instar {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim());
        }
        let shown: Value = serde_json::from_slice(&done.stdout)?;
        Ok(shown.as_array().and_then(|list| list.first().cloned()).unwrap_or(shown))
    }
}

fn id(shown: &Value) -> Result<String> {
    Ok(shown["id"].as_str().context("it has no id")?.to_owned())
}

/// How long the chart is good for: shorter than anybody likes to wait, and longer than two commands take.
const GOOD_FOR_MS: u64 = 6_000;

/// Two hops: a plan that is turned down and edited, a step that fails and is fixed, and a chart that gets too old for the
/// hop that reads it, beside what the first one made.
pub(super) async fn run(client: &Client, server: &str, key: &str, session: &str, model: &str) -> Result<String> {
    let person = Person { program: std::env::current_exe()?, server: server.to_owned(), key: key.to_owned() };
    let tools = TOOLS.map(String::from).into();
    let new = NewAgent { name: NAME.into(), model: model.into(), tools, ..NewAgent::default() };
    let agent = client.create_agent(session, &new).await?.id;
    let chart = format!(r#"{{"name": "chart", "type": "string", "ttl_ms": {GOOD_FOR_MS}}}"#);
    let map = r#"{"name": "map", "type": "string"}"#;
    let create = ["mission", "create", session, "--name", "survey", "--goal", "a map of the coast", "--agent", &agent];
    let mission = person.types(&[&create[..], &["--input-asset", &chart, "--output-asset", map]].concat()).await?;
    let mission = id(&mission)?;
    person.types(&["mission", "approve", &mission]).await?;

    let hop = current(client, &mission, 1, "HOP_PLAN_PROPOSED").await?;
    person.types(&["hop", "reject", &hop.id, "begin further north"]).await?;
    let again = until(|| async {
        let found = client.hop(&hop.id).await?;
        Ok((found.status == "HOP_PLAN_PROPOSED" && found.revision > hop.revision).then_some(found))
    });
    let revision = again.await?.revision.to_string();
    person.types(&["hop", "edit", &hop.id, "--revision", &revision, r#"{"goal": "done by noon"}"#]).await?;
    person.types(&["hop", "approve", &hop.id]).await?;
    current(client, &mission, 1, "HOP_IMPL_PROPOSED").await?;
    person.types(&["hop", "approve", &hop.id, "--run"]).await?;
    current(client, &mission, 1, "FAILED").await?;
    note("demo: the step has failed; the mission waits for a person");
    person.types(&["hop", "fix", &hop.id, "--reason", "by other means"]).await?;
    current(client, &mission, 1, "HOP_IMPL_PROPOSED").await?;
    person.types(&["hop", "approve", &hop.id, "--run"]).await?;

    let last = current(client, &mission, 2, "HOP_PLAN_PROPOSED").await?;
    person.types(&["hop", "approve", &last.id]).await?;
    let steps = current(client, &mission, 2, "HOP_IMPL_PROPOSED").await?;
    let chart = asset(client, &mission, "input").await?;
    person.types(&["asset", "provide", &chart, "--value", "\"old soundings\""]).await?;
    until(|| async { Ok((client.asset(&chart).await?.status == "EXPIRED").then_some(())) }).await?;
    note("demo: the chart is too old by now: the steps that read it go back");
    let again = until(|| async {
        let found = client.hop(&last.id).await?;
        Ok((found.status == "HOP_IMPL_PROPOSED" && found.revision > steps.revision).then_some(()))
    });
    again.await?;
    person.types(&["asset", "refresh", &chart]).await?;
    person.types(&["asset", "provide", &chart, "--value", "\"new soundings\""]).await?;
    person.types(&["hop", "approve", &last.id, "--run"]).await?;
    until(|| async { Ok((client.mission(&mission).await?.status == "COMPLETED").then_some(())) }).await?;
    person.types(&["asset", "lineage", &asset(client, &mission, "output").await?]).await?;
    Ok(mission)
}

/// The mission's first asset of this role.
async fn asset(client: &Client, mission: &str, role: &str) -> Result<String> {
    let query = Query::new().with("mission", mission).with("role", role);
    let found = client.assets(&query).await?.data.into_iter().next();
    Ok(found.with_context(|| format!("the mission has no {role}"))?.id)
}

/// The mission's hop of this number, once it is in this state.
async fn current(client: &Client, mission: &str, sequence: i64, status: &str) -> Result<Hop> {
    let query = Query::new().with("mission", mission);
    let found = until(|| async {
        let hops = client.hops(&query).await?.data;
        Ok(hops.into_iter().find(|hop| hop.sequence == sequence && hop.status == status))
    });
    found.await.with_context(|| format!("hop {sequence} does not come to {status}"))
}

async fn until<T, F>(mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let looking = async {
        loop {
            if let Some(found) = look().await? {
                return Ok(found);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.context("it takes too long")?
}
