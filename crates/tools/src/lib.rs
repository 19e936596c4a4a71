//! Runs tools: what a tool is, which arguments it takes, where it may reach, and exactly one
//! outcome for every call.
//!
//! It must not know the store, the bus, or who decided that a call may run.

mod argument;
mod builtin;
pub mod canonical;
mod capture;
mod command;
pub mod egress;
mod http;
mod inject;
pub mod mcp;
mod native;
mod outcome;
mod pattern;
mod registry;
mod runner;
pub mod sandbox;
mod secret;
mod spec;
mod tool;

pub use argument::{ARGUMENT_BYTES_MAX, ARGUMENT_DEPTH_MAX, Invalid};
pub use builtin::Builtin;
pub use native::{FOUND_DEFAULT, FOUND_MAX, Native, ROLES};
pub use outcome::{Failure, Outcome, Output, Progress, Sink, Stream, code};
pub use pattern::{Pattern, beyond};
pub use registry::{Edition, Refused, Registry, Unknown};
pub use runner::{Broken, Invocation, Runner, Settings};
pub use secret::{Account, Secrets};
pub use spec::{Kind, Method, Problem, Remote, SnapshotKey, Spec, Workspace, digest};
pub use tool::{Offer, Origin, Tool};
