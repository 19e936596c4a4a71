//! A value that is shown to nobody by accident: no `Display`, no `Serialize`, a `Debug` without it;
//! and how to blot it out of what others say.

mod encode;
mod forms;
mod redact;

pub use redact::{REDACTED, Redactor, SECRET_BYTES_MIN};

use serde::{Deserialize, Deserializer};

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Without the blanks around it. `None` for nothing but blanks: an unset variable often arrives as
    /// an empty one.
    pub fn new(value: impl Into<String>) -> Option<Self> {
        Self::exact(value.into().trim())
    }

    /// As it is: a password may end in a blank. `None` for nothing at all.
    pub fn exact(value: impl Into<String>) -> Option<Self> {
        let value = value.into();
        (!value.is_empty()).then_some(Self(value))
    }

    /// The value itself, for the one place that connects or compares with it, or sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// What a header or a variable must keep secret if it holds a credential, by its name: all of its value,
/// and what follows a scheme such as `Bearer`.
pub fn credential(name: &str, value: &str) -> Vec<Secret> {
    const WORDS: [&str; 7] = ["authorization", "cookie", "credential", "key", "password", "secret", "token"];
    let name = name.to_ascii_lowercase();
    if !WORDS.iter().any(|word| name.contains(word)) {
        return Vec::new();
    }
    let whole = Secret::new(value);
    let last = value.trim().rsplit(' ').next().and_then(Secret::new).filter(|last| Some(last) != whole.as_ref());
    whole.into_iter().chain(last).collect()
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(text).ok_or_else(|| serde::de::Error::custom("is empty; give a value or leave it out"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_its_value() {
        let secret = Secret::new(" postgres://user:hunter2@host/db\n").unwrap();
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "[secret] Some([secret])");
        assert_eq!(secret.expose(), "postgres://user:hunter2@host/db");
        assert_eq!(Secret::exact(" x ").unwrap().expose(), " x ");
    }

    #[test]
    fn a_header_that_holds_a_credential_is_known_by_its_name() {
        let shown = |name, value| credential(name, value).iter().map(|s| s.expose().to_owned()).collect::<Vec<_>>();
        assert_eq!(shown("Authorization", "Bearer abcdefg"), ["Bearer abcdefg", "abcdefg"]);
        assert_eq!(shown("x-api-key", "abcdefg"), ["abcdefg"]);
        assert!(shown("accept", "application/json").is_empty());
    }

    #[test]
    fn a_blank_value_is_no_secret() {
        assert_eq!(Secret::new(" \n"), None);
        assert_eq!(Secret::exact(""), None);
        assert!(serde_json::from_str::<Secret>("\"\"").unwrap_err().to_string().contains("is empty"));
    }
}
