//! `instar mission …`

use super::session::changed;
use super::{Extent, content};
use crate::cli::json;
use crate::failure::Failure;
use crate::output::{self, Column, Format, short, time};
use clap::{Args, Subcommand};
use instar_client::{Client, Mission, Query};
use serde_json::{Map, Value, json};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Propose a mission
    Create(Box<New>),
    /// List missions, such as those that wait for a person: --awaits person
    List {
        #[arg(long)]
        session: Option<String>,
        #[arg(long)]
        status: Option<String>,
        /// person, agent, policy, steps or nobody
        #[arg(long)]
        awaits: Option<String>,
        #[arg(long)]
        agent: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Show a mission
    #[command(visible_alias = "show")]
    Get { mission: String },
    /// Accept a proposal
    Approve {
        mission: String,
        #[command(flatten)]
        seen: Seen,
    },
    /// Turn a proposal down
    Reject {
        mission: String,
        #[command(flatten)]
        seen: Seen,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Have its agent change the proposal
    RequestChanges {
        mission: String,
        /// What shall be changed, or - for standard input
        feedback: String,
        #[command(flatten)]
        seen: Seen,
    },
    /// Change the proposal yourself
    Revise {
        mission: String,
        /// The revision that it is made from
        #[arg(long)]
        revision: i64,
        /// The fields that change, as JSON
        #[arg(value_parser = json)]
        changes: Value,
    },
    /// Change how it is run: its agent, its gates, what becomes of it when a hop fails
    Set(Box<Set>),
    /// Complete it before its final hop: every output must be READY
    Complete {
        mission: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Cancel it with everything that runs for it
    Cancel {
        mission: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Try the failed hop of a failed mission again
    Retry {
        mission: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let one go on whose hop a person has stopped
    Resume {
        mission: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Start one that has ended over, as a new instance
    Reset {
        mission: String,
        /// Who plans and implements it; else who did
        #[arg(long)]
        agent: Option<String>,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Give it, or its current hop, a command of the older vocabulary
    Command {
        mission: String,
        #[command(flatten)]
        older: Older,
    },
    /// Answer its agent's question
    Answer {
        mission: String,
        /// What it wanted to know, or - for standard input
        text: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct New {
    session: String,
    #[arg(long)]
    name: String,
    #[arg(long)]
    goal: String,
    /// How one sees that it is reached; may be repeated
    #[arg(long = "criterion")]
    criteria: Vec<String>,
    /// An asset that it promises: a name, or JSON; may be repeated
    #[arg(long = "output-asset", required = true)]
    outputs: Vec<String>,
    /// An asset that it reads: a name, or JSON; may be repeated
    #[arg(long = "input-asset")]
    inputs: Vec<String>,
    /// Who plans and implements its hops
    #[arg(long)]
    agent: Option<String>,
    /// How a gate opens, such as plan=auto; may be repeated
    #[arg(long = "gate", value_name = "GATE=POLICY")]
    gates: Vec<String>,
    /// After this long a timed gate asks for attention
    #[arg(long)]
    gate_timeout_ms: Option<i64>,
    /// When a hop has no attempt left: attention or fail
    #[arg(long)]
    on_hop_failure: Option<String>,
    /// How often a hop is executed
    #[arg(long)]
    hop_attempts_max: Option<i64>,
    /// Further fields of the proposal, as JSON
    #[arg(long, value_parser = json)]
    with: Option<Value>,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    mission: String,
    /// Who plans and implements its hops from now on
    #[arg(long)]
    agent: Option<String>,
    /// How a gate opens, such as plan=auto; may be repeated
    #[arg(long = "gate", value_name = "GATE=POLICY")]
    gates: Vec<String>,
    /// After this long a timed gate asks for attention
    #[arg(long)]
    gate_timeout_ms: Option<i64>,
    /// When a hop has no attempt left: attention or fail
    #[arg(long)]
    on_hop_failure: Option<String>,
    /// How often a hop is executed
    #[arg(long)]
    hop_attempts_max: Option<i64>,
    #[command(flatten)]
    seen: Seen,
}

impl Set {
    fn body(&self) -> Result<Value, Failure> {
        let mut body = self.seen.body();
        let given = [
            ("agent_id", self.agent.as_ref().map(|agent| json!(agent))),
            ("gate_timeout_ms", self.gate_timeout_ms.map(|ms| json!(ms))),
            ("on_hop_failure", self.on_hop_failure.as_ref().map(|on| json!(on))),
            ("hop_attempts_max", self.hop_attempts_max.map(|n| json!(n))),
            ("gates", policies(&self.gates)?),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                body[name] = value;
            }
        }
        Ok(body)
    }
}

/// Gates as they are written on the command line.
fn policies(given: &[String]) -> Result<Option<Value>, Failure> {
    let mut gates = Map::new();
    for gate in given {
        let Some((name, policy)) = gate.split_once('=') else {
            return Err(Failure::usage(format!("--gate {gate}: write it as plan=auto")));
        };
        gates.insert(name.to_owned(), json!(policy));
    }
    Ok((!gates.is_empty()).then_some(Value::Object(gates)))
}

/// What the older vocabulary calls it.
#[derive(Debug, Args)]
pub(crate) struct Older {
    /// Such as accept_hop_proposal, approve_design_and_run or cancel_execution
    command: String,
    /// What shall be changed, or - for standard input
    #[arg(long)]
    feedback: Option<String>,
    #[command(flatten)]
    seen: Seen,
    #[arg(long)]
    reason: Option<String>,
}

impl Older {
    pub(crate) fn body(self) -> Result<Value, Failure> {
        let mut body = reasoned(self.seen.body(), self.reason);
        body["command"] = json!(self.command);
        if let Some(feedback) = self.feedback {
            body["feedback"] = json!(content(&feedback)?);
        }
        Ok(body)
    }
}

/// What was looked at.
#[derive(Debug, Args)]
pub(crate) struct Seen {
    /// The revision that was looked at: it must still be the one
    #[arg(long)]
    revision: Option<i64>,
}

impl Seen {
    pub(crate) fn body(&self) -> Value {
        self.revision.map_or(json!({}), |revision| json!({"revision": revision}))
    }
}

const COLUMNS: &[Column<Mission>] = &[
    ("ID", |m| m.id.clone()),
    ("NAME", |m| short(&m.name, 30)),
    ("STATUS", |m| m.status.clone()),
    ("AWAITS", |m| m.awaits.clone()),
    ("REVISION", |m| m.revision.to_string()),
    ("HOP", |m| m.current_hop.clone().unwrap_or_default()),
    ("CREATED", |m| time(&m.created_at)),
];

/// A name alone, or all that is to say of an asset.
fn asset(text: &str) -> Result<Value, Failure> {
    match text.trim_start().starts_with('{') {
        true => json(text).map_err(Failure::usage),
        false => Ok(json!({"name": text})),
    }
}

impl New {
    fn body(&self) -> Result<Value, Failure> {
        let mut body = match &self.with {
            None => Map::new(),
            Some(Value::Object(more)) => more.clone(),
            Some(_) => return Err(Failure::usage("--with takes a JSON object".to_owned())),
        };
        let assets = |texts: &[String]| texts.iter().map(|text| asset(text)).collect::<Result<Vec<_>, _>>();
        body.insert("name".into(), json!(self.name));
        body.insert("goal".into(), json!(self.goal));
        body.insert("outputs".into(), json!(assets(&self.outputs)?));
        if !self.inputs.is_empty() {
            body.insert("inputs".into(), json!(assets(&self.inputs)?));
        }
        if !self.criteria.is_empty() {
            body.insert("success_criteria".into(), json!(self.criteria));
        }
        if let Some(agent) = &self.agent {
            body.insert("agent_id".into(), json!(agent));
        }
        if let Some(ms) = self.gate_timeout_ms {
            body.insert("gate_timeout_ms".into(), json!(ms));
        }
        if let Some(on) = &self.on_hop_failure {
            body.insert("on_hop_failure".into(), json!(on));
        }
        if let Some(n) = self.hop_attempts_max {
            body.insert("hop_attempts_max".into(), json!(n));
        }
        if let Some(gates) = policies(&self.gates)? {
            body.insert("gates".into(), gates);
        }
        Ok(Value::Object(body))
    }
}

/// A body with a reason, if there is one.
pub(crate) fn reasoned(mut body: Value, reason: Option<String>) -> Value {
    if let Some(reason) = reason {
        body["reason"] = json!(reason);
    }
    body
}

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let (mission, action, body) = match self {
            Verb::Create(new) => {
                let made = client.create_mission(&new.session, &new.body()?).await?;
                return Ok(changed(format, &made, COLUMNS)?);
            }
            Verb::List { session, status, awaits, agent, extent } => {
                let query = Query::new().maybe("session", session).maybe("status", status);
                let query = query.maybe("awaits", awaits).maybe("agent", agent);
                let missions = extent.read(client, "missions", query).await?;
                return Ok(output::list(format, &missions, COLUMNS)?);
            }
            Verb::Get { mission } => return Ok(output::one(format, &client.mission(&mission).await?)?),
            Verb::Answer { mission, text } => {
                let answered = client.answer_mission(&mission, &content(&text)?).await?;
                return Ok(changed(format, &answered, COLUMNS)?);
            }
            Verb::Resume { mission, reason } => {
                let resumed = client.resume_mission(&mission, reason.as_deref()).await?;
                return Ok(changed(format, &resumed, COLUMNS)?);
            }
            Verb::Set(set) => {
                let after = client.set_mission(&set.mission, &set.body()?).await?;
                return Ok(changed(format, &after, COLUMNS)?);
            }
            Verb::Approve { mission, seen } => (mission, "approve", seen.body()),
            Verb::Reject { mission, seen, reason } => (mission, "reject", reasoned(seen.body(), reason)),
            Verb::RequestChanges { mission, feedback, seen } => {
                let mut body = seen.body();
                body["feedback"] = json!(content(&feedback)?);
                (mission, "request-changes", body)
            }
            Verb::Revise { mission, revision, mut changes } => {
                if !changes.is_object() {
                    return Err(Failure::usage("the changes are a JSON object".to_owned()));
                }
                changes["revision"] = json!(revision);
                (mission, "revise", changes)
            }
            Verb::Complete { mission, reason } => (mission, "complete", reasoned(json!({}), reason)),
            Verb::Cancel { mission, reason } => (mission, "cancel", reasoned(json!({}), reason)),
            Verb::Retry { mission, reason } => (mission, "retry", reasoned(json!({}), reason)),
            Verb::Reset { mission, agent, reason } => {
                let body = agent.map_or(json!({}), |agent| json!({"agent_id": agent}));
                (mission, "reset", reasoned(body, reason))
            }
            Verb::Command { mission, older } => (mission, "command", older.body()?),
        };
        changed(format, &client.act_on_mission(&mission, action, &body).await?, COLUMNS)?;
        Ok(())
    }
}
