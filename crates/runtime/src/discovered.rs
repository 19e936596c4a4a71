//! Tools that no configuration names. Those of MCP servers: runners write what they hear, everybody else reads it
//! and never speaks to a server. Those that were registered by requests: the API writes them.
//!
//! Read lazily, when a tool of a server may be meant: who waits or has no such tools asks for nothing.

use chrono::{DateTime, Utc};
use instar_store::entity::{mcp_server, mcp_tool, registered_tool};
use instar_store::{Store, StoreError};
use instar_tools::mcp::{Known, Offered, ServerConfig, ToolStanding, pin};
use instar_tools::{Origin, Registry, Spec, Tool};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long what was read counts as fresh.
pub const TOOLS_FRESH: Duration = Duration::from_millis(500);

/// A registry that has the tools of servers and of requests as the database has them.
#[derive(Clone)]
pub struct Discovered {
    store: Store,
    tools: Arc<Registry>,
    read_at: Arc<Mutex<Option<Instant>>>,
}

impl Discovered {
    pub fn new(store: Store, tools: Arc<Registry>) -> Discovered {
        Discovered { store, tools, read_at: Arc::default() }
    }

    pub fn registry(&self) -> &Registry {
        &self.tools
    }

    /// Reads what changed, if one of these names may be such a tool.
    pub async fn refresh_for(&self, names: &[String]) {
        let ours = |name: &String| self.tools.get(name).is_some_and(|tool| tool.origin() == Origin::Operator);
        if names.iter().any(|name| !ours(name)) {
            self.refresh().await;
        }
    }

    /// Reads what changed, unless somebody did a moment ago.
    pub async fn refresh(&self) {
        let mut read_at = self.read_at.lock().await;
        if read_at.is_some_and(|at| at.elapsed() < TOOLS_FRESH) {
            return;
        }
        self.read(&mut read_at).await;
    }

    /// Reads what changed.
    pub async fn look(&self) {
        self.read(&mut *self.read_at.lock().await).await;
    }

    async fn read(&self, read_at: &mut Option<Instant>) {
        match self.take_over().await {
            Ok(()) => *read_at = Some(Instant::now()),
            // What was known before still stands, and whoever calls needs the database next.
            Err(error) => tracing::debug!(%error, "which tools there are could not be read"),
        }
    }

    async fn take_over(&self) -> Result<(), StoreError> {
        let edition = self.store.tools_edition().await?;
        if self.tools.edition() == Some(edition) {
            return Ok(());
        }
        let (rows, servers) = (self.store.mcp_tools().await?, self.store.mcp_servers().await?);
        let tool = |row: &mcp_tool::Model| {
            let spec: Spec = serde_json::from_value(row.spec.clone()?).ok()?;
            let known = self.tools.get(&spec.name).filter(|tool| *tool.spec() == spec);
            let tool = match known {
                Some(known) => known,
                None => Arc::new(Tool::new(spec, Origin::Server).ok()?),
            };
            let reason = unavailable(row, &servers);
            let same = tool.unavailable() == reason.as_deref();
            Some(if same { tool } else { Arc::new(tool.standing(reason)) })
        };
        let registered = self.store.registered_tools().await?;
        let registered = registered.iter().filter_map(|row| self.registered(row));
        let offered: Vec<Arc<Tool>> = rows.iter().filter_map(tool).chain(registered).collect();
        for refused in self.tools.set_discovered(edition, offered) {
            tracing::warn!(%refused, "a tool that no configuration names cannot be had");
        }
        Ok(())
    }
}

impl Discovered {
    fn registered(&self, row: &registered_tool::Model) -> Option<Arc<Tool>> {
        let known = self.tools.get(&row.name).filter(|tool| tool.definition_hash() == row.hash);
        if let Some(known) = known.filter(|tool| tool.origin() == Origin::Api) {
            return Some(known);
        }
        let spec: Spec = serde_json::from_value(row.spec.clone()).ok()?;
        Tool::new(spec, Origin::Api).ok().map(Arc::new)
    }
}

