//! A value that is shown to nobody by accident: no `Display`, no `Serialize`, a `Debug` without it.

use serde::{Deserialize, Deserializer};

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// `None` for nothing but blanks: an unset variable often arrives as an empty one.
    pub fn new(value: impl Into<String>) -> Option<Self> {
        let value = value.into().trim().to_owned();
        (!value.is_empty()).then_some(Self(value))
    }

    /// The value itself, for the one place that connects or compares with it.
    pub fn expose(&self) -> &str {
        &self.0
    }
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
    }

    #[test]
    fn a_blank_value_is_no_secret() {
        assert_eq!(Secret::new(" \n"), None);
        assert!(serde_json::from_str::<Secret>("\"\"").unwrap_err().to_string().contains("is empty"));
    }
}
