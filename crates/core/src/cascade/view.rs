//! What the caller knows before the commit, and what the moves so far have made of it.

use super::Reach;
use crate::decide;
use crate::id::Entity;
use crate::machine::{Table, tool_step};
use std::collections::HashMap;

/// A yes or no about an entity that no state tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// Agent: its session's first one.
    Root,
    /// Agent: brought in from a definition instead of being made.
    Loaded,
    /// Agent: its turn failed by a class that stops the drive.
    DriveFatal,
    /// Turn: it is the last of so many in a row that passed their deadline, that its agent needs a person.
    LateTooOften,
    /// Agent: the turn that ended had a synthetic prompt.
    Nudged,
    /// Agent: nudges without a user message are used up.
    NudgeLimit,
    /// Agent: a kill waits for the end of its turn.
    KillPending,
    /// Agent: its parent ended while it was in a turn.
    ParentEnded,
    /// Agent: its own limit is spent and `on_budget` is terminate.
    BudgetTerminates,
    /// Agent: its own limit is spent and `on_budget` is stop.
    BudgetStops,
    /// Turn: what was spent is a limit of its agent.
    AgentBudget,
    /// Turn: what was spent is a limit of its session.
    SessionBudget,
    /// Session: the pause interrupts what is in flight.
    InterruptInFlight,
    /// Session: drive-fatal errors reached the threshold.
    ErrorThreshold,
    /// Mission: it does not outlive its session.
    Attached,
    /// Hop: the mission's last.
    Final,
    /// Hop: the retry starts from the first step.
    Restart,
    /// Hop: what was lost can be found again.
    Repairable,
    /// Step: the proposal names its tool.
    ToolChosen,
    /// Step: its mappings and resources are valid.
    Configured,
    /// Step: its inputs are READY and its session is active.
    Startable,
    /// Plan: the first failed task stops it.
    StopOnFirstFailure,
    /// Hop: a plan carries it out, and no steps.
    ByPlan,
    /// Plan: what came of it fits what its hop has to make.
    Delivers,
    /// Plan: it is a person who ends it.
    ByPerson,
}

/// Rows and relations as they were before the commit. Relations may be generous: what is in no
/// fitting state is passed over. Ids given to newcomers are known here with all their relations.
pub trait View {
    /// `None`: it does not exist yet.
    fn state(&self, table: &'static Table, entity: Entity) -> Option<&str>;
    fn related(&self, of: Entity, reach: Reach) -> Vec<Entity>;
    fn fact(&self, of: Entity, fact: Fact) -> bool;
    /// Attempts of a task, repairs of a hop, configurations of a hop's steps.
    fn tries(&self, of: Entity) -> decide::Tries;
    /// What policy has to judge; `None` leaves the call pending.
    fn gate(&self, call: Entity) -> Option<decide::Call>;
    fn finished_tools(&self, turn: Entity) -> decide::FinishedTools;
    /// The attempt behind a step's call; its status comes from the call's move.
    fn attempt(&self, call: Entity) -> decide::Attempt;
    /// How a failed hop failed; the phase of a failure in this commit comes from the hop's move.
    fn failed_hop(&self, hop: Entity) -> decide::FailedHop;
}

/// A view with the moves of the commit so far laid over it.
pub(super) struct Seen<'a> {
    pub view: &'a dyn View,
    pub moved: HashMap<(&'static str, Entity), &'static str>,
}

impl Seen<'_> {
    pub(super) fn state(&self, table: &'static Table, entity: Entity) -> Option<&str> {
        match self.moved.get(&(table.name, entity)) {
            Some(state) => Some(state),
            None => self.view.state(table, entity),
        }
    }

    pub(super) fn related(&self, of: Entity, reach: Reach) -> Vec<Entity> {
        let Some(table) = reach.table() else { return vec![of] };
        if reach == Reach::NextStep {
            return self.next_step(of).into_iter().collect();
        }
        let mut found = self.view.related(of, reach);
        for new in reach.newcomers() {
            let born = self.view.related(of, *new).into_iter().filter(|e| self.state(table, *e).is_some());
            found.extend(born.collect::<Vec<_>>());
        }
        found.retain(|e| reach.means(self.state(table, *e)));
        found
    }

    /// Steps of a hop that count, in order, with their states.
    pub(super) fn live_steps(&self, hop: Entity) -> Vec<(Entity, &str)> {
        let gone = [tool_step::State::Cancelled.token(), tool_step::State::Deleted.token()];
        let steps = self.related(hop, Reach::StepsOfHop).into_iter();
        steps
            .filter_map(|step| self.state(&tool_step::TABLE, step).map(|state| (step, state)))
            .filter(|(_, state)| !gone.contains(state))
            .collect()
    }

    fn next_step(&self, of: Entity) -> Option<Entity> {
        let hop = match of.kind {
            crate::id::Kind::Hop => of,
            _ => *self.related(of, Reach::HopOfStep).first()?,
        };
        let done = tool_step::State::Completed.token();
        self.live_steps(hop).into_iter().find(|(_, state)| *state != done).map(|(step, _)| step)
    }
}
