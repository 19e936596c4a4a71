//! How much waits, told to whoever watches: the same numbers from every scheduler.

use crate::Desk;
use anyhow::Result;
use instar_runtime::telemetry::name::metric;

pub(crate) async fn tell(desk: Desk) -> Result<()> {
    let store = desk.hub.store();
    let backlog = store.backlog().await?;
    let now_us = store.now().await?.timestamp_micros();
    let lag_us = backlog.oldest_unpublished_us.map_or(0, |at| (now_us - at).max(0));
    metrics::gauge!(metric::TURN_QUEUED).set(backlog.turns_queued as f64);
    metrics::gauge!(metric::APPROVAL_PENDING).set(backlog.approvals_pending as f64);
    metrics::gauge!(metric::PUBLISH_PENDING).set(backlog.runes_unpublished as f64);
    metrics::gauge!(metric::PUBLISH_LAG).set(lag_us as f64 / 1e6);
    Ok(())
}
