//! Accounts: claimed by the call that needs one, sent to the tool, given back, waited for; told to nobody.

use crate::world::{World, calls_once, text};
use crate::{Group, scenarios};
use anyhow::{Context, Result, ensure};
use instar_testkit::echo::Received;
use instar_testkit::model::{Refusal, Reply};
use instar_testkit::wait;
use serde_json::{Value, json};

const KEY: (&str, &str) = ("VAULT_KEY", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");

pub(crate) static PLAIN: Group = Group {
    name: "account",
    config: concat!(
        "[secrets]\nkey_env = \"VAULT_KEY\"\nenv = [\"MAIL_PASSWORD\"]\n",
        "[[accounts]]\nname = \"mail-1\"\npool = \"mail\"\nusername = \"grace\"\n",
        "fields = { password = \"secret://env/MAIL_PASSWORD\" }\nrelease_on = [\"terminate\"]\n",
        include_str!("account.toml")
    ),
    environment: &[KEY, ("MAIL_PASSWORD", "mail-pass-0001")],
    at_once: 4,
    scenarios: scenarios![
        reaches_the_tool_and_nobody_else,
        is_waited_for_by_the_next_who_goes_on_when_it_is_free,
        comes_back_by_each_event_of_its_policy,
        comes_from_the_configuration_by_reference,
        is_given_to_children_of_the_same_pool,
        is_refused_when_it_cannot_be_kept,
        is_listed_added_and_removed_by_the_command_line,
    ],
};

/// Waits so short that they run out.
pub(crate) static HASTY: Group = Group {
    name: "hasty_account",
    config: concat!("[secrets]\nkey_env = \"VAULT_KEY\"\naccount_wait_ms = 300\n", include_str!("account.toml")),
    environment: &[KEY],
    at_once: 1,
    scenarios: scenarios![is_not_waited_for_longer_than_a_call_may],
};

/// Processes die here.
pub(crate) static MORTAL: Group = Group {
    name: "mortal_account",
    config: concat!("[lease]\nttl_ms = 600\n[secrets]\nkey_env = \"VAULT_KEY\"\n", include_str!("account.toml")),
    environment: &[KEY],
    at_once: 1,
    scenarios: scenarios![is_waited_for_across_a_restart],
};

async fn store(world: &World, name: &str, pool: &str, password: &str) -> Result<Value> {
    let fields = json!({"password": password, "token": format!("{password}-token")});
    world.act("/v1/accounts", json!({"name": name, "pool": pool, "username": "ada", "fields": fields})).await
}

async fn holder(world: &World, name: &str, wanted: Option<&str>) -> Result<()> {
    let path = format!("/v1/accounts/{name}");
    world.until(&path, |account| account["holder"].as_str() == wanted).await.map(drop)
}

fn sent(world: &World, tool: &str, password: &str) -> Vec<Received> {
    let held =
        |got: &Received| got.headers.get("authorization").is_some_and(|auth| auth == &format!("Bearer {password}"));
    world.fleet().tool.echoed().into_iter().filter(|got| got.name == tool && held(got)).collect()
}

async fn reaches_the_tool_and_nobody_else(world: World) -> Result<()> {
    let secret = "s3cr3t+Pa/ss&w0rd";
    let stored = store(&world, "reach-1", "reach", secret).await?;
    ensure!(stored["fields"] == json!(["password", "token"]) && stored["holder"].is_null(), "{stored}");
    world.script(calls_once("login", json!({"token": "secret://account/token"})));
    let session = world.session().await?;
    let prompt = format!("[{}] You are {{{{ACCOUNT}}}}.", world.name);
    let asked = json!({"tools": ["login"], "account": {"pool": "reach"}, "system_prompt": prompt});
    let agent = world.agent(&session, asked).await?;
    ensure!(world.get(&format!("/v1/agents/{agent}")).await?["holds"].is_null(), "nothing needed it yet");
    let turn = world.turn(&agent, "log in").await?;
    ensure!(turn["status"] == "completed", "{turn}");
    let got = sent(&world, "login", secret);
    ensure!(got.len() == 1, "{got:?}");
    ensure!(got[0].headers["x-user"] == "ada" && got[0].query == "t=s3cr3t%2BPa%2Fss%26w0rd-token", "{got:?}");
    // What the model wrote is left as it is: the spec does not let it name secrets.
    ensure!(got[0].body.contains("secret://account/token"), "{got:?}");
    let shown = world.get(&format!("/v1/agents/{agent}")).await?;
    ensure!(shown["holds"] == "reach-1" && shown["account"] == json!({"pool": "reach"}), "{shown}");
    holder(&world, "reach-1", Some(&agent)).await?;
    let told = world.get(&format!("/v1/tool-calls?turn={}", text(&turn, "id")?)).await?.to_string();
    ensure!(told.contains("[redacted]") && !told.contains(secret), "{told}");
    ensure!(!json!(world.runes(&session).await?).to_string().contains(secret));
    // The next turn's instructions name it; its secrets are in no request to the model.
    world.turn(&agent, "again").await?;
    let asked: Vec<Value> = world.fleet().model.requests().into_iter().map(|request| request.body).collect();
    let asked = json!(asked).to_string();
    ensure!(asked.contains("You are ada.") && !asked.contains(secret));
    ensure!(sent(&world, "login", secret).len() == 2, "it has the same one still");
    Ok(())
}

async fn is_waited_for_by_the_next_who_goes_on_when_it_is_free(world: World) -> Result<()> {
    store(&world, "queue-1", "queue", "queue-pass").await?;
    world.script(calls_once("login", json!({})));
    let session = world.session().await?;
    let wants = json!({"tools": ["login"], "account": "queue-1"});
    let first = world.agent(&session, wants.clone()).await?;
    ensure!(world.turn(&first, "go").await?["status"] == "completed");
    let (second, third) = (world.agent(&session, wants.clone()).await?, world.agent(&session, wants).await?);
    let turns = [world.begin(&second, "go").await?, world.begin(&third, "go").await?];
    for turn in &turns {
        let waits = |turn: &Value| turn["waiting_for"]["kind"] == "account";
        let shown = world.until(&format!("/v1/turns/{turn}"), waits).await?;
        ensure!(shown["waiting_for"]["account"] == json!({"name": "queue-1"}), "{shown}");
        ensure!(shown["waiting_for"]["until"].is_string(), "{shown}");
    }
    ensure!(sent(&world, "login", "queue-pass").len() == 1, "nothing was sent meanwhile");
    world.act(&format!("/v1/agents/{first}/stop"), json!({})).await?;
    // One of the two, then the other; both in the end.
    let ended = async |id: &str| anyhow::Ok(world.get(&format!("/v1/turns/{id}")).await?["ended_at"].is_string());
    let (done, agent, rest) = wait::until_ok(crate::world::WITHIN, || async {
        match (ended(&turns[0]).await?, ended(&turns[1]).await?) {
            (true, false) => Ok((&turns[0], &second, &turns[1])),
            (false, true) => Ok((&turns[1], &third, &turns[0])),
            (one, two) => anyhow::bail!("ended: {one}, {two}"),
        }
    })
    .await?;
    holder(&world, "queue-1", Some(agent)).await?;
    ensure!(world.ended(done).await?["status"] == "completed");
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({})).await?;
    ensure!(world.ended(rest).await?["status"] == "completed");
    ensure!(sent(&world, "login", "queue-pass").len() == 3);
    Ok(())
}

