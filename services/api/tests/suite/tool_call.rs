//! Tool calls: approved as shown, denied with a reason, cancelled, resolved once.

use crate::kit::{House, ask, on_both, text};
use anyhow::{Context, Result};
use instar_core::id::CallId;
use instar_core::rune::Actor;
use instar_core::rune::payload::ResultStatus;
use instar_runtime::flow::{self, Outcome, Verdict};
use instar_store::entity::tool_call;
use sea_orm::EntityTrait;
use serde_json::json;

async fn a_call_is_approved_as_it_was_shown_or_not_at_all(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let (turn, calls) = house.calls(&agent, &[ask(), ask(), ask()]).await?;
    let waiting = house.get(&format!("/v1/tool-calls?status=awaiting_approval&turn={turn}")).await?.is(200);
    assert_eq!(waiting["data"].as_array().unwrap().len(), 3);
    let path = format!("/v1/tool-calls/{}", calls[0]);
    let shown = house.get(&path).await?.is(200);
    assert_eq!((&shown["digest"], &shown["arguments"]), (&json!("d1"), &json!({"text": "hi"})));
    assert_eq!(shown["approval"]["reason"], "side effects");
    house.post(&format!("{path}/approve"), json!({"digest": "d2"})).await?.refuses(409, "digest_mismatch");
    let after = house.post(&format!("{path}/approve"), json!({"digest": "d1"})).await?.is(200);
    assert_eq!((&after["status"], &after["approval"]["decision"]), (&json!("executing"), &json!("approved")));
    house.post(&format!("{path}/approve"), json!({})).await?.refuses(409, "approved");

    let path = format!("/v1/tool-calls/{}", calls[1]);
    house.post(&format!("{path}/deny"), json!({})).await?.refuses(422, "reason");
    let after = house.post(&format!("{path}/deny"), json!({"reason": "too dear"})).await?.is(200);
    assert_eq!((&after["status"], &after["result_status"]), (&json!("denied"), &json!("denied")));
    assert!(text(&after["result"]["error"]).contains("too dear"), "{after}");
    let after = house.post(&format!("/v1/tool-calls/{}/cancel", calls[2]), json!({})).await?.is(200);
    assert_eq!((&after["status"], &after["result_status"]), (&json!("cancelled_result"), &json!("cancelled")));
    house.post(&format!("{path}/resolve"), json!({"outcome": "success"})).await?.refuses(409, "resolve");

    house.sound(&session).await
}

/// Its timer has not fired: nothing here would.
async fn what_nobody_approved_in_time_is_not_approved_late(house: House) -> Result<()> {
    let (session, agent) = house.fleet().await?;
    let now = chrono::Utc::now();
    let until = |at| Verdict::Ask { reason: "side effects".into(), expires_at: Some(at) };
    let verdicts = [until(now - chrono::Duration::seconds(1)), until(now + chrono::Duration::hours(1))];
    let (_, calls) = house.calls(&agent, &verdicts).await?;
    let late = format!("/v1/tool-calls/{}", calls[0]);
    let refused = house.post(&format!("{late}/approve"), json!({})).await?.refuses(409, "time for a decision is over");
    assert_eq!(refused["code"], "approval_expired");
    assert!(refused["expired_at"].is_string(), "{refused}");
    assert_eq!(house.get(&late).await?.is(200)["status"], "awaiting_approval");
    house.post(&format!("/v1/tool-calls/{}/approve", calls[1]), json!({})).await?.is(200);
    house.post(&format!("{late}/deny"), json!({"reason": "too late"})).await?.is(200);
    house.sound(&session).await
}

async fn an_unknown_outcome_is_resolved_once(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let (_, calls) = house.calls(&agent, &[Verdict::Approved]).await?;
    let id: CallId = calls[0].parse()?;
    let row = tool_call::Entity::find_by_id(id.uuid()).one(house.store().db()).await?.context("a call")?;
    let lost = Outcome {
        status: ResultStatus::Unknown,
        output: json!(null),
        error: Some("lost".into()),
        duration_ms: 0,
        truncated: false,
    };
    house.land(flow::result(&row, Actor::system("tool-runner"), &lost)?).await?;
    let path = format!("/v1/tool-calls/{id}/resolve");
    house.post(&path, json!({"outcome": "maybe"})).await?.refuses(422, "outcome");
    let after = house.post(&path, json!({"outcome": "success", "output": {"id": 7}})).await?.is(200);
    assert_eq!((&after["result_status"], &after["result"]["output"]), (&json!("success"), &json!({"id": 7})));
    assert_eq!(after["result"]["resolution"]["outcome"], "success");
    house.post(&path, json!({"outcome": "error"})).await?.refuses(409, "once");
    Ok(())
}

on_both! {
    a_call_is_approved_as_it_was_shown_or_not_at_all;
    an_unknown_outcome_is_resolved_once;
    what_nobody_approved_in_time_is_not_approved_late;
}
