use proptest::prelude::*;

use super::*;
use crate::call::{Arguments, ToolCall};
use crate::message::ProviderBlock;

const DIALECTS: [Dialect; 2] = [Dialect::OpenAi, Dialect::Anthropic];

fn call(id: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: "echo".to_owned(), arguments: Arguments::Json("{}".to_owned()) }
}

fn calls(ids: &[&str]) -> Message {
    Message::Assistant(Assistant { tool_calls: ids.iter().map(|id| call(id)).collect(), ..Assistant::default() })
}

fn block(dialect: Dialect, kind: &str, text_before: usize, calls_before: usize) -> ProviderBlock {
    ProviderBlock { dialect, kind: kind.to_owned(), text_before, calls_before, json: "{}".to_owned() }
}

#[test]
fn a_call_without_a_result_is_answered_as_interrupted() {
    for dialect in DIALECTS {
        let repaired = repair(vec![Message::user("a"), calls(&["x"]), Message::user("b")], dialect);
        let expected = vec![Message::user("a"), calls(&["x"]), Message::failure("x", INTERRUPTED), Message::user("b")];
        assert_eq!(repaired, expected);
    }
}

#[test]
fn results_stand_in_the_order_of_the_calls_and_the_first_one_counts() {
    let broken = vec![
        Message::result("x", "before its call"),
        Message::user("a"),
        calls(&["x", "y"]),
        Message::result("y", "2"),
        Message::result("orphan", "?"),
        Message::user("late words"),
        Message::result("x", "1"),
        Message::result("x", "1 again"),
    ];
    let expected = vec![
        Message::user("a"),
        calls(&["x", "y"]),
        Message::result("x", "1"),
        Message::result("y", "2"),
        Message::user("late words"),
    ];
    for dialect in DIALECTS {
        assert_eq!(repair(broken.clone(), dialect), expected);
    }
}

#[test]
fn an_id_that_comes_back_belongs_to_the_latest_call() {
    let broken = vec![Message::user("a"), calls(&["x"]), calls(&["x"]), Message::result("x", "1")];
    let repaired = repair(broken, Dialect::OpenAi);
    assert_eq!(repaired[2], Message::failure("x", INTERRUPTED));
    assert_eq!(repaired[4], Message::result("x", "1"));
}

#[test]
fn empty_messages_go_and_equal_roles_are_joined() {
    let broken = vec![
        Message::user("a"),
        Message::user(" "),
        Message::user("b"),
        Message::assistant("  "),
        Message::assistant("c"),
        Message::assistant("d"),
    ];
    assert_eq!(repair(broken, Dialect::OpenAi), vec![Message::user("a\n\nb"), Message::assistant("c\n\nd")]);
}

#[test]
fn the_user_speaks_first_where_that_is_demanded_and_somebody_always_speaks() {
    let greeting = vec![Message::assistant("hello")];
    assert_eq!(repair(greeting.clone(), Dialect::OpenAi), greeting);
    assert_eq!(repair(greeting, Dialect::Anthropic)[0], Message::user(OPENING));
    for dialect in DIALECTS {
        assert_eq!(repair(vec![], dialect), vec![Message::user(OPENING)]);
    }
}

#[test]
fn blocks_stay_with_their_provider_and_thinking_never_ends_a_message() {
    let thinking = |text_before| block(Dialect::Anthropic, "thinking", text_before, 0);
    let mut assistant = Assistant { text: "hé".to_owned(), ..Assistant::default() };
    assistant.provider_blocks = vec![thinking(0), thinking(2), thinking(3)];
    let history = vec![Message::user("a"), Message::Assistant(assistant.clone())];
    assert_eq!(repair(history.clone(), Dialect::OpenAi)[1], Message::assistant("hé"));
    assistant.provider_blocks = vec![thinking(0), thinking(1)];
    assert_eq!(repair(history, Dialect::Anthropic)[1], Message::Assistant(assistant));
    let only = Assistant { provider_blocks: vec![thinking(0)], ..Assistant::default() };
    let repaired = repair(vec![Message::user("a"), Message::Assistant(only)], Dialect::Anthropic);
    assert_eq!(repaired, vec![Message::user("a")]);
}

fn some_block() -> impl Strategy<Value = ProviderBlock> {
    let kind = prop_oneof![Just("thinking"), Just("redacted_thinking"), Just("server_tool_use")];
    (prop::sample::select(&DIALECTS), kind, 0usize..8, 0usize..4).prop_map(|(d, k, t, c)| block(d, k, t, c))
}

fn some_assistant() -> impl Strategy<Value = Message> {
    let id = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "functions.echo:0",
        "",
        "toolu_0123456789012345678901234567890123456789",
    ]);
    let name = prop::sample::select(vec!["echo", "clock.now", "", "with space"]);
    let arguments = prop::sample::select(vec!["{}", "not json"]);
    let call = (id, name, arguments).prop_map(|(id, name, arguments)| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: Arguments::from_text(arguments),
    });
    let text = prop::sample::select(vec!["", " ", "hi", "hé\u{1f600}"]);
    let calls = prop::collection::vec(call, 0..4);
    (text, calls, prop::collection::vec(some_block(), 0..3)).prop_map(|(text, tool_calls, provider_blocks)| {
        Message::Assistant(Assistant { text: text.to_owned(), reasoning: String::new(), tool_calls, provider_blocks })
    })
}

fn some_message() -> impl Strategy<Value = Message> {
    let id = prop::sample::select(vec!["a", "b", "c", "functions.echo:0", "", "nobody"]);
    prop_oneof![
        prop::sample::select(vec!["", " \n", "hello", "more"]).prop_map(Message::user),
        some_assistant(),
        (id, any::<bool>()).prop_map(|(id, failed)| if failed {
            Message::failure(id, "no")
        } else {
            Message::result(id, "yes")
        }),
    ]
}

proptest! {
    #[test]
    fn any_history_becomes_valid_and_a_valid_one_stays(messages in prop::collection::vec(some_message(), 0..14)) {
        for dialect in DIALECTS {
            let repaired = repair(messages.clone(), dialect);
            prop_assert_eq!(check(&repaired, dialect), Ok(()));
            prop_assert_eq!(&repair(repaired.clone(), dialect), &repaired);
            if check(&messages, dialect).is_ok() {
                prop_assert_eq!(&repaired, &messages);
            }
        }
    }

    #[test]
    fn what_was_said_and_answered_is_not_lost(messages in prop::collection::vec(some_message(), 0..14)) {
        let count = |messages: &[Message], what: fn(&Message) -> usize| messages.iter().map(what).sum::<usize>();
        let hellos = |message: &Message| match message {
            Message::User { text } => text.matches("hello").count(),
            _ => 0,
        };
        let repaired = repair(messages.clone(), Dialect::OpenAi);
        prop_assert_eq!(count(&repaired, hellos), count(&messages, hellos));
    }

    #[test]
    fn cutting_a_valid_history_anywhere_leaves_it_repairable(cut in 0usize..7) {
        let whole = vec![
            Message::user("a"), calls(&["x", "y"]), Message::result("x", "1"), Message::result("y", "2"),
            Message::assistant("b"), Message::user("c"),
        ];
        prop_assert_eq!(check(&whole, Dialect::Anthropic), Ok(()));
        let repaired = repair(whole[..cut.min(whole.len())].to_vec(), Dialect::Anthropic);
        prop_assert_eq!(check(&repaired, Dialect::Anthropic), Ok(()));
    }
}
