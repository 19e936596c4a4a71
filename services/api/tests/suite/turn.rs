//! Turns: what they wait for, and how they are interrupted.

use crate::kit::{House, ask, on_both, text};
use anyhow::Result;
use instar_runtime::flow::Verdict;
use serde_json::json;

async fn a_turn_says_what_it_waits_for(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let (turn, calls) = house.calls(&agent, &[ask(), Verdict::Free]).await?;
    let path = format!("/v1/turns/{turn}");
    let shown = house.get(&path).await?.is(200);
    assert_eq!((&shown["status"], &shown["open_calls"]), (&json!("tool_executing"), &json!(2)));
    let awaited = json!({"kind": "approval", "call_ids": [calls[0]], "role": "approver", "until": null});
    assert_eq!(shown["waiting_for"], awaited);
    assert_eq!(shown["usage"], json!({"input_tokens": 3, "output_tokens": 2, "tool_calls": 2}));
    house.post(&format!("/v1/tool-calls/{}/deny", calls[0]), json!({"reason": "no"})).await?.is(200);
    let shown = house.get(&path).await?.is(200);
    assert_eq!(
        (&shown["waiting_for"], &shown["open_calls"]),
        (&json!({"kind": "runner", "call_ids": [calls[1]]}), &json!(1))
    );
    house.post(&format!("/v1/agents/{agent}/stop"), json!({})).await?.is(200);
    let listed = house.get(&format!("/v1/turns?agent={agent}&status=tool_executing")).await?.is(200);
    assert_eq!(listed["data"][0]["id"], json!(turn));
    Ok(())
}

async fn a_queued_turn_is_interrupted_at_once_and_a_running_one_is_asked(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let turn = text(&house.say(&agent, "hello").await?["turn_id"]);
    let path = format!("/v1/turns/{turn}");
    let after = house.post(&format!("{path}/interrupt"), json!({"reason": "changed my mind"})).await?.is(200);
    assert_eq!((&after["status"], &after["waiting_for"]), (&json!("interrupted"), &json!(null)));
    assert!(after["ended_at"].is_string());
    house.post(&format!("{path}/interrupt"), json!({})).await?.refuses(409, "interrupt");

    let turn = text(&house.say(&agent, "again").await?["turn_id"]);
    house.claim(&agent, &turn).await?;
    let after = house.post(&format!("/v1/turns/{turn}/interrupt"), json!({"reason": "enough"})).await?.is(200);
    assert_eq!((&after["status"], &after["waiting_for"]), (&json!("streaming"), &json!({"kind": "worker"})));
    let control = house.turn_row(&turn).await?.control.unwrap_or_default();
    assert_eq!((&control["action"], &control["reason"]), (&json!("interrupt"), &json!("enough")));
    house.sound(&session).await
}

on_both! {
    a_turn_says_what_it_waits_for;
    a_queued_turn_is_interrupted_at_once_and_a_running_one_is_asked;
}
