//! The kill matrix: a fault under load, the recovery, and what must be true afterwards.

use crate::audit;
use crate::fleet::{Fleet, Killed, Node, Setup};
use crate::load::Load;
use crate::play::{self, Play, Run};
use anyhow::{Context, Result, bail, ensure};
use instar_client::Mode;
use instar_core::id::SessionId;
use instar_store::{Options, Store};
use instar_testkit::nats::Nats;
use instar_testkit::postgres::Postgres;
use instar_testkit::proxy::{Direction, Proxy};
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const TOOLS: [&str; 3] = ["charge", "put", "echo"];
/// Turns that must have ended before a fault counts as one under load.
const WARM: u64 = 24;
const AGENTS: usize = 8;
/// Rounds of a play before and after a fault.
const ROUNDS: u64 = 4;
/// A crash point that is not reached under load within this is void.
const HIT_WITHIN: Duration = Duration::from_secs(20);
pub(crate) const RECOVERY_WITHIN: Duration = Duration::from_secs(60);
/// Of the calls that runners die over a third may not be made again.
const ORPHANS_MAX: usize = 8;
/// A lease of 3 s, and some looks of the scheduler.
const ORPHANED_WITHIN: Duration = Duration::from_secs(6);
/// Leases of 3 s, a look of the scheduler, and the time in which two workers come up.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(10);
/// Between a decision and its being known to all.
const COMMITS: [&str; 4] =
    ["store.commit.before", "store.commit.after", "runtime.publish.before", "runtime.publish.after"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The service kills itself at the nth pass of a crash point.
    Crash {
        service: &'static str,
        point: &'static str,
        nth: u32,
    },
    Kill {
        service: &'static str,
    },
    /// Frozen past its lease, then woken.
    Freeze {
        service: &'static str,
    },
    Terminate {
        service: &'static str,
    },
    /// The scheduler kills itself over what a runner left that died in the midst of an effect.
    Orphaned {
        point: &'static str,
    },
    /// Every worker is killed while a provider of one of them has been silent for so long: a turn of which nothing was
    /// written for a while is taken over like any other.
    Hushed {
        seconds: u64,
    },
    NatsKilled,
    NatsWiped,
    PostgresKilled,
    /// No byte passes between a service and a server for a while.
    Cut {
        service: &'static str,
        server: &'static str,
        how: Cut,
        seconds: u64,
    },
}

/// How the way to a server is barred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Connections are reset, and new ones refused.
    Reset,
    /// Connections stay, new ones are taken, and every byte vanishes. Those that lost one stay mute for good: nobody
    /// ever says that there is nothing to wait for.
    Silent,
}

impl Display for Fault {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Crash { service, point, nth } => write!(f, "{service} dies at {point} ({nth})"),
            Fault::Kill { service } => write!(f, "{service} killed -9"),
            Fault::Freeze { service } => write!(f, "{service} frozen past its lease"),
            Fault::Terminate { service } => write!(f, "{service} terminated"),
            Fault::Orphaned { point } => write!(f, "scheduler dies at {point} over what a dead runner left"),
            Fault::Hushed { seconds } => write!(f, "workers killed -9 while a provider was silent for {seconds} s"),
            Fault::NatsKilled => write!(f, "NATS killed -9, restarted"),
            Fault::NatsWiped => write!(f, "NATS killed -9, restarted empty"),
            Fault::PostgresKilled => write!(f, "Postgres killed -9, restarted"),
            Fault::Cut { service, server, how: Cut::Reset, seconds } => {
                write!(f, "{service} cut from {server} for {seconds} s")
            }
            Fault::Cut { service, server, how: Cut::Silent, seconds } => {
                write!(f, "{service} cut from {server} without a word for {seconds} s")
            }
        }
    }
}

