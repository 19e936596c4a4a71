//! The API as its callers meet it: a real server on a free port, asked over HTTP.

#![allow(clippy::disallowed_methods, reason = "a test stands outside: it goes by its machine's clock")]

mod access;
mod agent;
mod broadcast;
mod document;
mod idempotency;
mod input;
mod kit;
mod message;
mod mission;
mod rune;
mod session;
mod stream;
mod tool_call;
mod turn;
mod waiting;
