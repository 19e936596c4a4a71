//! The four services as this command starts them: the one place that calls into them.
//!
//! Each spawns its tasks on the context's drain and comes back when it has begun to work.

use crate::catalog::Catalog;
use anyhow::Result;
use instar_runtime::Context;
use std::net::SocketAddr;

/// The namespace and the name of the key that a first start brings along.
const NAMESPACE: &str = "default";
const BOOTSTRAP: &str = "bootstrap";

/// `key`: an admin key to store, hashed, before anybody is served. Gives the address.
pub(crate) async fn start_api(context: &Context, catalog: &Catalog, key: Option<&str>) -> Result<SocketAddr> {
    if let Some(key) = key {
        let store = context.hub.store();
        instar_api::ensure_key(store, NAMESPACE, BOOTSTRAP, instar_api::Role::Admin, key).await?;
    }
    let models = context.config.models.iter().map(|model| model.name.clone()).collect();
    let catalog = instar_api::Catalog { tools: catalog.tools.clone(), models };
    Ok(instar_api::serve(context.clone(), catalog).await?.address)
}

pub(crate) async fn start_scheduler(context: &Context, catalog: &Catalog) -> Result<()> {
    let hub = context.hub.clone().knowing(catalog.tools.clone());
    instar_scheduler::start(Context { hub, ..context.clone() }).await
}

pub(crate) async fn start_worker(context: &Context, catalog: &Catalog) -> Result<()> {
    instar_agent_worker::start(context.clone(), catalog.models.clone(), catalog.tools.clone()).await
}

pub(crate) async fn start_runner(context: &Context, catalog: &Catalog) -> Result<()> {
    instar_tool_runner::start(context.clone(), catalog.tools.clone()).await
}
