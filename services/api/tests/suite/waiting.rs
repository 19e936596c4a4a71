//! Whatever could go on and does not says what for, whoever is dead or gone meanwhile.

use crate::kit::{House, on_both, spoken, text};
use anyhow::{Context as _, Result, ensure};
use chrono::{Duration, Utc};
use instar_core::id::{AgentId, CallId, SessionId, WorkerId};
use instar_runtime::flow::{self, Verdict};
use instar_store::entity::{agent, message};
use instar_testkit::wait;
use sea_orm::{ActiveModelTrait, ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, Set};
use serde_json::{Value, json};
use std::time::Duration as Time;
use uuid::Uuid;

const LONG: Time = Time::from_secs(600);

impl House {
    /// What a turn says that it waits for; its agent says the same, with the turn's id.
    async fn waits(&self, agent: &str, turn: &str) -> Result<Value> {
        let of_turn = self.get(&format!("/v1/turns/{turn}")).await?.is(200)["waiting_for"].clone();
        let mut of_agent = self.get(&format!("/v1/agents/{agent}")).await?.is(200)["waiting_for"].clone();
        if let Some(fields) = of_agent.as_object_mut() {
            let named = fields.remove("turn_id");
            ensure!(named == Some(json!(turn)), "{named:?}");
        }
        ensure!(of_turn == of_agent, "the turn says {of_turn}, its agent {of_agent}");
        Ok(of_turn)
    }

    async fn born(&self, worker: WorkerId, service: &str) -> Result<()> {
        self.store().register_worker(worker, service, LONG, json!({})).await?;
        Ok(())
    }

    /// A turn that a worker has.
    async fn streaming(&self, agent: &str) -> Result<(String, WorkerId)> {
        let turn = text(&self.say(agent, "hello").await?["turn_id"]);
        let worker = self.claim(agent, &turn).await?;
        Ok((turn, worker))
    }

    async fn edit_agent(&self, agent: &str, edit: impl FnOnce(&mut agent::ActiveModel)) -> Result<()> {
        let mut row = self.agent_row(agent).await?.into_active_model();
        edit(&mut row);
        row.update(self.store().db()).await?;
        Ok(())
    }
}

async fn a_streaming_turn_that_nobody_has_waits_for_a_worker(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let (turn, worker) = house.streaming(&agent).await?;
    assert_eq!(house.waits(&agent, &turn).await?, json!({"kind": "worker"}), "its worker is dead");
    house.born(worker, "agent-worker").await?;
    assert_eq!(house.waits(&agent, &turn).await?, Value::Null, "it is at work");
    house.land(flow::hand_back(&house.turn_row(&turn).await?, worker, &spoken("so far"), 0)?).await?;
    assert_eq!(house.waits(&agent, &turn).await?, json!({"kind": "worker"}), "it was handed back");
    Ok(())
}

async fn a_wait_for_the_provider_that_is_over_is_a_wait_for_a_worker(house: House) -> Result<()> {
    for (wait, kind) in [(Duration::minutes(10), "provider"), (Duration::minutes(-1), "worker")] {
        let (_, agent) = house.fleet().await?;
        let (turn, worker) = house.streaming(&agent).await?;
        let row = house.turn_row(&turn).await?;
        house.land(flow::park(&row, worker, Utc::now() + wait, "rate_limit", "later", &spoken(""))?).await?;
        let waits = house.waits(&agent, &turn).await?;
        assert_eq!(waits["kind"], kind);
        if kind == "provider" {
            assert_eq!((&waits["error_type"], &waits["error"]), (&json!("rate_limit"), &json!("later")));
        }
    }
    Ok(())
}

async fn a_streaming_turn_that_finds_no_room_waits_for_its_budget(house: House) -> Result<()> {
    let body = json!({"root_agent": {"name": "ada", "model": "default"}, "budget": {"max_tokens": 1_000}});
    let session = house.post("/v1/sessions", body).await?.is(201);
    let (session, agent) = (text(&session["id"]), text(&session["root_agent_id"]));
    let (turn, worker) = house.streaming(&agent).await?;
    house.land(flow::hand_back(&house.turn_row(&turn).await?, worker, &spoken(""), 0)?).await?;
    assert_eq!(house.waits(&agent, &turn).await?, json!({"kind": "worker"}), "there is room");
    let limits = house.store().budgets(&[session.parse::<SessionId>()?.uuid()]).await?;
    let limit = limits.into_iter().find(|limit| limit.cap == 1_000).context("a limit")?;
    let mut tight = limit.into_active_model();
    tight.reserved = Set(1_000);
    tight.update(house.store().db()).await?;
    assert_eq!(house.waits(&agent, &turn).await?["kind"], "budget");
    Ok(())
}

