//! What the services share: store and bus joined, commands with their cascades, leases kept.

mod act;
pub mod flow;
mod hub;
mod keeper;
mod publisher;
mod snapshot;
mod tell;
mod wire;

pub use act::{Act, ActError, Done};
pub use hub::Hub;
pub use keeper::{Keeper, LeaseState};
pub use snapshot::Snapshot;
