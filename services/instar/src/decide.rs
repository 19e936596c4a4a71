//! `instar approve` and `instar deny`: a person's word about a tool call.

use crate::failure::Failure;
use crate::noun::tool::CALL_COLUMNS;
use crate::output::{self, Format};
use clap::Args;
use instar_client::{Client, ClientError, ToolCall};

#[derive(Debug, Args)]
pub(crate) struct Approve {
    pub(crate) call: String,
    /// Approve only the call with this digest, as `instar tool call get` shows it
    #[arg(long)]
    pub(crate) digest: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Deny {
    pub(crate) call: String,
    /// What the model is told
    #[arg(long)]
    pub(crate) reason: String,
}

impl Approve {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        decided(client.approve(&self.call, self.digest.as_deref()).await, format)
    }
}

impl Deny {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        decided(client.deny(&self.call, &self.reason).await, format)
    }
}

fn decided(answer: Result<ToolCall, ClientError>, format: Format) -> Result<(), Failure> {
    let call = answer?;
    match format {
        Format::Table => output::list(format, &[call], CALL_COLUMNS)?,
        Format::Json | Format::Yaml => output::one(format, &call)?,
    }
    Ok(())
}
