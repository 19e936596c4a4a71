//! The Postgres and the NATS that everything started by a chore shares.
//!
//! It must not know how they are found or run: that is the test kit's.

use anyhow::{Context, Result};
use instar_testkit::{Nats, Postgres, nats, postgres};

pub(crate) struct Servers {
    postgres: Postgres,
    nats: Nats,
}

impl Servers {
    pub(crate) async fn start(durable: bool) -> Result<Self> {
        let postgres = async { if durable { Postgres::start().await } else { Postgres::start_fast().await } };
        let (postgres, nats) = tokio::join!(postgres, Nats::start());
        Ok(Self {
            postgres: postgres.context("the Postgres for this run did not start")?,
            nats: nats.context("the NATS for this run did not start")?,
        })
    }

    /// What tells the test kit, in the processes that follow, to use these.
    pub(crate) fn env(&self) -> [(&'static str, String); 2] {
        [(postgres::URL_VARIABLE, self.postgres.url().to_owned()), (nats::URL_VARIABLE, self.nats.url().to_owned())]
    }
}
