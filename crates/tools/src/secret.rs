//! Secrets: specs hold references, values live only in the process that makes the call.

use std::fmt;
use std::sync::Arc;

const SCHEME: &str = "secret://";
/// Shorter values would blot out innocent text.
const SCRUB_BYTES_MIN: usize = 6;

/// A value that shows itself to nobody by accident.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

type LookUp = dyn Fn(&str) -> Option<Secret> + Send + Sync;

/// Looks a secret up by its name.
#[derive(Clone)]
pub struct Secrets(Arc<LookUp>);

impl Secrets {
    pub fn new(look_up: impl Fn(&str) -> Option<Secret> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    pub fn none() -> Self {
        Self::new(|_| None)
    }

    /// The value with its reference replaced, and the secret in it if there was one. The error is
    /// the name of a secret that is not there.
    pub(crate) fn resolve(&self, value: &str) -> Result<(String, Option<Secret>), String> {
        let Some(name) = reference(value).ok().flatten() else {
            return Ok((value.to_owned(), None));
        };
        let secret = self.0(name).ok_or_else(|| name.to_owned())?;
        let before = &value[..value.len() - name.len() - SCHEME.len()];
        Ok((format!("{before}{}", secret.expose()), Some(secret)))
    }
}

impl Default for Secrets {
    fn default() -> Self {
        Self::none()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

/// The name in a value that ends in `secret://name`, as in `Bearer secret://billing`.
pub(crate) fn reference(value: &str) -> Result<Option<&str>, &'static str> {
    let Some(place) = value.find(SCHEME) else { return Ok(None) };
    let name = &value[place + SCHEME.len()..];
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    if name.is_empty() || !name.bytes().all(plain) {
        return Err("secret:// must be followed by a name of letters, digits, _, - and ., and nothing else");
    }
    Ok(Some(name))
}

/// A tool that echoes its own credentials must not carry them into the log or to the model.
pub(crate) fn scrub(text: &mut String, secrets: &[Secret]) {
    for secret in secrets {
        if secret.expose().len() >= SCRUB_BYTES_MIN && text.contains(secret.expose()) {
            *text = text.replace(secret.expose(), "[redacted]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_replaced_and_its_value_is_never_shown() {
        let secrets = Secrets::new(|name| (name == "billing").then(|| Secret::new("s3cr3t-value")));
        let (value, used) = secrets.resolve("Bearer secret://billing").unwrap();
        assert_eq!(value, "Bearer s3cr3t-value");
        let used: Vec<_> = used.into_iter().collect();
        assert_eq!(format!("{used:?} {secrets:?}"), "[[redacted]] Secrets");
        let mut text = "you sent s3cr3t-value".to_owned();
        scrub(&mut text, &used);
        assert_eq!(text, "you sent [redacted]");
        assert_eq!(secrets.resolve("secret://other").unwrap_err(), "other");
        assert_eq!(secrets.resolve("plain").unwrap().0, "plain");
    }

    #[test]
    fn a_reference_without_a_plain_name_is_refused() {
        for value in ["secret://", "secret://a b", "secret://a/../b", "x secret://a:b"] {
            assert!(reference(value).is_err(), "{value}");
        }
    }
}
