//! `http_fetch`: a GET to a URL that a model chose. Every hop is checked like the first.

use super::{Clients, blocked_outcome, lost, read, unanswered, verdict};
use crate::egress::{Blocked, Rule};
use crate::outcome::{Outcome, Output};
use crate::runner::{Flight, Invocation};
use instar_core::decide::Effect;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Response, Url};
use serde_json::json;
use std::sync::Arc;

pub(crate) async fn fetch(clients: &Clients, call: &Invocation, flight: &Flight, body_max: u64) -> Outcome {
    let text = call.arguments["url"].as_str().unwrap_or_default();
    let mut url = match clients.policy.check(text) {
        Ok(url) => url,
        Err(blocked) => return blocked_outcome(blocked),
    };
    for _ in 0..=clients.policy.redirects_max {
        flight.begin();
        let response = match clients.guarded.get(url.clone()).send().await {
            Ok(response) => response,
            Err(error) => return unanswered(error, Effect::ReadOnly, true),
        };
        // The second line, should a client ever connect past its resolver.
        if let Some(peer) = response.remote_addr()
            && let Err(blocked) = clients.policy.check_address(peer.ip())
        {
            return blocked_outcome(blocked);
        }
        let Some(next) = next_hop(&response) else {
            return answer(response, url, call, body_max).await;
        };
        // The fragment is the reader's, and a URL that cannot be joined is no URL.
        url = match next.and_then(|next| clients.policy.check_url(&next).map(|()| next)) {
            Ok(next) => next,
            Err(blocked) => return blocked_outcome(blocked).began(),
        };
    }
    blocked_outcome(Blocked { rule: Rule::Redirects }).began()
}

fn next_hop(response: &Response) -> Option<Result<Url, Blocked>> {
    let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = response.headers().get(LOCATION).filter(|_| moved)?;
    let joined = location.to_str().ok().and_then(|text| response.url().join(text).ok());
    Some(joined.ok_or(Blocked { rule: Rule::NotAUrl }))
}

async fn answer(response: Response, url: Url, call: &Invocation, body_max: u64) -> Outcome {
    let (status, error) = verdict(response.status(), Effect::ReadOnly);
    let number = response.status().as_u16();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    match read(response, call.tool.spec().max_output_bytes, body_max, Arc::default()).await {
        Ok(body) => {
            let page = json!({
                "status": number, "url": url.as_str(), "content_type": kind, "body": body.output.into_json(),
            });
            let (truncated, bytes, digest) = (body.truncated, body.bytes, body.digest);
            Outcome { output: Output::Json(page), error, truncated, bytes, digest, ..Outcome::of(status).began() }
        }
        Err(_) => lost(Effect::ReadOnly, "while reading the body"),
    }
}
