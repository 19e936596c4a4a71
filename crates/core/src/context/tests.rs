//! The rules, each with the case that once broke it, and a generator that looks for others.

use super::*;
use crate::id::CallId;
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

const AMPLE: Budget = Budget(1_000_000);

fn id(n: u128) -> CallId {
    CallId::from(Uuid::from_u128(n))
}

fn user(text: &str) -> Message<'_> {
    Message::user(Source::Direct, Part::Before, text)
}

fn said(text: &str) -> Message<'_> {
    Message::assistant(Part::Before, Assistant { text: text.into(), ..Assistant::default() })
}

fn asked<'a>(text: &'a str, calls: &[(u128, &'a str, Value)]) -> Message<'a> {
    let call = |(n, name, arguments): &(u128, &'a str, Value)| Call {
        id: id(*n),
        name: Cow::Borrowed(*name),
        arguments: Cow::Owned(arguments.clone()),
    };
    let calls = calls.iter().map(call).collect();
    Message::assistant(Part::Before, Assistant { text: text.into(), calls, blocks: Vec::new() })
}

fn result<'a>(n: u128, text: impl Into<Cow<'a, str>>) -> Message<'a> {
    Message::result(Part::Before, Outcome { call_id: id(n), content: text.into(), is_error: false })
}

fn snapshot(name: &str) -> Option<SnapshotKey> {
    match name {
        "get_poi" => Some(SnapshotKey::NameAndArguments),
        name if name.starts_with("get_") => Some(SnapshotKey::Name),
        _ => None,
    }
}

fn input<'a>(history: Vec<Message<'a>>, turn: Vec<Message<'a>>) -> Input<'a> {
    Input {
        system: None,
        slots: Vec::new(),
        history,
        turn,
        epoch: None,
        nudge: false,
        snapshot: &snapshot,
        budget: AMPLE,
    }
}

/// One word per message: a user's text, an answer's text and its calls, the result's text.
fn words(composed: &Composed<'_>) -> Vec<String> {
    let word = |message: &Message<'_>| match &message.said {
        Said::User { text } => format!("u:{text}"),
        Said::Tool(outcome) => format!("r{}:{}", outcome.call_id.uuid().as_u128(), outcome.content),
        Said::Assistant(assistant) => {
            let calls: Vec<String> = assistant.calls.iter().map(|c| c.id.uuid().as_u128().to_string()).collect();
            format!("a:{}({})", assistant.text, calls.join(","))
        }
    };
    composed.messages.iter().map(word).collect()
}

#[test]
fn before_the_epoch_only_texts_and_the_latest_tool_loop_are_left() {
    let history = vec![
        user("one"),
        asked("looking", &[(1, "mine", json!({}))]),
        result(1, "ore"),
        asked("", &[(2, "sell", json!({}))]),
        result(2, "sold"),
        said("done"),
        user("two"),
        said("sure"),
    ];
    let composed = compose(input(history, vec![user("three")]));
    assert_eq!(
        words(&composed),
        ["u:one", "a:looking()", "a:(2)", "r2:sold", "a:done()", "u:two", "a:sure()", "u:three"]
    );
    assert_eq!(composed.messages.last().map(|m| m.part), Some(Part::Turn));
    assert_eq!((composed.statistics.composed.messages, composed.statistics.sent.tool_calls), (8, 1));
}

#[test]
fn a_window_that_begins_with_an_answer_does_not_show_it() {
    let composed = compose(input(vec![said("half"), user("one"), said("two")], vec![user("three")]));
    assert_eq!(words(&composed), ["u:one", "a:two()", "u:three"]);
}

/// The original dropped the assistant message and kept the result of `mine`: a malformed sequence.
#[test]
fn a_superseded_snapshot_takes_only_its_own_result_along() {
    let turn = vec![
        user("go"),
        asked("", &[(1, "get_status", json!({})), (2, "mine", json!({}))]),
        result(1, "old"),
        result(2, "ore"),
        asked("", &[(3, "get_status", json!({}))]),
        result(3, "new"),
    ];
    let composed = compose(input(Vec::new(), turn));
    assert_eq!(words(&composed), ["u:go", "a:(2)", "r2:ore", "a:(3)", "r3:new"]);
    let (before, after) = (&composed.statistics.composed, &composed.statistics.compacted);
    assert_eq!((before.messages, after.messages, after.roles.tool), (6, 5, 2));
}

#[test]
fn a_message_goes_only_when_no_call_and_no_word_is_left() {
    let turn = vec![
        user("go"),
        asked("", &[(1, "get_status", json!({}))]),
        result(1, "a"),
        asked("so far", &[(2, "get_status", json!({}))]),
        result(2, "b"),
        asked("", &[(3, "get_status", json!({}))]),
        result(3, "c"),
    ];
    assert_eq!(words(&compose(input(Vec::new(), turn))), ["u:go", "a:so far()", "a:(3)", "r3:c"]);
}

