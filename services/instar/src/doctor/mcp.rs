//! Whether the MCP servers of the configuration can be had here: each is started or called, asked for its
//! tools, and ended again.

use instar_runtime::config::Config;
use instar_tools::mcp::{self, ServerConfig, Servers, Standing};
use std::time::Duration;

/// Beyond a server's own time to start: for ending what it has begun.
const MORE: Duration = Duration::from_secs(2);

/// Name and verdict of each. One that fails is no reason not to start: its tools are missing, no more.
pub(super) async fn check(config: &Config) -> Result<Vec<(String, Result<String, String>)>, Vec<String>> {
    let servers = mcp::read(&config.mcp_servers)?;
    let settings = instar_tool_runner::settings(config).map_err(|error| vec![format!("{error:#}")])?;
    let patience = servers.iter().map(|server| server.start_timeout_ms).max().unwrap_or_default();
    let servers: Vec<ServerConfig> = servers.into_iter().filter(|server| server.enabled).collect();
    let running = Servers::start(servers, &settings);
    let mut found = Vec::new();
    for (server, mut standing) in running.watch() {
        let decided = standing.wait_for(|now| !matches!(now, Standing::Starting { .. }));
        let decided = tokio::time::timeout(Duration::from_millis(patience) + MORE, decided).await;
        let verdict = match decided {
            Ok(Ok(now)) => judge(&now),
            _ => Err("it did not say in time what it offers".to_owned()),
        };
        found.push((server.name.clone(), verdict));
    }
    running.stop().await;
    Ok(found)
}

fn judge(standing: &Standing) -> Result<String, String> {
    match standing {
        Standing::Ready { protocol, about, offered } => {
            let refused = offered.iter().filter(|offer| offer.refused.is_some()).count();
            let about = about.as_deref().unwrap_or("a server without a name");
            let more = if refused > 0 { format!(", {refused} of them refused") } else { String::new() };
            Ok(format!("{about}, MCP {protocol}, {} tools{more}", offered.len()))
        }
        Standing::Failing { reason } => Err(reason.clone()),
        Standing::Starting { .. } | Standing::Stopped => Err("it ended".to_owned()),
    }
}
