//! `submit_critique`: a verdict on a plan's work, from a critic that had no part in it.

use super::{Caller, Failed, Plan, act, error_of, success};
use instar_core::cascade::Fact;
use instar_core::decide::Tries;
use instar_core::id::{PlanId, SessionId, TaskId};
use instar_core::machine::plan as machine;
use instar_core::plan::{
    ATTEMPTS_DEFAULT, Finding, ITERATIONS_DEFAULT, Named, Priority, TASKS_MAX, Verdict, meant, passes, verdict,
};
use instar_core::rune::{Actor, Draft};
use instar_runtime::flow::{self, Critique, FlowError, NewTask, Outcome};
use instar_runtime::plan::{Delivery, Purpose};
use instar_runtime::{Act, ActError};
use instar_store::Commit;
use instar_store::entity::{plan, task};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

#[derive(Deserialize)]
struct Said {
    summary: String,
    findings: Vec<Finding>,
    #[serde(default)]
    replan: bool,
}

pub(super) async fn plan(caller: &Caller<'_>) -> Result<Plan, Failed> {
    let Said { summary, findings, replan } = match serde_json::from_value(caller.call.arguments.clone()) {
        Ok(said) => said,
        Err(error) => return Ok(Plan::Answer(error_of(format!("the arguments cannot be read: {error}")))),
    };
    let (_, plan) = match caller.work(&[Purpose::Critique]).await? {
        Ok(found) => found,
        Err(why) => return Ok(Plan::Answer(why)),
    };
    if plan.status != "reviewing" || plan.turn_id != caller.call.turn_id {
        return Ok(Plan::Answer(error_of(format!("the plan is {}: it takes no verdict from this turn", plan.status))));
    }
    let tasks = caller.runner.hub.store().tasks_of(plan.id.into()).await?;
    if let Some(why) = misnamed(&findings, &tasks) {
        return Ok(Plan::Answer(error_of(why)));
    }
    let most = plan.config["max_iterations"].as_u64().unwrap_or(u64::from(ITERATIONS_DEFAULT));
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let iterations = Tries { made: number(plan.iteration.max(0) as u64), max: number(most) };
    let decided = verdict(&findings, replan, iterations);
    let critique = Critique { summary, findings };
    let outcome = success(json!({"pass": passes(&critique.findings), "next": next(decided)}));
    match decided {
        Verdict::Retry => {
            let (again, new) = follow_up(&plan, &tasks, &critique.findings);
            if again.is_empty() && new.is_empty() {
                let why = format!("the plan has no room for more than {TASKS_MAX} tasks: ask for another plan instead");
                return Ok(Plan::Answer(error_of(why)));
            }
            let mut commit = flow::follow_up(caller.commit(), &plan, &critique, &again, &new)?;
            critique.keep(&mut commit, &plan, caller.agent())?;
            Ok(Plan::Commit(Box::new(commit.then(caller.result(&outcome)?)), outcome))
        }
        Verdict::Exhausted => exhausted(caller, &plan, &critique, outcome).await,
        Verdict::GoalMet | Verdict::Replan => {
            let event = if decided == Verdict::GoalMet { "critique_passed" } else { "needs_replan" };
            let told = serde_json::to_value(critique.rune()?).map_err(FlowError::from)?;
            let (session, id) = (SessionId::from(plan.session_id), PlanId::from(plan.id));
            let delivery = match decided {
                Verdict::GoalMet => caller.runner.hub.delivery(&plan, &tasks).await?,
                _ => Delivery::None,
            };
            let (made, why) = match delivery {
                Delivery::Fits(made) => (Some(made), critique.summary.clone()),
                Delivery::Unfit(why) => (None, why),
                Delivery::None => (None, critique.summary.clone()),
            };
            let command = Act::new(session, id, &machine::TABLE, event, caller.actor())
                .reason(&why)
                .telling("plan.critique", told)
                .telling("plan.goal_met", json!({"summary": critique.summary}))
                .setting(|change| change.set(plan::Column::Summary, critique.summary.clone()))
                .editing(|snapshot| {
                    let hop = plan.hop_id.and_then(|hop| snapshot.missions.hops.get_mut(&hop));
                    if let Some(hop) = hop.filter(|hop| hop.status == "COMPLETED") {
                        hop.result = Some(json!({"plan_id": id, "summary": critique.summary}));
                    }
                });
            let command = match decided {
                Verdict::Replan => command.also(|commit, _| {
                    flow::leave_failed(commit, &tasks);
                    Ok(())
                }),
                _ => command,
            };
            let command = match made {
                Some(made) => made.into_iter().fold(command.given(Fact::Delivers), Act::writing),
                None => command,
            };
            let mut decided = act(caller, command, outcome).await?;
            if let Plan::Commit(commit, _) = &mut decided {
                critique.keep(commit, &plan, caller.agent())?;
            }
            Ok(decided)
        }
    }
}

