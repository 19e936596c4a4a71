//! The process: its lease, its slots, the queue it is told from, and what it finds while nobody can tell it.

use crate::beside::Beside;
use crate::cancel::Flights;
use crate::mcp::{self, Publishing};
use crate::{call, rows, settings, workspace};
use anyhow::Context as _;
use instar_bus::message::WorkTool;
use instar_bus::{Deliveries, Pull};
use instar_core::id::WorkerId;
use instar_runtime::config::Config;
use instar_runtime::step::Tools;
use instar_runtime::telemetry::name::metric;
use instar_runtime::{CLASS, Context, Discovered, Hub, Keeper, LeaseState, Vault, account};
use instar_tools::Registry;
use instar_tools::mcp::Servers;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// A delivery that nobody decides on for this long goes to another runner.
const ACK_WAIT: Duration = Duration::from_secs(10);

/// One registration of this process. A lost lease ends it; the process then registers anew.
pub(crate) struct Runner {
    pub(crate) id: WorkerId,
    pub(crate) hub: Hub,
    pub(crate) config: Arc<Config>,
    pub(crate) tools: Arc<Registry>,
    pub(crate) discovered: Discovered,
    pub(crate) effects: Arc<instar_tools::Runner>,
    /// Opens accounts; none where no key is configured.
    pub(crate) vault: Option<Vault>,
    /// The same tools, as far as calls of steps depend on them.
    pub(crate) steps: Tools,
    pub(crate) servers: Arc<Servers>,
    pub(crate) flights: Flights,
    pub(crate) beside: Beside,
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
    publishing: Publishing,
}

/// What outlives a registration.
struct Means {
    tools: Arc<Registry>,
    effects: Arc<instar_tools::Runner>,
    servers: Arc<Servers>,
}

pub(crate) async fn start(context: Context, tools: Arc<Registry>) -> anyhow::Result<()> {
    account::declare(context.hub.store(), &context.config.accounts).await?;
    let servers = mcp::start(&context.config)?;
    let effects = instar_tools::Runner::new(settings::settings(&context.config)?).context("tools")?;
    let means = Means { tools, effects: Arc::new(effects.with_servers(servers.clone())), servers };
    let first = register(&context, &means).await?;
    workspace::clear(&context);
    let drain = context.drain.clone();
    drain.spawn(async move {
        let mut next = Some(first);
        while let Some(registered) = next.take() {
            serve(registered, &context).await;
            if context.drain.is_draining() {
                break;
            }
            tracing::warn!("the lease was lost; registering as a new runner");
            next = again(&context, &means).await;
        }
        means.servers.stop().await;
    });
    Ok(())
}

async fn register(context: &Context, means: &Means) -> anyhow::Result<Registered> {
    let (id, hub) = (WorkerId::from(uuid::Uuid::now_v7()), context.hub.clone().knowing(means.tools.clone()));
    let concurrency = context.config.runner.concurrency as usize;
    let pull = Pull { ack_wait: ACK_WAIT, prefetch: concurrency.clamp(1, 64), ..Pull::default() };
    let info = serde_json::json!({"pid": std::process::id()});
    let vault = Vault::load(&context.config.secrets, |name| std::env::var(name).ok())?;
    // First: without a lease nothing is opened that somebody would have to clear away.
    let keeper = Keeper::register(hub.store().clone(), id, "tool-runner", context.config.lease.ttl(), info).await?;
    // Before calls are taken: what it offers is known when it is ready.
    let settle = Duration::from_millis(context.config.runner.settle_ms);
    let publishing = Publishing::begin(&hub, id, &means.servers, settle).await;
    let queue = hub.bus().work_tool(CLASS, pull).await?;
    let flights = Flights::listen(hub.bus()).await?;
    let Means { tools, effects, servers } = means;
    let (tools, effects, servers) = (tools.clone(), effects.clone(), servers.clone());
    let (discovered, lost) = (Discovered::new(hub.store().clone(), tools.clone()), CancellationToken::new());
    tracing::info!(runner = %id, "takes calls");
    let config = context.config.clone();
    let known = tools.clone();
    let steps = Tools::new(move |name, arguments| known.chosen(name, arguments), config.worker.approval_timeout_ms);
    let beside = Beside::default();
    let runner =
        Arc::new(Runner { id, hub, config, tools, discovered, effects, vault, steps, servers, flights, beside, lost });
    Ok(Registered { runner, keeper, queue, publishing })
}

/// Registers anew, however long the database is away; `None` when the process ends first.
async fn again(context: &Context, means: &Means) -> Option<Registered> {
    let mut wait = Duration::from_millis(50);
    loop {
        match register(context, means).await {
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
    let Registered { runner, keeper, mut queue, publishing } = registered;
    let concurrency = context.config.runner.concurrency.max(1);
    let slots = Arc::new(Semaphore::new(concurrency as usize));
    metrics::gauge!(metric::SLOT_LIMIT).set(f64::from(concurrency));
    let (mut lease, lost) = (keeper.watch(), runner.lost.clone());
    let watch = tokio::spawn(async move {
        while lease.changed().await.is_ok() {
            if matches!(*lease.borrow(), LeaseState::Lost) {
                lost.cancel();
                return;
            }
        }
    });
    let (found, mut rows) = mpsc::channel(rows::FOUND_MAX);
    let _looks = AbortOnDropHandle::new(tokio::spawn(rows::look(runner.clone(), found)));
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
            Some(hint) = rows.recv() => runner.hub.bus().found(hint),
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
        publishing.end().await;
        if let Err(error) = keeper.release().await {
            tracing::warn!(%error, "the lease was not released; it will run out");
        }
    }
    watch.abort();
}
