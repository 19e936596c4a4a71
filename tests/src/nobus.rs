//! Life without NATS: load while it is away and processes die, its return, and what must be true afterwards.

use crate::fault::{Ground, RECOVERY_WITHIN, TOOLS};
use crate::fleet::{Node, SERVICES};
use crate::load::Load;
use crate::play::{self, Play, Run};
use anyhow::{Context, Result, ensure};
use chrono::{DateTime, Utc};
use futures::StreamExt;
use instar_client::{Client, Event, Mode};
use instar_core::id::SessionId;
use instar_store::PAGE_MAX;
use instar_store::entity::session;
use instar_testkit::wait;
use sea_orm::sea_query::Expr;
use sea_orm::{EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::ops::Range;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const AGENTS: usize = 8;
const WARM: u64 = 24;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How soon it is known that the server is away, and that it is back: three times what is promised.
pub const KNOWN_WITHIN: Duration = Duration::from_secs(6);
/// What is written by whoever had to find a queued turn, a call, or the last of a turn's results.
const FOUND: [&str; 3] = ["turn.started", "tool.started", "turn.tools_finished"];
/// What is promised: of the turns with NATS at least this share, nearly every hop and the return within so long.
const SHARE: f64 = 0.1;
const HOP_WITHIN: Duration = Duration::from_secs(2);
const BACK_WITHIN: Duration = Duration::from_secs(2);

/// How long what goes on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// With NATS, to compare with.
    pub normal: Duration,
    /// Without, after everything that is done at once.
    pub away: Duration,
    /// Workers are killed so often while it is away.
    pub kill_every: Option<Duration>,
    /// Every service is killed as NATS goes, and starts without it.
    pub restart: bool,
    /// What goes on besides the load, and how many rounds of it.
    pub plays: &'static [Play],
    pub rounds: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Life {
    /// Turns a second with NATS and without.
    pub normal: f64,
    pub rate: f64,
    /// From message to answer, without NATS: half of the turns, and 95 of 100.
    pub p50: Duration,
    pub p95: Duration,
    /// From what somebody had to find to the mark of whoever found it, without NATS: 95 of 100, by the log.
    pub hop_p95: Duration,
    pub hops: usize,
    pub killed: u32,
    pub turns: usize,
    /// From the return of NATS to its being used.
    pub back: Duration,
    pub violations: Vec<String>,
}

impl Life {
    /// What is promised and was not kept, beside the violations.
    pub fn broken(&self) -> Vec<String> {
        let Life { normal, rate, hop_p95, hops, back, .. } = self;
        let mut broken = Vec::new();
        if *rate < normal * SHARE {
            broken.push(format!("{rate:.1} turns/s are less than {SHARE} of {normal:.1}"));
        }
        if *hops == 0 || *hop_p95 > HOP_WITHIN {
            broken.push(format!("of {hops} hops 95 of 100 took up to {hop_p95:.2?}: {HOP_WITHIN:?} are promised"));
        }
        if *back > BACK_WITHIN {
            broken.push(format!("NATS was used again after {back:.2?}: {BACK_WITHIN:?} are promised"));
        }
        broken
    }
}

impl Display for Life {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Life { normal, rate, p50, p95, hop_p95, hops, killed, turns, back, violations } = self;
        let share = 100.0 * rate / normal;
        write!(
            f,
            "with NATS {normal:.1} turns/s, without {rate:.1} ({share:.0} %), turns p50 {p50:.2?}, p95 {p95:.2?}, \
             hops p95 {hop_p95:.2?} (of {hops}); \
             {killed} killed, {turns} turns in all, NATS used again after {back:.2?}, {} violations",
            violations.len()
        )
    }
}

