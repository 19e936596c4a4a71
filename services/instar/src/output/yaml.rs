//! JSON values as YAML: block style, and every text that could be taken for something else in
//! double quotes, which YAML reads as JSON does.

use serde_json::Value;

pub(super) fn render(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                pad(indent, text);
                text.push_str(&scalar(&Value::String(key.clone())));
                text.push(':');
                nested(value, indent, text);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                pad(indent, text);
                text.push('-');
                match value {
                    // The first field stands on the dash's line.
                    Value::Object(object) if !object.is_empty() => {
                        let mut block = String::new();
                        write(value, indent + 2, &mut block);
                        text.push(' ');
                        text.push_str(block.trim_start());
                    }
                    _ => nested(value, indent, text),
                }
            }
        }
        other => {
            pad(indent, text);
            text.push_str(&scalar(other));
            text.push('\n');
        }
    }
}

fn nested(value: &Value, indent: usize, text: &mut String) {
    let block = match value {
        Value::Object(object) => !object.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    };
    if block {
        text.push('\n');
        write(value, indent + 2, text);
    } else {
        text.push(' ');
        text.push_str(&scalar(value));
        text.push('\n');
    }
}

fn pad(indent: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let rest = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./ ".contains(c));
    first && rest && !text.ends_with(' ') && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_as_blocks() {
        let value = json!({"id": "ses_1", "list": [1, {"a": true, "b": {"c": []}}, [2]], "none": null, "empty": {}});
        let text = "empty: {}\nid: ses_1\nlist:\n  - 1\n  - a: true\n    b:\n      c: []\n  -\n    - 2\nnone: null\n";
        assert_eq!(render(&value), text);
        assert_eq!(render(&json!([])), "[]\n");
        assert_eq!(render(&json!("x")), "x\n");
    }

    #[test]
    fn a_text_that_looks_like_something_else_is_quoted() {
        let quoted =
            ["", "no", "True", "1", "1.5", "2026-11-16", "a: b", "a #b", "- a", "a\nb", " a", "a ", "*x", "~", "ü"];
        for text in quoted {
            assert_eq!(scalar(&json!(text)), json!(text).to_string(), "{text}");
        }
        for text in ["active", "turn.started", "two words", "agt_01"] {
            assert_eq!(scalar(&json!(text)), text);
        }
    }
}
