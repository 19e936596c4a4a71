//! Commands in the older words, translated into events of the stored machines.

use crate::decide::{self, HopPhase, NotNow};
use crate::machine::{hop, mission};

/// What a client of the older vocabulary may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    AcceptMission,
    AcceptHopProposal,
    ApproveDesign,
    /// Approve and execute at once.
    ApproveDesignAndRun,
    RejectDesign,
    TriggerExecution,
    RequestChanges,
    FixIssues,
    CancelMission,
    /// The older vocabulary ends the whole mission by it.
    CancelExecution,
    CancelHop,
    ResetMission,
    ResetHop,
    DeleteHop,
}

/// An event to raise, on the mission or on the hop the command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    Mission(mission::Event),
    Hop(hop::Event),
}

impl Raise {
    pub const fn machine(self) -> &'static str {
        match self {
            Raise::Mission(_) => mission::TABLE.name,
            Raise::Hop(_) => hop::TABLE.name,
        }
    }

    pub const fn event(self) -> &'static str {
        match self {
            Raise::Mission(event) => event.token(),
            Raise::Hop(event) => event.token(),
        }
    }
}

/// The events of one commit, in order. `hop` is the one the command is about, if any, and `failed`
/// the phase it failed in. Whether they are legal is the tables' answer: an event that is refused
/// tells the caller what is allowed instead.
pub fn translate(command: Command, hop: Option<hop::State>, failed: Option<HopPhase>) -> Result<Vec<Raise>, NotNow> {
    use hop::{Event, State};
    let on_mission = |event| Ok(vec![Raise::Mission(event)]);
    let on_hop = |events: &[Event]| match hop {
        Some(_) => Ok(events.iter().copied().map(Raise::Hop).collect()),
        None => Err(NotNow { advice: "there is no hop to do this to" }),
    };
    match (command, hop) {
        (Command::AcceptMission, _) => on_mission(mission::Event::ApproveMission),
        (Command::CancelMission | Command::CancelExecution, _) => on_mission(mission::Event::CancelMission),
        (Command::ResetMission, _) => on_mission(mission::Event::ResetMission),
        (Command::AcceptHopProposal, _) => on_hop(&[Event::ApproveHopPlan]),
        (Command::ApproveDesign, _) => on_hop(&[Event::ApproveHopImpl]),
        // HOP_IMPL_PROPOSED shows as READY_TO_EXECUTE, where one may run it or turn it down.
        (Command::ApproveDesignAndRun, _) | (Command::TriggerExecution, Some(State::ImplProposed)) => {
            on_hop(&[Event::ApproveHopImpl, Event::ExecuteHop])
        }
        (Command::TriggerExecution, _) => on_hop(&[Event::ExecuteHop]),
        (Command::RequestChanges, Some(State::ImplProposed)) => on_hop(&[Event::RejectHopImpl]),
        (Command::RejectDesign, Some(State::ImplReady)) => on_hop(&[Event::RequestHopChanges]),
        (Command::RequestChanges, _) => on_hop(&[Event::RequestHopChanges]),
        (Command::RejectDesign, _) => on_hop(&[Event::RejectHopImpl]),
        (Command::FixIssues, _) => {
            let failed = failed.ok_or(NotNow { advice: "the hop has not failed" })?;
            on_hop(&[decide::fix_hop(failed)?])
        }
        (Command::CancelHop, Some(State::Executing)) => on_hop(&[Event::StopHop]),
        (Command::CancelHop, _) => on_hop(&[Event::CancelHop]),
        (Command::ResetHop, _) => on_hop(&[Event::ResetHop]),
        (Command::DeleteHop, Some(State::PlanProposed)) => on_hop(&[Event::DiscardHop]),
        // It shows as PROPOSED, which may be deleted; but an agent may be at work on it.
        (Command::DeleteHop, Some(State::PlanStarted)) => on_hop(&[Event::CancelHop, Event::DeleteHop]),
        (Command::DeleteHop, _) => on_hop(&[Event::DeleteHop]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Answer, By, apply};
    use Command::*;
    use hop::State as Hop;

    /// Rows taken by the command from a hop, one after another; a refusal ends the list with `409`.
    fn rows(command: Command, from: Hop, failed: Option<HopPhase>) -> Vec<&'static str> {
        let mut at = from.token();
        let mut rows = Vec::new();
        for raise in translate(command, Some(from), failed).expect("translates") {
            assert_eq!(raise.machine(), "hop");
            match apply(&hop::TABLE, Some(at), raise.event(), By::User) {
                Answer::Moves(mv) => {
                    at = mv.to();
                    rows.push(mv.row());
                }
                _ => rows.push("409"),
            }
        }
        rows
    }

    #[test]
    fn a_command_on_a_hop_takes_the_rows_of_the_specification() {
        let cases: &[(Command, Hop, &[&str])] = &[
            (AcceptHopProposal, Hop::PlanProposed, &["H4"]),
            (ApproveDesign, Hop::ImplProposed, &["H15"]),
            (ApproveDesignAndRun, Hop::ImplProposed, &["H15", "H20"]),
            (RejectDesign, Hop::ImplProposed, &["H16"]),
            (RejectDesign, Hop::ImplReady, &["H19"]),
            (TriggerExecution, Hop::ImplReady, &["H20"]),
            (TriggerExecution, Hop::ImplProposed, &["H15", "H20"]),
            (TriggerExecution, Hop::Executing, &["409"]),
            (RequestChanges, Hop::PlanReady, &["H10"]),
            (RequestChanges, Hop::ImplStarted, &["H10"]),
            (RequestChanges, Hop::ImplProposed, &["H16"]),
            (RequestChanges, Hop::ImplReady, &["H19"]),
            (CancelHop, Hop::Executing, &["H23"]),
            (CancelHop, Hop::PlanStarted, &["H24"]),
            (CancelHop, Hop::Failed, &["H31"]),
            (ResetHop, Hop::Cancelled, &["H34"]),
            (DeleteHop, Hop::PlanStarted, &["H24", "H33"]),
            (DeleteHop, Hop::PlanProposed, &["H6"]),
            (DeleteHop, Hop::Failed, &["H32"]),
            (DeleteHop, Hop::Cancelled, &["H33"]),
            (DeleteHop, Hop::Executing, &["409"]),
        ];
        for (command, from, expected) in cases {
            assert_eq!(rows(*command, *from, None), *expected, "{command:?} from {from:?}");
        }
        for phase in [HopPhase::Resolve, HopPhase::Impl, HopPhase::Execute] {
            assert_eq!(rows(FixIssues, Hop::Failed, Some(phase)), ["H28"]);
        }
        assert!(translate(FixIssues, Some(Hop::Failed), Some(HopPhase::Plan)).is_err());
        assert!(translate(FixIssues, Some(Hop::Executing), None).is_err());
        assert!(translate(TriggerExecution, None, None).is_err());
    }

    #[test]
    fn a_command_on_a_mission_needs_no_hop() {
        let cases = [
            (AcceptMission, "AWAITING_APPROVAL", "M2"),
            (CancelMission, "IN_PROGRESS", "M12"),
            (CancelExecution, "IN_PROGRESS", "M12"),
            (CancelMission, "FAILED", "M13"),
            (ResetMission, "COMPLETED", "M15"),
        ];
        for (command, from, expected) in cases {
            let events = translate(command, None, None).expect("translates");
            let [raise] = events[..] else { panic!("{events:?}") };
            assert_eq!(raise.machine(), "mission");
            let Answer::Moves(mv) = apply(&mission::TABLE, Some(from), raise.event(), By::User) else { panic!() };
            assert_eq!(mv.row(), expected);
        }
    }
}
