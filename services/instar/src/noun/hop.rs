//! `instar hop …`

use super::mission::{Older, Seen, reasoned};
use super::session::changed;
use super::{Extent, content};
use crate::cli::json;
use crate::failure::Failure;
use crate::output::{self, Column, Format, short, time};
use clap::Subcommand;
use instar_client::{Client, Hop, Query};
use serde_json::{Value, json};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Write the plan of a mission's next hop
    Create {
        mission: String,
        #[arg(long)]
        name: String,
        #[arg(long)]
        goal: Option<String>,
        /// An asset of the mission that it reads; may be repeated
        #[arg(long = "input-asset")]
        inputs: Vec<String>,
        /// What it makes: the id of an asset of the mission, the name of a new one, or that as JSON
        #[arg(long = "output-asset")]
        makes: String,
        /// It is the mission's last
        #[arg(long = "final")]
        is_final: bool,
        /// Who carries it out: steps or plan
        #[arg(long)]
        executor: Option<String>,
    },
    /// List hops
    List {
        #[arg(long)]
        mission: Option<String>,
        #[arg(long)]
        session: Option<String>,
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Show a hop
    #[command(visible_alias = "show")]
    Get { hop: String },
    /// Accept what it waits for: its plan, or its steps
    Approve {
        hop: String,
        #[command(flatten)]
        seen: Seen,
        /// Run accepted steps at once
        #[arg(long)]
        run: bool,
    },
    /// Turn down what it waits for: its plan, or its steps
    Reject {
        hop: String,
        /// What is wrong with it, or - for standard input
        feedback: String,
        #[command(flatten)]
        seen: Seen,
    },
    /// Take an acceptance back
    RequestChanges {
        hop: String,
        /// What shall be changed, or - for standard input
        feedback: Option<String>,
        #[command(flatten)]
        seen: Seen,
    },
    /// Change its plan, or with `steps` its steps
    Edit {
        hop: String,
        /// The revision that it is made from
        #[arg(long)]
        revision: i64,
        /// The fields that change, as JSON
        #[arg(value_parser = json)]
        changes: Value,
    },
    /// Run its steps
    Execute { hop: String },
    /// Stop its execution
    Stop {
        hop: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Cancel it; the mission goes on
    Cancel {
        hop: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Reopen what failed, to mend it
    Fix {
        hop: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Execute again from the failed step
    Retry {
        hop: String,
        /// From the first step
        #[arg(long)]
        restart: bool,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Plan again
    Replan {
        hop: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Say that it is done
    Complete {
        hop: String,
        #[arg(long)]
        reason: String,
        /// Values of what it should have made, as a JSON object by asset id or name
        #[arg(long, value_parser = json)]
        outputs: Option<Value>,
    },
    /// Propose a cancelled hop again
    Reset {
        hop: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Give it a command of the older vocabulary
    Command {
        hop: String,
        #[command(flatten)]
        older: Older,
    },
    /// Put a completed hop away
    Archive { hop: String },
    /// Throw a proposal away, or remove what failed or was cancelled
    Delete { hop: String },
}

const COLUMNS: &[Column<Hop>] = &[
    ("ID", |h| h.id.clone()),
    ("N", |h| h.sequence.to_string()),
    ("NAME", |h| short(&h.name, 30)),
    ("STATUS", |h| h.status.clone()),
    ("REVISION", |h| h.revision.to_string()),
    ("FINAL", |h| if h.is_final { "yes" } else { "no" }.to_owned()),
    ("CREATED", |h| time(&h.created_at)),
];

fn output_of(text: &str) -> Result<Value, Failure> {
    Ok(match text.trim_start() {
        json_text if json_text.starts_with('{') => json!({"asset": json(json_text).map_err(Failure::usage)?}),
        id if id.starts_with("ast_") => json!({"asset_id": id}),
        name => json!({"asset": {"name": name}}),
    })
}

/// Which of the two gates of a hop is closed; the server refuses what is not.
async fn gate(client: &Client, hop: &str, plan: &'static str, steps: &'static str) -> Result<&'static str, Failure> {
    let planned = client.hop(hop).await?.status.starts_with("HOP_PLAN");
    Ok(if planned { plan } else { steps })
}

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let (hop, action, body) = match self {
            Verb::Create { mission, name, goal, inputs, makes, is_final, executor } => {
                let mut plan = json!({
                    "name": name, "goal": goal, "inputs": inputs, "output": output_of(&makes)?, "is_final": is_final,
                });
                if let Some(executor) = executor {
                    plan["executor"] = json!(executor);
                }
                return Ok(changed(format, &client.create_hop(&mission, &plan).await?, COLUMNS)?);
            }
            Verb::List { mission, session, status, extent } => {
                let query = Query::new().maybe("mission", mission).maybe("session", session).maybe("status", status);
                let hops = extent.read(client, "hops", query).await?;
                return Ok(output::list(format, &hops, COLUMNS)?);
            }
            Verb::Get { hop } => return Ok(output::one(format, &client.hop(&hop).await?)?),
            Verb::Delete { hop } => return Ok(changed(format, &client.delete_hop(&hop).await?, COLUMNS)?),
            Verb::Approve { hop, seen, run } => {
                let action = gate(client, &hop, "approve-plan", "approve-impl").await?;
                match run && action == "approve-impl" {
                    true => {
                        let mut body = seen.body();
                        body["command"] = json!("approve_design_and_run");
                        (hop, "command", body)
                    }
                    false => (hop, action, seen.body()),
                }
            }
            Verb::Reject { hop, feedback, seen } => {
                let action = gate(client, &hop, "reject-plan", "reject-impl").await?;
                let mut body = seen.body();
                body["feedback"] = json!(content(&feedback)?);
                (hop, action, body)
            }
            Verb::RequestChanges { hop, feedback, seen } => {
                let mut body = seen.body();
                if let Some(feedback) = feedback {
                    body["feedback"] = json!(content(&feedback)?);
                }
                (hop, "request-changes", body)
            }
            Verb::Edit { hop, revision, mut changes } => {
                if !changes.is_object() {
                    return Err(Failure::usage("the changes are a JSON object".to_owned()));
                }
                changes["revision"] = json!(revision);
                let action = if changes.get("steps").is_some() { "edit-impl" } else { "edit-plan" };
                (hop, action, changes)
            }
            Verb::Execute { hop } => (hop, "execute", json!({})),
            Verb::Stop { hop, reason } => (hop, "stop", reasoned(json!({}), reason)),
            Verb::Cancel { hop, reason } => (hop, "cancel", reasoned(json!({}), reason)),
            Verb::Fix { hop, reason } => (hop, "fix", reasoned(json!({}), reason)),
            Verb::Retry { hop, restart, reason } => (hop, "retry", reasoned(json!({"restart": restart}), reason)),
            Verb::Replan { hop, reason } => (hop, "replan", reasoned(json!({}), reason)),
            Verb::Complete { hop, reason, outputs } => (hop, "complete", json!({"reason": reason, "outputs": outputs})),
            Verb::Reset { hop, reason } => (hop, "reset", reasoned(json!({}), reason)),
            Verb::Command { hop, older } => (hop, "command", older.body()?),
            Verb::Archive { hop } => (hop, "archive", json!({})),
        };
        changed(format, &client.act_on_hop(&hop, action, &body).await?, COLUMNS)?;
        Ok(())
    }
}
