//! `instar turn …`

use super::session::changed;
use super::{Extent, content};
use crate::failure::Failure;
use crate::output::{self, Column, Format, short, time};
use clap::Subcommand;
use instar_client::{Client, Query, Turn};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List turns
    List {
        #[arg(long)]
        agent: Option<String>,
        #[arg(long)]
        session: Option<String>,
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        extent: Extent,
    },
    /// Show a turn
    Get { turn: String },
    /// Show what the model was sent
    Context {
        turn: String,
        /// Which provider call, from 1; the latest
        #[arg(long)]
        iteration: Option<u64>,
    },
    /// End a turn: an answer ends where it is, and what was said is kept
    Interrupt {
        turn: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Give a turn new words to go by
    Steer {
        turn: String,
        /// The words, or - for standard input
        text: String,
    },
}

const COLUMNS: &[Column<Turn>] = &[
    ("ID", |t| t.id.clone()),
    ("AGENT", |t| t.agent_id.clone()),
    ("STATUS", |t| t.status.clone()),
    ("CALLS", |t| t.iterations.to_string()),
    ("CREATED", |t| time(&t.created_at)),
    ("OUTPUT", |t| short(t.output.as_deref().unwrap_or_default(), 50)),
];

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        match self {
            Verb::List { agent, session, status, extent } => {
                let query = Query::new().maybe("agent", agent).maybe("session", session).maybe("status", status);
                let turns = extent.read(client, "turns", query).await?;
                output::list(format, &turns, COLUMNS)?;
            }
            Verb::Get { turn } => output::one(format, &client.turn(&turn).await?)?,
            Verb::Context { turn, iteration } => output::one(format, &client.turn_context(&turn, iteration).await?)?,
            Verb::Interrupt { turn, reason } => {
                changed(format, &client.interrupt_turn(&turn, reason.as_deref()).await?, COLUMNS)?;
            }
            Verb::Steer { turn, text } => output::one(format, &client.steer_turn(&turn, &content(&text)?).await?)?,
        }
        Ok(())
    }
}
