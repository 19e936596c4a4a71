//! The least that a durable tool turn costs in the processes of the product: a message over HTTP, model, tool `echo`,
//! model, done, with four commits that are each fenced and synced, and nothing told before it is committed.
//!
//! A floor to measure against, no product: it has no authentication, policy, budgets, tracing or recovery, and trusts
//! everybody. Per agent there is one row with its live turn, per commit one row of the log, per turn one of history.
//!
//! `floor init AGENTS`, then `floor api`, `floor worker` and `floor runner`, told of each other by `DATABASE_URL`,
//! `NATS_URL`, `MODEL_URL` and `LISTEN`; `floor listen STREAMS` only reads that many answers of the model.

mod api;
mod bus;
mod listen;
mod model;
mod runner;
mod step;
mod store;
mod worker;

use anyhow::{Context, Result, bail};

/// The product's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn setting(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set"))
}

async fn run(role: &str, number: Option<usize>) -> Result<()> {
    match role {
        "init" => store::init(number.context("how many agents?")?).await,
        "listen" => listen::run(number.context("how many streams?")?).await,
        "api" => api::serve().await,
        "worker" => worker::serve().await,
        "runner" => runner::serve().await,
        _ => bail!("{role} is none of init, api, worker, runner, listen"),
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().unwrap_or_default();
    let number = arguments.next().map(|text| text.parse()).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run(&role, number))
}
