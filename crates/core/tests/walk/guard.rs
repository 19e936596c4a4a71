//! What the tables' `when` column demands and only rows can tell. A row that is not named here has
//! no guard that matters in this world.

use crate::world::World;
use instar_core::cascade::{Fact, Reach, View};
use instar_core::decide::{HopPhase, fix_hop};
use instar_core::id::{Entity, Kind};
use instar_core::machine::{
    Phase, Table, agent_drive, agent_lifecycle, asset, hop, mission, plan, task, tool_call, tool_step, turn,
};

/// Rows that follow from others and are never commands of their own.
const CASCADES: &[&str] = &[
    "D1", "D2", "M6", "M9", "M10", "M16", "M18", "H22", "H25", "H26", "ST6", "ST7", "ST8", "ST11", "ST15", "ST19",
    "AS4", "AS5", "AS6", "AS18", "P22", "K3",
];

pub(crate) fn passes(w: &World, entity: Entity, row: &str, event: &str) -> bool {
    // A sealed log has had its last rune.
    if w.session_is(&["closed", "archived"]) && entity.kind != Kind::Session {
        return false;
    }
    if CASCADES.contains(&row) {
        return false;
    }
    let open = w.session_is(&["created", "active", "paused", "suspended"]);
    let active = w.session_is(&["active"]);
    let is = |table: &Table, e: Option<Entity>, states: &[&str]| {
        e.and_then(|e| w.get(table, e)).is_some_and(|s| states.contains(&s))
    };
    let owner = w.owner(entity);
    match row {
        "S3" => {
            w.owned(w.session, Kind::Agent).first().is_some_and(|a| is(&agent_lifecycle::TABLE, Some(*a), &["idle"]))
        }
        "S16" => live(w).is_empty(),
        "L1" => open && w.owned(w.session, Kind::Agent).len() < 4,
        "D3" | "D4" | "D9" | "D10" | "D25" => {
            is(&agent_lifecycle::TABLE, Some(entity), &["spawning", "idle", "running_turn"])
        }
        "D13" | "D26" => w.session_is(&["created", "active", "paused"]),
        "D5" | "D7" | "D8" | "D19" | "D22" => is(&agent_lifecycle::TABLE, Some(entity), &["idle"]),
        "T26" => {
            w.session_is(&["created", "active", "paused"])
                && is(&agent_lifecycle::TABLE, owner, &["spawning", "idle", "running_turn"])
        }
        "T1" => active && is(&agent_lifecycle::TABLE, owner, &["idle"]) && is(&agent_drive::TABLE, owner, &["running"]),
        "T3" => !w.related(entity, Reach::NewCallsOfTurn).is_empty(),
        // The call that ends last moves the turn on in its own commit.
        "T8" | "T9" => false,
        "T16" => event == "steer",
        "T17" => w.session_is(&["paused"]),
        "T18" => !calls(w, entity).any(|s| s == "awaiting_approval"),
        "C1" => {
            owner.is_some_and(|o| o.kind == Kind::ToolStep)
                && is(&tool_step::TABLE, owner, &["EXECUTING"])
                && !calls(w, owner.unwrap_or(entity)).any(live_call)
        }
        "C7" => active,
        "M1" | "M15" | "P1" => active && w.all.iter().filter(|e| e.kind == entity.kind).count() < 3,
        "M2" => !w.current_hop.contains_key(&entity),
        "M8" => {
            let ready = w.owned(entity, Kind::Asset).iter().all(|a| is(&asset::TABLE, Some(*a), &["READY"]));
            ready && !is(&hop::TABLE, w.current_hop.get(&entity).copied(), &["EXECUTING"])
        }
        "M14" => is(&hop::TABLE, w.current_hop.get(&entity).copied(), &["FAILED"]),
        "M20" => w.stopped.contains_key(&entity),
        "H1" if owner.is_some_and(|m| w.stopped.contains_key(&m)) => false,
        "H1" | "H2" | "H34" => {
            is(&mission::TABLE, owner, &["IN_PROGRESS"]) && owner.is_some_and(|m| !w.current_hop.contains_key(&m))
        }
        "H12" => {
            let steps = steps(w, entity);
            let new = w.related(entity, Reach::NewStepsOfHop).len();
            !steps.contains(&"FAILED") && (new > 0 || steps.iter().any(|s| *s != "CANCELLED"))
        }
        "H15" | "H20" => {
            let live: Vec<&str> = steps(w, entity).into_iter().filter(|s| *s != "CANCELLED").collect();
            let ready = live.iter().all(|s| ["READY_TO_EXECUTE", "COMPLETED"].contains(s));
            let planned = !w.related(entity, Reach::PlanOfHop).is_empty() || w.fact(entity, Fact::ByPlan);
            let carried = !live.is_empty() || planned;
            let startable = || w.owned(entity, Kind::ToolStep).iter().all(|s| w.startable(*s));
            ready && carried && (row == "H15" || active && startable())
        }
        "H21" => {
            !steps(w, entity).is_empty() && steps(w, entity).iter().all(|s| ["COMPLETED", "CANCELLED"].contains(s))
        }
        "H27" => is(&mission::TABLE, owner, &["IN_PROGRESS"]),
        "H28" => w.phase.get(&entity).and_then(|p| fix_hop(*p).ok()).is_some_and(|e| e.token() == event),
        "H29" => w.phase.get(&entity) == Some(&HopPhase::Execute),
        "H30" => matches!(w.phase.get(&entity), Some(HopPhase::Plan | HopPhase::Resolve)),
        "ST1" => is(&hop::TABLE, owner, &["HOP_IMPL_STARTED"]),
        "ST2" | "ST3" | "ST4" => is(&hop::TABLE, owner, &["HOP_IMPL_STARTED", "HOP_IMPL_PROPOSED"]),
        "ST5" => {
            let first = owner.and_then(|hop| {
                w.owned(hop, Kind::ToolStep)
                    .iter()
                    .find(|s| !is(&tool_step::TABLE, Some(**s), &["COMPLETED", "CANCELLED", "deleted"]))
                    .copied()
            });
            is(&hop::TABLE, owner, &["EXECUTING"]) && first == Some(entity) && w.startable(entity)
        }
        "ST12" => is(&hop::TABLE, owner, &["HOP_IMPL_STARTED"]),
        "ST13" => is(&hop::TABLE, owner, &["HOP_IMPL_STARTED", "HOP_IMPL_PROPOSED", "HOP_IMPL_READY"]),
        "ST14" => !is(&hop::TABLE, owner, &["EXECUTING"]),
        "ST16" => {
            let later = owner.map_or(&[][..], |hop| w.owned(hop, Kind::ToolStep)).iter().skip_while(|s| **s != entity);
            is(&hop::TABLE, owner, &["HOP_IMPL_STARTED"])
                && !later.clone().any(|s| is(&tool_step::TABLE, Some(*s), &["COMPLETED"]))
        }
        "ST17" => !is(&hop::TABLE, owner, &["EXECUTING"]),
        "ST18" => is(&hop::TABLE, owner, &["EXECUTING"]),
        "ST20" => {
            let executed = owner.and_then(|hop| w.phase.get(&hop)) == Some(&HopPhase::Execute);
            is(&hop::TABLE, owner, &["FAILED"]) && executed
        }
        "AS1" | "AS17" | "AS19" => open,
        "P3" => !w.related(entity, Reach::NewTasksOfPlan).is_empty(),
        "P4" | "P5" => tasks(w, entity).contains(&"pending"),
        "P9" => {
            !tasks(w, entity).is_empty()
                && tasks(w, entity).iter().all(|s| ["completed", "failed", "cancelled"].contains(s))
        }
        "P10" => false,
        "P16" => tasks(w, entity).contains(&"blocked"),
        "K2" => {
            active
                && is(&plan::TABLE, owner, &["executing"])
                && deps(w, entity).iter().all(|s| *s == "completed")
                && w.agent_of_task.contains_key(&entity)
        }
        "K6" => deps(w, entity).iter().any(|s| ["failed", "cancelled"].contains(s)),
        "K8" => !deps(w, entity).iter().any(|s| ["failed", "cancelled"].contains(s)),
        "K11" => is(&plan::TABLE, owner, &["executing", "blocked"]),
        _ => true,
    }
}