/// How a fault went.
#[derive(Debug)]
pub struct Report {
    pub fault: String,
    /// Turns that had ended when it struck, and all.
    pub before: u64,
    pub turns: usize,
    pub violations: Vec<String>,
    /// The longest that a turn which the fault hit took from there to its end.
    pub recovery: Duration,
    pub void: bool,
}

/// Servers and services that faults are made on, one after another.
pub struct Ground {
    pub fleet: Fleet,
    pub postgres: Postgres,
    pub nats: Nats,
    pub store: Store,
    checked: usize,
}

impl Ground {
    /// Two workers and two runners, so that somebody can take over.
    pub async fn prepare(binary: PathBuf) -> Result<Ground> {
        let (postgres, nats) = (Postgres::start().await?, Nats::start().await?);
        let database = postgres.create_database().await?;
        let mut setup = Setup::new(binary, &database, nats.url(), play::script());
        setup.config = play::CONFIG.into();
        setup.environment = vec![(play::ENVIRONMENT.0, play::ENVIRONMENT.1.into())];
        let mut fleet = Fleet::start(setup).await?;
        for service in ["agent-worker", "tool-runner"] {
            let node = fleet.spawn(service, &[]).await?;
            fleet.nodes.push(node);
        }
        let store = Store::open(Options::new(&database)).await?;
        Ok(Ground { fleet, postgres, nats, store, checked: 0 })
    }

    /// Load, the fault, recovery, and the questions.
    pub async fn strike(&mut self, fault: &Fault) -> Result<Report> {
        let (session, agents) = self.fleet.agents(AGENTS, &TOOLS).await.context("agents")?;
        let mut load = Load::start(&self.fleet, &agents, &TOOLS);
        load.more(WARM, RECOVERY_WITHIN).await.context("warming up")?;
        let before = load.finished();
        let struck = self.inject(fault, &mut load).await.with_context(|| fault.to_string())?;
        let void = struck.is_none();
        let at = struck.unwrap_or_else(Instant::now);
        load.more(AGENTS as u64 * 2, RECOVERY_WITHIN).await.with_context(|| format!("after: {fault}"))?;
        let finished = load.stop().await.with_context(|| format!("after: {fault}"))?;
        let crossing = finished.iter().filter(|f| f.began <= at && f.ended > at).map(|f| f.ended - at).max();
        let mut violations = self.settle(&session).await?;
        violations.extend(
            finished.iter().filter(|f| f.status != "completed").map(|f| format!("{} ended as {}", f.turn, f.status)),
        );
        violations.extend(self.repeated_effects());
        violations.extend(self.ended_nodes()?);
        let recovery = crossing.unwrap_or_default();
        Ok(Report { fault: fault.to_string(), before, turns: finished.len(), violations, recovery, void })
    }

    /// A play, the fault in the midst of it, recovery, and the questions.
    pub async fn perform(&mut self, play: Play, fault: &Fault) -> Result<Report> {
        let name = format!("{play}: {fault}");
        let mut run = Run::start(play, &self.fleet, &self.store).await.with_context(|| name.clone())?;
        run.more(ROUNDS, RECOVERY_WITHIN).await.with_context(|| format!("warming up {play}"))?;
        let before = run.finished();
        let struck = match fault {
            Fault::Crash { service, point, nth } => self.crash(service, &format!("{point}:{nth}")).await,
            Fault::Kill { service } => self.kill(service).await,
            other => bail!("{other} is not for plays"),
        };
        let struck = struck.with_context(|| name.clone())?;
        let at = struck.unwrap_or_else(Instant::now);
        run.more(ROUNDS, RECOVERY_WITHIN).await.with_context(|| format!("after {name}"))?;
        let rounds = run.stop().await.with_context(|| format!("after {name}"))?;
        let crossing = rounds.iter().filter(|r| r.began <= at && r.ended > at).map(|r| r.ended - at).max();
        let mut violations = play::verify(play, &rounds, &self.fleet, &self.store).await?;
        violations.extend(self.repeated_effects());
        violations.extend(self.ended_nodes()?);
        let (void, recovery) = (struck.is_none(), crossing.unwrap_or_default());
        Ok(Report { fault: name, before, turns: rounds.len(), violations, recovery, void })
    }

