//! The process: its lease, its slots, the two queues it is told from, and what it finds while nobody can tell it.

use crate::control::Flights;
use crate::purse::Waiting;
use crate::warm::Warm;
use crate::{rows, take};
use instar_bus::message::WorkTurn;
use instar_bus::{Deliveries, Delivery, Pull};
use instar_core::id::{AgentId, TurnId, WorkerId};
use instar_model::Models;
use instar_runtime::config::{AgentsConfig, WorkerConfig};
use instar_runtime::telemetry::name::metric;
use instar_runtime::{Context, Discovered, Hub, Keeper, LANE, LeaseState, Ready};
use instar_tools::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// A delivery that nobody decides on for this long goes to another worker.
const ACK_WAIT: Duration = Duration::from_secs(10);
/// See [`Worker::shows_every`].
const SHOWS_EVERY_MAX: Duration = Duration::from_secs(60);
/// How long a worker looks for what its own queue still holds when it drains.
const LEFTOVER_WAIT: Duration = Duration::from_millis(30);

/// One registration of this process. A lost lease ends it; the process then registers anew.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) hub: Hub,
    pub(crate) models: Arc<Models>,
    pub(crate) tools: Arc<Registry>,
    /// Keeps the tools of MCP servers among them up to date.
    pub(crate) discovered: Discovered,
    pub(crate) config: WorkerConfig,
    /// How long an autonomous agent rests between two turns.
    pub(crate) nudge_pause: chrono::Duration,
    /// How often the row of a turn shows that its provider is at work, well before a watchdog takes it for stuck.
    pub(crate) shows_every: Duration,
    pub(crate) agents: AgentsConfig,
    pub(crate) flights: Flights,
    pub(crate) warm: Arc<Warm>,
    /// Turns that found no room in a budget.
    pub(crate) budgets: Waiting,
    /// The lease is gone: nothing that is in flight may go on.
    pub(crate) lost: CancellationToken,
    /// The process ends: what streams is handed back.
    pub(crate) draining: CancellationToken,
}

pub(crate) async fn start(context: Context, models: Arc<Models>, tools: Arc<Registry>) -> anyhow::Result<()> {
    let (first, queues) = register(&context, &models, &tools).await?;
    let drain = context.drain.clone();
    drain.spawn(async move {
        let mut next = Some((first, queues));
        while let Some((registered, queues)) = next.take() {
            serve(registered, queues, &context).await;
            if context.drain.is_draining() {
                return;
            }
            tracing::warn!("the lease was lost; registering as a new worker");
            next = again(&context, &models, &tools).await;
        }
    });
    Ok(())
}

struct Registered {
    worker: Arc<Worker>,
    keeper: Keeper,
}

struct Queues {
    shared: Deliveries<WorkTurn>,
    own: Deliveries<WorkTurn>,
}

async fn register(
    context: &Context,
    models: &Arc<Models>,
    tools: &Arc<Registry>,
) -> anyhow::Result<(Registered, Queues)> {
    let (id, hub) = (WorkerId::from(uuid::Uuid::now_v7()), context.hub.clone());
    let info = serde_json::json!({"pid": std::process::id()});
    let concurrency = context.config.worker.concurrency as usize;
    let pull = Pull { ack_wait: ACK_WAIT, prefetch: concurrency.clamp(1, 64), ..Pull::default() };
    // First: without a lease nothing is opened that somebody would have to clear away.
    let keeper = Keeper::register(hub.store().clone(), id, "agent-worker", context.config.lease.ttl(), info).await?;
    let shared = hub.bus().work_turn(LANE, pull.clone()).await?;
    let own = hub.bus().owner_turn(&id.to_string(), pull).await?;
    let warm = Arc::new(Warm::default());
    let flights = Flights::listen(hub.bus(), warm.clone()).await?;
    flights.watch(hub.clone());
    let discovered = Discovered::new(hub.store().clone(), tools.clone());
    let worker = Arc::new(Worker {
        id,
        hub,
        discovered,
        models: models.clone(),
        tools: tools.clone(),
        config: context.config.worker.clone(),
        nudge_pause: chrono::Duration::milliseconds(context.config.scheduler.nudge_pause_ms as i64),
        shows_every: Duration::from_millis(context.config.scheduler.watchdog_ms / 5).min(SHOWS_EVERY_MAX),
        agents: context.config.agents.clone(),
        flights,
        warm,
        budgets: Waiting::default(),
        lost: CancellationToken::new(),
        draining: context.drain.token(),
    });
    tracing::info!(worker = %id, "takes turns");
    Ok((Registered { worker, keeper }, Queues { shared, own }))
}

