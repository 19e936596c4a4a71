use crate::kit::{Server, call, code, local_policy, moved, ok, run, tool};
use futures::future::BoxFuture;
use instar_core::rune::payload::ResultStatus;
use instar_tools::egress::{Lookup, Policy};
use instar_tools::sandbox::Kernel;
use instar_tools::{Builtin, Kind, Origin, Outcome, Output, Runner, Settings, Spec, Tool};
use serde_json::{Value, json};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers with the next list each time; the last one stays.
struct Rebinding {
    answers: Vec<Vec<IpAddr>>,
    asked: AtomicUsize,
}

impl Rebinding {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |list: &&[&str]| list.iter().map(|text| text.parse().unwrap()).collect();
        Arc::new(Self { answers: answers.iter().map(parse).collect(), asked: AtomicUsize::new(0) })
    }
}

impl Lookup for Rebinding {
    fn look_up<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst).min(self.answers.len() - 1);
        Box::pin(async move { Ok(self.answers[turn].clone()) })
    }
}

fn runner(policy: Policy, lookup: Arc<dyn Lookup>) -> Runner {
    Runner::with(Settings { egress: policy, ..Settings::default() }, lookup, Kernel::probe()).unwrap()
}

async fn fetch(runner: &Runner, url: &str) -> Outcome {
    run(runner, call(tool(Builtin::HttpFetch.spec()), json!({ "url": url }))).await
}

fn page(outcome: &Outcome) -> &Value {
    let Output::Json(page) = &outcome.output else { panic!("{outcome:?}") };
    page
}

