//! `complete_task`, `fail_task`, `block_task`: what came of a task, from the agent that has it.

use super::{Caller, Failed, Plan, act, error_of, success};
use instar_core::id::{RuneId, SessionId, TaskId};
use instar_core::machine::task as machine;
use instar_runtime::Act;
use instar_runtime::plan::Purpose;
use instar_store::entity::task;
use instar_tools::Native;
use sea_orm::EntityTrait;
use serde_json::{Value, json};

pub(super) async fn plan(native: Native, caller: &Caller<'_>) -> Result<Plan, Failed> {
    let (work, plan) = match caller.work(&[Purpose::Task, Purpose::Report]).await? {
        Ok(found) => found,
        Err(why) => return Ok(Plan::Answer(why)),
    };
    let row = match work.task_id {
        Some(id) => task::Entity::find_by_id(id)
            .one(caller.runner.hub.store().db())
            .await
            .map_err(instar_store::StoreError::from)?,
        None => None,
    };
    let held = |task: &task::Model| task.status == "running" && task.turn_id == caller.call.turn_id;
    let task = match row {
        Some(task) if held(&task) => task,
        Some(task) => {
            let why = format!("task {} is {}, and no longer yours: stop working on it", task.key, task.status);
            return Ok(Plan::Answer(error_of(why)));
        }
        None => return Ok(Plan::Answer(error_of("there is no such task"))),
    };
    if plan.status != "executing" {
        return Ok(Plan::Answer(error_of(format!("the plan is {}: stop working on the task", plan.status))));
    }
    let arguments = &caller.call.arguments;
    let (session, id) = (SessionId::from(task.session_id), TaskId::from(task.id));
    let command = |event: &'static str| Act::new(session, id, &machine::TABLE, event, caller.actor());
    let reason = arguments["reason"].as_str().unwrap_or_default().to_owned();
    let said = |state: &str| success(json!({"task": task.key, "state": state}));
    match native {
        Native::CompleteTask => {
            let evidence = match evidence(caller, session).await? {
                Ok(evidence) => evidence,
                Err(why) => return Ok(Plan::Answer(error_of(why))),
            };
            let result = arguments["result"].clone();
            if is_empty(&result) {
                return Ok(Plan::Answer(error_of("result is empty: say what came of the task")));
            }
            let told = json!({"result": result, "evidence": evidence});
            let done = command("complete").telling("plan.task_completed", told).setting(|change| {
                change.set(task::Column::Result, result.clone()).set(task::Column::Evidence, json!(evidence))
            });
            act(caller, done, said("completed")).await
        }
        Native::FailTask => {
            let last = arguments["retry"] == false;
            let failed = command("fail").reason(&reason).setting(|change| match last {
                // Whoever knows that another attempt would not help says so.
                true => change.set(task::Column::AttemptsMax, task.attempt),
                false => change,
            });
            act(caller, failed, said("failed")).await
        }
        _ => act(caller, command("block").reason(&reason), said("blocked")).await,
    }
}

fn is_empty(result: &Value) -> bool {
    match result {
        Value::String(text) => text.trim().is_empty(),
        other => other.is_null(),
    }
}

/// What the call names, if it is there; else what the turn has to show.
async fn evidence(caller: &Caller<'_>, session: SessionId) -> Result<Result<Vec<RuneId>, String>, Failed> {
    let store = caller.runner.hub.store();
    let named = caller.call.arguments["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut ids = Vec::new();
    for name in named.iter().filter_map(Value::as_str) {
        match name.trim().parse::<RuneId>() {
            Ok(id) => ids.push(id),
            Err(_) => return Ok(Err(format!("{name:?} is no rune's id: name runes (run_…), or leave evidence out"))),
        }
    }
    if ids.is_empty() {
        let Some(turn) = caller.turn() else { return Ok(Ok(ids)) };
        return Ok(Ok(store.evidence_of(session, turn).await?));
    }
    let there = store.runes_there(session, &ids).await?;
    match ids.iter().find(|id| !there.contains(id)) {
        Some(missing) => Ok(Err(format!("there is no rune {missing} in this session: leave out what is not there"))),
        None => Ok(Ok(ids)),
    }
}
