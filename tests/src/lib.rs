//! What whole-system tests and benches share: stores on both backends, and a small cast of
//! entities made through the real transition writer.

pub mod cast;
pub mod specimen;
pub mod stage;
