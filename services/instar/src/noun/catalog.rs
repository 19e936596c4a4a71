//! `instar model …` and `instar machine …`: what the server has to offer.

use crate::failure::Failure;
use crate::output::{self, Column, Format, short};
use clap::Subcommand;
use instar_client::{Client, Machine, Model, Query};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelVerb {
    /// List models
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MachineVerb {
    /// List machines
    List,
    /// Show a machine
    Get { name: String },
}

const MODELS: &[Column<Model>] = &[
    ("NAME", |m| m.name.clone()),
    ("PROVIDER", |m| m.provider.clone().unwrap_or_default()),
    ("MODEL", |m| m.model.clone().unwrap_or_default()),
];

const MACHINES: &[Column<Machine>] = &[
    ("NAME", |m| m.name.clone()),
    ("DESCRIPTION", |m| {
        let text = m.rest.get("doc").or(m.rest.get("description")).and_then(|doc| doc.as_str());
        short(text.unwrap_or_default(), 90)
    }),
];

impl ModelVerb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        let ModelVerb::List = self;
        Ok(output::list(format, &client.models(&Query::new()).await?.data, MODELS)?)
    }
}

impl MachineVerb {
    pub(crate) async fn run(self, client: &Client, format: Format) -> Result<(), Failure> {
        match self {
            MachineVerb::List => output::list(format, &client.machines().await?.data, MACHINES)?,
            MachineVerb::Get { name } => output::one(format, &client.machine(&name).await?)?,
        }
        Ok(())
    }
}
