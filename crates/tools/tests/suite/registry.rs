use instar_tools::{Kind, Origin, Refused, Registry, Spec};
use serde_json::json;

fn http(name: &str) -> Spec {
    Spec { url: Some("http://host/".into()), ..Spec::new(name, Kind::Http) }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn registry() -> Registry {
    let registry = Registry::with_builtins();
    for name in ["charge", "clock.now", "clock.zones"] {
        registry.register(http(name), Origin::Operator).unwrap();
    }
    registry
}

#[test]
fn the_builtins_are_there_and_only_look() {
    let list: Vec<_> = Registry::with_builtins().list().iter().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(list, ["echo", "http_fetch", "now", "sleep"]);
    assert!(Registry::with_builtins().list().iter().all(|tool| !tool.spec().side_effects));
}

#[test]
fn a_name_is_taken_once_and_the_same_definition_again_is_no_news() {
    let registry = registry();
    let again = registry.register(http("charge"), Origin::Operator).unwrap();
    assert_eq!(again.definition_hash(), http("charge").definition_hash());
    let other = Spec { description: "other".into(), ..http("charge") };
    assert_eq!(registry.register(other, Origin::Operator).unwrap_err(), Refused::Taken { name: "charge".into() });
    let foreign = registry.register(http("charge"), Origin::Api).unwrap_err();
    assert_eq!(foreign, Refused::Taken { name: "charge".into() });
    for alike in ["Charge", "clock_now", "CLOCK-NOW"] {
        let refused = registry.register(http(alike), Origin::Operator).unwrap_err();
        assert!(matches!(refused, Refused::Alike { .. }), "{refused}");
    }
    assert!(registry.unregister("charge").is_some());
    registry.register(http("Charge"), Origin::Operator).unwrap();
}

#[test]
fn an_agent_gets_what_its_names_and_patterns_say_without_what_is_switched_off() {
    let registry = registry();
    let got = |list: &[&str]| -> Vec<String> {
        registry.allowed(&names(list)).unwrap().iter().map(|tool| tool.name().to_owned()).collect()
    };
    assert_eq!(got(&["charge", "clock.*"]), ["charge", "clock.now", "clock.zones"]);
    assert_eq!(got(&["clock.*", "clock.now"]), ["clock.now", "clock.zones"]);
    assert_eq!(got(&["weather.*"]), [""; 0]);
    assert_eq!(got(&["*"]).len(), 7);
    registry.set_enabled("clock.now", false).unwrap();
    assert_eq!(got(&["clock.*"]), ["clock.zones"]);
    registry.set_enabled("clock.now", true).unwrap();
    assert_eq!(got(&["clock.*"]).len(), 2);
    let bad = registry.allowed(&names(&["nope", "cl*", "charge", "nil"])).unwrap_err();
    assert_eq!(bad.len(), 3, "{bad:?}");
}

#[test]
fn a_name_that_an_agent_does_not_have_is_answered_with_those_it_has() {
    let registry = registry();
    assert_eq!(registry.look_up("clock.now", &names(&["clock.*"])).unwrap().name(), "clock.now");
    let unknown = registry.look_up("charge", &names(&["clock.*", "echo"])).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no tool \"charge\"; you may call: clock.now, clock.zones, echo");
    assert_eq!(registry.look_up("x", &[]).unwrap_err().to_string(), "there is no tool \"x\"; you may call: none");
    registry.set_enabled("clock.now", false).unwrap();
    assert!(registry.look_up("clock.now", &names(&["clock.*"])).is_err());
    assert!(registry.set_enabled("nope", true).is_err());
}

#[test]
fn a_provider_sees_four_fields_and_nothing_of_where_the_tool_lives() {
    let registry = registry();
    let offer = serde_json::to_value(registry.get("charge").unwrap().offer()).unwrap();
    let parameters = json!({"type": "object", "properties": {}, "additionalProperties": false});
    assert_eq!(offer, json!({"type": "function", "name": "charge", "description": "", "parameters": parameters}));
}

#[test]
fn a_request_may_not_bring_a_command_and_every_problem_is_told() {
    let registry = Registry::new();
    let command = Spec { command: vec!["id".into()], ..Spec::new("x", Kind::Command) };
    let refused = registry.register(command.clone(), Origin::Api).unwrap_err().to_string();
    assert!(refused.contains("kind: command tools come from the operator's configuration only"), "{refused}");
    registry.register(command, Origin::Operator).unwrap();
    let broken = Spec { timeout_ms: 0, url: None, ..http("a b") };
    let refused = registry.register(broken, Origin::Api).unwrap_err().to_string();
    assert!(refused.contains("name:") && refused.contains("timeout_ms:") && refused.contains("url:"), "{refused}");
    let remote = json!({"type": "object", "properties": {"a": {"$ref": "http://example.com/schema.json"}}});
    let refused = registry.register(Spec { parameters: remote, ..http("r") }, Origin::Api).unwrap_err().to_string();
    assert!(refused.contains("parameters: is not a JSON Schema"), "{refused}");
}
