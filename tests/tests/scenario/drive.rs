//! What a drive refuses or takes as already done: it leaves no rune, and nothing changes.

use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Result, ensure};
use instar_testkit::model::{Refusal, Reply};
use serde_json::{Value, json};

pub(crate) static PLAIN: Group = Group {
    name: "drive",
    config: "[scheduler]\nerror_threshold = 0\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        that_runs_is_not_started_again,
        that_is_stopped_takes_nothing,
        that_is_errored_takes_nothing,
        that_does_not_run_is_stopped_already,
        that_was_stopped_stays_so_when_its_turn_fails_late,
        goes_on_until_nobody_prompts_it,
    ],
};

async fn drive(world: &World, agent: &str) -> Result<String> {
    text(&world.get(&format!("/v1/agents/{agent}")).await?, "drive")
}

/// What is asked must be refused in these words, and leave the log as it is.
async fn nothing(world: &World, session: &str, path: &str, body: Value, words: &str) -> Result<()> {
    let before = world.runes(session).await?.len();
    world.refused(path, body, words).await?;
    ensure!(world.runes(session).await?.len() == before, "{path} left a rune");
    Ok(())
}

async fn that_runs_is_not_started_again(world: World) -> Result<()> {
    world.script(|_| Reply::text("Done."));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let path = format!("/v1/agents/{agent}/start");
    world.act(&path, json!({})).await?;
    nothing(&world, &session, &path, json!({}), "already running").await?;
    world.saw("D12");
    Ok(())
}

async fn that_is_stopped_takes_nothing(world: World) -> Result<()> {
    world.script(|_| Reply::text("Done."));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    world.act(&format!("/v1/agents/{agent}/hold"), json!({})).await?;
    nothing(&world, &session, &format!("/v1/agents/{agent}/messages"), json!({"content": "x"}), "stopped").await?;
    nothing(&world, &session, &format!("/v1/sessions/{session}/broadcasts"), json!({"content": "x"}), "").await?;
    ensure!(drive(&world, &agent).await? == "stopped");
    world.saw("D14");
    // A relaunch lets it go on.
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    ensure!(world.turn(&agent, "again").await?["status"] == "completed");
    Ok(())
}

async fn that_is_errored_takes_nothing(world: World) -> Result<()> {
    world.script(|_| Reply::refused(Refusal::Unauthorized));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    ensure!(world.turn(&agent, "go").await?["status"] == "error");
    ensure!(drive(&world, &agent).await? == "errored");
    nothing(&world, &session, &format!("/v1/agents/{agent}/messages"), json!({"content": "x"}), "errored").await?;
    nothing(&world, &session, &format!("/v1/sessions/{session}/broadcasts"), json!({"content": "x"}), "").await?;
    world.saw("D15");
    // A stop finds nothing to stop; a relaunch lets it go on.
    world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?;
    ensure!(drive(&world, &agent).await? == "errored");
    world.script(|_| Reply::text("Done."));
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    ensure!(world.turn(&agent, "again").await?["status"] == "completed");
    Ok(())
}

async fn that_does_not_run_is_stopped_already(world: World) -> Result<()> {
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let before = world.runes(&session).await?.len();
    let shown = world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?;
    ensure!(shown["drive"] == "idle" && world.runes(&session).await?.len() == before, "{shown}");
    world.saw("D16");
    Ok(())
}

/// The provider refuses what a stop had cancelled: the drive stays stopped, and no error is told of it.
async fn that_was_stopped_stays_so_when_its_turn_fails_late(world: World) -> Result<()> {
    let late = std::time::Duration::from_millis(1500);
    world.script(move |_| {
        Reply::text("so far so good").slow(late, late).broken_after(1, instar_testkit::model::Break::Cut)
    });
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.turn_is(&turn, "streaming").await?;
    world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] != "completed");
    ensure!(drive(&world, &agent).await? == "stopped");
    let runes = world.runes(&session).await?;
    ensure!(!runes.iter().any(|rune| rune["kind"] == "agent.drive_errored"), "{runes:#?}");
    world.saw("D17");
    Ok(())
}

async fn goes_on_until_nobody_prompts_it(world: World) -> Result<()> {
    world.script(|_| Reply::text("I look around."));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"loop": "autonomous"})).await?;
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    let rests = |shown: &Value| shown["drive"] == "idle" && shown["needs_attention"] == true;
    let shown = world.until(&format!("/v1/agents/{agent}"), rests).await?;
    ensure!(shown["nudge_count"] == 3, "{shown}");
    ensure!(world.runes_of(&session, "agent.nudged", 3).await?.len() == 3);
    Ok(())
}
