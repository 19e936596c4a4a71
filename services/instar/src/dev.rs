//! `instar dev`: everything in one process, on the embedded backends. It asks nothing, and prints one
//! line on standard output when it serves.

use crate::catalog::{self, Catalog};
use crate::failure::Failure;
use crate::folder::{self, Folder};
use crate::{demo, output, service};
use anyhow::{Context as _, Result};
use clap::Args;
use instar_runtime::Context;
use instar_runtime::config::{Config, Role, Secret};
use instar_runtime::drain::{Drain, Drained};
use instar_runtime::health::recorder;
use instar_runtime::telemetry;
use instar_store::Store;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where to listen on the loopback; 0 takes a free one [default: that of api.listen, 7700]
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Where data and key are kept [default: .instar]
    #[arg(long, value_name = "FOLDER", env = folder::VARIABLE)]
    pub(crate) data_dir: Option<PathBuf>,
    /// The admin key [default: the one in the data folder, made at the first start]
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// The configuration [default: instar.toml if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Also run a small fleet that shows turns and an approval
    #[arg(long)]
    pub(crate) demo: bool,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let listen = self.port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string());
        let overrides: Vec<_> = listen.iter().map(|listen| ("api.listen", listen.as_str())).collect();
        let config = Config::load(Role::Dev, self.config.as_deref(), &overrides);
        let mut config = config.map_err(|bad| Failure::problems(bad.problems))?;
        let folder = Folder::take(&self.data_dir.clone().unwrap_or_else(folder::default))?;
        self.settle(&mut config, &folder)?;
        let catalog = Catalog::build(&config).map_err(Failure::problems)?;
        let guard = telemetry::init(Role::Dev.as_str(), &config.telemetry).map_err(anyhow::Error::from)?;
        let outcome = self.serve(Arc::new(config), &catalog, &folder).await;
        guard.shutdown().await;
        Ok(outcome?.exit_code())
    }

    /// What a configuration for `dev` may leave open.
    fn settle(&self, config: &mut Config, folder: &Folder) -> Result<()> {
        // A key that lies in a folder is good enough for this machine, not for others.
        config.api.listen.set_ip(Ipv4Addr::LOCALHOST.into());
        if config.database.url.is_none() {
            config.database.url = Secret::new(folder.database());
        }
        if config.archive.url.is_none() {
            config.archive.url = Some(folder.archive());
        }
        if config.runner.workspaces.is_none() {
            config.runner.workspaces = Some(folder.workspaces());
        }
        if config.models.is_empty() {
            config.models.push(catalog::scripted());
        }
        if config.secrets.key_env.is_none() && config.secrets.key_file.is_none() {
            config.secrets.key_file = Some(folder.secrets_key()?);
        }
        if self.demo {
            demo::prepare(config);
        }
        Ok(())
    }

    async fn serve(&self, config: Arc<Config>, catalog: &Catalog, folder: &Folder) -> Result<Drained> {
        // First: what is counted before it is lost.
        recorder()?;
        let drain = Drain::on_signal().context("signals cannot be heard")?;
        let key = match &self.api_key {
            Some(key) => key.clone(),
            None => {
                let key = folder.key()?;
                eprintln!("key {key}");
                key
            }
        };
        if let Some(url) = &config.database.url {
            Store::migrate(url.expose()).await.context("the database's schema")?;
        }
        let context = Context::open(Role::Dev, config.clone(), drain.clone()).await?;
        service::start_scheduler(&context, catalog).await?;
        service::start_worker(&context, catalog).await?;
        service::start_runner(&context, catalog).await?;
        // Last: who is answered finds everybody at work.
        let address = service::start_api(&context, catalog, Some(&key)).await?;
        let server = format!("http://127.0.0.1:{}", address.port());
        output::say(&format!("ready {server}\n"))?;
        if self.demo {
            let key_file = self.api_key.is_none().then(|| folder.key_file());
            tokio::spawn(demo::run(server, key, key_file, drain.clone()));
        }
        Ok(drain.wait_for(config.drain.grace()).await)
    }
}
