//! Reaching a server: within a given time, with the credentials given, and not too old a one.
//!
//! Must not know: streams.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::{Health, backoff};
use crate::error::BusError;
use crate::options::Connection;
use crate::version::{self, Verdict};

/// With the pause after it, an outage that ended is over after two seconds.
const ATTEMPT: Duration = Duration::from_millis(1_500);
/// How soon a peer that vanished without closing is noticed. Until then nothing is heard and every publish runs into
/// its limit.
pub const SILENCE_NOTICED: Duration = Duration::from_millis(1_500);
/// The client gives a connection up when the third of these goes unanswered.
const PINGS: u32 = 3;
/// Commands that may wait for the socket; acks and live messages share it with publishes.
const COMMANDS_MAX: usize = 8 * 1024;

/// A client, and whether it has reached a server. One that has not goes on trying.
pub(super) async fn dial(
    connection: &Connection,
    deadline: Instant,
    health: Arc<watch::Sender<Health>>,
) -> Result<(Client, bool), BusError> {
    // Without user and password: the client prints its addresses where logs are detailed, and takes the two from
    // its options only.
    let shown = connection.shown();
    let addresses: Vec<String> = shown.split(',').map(str::to_owned).collect();
    let mut failures = 0;
    loop {
        let options = options(connection, health.clone()).await?;
        let reason = match timeout_at(deadline, options.connect(&addresses)).await {
            Ok(Ok(client)) => return Ok((accept(client, &health, deadline).await?, true)),
            Ok(Err(error)) => match error.kind() {
                ConnectErrorKind::ServerParse
                | ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
                | ConnectErrorKind::Tls => {
                    return Err(BusError::Setup { reason: error.to_string() });
                }
                _ => error.to_string(),
            },
            Err(_) => "no answer".to_owned(),
        };
        let pause = backoff(failures);
        if Instant::now() + pause >= deadline {
            tracing::warn!(url = shown, within = ?connection.within, reason, "no NATS server answers; going on without");
            let options = self::options(connection, health).await?.retry_on_initial_connect();
            let client = options.connect(&addresses).await;
            return Ok((client.map_err(|error| BusError::Setup { reason: error.to_string() })?, false));
        }
        sleep(pause).await;
        failures += 1;
    }
}

async fn accept(client: Client, health: &watch::Sender<Health>, deadline: Instant) -> Result<Client, BusError> {
    let version = client.server_info().version;
    if version::check(&version)? == Verdict::Dated {
        tracing::warn!(version, "this NATS server works, but 2.12.7 or later is safer");
    }
    // The event of this connection comes through a task of its own. Whoever starts on the link must
    // not take it for a reconnect.
    let _ = timeout_at(deadline, health.subscribe().wait_for(|health| health.connects > 0)).await;
    Ok(client)
}

async fn options(connection: &Connection, health: Arc<watch::Sender<Health>>) -> Result<ConnectOptions, BusError> {
    let mut options = ConnectOptions::new()
        .name(&connection.name)
        .connection_timeout(ATTEMPT)
        .ping_interval(SILENCE_NOTICED / PINGS)
        .client_capacity(COMMANDS_MAX)
        .reconnect_delay_callback(backoff)
        .event_callback(move |event| {
            match event {
                Event::Connected => health.send_modify(|health| {
                    (health.connected, health.usable) = (true, false);
                    health.connects += 1;
                }),
                Event::Disconnected | Event::Closed => {
                    health.send_modify(|health| (health.connected, health.usable) = (false, false));
                }
                Event::ServerError(error) => tracing::warn!(%error, "NATS server reports"),
                Event::ClientError(error) => tracing::debug!(%error, "NATS client reports"),
                _ => {}
            }
            std::future::ready(())
        });
    match connection.login() {
        Some((user, Some(password))) => options = options.user_and_password(user, password),
        Some((token, None)) => options = options.token(token),
        None => {}
    }
    if let Some(file) = &connection.credentials_file {
        let setup = |error: std::io::Error| BusError::Setup { reason: format!("{}: {error}", file.display()) };
        options = options.credentials_file(file).await.map_err(setup)?;
    }
    if let Some(file) = &connection.root_certificate_file {
        options = options.add_root_certificates(file.clone()).require_tls(true);
    }
    if let Some((certificate, key)) = &connection.certificate_files {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(options)
}

/// Repeats what can succeed later: a server that just started answers before its streams are ready.
pub(super) async fn until<T, F: Future<Output = Result<T, BusError>>>(
    deadline: Instant,
    mut attempt: impl FnMut() -> F,
) -> Result<T, BusError> {
    let mut failures = 0;
    loop {
        match attempt().await {
            Err(error) if error.retryable() && Instant::now() < deadline => {
                sleep(backoff(failures)).await;
                failures += 1;
            }
            result => return result,
        }
    }
}