/// Whether one of these names means a server that is only just starting, and of which nobody knows yet what it
/// offers. One that fails has said enough: its agents go without.
pub async fn is_unheard(store: &Store, names: &[String]) -> Result<bool, StoreError> {
    let meant: Vec<&str> = names.iter().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    if meant.is_empty() {
        return Ok(false);
    }
    let servers = store.mcp_servers().await?;
    let starts = |name: &str| {
        let mut own = servers.iter().filter(|server| server.server == name).peekable();
        own.peek().is_some() && own.all(|server| server.standing == "starting")
    };
    let meant: Vec<&str> = meant.into_iter().filter(|name| starts(name)).collect();
    if meant.is_empty() {
        return Ok(false);
    }
    let known = store.mcp_tools().await?;
    Ok(meant.iter().any(|name| !known.iter().any(|tool| tool.server == *name)))
}

/// Why a tool cannot be called now; `servers`: as live runners see them.
pub fn unavailable(row: &mcp_tool::Model, servers: &[mcp_server::Model]) -> Option<String> {
    if row.standing != ToolStanding::Available.token() {
        return Some(row.reason.clone().unwrap_or_else(|| row.standing.clone()));
    }
    let mut own = servers.iter().filter(|server| server.server == row.server).peekable();
    let Some(first) = own.peek().copied() else {
        return Some(format!("no tool-runner has the MCP server {}", row.server));
    };
    if own.any(|server| matches!(server.standing.as_str(), "ready" | "starting")) {
        return None;
    }
    let why = first.reason.clone().unwrap_or_else(|| format!("it is {}", first.standing));
    Some(format!("the MCP server {} is not there: {why}", row.server))
}

/// The rows that must change now that a server was heard.
pub fn hear_tools(
    config: &ServerConfig,
    offered: &[Offered],
    known: &[mcp_tool::Model],
    now: DateTime<Utc>,
) -> Vec<mcp_tool::Model> {
    let heard_before = !known.is_empty();
    let mut changed = Vec::new();
    for offer in offered {
        let before = known.iter().find(|row| row.name == offer.spec.name);
        let accepted = before.and_then(|row| row.hash.as_deref());
        let pinned = pin(config, Known { server: heard_before, accepted }, offer);
        let spec = serde_json::to_value(&offer.spec).ok();
        let mut row = before.cloned().unwrap_or_else(|| fresh(config, offer, now));
        (row.standing, row.reason) = (pinned.standing.token().to_owned(), pinned.reason);
        if pinned.standing == ToolStanding::Available {
            if row.hash.as_ref() != Some(&offer.hash) {
                (row.accepted_by, row.accepted_at) = (Some("pin".to_owned()), Some(now));
            }
            (row.spec, row.hash) = (spec, Some(offer.hash.clone()));
            (row.offered, row.offered_hash) = (None, None);
        } else {
            (row.offered, row.offered_hash) = (spec, Some(offer.hash.clone()));
        }
        if before != Some(&row) {
            changed.push(mcp_tool::Model { seen_at: now, ..row });
        }
    }
    let gone = known.iter().filter(|row| !offered.iter().any(|offer| offer.spec.name == row.name));
    for row in gone.filter(|row| row.standing != ToolStanding::Gone.token()) {
        changed.push(mcp_tool::Model {
            standing: ToolStanding::Gone.token().to_owned(),
            reason: Some(format!("the MCP server {} no longer offers it", config.name)),
            offered: None,
            offered_hash: None,
            seen_at: now,
            ..row.clone()
        });
    }
    changed
}

fn fresh(config: &ServerConfig, offer: &Offered, now: DateTime<Utc>) -> mcp_tool::Model {
    mcp_tool::Model {
        name: offer.spec.name.clone(),
        server: config.name.clone(),
        spec: None,
        hash: None,
        offered: None,
        offered_hash: None,
        standing: String::new(),
        reason: None,
        accepted_by: None,
        accepted_at: None,
        seen_at: now,
        version: 0,
    }
}
