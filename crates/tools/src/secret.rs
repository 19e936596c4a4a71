//! Secrets: specs hold references, values live only in the process that makes the call.
//!
//! `secret://env/NAME` is a variable that the operator allows, `secret://NAME` one that is called
//! `INSTAR_SECRET_NAME`, `secret://file/NAME` a file of the folder that the operator gave,
//! `secret://account/FIELD` a field of the account that the calling agent holds.

use instar_core::secret::Secret;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const SCHEME: &str = "secret://";
const ACCOUNT: &str = "account/";
const USERNAME: &str = "username";

type LookUp = dyn Fn(&str) -> Option<Secret> + Send + Sync;

/// Looks a secret up by what follows `secret://`, unless it is an account's.
#[derive(Clone)]
pub struct Secrets(Arc<LookUp>);

impl Secrets {
    pub fn new(look_up: impl Fn(&str) -> Option<Secret> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// What a text stands for that is nothing but a reference, and not an account's.
    pub fn resolve(&self, reference: &str) -> Option<Secret> {
        match references(reference).ok()?.as_slice() {
            [only] if only.start == 0 && only.end() == reference.len() && !only.is_accounts() => (self.0)(only.name),
            _ => None,
        }
    }

    pub fn none() -> Self {
        Self::new(|_| None)
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

/// The account that the calling agent holds.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// No secret, and not treated as one.
    pub username: Option<String>,
    pub fields: BTreeMap<String, Secret>,
}

/// What one call may look up, and what it has.
pub(crate) struct Purse<'a> {
    pub secrets: &'a Secrets,
    pub account: Option<&'a Account>,
    pub used: Vec<Secret>,
}

impl Purse<'_> {
    /// The value with every reference replaced, each passed through `write`. The error is the reference
    /// that leads nowhere.
    pub(crate) fn fill(&mut self, value: &str, write: fn(&str) -> String) -> Result<String, String> {
        let (mut filled, mut from) = (String::new(), 0);
        for reference in references(value).unwrap_or_default() {
            filled.push_str(&value[from..reference.start]);
            filled.push_str(&write(&self.find(reference.name)?));
            from = reference.end();
        }
        filled.push_str(&value[from..]);
        Ok(filled)
    }

    fn find(&mut self, name: &str) -> Result<String, String> {
        let field = name.strip_prefix(ACCOUNT);
        if let (Some(USERNAME), Some(Account { username: Some(username), .. })) = (field, self.account) {
            return Ok(username.clone());
        }
        let secret = match field {
            Some(field) => self.account.and_then(|account| account.fields.get(field).cloned()),
            None => (self.secrets.0)(name),
        };
        let secret = secret.ok_or_else(|| name.to_owned())?;
        let value = secret.expose().to_owned();
        self.used.push(secret);
        Ok(value)
    }
}

/// A reference inside a value.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    pub start: usize,
    pub name: &'a str,
}

impl Reference<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + SCHEME.len() + self.name.len()
    }

    pub(crate) fn is_accounts(&self) -> bool {
        self.name.starts_with(ACCOUNT)
    }
}

/// All references in a value, such as the one in `Bearer secret://billing`.
pub(crate) fn references(value: &str) -> Result<Vec<Reference<'_>>, &'static str> {
    let wrong =
        "secret:// must be followed by a name, env/NAME, file/NAME or account/FIELD, of letters, digits, _, - and .";
    let plain = |text: &str| text.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"_-.".contains(b)).count();
    let mut found = Vec::new();
    for (start, _) in value.match_indices(SCHEME) {
        let rest = &value[start + SCHEME.len()..];
        let place =
            ["env/", "file/", ACCOUNT].iter().find(|place| rest.starts_with(**place)).map_or(0, |place| place.len());
        let length = plain(&rest[place..]);
        // What goes on like a path was meant as one.
        if length == 0 || (place == 0 && rest[length..].starts_with('/')) {
            return Err(wrong);
        }
        found.push(Reference { start, name: &rest[..place + length] });
    }
    Ok(found)
}

/// The account's field that a text names, if it is nothing but such a reference.
pub(crate) fn is_account_reference(text: &str) -> bool {
    let found = references(text).unwrap_or_default();
    matches!(found.as_slice(), [only] if only.start == 0 && only.end() == text.len() && only.is_accounts())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(value: &str) -> Result<String, String> {
        let known = ["billing", "env/TOKEN"];
        let secrets = Secrets::new(move |name| known.contains(&name).then(|| Secret::new("s3cr3t-value"))?);
        let fields = [("password".to_owned(), Secret::exact("p w").unwrap())].into();
        let account = Account { username: Some("ada".to_owned()), fields };
        let mut purse = Purse { secrets: &secrets, account: Some(&account), used: Vec::new() };
        let filled = purse.fill(value, str::to_owned);
        assert!(!format!("{secrets:?} {account:?} {:?}", purse.used).contains("s3cr3t"));
        filled
    }

    #[test]
    fn references_are_replaced_wherever_they_stand() {
        assert_eq!(fill("Bearer secret://billing").unwrap(), "Bearer s3cr3t-value");
        assert_eq!(fill("?a=secret://env/TOKEN&b=1").unwrap(), "?a=s3cr3t-value&b=1");
        assert_eq!(fill("secret://account/username:secret://account/password").unwrap(), "ada:p w");
        assert_eq!(fill("plain").unwrap(), "plain");
        for name in ["other", "env/OTHER", "account/other"] {
            assert_eq!(fill(&format!("secret://{name}")).unwrap_err(), name);
        }
    }

    #[test]
    fn a_reference_without_a_plain_name_is_refused() {
        for value in ["secret://", "secret:// a", "secret://a/../b", "secret://env/", "x secret://account/é"] {
            assert!(references(value).is_err(), "{value}");
        }
    }

    #[test]
    fn only_a_whole_text_is_an_accounts_reference() {
        assert!(is_account_reference("secret://account/password"));
        for text in ["secret://billing", "secret://env/X", "x secret://account/password", "secret://account/a b", ""] {
            assert!(!is_account_reference(text), "{text}");
        }
    }
}
