//! Bringing a server to the declared topology: what is missing is created, what may be added is
//! added, the rest is refused. Idempotent; run at start and after each reconnect.
//!
//! Must not know: what may be changed ([`topology::plan`] decides that).

use async_nats::jetstream::consumer::{self, AckPolicy, Consumer, DeliverPolicy, pull};
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, ConsumerError, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{Context, ErrorCode};

use super::link_error;
use crate::consumer::ConsumerSpec;
use crate::error::BusError;
use crate::subject::Namespace;
use crate::topology::{self, Discard, Plan, Retention, Role, Storage, StreamSpec};

/// Pull requests that may wait at one consumer: two per instance, for a large fleet.
const WAITING_MAX: i64 = 2048;
/// Another process may create or extend a stream between our look and our step.
const RACES_MAX: usize = 5;

/// What the server has now.
#[derive(Default)]
pub(super) struct Found {
    /// Streams that were missing.
    pub(super) created: u64,
    /// When each stream came to be. Another time means another stream, though it has the same name:
    /// somebody, perhaps another process, made it again.
    pub(super) born: Vec<i128>,
}

/// Makes sure of all streams.
pub(super) async fn streams(context: &Context, space: &Namespace, specs: &[StreamSpec]) -> Result<Found, BusError> {
    let mut found = Found::default();
    for spec in specs.iter().filter(|it| !it.subjects.is_empty()) {
        let (created, born) = stream(context, space, spec).await?;
        found.created += u64::from(created);
        found.born.push(born);
    }
    Ok(found)
}

async fn stream(context: &Context, space: &Namespace, spec: &StreamSpec) -> Result<(bool, i128), BusError> {
    for _ in 0..RACES_MAX {
        let (found, born) = match context.get_stream(&spec.name).await {
            Ok(stream) => {
                let info = stream.cached_info();
                (info.config.clone(), info.created.unix_timestamp_nanos())
            }
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    match context.create_stream(write(spec, Config::default())).await {
                        Ok(stream) => {
                            let born = stream.cached_info().created.unix_timestamp_nanos();
                            return Ok((true, born));
                        }
                        Err(error) => match error.kind() {
                            CreateStreamErrorKind::JetStream(error)
                                if error.error_code() == ErrorCode::STREAM_NAME_EXIST =>
                            {
                                continue;
                            }
                            CreateStreamErrorKind::JetStream(reason) => {
                                return Err(answer(&format!("to create stream {}", spec.name), &reason));
                            }
                            _ => return Err(link_error("stream creation", &error)),
                        },
                    }
                }
                GetStreamErrorKind::JetStream(reason) => {
                    return Err(answer(&format!("to show stream {}", spec.name), &reason));
                }
                _ => return Err(link_error("stream lookup", &error)),
            },
        };
        match topology::plan(space, spec, &read(spec, &found)) {
            Plan::Keep => return Ok((false, born)),
            Plan::Refuse(differences) => {
                return Err(BusError::Drift { stream: spec.name.clone(), differences });
            }
            Plan::Extend(wanted) => {
                tracing::info!(stream = spec.name, "extending stream");
                match context.update_stream(write(&wanted, found)).await {
                    Ok(_) => return Ok((false, born)),
                    Err(error) => match error.kind() {
                        CreateStreamErrorKind::JetStream(reason) => {
                            return Err(answer(&format!("to extend stream {}", spec.name), &reason));
                        }
                        _ => return Err(link_error("stream update", &error)),
                    },
                }
            }
        }
    }
    Err(BusError::Link { what: "stream setup".into(), reason: "others keep changing it".into() })
}

/// Sets what we declare on top of `base`, so that an operator's further settings stay.
fn write(spec: &StreamSpec, base: Config) -> Config {
    Config {
        name: spec.name.clone(),
        subjects: spec.subjects.clone(),
        retention: match spec.retention {
            Retention::WorkQueue => RetentionPolicy::WorkQueue,
            Retention::Limits | Retention::Other => RetentionPolicy::Limits,
        },
        discard: match spec.discard {
            Discard::Old => DiscardPolicy::Old,
            Discard::New => DiscardPolicy::New,
        },
        storage: match spec.storage {
            Storage::File => StorageType::File,
            Storage::Memory => StorageType::Memory,
        },
        max_age: spec.age_max,
        max_bytes: i64::try_from(spec.bytes_max).unwrap_or(i64::MAX),
        duplicate_window: spec.duplicate_window,
        num_replicas: spec.replicas,
        ..base
    }
}

