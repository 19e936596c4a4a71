//! Steps run as tool calls: arguments out of assets, answers into them, one commit from each to the next.

use anyhow::{Context, Result, ensure};
use instar_core::asset::content::Content;
use instar_core::asset::lineage::{Made, Version, Way, lineage};
use instar_core::asset::{Schema, Type};
use instar_core::decide::Approval;
use instar_core::id::{AssetId, CallId, MissionId, StepId};
use instar_core::machine;
use instar_core::rune::Actor;
use instar_runtime::asset::{Keeping, made_from};
use instar_runtime::config::Config;
use instar_runtime::mission::{self as mission_flow, StepForm};
use instar_runtime::{Act, ActError, Done, Hub, Missions, Row};
use instar_store::entity::{asset_version, mission};
use instar_testkit::model::Script;
use instar_testkit::wait;
use instar_tests::cast::{self, fresh, person};
use instar_tests::on_both;
use instar_tests::stage::{self, Stage};
use instar_tests::troupe::{Troupe, WITHIN};
use instar_tests::voyage::{Plan, Tweak, Voyage, agent, plainly};
use instar_tools::{Kind, Origin, Spec};
use sea_orm::{ActiveValue::Set, EntityTrait};
use serde_json::{Value, json};

async fn ready(stage: &Stage, tweak: Tweak, steps: &[Plan]) -> Result<(Troupe, Voyage)> {
    let troupe = Troupe::start(stage, Script::default(), Config::default()).await?;
    let voyage = Voyage::ready(&troupe.context.hub, tweak, steps).await?;
    Ok((troupe, voyage))
}

/// A tool of the ledger's; `query` asks for faults.
fn tool(troupe: &Troupe, name: &str, query: &str) -> Spec {
    Spec {
        url: Some(format!("{}{query}", troupe.tool.effect_url(name))),
        parameters: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
        ..Spec::new(name, Kind::Http)
    }
}

