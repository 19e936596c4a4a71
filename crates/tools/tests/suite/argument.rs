use crate::kit::{call, code, run, tool};
use instar_core::rune::payload::ResultStatus;
use instar_tools::{ARGUMENT_BYTES_MAX, Kind, Runner, Settings, Spec, Tool};
use serde_json::{Value, json};
use std::sync::Arc;

fn charge() -> Arc<Tool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "cents": {"type": "integer", "minimum": 1},
            "note": {"type": "string", "maxLength": 10},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]}},
        },
        "required": ["cents"],
    });
    // Nobody listens there: a call that is sent fails in another way.
    tool(Spec { url: Some("http://127.0.0.1:9/".into()), parameters, ..Spec::new("charge", Kind::Http) })
}

#[test]
fn the_error_says_where_and_what_is_expected() {
    let cases = [
        (json!({}), "/: cents is missing"),
        (json!({"cents": "12"}), "/cents: expected integer, got string \"12\""),
        (json!({"cents": 1.5}), "/cents: expected integer, got number 1.5"),
        (json!({"cents": 0}), "/cents: 0 is less than the minimum of 1"),
        (json!({"cents": 1, "cent": 2, "x": 3}), "/: unknown cent, x; allowed: cents, lines, note"),
        (json!({"cents": 1, "lines": [{"sku": "a"}, {}]}), "/lines/1: sku is missing"),
        (json!({"cents": 9_007_199_254_740_993u64}), "/cents: 9007199254740993 lies beyond 2^53"),
        (json!({"cents": 1, "note": -9_007_199_254_740_993i64}), "/note: -9007199254740993 lies beyond"),
        (json!([1]), "/: expected object, got array"),
        (json!(null), "/: expected object, got null"),
        (json!("{\"cents\": 1}"), "/: expected object, got string"),
    ];
    for (arguments, expected) in cases {
        let error = charge().validate(&arguments).unwrap_err().to_string();
        assert!(error.starts_with("the arguments of charge are not valid: "), "{error}");
        assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    }
    charge().validate(&json!({"cents": 5, "note": "thanks"})).unwrap();
    charge().validate(&json!({"cents": 5.0})).unwrap();
}

#[test]
fn every_problem_is_named_but_no_endless_list_or_quote() {
    let problems = charge().validate(&json!({"cents": "x", "note": 5, "more": 1})).unwrap_err().problems;
    assert_eq!(problems.len(), 3, "{problems:?}");
    let many = json!({"cents": 1, "lines": (0..1000).map(|_| json!({})).collect::<Vec<_>>()});
    assert_eq!(charge().validate(&many).unwrap_err().problems.len(), 10);
    let long = charge().validate(&json!({"cents": "x".repeat(10_000)})).unwrap_err().to_string();
    assert!(long.len() < 400, "{}", long.len());
}

#[test]
fn size_depth_and_number_of_values_have_limits() {
    let deep = |depth: usize| (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }));
    let open = tool(Spec {
        url: Some("http://127.0.0.1:9/".into()),
        parameters: json!({"type": "object"}),
        ..Spec::new("open", Kind::Http)
    });
    open.validate(&deep(31)).unwrap();
    let cases = [
        (deep(32), "nested deeper than 32"),
        (json!({"a": "x".repeat(ARGUMENT_BYTES_MAX + 1)}), "bytes in all"),
        (json!({"a": vec![0; 1_000_000]}), "values in all"),
    ];
    for (arguments, expected) in cases {
        let error = open.validate(&arguments).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn text_is_read_with_the_same_limits_and_no_digit_is_lost_on_the_way() {
    assert_eq!(charge().parse("{\"cents\": 5}").unwrap(), json!({"cents": 5}));
    let cases = [
        ("", "cents is missing"),
        ("{\"cents\": 5", "not JSON"),
        ("{\"cents\": NaN}", "not JSON"),
        ("{\"cents\": 123456789012345678901234567890}", "the integer 123456789012345678901234567890 lies beyond 2^53"),
        (&format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000)), "not JSON: recursion limit"),
        (&" ".repeat(ARGUMENT_BYTES_MAX + 1), "at most"),
    ];
    for (text, expected) in cases {
        let error = charge().parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n  lacks: {expected}");
    }
    // Digits in a string and in a fraction are no integers.
    let note = tool(Spec {
        url: Some("http://127.0.0.1:9/".into()),
        parameters: json!({"type": "object"}),
        ..Spec::new("open", Kind::Http)
    });
    note.parse("{\"a\": \"x\\\" 12345678901234567890\", \"b\": 6.02214076e23, \"c\": 9007199254740992}").unwrap();
}

#[test]
fn a_schema_that_opens_itself_stays_open_and_the_model_sees_what_counts() {
    let with =
        |parameters: Value| tool(Spec { url: Some("http://h/".into()), parameters, ..Spec::new("x", Kind::Http) });
    with(json!({"type": "object", "properties": {}, "additionalProperties": true})).validate(&json!({"a": 1})).unwrap();
    with(json!({"type": "object"})).validate(&json!({"a": 1})).unwrap();
    with(Value::Null).validate(&json!({"a": 1})).unwrap_err();
    assert_eq!(charge().offer().parameters["additionalProperties"], json!(false));
}

#[tokio::test]
async fn a_tool_never_runs_on_arguments_that_break_its_schema() {
    let runner = Runner::new(Settings::default()).unwrap();
    let outcome = run(&runner, call(charge(), json!({"cents": "x"}))).await;
    assert_eq!((outcome.status, code(&outcome), outcome.began), (ResultStatus::Error, "invalid_arguments", false));
    let outcome = run(&runner, call(charge(), json!({"cents": 1}))).await;
    assert_eq!(code(&outcome), "connect_failed");
}
