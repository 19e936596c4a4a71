//! Missions and plans as plays: what their agents answer, and what must be true of each in the end.

use super::Round;
use super::person::Errand;
use crate::audit;
use anyhow::Result;
use instar_store::Store;
use instar_testkit::model::Reply;
use serde_json::{Value, json};

pub(super) const TOOLS: [&str; 4] = ["propose_hop_plan", "propose_hop_impl", "put", "echo"];
const TASKS: [&str; 3] = ["first", "second", "third"];

/// A mission with an agent that knows from its name how to go about it.
pub(super) fn mission(word: &str, agent: &str, errand: Errand) -> Value {
    json!({
        "name": format!("{word} {}", errand.word()), "goal": "a word", "success_criteria": ["it is said"],
        "outputs": [{"name": "word", "type": "string"}], "agent_id": agent,
        "gates": errand.gates(),
    })
}

/// The first asset behind these words.
fn asset_after<'a>(prompt: &'a str, words: &str) -> &'a str {
    let rest = prompt.split_once(words).map_or("", |(_, rest)| rest);
    let rest = &rest[rest.find("ast_").unwrap_or(rest.len())..];
    rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// What an agent answers that a mission or a plan asks for something; `None` if none does.
pub(super) fn reply(tools: &[&str], prompt: &str) -> Option<Reply> {
    let has = |tool: &str| tools.contains(&tool);
    if has("propose_plan") {
        let task = |n: usize| {
            let deps: Vec<&str> = TASKS[..n].to_vec();
            json!({"id": TASKS[n], "title": "a part", "description": "Do it.", "deps": deps})
        };
        let tasks: Vec<Value> = (0..TASKS.len()).map(task).collect();
        return Some(Reply::call("propose_plan", json!({"tasks": tasks})));
    }
    if has("submit_critique") {
        return Some(Reply::call("submit_critique", json!({"summary": "It is well done.", "findings": []})));
    }
    if has("complete_task") {
        return Some(Reply::call("complete_task", json!({"result": "done"})));
    }
    if prompt.contains("Propose its steps") {
        let made = json!({"type": "asset_field", "state_asset_id": asset_after(prompt, "and makes ")});
        let word = prompt.lines().next().unwrap_or_default();
        let literal = |text: &str| json!({"type": "literal", "value": text});
        if word.contains(Errand::Mended.word()) && !prompt.contains("What went wrong") {
            // Its answer is no text, which the asset has to be.
            let put = json!({"tool_id": "put", "parameter_mapping": {"token": literal(word)},
                "result_mapping": {"output": made}});
            return Some(Reply::call("propose_hop_impl", json!({"steps": [put]})));
        }
        let steps = json!([
            {"tool_id": "put", "parameter_mapping": {"token": literal(word)}, "result_mapping": {}},
            {"tool_id": "echo", "parameter_mapping": {"text": literal(word)}, "result_mapping": {"output": made}},
        ]);
        return Some(Reply::call("propose_hop_impl", json!({"steps": steps})));
    }
    if prompt.contains("Propose the next hop") {
        let output = json!({"asset_id": asset_after(prompt, "- word (")});
        let planned = prompt.lines().next().is_some_and(|line| line.contains(Errand::Planned.word()));
        let executor = if planned { "plan" } else { "steps" };
        let hop = json!({"name": "only", "output": output, "is_final": true, "executor": executor});
        return Some(Reply::call("propose_hop_plan", hop));
    }
    None
}

/// Kinds that tell of it, each of which must be there so many times.
async fn told(store: &Store, round: &Round, wanted: &[(&str, usize)]) -> Result<Vec<String>> {
    let runes = audit::runes(store, round.session.parse()?).await?;
    let mut wrong = Vec::new();
    for id in &round.agents {
        let of = |rune: &&instar_core::rune::Rune| {
            rune.entity.to_string() == *id || rune.payload.get().contains(id.as_str())
        };
        let own: Vec<_> = runes.iter().filter(of).collect();
        for (kind, count) in wanted {
            let found = own.iter().filter(|rune| rune.kind == *kind).count();
            if found != *count {
                wrong.push(format!("{id} has {kind} {found} times, not {count}"));
            }
        }
    }
    Ok(wrong)
}

/// It was proposed, taken up and completed, each once.
pub(super) async fn sailed(store: &Store, round: &Round) -> Result<Vec<String>> {
    told(store, round, &[("mission.proposed", 1), ("mission.approved", 1), ("mission.completed", 1)]).await
}

/// The goal was met once.
pub(super) async fn reached(store: &Store, round: &Round) -> Result<Vec<String>> {
    let mut wrong = told(store, round, &[("plan.goal_received", 1), ("plan.goal_met", 1)]).await?;
    for id in &round.agents {
        let plan = store.plan(id.parse()?).await?;
        let tasks = store.tasks_of(id.parse()?).await?;
        let done = tasks.iter().filter(|task| task.status == "completed").count();
        if plan.is_none() || done != TASKS.len() {
            wrong.push(format!("{id} has {done} tasks done of {}", TASKS.len()));
        }
    }
    let runes = audit::runes(store, round.session.parse()?).await?;
    for task in runes.iter().filter(|rune| rune.kind == "plan.task_completed").map(|rune| rune.entity) {
        let times = runes.iter().filter(|rune| rune.kind == "plan.task_completed" && rune.entity == task).count();
        if times > 1 {
            wrong.push(format!("{task} was completed {times} times"));
        }
    }
    Ok(wrong)
}
