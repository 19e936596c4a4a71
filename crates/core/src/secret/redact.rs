//! Blots secrets out of text.
//!
//! Found are a value as it is, with any of its characters escaped as in URLs, forms, JSON or HTML, in
//! base 64 (both alphabets, also inside a longer encoded text) and in hexadecimal. Not found are a value
//! that was compressed, encrypted, reversed, wrapped over lines, or encoded twice.

use super::Secret;
use super::encode::{ESCAPE_BYTES_MAX, blocks};
use super::forms::{Forms, Found};
use serde_json::Value;
use std::sync::Arc;

pub const REDACTED: &str = "[redacted]";
/// Shorter values would blot out innocent text, so nothing shorter can be kept secret.
pub const SECRET_BYTES_MIN: usize = 6;

/// Knows the secrets that one piece of work may have met. What it costs to look through a text hardly grows with how
/// many they are.
#[derive(Clone, Default)]
pub struct Redactor {
    values: Forms,
    /// What stands in a text that holds one in another base.
    blocks: Forms,
    reach: usize,
}

impl Redactor {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let long = |secret: &&Secret| secret.expose().len() >= SECRET_BYTES_MIN;
        let values: Vec<Arc<[u8]>> =
            secrets.into_iter().filter(long).map(|secret| secret.expose().as_bytes().into()).collect();
        let blocks = values.iter().flat_map(|value| blocks(value)).map(Arc::from).collect();
        Self::of(values, blocks)
    }

    /// One that knows what each of these knows.
    pub fn union<'a>(all: impl IntoIterator<Item = &'a Redactor>) -> Self {
        let (mut values, mut blocks) = (Vec::new(), Vec::new());
        for one in all {
            values.extend_from_slice(one.values.list());
            blocks.extend_from_slice(one.blocks.list());
        }
        Self::of(values, blocks)
    }

    /// Whether it knows all that the other one knows.
    pub fn covers(&self, other: &Redactor) -> bool {
        other.values.list().iter().all(|value| self.values.has(value))
    }

    fn of(values: Vec<Arc<[u8]>>, blocks: Vec<Arc<[u8]>>) -> Self {
        let reach = values.iter().map(|value| value.len() * ESCAPE_BYTES_MAX).max().unwrap_or_default();
        Self { values: Forms::new(values), blocks: Forms::new(blocks), reach }
    }

    /// How many secrets it knows.
    pub fn len(&self) -> usize {
        self.values.list().len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.list().is_empty()
    }

    /// The most bytes that a secret can take up in a text.
    pub fn reach(&self) -> usize {
        self.reach
    }

    /// Blots out every secret.
    pub fn text(&self, text: &mut String) {
        if let Some(clean) = self.clean(text, 0) {
            *text = clean;
        }
    }

    /// What is left from there on, as it is when the whole text is looked through: a secret that begins before is
    /// blotted out as well. Where the text was cut at its beginning, its first [`Redactor::reach`] bytes are not to be
    /// shown, since they may begin with the end of a secret.
    pub fn tail(&self, text: &str, from: usize) -> String {
        let from = text.ceil_char_boundary(from);
        self.clean(text, from).unwrap_or_else(|| text[from..].to_owned())
    }

    /// `None`: it has nothing to hide.
    fn clean(&self, text: &str, shown: usize) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let (mut clean, mut from, mut at) = (String::new(), shown, 0);
        let mut found = false;
        while at < text.len() {
            match self.at(text.as_bytes(), at) {
                Found::To(end) if text.is_char_boundary(at) && text.is_char_boundary(end) => {
                    if end > shown {
                        clean.push_str(&text[from..at.max(from)]);
                        clean.push_str(REDACTED);
                        (from, found) = (end, true);
                    }
                    at = end;
                }
                _ => at += 1,
            }
        }
        if found {
            clean.push_str(&text[from..]);
        }
        found.then_some(clean)
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
        let first = text.len().saturating_sub(self.reach);
        (first..text.len()).find(|at| matches!(self.at(text, *at), Found::Open)).unwrap_or(text.len())
    }

    /// The longest of all that begin here.
    fn at(&self, text: &[u8], at: usize) -> Found {
        let rest = &text[at..];
        match self.values.in_any_writing(rest).or(self.blocks.plainly(rest)) {
            Found::To(length) => Found::To(at + length),
            found => found,
        }
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({})", self.len())
    }
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
    fn the_end_of_a_text_that_was_cut_does_not_begin_with_the_end_of_a_secret() {
        let redactor = redactor(&["hunter2-hunter2-hunter2"]);
        let cut = "er2-hunter2 and hunter2-hunter2-hunter2, hunter2-hunter2-hunter2!";
        assert_eq!(redactor.tail(cut, 14), "d [redacted], [redacted]!");
        assert_eq!(redactor.tail(cut, 20), "[redacted], [redacted]!");
        assert_eq!(redactor.tail(cut, cut.len() - 1), "!");
        assert_eq!(redactor.tail("é and more", 1), " and more");
    }

    #[test]
    fn many_secrets_cost_hardly_more_than_one() {
        use super::super::forms::STEPS;
        let value = |n: u32| format!("{:08x}-secret-{n}", n.wrapping_mul(2_654_435_761));
        let values: Vec<_> = (0..8_192).map(value).collect();
        let known = redactor(&values.iter().map(String::as_str).collect::<Vec<_>>());
        let text = (0..2_000).map(|n| format!("line {n:08x}: \"%41&amp;\\n+\" {:x}\n", n * n * 79)).collect::<String>();
        STEPS.set(0);
        assert_eq!(clean(&known, &text), text);
        assert!(STEPS.get() < text.len() * 3, "{} steps for {} bytes", STEPS.get(), text.len());
        assert_eq!(clean(&known, &format!("<{}>", values[5_000])), "<[redacted]>");
        assert!(known.covers(&redactor(&[&values[17]])) && !known.covers(&redactor(&["another"])));
        let more = Redactor::union([&known, &redactor(&["another", &values[17]])]);
        assert_eq!(more.len(), values.len() + 1);
        assert_eq!(
            clean(&more, &format!("{} {}", base64(values[9].as_bytes()), "another")).matches(REDACTED).count(),
            2
        );
    }

    /// How it was said before there was an index: each value walked in both ways, and each block.
    fn one_by_one(values: &[Vec<u8>], text: &[u8]) -> Found {
        use super::super::encode::{Unit, escaped, plain};
        fn either(first: Unit, other: Unit) -> Unit {
            match (first, other) {
                (Unit::Is(length), _) | (Unit::No | Unit::Ends, Unit::Is(length)) => Unit::Is(length),
                (Unit::Ends, _) | (_, Unit::Ends) => Unit::Ends,
                (Unit::No, Unit::No) => Unit::No,
            }
        }
        let walk = |value: &[u8], unit: &dyn Fn(&[u8], u8) -> Unit| {
            let mut at = 0;
            for byte in value {
                match unit(&text[at..], *byte) {
                    Unit::Is(length) => at += length,
                    Unit::Ends => return Found::Open,
                    Unit::No => return Found::No,
                }
            }
            Found::To(at)
        };
        let mut best = Found::No;
        for value in values {
            best = best.or(walk(value, &|text, byte| either(escaped(text, byte), plain(text, byte))));
            best = best.or(walk(value, &|text, byte| either(plain(text, byte), escaped(text, byte))));
            for block in blocks(value) {
                best = best.or(walk(&block, &plain));
            }
        }
        best
    }

    #[test]
    fn a_short_value_blots_out_nothing() {
        assert!(redactor(&["12345"]).is_empty());
        assert_eq!(clean(&redactor(&["12345"]), "12345"), "12345");
    }

    proptest! {
        #[test]
        fn the_index_finds_what_looking_for_one_after_the_other_finds(
            values in prop::collection::vec("[an%+ \\\\&\"é\n]{6,8}", 1..6),
            text in "(a|n|%|\\+| |\\\\|&|\"|é|\n|%61|%25|%2|\\\\n|\\\\N|\\\\u006e|\\\\u00|&amp;|&quot|&#38;|%c3%a9|616e){0,30}",
            put in any::<prop::sample::Index>(),
        ) {
            let bytes: Vec<_> = values.iter().map(|value| value.as_bytes().to_vec()).collect();
            let known = redactor(&values.iter().map(String::as_str).collect::<Vec<_>>());
            let text = format!("{text}{}{text}", put.get(&values));
            for at in 0..=text.len() {
                let rest = &text.as_bytes()[at..];
                let expected = match one_by_one(&bytes, rest) {
                    Found::To(length) => Found::To(at + length),
                    found => found,
                };
                if !rest.is_empty() {
                    prop_assert_eq!(known.at(text.as_bytes(), at), expected, "{:?} at {}", text, at);
                }
            }
        }

        #[test]
        fn no_text_holds_the_value_afterwards(value in "[ -~é]{6,20}", before in ".{0,9}", after in ".{0,9}") {
            let shown = clean(&redactor(&[&value]), &format!("{before}{value}{after}"));
            prop_assert!(!shown.contains(&value) || REDACTED.contains(&value));
            let inside = base64(format!("{before}{value}{after}").as_bytes());
            prop_assert!(clean(&redactor(&[&value]), &inside).contains(REDACTED));
        }
    }
}
