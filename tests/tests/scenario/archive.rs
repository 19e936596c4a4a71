//! Sessions in cold storage: still listed, read, followed, verified, replayed and exported.

use crate::session::closed;
use crate::world::{WITHIN, World, plain, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::wait;
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) static PLAIN: Group = Group {
    name: "archive",
    config: "[archive]\nurl = \"archive\"\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![is_read_as_before, says_what_is_damaged, takes_only_what_is_closed],
};

/// The same in a bucket that speaks S3.
pub(crate) static BUCKET: Group = Group {
    name: "bucket_archive",
    config: "[archive]\nurl = \"s3://bucket/cold/logs\"\nendpoint = \"TOOL_URL\"\nregion = \"nowhere-1\"\n",
    environment: &[("AWS_ACCESS_KEY_ID", "someone"), ("AWS_SECRET_ACCESS_KEY", "something")],
    at_once: 4,
    scenarios: scenarios![is_read_as_before, is_kept_in_a_bucket, takes_only_what_is_closed],
};

/// Whatever is closed is archived at once.
pub(crate) static AGED: Group = Group {
    name: "aged_archive",
    config: "[archive]\nurl = \"archive\"\nafter_ms = 1\n",
    environment: &[],
    at_once: 4,
    scenarios: scenarios![comes_by_itself],
};

/// A closed session with a tool turn in it, and its agent.
async fn ended_session(world: &World) -> Result<(String, String)> {
    world.script(plain());
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["echo"]})).await?;
    ensure!(world.turn(&agent, "echo hello").await?["status"] == "completed");
    closed(world, &session).await?;
    Ok((session, agent))
}

/// Waits until no rune of the session is left in the database.
async fn pruned(world: &World, session: &str) -> Result<()> {
    let store = world.store().await?;
    let id = session.parse()?;
    wait::until_ok(WITHIN, || async {
        ensure!(store.runes(id, 0, 1).await?.is_empty(), "there are runes in the database");
        ensure!(store.archive_of(id).await?.is_some_and(|row| row.pruned_at.is_some()), "that is not noted");
        Ok(())
    })
    .await
}

/// What a stream says until it has come to a rune.
async fn streamed(world: &World, session: &str, last: i64) -> Result<String> {
    let path = format!("http://127.0.0.1:{}/v1/sessions/{session}/events?after=0", world.fleet().port());
    let mut answer = reqwest::Client::new().get(path).bearer_auth(world.fleet().key()).send().await?;
    let (mut said, end) = (String::new(), format!("id: {last}\n"));
    while !said.contains(&end) {
        let piece = tokio::time::timeout(WITHIN, answer.chunk()).await.with_context(|| said.clone())??;
        said += std::str::from_utf8(&piece.with_context(|| said.clone())?)?;
    }
    Ok(said)
}

async fn is_read_as_before(world: World) -> Result<()> {
    let (session, agent) = ended_session(&world).await?;
    let path = format!("/v1/sessions/{session}");
    let (row, before) = (world.get(&path).await?, world.runes(&session).await?);
    let seals = world.get(&format!("{path}/seals")).await?;
    let (file, again) = (format!("{session}.before"), format!("{session}.after"));
    ensure!(world.run(&["export", &session, &file]).await?.0 == 0);
    let archived = world.act(&format!("{path}/archive"), json!({})).await?;
    ensure!(archived["status"] == "archived" && archived["final_hash"] == row["final_hash"], "{archived}");
    world.refused(&format!("{path}/archive"), json!({}), "archived").await?;
    world.refused(&format!("{path}/close"), json!({}), "archived").await?;
    world.saw("S20");
    ensure!(world.runes(&session).await? == before, "while its runes are removed");
    pruned(&world, &session).await?;
    ensure!(world.runes(&session).await? == before);
    let page = world.get(&format!("{path}/runes?after=2&limit=2")).await?;
    ensure!(page["data"].as_array().context("a page")?[..] == before[2..4] && page["next_cursor"] == "4", "{page}");
    ensure!(world.get(&format!("{path}/seals")).await? == seals);
    let head = row["head_seq"].as_i64().context("head_seq")?;
    let said = streamed(&world, &session, head).await?;
    ensure!((1..=head).all(|seq| said.contains(&format!("id: {seq}\n"))) && !said.contains("event: gap"), "{said}");
    // Everything but the log stays where it was.
    let listed = world.get("/v1/sessions?status=archived&limit=200").await?;
    ensure!(listed["data"].as_array().is_some_and(|all| all.iter().any(|one| one["id"] == *session)), "{listed}");
    ensure!(world.get(&format!("/v1/agents/{agent}")).await?["lifecycle"] == "terminated");
    ensure!(world.get(&format!("/v1/turns?agent={agent}")).await?["data"].as_array().is_some_and(|all| all.len() == 1));
    for words in ["verify", "replay"] {
        let (code, said) = world.run(&[words, &session]).await?;
        ensure!(code == 0 && said.ends_with("ok\n"), "{words}: {said}");
    }
    ensure!(world.run(&["export", &session, &again]).await?.0 == 0);
    let read = |name: &str| std::fs::read_to_string(world.fleet().folder.path().join(name));
    ensure!(read(&file)? == read(&again)?);
    // The last step is the catalogue's.
    let filed = world.get("/v1/catalogue?limit=200").await?;
    let filed = filed["data"].as_array().cloned().unwrap_or_default();
    let rune = filed.iter().find(|rune| rune["entity_id"] == *session).context("it is not in the catalogue")?;
    ensure!(rune["kind"] == "session.archived" && rune["moves"][0]["row"] == "S17", "{rune}");
    ensure!(rune["payload"]["final_hash"] == row["final_hash"] && rune["actor"]["type"] == "user", "{rune}");
    // And it is not brought in where it is.
    let (code, said) = world.run(&["import", &file]).await?;
    ensure!(code != 0 && said.contains("here already"), "{code}: {said}");
    Ok(())
}