async fn a_call_that_nobody_runs_waits_for_a_runner(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let (turn, calls) = house.calls(&agent, &[Verdict::Free]).await?;
    let nobody = json!({"kind": "runner", "call_ids": calls});
    assert_eq!(house.waits(&agent, &turn).await?, nobody);
    let runner = WorkerId::from(Uuid::now_v7());
    let call = house.store().call(calls[0].parse::<CallId>()?).await?.context("the call")?;
    house.land(flow::start(&call, runner)?).await?;
    assert_eq!(house.waits(&agent, &turn).await?, nobody, "its runner is gone");
    house.born(runner, "tool-runner").await?;
    assert_eq!(house.waits(&agent, &turn).await?, json!({"kind": "tool", "call_ids": calls}));
    Ok(())
}

async fn a_queued_turn_waits_for_a_worker(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let turn = text(&house.say(&agent, "hello").await?["turn_id"]);
    assert_eq!(house.waits(&agent, &turn).await?, json!({"kind": "worker"}));
    Ok(())
}

/// What an agent without a turn says, once it is of this kind.
async fn agent_waits(house: &House, agent: &str, kind: &str) -> Result<Value> {
    wait::until_ok(Time::from_secs(20), || async {
        let shown = house.get(&format!("/v1/agents/{agent}")).await?.is(200);
        ensure!(shown["waiting_for"]["kind"] == kind, "{}", shown["waiting_for"]);
        Ok(shown["waiting_for"].clone())
    })
    .await
}

async fn an_agent_whose_pause_is_over_waits_for_the_scheduler(house: House) -> Result<()> {
    let body = json!({"root_agent": {"name": "ada", "model": "default", "loop": "autonomous"}});
    let session = house.post("/v1/sessions", body).await?.is(201);
    let agent = text(&session["root_agent_id"]);
    house.post(&format!("/v1/agents/{agent}/start"), json!({})).await?.is(200);
    assert_eq!(agent_waits(&house, &agent, "scheduler").await?, json!({"kind": "scheduler"}), "there is none");
    Ok(())
}

async fn an_agent_with_letters_and_no_turn_waits_for_the_scheduler(house: House) -> Result<()> {
    let (_, agent) = house.fleet().await?;
    let turn = text(&house.say(&agent, "hello").await?["turn_id"]);
    house.post(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?.is(200);
    let said = message::Entity::find().filter(message::Column::AgentId.eq(house.agent_row(&agent).await?.id));
    let mut letter = said.one(house.store().db()).await?.context("what was said")?.into_active_model();
    letter.turn_id = Set(None);
    letter.update(house.store().db()).await?;
    assert_eq!(agent_waits(&house, &agent, "scheduler").await?, json!({"kind": "scheduler"}));
    Ok(())
}

async fn an_agent_in_the_making_waits_for_a_place_or_for_its_tools(house: House) -> Result<()> {
    let (session, parent) = house.fleet().await?;
    let body = json!({"name": "bea", "model": "default"});
    let child = text(&house.post(&format!("/v1/sessions/{session}/agents"), body).await?.is(201)["id"]);
    house.edit_agent(&child, |row| row.lifecycle = Set("spawning".into())).await?;
    assert_eq!(agent_waits(&house, &child, "tools").await?, json!({"kind": "tools"}));
    let of: AgentId = parent.parse()?;
    house.edit_agent(&child, |row| row.parent_id = Set(Some(of.uuid()))).await?;
    assert_eq!(agent_waits(&house, &child, "place").await?, json!({"kind": "place", "parent_id": parent}));
    Ok(())
}

on_both! {
    a_streaming_turn_that_nobody_has_waits_for_a_worker;
    a_wait_for_the_provider_that_is_over_is_a_wait_for_a_worker;
    a_streaming_turn_that_finds_no_room_waits_for_its_budget;
    a_call_that_nobody_runs_waits_for_a_runner;
    a_queued_turn_waits_for_a_worker;
    an_agent_whose_pause_is_over_waits_for_the_scheduler;
    an_agent_with_letters_and_no_turn_waits_for_the_scheduler;
    an_agent_in_the_making_waits_for_a_place_or_for_its_tools;
}