async fn comes_back_by_each_event_of_its_policy(world: World) -> Result<()> {
    store(&world, "back-1", "back", "back-password").await?;
    world.script(|request| match (request.user_text().as_str(), request.tool_results().is_empty()) {
        ("fail", _) => Reply::refused(Refusal::Unauthorized),
        (_, true) => Reply::call("login", json!({})),
        _ => Reply::text("Done."),
    });
    let session = world.session().await?;
    for event in ["stop", "error", "terminate", "kill", "delete", "session"] {
        let own = if event == "session" { world.session().await? } else { session.clone() };
        let agent = world.agent(&own, json!({"tools": ["login"], "account": {"pool": "back"}})).await?;
        ensure!(world.turn(&agent, "go").await?["status"] == "completed", "{event}");
        holder(&world, "back-1", Some(&agent)).await?;
        match event {
            "stop" => drop(world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?),
            "error" => ensure!(world.turn(&agent, "fail").await?["status"] == "error"),
            "terminate" => drop(world.act(&format!("/v1/agents/{agent}/terminate"), json!({})).await?),
            "kill" => drop(world.act(&format!("/v1/agents/{agent}/terminate"), json!({"force": true})).await?),
            "delete" => drop(world.request("DELETE", &format!("/v1/agents/{agent}"), None).await?.is(200)),
            _ => drop(world.act(&format!("/v1/sessions/{own}/close"), json!({})).await?),
        }
        holder(&world, "back-1", None).await.with_context(|| event.to_owned())?;
    }
    Ok(())
}

