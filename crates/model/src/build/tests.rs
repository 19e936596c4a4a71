use serde::Deserialize;

use crate::config::{Kind, ModelConfig};
use crate::error::Class;
use crate::message::Request;
use crate::registry::Models;

#[derive(Deserialize)]
struct File {
    models: Vec<ModelConfig>,
}

fn configs(text: &str) -> Vec<ModelConfig> {
    toml::from_str::<File>(text).unwrap().models
}

fn built(text: &str) -> Result<Models, Vec<String>> {
    let environment = |name: &str| (name == "SET").then(|| "sk-secret".to_owned());
    Models::with_environment(&configs(text), &environment).map_err(|error| error.problems)
}

#[test]
fn the_documented_entry_works_without_a_key_on_this_machine() {
    let text = r#"
        [[models]]
        name = "default"
        provider = "openai"
        base_url = "http://localhost:11434/v1"
        model = "qwen3:8b"
        api_key_env = "UNSET"
        [[models]]
        name = "claude"
        provider = "anthropic"
        base_url = "https://gateway.example/v1/"
        model = "claude-x"
        api_key_env = "SET"
        max_tokens = 500
        headers = { anthropic-beta = "new-thing" }
        extra_body = { thinking = { type = "enabled", budget_tokens = 2000 } }
        limits = { idle_timeout_ms = 1000 }
        [[models]]
        name = "local"
        provider = "ollama"
        model = "llama"
        [[models]]
        name = "demo"
        provider = "scripted"
    "#;
    let models = built(text).unwrap();
    assert_eq!(models.names().collect::<Vec<_>>(), ["claude", "default", "demo", "local"]);
    let claude = models.get("claude").unwrap().about().clone();
    assert_eq!((claude.provider, claude.server_address.as_deref()), ("anthropic", Some("gateway.example")));
    assert_eq!((claude.model.as_str(), claude.server_port), ("claude-x", Some(443)));
    let local = models.get("local").unwrap().about().clone();
    assert_eq!((local.provider, local.server_port), ("ollama", Some(11434)));
    assert!(!format!("{models:?}").contains("sk-secret"));
}

#[test]
fn addresses_are_taken_as_people_write_them() {
    let url = |kind, base: &str| {
        let mut config = ModelConfig::new("m", kind);
        config.base_url = Some(base.to_owned());
        super::url(&config).map(|url| url.to_string())
    };
    for base in ["https://a", "https://a/", "https://a/v1", "https://a/v1/"] {
        assert_eq!(url(Kind::Anthropic, base).unwrap(), "https://a/v1/messages");
    }
    assert_eq!(url(Kind::OpenAi, "http://b:1/v1/").unwrap(), "http://b:1/v1/chat/completions");
    assert!(url(Kind::OpenAi, "ftp://user:pass@b").is_err_and(|problem| !problem.contains("pass")));
    assert!(url(Kind::OpenAi, "nonsense").is_err());
    let local = |base: &str| super::is_loopback(&base.parse().unwrap());
    assert!(local("http://localhost:1") && local("http://127.0.0.2") && local("http://[::1]:8"));
    assert!(!local("http://localhost.example") && !local("http://10.0.0.1"));
}

#[test]
fn every_problem_is_reported_at_once() {
    let text = r#"
        [[models]]
        name = "a"
        provider = "openai"
        api_key_env = "UNSET"
        limits = { idle_timeout_ms = 0 }
        [[models]]
        name = "b"
        provider = "scripted"
        script = "/nowhere/script.toml"
        [[models]]
        name = "b"
        provider = "scripted"
        [[models]]
        name = "b"
        provider = "vllm"
        model = "q"
        base_url = "q"
        headers = { "no good" = "x" }
    "#;
    let problems = built(text).unwrap_err();
    let expected = [
        "model \"a\": limits.idle_timeout_ms",
        "model \"a\": model is missing",
        "model \"a\": the environment variable UNSET",
        "model \"b\": script /nowhere/script.toml can't be read",
        "model \"b\": there are two",
        "model \"b\": base_url is not an address",
        "model \"b\": headers: \"no good\"",
    ];
    for (problem, start) in problems.iter().zip(expected) {
        assert!(problem.starts_with(start), "{problem}");
    }
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
}

#[test]
fn a_misspelt_field_is_refused() {
    let text = "[[models]]\nname = \"a\"\nprovider = \"scripted\"\nbase_ulr = \"x\"";
    assert!(toml::from_str::<File>(text).err().is_some_and(|error| error.to_string().contains("base_ulr")));
}

#[tokio::test]
async fn an_unknown_model_is_told_with_those_there_are() {
    let models = built("[[models]]\nname = \"demo\"\nprovider = \"scripted\"").unwrap();
    let error = models.complete(Request { model: "gpt".to_owned(), ..Request::default() }).await.unwrap_err();
    assert_eq!((error.class, error.code.as_deref()), (Class::Permanent, Some("unknown_model")));
    assert!(error.message.contains("known are: demo"), "{error}");
    let answer = models.complete(Request { model: "demo".to_owned(), ..Request::default() }).await.unwrap();
    assert!(answer.text.starts_with("You said"));
}

#[tokio::test]
async fn a_script_is_read_from_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script.toml");
    std::fs::write(&path, "[[scene]]\n[[scene.reply]]\ntext = \"from the file\"").unwrap();
    let mut config = ModelConfig::new("demo", Kind::Scripted);
    config.script = Some(path);
    let models = Models::from_config(&[config]).unwrap();
    let answer = models.complete(Request { model: "demo".to_owned(), ..Request::default() }).await.unwrap();
    assert_eq!(answer.text, "from the file");
}

#[test]
fn a_key_is_never_printed_and_one_with_two_lines_is_no_header() {
    assert_eq!(format!("{:?}", super::sensitive("Bearer sk-very-secret".to_owned()).unwrap()), "Sensitive");
    assert!(super::sensitive("two\nlines".to_owned()).is_none());
}
