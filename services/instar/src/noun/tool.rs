//! `instar tool …`: the tools there are, and the calls that models made of them.

use super::Extent;
use super::session::changed;
use crate::cli::json;
use crate::failure::Failure;
use crate::output::{self, Column, Format, short, time};
use clap::{Subcommand, ValueEnum};
use instar_client::{Client, McpServer, Query, Resolution, Tool, ToolCall};
use serde_json::Value;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List tools
    List,
    /// Register a tool for every process: its definition as JSON, with the fields of [[tools]] in the configuration
    Register {
        #[arg(value_parser = json)]
        definition: Value,
    },
    /// Remove a tool that was registered so
    Remove { tool: String },
    /// List MCP servers, as each tool-runner sees them
    Servers,
    /// Accept the definitions that an MCP server offers now: of one tool, or of all below a server (clock.*)
    Accept {
        tool: String,
        /// Only if this is the definition that is offered
        #[arg(long)]
        hash: Option<String>,
    },
    /// List calls, such as those that wait: --status awaiting_approval
    Calls {
        #[arg(long)]
        status: Option<String>,
        #[arg(long)]
        session: Option<String>,
        #[arg(long)]
        agent: Option<String>,
        #[arg(long)]
        turn: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// One call: get, cancel, resolve
    #[command(subcommand)]
    Call(CallVerb),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CallVerb {
    /// Show a call
    Get { call: String },
    /// End a call that has no result yet
    Cancel { call: String },
    /// Say what the unknown outcome of a call was
    Resolve {
        call: String,
        #[arg(long, value_enum)]
        outcome: Outcome,
        /// What the tool gave, as JSON
        #[arg(long, value_parser = json)]
        result: Option<Value>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Outcome {
    Success,
    Error,
    /// It had no effect: the agent is asked to make it again
    Retry,
}

const COLUMNS: &[Column<Tool>] = &[
    ("NAME", |t| t.name.clone()),
    ("KIND", |t| t.kind.clone().unwrap_or_default()),
    ("EFFECTS", |t| yes(t.side_effects)),
    ("APPROVAL", |t| t.requires_approval.clone().unwrap_or_default()),
    ("AVAILABLE", |t| yes(t.available)),
    // Why not, where that matters more than what for.
    ("DESCRIPTION", |t| short(t.reason.as_deref().or(t.description.as_deref()).unwrap_or_default(), 60)),
];

const SERVERS: &[Column<McpServer>] = &[
    ("NAME", |s| s.name.clone()),
    ("STATUS", |s| s.status.clone()),
    ("TOOLS", |s| s.tools.to_string()),
    ("PROTOCOL", |s| s.protocol.clone().unwrap_or_default()),
    ("RUNNER", |s| s.runner.clone()),
    ("ABOUT", |s| short(s.reason.as_deref().or(s.about.as_deref()).unwrap_or_default(), 80)),
];

pub(crate) const CALL_COLUMNS: &[Column<ToolCall>] = &[
    ("ID", |c| c.id.clone()),
    ("TOOL", |c| c.name.clone()),
    ("STATUS", |c| c.status.clone()),
    ("AGENT", |c| c.agent_id.clone()),
    ("CREATED", |c| time(&c.created_at)),
    ("ARGUMENTS", |c| short(&c.arguments.to_string(), 50)),
];

fn yes(value: Option<bool>) -> String {
    value.map_or("", |yes| if yes { "yes" } else { "no" }).to_owned()
}

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        match self {
            Verb::List => output::list(format, &client.tools(&Query::new()).await?.data, COLUMNS)?,
            Verb::Register { definition } => {
                output::list(format, &[client.register_tool(&definition).await?], COLUMNS)?
            }
            Verb::Remove { tool } => output::list(format, &[client.remove_tool(&tool).await?], COLUMNS)?,
            Verb::Servers => output::list(format, &client.mcp_servers().await?.data, SERVERS)?,
            Verb::Accept { tool, hash } => {
                let accepted = match tool.strip_suffix(".*") {
                    None => vec![client.accept_tool(&tool, hash.as_deref()).await?],
                    Some(server) => accept_all(client, server).await?,
                };
                output::list(format, &accepted, COLUMNS)?;
            }
            Verb::Calls { status, session, agent, turn, extent } => {
                let query = Query::new().maybe("status", status).maybe("session", session);
                let query = query.maybe("agent", agent).maybe("turn", turn);
                let calls = extent.read(client, "tool-calls", query).await?;
                output::list(format, &calls, CALL_COLUMNS)?;
            }
            Verb::Call(CallVerb::Get { call }) => output::one(format, &client.call(&call).await?)?,
            Verb::Call(CallVerb::Cancel { call }) => changed(format, &client.cancel_call(&call).await?, CALL_COLUMNS)?,
            Verb::Call(CallVerb::Resolve { call, outcome, result }) => {
                let outcome = match outcome {
                    Outcome::Success => Resolution::Success,
                    Outcome::Error => Resolution::Error,
                    Outcome::Retry => Resolution::Retry,
                };
                changed(format, &client.resolve_call(&call, outcome, result.as_ref()).await?, CALL_COLUMNS)?;
            }
        }
        Ok(())
    }
}

/// Each by the hash that was listed, so that nothing is accepted that came later.
async fn accept_all(client: &Client, server: &str) -> Result<Vec<Tool>, Failure> {
    let mut accepted = Vec::new();
    let waiting = |tool: &Tool| tool.server.as_deref() == Some(server) && tool.offered_hash.is_some();
    for tool in client.tools(&Query::new()).await?.data.iter().filter(|tool| waiting(tool)) {
        accepted.push(client.accept_tool(&tool.name, tool.offered_hash.as_deref()).await?);
    }
    Ok(accepted)
}
