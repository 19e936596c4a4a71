//! Missions as people and agents work on them: what is proposed, who is asked, what goes on by itself.
//!
//! Pure but for [`advance`]: rows in, commands out. Must not know: HTTP, tools, models.

mod advance;
mod agent;
mod ask;
mod chain;
mod form;
mod inspect;
mod propose;
mod terms;

/// The tools by which an agent answers what a mission asks of it.
pub const TOOLS: [&str; 2] = ["propose_hop_plan", "propose_hop_impl"];

pub use crate::snapshot::stopped_hop;
pub use ask::{MISSION_CAUSE, MISSION_SOURCE, Task, may_replan, mission_of};
pub use chain::chain;
pub use form::{
    ASSETS_MAX, AssetForm, Executor, Faults, HOP_ATTEMPTS, HopForm, MissionEdit, MissionForm, OutputForm,
    STEP_ATTEMPTS, StepForm, Terms, name_scratch,
};
pub use inspect::Inspected;
pub use propose::{
    bearing_scratch, edit_impl, edited, has_input, hop, hop_impl, hop_plan, mission, reset_mission, revise_mission,
    scratch,
};
pub use terms::{TermsEdit, check_terms, set_terms};
