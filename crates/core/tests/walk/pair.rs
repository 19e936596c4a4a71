//! What the composed states must never say at the same time.

use crate::world::World;
use instar_core::coordination::{hop_allowed, pair_allowed, steps_allowed};
use instar_core::id::{Entity, Kind};
use instar_core::machine::{Phase, Table, agent_drive, agent_lifecycle, hop, mission, tool_call, tool_step, turn};

/// Pairs outside the tables; empty after every commit.
pub(crate) fn contradictions(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    let state = |table: &Table, e: Entity| world.get(table, e).unwrap_or("nothing");
    for &e in &world.all {
        match e.kind {
            Kind::Agent => {
                let (life, drive) = (state(&agent_lifecycle::TABLE, e), state(&agent_drive::TABLE, e));
                if !pair_allowed(life, drive) {
                    found.push(format!("{e}: {life} × {drive}"));
                }
                let live = |t: &&Entity| ["streaming", "tool_executing"].contains(&state(&turn::TABLE, **t));
                let turns = world.owned(e, Kind::Turn).iter().filter(live).count();
                if turns != usize::from(life == "running_turn") {
                    found.push(format!("{e}: {life} with {turns} live turns"));
                }
            }
            Kind::Turn => {
                let calls = world.owned(e, Kind::ToolCall).iter();
                let open = calls
                    .filter(|c| tool_call::TABLE.phase(state(&tool_call::TABLE, **c)) != Some(Phase::Terminal))
                    .count();
                let waits = state(&turn::TABLE, e) == "tool_executing";
                if waits != (open > 0) {
                    found.push(format!("{e}: {} with {open} open calls", state(&turn::TABLE, e)));
                }
            }
            Kind::Mission => {
                let hop = world.current_hop.get(&e).map(|h| state(&hop::TABLE, *h));
                if !hop_allowed(state(&mission::TABLE, e), hop) {
                    found.push(format!("{e}: {} × {hop:?}", state(&mission::TABLE, e)));
                }
            }
            Kind::Hop => {
                let steps = world.owned(e, Kind::ToolStep).iter();
                let steps: Vec<&str> =
                    steps.map(|s| state(&tool_step::TABLE, *s)).filter(|s| *s != "deleted").collect();
                if !steps_allowed(state(&hop::TABLE, e), &steps) {
                    found.push(format!("{e}: {} × {steps:?}", state(&hop::TABLE, e)));
                }
            }
            _ => {}
        }
    }
    found
}
