//! One text per JSON value: what hashes and approvals are bound to.
//!
//! Written by hand so that the text depends neither on the order in which keys were read nor on
//! which features of serde_json another crate of the build switches on.

use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

/// Whole numbers up to here have one value in every JSON reader.
pub(crate) const INTEGER_MAX: u64 = 1 << 53;

/// Keys sorted by their bytes, no spaces, one spelling per number and per string.
pub fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// SHA-256 in hexadecimal over a label and parts. Parts are preceded by their length: no two lists
/// of parts give the same bytes.
pub fn sha256(label: &str, parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in [label.as_bytes()].iter().chain(parts) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(yes) => out.push_str(if *yes { "true" } else { "false" }),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (place, (key, item)) in sorted.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write(item, out);
            }
            out.push('}');
        }
    }
}

/// `1`, `1.0` and `1e0` are one number, so they have one text.
fn write_number(number: &Number, out: &mut String) {
    if let Some(whole) = number.as_i64() {
        out.push_str(&whole.to_string());
    } else if let Some(whole) = number.as_u64() {
        out.push_str(&whole.to_string());
    } else {
        match number.as_f64() {
            Some(float) if float.is_finite() && float.fract() == 0.0 && float.abs() <= INTEGER_MAX as f64 => {
                out.push_str(&(float as i64).to_string());
            }
            Some(float) if float.is_finite() => out.push_str(&format!("{float:e}")),
            // Only reached where numbers keep their text: it is all there is to go by.
            _ => out.push_str(&number.to_string()),
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if (control as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", control as u32)),
            plain => out.push(plain),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_same_value_has_the_same_text_however_it_was_written() {
        let pairs = [
            (r#"{"b":1,"a":{"d":2,"c":3}}"#, r#"{ "a": {"c":3, "d":2}, "b": 1.0 }"#),
            (r#"["\u00e9","\/"]"#, r#"["é","/"]"#),
            ("1.50", "15e-1"),
            ("-0.0", "0"),
        ];
        for (one, other) in pairs {
            assert_eq!(text(&read(one)), text(&read(other)), "{one} {other}");
        }
    }

    #[test]
    fn the_text_is_sorted_compact_json_that_reads_back() {
        let value =
            json!({"z": [1, -2, 0.5, null, true], "a": "\u{1}\"\\\n", "é": {}, "A": 18_446_744_073_709_551_615u64});
        let text = text(&value);
        assert_eq!(
            text,
            "{\"A\":18446744073709551615,\"a\":\"\\u0001\\\"\\\\\\n\",\"z\":[1,-2,5e-1,null,true],\"é\":{}}"
        );
        assert_eq!(read(&text), value);
    }

    #[test]
    fn different_values_have_different_texts_and_parts_do_not_run_together() {
        let values = [json!(1), json!("1"), json!([1]), json!({"1": 1}), json!(null), json!(false), json!(1.5)];
        let texts: std::collections::BTreeSet<_> = values.iter().map(text).collect();
        assert_eq!(texts.len(), values.len());
        assert_ne!(sha256("x", &[b"ab", b"c"]), sha256("x", &[b"a", b"bc"]));
        assert_ne!(sha256("x", &[b"a"]), sha256("xa", &[]));
    }
}
