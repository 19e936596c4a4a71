//! Notes how far the logs are published; what nobody spoke of is published again by a sweep.

use instar_runtime::{Context, Published};
use std::time::Duration;

const NOTE_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn start(context: &Context) -> anyhow::Result<()> {
    let mut published = Published::listen(&context.hub).await?;
    let drain = context.drain.clone();
    context.drain.spawn(async move {
        let mut tick = tokio::time::interval(NOTE_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = drain.draining() => return,
                _ = tick.tick() => {
                    if let Err(error) = published.note().await {
                        tracing::debug!(%error, "not noted; it is tried again");
                    }
                }
                () = published.hear() => {}
            }
        }
    });
    Ok(())
}
