//! A plan's way.

use super::{Case, Cause, World, born, only, raised};
use crate::cast::{fresh, person, system};
use anyhow::Result;
use instar_core::cascade::Reach;
use instar_core::id::{Entity, Kind, SessionId};
use instar_core::machine::{By, agent_drive, agent_lifecycle, plan, task, turn};
use instar_core::plan::Priority;
use instar_runtime::flow::{self, Critique, Hand, NewAgent, NewPlan, NewTask};
use instar_store::{Commit, Outline};

fn new_task() -> NewTask {
    NewTask {
        id: fresh(),
        key: "b".into(),
        title: "b".into(),
        description: "do b".into(),
        priority: Priority::Medium,
        role: "worker".into(),
        deps: Vec::new(),
        success_criteria: Vec::new(),
        attempts_max: 3,
    }
}

fn free(world: &World) -> Hand<'_> {
    Hand::Free(&world.agents[0])
}

/// A turn for an idle agent, that it wakes for.
fn engaged(agent: Entity) -> impl Fn(&Outline) -> Vec<Cause> {
    move |outline| {
        vec![
            raised(agent, &agent_drive::TABLE, "task_assigned", By::System),
            raised(only(outline, Kind::Turn), &turn::TABLE, "queue_turn", By::System),
        ]
    }
}

fn assign(world: &World, hand: Hand<'_>) -> Result<Commit> {
    Ok(flow::assign(&world.plans[0], &world.tasks[0], hand, "do it", system())?.0)
}

fn goals() -> Vec<Case> {
    let goal = || NewPlan { goal: "peace".into(), autonomy: "manual".into(), ..NewPlan::default() };
    let received = |outline: &Outline| vec![raised(only(outline, Kind::Plan), &plan::TABLE, "goal_received", By::User)];
    let asked = World::with_plan("goal_received", "pending");
    let (id, mut of_new) = (asked.plan(), World::with_plan("executing", "pending"));
    of_new.agents.clear();
    let task_id = of_new.task();
    let again = World::with_plan("planning", "pending").idle();
    let verdict = World::with_plan("reviewing", "completed").idle();
    let (again_agent, verdict_agent) = (again.agent(), verdict.agent());
    let given = World::with_plan("executing", "pending").idle();
    let (agent, given_task) = (given.agent(), given.task());
    let mut report = World::with_plan("executing", "running");
    report.tasks[0].owner_id = Some(report.agents[0].id);
    vec![
        Case::new("set_goal", World::new(), move |world| Ok(flow::set_goal(&world.session, goal(), person(), None)?.0))
            .causes(received),
        Case::new("bear_plan", World::new(), move |world| {
            let mut commit = Commit::new(SessionId::from(world.session.id), person());
            flow::bear_plan(&mut commit, &world.session, fresh(), goal())?;
            Ok(commit)
        })
        .causes(received),
        Case::new("ask_for_plan", asked, |world| {
            Ok(flow::ask_for_plan(&world.plans[0], free(world), "plan it", system())?.0)
        })
        .causes(move |outline| {
            let queued = raised(only(outline, Kind::Turn), &turn::TABLE, "queue_turn", By::System);
            vec![raised(id, &plan::TABLE, "decompose_goal", By::System), queued]
        }),
        Case::new("ask_for_plan", again, |world| {
            Ok(flow::ask_for_plan(&world.plans[0], free(world), "plan it", system())?.0)
        })
        .when("of an idle one, again")
        .causes(engaged(again_agent)),
        Case::new("ask_for_critique", verdict, |world| {
            Ok(flow::ask_for_critique(&world.plans[0], free(world), "judge it", system())?.0)
        })
        .causes(engaged(verdict_agent)),
        Case::new("assign", given, move |world| assign(world, free(world)))
            .by(given_task, &task::TABLE, "assign", By::System)
            .meaning(move |outline| {
                let queued = only(outline, Kind::Turn);
                vec![(Reach::DriveOfTask, given_task, agent), (Reach::NewTurnOfTask, given_task, queued)]
            }),
        Case::new("assign", of_new, move |world| assign(world, Hand::New(NewAgent::default())))
            .when("to one that is made for it")
            .causes(move |outline| {
                let (made, table) = (only(outline, Kind::Agent), &agent_lifecycle::TABLE);
                vec![
                    raised(made, table, "spawn", By::System),
                    raised(made, table, "init_complete", By::System),
                    raised(task_id, &task::TABLE, "assign", By::System),
                ]
            })
            .meaning(move |outline| {
                let (made, queued) = (only(outline, Kind::Agent), only(outline, Kind::Turn));
                vec![(Reach::DriveOfTask, task_id, made), (Reach::NewTurnOfTask, task_id, queued)]
            }),
        Case::new("ask_for_report", report, |world| {
            let (plan, task, owner) = (&world.plans[0], &world.tasks[0], &world.agents[0]);
            Ok(flow::ask_for_report(plan, task, owner, "well?", system())?.0)
        })
        .causes(|outline| vec![raised(only(outline, Kind::Turn), &turn::TABLE, "queue_turn", By::System)]),
    ]
}

/// New tasks of a plan, and those of its own that the command means.
fn tasks(plan: Entity, own: Option<(Reach, Entity)>) -> impl Fn(&Outline) -> Vec<(Reach, Entity, Entity)> {
    move |outline| {
        let new = born(outline, Kind::Task).into_iter().map(|task| (Reach::NewTasksOfPlan, plan, task));
        new.chain(own.map(|(reach, task)| (reach, plan, task))).collect()
    }
}

fn graphs() -> Vec<Case> {
    let mut first = World::with_plan("planning", "pending");
    first.tasks.clear();
    let mut again = World::with_plan("planning", "pending");
    again.plans[0].revision = 1;
    let judged = World::with_plan("reviewing", "failed");
    let (first_plan, again_plan, judged_plan) = (first.plan(), again.plan(), judged.plan());
    let (dropped, flagged) = (again.task(), judged.task());
    let draft = |world: &World| Ok(flow::draft(world.as_agent(), &world.plans[0], &world.tasks, &[new_task()])?);
    vec![
        Case::new("draft", first, draft)
            .by(first_plan, &plan::TABLE, "plan_drafted", By::Agent)
            .meaning(tasks(first_plan, None)),
        Case::new("draft", again, draft)
            .when("again")
            .by(again_plan, &plan::TABLE, "plan_revised", By::Agent)
            .meaning(tasks(again_plan, Some((Reach::DroppedTasksOfPlan, dropped)))),
        Case::new("follow_up", judged, |world| {
            let critique = Critique { summary: "not yet".into(), findings: Vec::new() };
            let again = [&world.tasks[0]];
            Ok(flow::follow_up(world.as_agent(), &world.plans[0], &critique, &again, &[new_task()])?)
        })
        .by(judged_plan, &plan::TABLE, "critique_found_issues", By::Agent)
        .meaning(tasks(judged_plan, Some((Reach::FlaggedTasksOfPlan, flagged)))),
    ]
}

pub fn cases() -> Vec<Case> {
    let mut all = goals();
    all.extend(graphs());
    all
}
