//! Who has to act next for a mission to go on.

use crate::machine::{hop, mission};
use serde::{Deserialize, Serialize};

/// How a gate opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatePolicy {
    /// A person decides, however long it takes.
    #[default]
    Manual,
    /// A person decides, and is reminded when that takes too long. It never opens by itself.
    Timed,
    /// It opens by itself, recorded as a decision of the policy.
    Auto,
}

/// The gates of a mission, each with its policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gates {
    /// The mission's proposal.
    pub mission: GatePolicy,
    /// The plan of a hop.
    pub plan: GatePolicy,
    /// The tool steps of a hop.
    #[serde(rename = "impl")]
    pub implementation: GatePolicy,
    /// The execution of accepted steps.
    pub execute: GatePolicy,
    /// The retry of a failed execution.
    pub retry: GatePolicy,
}

impl Gates {
    /// Each by the name that it has outside.
    pub const fn named(self) -> [(&'static str, GatePolicy); 5] {
        let Gates { mission, plan, implementation, execute, retry } = self;
        [("mission", mission), ("plan", plan), ("impl", implementation), ("execute", execute), ("retry", retry)]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaits {
    Person,
    /// To propose, to plan or to implement.
    Agent,
    /// To open a gate.
    Policy,
    /// To run.
    Steps,
    Nobody,
}

impl Awaits {
    pub const fn token(self) -> &'static str {
        match self {
            Awaits::Person => "person",
            Awaits::Agent => "agent",
            Awaits::Policy => "policy",
            Awaits::Steps => "steps",
            Awaits::Nobody => "nobody",
        }
    }
}

/// What is known of a mission and its current hop.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    pub mission: mission::State,
    pub hop: Option<hop::State>,
    pub gates: Gates,
    /// Somebody is there who can be asked to plan and implement.
    pub has_agent: bool,
    /// The agent asked something and waits for the answer.
    pub question: bool,
    /// A person wants the mission's proposal changed.
    pub feedback: bool,
    /// A failed hop may be executed again.
    pub retryable: bool,
    /// Its agent has ended hop after hop as the last one and left an output open: it is asked for no further one.
    pub astray: bool,
    /// A plan carries the hop out: there are no steps that anybody would have to propose or accept.
    pub by_plan: bool,
    /// A person has stopped its hop, and has not yet said that it goes on.
    pub stopped: bool,
}

impl Standing {
    /// The gate that is closed now, with its policy.
    pub fn gate(&self) -> Option<(&'static str, GatePolicy)> {
        use hop::State as Hop;
        match (self.mission, self.hop) {
            (mission::State::AwaitingApproval, _) if !self.feedback => Some(("mission", self.gates.mission)),
            (mission::State::InProgress, Some(Hop::PlanProposed)) => Some(("plan", self.gates.plan)),
            (mission::State::InProgress, Some(Hop::ImplProposed)) if self.by_plan => Some(("impl", GatePolicy::Auto)),
            (mission::State::InProgress, Some(Hop::ImplProposed)) => Some(("impl", self.gates.implementation)),
            (mission::State::InProgress, Some(Hop::ImplReady)) => Some(("execute", self.gates.execute)),
            (mission::State::InProgress, Some(Hop::Failed)) if self.retryable => Some(("retry", self.gates.retry)),
            _ => None,
        }
    }

