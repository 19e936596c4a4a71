//! sea-orm entities, one per table.

pub mod agent;
pub mod api_key;
pub mod idempotency_key;
pub mod message;
pub mod rune;
pub mod seal;
pub mod session;
pub mod timer;
pub mod tool_call;
pub mod turn;
pub mod worker;
