//! The crate from outside: everything that a runner promises, against real servers and processes.

mod argument;
mod bomb;
mod builtin;
mod command;
mod egress;
mod escape;
mod fetch;
mod http;
mod kit;
mod lifecycle;
mod registry;
mod secret;
