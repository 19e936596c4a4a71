//! What a drive refuses or takes as already done: it leaves no rune, and nothing changes.

use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::model::{Refusal, Reply};
use sea_orm::ConnectionTrait;
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
        that_waits_for_its_provider_says_why,
        that_does_not_run_is_stopped_already,
        that_was_stopped_hears_no_error_that_comes_late,
        goes_on_until_nobody_prompts_it,
    ],
};

/// A day has two turns of its own.
pub(crate) static DAILY: Group = Group {
    name: "daily_drive",
    config: "[scheduler]\nnudge_pause_ms = 50\n[agents]\nturns_per_day_max = 2\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![
        rests_for_the_day_until_its_ceiling_is_raised,
        rests_for_the_day_until_that_is_over,
        rests_for_the_day_however_its_turns_end,
    ],
};

/// Alone: writes fail here.
pub(crate) static BROKEN: Group = Group {
    name: "broken_drive",
    config: "",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![whose_start_cannot_be_written_is_as_it_was],
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
    let turn = world.turn(&agent, "go").await?;
    ensure!(turn["status"] == "error");
    let shown = world.get(&format!("/v1/agents/{agent}")).await?;
    ensure!(shown["drive"] == "errored", "{shown}");
    let errored = world.runes_of(&session, "agent.drive_errored", 1).await?;
    for said in [&turn["error"]["message"], &shown["last_error"], &errored[0]["payload"]["last_error"]] {
        let said = said.as_str().unwrap_or_default();
        let whole = ["Incorrect API key provided", "401", "invalid_api_key"].iter().all(|part| said.contains(part));
        ensure!(whole, "{said:?} of {turn} {shown}");
    }
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

async fn that_waits_for_its_provider_says_why(world: World) -> Result<()> {
    let wait = std::time::Duration::from_secs(600);
    world.script(move |_| Reply::refused(Refusal::RateLimited { retry_after: Some(wait) }));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "go").await?;
    let path = format!("/v1/turns/{turn}");
    let shown = world.until(&path, |turn| turn["waiting_for"]["kind"] == "provider").await?;
    let waits = &shown["waiting_for"];
    let error = waits["error"].as_str().unwrap_or_default();
    ensure!(waits["error_type"] == "rate_limited" && error.contains("429"), "{waits}");
    world.act(&format!("{path}/interrupt"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "interrupted");
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

/// The provider refuses what a stop had cancelled, before the cancelling took effect: an error that would be fatal to
/// a drive that runs. It stays stopped, and no error is told of it.
async fn that_was_stopped_hears_no_error_that_comes_late(world: World) -> Result<()> {
    let late = std::time::Duration::from_millis(1500);
    world.script(move |_| Reply::refused(Refusal::Unauthorized).slow(late, late));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({})).await?;
    let turn = world.begin(&agent, "go").await?;
    world.turn_is(&turn, "streaming").await?;
    world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?;
    let ended = world.ended(&turn).await?;
    ensure!(ended["status"] == "interrupted", "it was ended before the model answered: {ended}");
    let shown = world.get(&format!("/v1/agents/{agent}")).await?;
    ensure!(shown["drive"] == "stopped" && shown["last_error"].is_null(), "{shown}");
    let runes = world.runes(&session).await?;
    ensure!(!runes.iter().any(|rune| rune["kind"] == "agent.drive_errored"), "{runes:#?}");
    Ok(())
}

/// D11: what cannot be written has not happened, and whoever asked is told.
async fn whose_start_cannot_be_written_is_as_it_was(world: World) -> Result<()> {
    world.script(|_| Reply::text("Done."));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"name": "unwritable"})).await?;
    let (path, before) = (format!("/v1/agents/{agent}"), world.runes(&session).await?.len());
    let store = world.store().await?;
    let (refuse, allow): (&[&str], &[&str]) = match store.db().get_database_backend() {
        sea_orm::DbBackend::Postgres => (
            &[
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'out of space'; END $$",
                "CREATE TRIGGER refuse BEFORE UPDATE ON agents FOR EACH ROW WHEN (NEW.name = 'unwritable') \
                 EXECUTE FUNCTION refuse()",
            ],
            &["DROP TRIGGER refuse ON agents", "DROP FUNCTION refuse()"],
        ),
        _ => (
            &["CREATE TRIGGER refuse BEFORE UPDATE ON agents WHEN NEW.name = 'unwritable' \
               BEGIN SELECT RAISE(ABORT, 'out of space'); END"],
            &["DROP TRIGGER refuse"],
        ),
    };
    for statement in refuse {
        store.db().execute_unprepared(statement).await?;
    }
    let failed = world.answer("POST", &format!("{path}/start"), Some(json!({}))).await?;
    ensure!(failed.status >= 500 && failed.body["detail"].is_string(), "{} {}", failed.status, failed.text);
    ensure!(!failed.text.contains("out of space"), "what the database says is for the log: {}", failed.text);
    let shown = world.get(&path).await?;
    ensure!(shown["drive"] == "idle" && world.runes(&session).await?.len() == before, "{shown}");
    for statement in allow {
        store.db().execute_unprepared(statement).await?;
    }
    ensure!(world.act(&format!("{path}/start"), json!({})).await?["drive"] == "running");
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

/// A new agent that goes on by itself, at its ceiling.
async fn exhausted(world: &World) -> Result<(String, String)> {
    world.script(|_| Reply::text("A step further."));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"loop": "autonomous"})).await?;
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    rests_for_the_day(world, &agent, 2).await?;
    Ok((session, agent))
}

