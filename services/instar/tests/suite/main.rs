//! The compiled command against a server that answers as the contract says.

mod file;
mod kit;
mod noun;
mod send;
mod start;
