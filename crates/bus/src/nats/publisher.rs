//! The publisher task: takes messages in order, sends them without waiting for each other's
//! acknowledgement, and hands each receipt back.
//!
//! It sends only while connected. Otherwise an outage would fill the client's command queue, which
//! acks and pulls need too, with publishes that nobody waits for any more.
//! Must not know: message types, what a failed publish means to its caller.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{Context, ErrorCode};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::{Health, header_map, link_error};
use crate::error::BusError;
use crate::options::Options;
use crate::publish::{Outgoing, Receipt, Sent};
use crate::stats::Counters;

/// Of a payload, and what the server takes.
#[derive(Clone, Copy)]
struct Size {
    bytes: usize,
    bytes_max: usize,
}

type Outcome = Result<Receipt, BusError>;

struct Job {
    /// Never empty; the receipt is that of the last.
    outs: Vec<Outgoing>,
    deadline: Instant,
    answer: oneshot::Sender<Outcome>,
}

pub(super) struct Publisher {
    queue: mpsc::Sender<Job>,
    queue_max: usize,
    within: Duration,
    /// Messages handed over and not settled.
    open: Arc<watch::Sender<usize>>,
}

impl Publisher {
    pub(super) fn start(
        context: Context,
        health: watch::Receiver<Health>,
        options: &Options,
        counters: Arc<Counters>,
        missing: Arc<Notify>,
    ) -> Self {
        let queue_max = options.queue_max.max(1);
        let (queue, jobs) = mpsc::channel(queue_max);
        let open = Arc::new(watch::Sender::new(0));
        let worker = Worker {
            context,
            health,
            counters,
            missing,
            open: open.clone(),
            within: options.publish_within,
            in_flight: FuturesUnordered::new(),
        };
        tokio::spawn(worker.run(jobs, options.in_flight_max.max(1)));
        Self { queue, queue_max, within: options.publish_within, open }
    }

    pub(super) fn hand_over(&self, outs: Vec<Outgoing>) -> Result<Sent, BusError> {
        let permit = self.queue.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => BusError::Busy { queue_max: self.queue_max },
            mpsc::error::TrySendError::Closed(()) => BusError::Closed,
        })?;
        let (job, answer) = self.job(outs);
        permit.send(job);
        Ok(Sent::waiting(answer))
    }

    pub(super) async fn deliver(&self, out: Outgoing) -> Outcome {
        let deadline = Instant::now() + self.within;
        let permit = match timeout_at(deadline, self.queue.reserve()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(BusError::Closed),
            Err(_) => return Err(BusError::Busy { queue_max: self.queue_max }),
        };
        let (job, answer) = self.job(vec![out]);
        permit.send(job);
        answer.await.unwrap_or(Err(BusError::Closed))
    }

    /// Waits until nothing is on its way.
    pub(super) async fn settled(&self) {
        // An error would mean that the sender is gone, and it is ours.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    fn job(&self, outs: Vec<Outgoing>) -> (Job, oneshot::Receiver<Outcome>) {
        let (answer, receiver) = oneshot::channel();
        self.open.send_modify(|open| *open += 1);
        (Job { outs, deadline: Instant::now() + self.within, answer }, receiver)
    }
}

struct Worker {
    context: Context,
    health: watch::Receiver<Health>,
    counters: Arc<Counters>,
    missing: Arc<Notify>,
    open: Arc<watch::Sender<usize>>,
    within: Duration,
    in_flight: FuturesUnordered<BoxFuture<'static, (oneshot::Sender<Outcome>, Outcome)>>,
}