#[tokio::test]
async fn a_page_is_read_with_its_status_and_kind() {
    let server = Server::start(ok("hello")).await;
    let runner = Runner::new(Settings { egress: local_policy(server.port), ..Settings::default() }).unwrap();
    let outcome = fetch(&runner, &server.url("/a")).await;
    assert_eq!(outcome.status, ResultStatus::Success, "{outcome:?}");
    assert_eq!((&page(&outcome)["status"], &page(&outcome)["body"]), (&json!(200), &json!("hello")));
    assert_eq!(outcome.bytes, 5);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_blocked_by_the_resolver_and_nothing_is_sent() {
    let server = Server::start(ok("secret")).await;
    let inside: &[&[&str]] = &[&["127.0.0.1"], &["::1"], &["10.0.0.1", "192.168.0.1"], &["::ffff:127.0.0.1"]];
    let policy = Policy::public().ports([server.port]);
    let runner = runner(policy, Rebinding::new(inside));
    for rule in ["loopback", "loopback", "private", "embedded_ipv4"] {
        let outcome = fetch(&runner, &format!("http://rebind.example:{}/", server.port)).await;
        assert_eq!((outcome.status, code(&outcome)), (ResultStatus::SandboxViolation, "egress_blocked"));
        let words = outcome.error.unwrap().message;
        assert!(words.contains(rule) && !words.contains("127.0.0.1") && !words.contains("10.0.0.1"), "{words}");
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_name_that_changes_between_look_ups_gains_nothing() {
    // The first answer is allowed and connected to; every later request asks again and is filtered.
    let server = Server::start(ok("first")).await;
    let policy = Policy::public().allow("127.0.0.1/32").unwrap().ports([server.port]);
    let rebinding = Rebinding::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let runner = runner(policy, rebinding.clone());
    let url = format!("http://rebind.example:{}/", server.port);
    assert_eq!(fetch(&runner, &url).await.status, ResultStatus::Success);
    assert_eq!(rebinding.asked.load(Ordering::SeqCst), 1, "one look-up per request: what was checked is used");
    let second = fetch(&runner, &url).await;
    assert_eq!((second.status, code(&second)), (ResultStatus::SandboxViolation, "egress_blocked"));
    assert_eq!((rebinding.asked.load(Ordering::SeqCst), server.count()), (2, 1));
}

#[tokio::test]
async fn of_a_mixed_answer_only_what_is_allowed_is_connected_to() {
    let server = Server::start(ok("public")).await;
    let policy = Policy::public().allow("127.0.0.1/32").unwrap().ports([server.port]);
    let mixed = Rebinding::new(&[&["10.0.0.1", "169.254.169.254", "127.0.0.1"]]);
    let outcome = fetch(&runner(policy, mixed), &format!("http://mixed.example:{}/", server.port)).await;
    assert_eq!(outcome.status, ResultStatus::Success, "{outcome:?}");
}

#[tokio::test]
async fn every_hop_of_a_redirect_is_checked_like_the_first() {
    let cases = [
        ("http://169.254.169.254/latest/", "link_local"),
        ("//2130706433:1/", "port"),
        ("http://[::1]/", "port"),
        ("file:///etc/passwd", "scheme"),
        ("http://u:p@example.com/", "user_info"),
        ("http://localhost/", "port"),
    ];
    for (target, rule) in cases {
        let server = Server::start(moved(target)).await;
        let mut policy = local_policy(server.port);
        if rule == "link_local" {
            policy = policy.ports([server.port, 80]);
        }
        let runner = Runner::new(Settings { egress: policy, ..Settings::default() }).unwrap();
        let outcome = fetch(&runner, &server.url("/")).await;
        assert_eq!((outcome.status, code(&outcome)), (ResultStatus::SandboxViolation, "egress_blocked"), "{target}");
        assert!(outcome.error.unwrap().message.contains(&format!("rule {rule}:")), "{target}");
        assert_eq!(server.count(), 1);
    }
}

#[tokio::test]
async fn redirects_are_followed_but_not_for_ever() {
    let server =
        Server::with(|request| if request.starts_with("GET /end") { ok("there") } else { moved("/end") }).await;
    let runner = Runner::new(Settings { egress: local_policy(server.port), ..Settings::default() }).unwrap();
    let outcome = fetch(&runner, &server.url("/")).await;
    assert_eq!(page(&outcome)["body"], json!("there"));
    let round = Server::start(moved("/again")).await;
    let runner = Runner::new(Settings { egress: local_policy(round.port), ..Settings::default() }).unwrap();
    let outcome = fetch(&runner, &round.url("/")).await;
    assert!(outcome.error.unwrap().message.contains("rule redirects:"));
    assert_eq!(round.count(), 6);
}

#[tokio::test]
async fn a_body_is_cut_while_it_is_read_and_given_up_when_it_does_not_end() {
    let server = Server::start(ok(&"x".repeat(3_000_000))).await;
    let settings = || Settings { egress: local_policy(server.port), ..Settings::default() };
    let whole = fetch(&Runner::new(settings()).unwrap(), &server.url("/")).await;
    assert!(whole.truncated && whole.digest.is_some() && whole.bytes == 3_000_000);
    assert!(page(&whole)["body"].as_str().unwrap().len() <= 100_000);
    let short = Runner::new(Settings { body_bytes_max: 1_000_000, ..settings() }).unwrap();
    let cut = fetch(&short, &server.url("/")).await;
    assert!(cut.truncated && cut.digest.is_none() && cut.bytes < 2_000_000, "{}", cut.bytes);
}

#[tokio::test]
async fn without_a_list_nothing_is_fetched_and_a_tool_from_the_api_is_guarded_like_a_model() {
    let server = Server::start(ok("inside")).await;
    let runner = Runner::new(Settings::default()).unwrap();
    assert_eq!(code(&fetch(&runner, "https://example.com/").await), "egress_blocked");
    let spec = Spec { url: Some(server.url("/")), ..Spec::new("inside", Kind::Http) };
    let api = Arc::new(Tool::new(spec.clone(), Origin::Api).unwrap());
    let outcome = run(&runner, call(api, json!({}))).await;
    assert_eq!(
        (outcome.status, code(&outcome), outcome.began),
        (ResultStatus::SandboxViolation, "egress_blocked", false)
    );
    assert_eq!(server.count(), 0);
    assert_eq!(run(&runner, call(tool(spec), json!({}))).await.status, ResultStatus::Success);
}
