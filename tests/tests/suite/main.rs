//! Whole-system tests that run side by side: one program, since each would link the whole house anew.

#![allow(clippy::disallowed_methods, reason = "a test stands outside: it goes by its machine's clock")]

mod account;
mod bad_input;
mod canary;
mod context;
mod crowd;
mod demo;
mod drive;
mod equivalence;
mod family;
mod finish;
mod flow;
mod leftover;
mod mcp;
mod mission;
mod mission_walk;
mod native;
mod provider;
mod readme;
mod recovery;
mod runtime;
mod step;
mod stop;
mod store_budget;
mod store_conformance;
mod store_log;
mod store_outage;
mod store_schema;
mod store_time;
mod store_writer;
mod sweep;
mod trace;
mod turn;
mod workspace;
