//! NATS as a hint: after a group commit one message for each who goes on, and one with the log.

use crate::setting;
use crate::step::Step;
use anyhow::{Context, Result};
use async_nats::Client;
use futures::StreamExt;
use std::collections::BTreeMap;

const LOG: &str = "floor.log";

#[derive(Clone)]
pub(crate) struct Bus(Client);

impl Bus {
    pub(crate) async fn connect() -> Result<Bus> {
        Ok(Bus(async_nats::connect(setting("NATS_URL")?).await.context("NATS")?))
    }

    pub(crate) async fn tell(&self, steps: &[Step], log: Vec<u8>) -> Result<()> {
        let mut told: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for step in steps {
            let lines = told.entry(step.kind.receiver()).or_default();
            serde_json::to_writer(&mut *lines, step)?;
            lines.push(b'\n');
        }
        for (receiver, lines) in told {
            self.0.publish(format!("floor.{receiver}"), lines.into()).await?;
        }
        self.0.publish(LOG, log.into()).await?;
        Ok(())
    }

    /// Hands on what is told to `receiver`; whoever streams events hears the log as well.
    pub(crate) async fn hear(&self, receiver: &str, mut each: impl FnMut(Step)) -> Result<()> {
        let mut told = self.0.subscribe(format!("floor.{receiver}")).await?;
        let mut log = self.0.subscribe(if receiver == "api" { LOG } else { "floor.none" }).await?;
        self.0.flush().await?;
        println!("ready");
        loop {
            tokio::select! {
                message = told.next() => {
                    let message = message.context("NATS is gone")?;
                    for line in message.payload.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                        each(serde_json::from_slice(line)?);
                    }
                }
                Some(_) = log.next() => {}
            }
        }
    }
}
