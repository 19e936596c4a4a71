//! This process's MCP servers: started once, and what they offer written down for everybody else.

use crate::settings;
use anyhow::Result;
use instar_core::id::WorkerId;
use instar_runtime::config::Config;
use instar_runtime::{Hub, hear_tools};
use instar_store::StoreError;
use instar_store::clock;
use instar_store::entity::mcp_server;
use instar_tools::mcp::{self, ServerConfig, Servers, Standing};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const AGAIN_MAX: Duration = Duration::from_secs(5);

pub(crate) fn start(config: &Config) -> Result<Arc<Servers>> {
    let servers = mcp::read(&config.mcp_servers).map_err(|problems| anyhow::anyhow!("{}", problems.join("\n")))?;
    Ok(Arc::new(Servers::start(servers, &settings::settings(config)?)))
}

/// Writes how each server stands, for as long as the runner is registered.
pub(crate) struct Publishing {
    hub: Hub,
    runner: WorkerId,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Publishing {
    /// Returns when every server's first attempt is written down, or after `settle`.
    pub(crate) async fn begin(hub: &Hub, runner: WorkerId, servers: &Servers, settle: Duration) -> Publishing {
        let publishing =
            Publishing { hub: hub.clone(), runner, stop: CancellationToken::new(), tasks: TaskTracker::new() };
        if servers.is_empty() {
            return publishing;
        }
        let mut first = Vec::new();
        for (config, standing) in servers.watch() {
            let (said, heard) = tokio::sync::oneshot::channel();
            let (hub, stop) = (hub.clone(), publishing.stop.clone());
            let pass = async move { pass_on(&hub, runner, &config, standing, said).await };
            publishing.tasks.spawn(async move {
                tokio::select! {
                    () = pass => {}
                    () = stop.cancelled() => {}
                }
            });
            first.push(heard);
        }
        let _ = tokio::time::timeout(settle, heard_all(first)).await;
        publishing
    }

    /// Takes back what this runner said.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        if let Err(error) = self.hub.store().forget_mcp_servers(self.runner).await {
            tracing::debug!(%error, "what it said of its MCP servers counts no longer than its lease");
        }
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn heard_all(all: Vec<tokio::sync::oneshot::Receiver<()>>) {
    for one in all {
        let _ = one.await;
    }
}

async fn pass_on(
    hub: &Hub,
    runner: WorkerId,
    config: &Arc<ServerConfig>,
    mut standing: watch::Receiver<Standing>,
    said: tokio::sync::oneshot::Sender<()>,
) {
    let mut said = Some(said);
    loop {
        let now = standing.borrow_and_update().clone();
        let decided = !matches!(now, Standing::Starting { .. });
        let mut wait = Duration::from_millis(100);
        while let Err(error) = write(hub, runner, config, &now).await {
            tracing::warn!(server = config.name, %error, "how an MCP server stands was not written; trying again");
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(AGAIN_MAX);
        }
        metrics::counter!("instar.mcp.standings", "server" => config.name.clone(), "standing" => token(&now))
            .increment(1);
        if let Some(said) = said.take_if(|_| decided) {
            let _ = said.send(());
        }
        if standing.changed().await.is_err() {
            return;
        }
    }
}

fn token(standing: &Standing) -> &'static str {
    match standing {
        Standing::Starting { .. } => "starting",
        Standing::Ready { .. } => "ready",
        Standing::Failing { .. } => "failing",
        Standing::Stopped => "stopped",
    }
}

async fn write(hub: &Hub, runner: WorkerId, config: &Arc<ServerConfig>, now: &Standing) -> Result<(), StoreError> {
    let at = clock::now();
    let mut row = mcp_server::Model {
        server: config.name.clone(),
        runner: runner.uuid(),
        standing: token(now).to_owned(),
        reason: None,
        protocol: None,
        about: None,
        tools: 0,
        changed_at: at,
        version: 1,
    };
    match now {
        Standing::Starting { reason } => row.reason = reason.clone(),
        Standing::Failing { reason } => row.reason = Some(reason.clone()),
        Standing::Stopped => {}
        Standing::Ready { protocol, about, offered } => {
            (row.protocol, row.about, row.tools) = (Some(protocol.clone()), about.clone(), offered.len() as i64);
            let (config, offered) = (config.clone(), offered.clone());
            let decide = move |known: &[_]| {
                let changed = hear_tools(&config, &offered, known, at);
                for row in changed.iter().filter(|row| row.reason.is_some()) {
                    metrics::counter!("instar.mcp.tools_withheld", "server" => config.name.clone()).increment(1);
                    tracing::warn!(tool = row.name, reason = row.reason, "a tool of an MCP server is not offered");
                }
                changed
            };
            hub.store().change_mcp_tools(&row.server, decide).await?;
        }
    }
    hub.store().hear_mcp_server(row).await
}