/// Reads the input, writes what is between, then the output.
fn chain() -> [(&'static str, Value, Value); 2] {
    [
        ("echo", json!({"text": "input"}), json!({"output": "middle"})),
        ("echo", json!({"text": "middle"}), json!({"output": "output"})),
    ]
}

async fn steps_run_one_after_another_and_their_answers_are_versions(stage: Stage) -> Result<()> {
    let (_troupe, v) = ready(&stage, plainly, &chain()).await?;
    v.provide(v.input, json!("the coast")).await?;
    v.execute().await?;
    let hop = v.hop_is(&["COMPLETED"]).await?;
    assert_eq!(hop.input_versions, Some(json!({v.input.to_string(): 1})));
    let mission = v.hub.store().mission(v.mission).await?.context("mission")?;
    assert_eq!(mission.status, "COMPLETED");
    let output = v.asset(v.output).await?;
    assert_eq!((output.status.as_str(), output.content_version, output.promoted_version), ("READY", 1, Some(1)));
    assert_eq!(v.value(v.output, 1).await?, "the coast");
    for (at, reads) in [(0, v.input), (1, v.middle)] {
        let calls = v.calls(at).await?;
        assert_eq!(calls.len(), 1);
        let call = &calls[0];
        assert_eq!((call.turn_id, call.status.as_str()), (None, "completed_result"));
        assert_eq!(call.arguments, json!({"text": {"$asset": reads, "version": 1}}), "a reference, no content");
        let step = v.step(at).await?;
        assert_eq!((step.attempts, step.call_id), (1, Some(call.id)));
    }
    let known: Vec<_> = v.hub.store().versions_in(v.mission, 100).await?;
    let made: Vec<_> = known
        .iter()
        .map(|row| Made {
            what: Version { asset_id: row.asset_id.into(), version: row.number },
            by: row.author.clone(),
            hop_id: None,
            step_id: row.step_id.map(StepId::from),
            call_id: None,
            from: made_from(row),
        })
        .collect();
    let graph = lineage(Version { asset_id: v.output, version: 1 }, &made, Way::Up);
    let order: Vec<AssetId> = graph.versions.iter().map(|made| made.what.asset_id).collect();
    assert_eq!((order, graph.cut), (vec![v.output, v.middle, v.input], false));
    v.is_sound().await
}

async fn a_hop_reads_what_was_there_when_it_began(stage: Stage) -> Result<()> {
    let steps =
        [("sleep", json!({"ms": 700}), json!({})), ("echo", json!({"text": "input"}), json!({"output": "output"}))];
    let (_troupe, v) = ready(&stage, plainly, &steps).await?;
    v.provide(v.input, json!("first")).await?;
    v.execute().await?;
    v.step_is(0, |step| step.status == "EXECUTING").await?;
    // Somebody makes the input anew while the hop runs.
    v.act(v.on_asset(v.input, "reprocess").then(v.input, &machine::asset::TABLE, "cancel_processing")).await?;
    v.provide(v.input, json!("second")).await?;
    v.hop_is(&["COMPLETED"]).await?;
    assert_eq!(v.asset(v.input).await?.content_version, 2);
    assert_eq!(v.value(v.output, 1).await?, "first");
    v.is_sound().await
}

async fn what_only_looks_is_tried_again_after_a_pause(stage: Stage) -> Result<()> {
    let (troupe, v) =
        ready(&stage, plainly, &[("probe", json!({"text": "input"}), json!({"output": "output"}))]).await?;
    let probe = |query: &str| Spec { side_effects: false, ..tool(&troupe, "probe", query) };
    let tools = &troupe.tools;
    tools.register(probe("?fail=503"), Origin::Operator)?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    let waiting = v.step_is(0, |step| step.next_at.is_some()).await?;
    assert_eq!(waiting.status, "EXECUTING");
    // It answers by the next attempt, with something that is no string.
    tools.unregister("probe");
    tools.register(probe(""), Origin::Operator)?;
    let hop = v.hop_is(&["FAILED"]).await?;
    assert_eq!((hop.phase.as_deref(), hop.failure_class.as_deref()), (Some("execute"), Some("recoverable")));
    let step = v.step(0).await?;
    let why = step.error.unwrap_or_default().to_string();
    ensure!(step.attempts >= 2 && why.contains("expected string, found an object"), "{} {why}", step.attempts);
    let calls = v.calls(0).await?;
    assert_eq!(calls.len() as i64, step.attempts, "each attempt is a call");
    assert_eq!((calls[0].status.as_str(), calls.last().unwrap().status.as_str()), ("error_result", "completed_result"));
    assert_eq!(v.asset(v.output).await?.status, "ERROR");
    let mission = v.hub.store().mission(v.mission).await?.context("mission")?;
    assert_eq!(mission.status, "IN_PROGRESS");
    ensure!(mission.attention.is_some_and(|attention| attention["reason"] == "hop_failed"));
    v.is_sound().await
}

async fn what_must_not_be_repeated_fails_at_once(stage: Stage) -> Result<()> {
    let (troupe, v) = ready(&stage, plainly, &[("pay", json!({"text": "input"}), json!({"output": "output"}))]).await?;
    troupe.tools.register(tool(&troupe, "pay", "?fail=503"), Origin::Operator)?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    v.hop_is(&["FAILED"]).await?;
    assert_eq!((v.calls(0).await?.len(), troupe.tool.requests()), (1, 1));
    v.is_sound().await
}

fn one_step() -> [Plan; 1] {
    [("echo", json!({"text": "input"}), json!({"output": "output"}))]
}

async fn a_tool_that_is_gone_takes_the_approval_back(stage: Stage) -> Result<()> {
    let (troupe, v) = ready(&stage, plainly, &one_step()).await?;
    v.provide(v.input, json!("x")).await?;
    let system = Actor::system("test");
    let found = v.hub.inspect_hop(v.hop, None, &system).await?;
    ensure!(found.wrong.is_empty() && found.runes.is_empty(), "{found:?}");
    troupe.tools.unregister("echo");
    let stale = v.hub.inspect_hop(v.hop, Some(99), &system).await?;
    ensure!(stale.wrong.is_empty(), "whoever has seen something else is refused for that: {stale:?}");
    let found = v.hub.inspect_hop(v.hop, None, &system).await?;
    ensure!(found.wrong.len() == 1 && found.wrong[0].contains("no tool \"echo\""), "{found:?}");
    let told: Vec<&str> = found.runes.iter().map(|rune| rune.kind.as_str()).collect();
    assert_eq!(told, ["hop.impl_invalid", "step.config_reopened"]);
    let hop = v.hop_is(&["HOP_IMPL_STARTED"]).await?;
    ensure!(hop.repairs == 1 && hop.error.unwrap_or_default().to_string().contains("echo"));
    let step = v.step(0).await?;
    assert_eq!(step.status, "READY_TO_CONFIGURE");
    ensure!(step.validation_errors.unwrap_or_default().to_string().contains("echo"));
    ensure!(v.calls(0).await?.is_empty(), "nothing ran");
    v.is_sound().await
}

async fn a_gate_by_policy_stays_closed_to_a_tool_that_is_gone(stage: Stage) -> Result<()> {
    let troupe = Troupe::start(&stage, Script::default(), Config::default()).await?;
    let session = cast::session(&stage.store).await?;
    let auto = |row: &mut mission::Model| row.gates = json!({"execute": "auto"});
    // It has no input yet, so that nothing can run before the tool is gone.
    let v = Voyage::within(&troupe.context.hub, session, auto, plainly, &one_step()).await?;
    troupe.tools.unregister("echo");
    v.hop_is(&["HOP_IMPL_STARTED"]).await?;
    let mission = v.hub.store().mission(v.mission).await?.context("mission")?;
    assert_eq!(mission.status, "IN_PROGRESS");
    v.is_sound().await
}

async fn a_tool_that_goes_while_its_hop_runs_fails_the_hop(stage: Stage) -> Result<()> {
    let steps = [("sleep", json!({"ms": 1_500}), json!({})), ("echo", json!({}), json!({"output": "output"}))];
    let (troupe, v) = ready(&stage, plainly, &steps).await?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    v.step_is(0, |step| step.status == "EXECUTING").await?;
    troupe.tools.unregister("echo");
    v.hop_is(&["FAILED"]).await?;
    let why = v.step(1).await?.error.unwrap_or_default().to_string();
    ensure!(why.contains("there is no tool"), "{why}");
    let call = &v.calls(1).await?[0];
    assert_eq!((call.status.as_str(), call.result_status.as_deref()), ("error_result", Some("error")));
    v.is_sound().await
}

async fn new_steps_take_the_place_of_old_ones_in_one_commit(stage: Stage) -> Result<()> {
    let (_troupe, v) = ready(&stage, plainly, &chain()).await?;
    v.act(v.on_hop("request_hop_changes", person())).await?;
    let form: StepForm = serde_json::from_value(json!({"tool_id": "echo"}))?;
    let again = || async {
        let rows = Missions::of(v.hub.store().mission_rows(v.mission, None).await?);
        let hop = v.hub.store().hop(v.hop).await?.context("hop")?;
        anyhow::Ok(mission_flow::hop_impl(&rows, &hop, std::slice::from_ref(&form), 3, agent()).0)
    };
    // Something moves between the look and the proposal: it does not land, and the old steps are as they were.
    let late = again().await?;
    v.provide(v.input, json!("x")).await?;
    ensure!(matches!(late.carry_out(&v.hub).await, Err(ActError::Contended)));
    for at in [0, 1] {
        assert_eq!(v.step(at).await?.status, "READY_TO_CONFIGURE");
    }
    let Done::Moved { runes } = again().await?.carry_out(&v.hub).await? else { anyhow::bail!("nothing moved") };
    let told: Vec<&str> = runes.iter().map(|rune| rune.kind.as_str()).collect();
    let cancelled = told.iter().filter(|kind| **kind == "step.cancelled").count();
    ensure!(
        told.first() == Some(&"hop.impl_proposed") && cancelled == 2 && told.contains(&"step.configured"),
        "{told:?}"
    );
    for at in [0, 1] {
        assert_eq!(v.step(at).await?.status, "CANCELLED");
    }
    v.hop_is(&["HOP_IMPL_PROPOSED"]).await?;
    v.is_sound().await
}

async fn a_tool_that_always_asks_asks_for_a_step_as_well(stage: Stage) -> Result<()> {
    let (troupe, v) = ready(&stage, plainly, &[("ask", json!({"text": "input"}), json!({"name": "output"}))]).await?;
    let results = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let ask = Spec { results, requires_approval: Approval::Always, ..tool(&troupe, "ask", "") };
    troupe.tools.register(ask, Origin::Operator)?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    let call = v.call_is(0, |call| call.status == "awaiting_approval").await?;
    assert_eq!(troupe.tool.requests(), 0);
    ensure!(call.expires_at.is_some() && call.approval.is_some());
    v.act(Act::new(v.session, CallId::from(call.id), &machine::tool_call::TABLE, "approved", person())).await?;
    v.hop_is(&["COMPLETED"]).await?;
    assert_eq!(v.value(v.output, 1).await?, "ask");
    v.is_sound().await
}

async fn a_denied_call_fails_its_step(stage: Stage) -> Result<()> {
    let (troupe, v) = ready(&stage, plainly, &[("ask", json!({}), json!({"output": "output"}))]).await?;
    let ask = Spec { requires_approval: Approval::Always, ..tool(&troupe, "ask", "") };
    troupe.tools.register(ask, Origin::Operator)?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    let call = CallId::from(v.call_is(0, |call| call.status == "awaiting_approval").await?.id);
    v.act(Act::new(v.session, call, &machine::tool_call::TABLE, "denied", person()).reason("too dear")).await?;
    v.hop_is(&["FAILED"]).await?;
    assert_eq!(v.step(0).await?.status, "FAILED");
    v.is_sound().await
}

async fn a_stopped_hop_stops_its_call_and_leaves_its_outputs_open(stage: Stage) -> Result<()> {
    let (_troupe, v) = ready(&stage, plainly, &[("sleep", json!({"ms": 60_000}), json!({"output": "output"}))]).await?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    v.call_is(0, |call| call.owner.is_some()).await?;
    v.act(v.on_hop("stop_hop", person())).await?;
    let call = v.calls(0).await?.pop().context("call")?;
    assert_eq!(call.status, "cancelled_result");
    assert_eq!(v.step(0).await?.status, "CANCELLED");
    assert_eq!(v.asset(v.output).await?.status, "READY_FOR_PROCESSING");
    v.is_sound().await
}

async fn a_paused_session_keeps_the_next_step_waiting(stage: Stage) -> Result<()> {
    let steps =
        [("sleep", json!({"ms": 2500}), json!({})), ("echo", json!({"text": "input"}), json!({"output": "output"}))];
    let (_troupe, v) = ready(&stage, plainly, &steps).await?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    // What no runner has begun would wait, too.
    wait::until_ok(WITHIN, || async {
        let begun = v.calls(0).await?.iter().any(|call| call.owner.is_some());
        ensure!(begun, "no runner has begun it");
        Ok(())
    })
    .await?;
    let on_session = |event| Act::new(v.session, v.session, &machine::session::TABLE, event, person());
    v.act(on_session("pause_requested")).await?;
    v.step_is(0, |step| step.status == "COMPLETED").await?;
    assert_eq!(v.step(1).await?.status, "READY_TO_EXECUTE");
    v.act(on_session("resume_requested")).await?;
    v.hop_is(&["COMPLETED"]).await?;
    v.is_sound().await
}

async fn a_step_that_nobody_was_told_of_is_found(stage: Stage) -> Result<()> {
    let (_troupe, v) = ready(&stage, plainly, &chain()).await?;
    v.provide(v.input, json!("x")).await?;
    // Nobody follows it.
    v.on_hop("execute_hop", person()).carry_out(&v.hub).await?;
    v.hop_is(&["COMPLETED"]).await?;
    v.is_sound().await
}

async fn an_input_that_expires_takes_the_approval_back(stage: Stage) -> Result<()> {
    let soon: Tweak = |role, row| row.ttl_ms = (role == "input").then_some(300);
    let (_troupe, v) = ready(&stage, soon, &chain()).await?;
    v.provide(v.input, json!("x")).await?;
    v.asset_is(v.input, "EXPIRED").await?;
    let hop = v.hop_is(&["HOP_IMPL_STARTED"]).await?;
    assert_eq!(hop.repairs, 1);
    let step = v.step(0).await?;
    assert_eq!(step.status, "READY_TO_CONFIGURE");
    ensure!(step.validation_errors.unwrap_or_default().to_string().contains("expired"));
    assert_eq!(v.step(1).await?.status, "READY_TO_EXECUTE", "it does not read it");
    v.act(v.on_asset(v.input, "refresh_asset")).await?;
    assert_eq!(v.asset(v.input).await?.status, "READY_FOR_PROCESSING");
    v.is_sound().await
}

async fn an_input_that_expires_under_a_running_hop_fails_it_with_advice(stage: Stage) -> Result<()> {
    let soon: Tweak = |role, row| row.ttl_ms = (role == "input").then_some(400);
    let steps =
        [("sleep", json!({"ms": 1_500}), json!({})), ("echo", json!({"text": "input"}), json!({"output": "output"}))];
    let (_troupe, v) = ready(&stage, soon, &steps).await?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    let hop = v.hop_is(&["FAILED"]).await?;
    let why = hop.error.unwrap_or_default().to_string();
    ensure!(why.contains("EXPIRED") && why.contains("retry the hop"), "{why}");
    assert_eq!(v.step(1).await?.status, "READY_TO_EXECUTE");
    assert_eq!(v.asset(v.output).await?.status, "ERROR", "what it would have made cannot be made");
    v.is_sound().await
}

/// Its first step has nothing to do with assets: it only takes its time.
fn late() -> [Plan; 2] {
    [("sleep", json!({"ms": 1_000}), json!({})), ("echo", json!({"text": "input"}), json!({"output": "output"}))]
}

async fn an_output_that_takes_no_value_is_not_worked_for(stage: Stage) -> Result<()> {
    let soon: Tweak = |role, row| row.ttl_ms = (role == "output").then_some(300);
    let (_troupe, v) = ready(&stage, soon, &one_step()).await?;
    v.provide(v.input, json!("x")).await?;
    v.provide(v.output, json!("old")).await?;
    v.asset_is(v.output, "EXPIRED").await?;
    let refused = v.on_hop("execute_hop", person()).carry_out(&v.hub).await;
    ensure!(matches!(&refused, Err(ActError::Refused(no)) if no.advice.contains("refresh it first")), "{refused:?}");
    let found = v.hub.inspect_hop(v.hop, None, &Actor::system("test")).await?;
    ensure!(found.wrong.len() == 1 && found.wrong[0].contains("refresh it first"), "{found:?}");
    let hop = v.hop_is(&["HOP_IMPL_STARTED"]).await?;
    ensure!(hop.repairs == 1 && v.calls(0).await?.is_empty(), "nothing ran");
    v.act(v.on_asset(v.output, "refresh_asset")).await?;
    assert_eq!(v.asset(v.output).await?.expires_at, None, "it has no value whose time could run out");

    // Nor is a hop planned that would make it.
    v.act(v.on_hop("cancel_hop", person())).await?;
    let expire = Act::new(v.session, v.output, &machine::asset::TABLE, "ttl_exceeded", Actor::system("test"));
    v.act(expire).await?;
    let rows = Missions::of(v.hub.store().mission_rows(v.mission, None).await?);
    let of = v.hub.store().mission(v.mission).await?.context("mission")?;
    let form: mission_flow::HopForm =
        serde_json::from_value(json!({"name": "once more", "output": {"asset_id": v.output}}))?;
    let planned = mission_flow::hop(&rows, &of, Some(form), person());
    ensure!(planned.is_err_and(|no| no.to_string().contains("refresh it first")));
    v.is_sound().await
}

async fn what_is_in_the_making_has_no_time_that_runs_out(stage: Stage) -> Result<()> {
    let hour: Tweak = |role, row| row.ttl_ms = (role == "output").then_some(3_600_000);
    let (_troupe, v) = ready(&stage, hour, &[("sleep", json!({"ms": 60_000}), json!({"output": "output"}))]).await?;
    v.provide(v.input, json!("x")).await?;
    v.provide(v.output, json!("old")).await?;
    ensure!(v.asset(v.output).await?.expires_at.is_some());
    v.execute().await?;
    let output = v.asset(v.output).await?;
    assert_eq!((output.status.as_str(), output.expires_at), ("PROCESSING", None));
    v.act(v.on_hop("stop_hop", person())).await?;
    v.is_sound().await
}

async fn an_answer_that_has_nowhere_to_go_fails_its_step(stage: Stage) -> Result<()> {
    let object: Tweak = |role, row| {
        if role == "output" {
            row.kind = "object".into();
        }
    };
    let (_troupe, v) = ready(&stage, object, &[("sleep", json!({"ms": 1_500}), json!({"output": "output"}))]).await?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    v.call_is(0, |call| call.owner.is_some()).await?;
    let expire = Act::new(v.session, v.output, &machine::asset::TABLE, "ttl_exceeded", Actor::system("test"));
    v.act(expire).await?;
    let hop = v.hop_is(&["FAILED", "COMPLETED"]).await?;
    let why = hop.error.unwrap_or_default().to_string();
    ensure!(hop.status == "FAILED" && why.contains("output is EXPIRED and takes no value"), "{} {why}", hop.status);
    let call = v.calls(0).await?.pop().context("call")?;
    assert_eq!((call.status.as_str(), call.result_status.as_deref()), ("completed_result", Some("success")));
    let step = v.step(0).await?;
    assert_eq!((step.status.as_str(), step.result), ("FAILED", None));
    let mission = v.hub.store().mission(v.mission).await?.context("mission")?;
    ensure!(mission.attention.is_some_and(|attention| attention["reason"] == "hop_failed"));
    v.is_sound().await
}

async fn an_output_that_is_lost_before_its_step_begins_fails_the_hop_with_advice(stage: Stage) -> Result<()> {
    let (_troupe, v) = ready(&stage, plainly, &late()).await?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    v.step_is(0, |step| step.status == "EXECUTING").await?;
    let expire = Act::new(v.session, v.output, &machine::asset::TABLE, "ttl_exceeded", Actor::system("test"));
    v.act(expire).await?;
    let hop = v.hop_is(&["FAILED", "COMPLETED"]).await?;
    let why = hop.error.unwrap_or_default().to_string();
    ensure!(hop.status == "FAILED" && why.contains("refresh it, then retry the hop"), "{} {why}", hop.status);
    ensure!(v.calls(1).await?.is_empty(), "what it would have done is not done");
    v.is_sound().await
}

async fn a_step_whose_input_nobody_makes_calls_people_and_begins_when_it_is_there(stage: Stage) -> Result<()> {
    let steps =
        [("sleep", json!({"ms": 1}), json!({})), ("echo", json!({"text": "middle"}), json!({"output": "output"}))];
    let (_troupe, v) = ready(&stage, plainly, &steps).await?;
    v.provide(v.input, json!("x")).await?;
    v.execute().await?;
    let attention = wait::until_ok(WITHIN, || async {
        let mission = v.hub.store().mission(v.mission).await?.context("mission")?;
        mission.attention.context("nobody is called")
    })
    .await?;
    ensure!(attention["reason"] == "input_missing" && attention["step_id"] == json!(v.steps[1]), "{attention}");
    ensure!(attention["detail"].to_string().contains("provide it"), "{attention}");
    v.provide(v.middle, json!("at last")).await?;
    v.hop_is(&["COMPLETED"]).await?;
    assert_eq!(v.hub.store().mission(v.mission).await?.context("mission")?.attention, None);
    v.is_sound().await
}

async fn damaged_content_is_found_by_whoever_reads_it(stage: Stage) -> Result<()> {
    let (_troupe, v) = ready(&stage, plainly, &chain()).await?;
    v.provide(v.input, json!("the coast")).await?;
    // One byte of what is stored is another.
    let row = v.hub.store().asset_version(v.input, 1).await?.context("version")?;
    let mut content = row.content.clone().context("inline")?;
    content[0] ^= 1;
    let changed = asset_version::ActiveModel { id: Set(row.id), content: Set(Some(content)), ..Default::default() };
    asset_version::Entity::update(changed).exec(v.hub.store().db()).await?;
    v.execute().await?;
    let hop = v.hop_is(&["FAILED"]).await?;
    let why = hop.error.unwrap_or_default().to_string();
    ensure!(why.contains("hash does not fit"), "{why}");
    let input = v.asset(v.input).await?;
    assert_eq!(input.status, "ERROR");
    ensure!(v.value(v.input, 1).await.is_err());
    v.is_sound().await
}

async fn an_old_version_that_is_damaged_concerns_only_who_reads_it(stage: Stage) -> Result<()> {
    let (_troupe, v) = ready(&stage, plainly, &chain()).await?;
    v.provide(v.input, json!("first")).await?;
    v.act(v.on_asset(v.input, "reprocess").then(v.input, &machine::asset::TABLE, "cancel_processing")).await?;
    v.provide(v.input, json!("second")).await?;
    let row = v.hub.store().asset_version(v.input, 1).await?.context("version")?;
    let mut content = row.content.clone().context("inline")?;
    content[0] ^= 1;
    let changed = asset_version::ActiveModel { id: Set(row.id), content: Set(Some(content)), ..Default::default() };
    asset_version::Entity::update(changed).exec(v.hub.store().db()).await?;
    let read = v.value(v.input, 1).await;
    ensure!(
        read.is_err_and(|error| error.to_string().contains("version 1 of") && error.to_string().contains("damaged"))
    );
    assert_eq!(v.asset(v.input).await?.status, "READY");
    assert_eq!(v.value(v.input, 2).await?, "second");
    assert_eq!(v.hub.store().hop(v.hop).await?.context("hop")?.status, "HOP_IMPL_READY", "its approval stands");
    v.is_sound().await
}

async fn large_content_is_kept_outside_the_database_and_held_against_its_hash(stage: Stage) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = instar_archive::Options { url: folder.path().display().to_string(), ..Default::default() };
    let contents = instar_archive::Contents::open(&options)?;
    let keeping = Keeping { contents: Some(contents), inline_bytes_max: 1_000, bytes_max: 5_000_000 };
    let hub = Hub::new(stage.store.clone(), stage::bus(&stage).await?).keeping_content(keeping);
    let schema = Schema::new(Type::String);
    let id: AssetId = fresh();
    let text = "long ".repeat(200_000);
    let kept = hub.keep(id, &schema, Content::of(&schema, &json!(text))).await?;
    assert_eq!(kept.bytes, 1_000_000);
    let session = cast::session(hub.store()).await?;
    let mission: MissionId = fresh();
    let mut row = cast::asset_row(id, session, mission, "input", "READY");
    row.content_version = 0;
    let propose = Act::new(session, mission, &machine::mission::TABLE, "propose_mission", agent());
    let of = cast::mission_row(mission, session, "AWAITING_APPROVAL");
    propose.bringing(Row::Mission(of)).carry_out(&hub).await?;
    let register = Act::new(session, id, &machine::asset::TABLE, "register_asset", person()).within(mission);
    register.bringing(Row::Asset(row)).writing(kept).carry_out(&hub).await?;
    let version = hub.store().asset_version(id, 1).await?.context("version")?;
    ensure!(version.content.is_none(), "it is too large for a row");
    let whole = hub.content(&version).await?;
    assert_eq!(whole.bytes.len(), 1_000_000);
    let object = folder.path().join("assets").join(&version.hash[..2]).join(&version.hash);
    let mut bytes = std::fs::read(&object)?;
    bytes[500_000] ^= 1;
    std::fs::write(&object, bytes)?;
    ensure!(hub.content(&version).await.is_err(), "one byte is another");
    let read = hub.value(Version { asset_id: id, version: 1 }, Actor::system("test")).await;
    ensure!(read.is_err_and(|error| error.to_string().contains("hash does not fit")));
    let asset = hub.store().asset(id).await?.context("asset")?;
    assert_eq!(asset.status, "ERROR");
    let too_large = Content::of(&schema, &json!("x".repeat(5_000_001)));
    ensure!(hub.keep(id, &schema, too_large).await.is_err_and(|error| error.to_string().contains("limit")));
    Ok(())
}

