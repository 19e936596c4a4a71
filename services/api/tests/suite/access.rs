//! Who may what: keys, roles, namespaces.

use crate::kit::{Backend, House, ask, key, text};
use anyhow::Result;
use instar_api::Role;
use serde_json::{Value, json};

#[tokio::test]
async fn every_role_may_what_it_may_and_no_more() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let (session, agent) = house.fleet().await?;
    let (turn, calls) = house.calls(&agent, &[ask()]).await?;
    let call = &calls[0];
    let cases: Vec<(&str, String, Role, Value)> = vec![
        ("GET", "/v1/whoami".into(), Role::Viewer, json!(null)),
        ("GET", format!("/v1/sessions/{session}"), Role::Viewer, json!(null)),
        ("GET", format!("/v1/sessions/{session}/runes"), Role::Viewer, json!(null)),
        ("GET", format!("/v1/tool-calls/{call}"), Role::Viewer, json!(null)),
        ("POST", "/v1/sessions".into(), Role::Operator, json!({})),
        ("POST", format!("/v1/sessions/{session}/agents"), Role::Operator, json!({"name": "b", "model": "default"})),
        ("POST", format!("/v1/agents/{agent}/messages"), Role::Operator, json!({"content": "hi"})),
        ("POST", format!("/v1/turns/{turn}/interrupt"), Role::Operator, json!({})),
        ("PATCH", format!("/v1/agents/{agent}"), Role::Operator, json!({"name": "c"})),
        ("POST", format!("/v1/tool-calls/{call}/resolve"), Role::Approver, json!({"outcome": "success"})),
        ("POST", format!("/v1/tool-calls/{call}/deny"), Role::Approver, json!({"reason": "no"})),
        ("POST", format!("/v1/tool-calls/{call}/approve"), Role::Approver, json!({})),
        ("GET", "/v1/keys".into(), Role::Admin, json!(null)),
        ("POST", "/v1/keys".into(), Role::Admin, json!({"name": "k", "role": "viewer"})),
        ("POST", "/v1/tools".into(), Role::Admin, json!({"name": "t", "kind": "http", "url": "https://example.com/"})),
    ];
    for (method, path, least, body) in &cases {
        let body = (!body.is_null()).then(|| body.clone());
        for role in Role::ALL {
            let got = house.as_role(role, method, path, body.clone()).await?;
            if role < *least {
                let refused = got.refuses(403, role.token());
                assert_eq!(refused["role_needed"], least.token());
            } else {
                assert!(got.status < 300 || got.status == 409, "{} {method} {path}: {}", role.token(), got.text);
            }
        }
        for bad in ["", "wrong", "test-admin-x"] {
            let got = house.send(house.request(method, path, bad)).await?;
            assert_eq!(got.headers["www-authenticate"], "Bearer realm=\"instar\"");
            got.refuses(401, "Bearer");
        }
        // Another namespace's things are not there.
        if path.contains('_') {
            let request = house.request(method, path, "other-admin");
            let request = if let Some(body) = body { request.json(&body) } else { request };
            house.send(request).await?.refuses(404, "there is no");
        }
    }
    let theirs = house.send(house.request("GET", "/v1/sessions", "other-admin")).await?.is(200);
    assert_eq!(theirs["data"], json!([]));
    for list in ["/v1/agents", "/v1/turns", "/v1/tool-calls"] {
        assert_eq!(house.send(house.request("GET", list, "other-admin")).await?.is(200)["data"], json!([]), "{list}");
    }
    let theirs = house.send(house.request("GET", &format!("/v1/sessions/{session}/events"), "other-admin")).await?;
    theirs.refuses(404, "session");
    Ok(())
}

