//! Blots secrets out of text.
//!
//! Found are a value as it is, with any of its characters escaped as in URLs, forms, JSON or HTML, in
//! base 64 (both alphabets, also inside a longer encoded text) and in hexadecimal. Not found are a value
//! that was compressed, encrypted, reversed, wrapped over lines, or encoded twice.

use super::Secret;
use super::encode::{Unit, blocks, escaped, plain};
use serde_json::Value;

pub const REDACTED: &str = "[redacted]";
/// Shorter values would blot out innocent text, so nothing shorter can be kept secret.
pub const SECRET_BYTES_MIN: usize = 6;

/// Knows the secrets that one piece of work may have met.
#[derive(Clone, Default)]
pub struct Redactor {
    values: Vec<Vec<u8>>,
    blocks: Vec<Vec<u8>>,
    /// Bytes that a secret can begin with.
    starts: Vec<u8>,
}

enum Found {
    To(usize),
    /// The text ends before it is certain.
    Open,
    No,
}

impl Redactor {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let long = |secret: &&Secret| secret.expose().len() >= SECRET_BYTES_MIN;
        let values = secrets.into_iter().filter(long).map(|secret| secret.expose().as_bytes().to_vec()).collect();
        Self::of(values)
    }

    /// One that knows what each of these knows.
    pub fn union<'a>(all: impl IntoIterator<Item = &'a Redactor>) -> Self {
        Self::of(all.into_iter().flat_map(|one| one.values.iter().cloned()).collect())
    }

    /// Whether it knows all that the other one knows.
    pub fn covers(&self, other: &Redactor) -> bool {
        other.values.iter().all(|value| self.values.contains(value))
    }

    fn of(mut values: Vec<Vec<u8>>) -> Self {
        values.sort();
        values.dedup();
        let blocks: Vec<_> = values.iter().flat_map(|value| blocks(value)).collect();
        let starts = values.iter().chain(&blocks).filter_map(|form| form.first().copied()).chain(*b"%\\&+").collect();
        Self { values, blocks, starts }
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The most bytes that a secret can take up in a text.
    pub fn reach(&self) -> usize {
        // As `\u0041`, which is the longest writing of a byte.
        self.values.iter().map(|value| value.len() * 6).max().unwrap_or_default()
    }

    /// Blots out every secret.
    pub fn text(&self, text: &mut String) {
        let (mut clean, mut from, mut at) = (String::new(), 0, 0);
        while at < text.len() && !self.is_empty() {
            match self.at(text.as_bytes(), at) {
                Found::To(end) if text.is_char_boundary(at) && text.is_char_boundary(end) => {
                    clean.push_str(&text[from..at]);
                    clean.push_str(REDACTED);
                    (from, at) = (end, end);
                }
                _ => at += 1,
            }
        }
        if from > 0 {
            clean.push_str(&text[from..]);
            *text = clean;
        }
    }

    /// The same in every text of a JSON value, its names included.
    pub fn json(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => {
                for (mut name, mut item) in std::mem::take(fields) {
                    self.text(&mut name);
                    self.json(&mut item);
                    fields.insert(name, item);
                }
            }
            Value::Number(number) => {
                let mut text = number.to_string();
                self.text(&mut text);
                if text.contains(REDACTED) {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Where a secret may begin that the text is too short to show: what comes next must be joined to
    /// it before it is said. The text's length if there is none.
    pub fn open_end(&self, text: &[u8]) -> usize {
        (0..text.len()).find(|at| matches!(self.at(text, *at), Found::Open)).unwrap_or(text.len())
    }

    /// The longest of all that begin here.
    fn at(&self, text: &[u8], at: usize) -> Found {
        let rest = &text[at..];
        if rest.first().is_none_or(|first| !self.starts.contains(first)) {
            return Found::No;
        }
        let escapes: [fn(&[u8], u8) -> Unit; 2] = [
            |text, byte| either(escaped(text, byte), || plain(text, byte)),
            |text, byte| either(plain(text, byte), || escaped(text, byte)),
        ];
        let values = self.values.iter().flat_map(|value| escapes.map(|unit| walk(rest, value, unit)));
        let blocks = self.blocks.iter().map(|block| walk(rest, block, plain));
        values.chain(blocks).fold(Found::No, |best, found| match (best, found) {
            (Found::To(end), Found::To(length)) => Found::To(end.max(at + length)),
            (Found::To(end), _) => Found::To(end),
            (_, Found::To(length)) => Found::To(at + length),
            (Found::Open, _) | (_, Found::Open) => Found::Open,
            (Found::No, Found::No) => Found::No,
        })
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({})", self.values.len())
    }
}

fn either(first: Unit, other: impl FnOnce() -> Unit) -> Unit {
    match (first, other()) {
        (Unit::Is(length), _) | (Unit::No, Unit::Is(length)) => Unit::Is(length),
        (Unit::Ends, Unit::Is(length)) => Unit::Is(length),
        (Unit::Ends, _) | (_, Unit::Ends) => Unit::Ends,
        (Unit::No, Unit::No) => Unit::No,
    }
}

fn walk(text: &[u8], value: &[u8], unit: impl Fn(&[u8], u8) -> Unit) -> Found {
    let mut at = 0;
    for byte in value {
        match unit(&text[at..], *byte) {
            Unit::Is(length) => at += length,
            Unit::Ends => return Found::Open,
            Unit::No => return Found::No,
        }
    }
    Found::To(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn redactor(values: &[&str]) -> Redactor {
        let secrets: Vec<_> = values.iter().filter_map(|value| Secret::exact(*value)).collect();
        Redactor::new(&secrets)
    }

    fn clean(redactor: &Redactor, text: &str) -> String {
        let mut text = text.to_owned();
        redactor.text(&mut text);
        text
    }

    fn base64(bytes: &[u8]) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let group = |chunk: &[u8]| {
            let n = (0..3).fold(0u32, |n, i| n << 8 | u32::from(*chunk.get(i).unwrap_or(&0)));
            let text: String =
                (0..=chunk.len()).map(|i| char::from(ALPHABET[(n >> (18 - 6 * i) & 63) as usize])).collect();
            format!("{text:=<4}")
        };
        bytes.chunks(3).map(group).collect()
    }

    #[test]
    fn a_value_is_found_in_every_writing_that_is_promised() {
        let redactor = redactor(&["p\"ss w&rd/é+1"]);
        for text in [
            "p\"ss w&rd/é+1",
            "p%22ss%20w%26rd%2F%C3%A9%2B1",
            "p%22ss+w%26rd%2f%c3%a9%2b1",
            "p\\\"ss w&rd\\/é+1",
            "p&quot;ss w&amp;rd/é+1",
            "p\\u0022ss\\u0020w&rd/é+1",
            "7022737320772672642fc3a92b31",
            "7022737320772672642FC3A92B31",
        ] {
            assert_eq!(clean(&redactor, &format!("x={text}, é")), "x=[redacted], é", "{text}");
        }
        assert_eq!(clean(&redactor, "p\"ss w&rd/é+2"), "p\"ss w&rd/é+2");
        assert_eq!(format!("{redactor:?}"), "Redactor(1)");
    }

    #[test]
    fn basic_authentication_is_found_whatever_the_user_is_called() {
        let redactor = redactor(&["s3cr3t-value"]);
        for user in ["", "a", "ab", "abc", "someone"] {
            let header = base64(format!("{user}:s3cr3t-value").as_bytes());
            let shown = clean(&redactor, &header);
            assert!(shown.contains(REDACTED), "{shown}");
            assert!(shown.len() - REDACTED.len() <= base64(format!("{user}:").as_bytes()).len() + 4, "{shown}");
        }
    }

    #[test]
    fn json_is_cleaned_to_its_names_and_numbers() {
        let mut value = json!({"a": ["x 7654321"], "7654321": 17654321, "b": {"c": null, "d": true}});
        redactor(&["7654321"]).json(&mut value);
        assert_eq!(value, json!({"a": ["x [redacted]"], "[redacted]": "1[redacted]", "b": {"c": null, "d": true}}));
    }

    #[test]
    fn what_may_go_on_as_a_secret_is_held_back() {
        let redactor = redactor(&["hunter2-x"]);
        assert_eq!(redactor.open_end(b"I saw hunter2"), 6);
        assert_eq!(redactor.open_end(b"I saw hunter%4"), 14);
        assert_eq!(redactor.open_end(b"I saw %68unter%32%2"), 6);
        assert_eq!(redactor.open_end(b"I saw hunter3"), 13);
        assert_eq!(Redactor::default().open_end(b"hunter2"), 7);
    }

    #[test]
    fn a_short_value_blots_out_nothing() {
        assert!(redactor(&["12345"]).is_empty());
        assert_eq!(clean(&redactor(&["12345"]), "12345"), "12345");
    }

    proptest! {
        #[test]
        fn no_text_holds_the_value_afterwards(value in "[ -~é]{6,20}", before in ".{0,9}", after in ".{0,9}") {
            let shown = clean(&redactor(&[&value]), &format!("{before}{value}{after}"));
            prop_assert!(!shown.contains(&value) || REDACTED.contains(&value));
            let inside = base64(format!("{before}{value}{after}").as_bytes());
            prop_assert!(clean(&redactor(&[&value]), &inside).contains(REDACTED));
        }
    }
}
