//! `instar step …`

use super::session::changed;
use crate::cli::json;
use crate::failure::{FAILED, Failure};
use crate::output::{self, Column, Format};
use clap::{Args, Subcommand};
use instar_client::{Client, Step};
use serde_json::Value;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the steps of a hop in the order in which they run
    List { hop: String },
    /// Show a step
    Get { step: String },
    /// Say what a running step should have made, and go on behind it
    Complete {
        step: String,
        /// Values by result or by asset id, as a JSON object
        #[arg(long, value_parser = json)]
        outputs: Value,
    },
    /// Cancel a step; in a hop that runs this stops the hop
    Cancel(Why),
    /// Ask for another tool
    RequestChanges(Why),
    /// Bring a cancelled step back
    Reset(Why),
    /// Remove a step
    Delete { step: String },
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    step: String,
    #[arg(long)]
    reason: Option<String>,
}

const COLUMNS: &[Column<Step>] = &[
    ("ID", |s| s.id.clone()),
    ("NO", |s| s.sequence.to_string()),
    ("NAME", |s| s.name.clone()),
    ("TOOL", |s| s.tool_id.clone().unwrap_or_default()),
    ("STATUS", |s| s.status.clone()),
    ("ATTEMPTS", |s| s.attempts.to_string()),
];

impl Verb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let step = match self {
            Verb::List { hop } => return Ok(output::list(format, &client.steps(&hop).await?.data, COLUMNS)?),
            Verb::Get { step } => return Ok(output::one(format, &client.step(&step).await?)?),
            Verb::Complete { step, outputs } => {
                let Value::Object(outputs) = outputs else {
                    return Err(Failure::new(FAILED, "--outputs must be a JSON object"));
                };
                client.complete_step(&step, &outputs).await?
            }
            Verb::Cancel(why) => client.act_on_step(&why.step, "cancel", why.reason.as_deref()).await?,
            Verb::RequestChanges(why) => {
                client.act_on_step(&why.step, "request-changes", why.reason.as_deref()).await?
            }
            Verb::Reset(why) => client.act_on_step(&why.step, "reset", why.reason.as_deref()).await?,
            Verb::Delete { step } => client.delete_step(&step).await?,
        };
        Ok(changed(format, &step, COLUMNS)?)
    }
}
