//! From rows to what a model is sent: for the worker that sends it, and for whoever asks later what was sent.
//!
//! Both go through the same functions on the same rows, so that what was sent need not be stored: what
//! earlier turns said never changes. What may change (instructions, slots, limits) is noted in the turn's
//! row where it had a part in it, together with a digest ([`Frozen`]).

mod entry;
mod frozen;
mod slot;
mod window;

pub use entry::shown_bytes;
pub use frozen::{Frozen, Sent, Tried};
pub use slot::{Facts, Needs};
pub use window::{SUMMARY, epoch, forget, is_prompt, latest_loop, since, summary, uncovered, window};

use crate::flow::NUDGE;
use crate::plan::Work;
use instar_core::context::{Budget, Composed, Digest, Input, SnapshotKey, compose as compose_input, digest_of};
use instar_store::entity::{agent, message, tool_call, turn};

/// The newest calls of earlier turns that a turn sees which goes on with an older prompt.
pub const CALLS_MAX: u64 = 64;

/// What is known of a turn and of what was said before it.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub agent: &'a agent::Model,
    pub turn: &'a turn::Model,
    /// Of this turn and of earlier ones, in any order.
    pub messages: &'a [message::Model],
    /// Of this turn.
    pub calls: &'a [tool_call::Model],
    /// Of earlier turns.
    pub earlier: &'a [tool_call::Model],
    /// Answers of this turn that the call sees: one less than its number.
    pub answers: i64,
}

/// What a composition depends on besides the rows.
pub struct Setting<'a> {
    pub facts: &'a Facts,
    pub snapshot: &'a dyn Fn(&str) -> Option<SnapshotKey>,
    pub budget: Budget,
    /// Messages of earlier turns, at the most.
    pub window: usize,
}

/// Whether a person, an agent or a broadcast said something that this turn answers.
pub fn is_prompted(turn: &turn::Model, messages: &[message::Model]) -> bool {
    messages.iter().any(|m| m.turn_id == Some(turn.id) && window::is_prompt(m))
}

pub fn template(agent: &agent::Model) -> Option<&str> {
    agent.config["system_prompt"].as_str()
}

/// Of the model and what it is offered; `None` where it is offered nothing.
pub fn tools_digest<'a>(model: &'a str, definitions: impl Iterator<Item = &'a str>) -> Option<Digest> {
    let mut definitions = definitions.peekable();
    definitions.peek()?;
    Some(digest_of(std::iter::once(model).chain(definitions)))
}

/// Calls of earlier turns are shown to an agent that can still make some.
pub fn has_tools(agent: &agent::Model) -> bool {
    agent.config["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

pub fn compose<'a>(rows: Rows<'a>, setting: &'a Setting<'a>) -> Composed<'a> {
    let Rows { agent, turn, messages, calls, earlier, answers } = rows;
    let (history, own) = window::parts(rows, setting.window);
    let covered = summary(turn, messages, answers).and_then(since);
    // Calls of a turn that is not shown are not shown either.
    let shown = |call: &tool_call::Model| history.iter().any(|m| m.turn_id == call.turn_id);
    let apart = Work::of(turn).is_some() && !earlier.iter().all(shown);
    let earlier = if has_tools(agent) && !apart { earlier } else { &[] };
    let earlier = &earlier[earlier.partition_point(|call| call.turn_id < covered)..];
    let epoch = epoch(turn, messages);
    compose_input(Input {
        system: template(agent),
        slots: setting.facts.slots(agent),
        history: entry::of_turns(&history, earlier),
        turn: entry::of_turn(&own, calls, answers),
        epoch,
        nudge: turn.cause == NUDGE,
        snapshot: setting.snapshot,
        budget: setting.budget,
    })
}
