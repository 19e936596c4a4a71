//! `instar serve`: one service of several that meet in the database and on the bus.

use crate::catalog::Catalog;
use crate::failure::Failure;
use crate::{doctor, output, service};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use instar_runtime::Context;
use instar_runtime::config::{Config, Role};
use instar_runtime::drain::{Drain, Drained};
use instar_runtime::health::{Health, recorder};
use instar_runtime::telemetry;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[arg(value_enum)]
    pub(crate) service: Service,
    /// The configuration [default: instar.toml if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    Api,
    Scheduler,
    AgentWorker,
    ToolRunner,
}

impl Service {
    pub(crate) fn role(self) -> Role {
        match self {
            Service::Api => Role::Api,
            Service::Scheduler => Role::Scheduler,
            Service::AgentWorker => Role::AgentWorker,
            Service::ToolRunner => Role::ToolRunner,
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let role = self.service.role();
        let config = Config::load(role, self.config.as_deref(), &[]).map_err(|bad| Failure::problems(bad.problems))?;
        let catalog = catalog(self.service, &config)?;
        let guard = telemetry::init(role.as_str(), &config.telemetry).map_err(anyhow::Error::from)?;
        let outcome = self.serve(Arc::new(config), &catalog).await;
        guard.shutdown().await;
        Ok(outcome?.exit_code())
    }

    async fn serve(&self, config: Arc<Config>, catalog: &Catalog) -> Result<Drained> {
        let role = self.service.role();
        // First: what is counted before it is lost.
        recorder()?;
        #[cfg(feature = "count-allocations")]
        crate::allocation::tell();
        let drain = Drain::on_signal().context("signals cannot be heard")?;
        let context = Context::open(role, config.clone(), drain.clone()).await?;
        doctor::schema(context.hub.store()).await.map_err(|why| anyhow::anyhow!("the database: {why}"))?;
        let ready = match self.service {
            Service::Api => {
                let key = config.bootstrap_key(|name| std::env::var(name).ok());
                let address = service::start_api(&context, catalog, key.as_ref().map(|key| key.expose())).await?;
                format!("ready {role} http://{address}")
            }
            Service::Scheduler => {
                service::start_scheduler(&context, catalog).await?;
                format!("ready {role}")
            }
            Service::AgentWorker => {
                service::start_worker(&context, catalog).await?;
                format!("ready {role}")
            }
            Service::ToolRunner => {
                service::start_runner(&context, catalog).await?;
                format!("ready {role}")
            }
        };
        health(&context, role).await?;
        output::say(&format!("{ready}\n"))?;
        Ok(drain.wait_for(config.drain.grace()).await)
    }
}

/// Keys of models are given only to who calls them: the API knows models by name.
fn catalog(service: Service, config: &Config) -> Result<Catalog, Failure> {
    let mut seen = config.clone();
    match service {
        Service::AgentWorker => {}
        Service::Api => seen.models.iter_mut().for_each(|model| model.api_key_env = None),
        Service::Scheduler | Service::ToolRunner => seen.models.clear(),
    }
    Catalog::build(&seen).map_err(Failure::problems)
}

/// The pages for probes: where the configuration says, else on the service's own port.
async fn health(context: &Context, role: Role) -> Result<()> {
    let config = &context.config.health;
    let usual = role.health_port().map(|port| SocketAddr::new(config.host, port));
    let Some(listen) = config.listen.or(usual) else { return Ok(()) };
    let within = Duration::from_millis(context.config.health.check_timeout_ms);
    let store = context.hub.store().clone();
    let health = Health::new(context.drain.clone(), within)
        .check("database", move || {
            let store = store.clone();
            async move { store.live_workers("none").await.map(drop) }
        })
        .bus(context.hub.bus());
    let listener = match TcpListener::bind(listen).await {
        // Another one of its kind on the same machine, and nobody asked for this very port.
        Err(error) if error.kind() == ErrorKind::AddrInUse && config.listen.is_none() => {
            TcpListener::bind(SocketAddr::new(listen.ip(), 0)).await
        }
        bound => bound,
    };
    let address = health.serve_on(listener.with_context(|| format!("health.listen {listen}"))?)?;
    tracing::info!(%address, "serves /livez, /readyz and /metrics");
    Ok(())
}
