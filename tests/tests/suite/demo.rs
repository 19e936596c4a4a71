//! `instar dev --demo`, as a newcomer sees it.

use anyhow::{Context, Result, ensure};
use instar_tests::dev;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

const WITHIN: Duration = Duration::from_secs(90);
const KEY: &str = "demo-key-0123456789abcdef0123456789abcdef";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_walks_a_person_through_a_mission() -> Result<()> {
    let binary = Path::new(env!("CARGO_BIN_EXE_instar-armed"));
    let folder = tempfile::tempdir()?;
    let mut demo = dev::command(binary, folder.path());
    demo.args(["dev", "--demo", "--port", "0", "--data-dir", "data", "--api-key", KEY]);
    demo.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = instar_testkit::process::spawn_async(demo)?;
    let mut ready = BufReader::new(child.stdout.take().context("standard output")?).lines();
    let mut told = BufReader::new(child.stderr.take().context("standard error")?).lines();
    let line = tokio::time::timeout(WITHIN, ready.next_line()).await??.context("it says nothing")?;
    let server = line.strip_prefix("ready ").with_context(|| line.clone())?.to_owned();

    let mut story: Vec<String> = Vec::new();
    let complete = "demo: the survey is complete";
    let listening = async {
        while let Some(line) = told.next_line().await? {
            let over = line.starts_with(complete);
            story.extend(line.starts_with("demo: ").then_some(line));
            if over {
                return Ok(());
            }
        }
        anyhow::bail!("it has ended")
    };
    let heard = tokio::time::timeout(WITHIN, listening).await;
    let story = story.join("\n");
    heard.context("the survey is not completed").flatten().with_context(|| story.clone())?;
    let typed = ["mission create", "mission approve", "asset provide", "asset refresh", "hop reject", "hop edit"];
    let typed = typed.into_iter().chain(["hop approve", "--run", "hop fix", "asset lineage"]);
    for words in typed {
        ensure!(story.lines().any(|line| line.contains("$ instar") && line.contains(words)), "{words}: {story}");
    }

    let run = async |arguments: &[&str]| {
        let mut command = dev::command(binary, folder.path());
        let done = command.args(["--server", &server, "--key", KEY]).args(arguments).output().await?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        ensure!(done.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&done.stderr));
        Ok(said)
    };
    let missions = run(&["mission", "list", "--status", "COMPLETED", "-o", "json"]).await?;
    let missions: serde_json::Value = serde_json::from_str(&missions)?;
    let survey = missions.as_array().context("a list")?.iter().find(|mission| mission["name"] == "survey");
    let survey = survey.context("no survey")?;
    let session = survey["session_id"].as_str().context("its session")?.to_owned();
    // The map was made in the second hop, of what the first one had made, beside the chart that was brought back.
    let mission = survey["id"].as_str().context("its id")?;
    let assets = run(&["asset", "list", "--mission", mission, "-o", "json"]).await?;
    let assets: serde_json::Value = serde_json::from_str(&assets)?;
    let id = |name: &str| {
        let found = assets.as_array().into_iter().flatten().find(|asset| asset["name"] == name);
        found.and_then(|asset| asset["id"].as_str()).map(str::to_owned).with_context(|| format!("no {name}: {assets}"))
    };
    let from = run(&["asset", "lineage", &id("map")?, "-o", "json"]).await?;
    ensure!(from.contains(&id("draft")?), "{from}");
    let hops = run(&["hop", "list", "--mission", mission, "-o", "json"]).await?;
    let hops: serde_json::Value = serde_json::from_str(&hops)?;
    let last = hops.as_array().into_iter().flatten().find(|hop| hop["sequence"] == 2).context("a second hop")?;
    ensure!(last["input_versions"][&id("chart")?] == 2, "it reads the chart that was given anew: {last}");
    run(&["verify", &session]).await?;
    run(&["replay", &session]).await?;
    Ok(())
}
