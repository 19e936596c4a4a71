//! The public API from the caller's side: request and response types, and the HTTP and event-stream
//! client that the command line and the tests share.
//!
//! Must not know: machines, the store, the bus. Statuses and ids are text here, and fields that this
//! version does not know are kept, so that an older client reads a newer server.

mod account;
mod agent;
mod asset;
mod call;
mod catalog;
mod client;
mod error;
mod event;
mod message;
mod mission;
mod page;
mod plan;
mod problem;
mod request;
mod retry;
mod rune;
mod session;
mod sse;
mod turn;

pub use account::{Account, NewAccount};
pub use agent::{Agent, AgentImport, Definition, NewAgent};
pub use asset::{Asset, Step};
pub use call::{Resolution, ToolCall};
pub use catalog::{Machine, McpServer, Model, Tool};
pub use client::Client;
pub use error::ClientError;
pub use event::{Delta, Event, Events, Gap, Progress};
pub use message::{Broadcast, Delivered, Message, Mode, Proclaimed, Sent, Skipped};
pub use mission::{Hop, Mission};
pub use page::{PAGE_MAX, Page, Query};
pub use plan::{Plan, Task};
pub use problem::Problem;
pub use retry::Retry;
pub use rune::{Actor, Move, Rune, Seal};
pub use session::{InFlight, NewSession, Session};
pub use turn::Turn;

/// Fields of an answer that have no name here.
pub type Rest = serde_json::Map<String, serde_json::Value>;
