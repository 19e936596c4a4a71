//! An API key that cannot be shown by accident.
//!
//! It has no `Display`, no `Serialize` and a `Debug` without the value; only this crate can read it,
//! to put it in a request header.

use reqwest::header::HeaderValue;

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// `None` for a value of nothing but blanks: an unset key often arrives as an empty variable.
    pub fn new(value: impl Into<String>) -> Option<Self> {
        let value = value.into().trim().to_owned();
        (!value.is_empty()).then_some(Self(value))
    }

    /// The value as a header that HTTP libraries know not to print. `None` if it holds characters
    /// that no header can.
    pub(crate) fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Providers have been seen repeating the key in their error text.
    pub(crate) fn censor(&self, text: &str) -> String {
        text.replace(&self.0, "[key]")
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret([key])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_its_value() {
        let secret = Secret::new(" sk-very-secret\n").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret([key])");
        assert_eq!(format!("{:?}", secret.header("Bearer ").unwrap()), "Sensitive");
        assert_eq!(secret.censor("bad key sk-very-secret!"), "bad key [key]!");
    }

    #[test]
    fn a_blank_value_is_no_secret() {
        assert_eq!(Secret::new(" \n"), None);
        assert!(Secret::new("two\nlines").unwrap().header("").is_none());
    }
}
