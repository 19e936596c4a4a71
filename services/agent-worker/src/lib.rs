//! The agent-worker: claims turns of agents it owns, streams the provider, records what was said.
//!
//! It holds a turn only while the provider speaks. While tools run or a person decides, the turn is a
//! row; whoever makes it ready again wakes a worker.

mod answer;
mod brake;
mod compose;
mod control;
mod gather;
mod held;
mod judge;
mod mission;
mod patience;
mod purse;
mod rows;
mod segment;
mod stream;
mod summarise;
mod take;
mod turn;
mod unwritten;
mod warm;
mod worker;

use instar_model::Models;
use instar_runtime::Context;
use instar_tools::Registry;
use std::sync::Arc;

/// Starts a worker; it ends with the context's drain.
pub async fn start(context: Context, models: Arc<Models>, tools: Arc<Registry>) -> anyhow::Result<()> {
    worker::start(context, models, tools).await
}