impl Ground {
    /// NATS goes while there is load, and comes back empty.
    pub async fn live_without_nats(&mut self, terms: Terms) -> Result<Life> {
        let (session, agents) = self.fleet.agents(AGENTS, &TOOLS).await?;
        let follower = follow(self.fleet.client.clone(), session.clone());
        let mut load = Load::start(&self.fleet, &agents, &TOOLS);
        load.more(WARM, RECOVERY_WITHIN).await.context("warming up")?;
        let normal = rate(&load, terms.normal).await;
        ensure!(self.readiness().await? == (200, json!({"ready": true})));
        self.nats.kill9().await?;
        self.becomes(json!({"ready": true, "degraded": ["bus"]})).await.context("NATS is away")?;
        let mut killed = 0;
        if terms.restart {
            killed += self.restart_all().await.context("starting without NATS")?;
            self.becomes(json!({"ready": true, "degraded": ["bus"]})).await.context("started without NATS")?;
            self.name_the_bus().await?;
        }
        let (begun, from) = (Instant::now(), self.store.now().await?);
        let (rate, deaths) = self.endure(&load, terms).await?;
        killed += deaths;
        let (ended, to) = (Instant::now(), self.store.now().await?);
        let mut violations = self.play_on(terms).await?;
        load.more(AGENTS as u64, RECOVERY_WITHIN).await.context("without NATS")?;

        self.nats.wipe_and_restart().await?;
        let at = Instant::now();
        self.becomes(json!({"ready": true})).await.context("NATS is back")?;
        let back = at.elapsed();
        load.more(WARM, RECOVERY_WITHIN).await.context("with NATS again")?;
        let finished = load.stop().await?;
        violations.extend(self.settle(&session).await?);
        let failed = finished.iter().filter(|f| f.status != "completed");
        violations.extend(failed.map(|f| format!("{} ended as {}", f.turn, f.status)));
        violations.extend(self.repeated_effects());
        violations.extend(self.ended_nodes()?);
        self.published().await.context("what was not published")?;
        let id: SessionId = session.parse()?;
        let head = session::Entity::find_by_id(id.uuid()).one(self.store.db()).await?.context("session")?.head_seq;
        violations.extend(heard(follower, head).await?);
        let within = finished.iter().filter(|turn| turn.began >= begun && turn.ended <= ended);
        let mut took: Vec<Duration> = within.map(|turn| turn.ended - turn.began).collect();
        took.sort_unstable();
        let hops = self.hops(id, from..to).await?;
        let (p50, p95, hop_p95, hops) = (quantile(&took, 50), quantile(&took, 95), quantile(&hops, 95), hops.len());
        Ok(Life { normal, rate, p50, p95, hop_p95, hops, killed, turns: finished.len(), back, violations })
    }

