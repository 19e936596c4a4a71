//! Other words for the same things: the older vocabulary of missions and hops as a view of the
//! stored states, its commands, and older names of states.
//!
//! Nothing stored is ever in these words; the view is computed and the commands are translated.

mod alias;
mod command;
mod view;
#[cfg(test)]
mod walk;

pub use alias::{canonical_mapping, canonical_state};
pub use command::{Command, Raise, translate};
pub use view::{HopView, MissionView, project, refine};
