//! Tools of MCP servers: the servers come from the operator's configuration and from nowhere else, are
//! started once per process, supervised, and ended with everything they started.
//!
//! It must not know the store: what servers offer is told as a [`Standing`], and which definitions are
//! accepted comes back in the specs of the calls. Only this folder knows `rmcp`.

mod confided;
mod config;
mod connect;
mod definition;
mod handler;
mod lost;
mod name;
mod pin;
mod process;
mod reply;
mod server;
mod session;

pub use config::{Override, Pin, ServerConfig, Transport, read};
pub use definition::Offered;
pub use name::of_tool as tool_name;
pub use pin::{Known, Pinned, Standing as ToolStanding, pin};
pub use server::{Servers, Standing};