    pub fn awaits(&self) -> Awaits {
        use hop::State as Hop;
        use mission::State as Mission;
        let agent = if self.has_agent && !self.question { Awaits::Agent } else { Awaits::Person };
        if let Some((_, policy)) = self.gate() {
            return if policy == GatePolicy::Auto { Awaits::Policy } else { Awaits::Person };
        }
        match (self.mission, self.hop) {
            (Mission::Completed | Mission::Failed | Mission::Cancelled, _) => Awaits::Nobody,
            (Mission::AwaitingApproval, _) => agent,
            (Mission::InProgress, Some(Hop::Executing)) => Awaits::Steps,
            (Mission::InProgress, Some(Hop::Failed)) => Awaits::Person,
            (Mission::InProgress, None) if self.astray || self.stopped => Awaits::Person,
            (Mission::InProgress, Some(Hop::PlanReady | Hop::ImplStarted)) if self.by_plan => Awaits::Policy,
            (Mission::InProgress, _) => agent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GatePolicy::*;
    use hop::State as Hop;
    use mission::State as Mission;

    fn standing(mission: Mission, hop: Option<Hop>, policy: GatePolicy) -> Standing {
        let gates = Gates { mission: policy, plan: policy, implementation: policy, execute: policy, retry: policy };
        Standing {
            mission,
            hop,
            gates,
            has_agent: true,
            question: false,
            feedback: false,
            retryable: true,
            astray: false,
            by_plan: false,
            stopped: false,
        }
    }

    #[test]
    fn every_standing_says_who_acts_next() {
        let cases = [
            (Mission::AwaitingApproval, None, Awaits::Person, Awaits::Policy),
            (Mission::InProgress, None, Awaits::Agent, Awaits::Agent),
            (Mission::InProgress, Some(Hop::PlanStarted), Awaits::Agent, Awaits::Agent),
            (Mission::InProgress, Some(Hop::PlanProposed), Awaits::Person, Awaits::Policy),
            (Mission::InProgress, Some(Hop::PlanReady), Awaits::Agent, Awaits::Agent),
            (Mission::InProgress, Some(Hop::ImplStarted), Awaits::Agent, Awaits::Agent),
            (Mission::InProgress, Some(Hop::ImplProposed), Awaits::Person, Awaits::Policy),
            (Mission::InProgress, Some(Hop::ImplReady), Awaits::Person, Awaits::Policy),
            (Mission::InProgress, Some(Hop::Executing), Awaits::Steps, Awaits::Steps),
            (Mission::InProgress, Some(Hop::Failed), Awaits::Person, Awaits::Policy),
            (Mission::Completed, Some(Hop::Completed), Awaits::Nobody, Awaits::Nobody),
            (Mission::Failed, Some(Hop::Failed), Awaits::Nobody, Awaits::Nobody),
            (Mission::Cancelled, None, Awaits::Nobody, Awaits::Nobody),
        ];
        for (mission, hop, manual, auto) in cases {
            assert_eq!(standing(mission, hop, Manual).awaits(), manual, "{mission:?} {hop:?}");
            // A reminder is no decision.
            assert_eq!(standing(mission, hop, Timed).awaits(), manual, "{mission:?} {hop:?}");
            assert_eq!(standing(mission, hop, Auto).awaits(), auto, "{mission:?} {hop:?}");
        }
    }

    #[test]
    fn a_question_or_a_missing_agent_leaves_it_to_a_person() {
        let planning = standing(Mission::InProgress, Some(Hop::PlanStarted), Auto);
        assert_eq!(Standing { question: true, ..planning }.awaits(), Awaits::Person);
        assert_eq!(Standing { has_agent: false, ..planning }.awaits(), Awaits::Person);
        let proposed = standing(Mission::AwaitingApproval, None, Auto);
        assert_eq!(Standing { feedback: true, ..proposed }.awaits(), Awaits::Agent);
        let failed = standing(Mission::InProgress, Some(Hop::Failed), Auto);
        assert_eq!(Standing { retryable: false, ..failed }.awaits(), Awaits::Person);
        let between = standing(Mission::InProgress, None, Auto);
        assert_eq!(Standing { astray: true, ..between }.awaits(), Awaits::Person);
        assert_eq!(Standing { astray: true, ..planning }.awaits(), Awaits::Agent, "a hop that a person let begin");
    }

    #[test]
    fn a_hop_that_a_plan_carries_out_waits_for_nobody_to_propose_steps() {
        for hop in [Hop::PlanReady, Hop::ImplStarted, Hop::ImplProposed] {
            let standing = Standing { by_plan: true, ..standing(Mission::InProgress, Some(hop), Manual) };
            assert_eq!(standing.awaits(), Awaits::Policy, "{hop:?}");
        }
        let ready = Standing { by_plan: true, ..standing(Mission::InProgress, Some(Hop::ImplReady), Manual) };
        assert_eq!(ready.awaits(), Awaits::Person, "its execution is a decision like any other");
    }

    #[test]
    fn what_a_person_has_stopped_waits_for_a_person_whatever_the_gates_say() {
        for policy in [Manual, Timed, Auto] {
            let between = Standing { stopped: true, ..standing(Mission::InProgress, None, policy) };
            assert_eq!((between.awaits(), between.gate()), (Awaits::Person, None), "{policy:?}");
        }
    }

    #[test]
    fn gates_are_manual_unless_told_otherwise() {
        let read = serde_json::from_str::<Gates>(r#"{"plan":"auto","impl":"timed"}"#).expect("gates");
        assert_eq!(read, Gates { plan: Auto, implementation: Timed, ..Gates::default() });
        assert!(serde_json::from_str::<Gates>(r#"{"door":"auto"}"#).is_err());
    }
}
