//! Tool calls: `echo`, and its result committed.

use crate::bus::Bus;
use crate::step::{Kind, Step};
use crate::store::Writer;
use anyhow::Result;
use serde::Deserialize;

#[derive(Deserialize)]
struct Arguments {
    text: String,
}

async fn call(writer: Writer, step: Step) -> Result<()> {
    let arguments: Arguments = serde_json::from_str(&step.text)?;
    writer.commit(Step { kind: Kind::Result, text: arguments.text, ..step }).await
}

pub(crate) async fn serve() -> Result<()> {
    let bus = Bus::connect().await?;
    let writer = Writer::start(&bus).await?;
    bus.hear("runner", |step| {
        let writer = writer.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = call(writer, step).await {
                eprintln!("{error:?}");
            }
        });
    })
    .await
}
