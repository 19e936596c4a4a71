//! Reading a stream in memory: waits for the next message, and carries the decision back.
//!
//! Must not know: how a stream keeps its books.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::stream::{Stored, Take};
use super::{Local, Wake};
use crate::consumer::ConsumerSpec;
use crate::delivery::{self, Decision, Parcel};
use crate::topology::Role;

pub(crate) struct Source {
    local: Arc<Local>,
    spec: ConsumerSpec,
    wake: Wake,
}

impl Source {
    pub(super) fn new(local: Arc<Local>, spec: ConsumerSpec, wake: Wake) -> Self {
        Self { local, spec, wake }
    }

    pub(crate) async fn next(&mut self) -> Parcel {
        loop {
            // Made before `take` looks, so that no wake-up falls in between.
            let woken = self.wake.notified();
            let due = match self.take() {
                Take::Got { sequence, deliveries, stored } => {
                    return self.parcel(sequence, deliveries, &stored);
                }
                Take::Wait(due) => due,
            };
            match due {
                Some(due) => tokio::select! {
                    () = woken => {}
                    () = sleep_until(due) => {}
                },
                None => woken.await,
            }
        }
    }

    fn take(&self) -> Take {
        match self.local.stream(self.spec.role) {
            Ok(mut stream) => stream.take(&self.spec.name, Instant::now()),
            Err(_) => Take::Wait(None),
        }
    }

    fn parcel(&self, sequence: u64, deliveries: u64, stored: &Stored) -> Parcel {
        let headers = stored.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Parcel {
            role: self.spec.role,
            subject: stored.subject.clone(),
            headers: headers.collect(),
            payload: stored.payload.clone(),
            deliveries,
            origin: format!("{}:{sequence}:{}", self.spec.role.token(), stored.stored_at),
            stored_at: stored.stored_at,
            ticket: delivery::Ticket::Local(Ticket {
                local: self.local.clone(),
                role: self.spec.role,
                consumer: self.spec.name.clone(),
                sequence,
            }),
        }
    }
}

pub(crate) struct Ticket {
    local: Arc<Local>,
    role: Role,
    consumer: String,
    sequence: u64,
}

impl Ticket {
    pub(crate) fn decide(&self, decision: Decision) {
        if let Ok(mut stream) = self.local.stream(self.role) {
            stream.decide(&self.consumer, self.sequence, decision, Instant::now());
        }
    }
}
