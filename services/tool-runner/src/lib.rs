//! The tool-runner: claims calls, causes their effects, and records exactly one result each.
//!
//! A call with side effects has its start committed before the effect. One that may be repeated runs
//! at once; its start is recorded only if it takes long or somebody may have begun it before.

mod account;
mod attempt;
mod beside;
mod call;
mod cancel;
mod mcp;
mod native;
mod progress;
mod rows;
mod runner;
mod settings;
mod step;
mod workspace;

pub use settings::{registry, settings};

use instar_runtime::Context;
use instar_tools::Registry;
use std::sync::Arc;

/// Starts a runner; it ends with the context's drain.
pub async fn start(context: Context, tools: Arc<Registry>) -> anyhow::Result<()> {
    runner::start(context, tools).await
}
