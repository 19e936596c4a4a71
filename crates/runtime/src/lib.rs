//! What the services share: store and bus joined, commands with their cascades, leases kept.

mod act;
mod boot;
pub mod config;
pub mod drain;
pub mod flow;
pub mod health;
mod hub;
mod insist;
mod keeper;
mod live;
pub mod order;
mod published;
mod publisher;
mod seal;
mod snapshot;
pub mod telemetry;
mod tell;
mod wake;
mod wire;

pub use act::{Act, ActError, Done};
pub use boot::{BootError, Context};
pub use hub::Hub;
pub use insist::Insisted;
pub use keeper::{Keeper, LeaseState};
pub use published::Published;
pub use snapshot::Snapshot;
pub use wake::{CLASS, INLINE_BYTES_MAX, LANE, Ready, Startable};
