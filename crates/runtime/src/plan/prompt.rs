//! What agents that work on a plan are told. Texts are cut where they would crowd out the rest.

use super::scene::Scene;
use instar_core::id::RuneId;
use instar_store::entity::task;
use serde_json::Value;

/// Characters of results that one prompt quotes, all together.
const RESULTS_CHARS: usize = 40_000;
const RESULT_CHARS_MIN: usize = 400;

/// The same of evidence, and how many pieces of it at the most.
const EVIDENCE_CHARS: usize = 30_000;
const EVIDENCE_CHARS_MIN: usize = 300;
const EVIDENCE_PIECES: usize = 100;

pub(super) const ORCHESTRATOR: &str = "You lead a plan. You split goals into tasks that other agents do, each by itself \
     and in a conversation of its own, and you say what has to be done before what.";
pub(super) const WORKER: &str = "You do tasks of a plan, one at a time. Do what the task says with the tools you have, \
     and say truthfully what came of it.";
pub(super) const CRITIC: &str = "You judge work that others did. You have seen none of it being done: go by the goal, \
     the rubric, the results and the evidence alone, and say what is wrong, however small the praise.";

/// The instructions of an agent that is made for a role.
pub(super) fn instructions(role: &str) -> String {
    match role {
        "orchestrator" => ORCHESTRATOR.to_owned(),
        "critic" => CRITIC.to_owned(),
        "worker" => WORKER.to_owned(),
        other => format!("You are a {other}. {WORKER}"),
    }
}

fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let head: String = text.chars().take(chars_max).collect();
    format!("{head}… (cut after {chars_max} characters)")
}

fn result(task: &task::Model, chars_max: usize) -> String {
    let text = match &task.result {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    cut(&text, chars_max)
}

fn share(tasks: usize) -> usize {
    (RESULTS_CHARS / tasks.max(1)).max(RESULT_CHARS_MIN)
}

fn list(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| format!("- {line}\n")).collect()
}

/// The tasks of the draft that was refused last in this iteration: those of one draft are added at one moment.
fn last_draft(scene: &Scene) -> impl Iterator<Item = &task::Model> {
    let of_now = |task: &&task::Model| task.status == "cancelled" && task.iteration == scene.plan.iteration;
    let refused = || scene.tasks.iter().filter(of_now);
    let last = refused().map(|task| task.created_at).max();
    refused().filter(move |task| Some(task.created_at) == last)
}

/// To the orchestrator: make a plan, or make it anew.
pub(super) fn plan(scene: &Scene) -> String {
    let plan = &scene.plan;
    let mut text = format!("Goal:\n{}\n", plan.goal);
    if let Some(feedback) = &plan.feedback {
        let refused =
            list(last_draft(scene).map(|task| format!("{} ({}): {}", task.key, task.title, task.description)));
        text += &match refused.is_empty() {
            // Said when a person let a blocked plan go on, and not of a draft.
            true => format!("\nA person adds: {feedback}\n"),
            false => format!("\nYour last plan was not taken:\n{refused}\nWhy:\n{feedback}\n"),
        };
    }
    let done: Vec<&task::Model> = scene.tasks.iter().filter(|task| task.status != "cancelled").collect();
    if !done.is_empty() {
        let chars = share(done.len());
        text += "\nWhat was done in earlier rounds. What is completed stays: do not hand it in again. New tasks may wait \
                 for it, by the name that it has here:\n";
        text += &list(done.iter().map(|task| {
            let came = task.error.as_deref().filter(|_| task.status == "failed").map(str::to_owned);
            let came = came.unwrap_or_else(|| result(task, chars));
            format!("{} ({}, {}): {came}", task.named().full(), task.title, task.status)
        }));
    }
    if let Some(said) = scene.critiques.last().filter(|_| plan.iteration > 1) {
        text += &format!("\nThe critic wants another plan: {}\n{}", said.summary, findings(&said.findings));
    }
    if plan.asked > 0 {
        text += "\nYour turn ended without a plan.\n";
    }
    text + "\nSplit the goal into tasks and hand all of them in with one call of propose_plan. Number their ids from t1, \
            in every round anew: in deps an id means a task that you hand in now. A task is done by one agent that sees \
            only its own task and the results of those it waits for: say in it everything it needs. Name in deps only \
            what must be finished before; what does not depend on each other is done side by side. If the call is \
            refused, put right what it says and call again."
}