#[tokio::test]
async fn a_key_is_shown_once_works_and_is_revoked() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let made = house.post("/v1/keys", json!({"name": "ci", "role": "operator"})).await?.is(201);
    let secret = text(&made["key"]);
    assert!(secret.len() > 60, "{secret}");
    let me = house.send(house.request("GET", "/v1/whoami", &secret)).await?.is(200);
    assert_eq!((&me["key_id"], &me["role"], &me["namespace"]), (&made["id"], &json!("operator"), &json!("test")));
    let listed = house.get("/v1/keys").await?;
    assert!(!listed.text.contains(&secret), "a key is never shown again");
    assert_eq!(listed.is(200)["data"].as_array().unwrap().len(), 5);
    let path = format!("/v1/keys/{}", text(&made["id"]));
    house.send(house.request("DELETE", &path, "other-admin")).await?.refuses(404, "key");
    let gone = house.as_role(Role::Admin, "DELETE", &path, None).await?.is(200);
    assert!(gone["revoked_at"].is_string());
    house.send(house.request("GET", "/v1/whoami", &secret)).await?.refuses(401, "key");
    house.post("/v1/keys", json!({"name": "x", "role": "root"})).await?.refuses(422, "role");
    // A repeat is told of the key, but not the key.
    let body = json!({"name": "once", "role": "viewer"});
    let first = house.keyed("/v1/keys", "k1", &body).await?.is(201);
    let again = house.keyed("/v1/keys", "k1", &body).await?.is(201);
    assert_eq!(first["id"], again["id"]);
    assert!(first["key"].is_string() && again["key"].is_null());
    Ok(())
}

#[tokio::test]
async fn a_key_that_was_made_for_a_while_opens_nothing_after_it() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    let new = |until: &str| json!({"name": "ci", "role": "viewer", "expires_at": until});
    house.post("/v1/keys", new("2020-01-01T00:00:00Z")).await?.refuses(422, "not in the future");
    house.post("/v1/keys", new("tomorrow")).await?.refuses(422, "expires_at");
    let made = house.post("/v1/keys", new("2999-01-01T00:00:00Z")).await?.is(201);
    assert_eq!(made["expires_at"], "2999-01-01T00:00:00Z");
    let secret = text(&made["key"]);
    let who = || house.send(house.request("GET", "/v1/whoami", &secret));
    who().await?.is(200);
    // Long enough that it is found good first, however slow the machine.
    let until = chrono::Utc::now() + chrono::Duration::seconds(8);
    let made = house.post("/v1/keys", new(&until.to_rfc3339())).await?.is(201);
    let secret = text(&made["key"]);
    let who = || house.send(house.request("GET", "/v1/whoami", &secret));
    who().await?.is(200);
    // Also where it was found good a moment ago.
    instar_testkit::wait::until_ok(std::time::Duration::from_secs(30), || async {
        let got = who().await?;
        anyhow::ensure!(got.status == 401, "it is {}", got.status);
        anyhow::ensure!(chrono::Utc::now() >= until, "it ended before its time");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_address_that_tries_keys_is_told_to_wait_and_does_not_shut_out_those_who_have_one() -> Result<()> {
    let house = House::with(Backend::Sqlite, |config| config.api.failed_keys_per_minute_max = 5).await?;
    let twin_key = house.post("/v1/keys", json!({"name": "new", "role": "viewer"})).await?.is(201);
    for n in 0..5 {
        house.send(house.request("GET", "/v1/whoami", &format!("guess-{n}"))).await?.refuses(401, "key");
    }
    let refused = house.send(house.request("GET", "/v1/whoami", "guess-5")).await?;
    let wait: u64 = refused.headers["retry-after"].to_str()?.parse()?;
    assert!((1..=13).contains(&wait), "{wait}");
    refused.refuses(429, "from this address");
    house.get("/v1/whoami").await?.is(200);
    // Also with one that nobody has come with yet: behind a proxy all have one address.
    let unseen = text(&twin_key["key"]);
    house.send(house.request("GET", "/v1/whoami", &unseen)).await?.is(200);
    house.send(house.request("GET", "/v1/whoami", "guess-6")).await?.refuses(429, "from this address");
    // No key at all is no guess.
    house.send(house.request("GET", "/v1/whoami", "")).await?.refuses(401, "key");
    Ok(())
}

#[tokio::test]
async fn a_key_that_is_there_already_stays_as_it_is() -> Result<()> {
    let house = House::on(Backend::Sqlite).await?;
    for _ in 0..2 {
        instar_api::ensure_key(house.store(), "test", "again", Role::Viewer, &key(Role::Admin)).await?;
    }
    let me = house.get("/v1/whoami").await?.is(200);
    assert_eq!((&me["name"], &me["role"]), (&json!("admin"), &json!("admin")));
    Ok(())
}