/// Registers anew, however long the database is away; `None` when the process ends first.
async fn again(context: &Context, models: &Arc<Models>, tools: &Arc<Registry>) -> Option<(Registered, Queues)> {
    let mut wait = Duration::from_millis(50);
    loop {
        match register(context, models, tools).await {
            Ok(registered) => return Some(registered),
            Err(error) => tracing::warn!(%error, "could not register; trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(2)),
            () = context.drain.draining() => return None,
        }
    }
}

async fn serve(registered: Registered, mut queues: Queues, context: &Context) {
    let Registered { worker, keeper } = registered;
    let slots = Arc::new(Semaphore::new(worker.config.concurrency.max(1) as usize));
    metrics::gauge!(metric::SLOT_LIMIT).set(f64::from(worker.config.concurrency.max(1)));
    let mut lease = keeper.watch();
    let lost = worker.lost.clone();
    let watch = tokio::spawn(async move {
        while lease.changed().await.is_ok() {
            if matches!(*lease.borrow(), LeaseState::Lost) {
                lost.cancel();
                return;
            }
        }
    });
    let (found, mut rows) = mpsc::channel(rows::FOUND_MAX);
    let _looks = AbortOnDropHandle::new(tokio::spawn(rows::look(worker.clone(), slots.clone(), found)));
    loop {
        let permit = tokio::select! {
            biased;
            () = worker.draining.cancelled() => break,
            () = worker.lost.cancelled() => break,
            permit = slots.clone().acquire_owned() => permit,
        };
        let Ok(permit) = permit else { break };
        let delivery = tokio::select! {
            biased;
            () = worker.draining.cancelled() => break,
            () = worker.lost.cancelled() => break,
            delivery = queues.own.next() => delivery,
            delivery = queues.shared.next() => delivery,
            Some(hint) = rows.recv() => worker.hub.bus().found(hint),
        };
        let worker = worker.clone();
        context.drain.spawn(async move {
            handle(worker, delivery).await;
            drop(permit);
        });
    }
    drop(queues.shared);
    if worker.lost.is_cancelled() {
        watch.abort();
        return;
    }
    pass_on(&worker, &mut queues.own).await;
    // Every turn in flight sees the drain and hands itself back; only then is the lease given up.
    let all = worker.config.concurrency.max(1);
    let _ = tokio::time::timeout(context.config.drain.grace().mul_f32(0.9), slots.acquire_many(all)).await;
    watch.abort();
    if let Err(error) = keeper.release().await {
        tracing::warn!(%error, "the lease was not released; it will run out");
    }
}

/// What was meant for this worker goes to the others.
async fn pass_on(worker: &Worker, own: &mut Deliveries<WorkTurn>) {
    while let Ok(delivery) = tokio::time::timeout(LEFTOVER_WAIT, own.next()).await {
        let hint = delivery.value();
        if let (Ok(session), Ok(agent), Ok(turn)) =
            (hint.session_id.parse(), hint.agent_id.parse(), hint.turn_id.parse())
        {
            let ready = Ready { session, agent, turn, epoch: hint.epoch, reason: "passed_on", news: None };
            worker.hub.wake_turn(ready, None, delivery.traceparent());
        }
        drop(delivery.ack().await);
    }
}

async fn handle(worker: Arc<Worker>, delivery: Delivery<WorkTurn>) {
    if delivery.deliveries() > 1 {
        metrics::counter!(metric::REDELIVERIES).increment(1);
    }
    let hint = delivery.value();
    let id = match (hint.turn_id.parse::<TurnId>(), hint.agent_id.parse::<AgentId>()) {
        (Ok(id), Ok(_)) => id,
        (Err(error), _) => return drop(delivery.dead_letter(&format!("turn_id: {error}")).await),
        (_, Err(error)) => return drop(delivery.dead_letter(&format!("agent_id: {error}")).await),
    };
    match take::take_up(&worker, id, delivery).await {
        Ok(Some(held)) => crate::turn::run(&worker, held).await,
        Ok(None) => {}
        Err(error) => {
            metrics::counter!("instar_turn_take_failures_total").increment(1);
            tracing::warn!(turn = %id, %error, "could not take the turn up; it comes again");
        }
    }
}
