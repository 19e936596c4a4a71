//! What whole-system tests and benches share: stores on both backends, and a small cast of
//! entities made through the real transition writer.

#![allow(clippy::disallowed_methods, reason = "a test stands outside: it goes by its machine's clock")]

pub mod audit;
pub mod cast;
pub mod collector;
pub mod dev;
pub mod fault;
pub mod fleet;
pub mod load;
pub mod mark;
pub mod meter;
pub mod mock;
pub mod nobus;
pub mod pgbench;
pub mod play;
pub mod puppet;
pub mod rules;
pub mod spree;
pub mod stage;
pub mod stopping;
pub mod tally;
pub mod troupe;
pub mod voyage;
