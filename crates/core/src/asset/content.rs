//! An asset's value as bytes: written, hashed, read back and put into few words.
//!
//! A text is kept as it is, so that whoever downloads it gets the text; everything else is JSON. Tools get the
//! whole value, models its summary.

use super::{Schema, Type};
use crate::context::tokens_of;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub const JSON: &str = "application/json";
pub const TEXT: &str = "text/plain; charset=utf-8";
pub const MARKDOWN: &str = "text/markdown; charset=utf-8";
/// What is said of a value in its summary.
pub const SUMMARY_BYTES_MAX: usize = 600;
const FIELDS_NAMED: usize = 12;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// Bytes that are not a value of the asset's type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("the content is not UTF-8, which {0} must be")]
    NotText(String),
    #[error("the content is not JSON: {0}")]
    NotJson(String),
    #[error("the content does not fit its schema: {}", .0.join("; "))]
    Misfit(Vec<String>),
}

/// SHA-256 in hexadecimal: the name of the content.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Content {
    /// Writes a value that was checked against its schema.
    pub fn of(schema: &Schema, value: &Value) -> Content {
        match value {
            Value::String(text) if !schema.is_array => {
                let media_type = if schema.kind == Type::Markdown { MARKDOWN } else { TEXT };
                Content { media_type: media_type.to_owned(), bytes: text.clone().into_bytes() }
            }
            other => Content { media_type: JSON.to_owned(), bytes: other.to_string().into_bytes() },
        }
    }

    pub fn hash(&self) -> String {
        hash(&self.bytes)
    }

    /// About as many tokens as a model would read.
    pub fn tokens(&self) -> u64 {
        tokens_of(self.bytes.len())
    }

    /// The value, if it is one of the schema's. What somebody uploads goes through here, and so does what a
    /// tool is given.
    pub fn value(&self, schema: &Schema) -> Result<Value, Unreadable> {
        let text = std::str::from_utf8(&self.bytes);
        if schema.kind == Type::File && !schema.is_array {
            let binary = || json!({"media_type": self.media_type, "base64": base64(&self.bytes)});
            return Ok(text.map_or_else(|_| binary(), Value::from));
        }
        let text = text.map_err(|_| Unreadable::NotText(schema.words()))?;
        let value = if is_json(&self.media_type) {
            serde_json::from_str(text).map_err(|error| Unreadable::NotJson(error.to_string()))?
        } else {
            Value::from(text)
        };
        let misfit =
            |misfits: Vec<super::Misfit>| Unreadable::Misfit(misfits.iter().map(ToString::to_string).collect());
        schema.check(&value).map_err(misfit).map(|()| value)
    }

    /// A few words for models and lists. A credential says nothing.
    pub fn summary(&self, schema: &Schema) -> String {
        let bytes = self.bytes.len();
        if schema.is_secret() {
            return format!("a credential of {bytes} bytes");
        }
        let Ok(text) = std::str::from_utf8(&self.bytes) else {
            return format!("{}, {bytes} bytes", self.media_type);
        };
        match is_json(&self.media_type).then(|| serde_json::from_str::<Value>(text).ok()).flatten() {
            Some(value) => cut(&format!("{}: {text}", outline(&value)), bytes),
            None => cut(text, bytes),
        }
    }
}

fn is_json(media_type: &str) -> bool {
    let kind = media_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(JSON) || kind.to_ascii_lowercase().ends_with("+json")
}

fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= SUMMARY_BYTES_MAX {
        return text.to_owned();
    }
    let end = format!("… ({bytes} bytes in all)");
    format!("{}{end}", &text[..text.floor_char_boundary(SUMMARY_BYTES_MAX - end.len())])
}