async fn comes_from_the_configuration_by_reference(world: World) -> Result<()> {
    world.script(calls_once("whisper", json!({})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["whisper"], "account": {"pool": "mail"}})).await?;
    ensure!(world.turn(&agent, "go").await?["status"] == "completed");
    ensure!(sent(&world, "whisper", "mail-pass-0001").len() == 1);
    let shown = world.get("/v1/accounts/mail-1").await?;
    ensure!(shown["origin"] == "config" && shown["username"] == "grace", "{shown}");
    ensure!(!shown.to_string().contains("mail-pass") && !shown.to_string().contains("secret://"), "{shown}");
    // Its policy is its own: a stop does not take it back.
    world.act(&format!("/v1/agents/{agent}/stop"), json!({})).await?;
    let other = world.agent(&session, json!({"tools": ["whisper"], "account": "mail-1"})).await?;
    let turn = world.begin(&other, "go").await?;
    world.until(&format!("/v1/turns/{turn}"), |turn| turn["waiting_for"]["kind"] == "account").await?;
    holder(&world, "mail-1", Some(&agent)).await?;
    world.act(&format!("/v1/agents/{agent}/terminate"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    Ok(())
}

async fn is_given_to_children_of_the_same_pool(world: World) -> Result<()> {
    for n in 1..=2 {
        store(&world, &format!("kin-{n}"), "kin", &format!("kin-password-{n}")).await?;
    }
    let prompt = format!("[{}]", world.name);
    world.script(move |request| {
        let text = request.user_text();
        let spawn = json!({"name": "child", "task": "child, log in", "tools": ["login"], "system_prompt": prompt});
        match (text.contains("child, log in"), request.tool_results().len()) {
            (true, 0) => Reply::call("login", json!({})),
            (false, 0) if text == "go" => {
                Reply::call("login", json!({})).and(Reply::call("spawn_agent", spawn.clone()))
            }
            _ => Reply::text("Done."),
        }
    });
    let session = world.session().await?;
    let wants = json!({"tools": ["login", "spawn_agent"], "account": {"pool": "kin"}});
    let agent = world.agent(&session, wants).await?;
    ensure!(world.turn(&agent, "go").await?["status"] == "completed");
    let path = format!("/v1/agents?session={session}");
    let both = world.until(&path, |list| list["data"].as_array().map_or(0, Vec::len) == 2).await?;
    let child = &both["data"][0];
    ensure!(child["account"] == json!({"pool": "kin"}), "{child}");
    wait::until_ok(crate::world::WITHIN, || async {
        let both = sent(&world, "login", "kin-password-1").len() + sent(&world, "login", "kin-password-2").len();
        ensure!(both == 2, "{both} logins");
        Ok(())
    })
    .await?;
    ensure!(sent(&world, "login", "kin-password-1").len() == 1, "each has its own");
    Ok(())
}

async fn is_refused_when_it_cannot_be_kept(world: World) -> Result<()> {
    let bad = [
        (json!({"name": "x", "fields": {}}), "fields"),
        (json!({"name": "x", "fields": {"password": "short"}}), "6 bytes"),
        (json!({"name": "x", "fields": {"password": "secret://env/HOME"}}), "the secret itself"),
        (json!({"name": "x", "fields": {"password": 17654321}}), "texts"),
        (json!({"name": "x y", "fields": {"password": "long-enough"}}), "letters"),
        (json!({"name": "x", "pool": "/", "fields": {"password": "long-enough"}}), "letters"),
        (json!({"name": "x", "fields": {"password": "long-enough"}, "release_on": ["logout"]}), "stop, error"),
        (json!({"name": "x", "fields": {"username": "long-enough"}}), "username"),
        (json!({"name": "x", "password": "long-enough"}), "no such field"),
    ];
    for (body, words) in bad {
        let got = world.post("/v1/accounts", body.clone()).await?;
        ensure!(!got.text.contains("long-enough") && !got.text.contains("17654321"), "{}", got.text);
        got.refuses(422, words);
    }
    store(&world, "taken", "taken", "taken-password").await?;
    let body = json!({"name": "taken", "fields": {"password": "other-password"}});
    world.post("/v1/accounts", body).await?.refuses(409, "taken");
    world.request("DELETE", "/v1/accounts/nobody", None).await?.refuses(404, "account");
    let session = world.session().await?;
    for account in [json!("nobody"), json!({"pool": "nobody"}), json!(7), json!({"pool": "taken", "name": "taken"})] {
        let agent = world.described(json!({"account": account}));
        world.post(&format!("/v1/sessions/{session}/agents"), agent).await?.refuses(422, "account");
    }
    // A tool that needs one, called by an agent that has none: the model is told.
    world.script(calls_once("login", json!({})));
    let agent = world.agent(&session, json!({"tools": ["login"]})).await?;
    let turn = world.turn(&agent, "go").await?;
    let calls = world.get(&format!("/v1/tool-calls?turn={}", text(&turn, "id")?)).await?;
    ensure!(calls["data"][0]["result"]["error"].to_string().contains("needs an account"), "{calls}");
    // One that is removed while it is wanted.
    let agent = world.agent(&session, json!({"tools": ["login"], "account": "taken"})).await?;
    world.request("DELETE", "/v1/accounts/taken", None).await?.is(200);
    let turn = world.turn(&agent, "go").await?;
    let calls = world.get(&format!("/v1/tool-calls?turn={}", text(&turn, "id")?)).await?;
    ensure!(calls["data"][0]["result"]["error"].to_string().contains("removed"), "{calls}");
    Ok(())
}

async fn is_listed_added_and_removed_by_the_command_line(world: World) -> Result<()> {
    let file = world.fleet().folder.path().join("password");
    std::fs::write(&file, "from-a-file-0001\n")?;
    let field = format!("password={}", file.display());
    let add = ["account", "add", "cli-1", "--pool", "cli", "--username", "ada", "--field", &field];
    let (code, said) = world.run(&add).await?;
    ensure!(code == 0 && said.contains("cli-1") && !said.contains("from-a-file"), "{code}: {said}");
    ensure!(world.run(&add).await?.0 == 4, "its name is taken");
    let (code, said) = world.run(&["account", "list", "--pool", "cli"]).await?;
    ensure!(code == 0 && said.contains("password") && said.contains("ada") && !said.contains("from-a-file"), "{said}");
    world.script(calls_once("whisper", json!({})));
    let session = world.session().await?;
    let agent = world.agent(&session, json!({"tools": ["whisper"], "account": "cli-1"})).await?;
    ensure!(world.turn(&agent, "go").await?["status"] == "completed");
    ensure!(sent(&world, "whisper", "from-a-file-0001").len() == 1, "without the line's end");
    ensure!(world.run(&["account", "remove", "cli-1"]).await?.0 == 0);
    ensure!(world.run(&["account", "remove", "cli-1"]).await?.0 == 3, "it is gone");
    Ok(())
}

async fn is_not_waited_for_longer_than_a_call_may(world: World) -> Result<()> {
    store(&world, "short-1", "short", "short-password").await?;
    world.script(calls_once("login", json!({})));
    let session = world.session().await?;
    let wants = json!({"tools": ["login"], "account": {"pool": "short"}});
    let (first, second) = (world.agent(&session, wants.clone()).await?, world.agent(&session, wants).await?);
    ensure!(world.turn(&first, "go").await?["status"] == "completed");
    let turn = world.turn(&second, "go").await?;
    ensure!(turn["status"] == "completed", "{turn}");
    let calls = world.get(&format!("/v1/tool-calls?turn={}", text(&turn, "id")?)).await?;
    ensure!(calls["data"][0]["status"] == "timeout_result", "{calls}");
    ensure!(calls["data"][0]["result"]["error"].to_string().contains("did not come free"), "{calls}");
    ensure!(sent(&world, "login", "short-password").len() == 1);
    Ok(())
}

async fn is_waited_for_across_a_restart(world: World) -> Result<()> {
    store(&world, "long-1", "long", "long-password").await?;
    world.script(calls_once("login", json!({})));
    let session = world.session().await?;
    let wants = json!({"tools": ["login"], "account": {"pool": "long"}});
    let (first, second) = (world.agent(&session, wants.clone()).await?, world.agent(&session, wants).await?);
    ensure!(world.turn(&first, "go").await?["status"] == "completed");
    let turn = world.begin(&second, "go").await?;
    world.until(&format!("/v1/turns/{turn}"), |turn| turn["waiting_for"]["kind"] == "account").await?;
    for service in ["tool-runner", "scheduler"] {
        world.kill(service).await?;
    }
    holder(&world, "long-1", Some(&first)).await?;
    world.act(&format!("/v1/agents/{first}/stop"), json!({})).await?;
    ensure!(world.ended(&turn).await?["status"] == "completed");
    holder(&world, "long-1", Some(&second)).await?;
    ensure!(sent(&world, "login", "long-password").len() == 2);
    Ok(())
}
