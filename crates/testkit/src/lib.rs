//! What tests of the whole house stand on: private Postgres and NATS servers, a scripted model, a
//! tool server with a witness ledger, a fault proxy, and waiting on conditions.
//!
//! It must not know the product: nothing here depends on another crate of the workspace, so that a
//! defect of ours cannot hide in the instrument that measures it.

#![allow(clippy::disallowed_methods, reason = "a test stands outside: it goes by its machine's clock")]

mod account;
pub mod binary;
pub mod bucket;
pub mod echo;
mod fetch;
mod http;
pub mod ledger;
pub mod mcp;
pub mod model;
pub mod nats;
pub mod postgres;
pub mod process;
pub mod proxy;
mod server;
pub mod tool;
pub mod wait;

pub use ledger::Ledger;
pub use model::Model;
pub use nats::Nats;
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use tool::Tool;
