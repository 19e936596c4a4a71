//! From a context to a server that answers.

use crate::auth::FAILED;
use crate::listen::{Listen, Peer};
use crate::pipeline::{self, DURATION, REQUESTS};
use crate::problem::Problem;
use crate::route::{ROUTES, Route};
use crate::state::Api;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use axum::routing::{any, get};
use instar_runtime::health::{Health, MetricError};
use instar_runtime::{Context, Vault, VaultError, account};
use instar_store::StoreError;
use instar_tools::Registry;
use metrics::Unit;
use sea_orm::ConnectionTrait;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What agents may be given.
#[derive(Clone)]
pub struct Catalog {
    pub tools: Arc<Registry>,
    /// Names of the configured models, the default one first.
    pub models: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("api.listen {address}: {cause}")]
    Listen { address: SocketAddr, cause: io::Error },
    #[error(transparent)]
    Metrics(#[from] MetricError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("the accounts of the configuration: {0}")]
    Accounts(#[from] StoreError),
}

/// A server that answers until its drain has ended.
#[derive(Debug)]
pub struct Serving {
    /// Where it listens, for when the port was 0.
    pub address: SocketAddr,
    /// Ends when the last connection is closed after the drain began.
    pub task: JoinHandle<()>,
}

/// Binds `api.listen` and serves. When the drain begins, streams are closed, requests in flight are
/// answered, and the drain waits for them.
pub async fn serve(context: Context, catalog: Catalog) -> Result<Serving, ApiError> {
    let address = context.config.api.listen;
    let drain = context.drain.clone();
    let health = health(&context).router()?;
    metrics::describe_counter!(REQUESTS, "Requests to the API");
    metrics::describe_counter!(FAILED, "Requests with keys that open nothing");
    metrics::describe_histogram!(DURATION, Unit::Seconds, "Requests to the API");
    let vault = Vault::load(&context.config.secrets, |name| std::env::var(name).ok())?;
    account::declare(context.hub.store(), &context.config.accounts).await?;
    let api = Arc::new(Api::new(context, catalog, vault));
    api.feed.start(&drain);
    let only_get = || async { Problem::method(&["GET"]).response("") };
    let routes = router(api).merge(health).method_not_allowed_fallback(only_get);
    let listen = |cause| ApiError::Listen { address, cause };
    let listener = Listen(TcpListener::bind(address).await.map_err(listen)?);
    let address = axum::serve::Listener::local_addr(&listener).map_err(listen)?;
    let begun = drain.clone();
    let routes = routes.into_make_service_with_connect_info::<Peer>();
    let server = axum::serve(listener, routes).with_graceful_shutdown(async move { begun.draining().await });
    let task = drain.spawn(async move {
        // It never ends with an error: those of single connections are theirs.
        let _ = server.await;
    });
    Ok(Serving { address, task })
}

fn health(context: &Context) -> Health {
    let within = Duration::from_millis(context.config.health.check_timeout_ms);
    let db = context.hub.store().db().clone();
    Health::new(context.drain.clone(), within)
        .check("database", move || {
            let db = db.clone();
            async move { db.execute_unprepared("SELECT 1").await.map(drop) }
        })
        .bus(context.hub.bus())
}

fn router(api: Arc<Api>) -> Router {
    let mut paths: BTreeMap<&str, Vec<&'static Route>> = BTreeMap::new();
    for route in ROUTES.iter().filter(|route| !route.described_only) {
        paths.entry(route.path).or_default().push(route);
    }
    let mut router = Router::new().route("/openapi.json", get(document));
    for (path, routes) in paths {
        // One small list per path, for as long as the process lives.
        let routes: &'static [&'static Route] = routes.leak();
        let api = api.clone();
        router = router.route(path, any(move |request: Request<Body>| pipeline::take(api.clone(), routes, request)));
    }
    router.fallback(move |request: Request<Body>| pipeline::take(api.clone(), &[], request))
}

/// The description of the API is no secret: it says nothing of what is stored.
async fn document() -> impl axum::response::IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], crate::document::openapi().to_string())
}
