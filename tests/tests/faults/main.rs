//! Processes that are killed under load, and what must be true afterwards.

mod broadcast;
mod family;
mod lively;
mod nobus;
mod plan;
mod step;
mod turn;
