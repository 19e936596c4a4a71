//! The bus: subjects, streams, delivery. One API, two implementations: NATS JetStream for services
//! that run apart, and one inside the process for `instar dev` and tests.
//!
//! Every message can be lost, repeated or reordered, and the outcome is the same: Postgres is the
//! truth and the bus says where to look. Must not know: the store, machines, services.
//! async-nats stays inside the module `nats`; nothing of it is in the public API.

mod bus;
mod consumer;
mod dead;
mod deliveries;
mod delivery;
mod error;
mod live;
mod local;
mod nats;
mod options;
mod pattern;
mod publish;
mod stats;
pub mod subject;
pub mod topology;
mod version;
mod watch;
mod wire;

pub use bus::Bus;
pub use consumer::{ConsumerSpec, Pull};
pub use deliveries::Deliveries;
pub use delivery::Delivery;
pub use error::{BusError, SubjectError};
pub use instar_proto::v1 as message;
pub use live::{Heard, Listener};
pub use nats::SILENCE_NOTICED;
pub use options::{Connection, Options};
pub use publish::{Receipt, Sent, Stamp};
pub use stats::BusStats;
pub use subject::{Namespace, Subject, Topic, transition_subjects};
pub use watch::Watch;
pub use wire::Wire;
