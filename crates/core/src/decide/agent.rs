//! How an agent is ended, and what a spent budget does to it.

use crate::machine::{agent_drive, agent_lifecycle};

/// An event of either half of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    Lifecycle(agent_lifecycle::Event),
    Drive(agent_drive::Event),
}

/// What an agent-scoped budget does when it is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBudget {
    /// The agent ends: the default for spawned sub-agents.
    Terminate,
    /// The agent stops and may be relaunched: the default for fleet agents.
    Stop,
}

/// Completed turns in a row that nothing but a nudge was the cause of, until an agent rests.
pub const NUDGES_MAX: i64 = 3;

/// Without force a running turn reaches its end first.
pub const fn kill(force: bool) -> agent_lifecycle::Event {
    if force { agent_lifecycle::Event::KillForced } else { agent_lifecycle::Event::Kill }
}

/// An agent-scoped limit is spent. In a turn the answer asks for the turn's end; ask again when
/// the agent is idle. `None`: nothing to do now, and no turn starts while the budget is spent.
pub fn budget_exhausted(
    lifecycle: agent_lifecycle::State,
    drive: agent_drive::State,
    on_budget: OnBudget,
) -> Option<AgentEvent> {
    use agent_lifecycle::State;
    match (lifecycle, on_budget) {
        (State::RunningTurn, _) | (State::Idle, OnBudget::Terminate) => {
            Some(AgentEvent::Lifecycle(agent_lifecycle::Event::BudgetExhausted))
        }
        (State::Idle, OnBudget::Stop) => {
            (drive == agent_drive::State::Running).then_some(AgentEvent::Drive(agent_drive::Event::BudgetExhausted))
        }
        (State::Spawning | State::Terminated | State::Failed, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Answer, By, apply};
    use agent_drive::State as Drive;
    use agent_lifecycle::State as Life;

    fn row(event: AgentEvent, life: Life, drive: Drive) -> &'static str {
        let answer = match event {
            AgentEvent::Lifecycle(e) => apply(&agent_lifecycle::TABLE, Some(life.token()), e.token(), By::System),
            AgentEvent::Drive(e) => apply(&agent_drive::TABLE, Some(drive.token()), e.token(), By::System),
        };
        let Answer::Moves(mv) = answer else { panic!("{answer:?}") };
        mv.row()
    }

    #[test]
    fn a_kill_takes_the_row_that_its_force_and_the_lifecycle_ask_for() {
        let cases = [
            (Life::RunningTurn, true, "L8"),
            (Life::RunningTurn, false, "L13"),
            (Life::Idle, true, "L9"),
            (Life::Idle, false, "L9"),
            (Life::Spawning, true, "L12"),
            (Life::Spawning, false, "L12"),
        ];
        for (life, force, expected) in cases {
            assert_eq!(row(AgentEvent::Lifecycle(kill(force)), life, Drive::Idle), expected);
        }
    }

    #[test]
    fn a_spent_budget_ends_the_turn_first_and_then_ends_or_stops_the_agent() {
        use OnBudget::*;
        let cases = [
            (Life::RunningTurn, Drive::Running, Terminate, Some("L15")),
            (Life::RunningTurn, Drive::Running, Stop, Some("L15")),
            (Life::Idle, Drive::Running, Terminate, Some("L11")),
            (Life::Idle, Drive::Stopped, Terminate, Some("L11")),
            (Life::Idle, Drive::Running, Stop, Some("D21")),
            (Life::Idle, Drive::Idle, Stop, None),
            (Life::Idle, Drive::Errored, Stop, None),
            (Life::Spawning, Drive::Idle, Terminate, None),
            (Life::Terminated, Drive::Stopped, Stop, None),
            (Life::Failed, Drive::Errored, Terminate, None),
        ];
        for (life, drive, on_budget, expected) in cases {
            let found = budget_exhausted(life, drive, on_budget).map(|e| row(e, life, drive));
            assert_eq!(found, expected, "{life:?} {drive:?} {on_budget:?}");
        }
    }
}
