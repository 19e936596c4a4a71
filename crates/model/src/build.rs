//! From a configured model to an adapter.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use instar_core::secret::{self, Redactor, Secret};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};

use crate::anthropic::{self, Anthropic};
use crate::circuit::{Circuit, Gate};
use crate::config::{Kind, ModelConfig};
use crate::http::Http;
use crate::message::Dialect;
use crate::openai::{self, OpenAi};
use crate::provider::{About, Provider};
use crate::scripted::{Script, Scripted};

/// Less holds no conversation.
const CONTEXT_WINDOW_MIN: u32 = 1_024;

pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;
/// By server and by the name of what holds the key.
pub(crate) type Credentials = HashMap<(String, Option<String>), Arc<Circuit>>;

/// The adapter, or all that stands in its way.
pub(crate) fn provider(
    config: &ModelConfig,
    environment: Lookup<'_>,
    credentials: &mut Credentials,
) -> Result<Arc<dyn Provider>, Vec<String>> {
    let mut problems: Vec<String> = config.limits.problems().collect();
    if config.context_window.is_some_and(|tokens| tokens < CONTEXT_WINDOW_MIN) {
        problems.push(format!("context_window must be {CONTEXT_WINDOW_MIN} tokens or more"));
    }
    if config.name.trim().is_empty() {
        problems.push("name is empty".to_owned());
    }
    let built = match config.provider {
        Kind::Scripted => scripted(config, &mut problems),
        _ => remote(config, environment, credentials, &mut problems),
    };
    built.filter(|_| problems.is_empty()).ok_or(problems)
}

fn scripted(config: &ModelConfig, problems: &mut Vec<String>) -> Option<Arc<dyn Provider>> {
    let script = match config.script.as_deref().map(Script::read) {
        None => Script::default(),
        Some(Ok(script)) => script,
        Some(Err(problem)) => {
            problems.push(problem);
            return None;
        }
    };
    let about = about(config, config.model.as_deref().unwrap_or("scripted"), None);
    Some(Arc::new(Scripted::new(about, script, config.limits.options().retry)))
}

fn remote(
    config: &ModelConfig,
    environment: Lookup<'_>,
    credentials: &mut Credentials,
    problems: &mut Vec<String>,
) -> Option<Arc<dyn Provider>> {
    let model = config.model.clone().filter(|model| !model.trim().is_empty());
    if model.is_none() {
        problems.push("model is missing: name the provider's model".to_owned());
    }
    if config.script.is_some() {
        problems.push("script is only for provider = \"scripted\"".to_owned());
    }
    let url = match url(config) {
        Ok(url) => Some(url),
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    let local = url.as_ref().is_some_and(is_loopback);
    let key = key(config, local, environment, problems);
    let headers = headers(config, key.as_ref(), problems);
    let written = config.headers.iter().flat_map(|(name, value)| secret::credential(name, value));
    let redactor = Arc::new(Redactor::new(&key.into_iter().chain(written).collect::<Vec<_>>()));
    let client = client(config, local).map_err(|problem| problems.push(problem)).ok();
    let (url, model, client) = (url?, model?, client?);
    let about = about(config, &model, Some(&url));
    let host = url.host_str().unwrap_or_default().to_owned();
    let options = config.limits.options();
    let dialect = if config.provider == Kind::Anthropic { Dialect::Anthropic } else { Dialect::OpenAi };
    let credential = (url.origin().ascii_serialization(), config.api_key_env.clone());
    let credential = credentials.entry(credential).or_default().clone();
    let gate = Gate::new(&config.name, credential, config.limits.circuit());
    let http = Http { client, url, headers, dialect, options, gate, redactor };
    Some(match dialect {
        Dialect::Anthropic => {
            let mut profile = anthropic::Profile::new(model);
            profile.max_tokens = config.max_tokens.unwrap_or(profile.max_tokens);
            profile.extra_body = config.extra_body.clone();
            Arc::new(Anthropic { about, http, profile })
        }
        Dialect::OpenAi => {
            let mut profile = openai::Profile::new(config.provider, &host, model);
            profile.max_tokens = config.max_tokens;
            profile.extra_body = config.extra_body.clone();
            Arc::new(OpenAi { about, http, profile })
        }
    })
}

fn url(config: &ModelConfig) -> Result<Url, String> {
    let base = config.base_url.as_deref().unwrap_or(config.provider.base_url()).trim_end_matches('/');
    let full = match config.provider {
        // People write the address with and without the version.
        Kind::Anthropic => format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base)),
        _ => format!("{base}/chat/completions"),
    };
    // The address itself stays out of the message: it may hold a password.
    let url = Url::parse(&full).map_err(|error| format!("base_url is not an address: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(format!("base_url must begin with http:// or https://, not {scheme}:")),
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A server on this machine mostly wants no key, so that a missing one is not held against it.
fn key(config: &ModelConfig, local: bool, environment: Lookup<'_>, problems: &mut Vec<String>) -> Option<Secret> {
    let variable = config.api_key_env.as_deref()?;
    let key = environment(variable).and_then(Secret::new);
    if key.is_none() && !local {
        problems.push(format!("the environment variable {variable}, named by api_key_env, is not set"));
    }
    key
}

fn headers(config: &ModelConfig, key: Option<&Secret>, problems: &mut Vec<String>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let (name, prefix) = match config.provider {
        Kind::Anthropic => {
            headers.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
            ("x-api-key", "")
        }
        _ => ("authorization", "Bearer "),
    };
    match key.map(|key| sensitive(format!("{prefix}{}", key.expose()))) {
        Some(Some(value)) => drop(headers.insert(name, value)),
        Some(None) => problems.push("the key named by api_key_env holds characters that no header can".to_owned()),
        None => {}
    }
    for (name, value) in &config.headers {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(mut value)) => {
                value.set_sensitive(!secret::credential(name.as_str(), value.to_str().unwrap_or_default()).is_empty());
                headers.insert(name, value);
            }
            _ => problems.push(format!("headers: {name:?} is not a header")),
        }
    }
    headers
}

/// A header that HTTP libraries know not to print. `None` if it holds characters that no header can.
fn sensitive(value: String) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn client(config: &ModelConfig, local: bool) -> Result<Client, String> {
    // reqwest is built without a TLS provider of its own and panics where none is installed. A
    // second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let limits = &config.limits;
    let mut client = Client::builder()
        .user_agent(concat!("instar/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_millis(limits.connect_timeout_ms))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .pool_max_idle_per_host(limits.pool_idle_max)
        .pool_idle_timeout(Duration::from_millis(limits.pool_idle_timeout_ms))
        // Following one would carry the key to wherever it points.
        .redirect(reqwest::redirect::Policy::none());
    if local {
        // No proxy of the environment can reach what is only on this machine.
        client = client.no_proxy();
    }
    client.build().map_err(|error| format!("no HTTP client can be built: {error}"))
}

fn about(config: &ModelConfig, model: &str, url: Option<&Url>) -> About {
    About {
        name: config.name.clone(),
        provider: config.provider.as_str(),
        model: model.to_owned(),
        context_window: config.context_window,
        max_tokens: config.max_tokens,
        price: config.price,
        server_address: url.and_then(Url::host_str).map(str::to_owned),
        server_port: url.and_then(Url::port_or_known_default),
    }
}

#[cfg(test)]
mod tests;