/// The verdict stands; that no iteration is left is not the critic's to say, but the system's.
async fn exhausted(
    caller: &Caller<'_>,
    plan: &plan::Model,
    critique: &Critique,
    outcome: Outcome,
) -> Result<Plan, Failed> {
    let (session, id, system) = (SessionId::from(plan.session_id), PlanId::from(plan.id), Actor::system("plan"));
    let mut said = Commit::new(session, system.clone()).traced(caller.call.traceparent.clone());
    let told = Draft::new(id, &critique.rune()?).map_err(FlowError::from)?;
    said.rune(told.agent(caller.agent()));
    critique.keep(&mut said, plan, caller.agent())?;
    let stop = Act::new(session, id, &machine::TABLE, "max_iterations_reached", system.clone());
    let stop = stop
        .reason("max_iterations")
        .setting(|change| change.version(plan.version).set(plan::Column::Summary, critique.summary.clone()));
    let stop = match stop.prepare(&caller.runner.hub).await {
        Ok(Some(stop)) => stop,
        Ok(None) => return Ok(Plan::Answer(outcome)),
        Err(ActError::Store(error)) => return Err(error.into()),
        Err(error) => return Ok(Plan::Answer(error_of(error.to_string()))),
    };
    let commit = said.then(stop).then(flow::result(caller.call, system, &outcome)?);
    Ok(Plan::Commit(Box::new(commit), outcome))
}

fn next(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::GoalMet => "the goal is met",
        Verdict::Retry => "tasks are tried again or added",
        Verdict::Replan => "the plan is made anew",
        Verdict::Exhausted => "no iteration is left: the plan stops",
    }
}

/// A finding about a task that the plan does not have.
fn misnamed(findings: &[Finding], tasks: &[task::Model]) -> Option<String> {
    let unknown =
        findings.iter().filter_map(|finding| finding.task.as_deref()).find(|name| about(tasks, name).is_none());
    Some(format!("{:?} is no task of the plan: name one as you were told of it, or leave task out", unknown?))
}

/// The task that a critic means.
fn about<'a>(tasks: &'a [task::Model], name: &str) -> Option<&'a task::Model> {
    let live: Vec<&task::Model> = tasks.iter().filter(|task| task.status != "cancelled").collect();
    let named: Vec<Named<'_>> = live.iter().map(|task| task.named()).collect();
    meant(name, &named).map(|at| live[at])
}

/// Failed tasks that may be tried again, where a finding is about them; else a new task per finding.
fn follow_up<'a>(
    plan: &plan::Model,
    tasks: &'a [task::Model],
    findings: &[Finding],
) -> (Vec<&'a task::Model>, Vec<NewTask>) {
    let attempts_max = plan.config["attempts_max"].as_i64().unwrap_or(i64::from(ATTEMPTS_DEFAULT));
    let (mut again, mut new): (Vec<&task::Model>, Vec<NewTask>) = (Vec::new(), Vec::new());
    for finding in findings {
        let Some(priority) = finding.severity.follow_up() else { continue };
        let about = finding.task.as_deref().and_then(|name| about(tasks, name));
        if let Some(task) = about.filter(|task| task.status == "failed" && task.attempt < task.attempts_max) {
            if !again.iter().any(|known| known.id == task.id) {
                again.push(task);
            }
            continue;
        }
        // One place is for the task that comes last.
        if tasks.len() + new.len() + usize::from(plan.hop_id.is_some()) >= TASKS_MAX {
            continue;
        }
        let mut description = finding.description.clone();
        for (what, text) in
            [("It is about", &finding.task), ("Where", &finding.file), ("What to do", &finding.suggested_fix)]
        {
            if let Some(text) = text {
                description += &format!("\n{what}: {text}");
            }
        }
        new.push(NewTask {
            id: TaskId::from(Uuid::now_v7()),
            key: format!("fix-{}-{}", plan.iteration, new.len() + 1),
            title: finding.title.clone(),
            description,
            priority,
            role: about.map_or_else(|| "worker".into(), |task| task.role.clone()),
            deps: about.filter(|task| task.status == "completed").map(|task| task.id.into()).into_iter().collect(),
            success_criteria: Vec::new(),
            attempts_max,
        });
    }
    if plan.hop_id.is_some() && !new.is_empty() {
        new.push(last_of_all(plan, tasks, &again, &new, attempts_max));
    }
    (again, new)
}

/// What a hop's plan makes is handed in by one task: after what was added for its findings another one puts it
/// together.
fn last_of_all(
    plan: &plan::Model,
    tasks: &[task::Model],
    again: &[&task::Model],
    new: &[NewTask],
    attempts_max: i64,
) -> NewTask {
    let stays = |task: &&task::Model| task.status == "completed" || again.iter().any(|known| known.id == task.id);
    let stay: Vec<&task::Model> = tasks.iter().filter(stays).collect();
    let is_end = |task: &&&task::Model| {
        let by_old = stay.iter().any(|other| other.deps().contains(&task.id));
        !by_old && !new.iter().any(|other| other.deps.contains(&TaskId::from(task.id)))
    };
    let ends = stay.iter().filter(is_end).map(|task| TaskId::from(task.id));
    NewTask {
        id: TaskId::from(Uuid::now_v7()),
        key: format!("end-{}", plan.iteration),
        title: "Hand in what the plan makes".into(),
        description: "Put together what was done so far and what was mended since, and hand in, as the result, what \
                      the goal says that the last task hands in: itself, not a report on it."
            .into(),
        priority: Priority::High,
        role: "worker".into(),
        deps: ends.chain(new.iter().map(|task| task.id)).collect(),
        success_criteria: Vec::new(),
        attempts_max,
    }
}
