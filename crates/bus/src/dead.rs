//! The way of a message that nobody can handle: kept with its reason, then never delivered again.
//!
//! Must not know: why it can't be handled.

use std::time::Duration;

use bytes::Bytes;
use instar_proto::v1::DeadLetter;
use prost::Message;

use crate::delivery::{Decision, Held, Parcel};
use crate::error::BusError;
use crate::publish::{Outgoing, Stamp};
use crate::topology::Role;
use crate::wire::Wire;

/// Room a letter needs besides payload and headers.
const LETTER_BYTES: usize = 1024;
const REASON_BYTES_MAX: usize = 512;
/// How long a message waits that could not even be buried.
const UNBURIED_DELAY: Duration = Duration::from_secs(30);

/// Stores the letter first and ends the message second, so that a crash in between repeats the
/// burial (recognised by its id) and never loses the message.
pub(crate) async fn bury(mut held: Held, reason: &str) -> Result<(), BusError> {
    tracing::warn!(subject = held.parcel.subject, deliveries = held.parcel.deliveries, reason, "message given up");
    // A dead letter has no further stream to go to.
    if held.parcel.role != Role::Dead {
        let core = held.core().clone();
        let letter = letter(&held.parcel, reason, core.payload_bytes_max());
        let subject = core.space.dead(held.parcel.role.token())?;
        let id = format!("dead:{}", held.parcel.origin);
        let out =
            Outgoing::new(subject.as_str(), DeadLetter::NAME, Bytes::from(letter.encode_to_vec()), Stamp::new(&id))?;
        if let Err(error) = core.deposit(out).await {
            held.decide(Decision::Nak(UNBURIED_DELAY)).await?;
            return Err(error);
        }
    }
    held.core().counters.dead_lettered.add(1);
    held.decide(Decision::Term).await
}

fn letter(parcel: &Parcel, reason: &str, bytes_max: usize) -> DeadLetter {
    let headers_bytes: usize = parcel.headers.iter().map(|(k, v)| k.len() + v.len() + 8).sum();
    // A message near the limit plus its letter would be over it: the end of the payload gives way,
    // and headers go first if they alone are too large.
    let headers_fit = headers_bytes + LETTER_BYTES < bytes_max;
    let room = bytes_max.saturating_sub(LETTER_BYTES + if headers_fit { headers_bytes } else { 0 });
    DeadLetter {
        subject: parcel.subject.clone(),
        reason: reason.chars().take(REASON_BYTES_MAX / 4).collect(),
        payload: parcel.payload.slice(..parcel.payload.len().min(room)),
        headers: if headers_fit { parcel.headers.iter().cloned().collect() } else { Default::default() },
        first_seen: parcel.stored_at,
        deliveries: parcel.deliveries,
        payload_bytes: parcel.payload.len() as u64,
    }
}
