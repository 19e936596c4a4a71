//! Instar's domain, pure: machines, runes, ids, hashes and replay. No I/O, no async, no clock.

pub mod cascade;
pub mod coordination;
pub mod decide;
pub mod doc;
pub mod fold;
pub mod id;
pub mod invariant;
pub mod machine;
pub mod rune;
pub mod vocabulary;