/// To the agent that does a task.
pub(super) fn task(scene: &Scene, task: &task::Model) -> String {
    let mut text = format!("Task {}: {}\n\n{}\n", task.key, task.title, task.description);
    let criteria = task.criteria();
    if !criteria.is_empty() {
        text += &format!("\nIt is done when:\n{}", list(criteria.iter().map(|one| (*one).to_owned())));
    }
    let deps: Vec<&task::Model> = task.deps().into_iter().filter_map(|dep| scene.task(dep)).collect();
    if !deps.is_empty() {
        let chars = share(deps.len());
        text += "\nWhat it builds on:\n";
        let name = |dep: &task::Model| dep.name_among(&scene.tasks);
        text += &list(deps.iter().map(|dep| format!("{} ({}): {}", name(dep), dep.title, result(dep, chars))));
    }
    if task.attempt > 1 {
        text += &format!("\nThis is attempt {} of {}.", task.attempt, task.attempts_max);
        if let Some(error) = &task.error {
            text += &format!(" The last one came to nothing: {error}");
        }
        text.push('\n');
    }
    if let Some(note) = &scene.plan.feedback {
        text += &format!("\nA person adds: {note}\n");
    }
    text += &format!("\nIt is part of this goal, the rest of which others see to:\n{}\n", cut(&scene.plan.goal, 4_000));
    text + HOW_TO_END
}

const HOW_TO_END: &str = "\nWhen it is done, call complete_task with the result. If it cannot be done, call fail_task \
     and say why. If it waits for something that only a person can give, call block_task and say what.";

/// To the owner of a task whose turn ended without a word about it.
pub(super) fn report(task: &task::Model, why: &str) -> String {
    format!("{why} Go on with task {} ({}) if it is not done.{HOW_TO_END}", task.key, task.title)
}

fn evidence_of(task: &task::Model) -> Vec<RuneId> {
    serde_json::from_value(task.evidence.clone()).unwrap_or_default()
}

/// The runes that a critic is shown: of each task its newest, so that every task has its share.
pub(super) fn quoted(tasks: &[task::Model]) -> Vec<RuneId> {
    let of: Vec<Vec<RuneId>> = tasks.iter().map(evidence_of).filter(|ids| !ids.is_empty()).collect();
    let each = (EVIDENCE_PIECES / of.len().max(1)).max(1);
    let newest = of.iter().flat_map(|ids| ids.iter().skip(ids.len().saturating_sub(each)).copied());
    newest.take(EVIDENCE_PIECES).collect()
}

/// Characters of one piece, where there are so many.
pub(super) fn evidence_chars(pieces: usize) -> usize {
    (EVIDENCE_CHARS / pieces.max(1)).max(EVIDENCE_CHARS_MIN)
}

/// To the critic.
pub(super) fn critique(scene: &Scene) -> String {
    let plan = &scene.plan;
    let tasks: Vec<&task::Model> = scene.tasks.iter().filter(|task| task.status != "cancelled").collect();
    let chars = share(tasks.len());
    let rubric = plan.config["rubric"].as_str().unwrap_or(
        "Is the goal reached as a whole? Is every result correct, complete and borne out by its evidence? Does \
         anything contradict something else, or open a hole?",
    );
    let mut text = format!("Goal:\n{}\n\nRubric:\n{rubric}\n\nTasks and what came of them:\n", plan.goal);
    for task in tasks {
        let name = task.name_among(&scene.tasks);
        text += &format!("- {name} ({}, {}): {}\n", task.title, task.status, task.description);
        for one in task.criteria() {
            text += &format!("  done when: {one}\n");
        }
        match task.status.as_str() {
            "failed" => text += &format!("  error: {}\n", task.error.as_deref().unwrap_or_default()),
            _ => text += &format!("  result: {}\n", result(task, chars)),
        }
        let evidence = evidence_of(task);
        let unseen = evidence.iter().filter(|id| !scene.evidence.contains_key(id)).count();
        for (id, (kind, said)) in evidence.iter().filter_map(|id| Some((id, scene.evidence.get(id)?))) {
            text += &format!("  evidence {id} ({kind}): {}\n", cut(said, evidence_chars(scene.evidence.len())));
        }
        if unseen > 0 {
            text += &format!("  evidence not shown here: {unseen}\n");
        }
    }
    if plan.asked > 0 {
        text += "\nYour turn ended without a verdict.\n";
    }
    text + "\nSay what you find with one call of submit_critique. A finding of severity error keeps the goal from \
            being met: name the task it is about, and what to do. With no such finding the goal counts as met. Set \
            replan if the plan itself is wrong and more work on it would not help."
}

fn findings(findings: &Value) -> String {
    let all = findings.as_array().map(Vec::as_slice).unwrap_or_default();
    list(all.iter().map(|finding| {
        let word = |field: &str| finding[field].as_str().unwrap_or_default();
        format!("{} ({}): {}. {}", word("severity"), word("category"), word("title"), word("description"))
    }))
}
