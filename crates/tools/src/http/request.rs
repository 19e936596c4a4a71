//! A tool that is an HTTP server.

use super::{Clients, blocked_outcome, lost, read, unanswered, verdict};
use crate::egress::{Blocked, Rule};
use crate::inject::Charged;
use crate::outcome::Outcome;
use crate::runner::{Flight, Invocation};
use crate::spec::Method;
use crate::tool::Origin;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// Says which attempt of a call this is.
const ATTEMPT: &str = "instar-attempt";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const TRACEPARENT: &str = "traceparent";

pub(crate) async fn call(
    clients: &Clients,
    charged: Charged,
    call: &Invocation,
    flight: &Flight,
    body_max: u64,
) -> Outcome {
    let spec = call.tool.spec();
    let (effect, redactor) = (spec.effect(), charged.redactor.clone());
    let guarded = call.tool.origin() == Origin::Api;
    let client = match (guarded, effect.repeatable()) {
        (true, _) => &clients.guarded,
        (false, true) => &clients.kept,
        (false, false) => &clients.fresh,
    };
    let url = if guarded { clients.policy.check(&charged.url) } else { plain(&charged.url) };
    let mut url = match url {
        Ok(url) => url,
        Err(blocked) => return blocked_outcome(blocked),
    };
    let method = method(spec.method.unwrap_or_default());
    let asks = method == reqwest::Method::GET;
    if asks {
        into_query(&charged.arguments, &mut url);
    }
    let mut request = client.request(method, url).headers(charged.headers).headers(own_headers(call));
    if !asks {
        request = request.header(CONTENT_TYPE, "application/json").body(charged.arguments.to_string());
    }
    flight.begin();
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => return unanswered(error, effect, guarded),
    };
    let (status, error) = verdict(response.status(), effect);
    match read(response, spec.max_output_bytes, body_max, redactor).await {
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

fn own_headers(call: &Invocation) -> HeaderMap {
    let mut headers = HeaderMap::new();
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
    headers
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
