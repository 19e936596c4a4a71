//! Servers, each kept alive by a task of its own: connected, watched, connected again when it fails.
//!
//! A server that fails is tried again after a while that doubles; one that fails over and over rests longer,
//! and calls of its tools are then answered at once instead of waiting for it.

use super::confided::Confided;
use super::config::ServerConfig;
use super::connect::{Ended, Link, Means, connect};
use super::definition::{self, Offered};
use super::reply;
use super::session::Session;
use crate::inject::Charged;
use crate::outcome::{Failure, Outcome, Sink, code};
use crate::runner::{Flight, Invocation, Settings};
use crate::sandbox::Kernel;
use instar_core::rune::payload::ResultStatus;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const REST_MIN: Duration = Duration::from_millis(200);
const REST_MAX: Duration = Duration::from_secs(60);
/// So many failures in a row, and nobody waits for it any more.
const FAILURES_OPEN: u32 = 4;
/// A connection that held this long was a good one.
const STEADY: Duration = Duration::from_secs(20);
/// A server that lets so many calls in a row run out of time hangs.
const TIMEOUTS_MAX: u32 = 3;
/// Attempts of one call where the connection broke and the tool may be asked twice.
const TRIES_MAX: u32 = 3;
/// How long a server may take to say that it will tell of changes; else it is asked.
const SUBSCRIBE_MAX: Duration = Duration::from_secs(5);
/// How long a call waits for a server that is on its way.
const CALL_WAIT: Duration = Duration::from_secs(15);

/// How a server stands with this process.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// On its way, for the first time or after it ended. Calls wait for it.
    Starting {
        reason: Option<String>,
    },
    Ready {
        protocol: String,
        about: Option<String>,
        offered: Arc<Vec<Offered>>,
    },
    Failing {
        reason: String,
    },
    /// Switched off, or its process ends.
    Stopped,
}

struct Server {
    config: Arc<ServerConfig>,
    standing: watch::Sender<Standing>,
    session: watch::Sender<Option<Arc<Session>>>,
    slots: Semaphore,
    timeouts: AtomicU32,
    confided: Arc<Confided>,
}