/// `an object of 3 fields (a, b, c)`, `a list of 12`.
fn outline(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let names: Vec<&str> = fields.keys().map(String::as_str).take(FIELDS_NAMED).collect();
            let more = if fields.len() > FIELDS_NAMED { ", …" } else { "" };
            format!("an object of {} fields ({}{more})", fields.len(), names.join(", "))
        }
        Value::Array(items) => format!("a list of {}", items.len()),
        _ => "a value".to_owned(),
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| usize::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let sign = ALPHABET[bits >> (18 - 6 * at) & 63];
            out.push(if at > group.len() { '=' } else { char::from(sign) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(token: &str) -> Schema {
        Schema::new(Type::parse(token).expect(token))
    }

    #[test]
    fn a_text_is_kept_as_it_is_and_everything_else_as_json() {
        let kept = |schema: &Schema, value: Value| {
            let content = Content::of(schema, &value);
            (content.media_type.clone(), String::from_utf8(content.bytes).unwrap())
        };
        assert_eq!(kept(&of("markdown"), json!("# Hi")), (MARKDOWN.into(), "# Hi".into()));
        assert_eq!(kept(&of("string"), json!("12")), (TEXT.into(), "12".into()));
        assert_eq!(kept(&of("number"), json!(12)), (JSON.into(), "12".into()));
        assert_eq!(kept(&of("lead"), json!({"b": 1, "a": 2})), (JSON.into(), r#"{"a":2,"b":1}"#.into()));
        assert_eq!(kept(&of("string").array(), json!(["a"])), (JSON.into(), r#"["a"]"#.into()));
    }

    #[test]
    fn what_somebody_uploads_must_be_a_value_of_the_type() {
        let upload = |media: &str, bytes: &[u8]| Content { media_type: media.into(), bytes: bytes.to_vec() };
        let object = of("object").field("a", of("number"));
        assert_eq!(upload("application/json", b"{\"a\":1}").value(&object), Ok(json!({"a": 1})));
        assert_eq!(upload("application/geo+json; x=1", b"{\"a\":1}").value(&object), Ok(json!({"a": 1})));
        assert!(matches!(upload(JSON, b"{").value(&object), Err(Unreadable::NotJson(_))));
        assert!(matches!(upload(TEXT, b"\xff").value(&of("string")), Err(Unreadable::NotText(_))));
        let misfit = upload(JSON, b"{\"a\":\"x\"}").value(&object).expect_err("a string");
        assert!(misfit.to_string().contains("/a: expected number, found a string"), "{misfit}");
        assert_eq!(upload("image/png", b"ab").value(&of("file")), Ok(json!("ab")));
        let binary = upload("image/png", b"\xff\x00").value(&of("file"));
        assert_eq!(binary, Ok(json!({"media_type": "image/png", "base64": "/wA="})));
    }

    #[test]
    fn the_hash_is_that_of_the_bytes_alone() {
        assert_eq!(hash(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Content::of(&of("string"), &json!("abc")).hash(), hash(b"abc"));
    }

    #[test]
    fn a_summary_is_short_says_what_there_is_and_keeps_credentials() {
        let text = "å".repeat(5_000);
        let summary = Content::of(&of("string"), &json!(text)).summary(&of("string"));
        assert!(summary.len() <= SUMMARY_BYTES_MAX && summary.ends_with("(10000 bytes in all)"), "{summary}");
        let object = Content::of(&of("object"), &json!({"a": 1, "b": []}));
        assert!(object.summary(&of("object")).starts_with("an object of 2 fields (a, b): {"));
        let secret = Content::of(&of("credential"), &json!("hunter2"));
        assert_eq!(secret.summary(&of("credential")), "a credential of 7 bytes");
        let binary = Content { media_type: "image/png".into(), bytes: vec![0xff; 9] };
        assert_eq!(binary.summary(&of("file")), "image/png, 9 bytes");
    }

    #[test]
    fn base_64_is_the_standard_one_with_its_padding() {
        let cases: [(&[u8], &str); 5] =
            [(b"", ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foobar", "Zm9vYmFy")];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn a_value_reads_back_as_it_was_written(text in "\\PC{0,200}", number: i32, many in prop::collection::vec("[a-z]{0,9}", 0..5)) {
            let cases = [
                (of("string"), json!(text)),
                (of("markdown"), json!(text)),
                (of("file"), json!(text)),
                (of("primitive"), json!(number)),
                (of("primitive"), json!(text)),
                (of("lead"), json!(text)),
                (of("any"), json!({"a": text, "b": number})),
                (of("string").array(), json!(many)),
            ];
            for (schema, value) in cases {
                let content = Content::of(&schema, &value);
                prop_assert_eq!(content.value(&schema), Ok(value));
                prop_assert!(content.summary(&schema).len() <= SUMMARY_BYTES_MAX);
            }
        }
    }
}
