//! Live messages: sent to whoever listens at this moment, lost by whoever doesn't.
//!
//! A listener's mailbox is bounded. When it is full the oldest message goes and the listener is told
//! that there is a gap, at the place of the gap; memory stays flat however slow it is.
//! Must not know: streams.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::bus::Core;
use crate::wire::{self, Wire};

/// What a listener hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard<T> {
    Message(T),
    /// Messages are missing here: so many, or `None` if the connection was down and nobody knows.
    Gap(Option<u64>),
}

/// A live message before it is decoded.
pub(crate) struct Cast {
    pub(crate) message_type: Option<String>,
    pub(crate) payload: Bytes,
}

#[derive(Default)]
struct Shelf {
    waiting: VecDeque<Cast>,
    lost: u64,
    broken: bool,
}

pub(crate) struct Mailbox {
    shelf: Mutex<Shelf>,
    capacity: usize,
    arrived: Notify,
}

impl Mailbox {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        let shelf = Mutex::default();
        Arc::new(Self { shelf, capacity: capacity.max(1), arrived: Notify::new() })
    }

    /// Puts a message in; true if another one had to go.
    pub(crate) fn put(&self, cast: Cast) -> bool {
        let mut shelf = self.shelf();
        let full = shelf.waiting.len() >= self.capacity;
        if full {
            shelf.waiting.pop_front();
            shelf.lost += 1;
        }
        shelf.waiting.push_back(cast);
        drop(shelf);
        self.arrived.notify_one();
        full
    }

    /// The connection was down: an unknown number of messages is missing.
    pub(crate) fn interrupt(&self) {
        self.shelf().broken = true;
        self.arrived.notify_one();
    }

    async fn take(&self) -> Heard<Cast> {
        loop {
            {
                let mut shelf = self.shelf();
                if shelf.lost > 0 {
                    return Heard::Gap(Some(std::mem::take(&mut shelf.lost)));
                }
                // What waits arrived before the break or after it, which can't be told apart: the
                // gap is reported before it, so that a reader catches up at the earliest.
                if std::mem::take(&mut shelf.broken) {
                    return Heard::Gap(None);
                }
                if let Some(cast) = shelf.waiting.pop_front() {
                    return Heard::Message(cast);
                }
            }
            self.arrived.notified().await;
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Live messages of type `T`, from the moment it was made.
pub struct Listener<T> {
    core: Arc<Core>,
    mailbox: Arc<Mailbox>,
    pump: Option<AbortHandle>,
    carries: PhantomData<fn() -> T>,
}

impl<T: Wire> Listener<T> {
    pub(crate) fn new(core: Arc<Core>, mailbox: Arc<Mailbox>, pump: Option<AbortHandle>) -> Self {
        Self { core, mailbox, pump, carries: PhantomData }
    }

    /// Waits for the next message or gap. Safe to cancel.
    pub async fn next(&mut self) -> Heard<T> {
        loop {
            match self.mailbox.take().await {
                Heard::Gap(lost) => return Heard::Gap(lost),
                Heard::Message(cast) => match wire::read(&cast.payload, cast.message_type.as_deref()) {
                    Ok(value) => return Heard::Message(value),
                    Err(reason) => {
                        self.core.counters.dropped.add(1);
                        tracing::debug!(reason, "live message dropped");
                    }
                },
            }
        }
    }
}

impl<T> Drop for Listener<T> {
    fn drop(&mut self) {
        if let Some(pump) = &self.pump {
            pump.abort();
        }
    }
}
