//! The scheduler: time and order. Timers, what a hint did not reach, what a dead process left.
//!
//! It keeps nothing: every instance finds the same work by its state, and whoever commits first has
//! done it. Any number may run side by side.

mod archive;
mod backlog;
mod birth;
mod clock;
mod family;
mod lost;
mod mission;
mod nudge;
mod plan;
mod publish;
mod relaunch;
mod repeat;
mod session;
mod span;
mod step;
mod sweep;
mod timer;
mod unheeded;

use instar_core::machine::By;
use instar_core::rune::Actor;
use instar_runtime::config::Config;
use instar_runtime::{ActError, Context, Hub};
use instar_store::StoreError;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How many rows one look takes up at once.
pub(crate) const BATCH: u64 = 500;

/// Where the page after this one begins; `None` after the last.
pub(crate) fn next<T, A>(page: &[T], after: impl FnOnce(&T) -> A) -> Option<A> {
    page.last().filter(|_| page.len() as u64 >= BATCH).map(after)
}

/// Whether a look goes on after one of the many that it takes up. One that cannot be helped must not keep the others
/// from it; where the database does not answer, nobody can be helped.
pub(crate) fn go_on(what: impl Display, done: anyhow::Result<()>) -> anyhow::Result<()> {
    match done {
        Err(error) if !is_outage(&error) => {
            tracing::error!(%what, %error, "it cannot be helped now; it is tried again");
            Ok(())
        }
        done => done,
    }
}

fn is_outage(error: &anyhow::Error) -> bool {
    let store = match error.downcast_ref::<ActError>() {
        Some(ActError::Store(error)) => Some(error),
        Some(_) => None,
        None => error.downcast_ref::<StoreError>(),
    };
    store.is_some_and(StoreError::retryable)
}

/// What every look is given.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) hub: Hub,
    pub(crate) config: Arc<Config>,
    pub(crate) actor: Actor,
    pub(crate) repeats: repeat::Repeats,
    pub(crate) asked: unheeded::Asked,
}

/// Starts a scheduler; it ends with the context's drain.
pub async fn start(context: Context) -> anyhow::Result<()> {
    let actor = Actor::new(By::System, format!("scheduler-{}", uuid::Uuid::now_v7().simple()));
    let (hub, config) = (context.hub.clone(), context.config.clone());
    let desk = Desk { hub, config, actor, repeats: repeat::Repeats::default(), asked: unheeded::Asked::default() };
    // A third of what a lease lasts would find the dead late; a sixth costs little.
    let often = (context.config.lease.ttl() / 6).clamp(Duration::from_millis(100), Duration::from_secs(2));
    publish::start(&context).await?;
    every(&context, "timers", Duration::from_millis(200), desk.clone(), timer::fire);
    every(&context, "owners", often, desk.clone(), lost::turns);
    every(&context, "runners", often, desk.clone(), lost::calls);
    every(&context, "idle", Duration::from_millis(1_000), desk.clone(), sweep::idle);
    every(&context, "loops", Duration::from_secs(2), desk.clone(), nudge::sweep);
    every(&context, "plans", Duration::from_millis(500), desk.clone(), plan::sweep);
    every(&context, "family", Duration::from_secs(1), desk.clone(), family::look);
    every(&context, "accounts", Duration::from_secs(1), desk.clone(), sweep::accounts);
    every(&context, "steps", Duration::from_millis(1_000), desk.clone(), step::look);
    every(&context, "expiry", Duration::from_millis(1_000), desk.clone(), step::expire);
    every(&context, "missions", Duration::from_millis(500), desk.clone(), mission::advance);
    every(&context, "gates", Duration::from_secs(1), desk.clone(), mission::remind);
    every(&context, "unheeded", Duration::from_millis(500), desk.clone(), unheeded::look);
    every(&context, "overdue", Duration::from_secs(5), desk.clone(), sweep::overdue);
    every(&context, "publish", Duration::from_secs(1), desk.clone(), sweep::publish);
    every(&context, "errors", Duration::from_secs(1), desk.clone(), session::suspend);
    every(&context, "sessions", Duration::from_secs(1), desk.clone(), session::close);
    every(&context, "seals", Duration::from_secs(10), desk.clone(), session::seal);
    every(&context, "archives", Duration::from_secs(2), desk.clone(), archive::prune);
    every(&context, "age", Duration::from_secs(10), desk.clone(), archive::age);
    every(&context, "backlog", Duration::from_secs(5), desk.clone(), backlog::tell);
    every(&context, "house", Duration::from_secs(30), desk.clone(), sweep::house);
    every(&context, "answers", Duration::from_secs(900), desk, sweep::answers);
    Ok(())
}

/// Runs a look again and again until the drain begins; one that fails is tried again like any other.
fn every<F>(context: &Context, what: &'static str, pause: Duration, desk: Desk, look: fn(Desk) -> F)
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let drain = context.drain.clone();
    context.drain.spawn(async move {
        let mut tick = tokio::time::interval(pause);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            tokio::select! {
                biased;
                () = drain.draining() => return,
                _ = tick.tick() => {}
            }
            let looked = look(desk.clone()).await;
            match &looked {
                Err(error) if !failing => tracing::warn!(what, %error, "the look failed; it is tried again"),
                Ok(()) if failing => tracing::info!(what, "the look works again"),
                _ => {}
            }
            failing = looked.is_err();
        }
    });
}