/// What keeps a session from being closed.
pub(crate) fn live(w: &World) -> Vec<(Entity, &'static str)> {
    let of = |table: &'static Table, kind: Kind| {
        let all = w.all.iter().filter(move |e| e.kind == kind);
        let states = all.filter_map(move |e| Some((*e, w.get(table, *e)?)));
        states.filter(|(_, s)| table.phase(s) != Some(Phase::Terminal))
    };
    let agents = of(&agent_lifecycle::TABLE, Kind::Agent);
    agents.chain(of(&turn::TABLE, Kind::Turn)).chain(of(&tool_call::TABLE, Kind::ToolCall)).collect()
}

fn live_call(state: &str) -> bool {
    tool_call::TABLE.phase(state) != Some(Phase::Terminal)
}

fn calls(w: &World, of: Entity) -> impl Iterator<Item = &'static str> {
    w.owned(of, Kind::ToolCall).iter().filter_map(|c| w.get(&tool_call::TABLE, *c))
}

fn steps(w: &World, hop: Entity) -> Vec<&'static str> {
    let steps = w.owned(hop, Kind::ToolStep).iter().filter_map(|s| w.get(&tool_step::TABLE, *s));
    steps.filter(|s| *s != "deleted").collect()
}

fn tasks(w: &World, plan: Entity) -> Vec<&'static str> {
    w.owned(plan, Kind::Task).iter().filter_map(|t| w.get(&task::TABLE, *t)).collect()
}

fn deps(w: &World, of: Entity) -> Vec<&'static str> {
    w.related(of, Reach::DependenciesOfTask).iter().filter_map(|t| w.get(&task::TABLE, *t)).collect()
}
