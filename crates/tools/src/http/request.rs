//! A tool that is an HTTP server.

use super::{Clients, blocked_outcome, lost, read, unanswered, verdict};
use crate::egress::{Blocked, Rule};
use crate::outcome::{Failure, Outcome, Output, code};
use crate::runner::{Flight, Invocation};
use crate::secret::{self, Secret, Secrets};
use crate::spec::Method;
use crate::tool::Origin;
use instar_core::rune::payload::ResultStatus;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use std::str::FromStr;

/// Says which attempt of a call this is.
const ATTEMPT: &str = "instar-attempt";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const TRACEPARENT: &str = "traceparent";

pub(crate) async fn call(
    clients: &Clients,
    secrets: &Secrets,
    call: &Invocation,
    flight: &Flight,
    body_max: u64,
) -> Outcome {
    let (headers, used) = match headers(call, secrets) {
        Ok(found) => found,
        Err(failure) => return Outcome::failed(ResultStatus::Error, failure),
    };
    let outcome = send(clients, call, headers, flight, body_max).await;
    scrubbed(outcome, &used)
}

async fn send(clients: &Clients, call: &Invocation, headers: HeaderMap, flight: &Flight, body_max: u64) -> Outcome {
    let spec = call.tool.spec();
    let (effect, text) = (spec.effect(), spec.url.as_deref().unwrap_or_default());
    let guarded = call.tool.origin() == Origin::Api;
    let client = match (guarded, effect.repeatable()) {
        (true, _) => &clients.guarded,
        (false, true) => &clients.kept,
        (false, false) => &clients.fresh,
    };
    let url = if guarded { clients.policy.check(text) } else { plain(text) };
    let mut url = match url {
        Ok(url) => url,
        Err(blocked) => return blocked_outcome(blocked),
    };
    let method = method(spec.method.unwrap_or_default());
    let asks = method == reqwest::Method::GET;
    if asks {
        into_query(&call.arguments, &mut url);
    }
    let mut request = client.request(method, url).headers(headers);
    if !asks {
        request = request.header(CONTENT_TYPE, "application/json").body(call.arguments.to_string());
    }
    flight.begin();
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return unanswered(error, effect, guarded),
    };
    let (status, error) = verdict(response.status(), effect);
    match read(response, spec.max_output_bytes, body_max).await {
        Ok(body) => {
            let base = Outcome { error, began: true, ..Outcome::of(status) };
            Outcome { output: body.output, truncated: body.truncated, bytes: body.bytes, digest: body.digest, ..base }
        }
        Err(error) => lost(effect, &super::chain(error)),
    }
}

/// The operator's own URL: trusted as to its host, and found well-formed when it was registered.
fn plain(text: &str) -> Result<reqwest::Url, Blocked> {
    reqwest::Url::parse(text).map_err(|_| Blocked { rule: Rule::NotAUrl })
}

fn headers(call: &Invocation, secrets: &Secrets) -> Result<(HeaderMap, Vec<Secret>), Failure> {
    let mut headers = HeaderMap::new();
    let mut used = Vec::new();
    let own = [
        (IDEMPOTENCY_KEY, Some(call.call_id.to_string())),
        (ATTEMPT, Some(call.attempt.to_string())),
        (TRACEPARENT, call.traceparent.clone()),
    ];
    for (name, value) in own {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    for (name, value) in &call.tool.spec().headers {
        let (value, secret) = secrets.resolve(value).map_err(|missing| {
            Failure::new(code::SECRET_MISSING, format!("the secret {missing} of header {name} is not there"))
        })?;
        let sensitive = secret.is_some();
        used.extend(secret);
        // A secret's value is nobody's to see, so the error does not hold it.
        let mut value = HeaderValue::from_str(&value).map_err(|_| {
            Failure::new(code::SECRET_MISSING, format!("header {name} has a value that cannot be sent"))
        })?;
        value.set_sensitive(sensitive);
        let name = HeaderName::from_str(name)
            .map_err(|_| Failure::new(code::INTERNAL, format!("{name} is not a header name")))?;
        headers.insert(name, value);
    }
    Ok((headers, used))
}

fn into_query(arguments: &Value, url: &mut reqwest::Url) {
    let Some(fields) = arguments.as_object().filter(|fields| !fields.is_empty()) else { return };
    let mut pairs = url.query_pairs_mut();
    for (name, value) in fields {
        match value {
            Value::String(text) => pairs.append_pair(name, text),
            other => pairs.append_pair(name, &other.to_string()),
        };
    }
}

const fn method(method: Method) -> reqwest::Method {
    match method {
        Method::Get => reqwest::Method::GET,
        Method::Post => reqwest::Method::POST,
        Method::Put => reqwest::Method::PUT,
        Method::Patch => reqwest::Method::PATCH,
        Method::Delete => reqwest::Method::DELETE,
    }
}

fn scrubbed(mut outcome: Outcome, used: &[Secret]) -> Outcome {
    if used.is_empty() {
        return outcome;
    }
    if let Some(error) = &mut outcome.error {
        secret::scrub(&mut error.message, used);
    }
    outcome.output = match outcome.output {
        Output::Text(mut text) => {
            secret::scrub(&mut text, used);
            Output::Text(text)
        }
        Output::Json(mut value) => {
            scrub_json(&mut value, used);
            Output::Json(value)
        }
        Output::Nothing => Output::Nothing,
    };
    outcome
}

fn scrub_json(value: &mut Value, used: &[Secret]) {
    match value {
        Value::String(text) => secret::scrub(text, used),
        Value::Array(items) => items.iter_mut().for_each(|item| scrub_json(item, used)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            for (mut name, mut item) in old {
                secret::scrub(&mut name, used);
                scrub_json(&mut item, used);
                fields.insert(name, item);
            }
        }
        _ => {}
    }
}
