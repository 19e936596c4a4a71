//! Puts secrets where a tool's spec has references to them, at the moment of the call.
//!
//! What it makes is never stored and never printed. References in what the model wrote are left as they
//! are, except where the spec allows them: else any tool that repeats its arguments would tell secrets.

use crate::outcome::{Failure, code};
use crate::runner::Invocation;
use crate::secret::{Purse, Secrets, is_account_reference};
use crate::spec::{Kind, Spec};
use instar_core::secret::{Redactor, SECRET_BYTES_MIN, credential};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use std::str::FromStr;
use std::sync::Arc;

/// A call with its secrets in it.
#[derive(Default)]
pub(crate) struct Charged {
    pub url: String,
    pub headers: HeaderMap,
    /// The model's, and what the spec adds to them.
    pub arguments: Value,
    pub environment: Vec<(String, String)>,
    pub redactor: Arc<Redactor>,
}

pub(crate) fn charge(secrets: &Secrets, call: &Invocation) -> Result<Charged, Failure> {
    let spec = call.tool.spec();
    let mut purse = Purse { secrets, account: call.account.as_ref(), used: Vec::new() };
    let mut charged = Charged { arguments: call.arguments.clone(), ..Charged::default() };
    for name in &spec.secret_arguments {
        if let Some(Value::String(text)) = charged.arguments.get_mut(name)
            && is_account_reference(text)
        {
            *text = fill(&mut purse, text, str::to_owned, &format!("argument {name}"))?;
        }
    }
    match spec.kind {
        Kind::Http => http(spec, &mut purse, &mut charged)?,
        Kind::Command => command(spec, &mut purse, &mut charged)?,
        _ => {}
    }
    charged.redactor = Arc::new(Redactor::new(&purse.used));
    Ok(charged)
}

fn http(spec: &Spec, purse: &mut Purse<'_>, charged: &mut Charged) -> Result<(), Failure> {
    charged.url = fill(purse, spec.url.as_deref().unwrap_or_default(), percent, "url")?;
    for (name, text) in &spec.headers {
        let value = fill(purse, text, str::to_owned, &format!("header {name}"))?;
        let written = if value == *text { credential(name, text) } else { Vec::new() };
        let sensitive = value != *text || !written.is_empty();
        purse.used.extend(written);
        // A secret's value is nobody's to see, so the error does not hold it.
        let bad = |words: &str| Failure::new(code::SECRET_MISSING, format!("header {name} {words}"));
        let mut value = HeaderValue::from_str(&value).map_err(|_| bad("has a value that cannot be sent"))?;
        value.set_sensitive(sensitive);
        charged.headers.insert(HeaderName::from_str(name).map_err(|_| bad("is not a header name"))?, value);
    }
    for (name, text) in &spec.body {
        let value = fill(purse, text, str::to_owned, &format!("body.{name}"))?;
        if let Some(fields) = charged.arguments.as_object_mut() {
            fields.insert(name.clone(), Value::String(value));
        }
    }
    Ok(())
}

fn command(spec: &Spec, purse: &mut Purse<'_>, charged: &mut Charged) -> Result<(), Failure> {
    for name in &spec.env {
        if let Ok(value) = std::env::var(name) {
            purse.used.extend(credential(name, &value));
        }
    }
    for (name, text) in &spec.environment {
        let value = fill(purse, text, str::to_owned, &format!("environment.{name}"))?;
        if value.contains('\0') {
            let words = format!("environment.{name} has a value that no variable can hold");
            return Err(Failure::new(code::SECRET_MISSING, words));
        }
        charged.environment.push((name.clone(), value));
    }
    Ok(())
}

pub(crate) fn fill(
    purse: &mut Purse<'_>,
    text: &str,
    write: fn(&str) -> String,
    place: &str,
) -> Result<String, Failure> {
    let before = purse.used.len();
    let filled = purse.fill(text, write).map_err(|missing| {
        Failure::new(code::SECRET_MISSING, format!("the secret {missing} of {place} is not there"))
    })?;
    if purse.used[before..].iter().any(|secret| secret.expose().len() < SECRET_BYTES_MIN) {
        let words =
            format!("a secret of {place} is shorter than {SECRET_BYTES_MIN} bytes: it could not be kept secret");
        return Err(Failure::new(code::SECRET_MISSING, words));
    }
    Ok(filled)
}

/// As a part of a URL, whatever part.
pub(crate) fn percent(text: &str) -> String {
    let one = |b: u8| match b {
        b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
        _ if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    text.bytes().map(one).collect()
}
