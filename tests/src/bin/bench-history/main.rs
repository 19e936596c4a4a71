//! What a first token costs over calling the model, and what a long history costs: four services as processes of their
//! own on a real Postgres and NATS, the model a mock at zero latency. `INSTAR_BIN` is the command to measure.

mod history;

// The allocator of the command.
use instar as _;

use anyhow::Result;
use instar_store::{Options, Store};
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_tests::fleet::{self, Fleet, Setup, tool_turn};
use instar_tests::mock::Mock;
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<()> {
    let binary = std::env::var_os("INSTAR_BIN").map(PathBuf::from).map_or_else(|| fleet::binary("instar"), Ok)?;
    let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
    let database = postgres.create_database().await?;
    let mock = Mock::start().await?;
    // One thread each: four services, the database, the broker and the load share few cores.
    let environment = vec![("TOKIO_WORKER_THREADS", "1".to_owned())];
    // A load on few agents: their summaries would be measured with it.
    let config = "[worker]\nhistory_summaries = false\n".to_owned();
    let own = Setup::new(binary, &database, nats.url(), tool_turn());
    let fleet = Fleet::start(Setup { config, model_url: Some(mock.url().to_owned()), environment, ..own }).await?;
    let store = Store::open(Options::new(&database)).await?;
    let (_, agents) = fleet.agents(1, &["echo"]).await?;
    history::first_token(&fleet, mock.url(), &agents[0]).await?;
    history::cost(&fleet, &store).await
}
