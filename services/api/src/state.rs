//! What every request shares.

use crate::auth::Known;
use crate::keyed::Keyed;
use crate::pace::Pace;
use crate::server::Catalog;
use crate::stream::Feed;
use instar_runtime::step::Tools;
use instar_runtime::{Context, Discovered, Hub, Vault};
use instar_store::{Pool, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use uuid::Uuid;

pub(crate) struct Api {
    pub(crate) context: Context,
    pub(crate) catalog: Catalog,
    /// The same tools, as far as calls of steps depend on them.
    pub(crate) steps: Tools,
    /// Keeps the tools of MCP servers among those of the catalog up to date.
    pub(crate) discovered: Discovered,
    pub(crate) keys: Known,
    pub(crate) pace: Pace<Uuid>,
    /// Commands with the same Idempotency-Key go one after another.
    pub(crate) repeats: Keyed<(Arc<str>, String)>,
    /// So do messages for one agent: each writes its row.
    pub(crate) agents: Keyed<Uuid>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) feed: Arc<Feed>,
    /// Seals accounts; none where no key is configured.
    pub(crate) vault: Option<Vault>,
}

impl Api {
    pub(crate) fn new(mut context: Context, catalog: Catalog, vault: Option<Vault>) -> Api {
        context.hub = context.hub.knowing(catalog.tools.clone());
        let streams = Arc::new(Semaphore::new(context.config.api.streams_max as usize));
        let pace = Pace::new(context.config.api.requests_per_second_max, Duration::from_secs(1));
        let keys = Known::new(context.config.api.failed_keys_per_minute_max);
        let feed = Feed::new(context.hub.clone());
        let (repeats, agents) = Default::default();
        let (tools, timeout) = (catalog.tools.clone(), context.config.worker.approval_timeout_ms);
        let steps = Tools::new(move |name, arguments| tools.chosen(name, arguments), timeout);
        let discovered = Discovered::new(context.hub.store().clone(), catalog.tools.clone());
        Api { context, catalog, discovered, steps, keys, pace, repeats, agents, streams, feed, vault }
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.context.hub
    }

    pub(crate) fn store(&self) -> &Store {
        self.context.hub.store()
    }

    pub(crate) fn db(&self) -> &Pool {
        self.store().db()
    }
}
