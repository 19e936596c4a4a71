//! From a configuration to a session: either transport, either era of the protocol.

use super::confided::Confided;
use super::config::{ServerConfig, Transport};
use super::handler::{Ears, Handler};
use super::lost::chain;
use super::process::{Launch, Process};
use super::session::Session;
use crate::inject;
use crate::runner::Settings;
use crate::sandbox::Kernel;
use crate::secret::Purse;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use instar_core::secret::{Redactor, credential};
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::ClientServiceExt;
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, QuitReason, RoleClient, RunningService, RunningServiceCancellationToken,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const CONNECT_MAX: Duration = Duration::from_secs(10);
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// A connection, and the program at its other end if there is one.
pub(super) struct Link {
    pub(super) session: Arc<Session>,
    running: RunningService<RoleClient, Handler>,
    process: Option<Process>,
}

/// What every attempt to connect needs.
pub(super) struct Means {
    pub(super) settings: Settings,
    pub(super) kernel: Kernel,
}

struct Charged {
    url: String,
    headers: HashMap<HeaderName, HeaderValue>,
    environment: Vec<(String, String)>,
    redactor: Arc<Redactor>,
}

/// The error is a sentence for the operator. Nothing of a failed attempt stays behind.
pub(super) async fn connect(
    config: &Arc<ServerConfig>,
    means: &Arc<Means>,
    confided: &Arc<Confided>,
    stop: &CancellationToken,
) -> Result<Link, String> {
    let charged = charge(config, means)?;
    confided.add(&charged.redactor).map_err(|much| much.to_string())?;
    let (ears, confided) = (Arc::new(Ears::new(confided.clone())), confided.clone());
    let (handler, within) = (Handler(ears.clone()), config.start_timeout());
    let (running, process) = match config.transport {
        Transport::Stdio => {
            let (config, means, confided) = (config.clone(), means.clone(), confided.clone());
            // Forking and opening folders is for a thread that may wait.
            let started = tokio::task::spawn_blocking(move || {
                let (settings, kernel) = (&means.settings.sandbox, means.kernel);
                Launch { config: &config, settings, kernel, environment: charged.environment, confided }.start()
            });
            let started = started.await.map_err(|_| "the start failed".to_owned())?;
            let (process, stdout, stdin) = started.map_err(|failure| failure.to_string())?;
            let transport = AsyncRwTransport::new_client(stdout, stdin);
            (greet(handler.serve_with_lifecycle(transport, either_era()), within, stop).await, Some(process))
        }
        Transport::Http => {
            let transport = http(config, charged)?;
            (greet(handler.serve_with_lifecycle(transport, either_era()), within, stop).await, None)
        }
    };
    match running {
        Ok(running) => {
            let session = Arc::new(Session::new(running.peer().clone(), ears, confided));
            Ok(Link { session, running, process })
        }
        Err(mut words) => {
            confided.now().text(&mut words);
            match process {
                Some(process) => Err(format!("{words}; {}", process.end().await)),
                None => Err(words),
            }
        }
    }
}

async fn greet(
    greeting: impl Future<Output = Result<RunningService<RoleClient, Handler>, ClientInitializeError>>,
    within: Duration,
    stop: &CancellationToken,
) -> Result<RunningService<RoleClient, Handler>, String> {
    tokio::select! {
        greeted = greeting => greeted.map_err(|error| format!("it does not speak MCP with us: {}", chain(&error))),
        () = tokio::time::sleep(within) => Err(format!("it did not greet us within {} ms", within.as_millis())),
        () = stop.cancelled() => Err("it was closed".to_owned()),
    }
}

fn either_era() -> ClientLifecycleMode {
    ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    }
}

fn http(config: &ServerConfig, charged: Charged) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // The operator's own address: trusted, but neither followed elsewhere nor tried again by itself.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .connect_timeout(CONNECT_MAX)
        .build()
        .map_err(|error| format!("no HTTP client: {error}"))?;
    let settings = StreamableHttpClientTransportConfig::with_uri(charged.url)
        .max_concurrent_requests(config.concurrency)
        .max_sse_event_size(config.message_bytes_max)
        .custom_headers(charged.headers);
    Ok(StreamableHttpClientTransport::with_client(client, settings))
}

/// Fills in the secrets.
fn charge(config: &ServerConfig, means: &Means) -> Result<Charged, String> {
    let mut purse = Purse { secrets: &means.settings.secrets, account: None, used: Vec::new() };
    let words = |failure: crate::outcome::Failure| failure.to_string();
    let url = inject::fill(&mut purse, config.url.as_deref().unwrap_or_default(), inject::percent, "url");
    let url = url.map_err(words)?;
    let (mut headers, mut environment) = (HashMap::new(), Vec::new());
    for (name, text) in &config.headers {
        let value = inject::fill(&mut purse, text, str::to_owned, &format!("header {name}")).map_err(words)?;
        purse.used.extend(credential(name, &value));
        let bad = |_| format!("header {name} has a value that cannot be sent");
        let mut value = HeaderValue::from_str(&value).map_err(bad)?;
        value.set_sensitive(true);
        let name = HeaderName::from_str(name).map_err(|_| format!("{name:?} is not a header name"))?;
        headers.insert(name, value);
    }
    for (name, text) in &config.environment {
        let value = inject::fill(&mut purse, text, str::to_owned, &format!("environment.{name}")).map_err(words)?;
        purse.used.extend(credential(name, &value));
        environment.push((name.clone(), value));
    }
    for name in &config.env {
        if let Ok(value) = std::env::var(name) {
            purse.used.extend(credential(name, &value));
        }
    }
    let redactor = Arc::new(Redactor::new(&purse.used));
    Ok(Charged { url, headers, environment, redactor })
}

impl Link {
    /// Splits into what ends with the connection and says why, and the word that ends it.
    pub(super) fn open(self) -> (Closing, Ended) {
        let stop = self.running.cancellation_token();
        let waiting = self.running.waiting();
        let ended = async move {
            match waiting.await {
                Ok(QuitReason::Cancelled) => "it was closed".to_owned(),
                Ok(_) => "it ended the connection".to_owned(),
                Err(error) => format!("its connection failed: {error}"),
            }
        };
        let ended = ended.boxed().shared();
        (Closing { stop, process: self.process, ended: ended.clone() }, ended)
    }
}

/// Each who waits for it has a clone.
pub(super) type Ended = Shared<BoxFuture<'static, String>>;

pub(super) struct Closing {
    stop: RunningServiceCancellationToken,
    process: Option<Process>,
    ended: Ended,
}

impl Closing {
    /// Closes the connection, then ends the program, and says how that ended.
    pub(super) async fn close(self) -> Option<String> {
        self.stop.cancel();
        let _ = tokio::time::timeout(CLOSE_MAX, self.ended).await;
        match self.process {
            Some(process) => Some(process.end().await),
            None => None,
        }
    }
}
