//! What runes say of messages and results besides their ids: short, so that whoever reads one subject alone can act
//! on it, and whoever needs all of it knows what to fetch. The rows have the whole.

use instar_core::id::{CallId, MessageId};
use instar_core::rune::payload::{CallSummary, TurnInput};
use instar_store::entity::{message, tool_call};
use serde_json::Value;
use std::io::{self, Write};

/// Of one text, and of all texts of one rune: the log grows with every turn.
const TEXT_BYTES_MAX: usize = 256;
const ALL_BYTES_MAX: usize = 1_024;

/// What a turn takes up. The words of one agent to another are for those who may read internal runes: of them only the
/// id is told.
pub fn inputs<'a>(messages: impl IntoIterator<Item = &'a message::Model>) -> Vec<TurnInput> {
    let mut room = ALL_BYTES_MAX;
    let mut tell = |message: &message::Model| {
        let told = if message.source == super::AGENT_SOURCE { "" } else { &message.content };
        let (text, _) = head(told, &mut room);
        TurnInput {
            message_id: MessageId::from(message.id),
            source: message.source.clone(),
            cut: text.len() < message.content.len(),
            text,
        }
    };
    messages.into_iter().map(&mut tell).collect()
}

/// What came of calls that have ended.
pub fn results<'a>(calls: impl IntoIterator<Item = &'a tool_call::Model>) -> Vec<CallSummary> {
    let mut room = ALL_BYTES_MAX;
    let mut tell = |call: &tool_call::Model| {
        let status = call.result_status.clone().unwrap_or_default();
        let nothing = Value::Null;
        let field = |name: &str| call.result.as_ref().and_then(|result| result.get(name)).unwrap_or(&nothing);
        let (text, cut) = match (field("error"), field("output")) {
            (Value::String(text), _) | (Value::Null, Value::String(text)) => head(text, &mut room),
            (Value::Null, Value::Null) => (String::new(), false),
            (_, output) => written(output, &mut room),
        };
        CallSummary {
            call_id: CallId::from(call.id),
            tool: call.name.clone(),
            status: serde_json::from_value(Value::String(status)).unwrap_or_default(),
            text,
            cut,
        }
    };
    calls.into_iter().map(&mut tell).collect()
}

/// The beginning of a text, and whether there is more of it.
fn head(text: &str, room: &mut usize) -> (String, bool) {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX.min(*room));
    *room -= end;
    (text[..end].to_owned(), end < text.len())
}

/// The same of a value as JSON text, of which no more is written than is told.
fn written(value: &Value, room: &mut usize) -> (String, bool) {
    let mut page = Page { written: Vec::new(), left: TEXT_BYTES_MAX.min(*room) };
    let whole = serde_json::to_writer(&mut page, value).is_ok();
    let mut text = page.written;
    if let Err(error) = std::str::from_utf8(&text) {
        let end = error.valid_up_to();
        text.truncate(end);
    }
    *room -= text.len();
    (String::from_utf8(text).unwrap_or_default(), !whole)
}

/// Takes so many bytes, and no more.
struct Page {
    written: Vec<u8>,
    left: usize,
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.left);
        self.written.extend_from_slice(&bytes[..taken]);
        self.left -= taken;
        // Nothing taken is an error for who wants all of it written.
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_cut_at_a_character_and_all_of_them_have_a_limit() {
        let mut room = ALL_BYTES_MAX;
        assert_eq!(head("short", &mut room), ("short".to_owned(), false));
        let (text, cut) = head(&format!("x{}", "é".repeat(200)), &mut room);
        assert!(cut && text.len() == TEXT_BYTES_MAX - 1 && text.ends_with('é'), "{text}");
        for _ in 0..10 {
            head(&"y".repeat(300), &mut room);
        }
        assert_eq!((head("more", &mut room), room), ((String::new(), true), 0));
    }

    #[test]
    fn a_value_is_written_as_far_as_it_is_told() {
        let mut room = ALL_BYTES_MAX;
        let value = json!({"sum": 3});
        assert_eq!(written(&value, &mut room), (value.to_string(), false));
        let (text, cut) = written(&json!({"words": "é".repeat(10_000)}), &mut room);
        assert!(cut && text.len() <= TEXT_BYTES_MAX && text.ends_with('é'), "{text}");
        assert!(room > ALL_BYTES_MAX - 2 * TEXT_BYTES_MAX);
    }
}
