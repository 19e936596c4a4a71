//! Tool steps and assets: run, failed, stopped, supplied by hand; provided, refused, damaged, expired.
//!
//! Missions are brought to where they are executed by commands on the tables; hints of those reach nobody, and
//! sweeps make that good. What people do with failed hops, steps and assets goes over HTTP.

use crate::mission::{asked, asset_after, crew};
use crate::world::{World, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_core::id::AssetId;
use instar_core::machine;
use instar_core::rune::Actor;
use instar_runtime::{Act, Hub, Row};
use instar_store::entity::asset;
use instar_testkit::model::Reply;
use instar_tests::cast::{self, fresh};
use instar_tests::stage;
use instar_tests::voyage::{Plan, Tweak, Voyage, agent, plainly};
use serde_json::{Value, json};

pub(crate) static PLAIN: Group = Group {
    name: "step",
    config: "[assets]\ninline_bytes_max = 1000\n\
             [[tools]]\nname = \"sleep\"\nkind = \"builtin\"\ntimeout_ms = 400\n\
             [[tools]]\nname = \"dig\"\nkind = \"command\"\ncommand = [\"/bin/sh\", \"-c\", \"sleep 30; echo {}\"]\n\
             parameters = { type = \"object\" }\nside_effects = false\n",
    environment: &[],
    at_once: 3,
    scenarios: scenarios![
        run_to_the_end_of_their_mission,
        are_proposed_with_values_of_their_own,
        fail_and_are_retried_fixed_and_restarted,
        are_stopped_and_supplied_by_hand,
        give_way_to_a_hop_that_is_done_by_hand,
        are_sent_back_reset_and_removed,
        lose_an_input_that_expires,
        keep_assets_people_can_use,
        refuse_what_is_no_value,
        find_damaged_content,
    ],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_step",
    config: "[lease]\nttl_ms = 600\n",
    environment: &[],
    at_once: 1,
    scenarios: scenarios![survive_their_runner],
};

fn system() -> Actor {
    Actor::system("test")
}

async fn voyage(world: &World, tweak: Tweak, steps: &[Plan]) -> Result<Voyage> {
    Voyage::ready(&Hub::new(world.store().await?, stage::deaf()?), tweak, steps).await
}

fn chain() -> [Plan; 2] {
    [
        ("echo", json!({"text": "input"}), json!({"output": "middle"})),
        ("echo", json!({"text": "middle"}), json!({"output": "output"})),
    ]
}

async fn on_hop(world: &World, voyage: &Voyage, action: &str, body: Value) -> Result<Value> {
    world.act(&format!("/v1/hops/{}/{action}", voyage.hop), body).await
}

async fn steps(world: &World, voyage: &Voyage) -> Result<Vec<Value>> {
    let list = world.get(&format!("/v1/hops/{}/steps", voyage.hop)).await?;
    Ok(list["data"].as_array().cloned().unwrap_or_default())
}

async fn step_is(world: &World, voyage: &Voyage, at: usize, status: &str) -> Result<Value> {
    world.until(&format!("/v1/steps/{}", voyage.steps[at]), |step| step["status"] == status).await
}

async fn asset_is(world: &World, id: AssetId, status: &str) -> Result<Value> {
    world.until(&format!("/v1/assets/{id}"), |asset| asset["status"] == status).await
}

async fn provide(world: &World, id: AssetId, value: Value) -> Result<Value> {
    world.act(&format!("/v1/assets/{id}/provide"), json!({"value": value})).await
}

async fn run_to_the_end_of_their_mission(world: World) -> Result<()> {
    let v = voyage(&world, plainly, &chain()).await?;
    let long = "the coast ".repeat(1_000);
    let given = provide(&world, v.input, json!(long)).await?;
    ensure!(given["status"] == "READY" && given["version"] == 1, "{given}");
    v.execute().await?;
    v.hop_is(&["COMPLETED"]).await?;
    for step in steps(&world, &v).await? {
        ensure!(step["status"] == "COMPLETED" && step["attempts"] == 1, "{step}");
        let calls = world.get(&format!("/v1/tool-calls?step={}", text(&step, "id")?)).await?;
        ensure!(calls["data"].as_array().is_some_and(|calls| calls.len() == 1), "{calls}");
        ensure!(calls["data"][0]["turn_id"].is_null(), "{calls}");
    }
    let output = asset_is(&world, v.output, "READY").await?;
    ensure!(output["promoted_version"] == 1, "{output}");
    let got = world.request("GET", &format!("/v1/assets/{}/content", v.output), None).await?;
    ensure!(got.status == 200 && got.text == long, "{} bytes", got.text.len());
    let up = world.get(&format!("/v1/assets/{}/lineage", v.output)).await?;
    let made: Vec<&str> =
        up["versions"].as_array().into_iter().flatten().filter_map(|made| made["name"].as_str()).collect();
    ensure!(made == ["output", "intermediate", "input"], "{up}");
    ensure!(up["versions"][0]["hop_id"] == v.hop.to_string() && up["cut"] == false, "{up}");
    let down = world.get(&format!("/v1/assets/{}/lineage?direction=down", v.input)).await?;
    ensure!(down["versions"].as_array().is_some_and(|made| made.len() == 3), "{down}");
    Ok(())
}

/// An agent plans and implements, every gate opens by policy, and two steps pass on a value that nobody else sees.
async fn are_proposed_with_values_of_their_own(world: World) -> Result<()> {
    world.script(|request| match asked(request) {
        Some(prompt) if prompt.contains("Propose its steps") => {
            let map = |id: &str| json!({"type": "asset_field", "state_asset_id": id});
            let rocks = json!({"type": "literal", "value": "rocks"});
            let first = json!({"tool_id": "echo", "parameter_mapping": {"text": rocks},
                "result_mapping": {"output": map("sounding")}});
            let second = json!({"tool_id": "echo", "parameter_mapping": {"text": map("sounding")},
                "result_mapping": {"output": map(&asset_after(&prompt, "and makes "))}});
            Reply::call("propose_hop_impl", json!({"scratch": [{"name": "sounding"}], "steps": [first, second]}))
        }
        Some(prompt) if prompt.contains("Propose the next hop") => {
            let output = asset_after(&prompt, "- map (");
            Reply::call("propose_hop_plan", json!({"name": "leg", "output": {"asset_id": output}, "is_final": true}))
        }
        _ => Reply::text("Done."),
    });
    let (session, agent) = crew(&world).await?;
    let gates = json!({"plan": "auto", "impl": "auto", "execute": "auto"});
    let body = json!({"name": world.name, "goal": "a map", "outputs": [{"name": "map"}], "agent_id": agent,
        "gates": gates});
    let mission = text(&world.act(&format!("/v1/sessions/{session}/missions"), body).await?, "id")?;
    world.act(&format!("/v1/missions/{mission}/approve"), json!({})).await?;
    world.until(&format!("/v1/missions/{mission}"), |mission| mission["status"] == "COMPLETED").await?;
    let assets = world.get(&format!("/v1/assets?mission={mission}")).await?;
    ensure!(assets["data"].as_array().is_some_and(|list| list.len() == 1), "scratch is not shown: {assets}");
    let content = format!("/v1/assets/{}/content", text(&assets["data"][0], "id")?);
    ensure!(world.request("GET", &content, None).await?.text == "rocks");
    let hop = text(&world.get(&format!("/v1/hops?mission={mission}")).await?["data"][0], "id")?;
    let own = world.get(&format!("/v1/assets?hop={hop}&role=intermediate")).await?;
    ensure!(own["data"][0]["scope"] == "hop" && own["data"][0]["status"] == "READY", "{own}");
    Ok(())
}

async fn fail_and_are_retried_fixed_and_restarted(world: World) -> Result<()> {
    let plan: [Plan; 2] = [
        ("echo", json!({"text": "input"}), json!({"output": "middle"})),
        ("sleep", json!({"ms": 5_000}), json!({"output": "output"})),
    ];
    let v = voyage(&world, plainly, &plan).await?;
    provide(&world, v.input, json!("x")).await?;
    v.execute().await?;
    v.hop_is(&["FAILED"]).await?;
    let failed = step_is(&world, &v, 1, "FAILED").await?;
    ensure!(failed["attempts"] == 3, "{failed}");
    asset_is(&world, v.output, "ERROR").await?;
    // Once more from where it failed, then once more from the start.
    on_hop(&world, &v, "retry", json!({})).await?;
    step_is(&world, &v, 1, "READY_TO_EXECUTE").await?;
    asset_is(&world, v.output, "READY_FOR_PROCESSING").await?;
    v.execute().await?;
    v.hop_is(&["FAILED"]).await?;
    on_hop(&world, &v, "retry", json!({"restart": true})).await?;
    step_is(&world, &v, 0, "READY_TO_EXECUTE").await?;
    v.execute().await?;
    v.hop_is(&["FAILED"]).await?;
    let middle = asset_is(&world, v.middle, "READY").await?;
    ensure!(middle["version"] == 2, "made anew: {middle}");
    // Back to whoever configures it; cancelled where it failed.
    on_hop(&world, &v, "fix", json!({})).await?;
    step_is(&world, &v, 1, "READY_TO_CONFIGURE").await?;
    let on_step = |event| Act::new(v.session, v.steps[1], &machine::tool_step::TABLE, event, system());
    v.act(on_step("configuration_failed").reason("no tool fits")).await?;
    step_is(&world, &v, 1, "FAILED").await?;
    world.act(&format!("/v1/steps/{}/cancel", v.steps[1]), json!({"reason": "enough"})).await?;
    step_is(&world, &v, 1, "CANCELLED").await?;
    Ok(())
}

async fn are_stopped_and_supplied_by_hand(world: World) -> Result<()> {
    let plan: [Plan; 2] = [
        ("dig", json!({}), json!({"output": "middle"})),
        ("echo", json!({"text": "middle"}), json!({"output": "output"})),
    ];
    let v = voyage(&world, plainly, &plan).await?;
    provide(&world, v.input, json!("x")).await?;
    v.execute().await?;
    v.call_is(0, |call| call.owner.is_some()).await?;
    let complete = format!("/v1/steps/{}/complete", v.steps[0]);
    world.post(&complete, json!({"outputs": {}})).await?.refuses(422, "no value for the result");
    world.post(&complete, json!({"outputs": {"output": 7}})).await?.refuses(422, "expected string");
    let done = world.act(&complete, json!({"outputs": {"output": "dug by hand"}})).await?;
    ensure!(done["status"] == "COMPLETED", "{done}");
    v.hop_is(&["COMPLETED"]).await?;
    ensure!(v.value(v.output, 1).await? == "dug by hand");

    let v = voyage(&world, plainly, &plan).await?;
    provide(&world, v.input, json!("x")).await?;
    v.execute().await?;
    v.call_is(0, |call| call.owner.is_some()).await?;
    world.refused(&format!("/v1/assets/{}/cancel", v.middle), json!({}), "cancel that step").await?;
    world.act(&format!("/v1/steps/{}/cancel", v.steps[0]), json!({})).await?;
    v.hop_is(&["CANCELLED"]).await?;
    asset_is(&world, v.middle, "READY_FOR_PROCESSING").await?;
    ensure!(v.calls(0).await?.iter().all(|call| call.status == "cancelled_result"));
    world.refused(&format!("/v1/steps/{}/complete", v.steps[0]), json!({"outputs": {}}), "CANCELLED").await?;
    Ok(())
}

/// H27 with what the hop should have made: under a step that runs, and of one that failed.
async fn give_way_to_a_hop_that_is_done_by_hand(world: World) -> Result<()> {
    let plan: [Plan; 1] = [("dig", json!({}), json!({"output": "output"}))];
    let v = voyage(&world, plainly, &plan).await?;
    provide(&world, v.input, json!("x")).await?;
    v.execute().await?;
    v.call_is(0, |call| call.owner.is_some()).await?;
    let complete = format!("/v1/hops/{}/complete", v.hop);
    let with = |outputs: Value| json!({"reason": "found in a drawer", "outputs": outputs});
    world.refused(&complete, with(json!({})), "give its value in outputs").await?;
    world.post(&complete, with(json!({"treasure": "x"}))).await?.refuses(422, "is no output of this hop");
    world.post(&complete, with(json!({(v.output.to_string()): 7}))).await?.refuses(422, "expected string");
    asset_is(&world, v.output, "PROCESSING").await?;
    let done = world.act(&complete, with(json!({(v.output.to_string()): "an old map"}))).await?;
    ensure!(done["status"] == "COMPLETED", "{done}");
    ensure!(v.value(v.output, 1).await? == "an old map");
    step_is(&world, &v, 0, "CANCELLED").await?;
    ensure!(v.calls(0).await?.iter().all(|call| call.status == "cancelled_result"));
    v.is_sound().await?;

    let v = voyage(&world, plainly, &[("sleep", json!({}), json!({"output": "output"}))]).await?;
    provide(&world, v.input, json!("x")).await?;
    v.execute().await?;
    v.hop_is(&["FAILED"]).await?;
    asset_is(&world, v.output, "ERROR").await?;
    let complete = format!("/v1/hops/{}/complete", v.hop);
    let name = text(&world.get(&format!("/v1/assets/{}", v.output)).await?, "name")?;
    world.act(&complete, json!({"reason": "by hand", "outputs": {name: "a new map"}})).await?;
    ensure!(v.value(v.output, 1).await? == "a new map");
    v.is_sound().await
}

async fn are_sent_back_reset_and_removed(world: World) -> Result<()> {
    let v = voyage(&world, plainly, &chain()).await?;
    on_hop(&world, &v, "request-changes", json!({"feedback": "another tool"})).await?;
    let first = step_is(&world, &v, 0, "READY_TO_CONFIGURE").await?;
    let id = text(&first, "id")?;
    let open = world.act(&format!("/v1/steps/{id}/request-changes"), json!({"reason": "another tool"})).await?;
    ensure!(open["status"] == "AWAITING_CONFIGURATION" && open["tool_id"].is_null(), "{open}");
    world.act(&format!("/v1/steps/{id}/cancel"), json!({})).await?;
    let back = world.act(&format!("/v1/steps/{id}/reset"), json!({})).await?;
    ensure!(back["status"] == "AWAITING_CONFIGURATION", "{back}");
    let gone = world.request("DELETE", &format!("/v1/steps/{id}"), None).await?.is(200);
    ensure!(gone["status"] == "deleted", "{gone}");
    ensure!(steps(&world, &v).await?.len() == 1);
    Ok(())
}

async fn lose_an_input_that_expires(world: World) -> Result<()> {
    let soon: Tweak = |role, row| row.ttl_ms = (role == "input").then_some(1_500);
    let v = voyage(&world, soon, &chain()).await?;
    let given = provide(&world, v.input, json!("x")).await?;
    ensure!(given["expires_at"].is_string(), "{given}");
    asset_is(&world, v.input, "EXPIRED").await?;
    v.hop_is(&["HOP_IMPL_STARTED"]).await?;
    let step = step_is(&world, &v, 0, "READY_TO_CONFIGURE").await?;
    ensure!(step["validation_errors"].to_string().contains("expired"), "{step}");
    let fresh = world.act(&format!("/v1/assets/{}/refresh", v.input), json!({})).await?;
    ensure!(fresh["status"] == "READY_FOR_PROCESSING", "{fresh}");

    // Under a hop that runs: it cannot go on, and says why.
    let plan: [Plan; 3] = [
        ("dig", json!({}), json!({})),
        ("echo", json!({"text": "input"}), json!({"output": "middle"})),
        ("echo", json!({"text": "middle"}), json!({"output": "output"})),
    ];
    let v = voyage(&world, soon, &plan).await?;
    provide(&world, v.input, json!("x")).await?;
    v.execute().await?;
    v.call_is(0, |call| call.owner.is_some()).await?;
    asset_is(&world, v.input, "EXPIRED").await?;
    world.act(&format!("/v1/steps/{}/complete", v.steps[0]), json!({"outputs": {}})).await?;
    let hop = v.hop_is(&["FAILED"]).await?;
    ensure!(hop.error.unwrap_or_default().to_string().contains("EXPIRED"));
    asset_is(&world, v.middle, "ERROR").await?;
    // Its hop makes it again; nothing else could.
    world.refused(&format!("/v1/assets/{}/reprocess", v.middle), json!({}), "retry that hop").await?;
    asset_is(&world, v.middle, "ERROR").await.map(drop)
}

async fn keep_assets_people_can_use(world: World) -> Result<()> {
    let v = voyage(&world, plainly, &chain()).await?;
    let add = format!("/v1/missions/{}/assets", v.mission);
    let config = json!({"name": "limits", "type": "config", "value": {"depth": 2}, "role": "input"});
    let ready = world.act(&add, config).await?;
    ensure!(ready["status"] == "READY" && ready["version"] == 1, "{ready}");
    let asked = world.act(&add, json!({"name": "notes", "type": "markdown", "role": "intermediate"})).await?;
    let notes: AssetId = text(&asked, "id")?.parse()?;
    ensure!(asked["status"] == "AWAITING_APPROVAL", "{asked}");
    let path = format!("/v1/assets/{notes}");
    let edited = world.request("PATCH", &path, Some(json!({"revision": 1, "description": "for later"}))).await?.is(200);
    ensure!(edited["revision"] == 2 && edited["description"] == "for later", "{edited}");
    world.request("PATCH", &path, Some(json!({"revision": 1, "name": "old"}))).await?.refuses(409, "revision 2");
    world.act(&format!("{path}/accept"), json!({})).await?;
    world.act(&format!("{path}/provide"), json!({"value": "# One"})).await?;
    let open = world.act(&format!("{path}/reprocess"), json!({})).await?;
    ensure!(open["status"] == "READY_FOR_PROCESSING", "nobody but a person makes it: {open}");
    let old = world.request("GET", &format!("{path}/content"), None).await?;
    ensure!(old.text == "# One", "the old version stays readable: {}", old.text);
    world.act(&format!("{path}/provide"), json!({"value": "# Two"})).await?;
    let versions = world.get(&format!("{path}/versions")).await?;
    ensure!(versions["data"].as_array().is_some_and(|v| v.len() == 2 && v[0]["version"] == 2), "{versions}");
    let first = world.request("GET", &format!("{path}/content?version=1"), None).await?;
    ensure!(first.text == "# One");
    let answer = world.fetch(&format!("{path}/content"), None).await?;
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let (tag, kind) = (header("etag"), header("content-type"));
    ensure!(tag == format!("\"{}\"", text(&versions["data"][0], "sha256")?), "{tag}");
    ensure!(kind.starts_with("text/markdown") && header("x-content-type-options") == "nosniff", "{kind}");
    ensure!(world.fetch(&format!("{path}/content"), Some(&tag)).await?.status() == 304);
    let (code, said) = world.run(&["asset", "content", &notes.to_string()]).await?;
    ensure!(code == 0 && said == "# Two", "{said}");
    let other = text(&world.act(&add, json!({"name": "draft"})).await?, "id")?;
    let rejected = world.act(&format!("/v1/assets/{other}/reject"), json!({"reason": "no"})).await?;
    ensure!(rejected["status"] == "deleted", "{rejected}");
    let other = text(&world.act(&add, json!({"name": "draft"})).await?, "id")?;
    world.request("DELETE", &format!("/v1/assets/{other}"), None).await?.is(200);
    let listed = world.get(&format!("/v1/assets?mission={}&role=intermediate&status=READY", v.mission)).await?;
    ensure!(listed["data"].as_array().is_some_and(|list| list.len() == 1), "{listed}");
    let of_hop = world.get(&format!("/v1/assets?hop={}", v.hop)).await?;
    ensure!(of_hop["data"].as_array().is_some_and(|list| list.len() == 2), "{of_hop}");
    // Scratch values are an agent's to make.
    let scratch: AssetId = fresh();
    let mut row: asset::Model = cast::asset_row(scratch, v.session, v.mission, "intermediate", "READY_FOR_PROCESSING");
    (row.hop_id, row.scope) = (Some(v.hop.uuid()), "hop".into());
    let make = Act::new(v.session, scratch, &machine::asset::TABLE, "create_intermediate", agent());
    v.act(make.within(v.mission).bringing(Row::Asset(row))).await?;
    ensure!(world.get(&format!("/v1/assets/{scratch}")).await?["scope"] == "hop");
    Ok(())
}

async fn refuse_what_is_no_value(world: World) -> Result<()> {
    let list: Tweak = |role, row| {
        if role == "input" {
            (row.kind, row.is_array) = ("lead".into(), true);
            row.schema = json!({"type": "object", "fields": {"name": {"type": "string"}}});
        }
    };
    let v = voyage(&world, list, &chain()).await?;
    let path = format!("/v1/assets/{}/provide", v.input);
    world.post(&path, json!({"value": "x"})).await?.refuses(422, "a list of lead");
    world.post(&path, json!({"value": [{"name": 1}]})).await?.refuses(422, "/value/0/name");
    world.post(&path, json!({"worth": []})).await?.refuses(422, "worth");
    world
        .post(&format!("/v1/missions/{}/assets", v.mission), json!({"name": "x", "type": "A B"}))
        .await?
        .refuses(422, "type");
    ensure!(world.get(&format!("/v1/assets/{}", v.input)).await?["status"] == "READY_FOR_PROCESSING");
    let none = world.request("GET", &format!("/v1/assets/{}/content", v.input), None).await?;
    none.refuses(409, "has no version");
    world.act(&path, json!({"value": [{"name": "ada"}]})).await?;
    world.refused(&path, json!({"value": []}), "READY").await?;
    let file = world.fleet().folder.path().join("lead.json");
    std::fs::write(&file, "[]")?;
    let output = v.output.to_string();
    let (code, said) = world.run(&["asset", "provide", &output, "--file", &file.display().to_string()]).await?;
    ensure!(code == 1 && said.contains("expected string"), "{code} {said}");
    std::fs::write(file.with_extension("md"), "# Here")?;
    let (code, said) =
        world.run(&["asset", "provide", &output, "--file", &file.with_extension("md").display().to_string()]).await?;
    ensure!(code == 0 && said.contains("READY"), "{said}");
    Ok(())
}

async fn find_damaged_content(world: World) -> Result<()> {
    let v = voyage(&world, plainly, &chain()).await?;
    provide(&world, v.input, json!("stone ".repeat(1_000))).await?;
    let path = format!("/v1/assets/{}", v.input);
    let version = world.get(&format!("{path}/versions")).await?["data"][0].clone();
    let hash = text(&version, "sha256")?;
    let row = v.hub.store().asset_version(v.input, 1).await?.context("version")?;
    if row.content.is_none() {
        // In a folder: one byte of the object is another.
        let object = world.fleet().data().join("archive").join("assets").join(&hash[..2]).join(&hash);
        let mut bytes = std::fs::read(&object).with_context(|| object.display().to_string())?;
        bytes[3_000] ^= 1;
        std::fs::write(&object, bytes)?;
    } else {
        use instar_store::entity::asset_version;
        use sea_orm::{ActiveValue::Set, EntityTrait};
        let mut content = row.content.unwrap_or_default();
        content[3_000] ^= 1;
        let changed = asset_version::ActiveModel { id: Set(row.id), content: Set(Some(content)), ..Default::default() };
        asset_version::Entity::update(changed).exec(v.hub.store().db()).await?;
    }
    // The reader does not get it whole, and the asset says so from then on.
    let got = world.request("GET", &format!("{path}/content"), None).await;
    ensure!(got.map_or(true, |got| got.status != 200), "damaged content was handed out");
    let damaged = asset_is(&world, v.input, "ERROR").await?;
    ensure!(damaged["error"].to_string().contains("damaged"), "{damaged}");
    v.hop_is(&["HOP_IMPL_STARTED"]).await?;
    world.act(&format!("{path}/fix"), json!({})).await?;
    provide(&world, v.input, json!("new stone")).await?;
    let got = world.request("GET", &format!("{path}/content"), None).await?;
    ensure!(got.status == 200 && got.text == "new stone");
    Ok(())
}

async fn survive_their_runner(world: World) -> Result<()> {
    let asset = json!("middle");
    for (tool, makes, ends) in
        [("slow_put", json!({}), "COMPLETED"), ("slow_charge", json!({"output": asset}), "FAILED")]
    {
        let plan: [Plan; 2] =
            [(tool, json!({"token": "input"}), makes), ("echo", json!({"text": "input"}), json!({"output": "output"}))];
        let v = voyage(&world, plainly, &plan).await?;
        provide(&world, v.input, json!(format!("mortal {tool}"))).await?;
        v.execute().await?;
        v.call_is(0, |call| call.owner.is_some()).await?;
        world.kill("tool-runner").await?;
        let hop = v.hop_is(&["COMPLETED", "FAILED"]).await?;
        ensure!(hop.status == ends, "{tool}: the hop is {}: {:?}", hop.status, hop.error);
        let calls = v.calls(0).await?;
        if ends == "FAILED" {
            ensure!(calls.len() == 1 && calls[0].result_status.as_deref() == Some("unknown"), "{calls:?}");
            asset_is(&world, v.output, "READY_FOR_PROCESSING").await?;
            had_succeeded(&world, &v).await?;
        }
    }
    Ok(())
}

/// A person has looked: the call whose outcome nobody knew had its effect. Its step is done, and never has another.
async fn had_succeeded(world: &World, v: &Voyage) -> Result<()> {
    let call = text(&step_is(world, v, 0, "FAILED").await?, "call_id")?;
    let resolve = format!("/v1/tool-calls/{call}/resolve");
    world.refused(&resolve, json!({"outcome": "retry"}), "say success, with its output").await?;
    world.post(&resolve, json!({"outcome": "success", "output": 7})).await?.refuses(422, "expected string");
    world.act(&resolve, json!({"outcome": "success", "output": "charged"})).await?;
    let done = step_is(world, v, 0, "COMPLETED").await?;
    ensure!(done["error"].is_null() && done["result"]["call_id"] == json!(call), "{done}");
    ensure!(v.value(v.middle, 1).await? == "charged");
    on_hop(world, v, "retry", json!({})).await?;
    v.execute().await?;
    v.hop_is(&["COMPLETED"]).await?;
    ensure!(v.calls(0).await?.len() == 1, "it was called once");
    v.is_sound().await
}