#[test]
fn the_key_says_whether_arguments_count_and_a_failure_supersedes_nothing() {
    let mut failed = result(5, "no");
    if let Said::Tool(outcome) = &mut failed.said {
        outcome.is_error = true;
    }
    let turn = vec![
        user("go"),
        asked("", &[(1, "get_poi", json!({"a": 1})), (2, "get_poi", json!({"a": 2})), (3, "get_poi", json!({"a": 1}))]),
        result(1, "x"),
        result(2, "y"),
        result(3, "z"),
        asked("", &[(4, "get_status", json!({})), (5, "get_status", json!({})), (6, "mine", json!({}))]),
        result(4, "good"),
        failed,
        result(6, "ore"),
    ];
    let expected = ["u:go", "a:(2,3)", "r2:y", "r3:z", "a:(4,5,6)", "r4:good", "r5:no", "r6:ore"];
    assert_eq!(words(&compose(input(Vec::new(), turn))), expected);
}

#[test]
fn calls_and_results_without_each_other_go_one_by_one() {
    let turn = vec![
        result(9, "nobody asked"),
        user("go"),
        asked("", &[(1, "mine", json!({})), (2, "sell", json!({})), (1, "mine", json!({}))]),
        result(1, "ore"),
        result(1, "ore again"),
        user("and?"),
        asked("", &[(3, "sell", json!({}))]),
    ];
    assert_eq!(words(&compose(input(Vec::new(), turn))), ["u:go", "a:(1)", "r1:ore", "u:and?"]);
}

#[test]
fn blocks_know_how_many_calls_are_left_before_them() {
    let mut thought = asked("", &[(1, "get_status", json!({})), (2, "mine", json!({}))]);
    if let Said::Assistant(assistant) = &mut thought.said {
        assistant.blocks = vec![Cow::Owned(json!({"calls_before": 0})), Cow::Owned(json!({"calls_before": 1}))];
    }
    let later = asked("", &[(3, "get_status", json!({}))]);
    let turn = vec![user("go"), thought, result(1, "a"), result(2, "b"), later, result(3, "c")];
    let composed = compose(input(Vec::new(), turn));
    let Said::Assistant(first) = &composed.messages[1].said else { panic!("{:?}", composed.messages) };
    let before: Vec<u64> = first.blocks.iter().filter_map(|block| block["calls_before"].as_u64()).collect();
    assert_eq!((before, first.calls.len()), (vec![0, 0], 1));
}

#[test]
fn the_epoch_of_an_earlier_turn_is_kept_whole() {
    let prompt = crate::id::MessageId::from(Uuid::from_u128(7));
    let mut order = user("mine ore for ever");
    order.id = Some(prompt);
    let history = vec![
        user("old"),
        asked("", &[(1, "sell", json!({}))]),
        result(1, "sold"),
        said("fine"),
        order,
        asked("", &[(2, "mine", json!({}))]),
        result(2, "ore"),
        said("one"),
        asked("", &[(3, "mine", json!({}))]),
        result(3, "ore"),
    ];
    let composed = compose(Input { epoch: Some(prompt), nudge: true, ..input(history, Vec::new()) });
    let expected = [
        "u:old",
        "a:(1)",
        "r1:sold",
        "a:fine()",
        "u:mine ore for ever",
        "a:(2)",
        "r2:ore",
        "a:one()",
        "a:(3)",
        "r3:ore",
    ];
    let words = words(&composed);
    assert_eq!(words[..expected.len()], expected);
    assert_eq!(words[expected.len()..], [format!("u:{ENCOURAGEMENT}")]);
    assert!(composed.synthetic && composed.messages[5].part == Part::Epoch);
}

#[test]
fn a_turn_that_nobody_prompted_gets_an_encouragement() {
    let prompted = compose(Input { nudge: true, ..input(Vec::new(), vec![user("x")]) });
    assert_eq!((words(&prompted), prompted.synthetic), (vec!["u:x".to_owned()], false));
    let empty = compose(input(Vec::new(), Vec::new()));
    assert_eq!((words(&empty), empty.synthetic), (vec![format!("u:{OPENING}")], true));
    let nudged = compose(Input { nudge: true, ..input(Vec::new(), Vec::new()) });
    assert_eq!((words(&nudged), nudged.synthetic), (vec![format!("u:{ENCOURAGEMENT}")], true));
}

