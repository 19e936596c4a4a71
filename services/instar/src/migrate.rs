//! `instar migrate`: brings the schema up to date and ends.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use instar_runtime::config::{Config, Role};
use instar_store::Store;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The configuration [default: instar.toml if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let config = Config::load(Role::Migrate, self.config.as_deref(), &[]);
        let config = config.map_err(|bad| Failure::problems(bad.problems))?;
        let url = config.database.url.as_ref().ok_or_else(|| Failure::problems(["database.url: is needed"]))?;
        Store::migrate(url.expose()).await.map_err(anyhow::Error::from)?;
        Ok(output::say("the schema is up to date\n")?)
    }
}