    pub(crate) fn repeated_effects(&mut self) -> Vec<String> {
        let effects = self.fleet.tool.ledger().effects();
        let repeated = audit::repeated(&effects[self.checked.min(effects.len())..], "charge");
        self.checked = effects.len();
        repeated
    }

    pub(crate) fn ended_nodes(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        for node in &mut self.fleet.nodes {
            if let Some(status) = node.ended()? {
                ended.push(format!("{} ended by itself with {status}:\n{}", node.service, node.log_tail()));
            }
        }
        Ok(ended)
    }

    /// Waits until the session is at rest, then asks what must be true of it.
    pub(crate) async fn settle(&self, session: &str) -> Result<Vec<String>> {
        let id: SessionId = session.parse()?;
        audit::session(&self.store, id).await
    }

    /// Puts another process in the place of one that runs: the new one first, so that somebody is always there;
    /// but there is one address for the API. `None` if the new one killed itself on its way up.
    async fn exchange(&mut self, service: &'static str, environment: &[(&str, &str)]) -> Result<Option<()>> {
        let at = self.fleet.nodes.iter().position(|n| n.service == service).context("no such service")?;
        let grace = Duration::from_secs(30);
        if service == "api" {
            self.fleet.nodes[at].terminate(grace).await?;
        }
        let new = match self.fleet.spawn(service, environment).await {
            Ok(new) => new,
            Err(error) if error.is::<Killed>() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut old = std::mem::replace(&mut self.fleet.nodes[at], new);
        if service != "api" {
            old.terminate(grace).await?;
        }
        Ok(Some(()))
    }

    async fn replace(&mut self, service: &'static str, environment: &[(&str, &str)]) -> Result<()> {
        let at = self.fleet.nodes.iter().position(|n| n.service == service).context("no such service")?;
        let node = self.fleet.spawn(service, environment).await?;
        self.fleet.nodes[at] = node;
        Ok(())
    }

    /// When the fault struck; `None` if it did not.
    async fn inject(&mut self, fault: &Fault, load: &mut Load) -> Result<Option<Instant>> {
        match fault {
            Fault::Crash { service, point, nth } => self.crash(service, &format!("{point}:{nth}")).await,
            Fault::Kill { service } => self.kill(service).await,
            Fault::Terminate { service } => {
                let at = Instant::now();
                self.fleet.node(service)?.terminate(Duration::from_secs(30)).await?;
                self.replace(service, &[]).await?;
                Ok(Some(at))
            }
            Fault::Freeze { service } => {
                let at = Instant::now();
                self.fleet.node(service)?.pause()?;
                // Past the lease of 3 s, and long enough for others to have taken over.
                tokio::time::sleep(Duration::from_secs(6)).await;
                self.fleet.node(service)?.resume()?;
                Ok(Some(at))
            }
            Fault::Orphaned { point } => self.orphan(point).await,
            Fault::Hushed { seconds } => self.hush(*seconds).await.map(Some),
            Fault::NatsKilled => {
                let at = Instant::now();
                self.nats.kill9().await?;
                self.nats.restart().await?;
                Ok(Some(at))
            }
            Fault::NatsWiped => {
                let at = Instant::now();
                self.nats.wipe_and_restart().await?;
                Ok(Some(at))
            }
            Fault::PostgresKilled => {
                let at = Instant::now();
                self.postgres.kill9().await?;
                self.postgres.restart().await?;
                Ok(Some(at))
            }
            Fault::Cut { service, server, how, seconds } => self.cut(service, server, *how, *seconds, load).await,
        }
    }

    pub(crate) async fn kill(&mut self, service: &'static str) -> Result<Option<Instant>> {
        let at = Instant::now();
        self.fleet.node(service)?.kill9().await?;
        self.replace(service, &[]).await?;
        Ok(Some(at))
    }

    /// Lets a service be run by the first of its processes alone: what is not its own it would hardly ever pass.
    async fn alone(&mut self, service: &'static str) -> Result<usize> {
        let mut others: Vec<Node> = Vec::new();
        let mut at = 0;
        let mut seen = false;
        while at < self.fleet.nodes.len() {
            if self.fleet.nodes[at].service == service && std::mem::replace(&mut seen, true) {
                others.push(self.fleet.nodes.remove(at));
            } else {
                at += 1;
            }
        }
        let count = others.len();
        for mut node in others {
            node.terminate(Duration::from_secs(30)).await?;
        }
        Ok(count)
    }

    async fn crash(&mut self, service: &'static str, at: &str) -> Result<Option<Instant>> {
        let place = self.fleet.nodes.iter().position(|n| n.service == service).context("no such service")?;
        let gone = self.alone(service).await?;
        let struck = self.crash_at(service, place, at).await;
        for _ in 0..gone {
            let node = self.fleet.spawn(service, &[]).await?;
            self.fleet.nodes.push(node);
        }
        struck
    }

    async fn crash_at(&mut self, service: &'static str, place: usize, at: &str) -> Result<Option<Instant>> {
        if self.exchange(service, &[(instar_crashpoint::VARIABLE, at)]).await?.is_none() {
            // The point lies on its way up, and it was passed.
            let struck = Instant::now();
            if self.fleet.nodes[place].ended()?.is_some() {
                self.replace(service, &[]).await?;
            }
            return Ok(Some(struck));
        }
        let end = Instant::now() + HIT_WITHIN;
        while self.fleet.nodes[place].ended()?.is_none() {
            if Instant::now() > end {
                self.exchange(service, &[]).await?;
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let struck = Instant::now();
        self.replace(service, &[]).await?;
        Ok(Some(struck))
    }

    /// Runners die until one of them leaves what the scheduler has to write down, which it does once their leases have
    /// run out.
    async fn orphan(&mut self, point: &'static str) -> Result<Option<Instant>> {
        let place = self.fleet.nodes.iter().position(|n| n.service == "scheduler").context("no scheduler")?;
        if self.exchange("scheduler", &[(instar_crashpoint::VARIABLE, &format!("{point}:1"))]).await?.is_none() {
            bail!("the scheduler died on its way up");
        }
        for _ in 0..ORPHANS_MAX {
            self.crash("tool-runner", "runner.effect.after:1").await?;
            let end = Instant::now() + ORPHANED_WITHIN;
            while Instant::now() < end {
                if self.fleet.nodes[place].ended()?.is_some() {
                    let struck = Instant::now();
                    self.replace("scheduler", &[]).await?;
                    return Ok(Some(struck));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        self.exchange("scheduler", &[]).await?;
        Ok(None)
    }

    /// A turn whose provider says nothing loses its worker, and goes on in good time.
    async fn hush(&mut self, seconds: u64) -> Result<Instant> {
        let (session, agents) = self.fleet.agents(1, &[]).await?;
        let agent = agents.first().context("an agent")?;
        let sent = self.fleet.client.send_message(agent, &format!("{} {agent}", play::HUSH), Mode::Queue).await?;
        let turn = sent.turn_id.context("a turn")?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let found = self.fleet.client.turn(&turn).await?;
        ensure!(found.status == "streaming", "the silent turn is {}", found.status);
        let at = Instant::now();
        let workers: Vec<usize> =
            (0..self.fleet.nodes.len()).filter(|at| self.fleet.nodes[*at].service == "agent-worker").collect();
        for place in workers {
            self.fleet.nodes[place].kill9().await?;
            self.fleet.nodes[place] = self.fleet.spawn("agent-worker", &[]).await?;
        }
        while !self.fleet.client.turn_within(&turn, 1.0).await?.is_over() {
            ensure!(at.elapsed() < TAKEN_OVER_WITHIN, "the silent turn was not taken over in {:?}", at.elapsed());
        }
        let wrong = self.settle(&session).await?;
        ensure!(wrong.is_empty(), "{wrong:#?}");
        Ok(at)
    }

    async fn cut(
        &mut self,
        service: &'static str,
        server: &str,
        how: Cut,
        seconds: u64,
        load: &mut Load,
    ) -> Result<Option<Instant>> {
        let (url, variable) = match server {
            "Postgres" => (self.fleet.database.clone(), "INSTAR__DATABASE__URL"),
            "NATS" => (self.nats.url().to_owned(), "INSTAR__NATS__URL"),
            other => bail!("no server {other}"),
        };
        let target = url.split("://").nth(1).and_then(|rest| rest.rsplit('@').next()).context("an address")?;
        let target = target.split(['/', '?']).next().context("an address")?.to_owned();
        let proxy = Proxy::start(&target).await?;
        // Nobody takes over: it has to come back by itself.
        let gone = self.alone(service).await?;
        self.exchange(service, &[(variable, &proxy.instead_of(&url))]).await?;
        load.more(AGENTS as u64, RECOVERY_WITHIN).await?;
        let (at, before, flowed) = (Instant::now(), proxy.cuts(), both(&proxy));
        ensure!(flowed > 0, "nothing went through the proxy");
        match how {
            Cut::Reset => {
                proxy.refuse();
                proxy.cut();
            }
            Cut::Silent => proxy.strand(),
        }
        // What was on its way arrives.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (cuts, barred) = (proxy.cuts() - before, both(&proxy));
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        ensure!(both(&proxy) == barred, "{} bytes passed while {service} was cut off", both(&proxy) - barred);
        proxy.heal();
        load.more(AGENTS as u64, RECOVERY_WITHIN).await.context("once it was healed")?;
        // It came back by itself, and by this way.
        let end = Instant::now() + RECOVERY_WITHIN;
        while both(&proxy) == barred {
            ensure!(Instant::now() < end, "{service} did not come back to {server}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Back to the direct way before the proxy goes.
        self.exchange(service, &[]).await?;
        for _ in 0..gone {
            let node = self.fleet.spawn(service, &[]).await?;
            self.fleet.nodes.push(node);
        }
        let struck = match how {
            Cut::Reset => cuts > 0,
            Cut::Silent => proxy.stranded() > 0,
        };
        Ok(struck.then_some(at))
    }
}

fn both(proxy: &Proxy) -> u64 {
    proxy.bytes(Direction::Up) + proxy.bytes(Direction::Down)
}

/// Every fault there is, crash points with the services that pass them.
pub fn all() -> Vec<Fault> {
    let services = ["api", "scheduler", "agent-worker", "tool-runner"];
    let mut faults = Vec::new();
    for point in instar_crashpoint::POINTS {
        for service in services {
            let owner = point.split('.').next().unwrap_or_default();
            let passes = match owner {
                "worker" => service == "agent-worker",
                "runner" => service == "tool-runner",
                // The scheduler commits only when something was lost, which is a fault of its own, or in a play.
                "store" | "runtime" => service != "scheduler",
                _ => false,
            };
            // Those that only a play passes are in `lively`.
            let played = ["runner.account", "runner.native", "runner.step", "worker.cut", "worker.summary"];
            if passes && !played.iter().any(|only| point.starts_with(only)) {
                faults.push(Fault::Crash { service, point, nth: 3 });
            }
        }
    }
    for service in services {
        faults.push(Fault::Kill { service });
        faults.push(Fault::Terminate { service });
    }
    faults.extend(COMMITS.map(|point| Fault::Orphaned { point }));
    faults.push(Fault::Hushed { seconds: 100 });
    faults.push(Fault::Freeze { service: "agent-worker" });
    faults.push(Fault::Freeze { service: "tool-runner" });
    faults.push(Fault::Freeze { service: "scheduler" });
    faults.extend([Fault::NatsKilled, Fault::NatsWiped, Fault::PostgresKilled]);
    for service in services {
        for server in ["Postgres", "NATS"] {
            for how in [Cut::Reset, Cut::Silent] {
                faults.push(Fault::Cut { service, server, how, seconds: 10 });
            }
        }
    }
    faults
}

/// Faults in the midst of plays, each where it can strike.
pub fn lively() -> Vec<(Play, Fault)> {
    const TIMERS: [&str; 2] = ["scheduler.timer.before", "scheduler.timer.after"];
    const SUMMARIES: [&str; 2] = ["worker.summary.before", "worker.summary.after"];
    const CUTS: [&str; 1] = ["worker.cut.before"];
    const NATIVE: [&str; 2] = ["runner.native.before", "runner.native.after"];
    const ACCOUNT: [&str; 4] =
        ["runner.account.before", "runner.account.after", "runner.effect.before", "runner.effect.after"];
    const EFFECTS: [&str; 2] = ["runner.effect.before", "runner.effect.after"];
    const SEALS: [&str; 2] = ["scheduler.seal.before", "scheduler.seal.after"];
    const ARCHIVES: [&str; 4] =
        ["archive.write.before", "archive.write.after", "archive.commit.before", "archive.commit.after"];
    const PRUNES: [&str; 2] = ["archive.prune.before", "archive.prune.after"];
    const STEPS: [&str; 4] = ["runner.step.before", "runner.step.after", "runner.effect.before", "runner.effect.after"];
    let places: [(Play, &'static str, &[&[&'static str]]); 24] = [
        (Play::Nudges, "scheduler", &[&COMMITS, &TIMERS]),
        (Play::Nudges, "agent-worker", &[&COMMITS]),
        (Play::Nudges, "api", &[&COMMITS]),
        (Play::Broadcasts, "api", &[&COMMITS]),
        (Play::Broadcasts, "agent-worker", &[&COMMITS]),
        (Play::Summaries, "agent-worker", &[&COMMITS, &SUMMARIES]),
        (Play::Children, "tool-runner", &[&COMMITS, &NATIVE]),
        (Play::Children, "agent-worker", &[&COMMITS]),
        (Play::Accounts, "tool-runner", &[&COMMITS, &ACCOUNT]),
        (Play::Endings, "scheduler", &[&COMMITS, &SEALS, &ARCHIVES, &PRUNES]),
        (Play::Endings, "api", &[&COMMITS, &ARCHIVES]),
        (Play::Endings, "tool-runner", &[&COMMITS]),
        (Play::Endings, "agent-worker", &[&COMMITS]),
        (Play::Missions, "scheduler", &[&COMMITS]),
        (Play::Missions, "tool-runner", &[&COMMITS, &NATIVE, &STEPS]),
        (Play::Missions, "agent-worker", &[&COMMITS]),
        (Play::Missions, "api", &[&COMMITS]),
        (Play::Plans, "scheduler", &[&COMMITS]),
        (Play::Plans, "tool-runner", &[&COMMITS, &NATIVE]),
        (Play::Plans, "agent-worker", &[&COMMITS]),
        (Play::Plans, "api", &[&COMMITS]),
        (Play::Words, "api", &[&COMMITS]),
        (Play::Words, "agent-worker", &[&COMMITS, &CUTS]),
        (Play::Words, "tool-runner", &[&COMMITS, &EFFECTS]),
    ];
    let mut faults = Vec::new();
    for (play, service, points) in places {
        faults.extend(points.iter().copied().flatten().map(|point| (play, Fault::Crash { service, point, nth: 2 })));
    }
    for play in Play::ALL {
        faults
            .extend(["scheduler", "agent-worker", "tool-runner", "api"].map(|service| (play, Fault::Kill { service })));
    }
    faults
}
