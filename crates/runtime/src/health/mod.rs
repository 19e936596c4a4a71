//! `/livez`, `/readyz` and `/metrics`, the same for every service.
//!
//! Alive means that the process turns over, nothing else: restarting it does not mend a database.
//! Ready means that every named check passes, but for those without which it can work, worse. Nobody is asked for a key
//! here, so answers name the checks and keep the reasons for the log.

mod metric;

pub use metric::{MetricError, recorder};

use crate::drain::Drain;
use crate::telemetry::name::metric::TASKS;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::future::{BoxFuture, join_all};
use instar_bus::Bus;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use std::future::{Future, IntoFuture};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

type Run = Box<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

struct Check {
    name: &'static str,
    run: Run,
    /// It can serve without.
    spared: bool,
}

/// What a check found.
struct Failure {
    name: &'static str,
    reason: String,
    spared: bool,
}

/// The checks of a service, added one by one.
pub struct Health {
    checks: Vec<Check>,
    within: Duration,
    drain: Drain,
}

struct Served {
    health: Health,
    metrics: PrometheusHandle,
    /// What failed when last asked, so that the log tells changes and not every probe.
    failing: Mutex<Vec<&'static str>>,
}

impl Health {
    /// Not ready from the moment `drain` begins, so that no new work is sent here. A check that
    /// takes longer than `within` has failed.
    pub fn new(drain: Drain, within: Duration) -> Health {
        Health { checks: Vec::new(), within, drain }
    }

    /// Adds a check; its error is the reason for the log.
    pub fn check<F, Fut, E>(self, name: &'static str, run: F) -> Health
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        self.add(name, false, run)
    }

    /// The bus: without it work goes on from rows.
    pub fn bus(self, bus: &Bus) -> Health {
        let watch = bus.watch();
        self.add("bus", true, move || {
            let up = watch.is_up();
            async move { if up { Ok(()) } else { Err("it cannot be used") } }
        })
    }

    fn add<F, Fut, E>(mut self, name: &'static str, spared: bool, run: F) -> Health
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display,
    {
        let run: Run = Box::new(move || {
            let running = run();
            Box::pin(async move { running.await.map_err(|error| error.to_string()) })
        });
        self.checks.push(Check { name, run, spared });
        self
    }

    /// The three routes, to serve alone or among others.
    pub fn router(self) -> Result<Router, MetricError> {
        let served = Served { health: self, metrics: recorder()?, failing: Mutex::default() };
        Ok(Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(render))
            .with_state(Arc::new(served)))
    }

    /// Serves the routes until the process ends: also while it drains, since whoever watches a
    /// drain looks here. Gives the address, for when the port was 0.
    pub async fn serve(self, listen: SocketAddr) -> io::Result<SocketAddr> {
        self.serve_on(TcpListener::bind(listen).await?)
    }

    /// The same on a port that is taken already.
    pub fn serve_on(self, listener: TcpListener) -> io::Result<SocketAddr> {
        let routes = self.router().map_err(io::Error::other)?;
        let address = listener.local_addr()?;
        tokio::spawn(axum::serve(listener, routes).into_future());
        Ok(address)
    }

    async fn failures(&self) -> Vec<Failure> {
        let outcomes = join_all(self.checks.iter().map(|check| async {
            let outcome = tokio::time::timeout(self.within, (check.run)()).await;
            let reason = match outcome {
                Ok(Ok(())) => return None,
                Ok(Err(reason)) => reason,
                Err(_) => format!("no answer within {:?}", self.within),
            };
            Some(Failure { name: check.name, reason, spared: check.spared })
        }));
        outcomes.await.into_iter().flatten().collect()
    }
}

async fn ready(State(served): State<Arc<Served>>) -> Response {
    // The checks may well fail while connections are being closed: that is not news.
    if served.health.drain.is_draining() {
        return unready(&["draining"]);
    }
    let failures = served.health.failures().await;
    let names: Vec<_> = failures.iter().map(|failure| failure.name).collect();
    let before = {
        let mut failing = served.failing.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *failing, names.clone())
    };
    for Failure { name, reason, spared } in failures.iter().filter(|failure| !before.contains(&failure.name)) {
        tracing::warn!(check = name, reason, "{}", if *spared { "degraded" } else { "not ready" });
    }
    if !before.is_empty() && names.is_empty() {
        tracing::info!("ready again");
    }
    let names = |spared| failures.iter().filter(|f| f.spared == spared).map(|f| f.name).collect::<Vec<_>>();
    match (names(false), names(true)) {
        (failing, _) if !failing.is_empty() => unready(&failing),
        (_, degraded) if !degraded.is_empty() => Json(json!({"ready": true, "degraded": degraded})).into_response(),
        _ => Json(json!({"ready": true})).into_response(),
    }
}

fn unready(failing: &[&str]) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"ready": false, "failing": failing}))).into_response()
}

async fn render(State(served): State<Arc<Served>>) -> Response {
    // Counted for whoever asks, and for nobody else.
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    metrics::gauge!(TASKS).set(tasks as f64);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], served.metrics.render()).into_response()
}
