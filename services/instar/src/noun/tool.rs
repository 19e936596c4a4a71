//! `instar tool …`: the tools there are, and the calls that models made of them.

use super::Extent;
use super::session::changed;
use crate::cli::json;
use crate::failure::Failure;
use crate::output::{self, Column, Format, short, time};
use clap::{Subcommand, ValueEnum};
use instar_client::{Client, Query, Resolution, Tool, ToolCall};
use serde_json::Value;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List tools
    List,
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
    /// It had no effect: make it again
    Retry,
}

const COLUMNS: &[Column<Tool>] = &[
    ("NAME", |t| t.name.clone()),
    ("KIND", |t| t.kind.clone().unwrap_or_default()),
    ("EFFECTS", |t| yes(t.side_effects)),
    ("APPROVAL", |t| t.requires_approval.clone().unwrap_or_default()),
    ("DESCRIPTION", |t| short(t.description.as_deref().unwrap_or_default(), 60)),
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