async fn rests_for_the_day(world: &World, agent: &str, turns: i64) -> Result<Value> {
    let full = |shown: &Value| shown["attention"] == "daily_limit" && shown["today"]["turns"] == turns;
    let shown = world.until(&format!("/v1/agents/{agent}"), full).await?;
    ensure!(shown["drive"] == "idle" && shown["needs_attention"] == true, "{shown}");
    Ok(shown)
}

/// X20: D5 by a daily ceiling, D3 when it is raised.
async fn rests_for_the_day_until_its_ceiling_is_raised(world: World) -> Result<()> {
    let (session, agent) = exhausted(&world).await?;
    let idled = world.runes_of(&session, "agent.drive_idled", 1).await?;
    ensure!(idled[0]["payload"]["reason"] == "daily_limit", "{idled:?}");
    // What a person says is answered, and not counted.
    ensure!(world.turn(&agent, "hello").await?["status"] == "completed");
    rests_for_the_day(&world, &agent, 2).await?;
    let path = format!("/v1/agents/{agent}");
    let raised = |n: i64| json!({"turns_per_day_max": n});
    let key = async |role: &str| text(&world.act("/v1/keys", json!({"name": role, "role": role})).await?, "key");
    let got = world.request_as(&key("operator").await?, "PATCH", &path, Some(raised(3))).await?;
    ensure!(got.status == 403 && got.body["role_needed"] == "approver" && got.text.contains("brake"), "{}", got.text);
    for bad in [raised(-1), json!({"cost_per_day_max": "much"}), json!({"cost_per_day_max": "2.50"})] {
        let got = world.request("PATCH", &path, Some(bad)).await?;
        ensure!(got.status == 400 || got.status == 422, "{} {}", got.status, got.text);
    }
    ensure!(world.get(&path).await?["attention"] == "daily_limit", "what was refused has changed nothing");
    // A ceiling of costs holds only where they can be counted, whichever of the two comes last.
    let (operator, model) = (key("operator").await?, |name: &str| json!({"model": name}));
    for change in [model("priced"), json!({"cost_per_day_max": "2.50"})] {
        let got = world.request("PATCH", &path, Some(change)).await?;
        ensure!(got.status == 200, "{} {}", got.status, got.text);
    }
    for key in [&operator, &key("approver").await?] {
        let got = world.request_as(key, "PATCH", &path, Some(model("default"))).await?;
        let told =
            got.text.contains("/model") && got.text.contains("cost_per_day_max") && got.text.contains("no price");
        ensure!(got.status == 422 && told, "{} {}", got.status, got.text);
    }
    let shown = world.get(&path).await?;
    ensure!(shown["model"] == "priced" && shown["cost_per_day_max"] == "2.50", "{shown}");
    let other = json!({"model": "default", "cost_per_day_max": null});
    ensure!(world.request("PATCH", &path, Some(other)).await?.status == 200, "nothing is left to count");
    let got = world.request_as(&key("approver").await?, "PATCH", &path, Some(raised(3))).await?;
    ensure!(got.status == 200 && got.body["drive"] == "running", "{}", got.text);
    let shown = rests_for_the_day(&world, &agent, 3).await?;
    ensure!(shown["turns_per_day_max"] == 3, "{shown}");
    // One that is started is told no sooner that it may not go on.
    world.act(&format!("{path}/start"), json!({})).await?;
    rests_for_the_day(&world, &agent, 3).await?;
    let page = world.get(&format!("/v1/turns?agent={agent}")).await?;
    let own = page["data"].as_array().into_iter().flatten().filter(|turn| turn["cause"] == "nudge").count();
    ensure!(own == 3, "{own} turns of its own");
    Ok(())
}

async fn rests_for_the_day_until_that_is_over(world: World) -> Result<()> {
    let (_, agent) = exhausted(&world).await?;
    let before = rests_for_the_day(&world, &agent, 2).await?["today"]["day"].clone();
    // Midnight comes at once.
    let store = world.store().await?;
    let midnight = "UPDATE timers SET due_at = created_at WHERE kind = 'day' AND entity = ";
    let changed = store.db().execute_unprepared(&format!("{midnight}'{agent}'")).await?.rows_affected();
    ensure!(changed >= 1, "it has no timer");
    let next = |shown: &Value| shown["today"]["turns"] == 1 && shown["drive"] == "idle";
    let shown = world.until(&format!("/v1/agents/{agent}"), next).await?;
    ensure!(shown["today"]["day"] != before && shown["attention"] == "nudge_limit", "{shown}");
    Ok(())
}

async fn rests_for_the_day_however_its_turns_end(world: World) -> Result<()> {
    world.script(|_| Reply::call("slow_put", json!({"token": "own"})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"loop": "autonomous", "tools": ["slow_put"]})).await?;
    world.act(&format!("/v1/agents/{agent}/start"), json!({})).await?;
    let page = format!("/v1/turns?agent={agent}");
    for n in 1..=2 {
        // A turn that waits for its tools is ended by nobody who has it in hand.
        let live = |turn: &&Value| turn["status"] == "tool_executing";
        let found = |page: &Value| page["data"].as_array().into_iter().flatten().any(|turn| live(&turn));
        let shown = world.until(&page, found).await?;
        let turn = text(shown["data"].as_array().into_iter().flatten().find(live).context("a turn")?, "id")?;
        world.act(&format!("/v1/turns/{turn}/interrupt"), json!({})).await?;
        ensure!(world.ended(&turn).await?["status"] == "interrupted", "turn {n}");
    }
    rests_for_the_day(&world, &agent, 2).await?;
    let made = world.get(&page).await?["data"].as_array().map_or(0, Vec::len);
    ensure!(made == 2, "{made} turns of its own");
    Ok(())
}