#[test]
fn what_is_too_much_goes_oldest_first_and_a_prompt_is_never_cut() {
    let (long, prompt) = ("x".repeat(4_000), "p".repeat(4_000));
    let history = vec![user(&long), said("one"), user("two"), said("three")];
    let fits = compose(Input { budget: Budget(1_050), ..input(history.clone(), vec![user(&prompt)]) });
    assert_eq!(words(&fits)[..2], ["u:two", "a:three()"]);
    assert_eq!((fits.fit.dropped, fits.fit.over), (2, false));
    let over = compose(Input { budget: Budget(10), ..input(history, vec![user(&prompt)]) });
    assert_eq!((over.messages.len(), over.fit.over), (1, true));
    assert_eq!(words(&over)[0].len(), prompt.len() + 2);
}

#[test]
fn old_results_are_shortened_before_new_ones_and_say_so() {
    let turn = |big: &str| {
        vec![
            user("go"),
            asked("", &[(1, "mine", json!({}))]),
            result(1, big.to_owned()),
            asked("", &[(2, "mine", json!({}))]),
            result(2, "é".repeat(2_000)),
        ]
    };
    let big = "a".repeat(8_000);
    let composed = compose(Input { budget: Budget(2_000), ..input(Vec::new(), turn(&big)) });
    let words = words(&composed);
    assert!(words[2].contains("bytes of this result were left out") && words[2].len() < 4_000, "{}", words[2].len());
    assert_eq!(words[4].len(), 4_000 + 3);
    assert!(composed.fit.tokens <= 2_000 && !composed.fit.over, "{:?}", composed.fit);
    let tight = compose(Input { budget: Budget(600), ..input(Vec::new(), turn(&big)) });
    assert_eq!((tight.fit.shortened, tight.fit.over), (2, false), "{:?}", tight.fit);
}

#[test]
fn a_summary_is_the_last_of_the_past_to_go() {
    let long = "x".repeat(4_000);
    let summary = Message::user(Source::Summary, Part::Before, "what was");
    let history = vec![summary, user(&long), said("one")];
    let composed = compose(Input { budget: Budget(100), ..input(history, vec![user("now")]) });
    assert_eq!(words(&composed), ["u:what was", "u:now"]);
}

#[test]
fn one_byte_more_is_another_digest() {
    let of = |text: &str| digest(&compose(input(Vec::new(), vec![user(text)])));
    assert_eq!((of("a"), of("a").len()), (of("a"), 12));
    assert_ne!(of("a"), of("b"));
}

/// The original split at every `|` and lost the arguments, or made a call that nobody made.
#[test]
fn text_with_pipes_and_colons_comes_back() {
    let call = |id: &str, arguments: Value| {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        TextCall { id: id.into(), name: "say".into(), arguments }
    };
    let calls = vec![call("c1", json!({"text": "a|c9:rob:{}|b:c"})), call("c2", json!({}))];
    let text = calls_to_text(&calls).unwrap();
    assert_eq!(calls_from_text(&text), Some(Ok(calls)));
    assert_eq!(calls_from_text("[TOOL_CALLS]c1:say:"), Some(Ok(vec![call("c1", json!({}))])));
    assert_eq!(calls_from_text("just words"), None);
    for bad in [
        "[TOOL_CALLS]c1",
        "[TOOL_CALLS]c1:say:{",
        "[TOOL_CALLS]c1:say:{}x",
        "[TOOL_CALLS]c1:say:{}|",
        "[TOOL_CALLS]::{}",
    ] {
        assert!(calls_from_text(bad).is_some_and(|read| read.is_err()), "{bad}");
    }
    assert!(calls_to_text(&[call("a:b", json!({}))]).is_err() && result_to_text("a:b", "x").is_err());
    assert_eq!(result_from_text(&result_to_text("c1", "a:b|c").unwrap()), Ok(("c1", "a:b|c")));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "[a|:\"\\\\{}é,]{0,8}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a|:]{0,4}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn any_calls_come_back_from_text(calls in prop::collection::vec(("[a-z|]{1,5}", "[a-z_.|]{1,5}", prop::collection::btree_map("[a|:]{0,4}", value(), 0..4)), 0..5)) {
        let calls: Vec<TextCall> =
            calls.into_iter().map(|(id, name, map)| TextCall { id, name, arguments: map.into_iter().collect() }).collect();
        prop_assert_eq!(calls_from_text(&calls_to_text(&calls).unwrap()), Some(Ok(calls)));
    }

    #[test]
    fn any_result_comes_back_from_text(id in "[a-z|]{1,5}", text in ".{0,20}") {
        let written = result_to_text(&id, &text).unwrap();
        prop_assert_eq!(result_from_text(&written), Ok((id.as_str(), text.as_str())));
    }
}
