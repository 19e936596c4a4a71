//! The process: its lease, its slots, and the queue it is told from.

use crate::cancel::Flights;
use crate::{call, settings};
use anyhow::Context as _;
use instar_bus::message::WorkTool;
use instar_bus::{Deliveries, Pull};
use instar_core::id::WorkerId;
use instar_runtime::{CLASS, Context, Hub, Keeper, LeaseState};
use instar_tools::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// A delivery that nobody decides on for this long goes to another runner.
const ACK_WAIT: Duration = Duration::from_secs(10);

/// One registration of this process. A lost lease ends it; the process then registers anew.
pub(crate) struct Runner {
    pub(crate) id: WorkerId,
    pub(crate) hub: Hub,
    pub(crate) tools: Arc<Registry>,
    pub(crate) effects: Arc<instar_tools::Runner>,
    pub(crate) flights: Flights,
    /// The lease is gone: results of what is in flight are no longer ours to write.
    pub(crate) lost: CancellationToken,
}

impl Runner {
    pub(crate) fn parallel(&self, name: &str) -> bool {
        self.tools.get(name).is_some_and(|tool| tool.spec().parallel_safe())
    }
}

struct Registered {
    runner: Arc<Runner>,
    keeper: Keeper,
    queue: Deliveries<WorkTool>,
}

pub(crate) async fn start(context: Context, tools: Arc<Registry>) -> anyhow::Result<()> {
    let effects = Arc::new(instar_tools::Runner::new(settings::settings(&context.config)?).context("tools")?);
    let first = register(&context, &tools, &effects).await?;
    let drain = context.drain.clone();
    drain.spawn(async move {
        let mut next = Some(first);
        while let Some(registered) = next.take() {
            serve(registered, &context).await;
            if context.drain.is_draining() {
                return;
            }
            tracing::warn!("the lease was lost; registering as a new runner");
            next = again(&context, &tools, &effects).await;
        }
    });
    Ok(())
}

async fn register(
    context: &Context,
    tools: &Arc<Registry>,
    effects: &Arc<instar_tools::Runner>,
) -> anyhow::Result<Registered> {
    let (id, hub) = (WorkerId::from(uuid::Uuid::now_v7()), context.hub.clone());
    let concurrency = context.config.runner.concurrency as usize;
    let pull = Pull { ack_wait: ACK_WAIT, prefetch: concurrency.clamp(1, 64), ..Pull::default() };
    let info = serde_json::json!({"pid": std::process::id()});
    // First: without a lease nothing is opened that somebody would have to clear away.
    let keeper = Keeper::register(hub.store().clone(), id, "tool-runner", context.config.lease.ttl(), info).await?;
    let queue = hub.bus().work_tool(CLASS, pull).await?;
    let flights = Flights::listen(hub.bus()).await?;
    let (tools, effects, lost) = (tools.clone(), effects.clone(), CancellationToken::new());
    tracing::info!(runner = %id, "takes calls");
    Ok(Registered { runner: Arc::new(Runner { id, hub, tools, effects, flights, lost }), keeper, queue })
}

/// Registers anew, however long the database is away; `None` when the process ends first.
async fn again(context: &Context, tools: &Arc<Registry>, effects: &Arc<instar_tools::Runner>) -> Option<Registered> {
    let mut wait = Duration::from_millis(50);
    loop {
        match register(context, tools, effects).await {
            Ok(registered) => return Some(registered),
            Err(error) => tracing::warn!(%error, "could not register; trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(2)),
            () = context.drain.draining() => return None,
        }
    }
}

async fn serve(registered: Registered, context: &Context) {
    let Registered { runner, keeper, mut queue } = registered;
    let concurrency = context.config.runner.concurrency.max(1);
    let slots = Arc::new(Semaphore::new(concurrency as usize));
    let (mut lease, lost) = (keeper.watch(), runner.lost.clone());
    let watch = tokio::spawn(async move {
        while lease.changed().await.is_ok() {
            if matches!(*lease.borrow(), LeaseState::Lost) {
                lost.cancel();
                return;
            }
        }
    });
    loop {
        let permit = tokio::select! {
            biased;
            () = context.drain.draining() => break,
            () = runner.lost.cancelled() => break,
            permit = slots.clone().acquire_owned() => permit,
        };
        let Ok(permit) = permit else { break };
        let delivery = tokio::select! {
            biased;
            () = context.drain.draining() => break,
            () = runner.lost.cancelled() => break,
            delivery = queue.next() => delivery,
        };
        let runner = runner.clone();
        context.drain.spawn(async move {
            call::handle(&runner, delivery).await;
            drop(permit);
        });
    }
    drop(queue);
    if !runner.lost.is_cancelled() {
        // Effects that are under way may finish; only then is the lease given up.
        let _ = tokio::time::timeout(context.config.drain.grace().mul_f32(0.9), slots.acquire_many(concurrency)).await;
        if let Err(error) = keeper.release().await {
            tracing::warn!(%error, "the lease was not released; it will run out");
        }
    }
    watch.abort();
}
