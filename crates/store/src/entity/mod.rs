//! sea-orm entities, one per table.

pub mod account;
pub mod agent;
pub mod api_key;
pub mod archive;
pub mod asset;
pub mod asset_version;
pub mod broadcast;
pub mod budget;
pub mod critique;
pub mod hop;
pub mod idempotency_key;
pub mod mcp_server;
pub mod mcp_tool;
pub mod message;
pub mod mission;
pub mod plan;
pub mod plan_turn;
pub mod rune;
pub mod seal;
pub mod session;
pub mod task;
pub mod timer;
pub mod tool_call;
pub mod tool_step;
pub mod turn;
pub mod worker;
