//! Whom a cascade reaches: a relation between the entity that moved and the ones that follow.

use crate::machine::{
    Table, agent_drive, agent_lifecycle, asset, hop, mission, plan, session, task, tool_call, tool_step, turn,
};

macro_rules! reaches {
    ($($machine:ident { $($(#[$doc:meta])* $name:ident)+ })+) => {
        /// Grouped by the machine that is reached. `New…`: entities that this commit shall bring
        /// forth; the caller has given them ids, since nothing here can.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reach {
            /// The entity itself, in the same machine.
            Same,
            $($($(#[$doc])* $name,)+)+
        }

        impl Reach {
            pub const ALL: &'static [Reach] = &[Reach::Same, $($(Reach::$name,)+)+];

            /// The machine that the event is raised on; `None` for [`Reach::Same`].
            pub fn table(self) -> Option<&'static Table> {
                match self {
                    Reach::Same => None,
                    $($(Reach::$name)|+ => Some(&$machine::TABLE),)+
                }
            }
        }
    };
}

reaches! {
    session {
        SessionOfAgent
        SessionOfTurn
    }
    agent_lifecycle {
        AgentsOfSession
        NewRootOfSession
        ChildrenOfAgent
        LifecycleOfAgent
        AgentOfTurn
    }
    agent_drive {
        DriveOfAgent
        /// Of an agent's parent; nobody for a root.
        DriveOfParent
        DriveOfTurn
        /// Of the agent that a task is given to.
        DriveOfTask
    }
    turn {
        /// Streaming or waiting for tools.
        LiveTurnsOfSession
        /// Streaming or waiting for tools; one at most.
        LiveTurnOfAgent
        QueuedTurnsOfAgent
        /// For input that waits when a turn ends or a message comes.
        NewTurnOfAgent
        TurnOfCall
        /// The turn that works on a task.
        TurnOfTask
        /// The turn that waits to work on a task.
        QueuedTurnOfTask
        NewTurnOfTask
        /// In which a plan itself is worked on: made, or judged.
        TurnOfPlan
        QueuedTurnOfPlan
    }
    tool_call {
        OpenCallsOfTurn
        NewCallsOfTurn
        OpenCallOfStep
        NewCallOfStep
    }
    mission {
        MissionsOfSession
        MissionOfHop
        /// The instance that a reset proposes.
        NewMissionOfMission
    }
    hop {
        ExecutingHopsOfSession
        CurrentHopOfMission
        HopOfStep
        /// The hop that a plan carries out.
        HopOfPlan
        /// Hops that have an asset as an input.
        HopsOfInput
    }
    tool_step {
        StepOfCall
        /// All but the deleted ones, in sequence order.
        StepsOfHop
        NewStepsOfHop
        /// Changed by this edit.
        EditedStepsOfHop
        /// Whose input, tool or resource was lost.
        BrokenStepsOfHop
        /// Whose place this proposal's steps take.
        SupersededStepsOfHop
        /// The first that is neither COMPLETED nor CANCELLED, of a hop or of a step's hop.
        NextStep
    }
    asset {
        AssetsOfMission
        /// The ones that the mission promises.
        OutputsOfMission
        NewAssetsOfMission
        /// Left out by this revision.
        DroppedAssetsOfMission
        EditedAssetsOfMission
        /// The ones that the hop's plan proposed.
        AssetsOfHop
        OutputsOfHop
        NewAssetsOfHop
        DroppedAssetsOfHop
        EditedAssetsOfHop
        /// Outputs whose values a person brings who completes the hop by hand.
        SuppliedOutputsOfHop
        OutputsOfStep
        /// What the hop makes that a plan carries out.
        OutputsOfPlan
    }
    plan {
        PlansOfSession
        PlanOfTask
        /// The plan that carries out a hop.
        PlanOfHop
        NewPlanOfHop
    }
    task {
        TasksOfPlan
        NewTasksOfPlan
        /// Left out by this revision.
        DroppedTasksOfPlan
        /// The ones that the critic wants tried again.
        FlaggedTasksOfPlan
        /// Blocked ones whose obstacle is gone.
        ResolvedTasksOfPlan
        /// The task that an agent was given.
        TaskOfAgent
        /// The task that a turn works on.
        TaskOfTurn
        DependantsOfTask
        DependenciesOfTask
    }
}

impl Reach {
    /// Entities of the same relation that this commit itself brings forth.
    pub(super) const fn newcomers(self) -> &'static [Reach] {
        match self {
            Reach::OpenCallsOfTurn => &[Reach::NewCallsOfTurn],
            Reach::OpenCallOfStep => &[Reach::NewCallOfStep],
            Reach::QueuedTurnsOfAgent => &[Reach::NewTurnOfAgent],
            Reach::StepsOfHop => &[Reach::NewStepsOfHop],
            Reach::AssetsOfMission => &[Reach::NewAssetsOfMission],
            Reach::AssetsOfHop => &[Reach::NewAssetsOfHop],
            Reach::TasksOfPlan => &[Reach::NewTasksOfPlan],
            _ => &[],
        }
    }

    /// Whether an entity in this state is meant. Where a name says nothing about states, the cell
    /// of the table decides alone.
    pub(super) fn means(self, state: Option<&str>) -> bool {
        let live = |s: &str| s == turn::State::Streaming.token() || s == turn::State::ToolExecuting.token();
        match self {
            Reach::LiveTurnOfAgent | Reach::LiveTurnsOfSession | Reach::TurnOfTask | Reach::TurnOfPlan => {
                state.is_some_and(live)
            }
            Reach::QueuedTurnsOfAgent | Reach::QueuedTurnOfTask | Reach::QueuedTurnOfPlan => {
                state == Some(turn::State::Queued.token())
            }
            _ => true,
        }
    }
}