impl Worker {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>, in_flight_max: usize) {
        let (mut held, mut closed) = (None::<Job>, false);
        let mut health = self.health.clone();
        loop {
            let room = held.is_none() && !closed && self.in_flight.len() < in_flight_max;
            tokio::select! {
                Some((answer, outcome)) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.settle(answer, outcome);
                }
                job = jobs.recv(), if room => match job {
                    Some(job) if self.health.borrow().connected => self.send(job).await,
                    Some(job) => held = Some(job),
                    None => closed = true,
                },
                connected = connected(&mut health, held.as_ref().map(|job| job.deadline)), if held.is_some() => {
                    match held.take() {
                        Some(job) if connected => self.send(job).await,
                        Some(job) => {
                            let outcome = Err(self.timeout(job.outs.last()));
                            self.settle(job.answer, outcome);
                        }
                        None => {}
                    }
                }
                else => return,
            }
        }
    }

    async fn send(&mut self, job: Job) {
        let Job { mut outs, answer, deadline } = job;
        if Instant::now() >= deadline {
            let outcome = Err(self.timeout(outs.last()));
            return self.settle(answer, outcome);
        }
        let Some(out) = outs.pop() else { return self.settle(answer, Err(BusError::Closed)) };
        let client = self.context.client();
        let (before, several, health) = (*self.health.borrow(), !outs.is_empty(), self.health.clone());
        for earlier in outs {
            let headers = header_map(&earlier.headers);
            if let Err(error) = client.publish_with_headers(earlier.subject, headers, earlier.payload).await {
                return self.settle(answer, Err(link_error("publishing", &error)));
            }
            self.counters.published.add(1);
        }
        let headers = header_map(&out.headers);
        let (subject, within) = (out.subject, self.within);
        let bytes_max = self.context.client().max_payload();
        let size = Size { bytes: out.payload.len(), bytes_max };
        let message = PublishMessage::build().payload(out.payload).headers(headers);
        match self.context.send_publish(subject.clone(), message).await {
            Ok(ack) => self.in_flight.push(Box::pin(async move {
                let outcome = match ack.await {
                    // The earlier ones may have gone into another connection, or another stream, than this.
                    Ok(_) if several && *health.borrow() != before => Err(BusError::Link {
                        what: "publishing".into(),
                        reason: "the connection changed meanwhile".into(),
                    }),
                    Ok(ack) => Ok(Receipt { sequence: ack.sequence, duplicate: ack.duplicate }),
                    Err(error) => Err(refusal(subject, size, within, &error)),
                };
                (answer, outcome)
            })),
            Err(error) => self.settle(answer, Err(refusal(subject, size, within, &error))),
        }
    }

    fn settle(&self, answer: oneshot::Sender<Outcome>, outcome: Outcome) {
        self.counters.receipt(&outcome);
        if matches!(outcome, Err(BusError::NoStream { .. })) {
            self.missing.notify_one();
        }
        if let Err(error) = &outcome {
            tracing::debug!(%error, "publish failed");
        }
        self.open.send_modify(|open| *open -= 1);
        // Nobody waits for it: fine, that is what handing over is for.
        let _ = answer.send(outcome);
    }

    fn timeout(&self, out: Option<&Outgoing>) -> BusError {
        let subject = out.map_or("nothing", |out| out.subject.as_str());
        BusError::Timeout { what: format!("publishing to {subject}"), within: self.within }
    }
}

/// Waits for the connection; false when the deadline comes first.
async fn connected(health: &mut watch::Receiver<Health>, deadline: Option<Instant>) -> bool {
    let deadline = deadline.unwrap_or_else(Instant::now);
    matches!(timeout_at(deadline, health.wait_for(|health| health.connected)).await, Ok(Ok(_)))
}

fn refusal(subject: String, size: Size, within: Duration, error: &PublishError) -> BusError {
    let Size { bytes, bytes_max } = size;
    let what = || format!("publishing to {subject}");
    match error.kind() {
        PublishErrorKind::StreamNotFound => BusError::NoStream { subject },
        PublishErrorKind::TimedOut => BusError::Timeout { what: what(), within },
        PublishErrorKind::MaxPayloadExceeded => BusError::TooLarge { subject, bytes, bytes_max },
        PublishErrorKind::BrokenPipe | PublishErrorKind::MaxAckPending => {
            BusError::Link { what: what(), reason: error.to_string() }
        }
        _ => match error.source().and_then(|it| it.downcast_ref::<async_nats::jetstream::Error>()) {
            // Covers every limit of a stream that refuses new messages.
            Some(reason) if reason.error_code() == ErrorCode::STREAM_STORE_FAILED => BusError::Full { subject },
            Some(reason) if reason.code() < 500 => BusError::Refused { what: what(), reason: reason.to_string() },
            _ => BusError::Link { what: what(), reason: error.to_string() },
        },
    }
}
