//! Secrets go where the spec says, nowhere else, and do not come back.

use crate::kit::{Server, Yard, call, code, ok, run, text, tool};
use instar_core::rune::payload::ResultStatus;
use instar_core::secret::Secret;
use instar_tools::{Account, Invocation, Kind, Method, Origin, Runner, Secrets, Settings, Sink, Spec, Tool};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const PASSWORD: &str = "canary p/w&d";
const TOKEN: &str = "canary-token-77";

fn account() -> Option<Account> {
    let fields = [("password", PASSWORD), ("token", TOKEN)];
    let fields = fields.map(|(name, value)| (name.to_owned(), Secret::exact(value).unwrap())).into();
    Some(Account { username: Some("ada".into()), fields })
}

fn spec(kind: Kind, rest: Value) -> Spec {
    let mut all = json!({"name": "x", "kind": kind, "parameters": {"type": "object", "properties": {
        "pass": {"type": "string"}, "other": {"type": "string"}}}});
    all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

fn runner() -> Runner {
    let secrets = Secrets::new(|name| (name == "env/SHORT").then(|| Secret::new("12345"))?);
    Runner::new(Settings { secrets, ..Settings::default() }).unwrap()
}

#[tokio::test]
async fn an_account_reaches_url_headers_body_and_allowed_arguments_and_is_in_no_outcome() {
    let server = Server::with(|request| ok(&json!({"you": request}).to_string())).await;
    let spec = spec(
        Kind::Http,
        json!({
            "url": server.url("/secret://account/username?t=secret://account/password&u=1"),
            "headers": {"x-auth": "secret://account/username:secret://account/token"},
            "body": {"pin": "secret://account/password"}, "secret_arguments": ["pass"],
        }),
    );
    let tool = tool(spec);
    let arguments = json!({"pass": "secret://account/token", "other": "secret://account/token"});
    assert!(tool.needs_account(&arguments));
    let one = Invocation { account: account(), ..call(tool, arguments) };
    let shown = format!("{one:?}");
    let outcome = run(&runner(), one).await;
    assert_eq!(outcome.status, ResultStatus::Success, "{outcome:?}");
    let seen = server.requests.lock().unwrap()[0].clone();
    assert!(seen.starts_with("POST /ada?t=canary%20p%2Fw%26d&u=1 "), "{seen}");
    assert!(seen.contains("x-auth: ada:canary-token-77"), "{seen}");
    let body: Value = serde_json::from_str(seen.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let expected = json!({"pass": TOKEN, "other": "secret://account/token", "pin": PASSWORD});
    assert_eq!(body, expected, "what the model wrote elsewhere is left as it is");
    for words in [shown, format!("{outcome:?}")] {
        assert!(!words.contains("canary"), "{words}");
    }
    assert!(text(&outcome).contains("[redacted]"));
}

#[tokio::test]
async fn a_command_gets_secrets_in_its_environment_and_tells_them_in_no_way() {
    let yard = Yard::plain();
    let script = "echo $TOKEN; echo -n u:$TOKEN | base64; echo $TOKEN >&2; \
                  head -c 4090 /dev/zero | tr '\\0' x >&2; echo $TOKEN >&2; cat >&2; exit 3";
    let environment = [("TOKEN".to_owned(), "secret://account/token".to_owned())].into();
    let parameters = json!({"type": "object", "properties": {"pass": {"type": "string"}}});
    let secret_arguments = vec!["pass".to_owned()];
    let spec = Spec { environment, parameters, secret_arguments, ..yard.spec(&["sh", "-c", script], 20_000) };
    let (sink, mut progress) = Sink::channel(64);
    let one = Invocation { account: account(), ..call(tool(spec), json!({"pass": "secret://account/password"})) };
    let outcome = yard.runner.run(one, CancellationToken::new(), sink).await;
    assert_eq!(code(&outcome), "command_failed");
    let mut said = String::new();
    while let Some(line) = progress.recv().await {
        said.push_str(&line.text);
    }
    assert!(said.matches("[redacted]").count() >= 3, "{said}");
    for words in [said, format!("{outcome:?}")] {
        for part in ["canary", "token-77", "Y2FuYXJ5", "p/w&d"] {
            assert!(!words.contains(part), "{part}: {words}");
        }
    }
    assert!(outcome.error.unwrap().message.contains("[redacted]"));
}

#[tokio::test]
async fn what_cannot_be_had_or_kept_secret_is_an_error_before_anything_is_sent() {
    let server = Server::start(ok("x")).await;
    for reference in ["secret://account/none", "secret://env/OTHER", "secret://env/SHORT"] {
        let spec = spec(Kind::Http, json!({"url": server.url("/"), "headers": {"a": reference}}));
        for account in [None, account()] {
            let outcome = run(&runner(), Invocation { account, ..call(tool(spec.clone()), json!({})) }).await;
            assert_eq!((code(&outcome), outcome.began), ("secret_missing", false), "{outcome:?}");
        }
    }
    assert_eq!(server.count(), 0);
}

#[test]
fn a_spec_says_where_secrets_go_and_only_the_operators_may() {
    let header = json!({"url": "http://h/", "headers": {"a": "secret://account/token"}});
    assert!(Tool::new(spec(Kind::Http, header.clone()), Origin::Operator).is_ok());
    let bad = [
        json!({"url": "http://secret://account/host/x"}),
        json!({"url": "http://h.secret://account/host?x"}),
        json!({"url": "http://h/", "headers": {"a": "secret://account/"}}),
        json!({"url": "http://h/", "secret_arguments": ["missing"]}),
        json!({"url": "http://h/", "method": Method::Get, "body": {"a": "b"}}),
        json!({"url": "http://h/", "environment": {"A": "b"}}),
    ];
    for rest in bad {
        assert!(Tool::new(spec(Kind::Http, rest.clone()), Origin::Operator).is_err(), "{rest}");
    }
    for rest in [header, json!({"url": "http://h/", "secret_arguments": ["pass"]})] {
        let problems = Tool::new(spec(Kind::Http, rest), Origin::Api).unwrap_err();
        assert!(problems[0].message.contains("operator's configuration"), "{problems:?}");
    }
    let echo: Spec =
        serde_json::from_value(json!({"name": "echo", "kind": "builtin", "secret_arguments": ["x"]})).unwrap();
    assert!(Tool::new(echo, Origin::Operator).is_err());
}