on_both! {
    steps_run_one_after_another_and_their_answers_are_versions;
    a_hop_reads_what_was_there_when_it_began;
    what_only_looks_is_tried_again_after_a_pause;
    what_must_not_be_repeated_fails_at_once;
    a_tool_that_is_gone_takes_the_approval_back;
    a_gate_by_policy_stays_closed_to_a_tool_that_is_gone;
    a_tool_that_goes_while_its_hop_runs_fails_the_hop;
    new_steps_take_the_place_of_old_ones_in_one_commit;
    a_tool_that_always_asks_asks_for_a_step_as_well;
    a_denied_call_fails_its_step;
    a_stopped_hop_stops_its_call_and_leaves_its_outputs_open;
    a_paused_session_keeps_the_next_step_waiting;
    a_step_that_nobody_was_told_of_is_found;
    an_input_that_expires_takes_the_approval_back;
    an_input_that_expires_under_a_running_hop_fails_it_with_advice;
    an_output_that_takes_no_value_is_not_worked_for;
    what_is_in_the_making_has_no_time_that_runs_out;
    an_answer_that_has_nowhere_to_go_fails_its_step;
    an_output_that_is_lost_before_its_step_begins_fails_the_hop_with_advice;
    a_step_whose_input_nobody_makes_calls_people_and_begins_when_it_is_there;
    damaged_content_is_found_by_whoever_reads_it;
    an_old_version_that_is_damaged_concerns_only_who_reads_it;
    large_content_is_kept_outside_the_database_and_held_against_its_hash;
}
