//! Whole-system tests that run side by side: one program, since each would link the whole house anew.

mod account;
mod bad_input;
mod canary;
mod context;
mod demo;
mod drive;
mod family;
mod flow;
mod mcp;
mod mission;
mod mission_walk;
mod native;
mod readme;
mod recovery;
mod runtime;
mod step;
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
