//! The rules of [`super::repair`], written a second time and the other way round: not how to reach a
//! valid conversation but whether this is one. Tests hold the two against each other.

use std::collections::HashSet;

use crate::message::{Assistant, Dialect, Message};

/// What the provider would refuse, if anything.
pub fn check(messages: &[Message], dialect: Dialect) -> Result<(), String> {
    let first = messages.first().ok_or("there is no message")?;
    if dialect == Dialect::Anthropic && !matches!(first, Message::User { .. }) {
        return Err("the first message is not the user's".to_owned());
    }
    let mut rest = messages;
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        match message {
            Message::User { text } if text.trim().is_empty() => return Err("a user message is blank".to_owned()),
            Message::User { .. } if matches!(rest.first(), Some(Message::User { .. })) => {
                return Err("two user messages follow each other".to_owned());
            }
            Message::User { .. } => {}
            Message::Tool(result) => return Err(format!("result {} has no call before it", result.call_id)),
            Message::Assistant(assistant) => {
                check_assistant(assistant, dialect)?;
                for call in &assistant.tool_calls {
                    let Some((Message::Tool(result), after)) = rest.split_first() else {
                        return Err(format!("call {} has no result", call.id));
                    };
                    if result.call_id != call.id {
                        return Err(format!("the result of {} is where that of {} belongs", result.call_id, call.id));
                    }
                    rest = after;
                }
                if assistant.tool_calls.is_empty() && matches!(rest.first(), Some(Message::Assistant(_))) {
                    return Err("two assistant messages follow each other".to_owned());
                }
            }
        }
    }
    Ok(())
}

fn check_assistant(assistant: &Assistant, dialect: Dialect) -> Result<(), String> {
    let Assistant { text, tool_calls, provider_blocks, .. } = assistant;
    if text.is_empty() && tool_calls.is_empty() && provider_blocks.is_empty() {
        return Err("an assistant message is empty".to_owned());
    }
    if !text.is_empty() && text.trim().is_empty() {
        return Err("the text of an assistant message is blank".to_owned());
    }
    let mut ids = HashSet::new();
    for call in tool_calls {
        if !allowed(&call.id, 40) || !allowed(&call.name, 64) {
            return Err(format!("call {:?} of {:?} is not named as providers allow", call.id, call.name));
        }
        if !ids.insert(&call.id) {
            return Err(format!("two calls have the id {}", call.id));
        }
    }
    for block in provider_blocks {
        if block.dialect != dialect {
            return Err("a block belongs to another provider".to_owned());
        }
        if !text.is_char_boundary(block.text_before) || block.calls_before > tool_calls.len() {
            return Err("a block is placed outside its message".to_owned());
        }
    }
    match provider_blocks.last() {
        Some(last) if last.is_thinking() && last.text_before == text.len() && last.calls_before == tool_calls.len() => {
            Err("an assistant message ends in thinking".to_owned())
        }
        _ => Ok(()),
    }
}

fn allowed(token: &str, length_max: usize) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=length_max).contains(&token.len()) && token.chars().all(letter)
}
