//! Agents whose model talks slowly, all at once, beside the least that reading it costs.

use crate::candidate::{Candidate, Ground, Kind, Plan, listener, product};
use crate::meter::{Sample, memory_kb};
use crate::row::{Row, percentile};
use anyhow::{Context, Result, ensure};
use bench_drive::model::Model;
use bench_drive::watch::Viewers;
use bench_drive::wire::Line;
use instar_testkit::wait;
use std::time::Duration;
use tokio::task::JoinSet;

const BEGUN_WITHIN: Duration = Duration::from_secs(60);
/// Until what beginning cost is over.
const WARM_UP: Duration = Duration::from_secs(1);
const SENDERS: usize = 16;
const WORKER: &str = "agent-worker";

pub(crate) struct Streams<'a> {
    pub(crate) plans: &'a [Plan],
    pub(crate) streams: usize,
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
}

impl Streams<'_> {
    pub(crate) async fn run(
        &self,
        ground: &Ground,
        model: &Model,
        mut each: impl FnMut(&Row) -> Result<()>,
    ) -> Result<Vec<Row>> {
        let ground = Ground { postgres: ground.postgres.clone(), model: model.slow_url() };
        let mut rows = Vec::new();
        for round in 0..self.rounds {
            let mut found = vec![self.floor(&ground, model, round).await.context("the listener")?];
            for plan in self.plans {
                let Kind::Product(build) = &plan.kind else { continue };
                for watched in [false, true] {
                    let row = self.product(&ground, model, round, plan, build, watched).await;
                    found.push(row.with_context(|| format!("streams of {}", plan.name))?);
                }
            }
            found.iter().try_for_each(&mut each)?;
            rows.extend(found);
        }
        Ok(rows)
    }

    async fn floor(&self, ground: &Ground, model: &Model, round: usize) -> Result<Row> {
        self.long(model);
        let listener = listener(ground, self.streams).await?;
        let row = self.measure(model, &listener, "floor", round, None).await;
        model.talk.end();
        row
    }

    async fn product(
        &self,
        ground: &Ground,
        model: &Model,
        round: usize,
        plan: &Plan,
        build: &product::Product,
        watched: bool,
    ) -> Result<Row> {
        let (house, address) = build.services(ground, self.streams * 2).await?;
        let agents = product::make(&address, self.streams, "[]").await?;
        let mut viewers = Viewers::default();
        if watched {
            for agent in &agents {
                viewers.add(&address, &agent.session, &product::headers()).await?;
            }
        }
        self.long(model);
        let memory = memory_kb(house.pid(WORKER)?);
        let mut senders = JoinSet::new();
        for part in agents.chunks(agents.len().div_ceil(SENDERS)) {
            let mut line = Line::connect(&address).await?;
            let messages: Vec<_> = part.iter().map(|made| product::message(&made.agent, "", "talk")).collect();
            senders.spawn_local(async move {
                for message in messages {
                    line.ask(&message).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(sent) = senders.join_next().await {
            sent??;
        }
        let name = if watched { format!("{}, watched", plan.name) } else { plan.name.clone() };
        let row = self.measure(model, &house, &name, round, watched.then_some(&viewers)).await;
        let grown = memory_kb(house.pid(WORKER)?) - memory;
        // First: nobody is to be told of answers that broke off.
        drop(house);
        model.talk.end();
        let mut row = row?;
        row.figures.insert("worker_kb_per_stream".into(), grown / self.streams as f64);
        Ok(row)
    }

    /// Answers last as long as beginning them all and measuring may take.
    fn long(&self, model: &Model) {
        model.talk.for_seconds((BEGUN_WITHIN + WARM_UP + self.time * 2).as_secs_f64());
    }

    async fn measure(
        &self,
        model: &Model,
        candidate: &Candidate,
        name: &str,
        round: usize,
        viewers: Option<&Viewers>,
    ) -> Result<Row> {
        wait::until_ok(BEGUN_WITHIN, || async {
            let streams = model.talk.streams();
            ensure!(streams == self.streams, "{streams} of {} streams are open", self.streams);
            Ok(())
        })
        .await?;
        tokio::time::sleep(WARM_UP).await;
        let (before, said) = (Sample::take(candidate).await?, model.talk.said());
        if let Some(viewers) = viewers {
            viewers.begin();
        }
        tokio::time::sleep(self.time).await;
        let said = (model.talk.said() - said) as f64;
        let used = Sample::take(candidate).await?.since(&before);
        ensure!(model.talk.broken() == 0, "{} streams were not read", model.talk.broken());
        // Microseconds of each word.
        let mut row = Row::new("stream", name, self.streams, round, &used, said, 1e6);
        row.figures.insert("words_per_second".into(), said / used.seconds);
        if let Some(viewers) = viewers {
            let late: Vec<f64> = viewers.end().into_iter().map(|us| us as f64 / 1e3).collect();
            row.figures.insert("seen_share".into(), late.len() as f64 / said);
            row.figures.insert("late_p50_ms".into(), percentile(&late, 0.5));
            row.figures.insert("late_p99_ms".into(), percentile(&late, 0.99));
        }
        Ok(row)
    }
}
