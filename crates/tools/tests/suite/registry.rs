use instar_tools::{Kind, Native, Origin, Refused, Registry, Spec};
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
    let builtins: Vec<_> = list.iter().filter(|name| Native::named(name).is_none()).collect();
    assert_eq!(builtins, ["echo", "http_fetch", "now", "sleep"]);
    let tools = Registry::with_builtins().list();
    assert!(tools.iter().all(|tool| tool.spec().kind == Kind::Native || !tool.spec().side_effects));
}

#[test]
fn a_native_tool_is_there_for_those_that_name_it_and_comes_from_no_request() {
    let registry = registry();
    for native in Native::ALL {
        let tool = registry.get(native.name()).unwrap();
        assert_eq!((tool.spec().kind, tool.spec().effect().repeatable()), (Kind::Native, true), "{native:?}");
        assert!(registry.look_up(native.name(), &names(&["*"])).is_err(), "{native:?}");
        // What serves a turn's work is given by the work, to nobody who only names it.
        let named = registry.look_up(native.name(), &names(&[native.name()]));
        assert_eq!(named.is_ok(), !native.is_given(), "{native:?}");
        registry.unregister(native.name());
        assert!(matches!(registry.register(native.spec(), Origin::Api), Err(Refused::Invalid { .. })));
        registry.register(native.spec(), Origin::Operator).unwrap();
    }
    let own = registry.get("search_messages").unwrap();
    assert!(
        own.validate(&json!({"query": ""})).is_err() && own.validate(&json!({"query": "x", "limit": 101})).is_err()
    );
    assert!(own.validate(&json!({"query": "x", "agent_id": "agt_1"})).is_err(), "who asks is not for the model to say");
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

#[test]
fn what_a_tool_answers_with_is_declared_as_an_object_and_named_result_by_result() {
    let registry = registry();
    let results = json!({"type": "object", "properties": {"receipt": {"type": "string"}}});
    let spec = Spec { results, ..http("bill") };
    registry.register(spec, Origin::Operator).unwrap();
    let face = registry.get("bill").unwrap().face();
    assert_eq!(face.results.keys().collect::<Vec<_>>(), ["output", "receipt"]);
    assert!(face.parameters.is_empty() && !face.open);
    assert!(registry.for_step("bill").is_some() && registry.for_step("send_message").is_none());
    registry.set_enabled("bill", false).unwrap();
    assert!(registry.for_step("bill").is_none());
    let odd = Spec { results: json!({"type": "string"}), ..http("odd") };
    let problems = odd.problems();
    assert!(problems.iter().any(|problem| problem.field == "results"), "{problems:?}");
}

#[test]
fn steps_of_an_agent_may_run_what_is_on_its_list_and_switched_on() {
    let registry = Registry::with_builtins();
    registry.register(http("pay.bill"), Origin::Operator).unwrap();
    registry.register(http("pay.tip"), Origin::Operator).unwrap();
    let usable = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        registry.for_steps_of(&names).iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(usable(&["echo", "propose_hop_impl", "no_such"]), ["echo"]);
    assert_eq!(usable(&["pay.*"]), ["pay.bill", "pay.tip"]);
    registry.set_enabled("pay.tip", false).unwrap();
    assert_eq!(usable(&["pay.*", "echo"]), ["echo", "pay.bill"]);
    assert!(usable(&["send_message"]).is_empty(), "what acts for an agent in its turn is no step");
}

#[test]
fn what_servers_offer_replaces_what_they_offered_and_takes_nobody_elses_name() {
    let registry = Registry::with_builtins();
    registry.register(http("clock.taken"), Origin::Operator).unwrap();
    registry.expect_servers(["clock".to_owned(), "late".to_owned()]);
    let offer = |name: &str| {
        let remote = instar_tools::Remote { server: "clock".into(), tool: name.into(), hash: "h".into() };
        let spec = Spec { mcp: Some(remote), ..Spec::new(name, Kind::Mcp) };
        std::sync::Arc::new(instar_tools::Tool::new(spec, Origin::Server).unwrap())
    };
    let names = ["clock.now", "clock.taken", "clock_now"];
    // Made while the registry is asked: it must not be locked then.
    let refused = registry.set_discovered(
        [1; 7],
        names.into_iter().map(|name| {
            assert!(registry.get("nothing").is_none());
            offer(name)
        }),
    );
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert_eq!(registry.edition(), Some([1; 7]));
    let all = ["clock.*".to_owned()];
    assert_eq!(
        registry.allowed(&all).unwrap().iter().map(|t| t.name().to_owned()).collect::<Vec<_>>(),
        ["clock.now", "clock.taken"]
    );
    // A server that was not heard yet may have any tool; one that was has those it has.
    assert!(registry.allowed(&["late.anything".to_owned()]).is_ok());
    assert!(registry.allowed(&["clock.anything".to_owned()]).is_err());

    let away = offer("clock.now").standing(Some("it is away".to_owned()));
    registry.set_discovered([2; 7], [std::sync::Arc::new(away)]);
    assert_eq!(registry.allowed(&all).unwrap().len(), 1, "what cannot be called is not offered");
    let unknown = registry.look_up("clock.now", &all).unwrap_err().to_string();
    assert!(unknown.starts_with("clock.now cannot be called now: it is away; you may call: clock.taken"), "{unknown}");
    let forged = Spec { mcp: None, ..Spec::new("clock.x", Kind::Mcp) };
    assert!(registry.register(forged, Origin::Operator).is_err());
    registry.set_discovered([3; 7], []);
    assert!(registry.get("clock.now").is_none() && registry.get("clock.taken").is_some());
}
