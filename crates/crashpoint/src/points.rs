//! Every crash point of the workspace; a test compares this list with the sources.
//!
//! A name is `area.operation.before` or `.after`: around each commit, publish, ack and effect.

pub const POINTS: &[&str] = &[
    "runner.ack.after",
    "runner.ack.before",
    "runner.effect.after",
    "runner.effect.before",
    "runtime.publish.after",
    "runtime.publish.before",
    "store.commit.after",
    "store.commit.before",
    "worker.ack.after",
    "worker.ack.before",
    "worker.provider.after",
    "worker.provider.before",
];
