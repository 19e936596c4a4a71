//! Runs one call to exactly one outcome.

use crate::builtin::Builtin;
use crate::command::{self, Launch};
use crate::egress::{Lookup, Policy, SystemLookup};
use crate::http::{self, Clients};
use crate::inject::{self, Charged};
use crate::mcp::Servers;
use crate::outcome::{Failure, Outcome, Sink, code};
use crate::sandbox::{self, Kernel};
use crate::secret::{Account, Secrets};
use crate::spec::Kind;
use crate::tool::Tool;
use futures::FutureExt;
use instar_core::decide::Effect;
use instar_core::id::CallId;
use instar_core::rune::payload::ResultStatus;
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One attempt of one call.
#[derive(Clone, Debug)]
pub struct Invocation {
    pub tool: Arc<Tool>,
    pub arguments: Value,
    /// Also the idempotency key: the same for every attempt.
    pub call_id: CallId,
    pub attempt: u32,
    /// The tool's own timeout ends a call before this if it is shorter.
    pub deadline: Option<Instant>,
    pub workspace: Option<PathBuf>,
    pub traceparent: Option<String>,
    /// What the calling agent holds, if the tool needs it.
    pub account: Option<Account>,
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub sandbox: sandbox::Settings,
    pub egress: Policy,
    pub secrets: Secrets,
    /// An HTTP answer is read up to here, then given up.
    pub body_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let (sandbox, egress) = (sandbox::Settings::default(), Policy::default());
        Self { sandbox, egress, secrets: Secrets::none(), body_bytes_max: 64 << 20 }
    }
}

/// The runner cannot be had on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("no HTTP client: {0}")]
    Http(#[from] reqwest::Error),
}

/// Whether a call has reached the point after which its tool may have acted. Shared with the clock
/// and the canceller, who must say so when they end it.
#[derive(Debug, Default)]
pub(crate) struct Flight(AtomicBool);