/// The servers of this process. Dropping it kills them; [`Servers::stop`] is the polite way.
pub struct Servers {
    servers: BTreeMap<String, Arc<Server>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Servers {
    /// Starts them all, side by side, and comes back at once.
    pub fn start(configs: Vec<ServerConfig>, settings: &Settings) -> Servers {
        let means = Arc::new(Means { settings: settings.clone(), kernel: Kernel::probe() });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let mut servers = BTreeMap::new();
        for config in configs {
            let begin = if config.enabled { Standing::Starting { reason: None } } else { Standing::Stopped };
            let server = Arc::new(Server {
                slots: Semaphore::new(config.concurrency),
                standing: watch::Sender::new(begin),
                session: watch::Sender::new(None),
                timeouts: AtomicU32::new(0),
                confided: Arc::new(Confided::new()),
                config: Arc::new(config),
            });
            if server.config.enabled {
                tasks.spawn(server.clone().keep(means.clone(), stop.clone()));
            }
            servers.insert(server.config.name.clone(), server);
        }
        tasks.close();
        Servers { servers, stop, tasks }
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Every server with how it stands, now and from now on.
    pub fn watch(&self) -> Vec<(Arc<ServerConfig>, watch::Receiver<Standing>)> {
        self.servers.values().map(|server| (server.config.clone(), server.standing.subscribe())).collect()
    }

    /// Ends them all with everything that they started.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }

    /// To exactly one outcome. `end`: when the caller gives up.
    pub(crate) async fn call(
        &self,
        call: &Invocation,
        charged: &Charged,
        sink: &Sink,
        flight: &Flight,
        end: Instant,
    ) -> Outcome {
        let unavailable =
            |words: String| Outcome::failed(ResultStatus::Error, Failure::passing(code::MCP_UNAVAILABLE, words));
        let spec = call.tool.spec();
        let Some(remote) = &spec.mcp else { return unavailable(format!("{} has no server", spec.name)) };
        let Some(server) = self.servers.get(&remote.server) else {
            return unavailable(format!("this runner has no MCP server {}", remote.server));
        };
        let Ok(_slot) = server.slots.acquire().await else { return unavailable("the server is closed".to_owned()) };
        let (mut tries, effect) = (0, spec.effect());
        loop {
            tries += 1;
            let session = match server.session().await {
                Ok(session) => session,
                Err(why) => return unavailable(why),
            };
            if let Err(failure) = as_accepted(&session, &remote.tool, &remote.hash) {
                return Outcome::failed(ResultStatus::Error, failure);
            }
            if let Err(much) = session.confided.add(&charged.redactor) {
                return unavailable(much.to_string());
            }
            let mut patience = Patience { server, session: &session, end, over: false };
            let answer = session.call(call, &remote.tool, &charged.arguments, sink, flight).await;
            patience.over = true;
            let lost = match answer {
                Ok(reply) => {
                    server.timeouts.store(0, Ordering::Relaxed);
                    return reply::outcome(reply, effect, spec.max_output_bytes, &session.confided.now());
                }
                Err(lost) => lost,
            };
            if lost.broken {
                server.give_up(&session);
            }
            if tries >= TRIES_MAX || !lost.may_repeat(effect) {
                let mut outcome = lost.outcome(effect);
                if let Some(error) = &mut outcome.error {
                    session.confided.now().text(&mut error.message);
                }
                return outcome;
            }
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The server must still say of the tool what was accepted.
fn as_accepted(session: &Session, tool: &str, accepted: &str) -> Result<(), Failure> {
    match session.hash_of(tool) {
        Some(hash) if hash == accepted => Ok(()),
        Some(_) => {
            let words = "the server's definition of the tool is not the accepted one; it was not run";
            Err(Failure::new(code::TOOL_DEFINITION_CHANGED, words))
        }
        None => Err(Failure::passing(code::MCP_UNAVAILABLE, "the server does not offer the tool now")),
    }
}

/// Counts calls that ran out of time while the server had them.
struct Patience<'a> {
    server: &'a Server,
    session: &'a Arc<Session>,
    end: Instant,
    over: bool,
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if self.over || Instant::now() < self.end {
            return;
        }
        if self.server.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS_MAX {
            self.server.timeouts.store(0, Ordering::Relaxed);
            tracing::warn!(server = self.server.config.name, "an MCP server answers no call in time; it starts anew");
            self.server.give_up(self.session);
        }
    }
}

impl Server {
    /// The connection, waited for if it is on its way.
    async fn session(&self) -> Result<Arc<Session>, String> {
        let (mut sessions, mut standings) = (self.session.subscribe(), self.standing.subscribe());
        let there = async {
            loop {
                if let Some(session) = sessions.borrow_and_update().clone() {
                    return Ok(session);
                }
                match &*standings.borrow_and_update() {
                    Standing::Failing { reason } => return Err(format!("{}: {reason}", self.config.name)),
                    Standing::Stopped => return Err(format!("{} is switched off", self.config.name)),
                    Standing::Starting { .. } | Standing::Ready { .. } => {}
                }
                tokio::select! {
                    Ok(()) = sessions.changed() => {}
                    Ok(()) = standings.changed() => {}
                    else => return Err(format!("{} has ended", self.config.name)),
                }
            }
        };
        let late = |_| Err(format!("{} is not ready yet", self.config.name));
        tokio::time::timeout(CALL_WAIT, there).await.unwrap_or_else(late)
    }

    /// Nobody is to use this connection any more, and another is to be made.
    fn give_up(&self, old: &Arc<Session>) {
        self.session.send_if_modified(|now| {
            let ours = now.as_ref().is_some_and(|now| Arc::ptr_eq(now, old));
            if ours {
                *now = None;
            }
            ours
        });
        old.given_up.cancel();
    }

    async fn keep(self: Arc<Self>, means: Arc<Means>, stop: CancellationToken) {
        let (name, mut failures) = (self.config.name.clone(), 0);
        loop {
            let (lived, reason) = self.live(&means, &stop).await;
            self.session.send_replace(None);
            if stop.is_cancelled() {
                self.standing.send_replace(Standing::Stopped);
                return;
            }
            failures = if lived >= STEADY { 1 } else { failures + 1 };
            tracing::warn!(server = name, reason, failures, "an MCP server is not there; trying again");
            // A server that was fine a moment ago is back in another; its tools need not come and go.
            let passing = failures < FAILURES_OPEN && lived > Duration::ZERO;
            self.standing.send_replace(match passing {
                true => Standing::Starting { reason: Some(reason) },
                false => Standing::Failing { reason },
            });
            let rest = match failures {
                1 => REST_MIN,
                n if n >= FAILURES_OPEN => REST_MAX,
                n => REST_MIN * 4u32.pow(n - 1),
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// One connection from its begin to its end: for how long it was ready, and why it ended.
    async fn live(&self, means: &Arc<Means>, stop: &CancellationToken) -> (Duration, String) {
        let begun = Instant::now();
        match connect(&self.config, means, &self.confided, stop).await {
            Ok(link) => self.serve(link, begun + self.config.start_timeout(), stop).await,
            Err(reason) => (Duration::ZERO, reason),
        }
    }

    async fn serve(&self, link: Link, by: Instant, stop: &CancellationToken) -> (Duration, String) {
        let session = link.session.clone();
        let (closing, ended) = link.open();
        let first = tokio::select! {
            reason = ended.clone() => Err(reason),
            listed = tokio::time::timeout_at(by, self.list(&session)) => {
                listed.unwrap_or_else(|_| Err("it does not say in time what it offers".to_owned()))
            }
            () = stop.cancelled() => Err("it was closed".to_owned()),
        };
        let ready = Instant::now();
        let (lived, mut reason) = match first {
            Err(reason) => (Duration::ZERO, reason),
            Ok(offered) => {
                self.announce(&session, offered);
                self.session.send_replace(Some(session.clone()));
                let reason = self.attend(&session, &ended, stop).await;
                (ready.elapsed(), reason)
            }
        };
        self.session.send_replace(None);
        if let Some(how) = closing.close().await.filter(|_| !stop.is_cancelled()) {
            reason = format!("{reason}; {how}");
        }
        session.confided.now().text(&mut reason);
        (lived, reason)
    }

    /// While it is connected: hears of changes, and asks for them from time to time.
    async fn attend(&self, session: &Session, ended: &Ended, stop: &CancellationToken) -> String {
        let every = Duration::from_millis(self.config.refresh_ms);
        let mut subscription = tokio::select! {
            reason = ended.clone() => return reason,
            () = stop.cancelled() => return "it was closed".to_owned(),
            made = tokio::time::timeout(SUBSCRIBE_MAX, session.subscribe()) => made.ok().flatten(),
        };
        loop {
            let told = async {
                match &mut subscription {
                    Some(subscription) => matches!(subscription.next().await, Ok(Some(_))),
                    None => std::future::pending().await,
                }
            };
            let listen = tokio::select! {
                reason = ended.clone() => return reason,
                () = stop.cancelled() => return "it was closed".to_owned(),
                () = session.given_up.cancelled() => return "its connection broke or it hangs".to_owned(),
                () = session.ears.changed.notified() => true,
                told = told => told,
                () = tokio::time::sleep(every) => true,
            };
            if !listen {
                subscription = None;
            }
            let listed = tokio::select! {
                reason = ended.clone() => return reason,
                () = stop.cancelled() => return "it was closed".to_owned(),
                listed = tokio::time::timeout(self.config.start_timeout(), self.list(session)) => listed,
            };
            match listed {
                Ok(Ok(offered)) => self.announce(session, offered),
                Ok(Err(reason)) => return reason,
                Err(_) => return "it does not say in time what it offers".to_owned(),
            }
        }
    }

    async fn list(&self, session: &Session) -> Result<Vec<Offered>, String> {
        // Of a long list only some may be wanted, but nobody reads one without end.
        let most = self.config.tools_max.saturating_mul(4);
        let mut definitions = session.list(most).await?;
        definitions.retain(|definition| self.config.wants(&definition.name));
        if definitions.len() > self.config.tools_max {
            let (found, most) = (definitions.len(), self.config.tools_max);
            return Err(format!("mcp_limit_exceeded: it offers {found} tools; see tools_max ({most}) and allow"));
        }
        Ok(definition::offered(&self.config, &definitions, &session.confided.now()))
    }

    fn announce(&self, session: &Session, offered: Vec<Offered>) {
        let hashes = offered.iter().filter(|offer| offer.refused.is_none());
        session.set_offers(hashes.map(|offer| (offer.remote().to_owned(), offer.hash.clone())).collect());
        let (protocol, about, offered) = (session.protocol(), session.about(), Arc::new(offered));
        let now = Standing::Ready { protocol, about, offered };
        self.standing.send_if_modified(|standing| {
            let news = *standing != now;
            if news {
                *standing = now;
            }
            news
        });
    }
}
