//! The public surface: REST, SSE, OpenAPI and keys.
//!
//! One list of routes ([`route`]) yields the router, the rights and the OpenAPI document; every
//! request walks the same way ([`pipeline`]): span, key, role, body, idempotency, handler. A handler
//! reads rows, builds a commit or raises an event on a machine, and answers with what is durable.
//! It must not know how turns are run or tools are called.

mod auth;
mod call;
mod document;
mod idempotency;
mod keyed;
mod listen;
mod pace;
mod page;
mod pipeline;
mod problem;
mod resource;
mod route;
mod server;
mod settle;
mod shape;
mod state;
mod stream;
mod strict;
mod svg;

pub use auth::{Role, ensure_key};
pub use document::openapi;
pub use server::{ApiError, Catalog, Serving, serve};