    /// What `/readyz` of the API says.
    async fn readiness(&self) -> Result<(u16, Value)> {
        let answer = reqwest::get(format!("http://127.0.0.1:{}/readyz", self.fleet.port())).await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    async fn becomes(&self, expected: Value) -> Result<()> {
        let expected = (200, expected);
        wait::until_ok(KNOWN_WITHIN, async || {
            let found = self.readiness().await?;
            ensure!(found == expected, "{found:?}");
            Ok(())
        })
        .await
    }

    /// What keeps a turn waiting is said, to whoever asks for it and to who asks the doctor.
    async fn name_the_bus(&self) -> Result<()> {
        let (_, agents) = self.fleet.agents(1, &[]).await?;
        let workers = || self.fleet.nodes.iter().filter(|node| node.service == "agent-worker");
        workers().try_for_each(Node::pause)?;
        let sent = self.fleet.client.send_message(&agents[0], "say nothing", Mode::Queue).await?;
        let turn = sent.turn_id.context("a turn")?;
        let waiting = self.fleet.client.turn(&turn).await?.waiting_for;
        workers().try_for_each(Node::resume)?;
        ensure!(json!(waiting) == json!({"kind": "bus", "for": "worker"}), "{waiting:?}");
        let (_, said) = self.fleet.run(&["doctor", "--role", "agent-worker"]).await?;
        ensure!(said.contains("the bus is missing"), "{said}");
        ensure!(self.fleet.client.turn_within(&turn, 20.0).await?.status == "completed");
        Ok(())
    }

    /// All at once, so that none finds what another one knew.
    async fn restart_all(&mut self) -> Result<u32> {
        for node in &mut self.fleet.nodes {
            node.kill9().await?;
        }
        self.fleet.nodes.clear();
        let wanted = SERVICES.into_iter().chain(["agent-worker", "tool-runner"]);
        let spawned = wanted.map(|service| self.fleet.spawn(service, &[]));
        self.fleet.nodes = futures::future::try_join_all(spawned).await?;
        Ok(self.fleet.nodes.len() as u32)
    }

    /// Turns a second, and the workers that died meanwhile.
    async fn endure(&mut self, load: &Load, terms: Terms) -> Result<(f64, u32)> {
        let (begun, before, mut killed) = (Instant::now(), load.finished(), 0);
        let mut next = terms.kill_every.map(|every| begun + every);
        while begun.elapsed() < terms.away {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Some(due) = next.filter(|due| *due <= Instant::now()) {
                self.kill("agent-worker").await?;
                killed += 1;
                next = terms.kill_every.map(|every| due + every);
            }
        }
        Ok(((load.finished() - before) as f64 / begun.elapsed().as_secs_f64(), killed))
    }

    /// Approvals, interrupts, children, accounts, timers: whatever needs more than turns and calls.
    async fn play_on(&mut self, terms: Terms) -> Result<Vec<String>> {
        let mut runs = Vec::new();
        for play in terms.plays {
            runs.push((*play, Run::start(*play, &self.fleet, &self.store).await?));
        }
        let mut violations = Vec::new();
        for (_, run) in &mut runs {
            run.more(terms.rounds, RECOVERY_WITHIN).await.context("without NATS")?;
        }
        for (play, run) in runs {
            let rounds = run.stop().await.context("without NATS")?;
            violations.extend(play::verify(play, &rounds, &self.fleet, &self.store).await?);
        }
        Ok(violations)
    }

    /// How long what was there in this time waited to be found, shortest first.
    async fn hops(&self, session: SessionId, time: Range<DateTime<Utc>>) -> Result<Vec<Duration>> {
        let time = time.start.timestamp_micros()..time.end.timestamp_micros();
        let (mut hops, mut before, mut from) = (Vec::new(), HashMap::new(), 0);
        loop {
            let runes = self.store.runes(session, from, PAGE_MAX).await?;
            let Some(last) = runes.last() else { break };
            from = last.seq;
            for rune in &runes {
                let Some(turn) = rune.turn_id else { continue };
                let Some(was) = before.insert(turn, rune.at_us) else { continue };
                if FOUND.contains(&rune.kind.as_str()) && time.contains(&was) && time.contains(&rune.at_us) {
                    hops.push(Duration::from_micros(rune.at_us.abs_diff(was)));
                }
            }
        }
        hops.sort_unstable();
        Ok(hops)
    }

    /// Waits until every log is published as far as it goes.
    async fn published(&self) -> Result<()> {
        wait::until_ok(RECOVERY_WITHIN, async || {
            let trailing =
                session::Entity::find().filter(Expr::cust("published_seq < head_seq")).count(self.store.db()).await?;
            ensure!(trailing == 0, "{trailing} sessions trail");
            Ok(())
        })
        .await
    }
}

async fn rate(load: &Load, time: Duration) -> f64 {
    let (begun, before) = (Instant::now(), load.finished());
    tokio::time::sleep(time).await;
    (load.finished() - before) as f64 / begun.elapsed().as_secs_f64()
}

fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let at = sorted.len() * percent / 100;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Somebody who follows a session from its beginning: the numbers of its runes as they came.
struct Follower {
    seen: tokio::sync::watch::Receiver<Vec<i64>>,
    task: JoinHandle<()>,
}

fn follow(client: Client, session: String) -> Follower {
    let (tell, seen) = tokio::sync::watch::channel(Vec::new());
    let task = tokio::spawn(async move {
        loop {
            let last = tell.borrow().last().copied().unwrap_or(0);
            let mut events = client.events(&session, last);
            while let Some(Ok(event)) = events.next().await {
                if let Event::Rune(rune) = event {
                    tell.send_modify(|seen| seen.push(rune.seq));
                }
            }
            // The API was away for longer than a reader bears.
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    Follower { seen, task }
}

/// Every rune once and in order, up to `head`.
async fn heard(mut follower: Follower, head: i64) -> Result<Option<String>> {
    let whole = follower.seen.wait_for(|seen| seen.last().is_some_and(|last| *last >= head));
    let seen =
        tokio::time::timeout(RECOVERY_WITHIN, whole).await.context("the stream does not come to its end")??.clone();
    follower.task.abort();
    let wrong = seen.iter().zip(1..).find(|(seq, expected)| *seq != expected);
    Ok(wrong.map(|(seq, expected)| format!("the stream had rune {seq} where {expected} was due")))
}
