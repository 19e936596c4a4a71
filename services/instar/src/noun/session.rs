//! `instar session …`

use super::Extent;
use crate::cli::{budget as limits, json};
use crate::failure::Failure;
use crate::output::{self, Column, Format, time};
use clap::{Subcommand, ValueEnum};
use instar_client::{Client, InFlight, NewSession, Query, Session};
use serde_json::Value;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a session
    Create {
        #[arg(long)]
        name: Option<String>,
        /// A JSON object
        #[arg(long, value_parser = json)]
        config: Option<Value>,
        /// Limits: max_tokens=100000,max_cost=2.50 (also max_tool_calls, max_wall_time_ms, on_budget), or a JSON object
        #[arg(long, value_parser = limits)]
        budget: Option<Value>,
        /// Its first agent, a JSON object with name and model
        #[arg(long, value_parser = json)]
        root_agent: Option<Value>,
    },
    /// List sessions
    List {
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Show a session
    Get { session: String },
    /// Set or raise its limits while it goes on; max_tokens=none takes one away
    Budget {
        session: String,
        /// Limits: max_tokens=100000,max_cost=2.50 (also max_tool_calls, max_wall_time_ms), or a JSON object
        #[arg(value_parser = limits)]
        budget: Value,
    },
    /// Give it another name
    Rename { session: String, name: String },
    /// Let no further turn start
    Pause {
        session: String,
        /// What becomes of running turns
        #[arg(long, value_enum)]
        in_flight: Option<Running>,
    },
    /// Go on after a pause
    Resume { session: String },
    /// Raise the limits of a suspended session
    Replenish {
        session: String,
        /// Limits: max_tokens=100000,max_cost=2.50 (also max_tool_calls, max_wall_time_ms, on_budget), or a JSON object
        #[arg(long, value_parser = limits)]
        budget: Value,
    },
    /// Go on after too many errors
    Reset { session: String },
    /// End a session in order
    Close { session: String },
    /// Move a closed session to cold storage
    Archive { session: String },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Running {
    Complete,
    Interrupt,
}

const COLUMNS: &[Column<Session>] = &[
    ("ID", |s| s.id.clone()),
    ("NAME", |s| s.name.clone().unwrap_or_default()),
    ("STATUS", |s| s.status.clone()),
    ("RUNES", |s| s.head_seq.to_string()),
    ("CREATED", |s| time(&s.created_at)),
];

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let done = match self {
            Verb::Create { name, config, budget, root_agent } => {
                let root_agent = root_agent.map(serde_json::from_value).transpose()?;
                client.create_session(&NewSession { name, config, budget, root_agent }).await?
            }
            Verb::List { status, extent } => {
                let sessions = extent.read(client, "sessions", Query::new().maybe("status", status)).await?;
                return Ok(output::list(format, &sessions, COLUMNS)?);
            }
            Verb::Get { session } => return Ok(output::one(format, &client.session(&session).await?)?),
            Verb::Budget { session, budget } => {
                client.configure_session(&session, &serde_json::json!({"budget": budget})).await?
            }
            Verb::Rename { session, name } => {
                client.configure_session(&session, &serde_json::json!({"name": name})).await?
            }
            Verb::Pause { session, in_flight } => {
                let in_flight = in_flight.map(|running| match running {
                    Running::Complete => InFlight::Complete,
                    Running::Interrupt => InFlight::Interrupt,
                });
                client.pause_session(&session, in_flight).await?
            }
            Verb::Resume { session } => client.resume_session(&session).await?,
            Verb::Replenish { session, budget } => client.replenish_session(&session, &budget).await?,
            Verb::Reset { session } => client.reset_session(&session).await?,
            Verb::Close { session } => client.close_session(&session).await?,
            Verb::Archive { session } => client.archive_session(&session).await?,
        };
        Ok(changed(format, &done, COLUMNS)?)
    }
}

/// What an action left: a row for people, the thing itself for programs.
pub(super) fn changed<T: serde::Serialize + Clone>(
    format: Format,
    entry: &T,
    columns: &[Column<T>],
) -> std::io::Result<()> {
    match format {
        Format::Table => output::list(format, std::slice::from_ref(entry), columns),
        Format::Json | Format::Yaml => output::one(format, entry),
    }
}
