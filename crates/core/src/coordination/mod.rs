//! What two machines may say at the same time: which pairs of states a commit may leave behind.
//!
//! Tables and predicates only; how a commit gets from one allowed pair to the next is the cascades'
//! business. A token that is none of the machine's states is never allowed.

mod agent;
mod hop;
mod step;

pub use agent::{PAIRS, STOP_GRACE_MS, attention, badge, pair_allowed, pair_transient};
pub use hop::{HOPS, HopRow, hop_allowed, hop_transient};
pub use step::{STEPS, StepRow, steps_allowed, steps_allowed_after};
