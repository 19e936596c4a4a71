//! What every request shares.

use crate::auth::Known;
use crate::keyed::Keyed;
use crate::server::Catalog;
use crate::stream::Feed;
use instar_runtime::{Context, Hub};
use instar_store::Store;
use sea_orm::DatabaseConnection;
use std::sync::Arc;
use tokio::sync::Semaphore;
use uuid::Uuid;

pub(crate) struct Api {
    pub(crate) context: Context,
    pub(crate) catalog: Catalog,
    pub(crate) keys: Known,
    /// Commands with the same Idempotency-Key go one after another.
    pub(crate) repeats: Keyed<(Arc<str>, String)>,
    /// So do messages for one agent: each writes its row.
    pub(crate) agents: Keyed<Uuid>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) feed: Arc<Feed>,
}

impl Api {
    pub(crate) fn new(context: Context, catalog: Catalog) -> Api {
        let streams = Arc::new(Semaphore::new(context.config.api.streams_max as usize));
        let feed = Feed::new(context.hub.clone());
        let (keys, repeats, agents) = Default::default();
        Api { context, catalog, keys, repeats, agents, streams, feed }
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.context.hub
    }

    pub(crate) fn store(&self) -> &Store {
        self.context.hub.store()
    }

    pub(crate) fn db(&self) -> &DatabaseConnection {
        self.store().db()
    }
}
