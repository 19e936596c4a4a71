//! The store: sea-orm entities, the one transition writer, leases, timers, and queries by noun.
//!
//! It knows the machines and the database; it does not know the bus.

pub mod clock;
pub mod entity;

mod account;
mod addressee;
mod api_key;
mod archive;
mod backlog;
mod broadcast;
mod budget;
mod commit;
mod connect;
mod control;
mod error;
mod family;
mod gather;
mod idempotency;
mod installation;
mod lease;
mod log;
mod mcp;
mod mission;
mod plan;
mod pool;
mod ready;
mod registered;
mod scene;
mod schema;
mod search;
mod state;
mod statistics;
mod step;
mod sweep;
mod table;
mod timer;
mod transaction;
mod writer;

pub use account::{Claim, NewAccount, RELEASES, Release, Waiting, Wanted};
pub use addressee::Addressee;
pub use api_key::NewKey;
pub use archive::Moving;
pub use commit::{
    Answer, COMMIT_BYTES_MAX, Change, Commit, Found, Landed, Outline, PAYLOAD_BYTES_MAX, RUNES_MAX, RuneOutline,
    WRITES_MAX,
};
pub use connect::{Options, Store};
pub use error::StoreError;
pub use family::Kin;
pub use idempotency::Repeat;
pub use installation::fresh_key;
pub use lease::Lease;
pub use log::PAGE_MAX;
pub use mcp::Edition;
pub use mission::{AGENT_STOPPED, MissionRows};
pub use pool::Pool;
pub use scene::{Scene, TAKEN_MAX};
pub use search::{EXCERPT_CHARS_MAX, Match, Place, SEARCHED_MAX};
pub use state::State;
pub use sweep::{After, Due};
pub use table::Table;
pub use transaction::Body;
pub use writer::WriterStats;
