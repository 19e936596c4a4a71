//! Models of several providers behind one vocabulary: a conversation goes in, events come out.
//!
//! Provider HTTP lives only here. Must not know: turns, storage, tools beyond their description. It
//! keeps nothing between calls but connections: limits shared by workers, circuits and long waits are
//! the caller's, who gets errors that say what they mean and when to try again.

mod anthropic;
pub mod attribute;
mod build;
mod call;
mod circuit;
mod classify;
mod config;
mod error;
mod event;
pub mod history;
mod http;
mod measure;
mod message;
mod openai;
mod options;
mod provider;
mod reader;
mod registry;
mod response;
mod retry;
mod scripted;
pub mod sse;

pub use call::{Arguments, Flaw, ToolCall};
pub use config::{ConfigError, Kind, ModelConfig};
pub use error::{Class, ModelError};
pub use event::{Event, EventStream, Finish, Usage};
pub use message::{Assistant, Dialect, Message, ProviderBlock, Request, ToolChoice, ToolResult, ToolSpec};
pub use options::Limits;
pub use provider::{About, Provider};
pub use registry::Models;
pub use response::{Accumulator, Response, collect};
pub use retry::{Retry, chance};
pub use scripted::{Script, Scripted};