/// The properties we care about; an unlimited one reads as the largest.
fn read(spec: &StreamSpec, config: &Config) -> StreamSpec {
    StreamSpec {
        role: spec.role,
        open: spec.open,
        name: config.name.clone(),
        subjects: config.subjects.clone(),
        retention: match config.retention {
            RetentionPolicy::Limits => Retention::Limits,
            RetentionPolicy::WorkQueue => Retention::WorkQueue,
            RetentionPolicy::Interest => Retention::Other,
        },
        discard: match config.discard {
            DiscardPolicy::Old => Discard::Old,
            DiscardPolicy::New => Discard::New,
        },
        storage: match config.storage {
            StorageType::File => Storage::File,
            StorageType::Memory => Storage::Memory,
        },
        age_max: if config.max_age.is_zero() { std::time::Duration::MAX } else { config.max_age },
        bytes_max: u64::try_from(config.max_bytes).unwrap_or(u64::MAX),
        duplicate_window: config.duplicate_window,
        replicas: config.num_replicas,
    }
}

/// Makes sure of a consumer; whether it was missing.
pub(super) async fn consumer(context: &Context, stream: &str, spec: &ConsumerSpec) -> Result<bool, BusError> {
    let mut config = pull_config(spec);
    let found: Result<Consumer<pull::Config>, _> = context.get_consumer_from_stream(&spec.name, stream).await;
    let missing = match found {
        Ok(found) => {
            // A reader shared by two versions during an upgrade: neither takes kinds away from the other.
            if spec.role == Role::Transition {
                widen(&mut config, &found.cached_info().config);
            }
            if same(&config, &found.cached_info().config) {
                return Ok(false);
            }
            false
        }
        Err(error) => match error.kind() {
            ConsumerErrorKind::JetStream(error) if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND => true,
            _ => return Err(consumer_error(spec, &error)),
        },
    };
    match context.create_consumer_on_stream(config, stream).await {
        Ok(_) => Ok(missing),
        Err(error) => Err(consumer_error(spec, &error)),
    }
}

fn pull_config(spec: &ConsumerSpec) -> pull::Config {
    let mut config = pull::Config {
        durable_name: Some(spec.name.clone()),
        ack_policy: AckPolicy::Explicit,
        deliver_policy: DeliverPolicy::All,
        ack_wait: spec.pull.ack_wait,
        // Unlimited here: a message over the server's limit stays in the queue, undeliverable. Ours
        // is counted on delivery and ends in the dead letters.
        max_deliver: -1,
        max_ack_pending: i64::try_from(spec.pull.ack_pending_max).unwrap_or(i64::MAX),
        max_waiting: WAITING_MAX,
        inactive_threshold: spec.idle_max.unwrap_or_default(),
        ..pull::Config::default()
    };
    set_filters(&mut config, spec.filters.clone());
    config
}

fn set_filters(config: &mut pull::Config, mut filters: Vec<String>) {
    filters.sort_unstable();
    filters.dedup();
    if filters.len() == 1 {
        config.filter_subject = filters.remove(0);
        config.filter_subjects.clear();
    } else {
        config.filter_subject.clear();
        config.filter_subjects = filters;
    }
}

fn filters(one: &str, several: &[String]) -> Vec<String> {
    let mut all: Vec<String> = several.to_vec();
    all.extend(Some(one.to_owned()).filter(|it| !it.is_empty()));
    all.sort_unstable();
    all
}

fn widen(config: &mut pull::Config, found: &consumer::Config) {
    let mut all = filters(&config.filter_subject, &config.filter_subjects);
    all.extend(filters(&found.filter_subject, &found.filter_subjects));
    set_filters(config, all);
}

fn same(wanted: &pull::Config, found: &consumer::Config) -> bool {
    wanted.ack_wait == found.ack_wait
        && wanted.max_deliver == found.max_deliver
        && wanted.max_ack_pending == found.max_ack_pending
        && wanted.max_waiting == found.max_waiting
        && wanted.inactive_threshold == found.inactive_threshold
        && wanted.ack_policy == found.ack_policy
        && filters(&wanted.filter_subject, &wanted.filter_subjects)
            == filters(&found.filter_subject, &found.filter_subjects)
}

fn consumer_error(spec: &ConsumerSpec, error: &ConsumerError) -> BusError {
    match error.kind() {
        ConsumerErrorKind::JetStream(reason) => answer(&format!("to set up consumer {}", spec.name), &reason),
        _ => link_error("consumer setup", error),
    }
}

/// What the server said no to. Codes from 500 on speak of its own state and pass.
fn answer(what: &str, error: &async_nats::jetstream::Error) -> BusError {
    let (what, reason) = (what.to_owned(), error.to_string());
    let passing = error.code() >= 500
        && error.error_code() != ErrorCode::JETSTREAM_NOT_ENABLED
        && error.error_code() != ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT;
    // A stream that vanished between two steps is made again on the next attempt.
    if passing || error.error_code() == ErrorCode::STREAM_NOT_FOUND {
        BusError::Link { what, reason }
    } else {
        BusError::Refused { what, reason }
    }
}