impl Flight {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn began(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub struct Runner {
    clients: Clients,
    secrets: Secrets,
    sandbox: Arc<sandbox::Settings>,
    kernel: Kernel,
    body_bytes_max: u64,
    servers: Option<Arc<Servers>>,
}

impl Runner {
    pub fn new(settings: Settings) -> Result<Self, Broken> {
        Self::with(settings, Arc::new(SystemLookup), Kernel::probe())
    }

    /// With another resolver and another view of the kernel: for tests.
    pub fn with(settings: Settings, lookup: Arc<dyn Lookup>, kernel: Kernel) -> Result<Self, Broken> {
        Ok(Self {
            clients: Clients::new(settings.egress, lookup)?,
            secrets: settings.secrets,
            sandbox: Arc::new(settings.sandbox),
            kernel,
            body_bytes_max: settings.body_bytes_max,
            servers: None,
        })
    }

    /// Where it looks up what specs refer to.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// One that can also call the tools of these servers.
    pub fn with_servers(self, servers: Arc<Servers>) -> Self {
        Self { servers: Some(servers), ..self }
    }

    /// What the kernel offers; whether that is enough is [`sandbox::Settings::check`]'s to say.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Never fails and never runs a tool on arguments that break its schema. Dropping the future
    /// is a cancellation: nothing that it started stays behind.
    pub async fn run(&self, call: Invocation, cancel: CancellationToken, progress: Sink) -> Outcome {
        let started = Instant::now();
        let (effect, flight) = (call.tool.spec().effect(), Flight::default());
        let attempt = self.attempt(call, cancel, progress, &flight);
        // Spawned tasks and other people's parsers: a panic must not leave a call without a result.
        let outcome = AssertUnwindSafe(attempt).catch_unwind().await.unwrap_or_else(|_| {
            let unknown = flight.began() && !effect.repeatable();
            let status = if unknown { ResultStatus::Unknown } else { ResultStatus::Error };
            let failure = Failure::new(code::INTERNAL, "the runner failed on this call; see its log");
            Outcome { began: flight.began(), ..Outcome::failed(status, failure) }
        });
        Outcome { duration: started.elapsed(), ..outcome }
    }

    async fn attempt(&self, call: Invocation, cancel: CancellationToken, sink: Sink, flight: &Flight) -> Outcome {
        let spec = call.tool.spec();
        if !spec.enabled {
            let failure = Failure::new(code::TOOL_DISABLED, format!("the tool {} is switched off", spec.name));
            return Outcome::failed(ResultStatus::Error, failure);
        }
        if let Err(invalid) = call.tool.validate(&call.arguments) {
            let failure = Failure::new(code::INVALID_ARGUMENTS, invalid.to_string());
            return Outcome::failed(ResultStatus::Error, failure);
        }
        if spec.kind == Kind::Native {
            // The service that has the store runs these; here there is none.
            let failure = Failure::new(code::INTERNAL, format!("{} is not run here", spec.name));
            return Outcome::failed(ResultStatus::Error, failure);
        }
        if cancel.is_cancelled() {
            return cancelled(spec.effect(), false);
        }
        let own = Instant::now() + spec.timeout();
        let end = call.deadline.map_or(own, |deadline| own.min(deadline));
        if end <= Instant::now() {
            return timed_out(spec.effect(), false);
        }
        let charged = match inject::charge(&self.secrets, &call) {
            Ok(charged) => charged,
            Err(failure) => return Outcome::failed(ResultStatus::Error, failure),
        };
        let redactor = charged.redactor.clone();
        let mut outcome = if spec.kind == Kind::Command {
            let (settings, kernel, sink) = (self.sandbox.clone(), self.kernel, sink.redacting(redactor.clone()));
            command::run(Launch { settings, kernel, call, charged, end }, cancel, sink).await
        } else {
            tokio::select! {
                biased;
                () = cancel.cancelled() => cancelled(spec.effect(), flight.began()),
                () = tokio::time::sleep_until(end) => timed_out(spec.effect(), flight.began()),
                outcome = self.in_process(&call, charged, flight, &sink, end) => outcome,
            }
        };
        // What was read has been cleaned on its way; this is for the words around it.
        if let Some(error) = &mut outcome.error {
            redactor.text(&mut error.message);
        }
        outcome
    }

    async fn in_process(
        &self,
        call: &Invocation,
        charged: Charged,
        flight: &Flight,
        sink: &Sink,
        end: Instant,
    ) -> Outcome {
        if call.tool.spec().kind == Kind::Mcp {
            return match &self.servers {
                Some(servers) => servers.call(call, &charged, sink, flight, end).await,
                None => {
                    let failure = Failure::new(code::MCP_UNAVAILABLE, "this runner has no MCP servers");
                    Outcome::failed(ResultStatus::Error, failure)
                }
            };
        }
        let builtin = Builtin::named(call.tool.name()).filter(|_| call.tool.spec().kind == Kind::Builtin);
        match builtin {
            Some(Builtin::HttpFetch) => http::fetch(&self.clients, call, flight, self.body_bytes_max).await,
            Some(builtin) => builtin.run(&call.arguments, call.tool.spec().max_output_bytes).await,
            None => http::call(&self.clients, charged, call, flight, self.body_bytes_max).await,
        }
    }
}

pub(crate) fn cancelled(effect: Effect, began: bool) -> Outcome {
    let words = format!("the call was cancelled{}", perhaps(effect, began));
    Outcome { began, ..Outcome::failed(ResultStatus::Cancelled, Failure::new(code::CANCELLED, words)) }
}

pub(crate) fn timed_out(effect: Effect, began: bool) -> Outcome {
    let words = format!("the call did not end in time{}", perhaps(effect, began));
    let failure = Failure { retryable: !began || effect.repeatable(), ..Failure::new(code::TIMEOUT, words) };
    Outcome { began, ..Outcome::failed(ResultStatus::Timeout, failure) }
}

fn perhaps(effect: Effect, began: bool) -> &'static str {
    match (began, effect) {
        (false, _) => " before it began",
        (true, Effect::ReadOnly) => "",
        (true, _) => "; it may have taken effect or not",
    }
}