fn segment(world: &World, session: &str) -> Result<PathBuf> {
    let folder = world.fleet().folder.path().join("archive").join(session);
    let mut files = std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|path| path.extension().is_some_and(|ext| ext == "seg")).context("no segment")
}

async fn says_what_is_damaged(world: World) -> Result<()> {
    let (session, _) = ended_session(&world).await?;
    let path = format!("/v1/sessions/{session}");
    world.act(&format!("{path}/archive"), json!({})).await?;
    pruned(&world, &session).await?;
    let file = segment(&world, &session)?;
    let whole = std::fs::read(&file)?;
    let mut spoilt = whole.clone();
    spoilt[100] ^= 1;
    std::fs::write(&file, spoilt)?;
    let lost = world.request("GET", &format!("{path}/runes"), None).await?;
    let lost = lost.refuses(502, "put the object back");
    ensure!(lost["code"] == "archive_damaged" && lost["first_lost"] == 1, "{lost}");
    let url = format!("http://127.0.0.1:{}{path}/events", world.fleet().port());
    let mut stream = reqwest::Client::new().get(url).bearer_auth(world.fleet().key()).send().await?;
    let mut said = String::new();
    while !said.contains("event: gap") {
        let piece = tokio::time::timeout(WITHIN, stream.chunk()).await.with_context(|| said.clone())??;
        said += std::str::from_utf8(&piece.context("the stream ended")?)?;
    }
    let (code, said) = world.run(&["verify", &session]).await?;
    ensure!(code != 0 && said.contains("cannot be read"), "{code}: {said}");
    // Put back, it is whole again.
    std::fs::write(&file, whole)?;
    ensure!(world.run(&["verify", &session]).await?.0 == 0);
    Ok(())
}

async fn is_kept_in_a_bucket(world: World) -> Result<()> {
    let (session, _) = ended_session(&world).await?;
    let path = format!("/v1/sessions/{session}");
    world.act(&format!("{path}/archive"), json!({})).await?;
    pruned(&world, &session).await?;
    let (tool, folder) = (&world.fleet().tool, format!("cold/logs/{session}/"));
    let kept: Vec<String> = tool.objects().into_iter().filter(|object| object.starts_with(&folder)).collect();
    let segment = kept.iter().find(|object| object.ends_with(".seg")).with_context(|| format!("{kept:?}"))?;
    ensure!(world.run(&["verify", &session]).await?.0 == 0);
    ensure!(tool.spoil(segment, |bytes| bytes[100] ^= 1));
    let lost = world.request("GET", &format!("{path}/runes"), None).await?.refuses(502, "put the object back");
    ensure!(lost["code"] == "archive_damaged" && lost["first_lost"] == 1, "{lost}");
    ensure!(tool.spoil(segment, |bytes| bytes[100] ^= 1));
    ensure!(world.run(&["verify", &session]).await?.0 == 0);
    Ok(())
}

async fn takes_only_what_is_closed(world: World) -> Result<()> {
    let session = world.session().await?;
    world.refused(&format!("/v1/sessions/{session}/archive"), json!({}), "created").await?;
    let unknown = "/v1/sessions/ses_00000000000070008000000000000001/archive";
    ensure!(world.post(unknown, json!({})).await?.status == 404);
    let empty = world.request("POST", "/v1/sessions/import", None).await?;
    empty.refuses(422, "no segment");
    Ok(())
}

async fn comes_by_itself(world: World) -> Result<()> {
    let (session, _) = ended_session(&world).await?;
    world.until(&format!("/v1/sessions/{session}"), |found| found["status"] == "archived").await?;
    pruned(&world, &session).await?;
    let filed: Value = world.get("/v1/catalogue").await?;
    ensure!(text(&filed["data"][0]["actor"], "type")? == "system", "{filed}");
    ensure!(world.run(&["verify", &session]).await?.0 == 0);
    Ok(())
}
