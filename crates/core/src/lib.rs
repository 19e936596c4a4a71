//! Instar's domain, pure: machines, runes, ids, hashes, replay, budgets and what a model is sent. No I/O, no async, no
//! clock.

pub mod asset;
pub mod budget;
pub mod cascade;
pub mod context;
pub mod coordination;
pub mod decide;
pub mod doc;
pub mod fold;
pub mod id;
pub mod invariant;
pub mod machine;
pub mod mapping;
pub mod plan;
pub mod rune;
pub mod secret;
pub mod vocabulary;
