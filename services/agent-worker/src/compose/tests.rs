//! Every context that can be composed is one that both providers take, whatever the history was.

use super::*;
use instar_core::context::{Assistant as Answer, Call, Input, Message as Entry, Outcome, Part, SnapshotKey, Source};
use instar_core::id::{CallId, MessageId};
use instar_model::history::{INTERRUPTED, check, repair};
use instar_model::{Dialect, Message as Wire};
use serde_json::json;
use std::borrow::Cow;
use std::collections::HashSet;

const HISTORIES: u64 = 100_000;

/// xorshift: as random as a test needs, and the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len() as u64) as usize]
    }

    fn id(&mut self) -> CallId {
        CallId::from(uuid::Uuid::from_u128(u128::from(self.roll(12))))
    }

    fn text(&mut self) -> Cow<'static, str> {
        Cow::Borrowed(self.pick(&["", " ", "yes", "a longer sentence | with: signs", LONG]))
    }
}

const LONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Anything that could be there: results before calls, calls twice, answers without words.
fn entry(dice: &mut Dice) -> Entry<'static> {
    match dice.roll(7) {
        0 | 1 => {
            let source = dice.pick(&[Source::Direct, Source::Broadcast, Source::Summary]);
            let mut message = Entry::user(source, Part::Before, dice.text());
            message.id = Some(MessageId::from(uuid::Uuid::from_u128(u128::from(dice.roll(6)))));
            message
        }
        2..=4 => {
            let calls = (0..dice.roll(4)).map(|_| Call {
                id: dice.id(),
                name: Cow::Borrowed(dice.pick(&["get_status", "get_poi", "mine", "weird name!"])),
                arguments: Cow::Owned(match dice.roll(4) {
                    0 => Value::from("not { json"),
                    1 => json!({}),
                    _ => json!({"a": dice.roll(3), "b": "|:"}),
                }),
            });
            let calls = calls.collect::<Vec<_>>();
            let block = json!({"dialect": dice.pick(&["anthropic", "open_ai"]), "kind": "thinking",
                "text_before": dice.roll(3), "calls_before": dice.roll(3), "json": "{\"type\":\"thinking\"}"});
            let blocks = (0..dice.roll(3)).map(|_| Cow::Owned(block.clone())).collect();
            Entry::assistant(Part::Before, Answer { text: dice.text(), calls, blocks })
        }
        _ => {
            let (content, is_error) = (dice.text(), dice.roll(4) == 0);
            Entry::result(Part::Before, Outcome { call_id: dice.id(), content, is_error })
        }
    }
}

fn snapshot(name: &str) -> Option<SnapshotKey> {
    match name {
        "get_status" => Some(SnapshotKey::Name),
        "get_poi" => Some(SnapshotKey::NameAndArguments),
        _ => None,
    }
}

fn input(dice: &mut Dice) -> Input<'static> {
    let history = (0..dice.roll(16)).map(|_| entry(dice)).collect();
    let turn = (0..dice.roll(10)).map(|_| entry(dice)).collect();
    Input {
        system: dice.pick(&[None, Some(""), Some("Be {{WHO}}.")]),
        slots: vec![("WHO", Cow::Borrowed("brief"))],
        history,
        turn,
        epoch: (dice.roll(2) == 0).then(|| MessageId::from(uuid::Uuid::from_u128(u128::from(dice.roll(6))))),
        nudge: dice.roll(2) == 0,
        snapshot: &snapshot,
        budget: Budget(dice.pick(&[0, 30, 100, 1_000_000])),
    }
}

/// The rules themselves, without any repair.
fn wrong(messages: &[Wire]) -> Option<String> {
    let mut seen = HashSet::new();
    let (mut rest, mut users) = (messages, 0);
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        match message {
            Wire::User { .. } => users += 1,
            Wire::Tool(result) => return Some(format!("result {} stands alone", result.call_id)),
            Wire::Assistant(assistant) => {
                for call in &assistant.tool_calls {
                    if !seen.insert(&call.id) {
                        return Some(format!("{} twice", call.id));
                    }
                    let Some((Wire::Tool(result), after)) = rest.split_first() else {
                        return Some(format!("{} has no result", call.id));
                    };
                    if result.call_id != call.id {
                        return Some(format!("{} where {} belongs", result.call_id, call.id));
                    }
                    rest = after;
                }
            }
        }
    }
    (users == 0).then(|| "no user".to_owned())
}

fn count(messages: &[Wire]) -> (usize, usize) {
    let calls = messages.iter().map(|m| if let Wire::Assistant(a) = m { a.tool_calls.len() } else { 0 }).sum();
    (calls, messages.iter().filter(|m| matches!(m, Wire::Tool(_))).count())
}

#[test]
fn every_context_is_valid_for_every_provider() {
    let mut dice = Dice(0x1257_4ab1_e5ee_d001);
    let mut with_calls = 0u64;
    for number in 0..HISTORIES {
        let composed = instar_core::context::compose(input(&mut dice));
        let sent = composed.statistics.sent.clone();
        let request = request(&composed, "m", Vec::new());
        let shown = || format!("history {number}: {:#?}", request.messages);
        if let Some(wrong) = wrong(&request.messages) {
            panic!("{wrong} in {}", shown());
        }
        let counted = count(&request.messages);
        assert_eq!((sent.tool_calls, sent.roles.tool), (counted.0 as u64, counted.1 as u64), "{}", shown());
        with_calls += u64::from(counted.0 > 0);
        for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
            let repaired = repair(request.messages.clone(), dialect);
            check(&repaired, dialect).unwrap_or_else(|why| panic!("{why} in {}", shown()));
            // The adapter has no call or result to add or to leave out.
            assert_eq!(count(&repaired), counted, "{}", shown());
            let interrupted = |m: &Wire| matches!(m, Wire::Tool(result) if result.content == INTERRUPTED);
            assert!(!repaired.iter().any(interrupted), "{}", shown());
            for message in &repaired {
                let Wire::Assistant(assistant) = message else { continue };
                let written = assistant.tool_calls.iter().all(|call| match &call.arguments {
                    Arguments::Json(text) => serde_json::from_str::<serde_json::Map<String, Value>>(text).is_ok(),
                    // The adapter wraps what the model wrote.
                    Arguments::Invalid { text, .. } => text == "not { json",
                });
                assert!(written, "{}", shown());
            }
        }
        assert!(composed.system.as_deref().is_none_or(|text| text == "Be brief."));
    }
    assert!(with_calls > HISTORIES / 10, "{with_calls} histories with calls test little");
}
