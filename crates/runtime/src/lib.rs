//! What the services share: store and bus joined, commands with their cascades, leases kept.

mod act;
pub mod config;
pub mod drain;
pub mod flow;
pub mod health;
mod hub;
mod keeper;
mod publisher;
mod snapshot;
pub mod telemetry;
mod tell;
mod wire;

pub use act::{Act, ActError, Done};
pub use hub::Hub;
pub use keeper::{Keeper, LeaseState};
pub use snapshot::Snapshot;
