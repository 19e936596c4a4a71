//! Store and bus joined: a commit lands, then its runes are published, and nobody waits for that.
//!
//! The fast path publishes right after the commit; what it did not manage (the process died, the
//! bus was away) trails in the database until [`Hub::republish`] repeats it.

use crate::asset::Keeping;
use crate::discovered::Discovered;
use crate::live::Live;
use crate::looking::{Looking, Pace};
use crate::plan::{Planning, Policy};
use crate::publisher::Publisher;
use crate::seal::SealKey;
use crate::telemetry::{self, name::metric};
use crate::wire;
use chrono::{DateTime, Utc};
use instar_archive::Archive;
use instar_bus::Bus;
use instar_core::budget::Price;
use instar_core::id::SessionId;
use instar_core::machine;
use instar_core::rune::Rune;
use instar_store::{Answer, Commit, PAGE_MAX, Store, StoreError};
use instar_tools::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use tracing::Instrument;

#[derive(Clone)]
pub struct Hub {
    store: Store,
    bus: Bus,
    publisher: Publisher,
    live: Live,
    seal: SealKey,
    archive: Option<Archive>,
    keeping: Keeping,
    planning: Planning,
    tools: Option<Discovered>,
    prices: Arc<BTreeMap<String, Price>>,
    pace: Pace,
}

impl Hub {
    /// For one process by itself; several share the key that the database has: see [`Hub::shared`].
    pub fn new(store: Store, bus: Bus) -> Hub {
        Hub::with(store, bus, instar_store::fresh_key())
    }

    /// Joins the other processes of the installation.
    pub async fn shared(store: Store, bus: Bus) -> Result<Hub, StoreError> {
        let key = store.installation_key().await?;
        Ok(Hub::with(store, bus, key))
    }

    fn with(store: Store, bus: Bus, key: [u8; 32]) -> Hub {
        let publisher = Publisher::start(bus.clone());
        let live = Live::watch(store.clone());
        let (seal, keeping, planning) = (SealKey::new(key), Keeping::default(), Planning::default());
        let (prices, pace) = (Arc::default(), Pace::new());
        Hub { store, bus, publisher, live, seal, archive: None, keeping, planning, tools: None, prices, pace }
    }

    /// Where logs of sessions that have ended are kept.
    pub fn archiving(mut self, archive: Option<Archive>) -> Hub {
        self.archive = archive;
        self
    }

    /// What plans may take for themselves.
    pub fn planning_by(mut self, policy: Policy) -> Hub {
        self.planning = Planning::new(policy);
        self
    }

    /// What the models cost, by name.
    pub fn pricing(mut self, prices: BTreeMap<String, Price>) -> Hub {
        self.prices = Arc::new(prices);
        self
    }

    pub(crate) fn price(&self, model: &str) -> Option<Price> {
        self.prices.get(model).copied()
    }

    /// The tools that steps of missions are held against.
    pub fn knowing(mut self, tools: Arc<Registry>) -> Hub {
        self.tools = Some(Discovered::new(self.store.clone(), tools));
        self
    }

    /// The tools there are, with what MCP servers offer now if one of these names may mean that. `None` where nobody
    /// has said what there is.
    pub(crate) async fn tools_for(&self, names: &[String]) -> Option<&Registry> {
        let known = self.tools.as_ref()?;
        known.refresh_for(names).await;
        Some(known.registry())
    }

    pub(crate) fn planning(&self) -> &Planning {
        &self.planning
    }

    /// Where the content of assets is kept.
    pub fn keeping_content(mut self, keeping: Keeping) -> Hub {
        self.keeping = keeping;
        self
    }

    pub fn keeping(&self) -> &Keeping {
        &self.keeping
    }

    pub(crate) fn archive(&self) -> Option<&Archive> {
        self.archive.as_ref()
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// For a task that looks into rows while the bus is down; all of a process share one pace.
    pub fn looking(&self) -> Looking {
        Looking::new(self.bus.watch(), self.pace.clone())
    }

    pub(crate) fn seal(&self) -> &SealKey {
        &self.seal
    }

    pub(crate) fn live(&self) -> &Live {
        &self.live
    }

    /// Commits; if it lands its runes are on their way to the bus when this returns.
    pub async fn commit(&self, commit: Commit) -> Result<Answer, StoreError> {
        let began = std::time::Instant::now();
        let answer = self.store.commit(commit).await?;
        metrics::histogram!(metric::COMMIT_DURATION).record(began.elapsed().as_secs_f64());
        if let Answer::Moved(landed) = &answer {
            count(&landed.runes);
            instar_crashpoint::crash_point!("runtime.publish.before");
            self.publisher.publish(&landed.runes);
            instar_crashpoint::crash_point!("runtime.publish.after");
            self.tell_owners(&landed.runes);
            self.follow_accounts(&landed.runes);
        }
        Ok(answer)
    }

    /// The slow path: publishes again what trails since before `before`, page by page, and marks it. Says how
    /// many runes it repeated. Several processes may do it at once; consumers drop repeats by id.
    pub async fn republish(&self, before: DateTime<Utc>, sessions_max: u64) -> Result<usize, StoreError> {
        let (mut repeated, mut from) = (0, None);
        let bus = self.bus.watch();
        // Each would be waited for as long as a publish may take.
        while bus.is_up() {
            let page = self.store.trailing(before, from, sessions_max).await?;
            for (session, published, head) in page.iter().take_while(|_| bus.is_up()) {
                repeated += self.republish_session(*session, *published, *head).await?;
            }
            // Past those that could not be published: they must not hide the others.
            match page.last() {
                Some((last, ..)) if page.len() as u64 == sessions_max => from = Some(*last),
                _ => return Ok(repeated),
            }
        }
        Ok(repeated)
    }

    async fn republish_session(&self, session: SessionId, published: i64, head: i64) -> Result<usize, StoreError> {
        let (mut from, mut repeated) = (published, 0);
        while from < head {
            let runes = self.store.runes(session, from, PAGE_MAX).await?;
            let Some(last) = runes.last().map(|r| r.seq) else { break };
            let repeats: Vec<_> = runes.iter().map(wire::rune).collect();
            let sent = async { self.bus.publish_runes_soon(&repeats)?.await };
            if let Err(error) = sent.instrument(again(session, &runes)).await {
                tracing::debug!(%session, after = from, %error, "not published; it goes on trailing");
                return Ok(repeated);
            }
            repeated += repeats.len();
            self.store.mark_published(&[(session, from, last)]).await?;
            from = last;
        }
        Ok(repeated)
    }
}

fn count(runes: &[Rune]) {
    for moved in runes.iter().flat_map(|rune| &rune.moves) {
        if let Some(table) = machine::by_row(&moved.row) {
            metrics::counter!(metric::TRANSITIONS, "machine" => table.name).increment(1);
        }
    }
}

/// Publishing anew: in the trace of the first that wrote one of them.
fn again(session: SessionId, runes: &[Rune]) -> tracing::Span {
    let span = tracing::info_span!(
        parent: None,
        "publish",
        otel.name = "publish again",
        gen_ai.conversation.id = %session,
        messaging.batch.message_count = runes.len(),
    );
    if let Some(trace) = runes.iter().find_map(|rune| rune.traceparent.as_deref()) {
        telemetry::set_parent(&span, trace);
    }
    span
}
