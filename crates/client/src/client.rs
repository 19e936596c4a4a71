//! The client: where the server is, and who asks.

use crate::error::{ClientError, reason};
use crate::retry::Retry;
use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use std::time::Duration;

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A handle on one server; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    server: Url,
    key: Option<HeaderValue>,
    pub(crate) retry: Retry,
    pub(crate) keyed: bool,
    /// Given by the caller, for one action.
    pub(crate) idempotency_key: Option<String>,
}

impl Client {
    /// `server` such as `http://127.0.0.1:7700`, also with a path in front of `/v1`.
    pub fn new(server: &str, key: Option<&str>) -> Result<Client, ClientError> {
        // The HTTP client has no TLS provider of its own. One may be there already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let bad = || ClientError::Protocol(format!("{server:?} is no server: give http(s)://host:port"));
        let url = Url::parse(server).map_err(|_| bad())?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad());
        }
        let bearer = |key: &str| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.trim())).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        let key = match key {
            Some(key) => Some(
                bearer(key).ok_or_else(|| ClientError::Protocol("the key holds characters that no key has".into()))?,
            ),
            None => None,
        };
        let http = reqwest::Client::builder().connect_timeout(CONNECT_WITHIN).no_proxy_for_loopback(&url).build();
        let http = http.map_err(|error| ClientError::Protocol(format!("no HTTP client: {}", reason(&error))))?;
        Ok(Client { http, server: url, key, retry: Retry::default(), keyed: true, idempotency_key: None })
    }

    pub fn with_retry(mut self, retry: Retry) -> Client {
        self.retry = retry;
        self
    }

    /// Sends no Idempotency-Key: an action whose answer is lost is then not asked for again.
    pub fn without_keys(mut self) -> Client {
        self.keyed = false;
        self
    }

    /// The Idempotency-Key of one action, however often it is asked for with this client.
    pub fn with_idempotency_key(mut self, key: impl Into<String>) -> Client {
        self.idempotency_key = Some(key.into());
        self
    }

    pub fn has_keys(&self) -> bool {
        self.keyed
    }

    /// Without user and password, for messages.
    pub fn server(&self) -> String {
        let mut shown = self.server.clone();
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        shown.as_str().trim_end_matches('/').to_owned()
    }

    /// Each segment is one, whatever characters it has.
    pub(crate) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    pub(crate) fn request(&self, method: Method, url: Url) -> reqwest::RequestBuilder {
        let request = self.http.request(method, url);
        match &self.key {
            Some(key) => request.header(reqwest::header::AUTHORIZATION, key.clone()),
            None => request,
        }
    }

    pub(crate) fn unreachable(&self, reason: impl Into<String>) -> ClientError {
        ClientError::Unreachable { server: self.server(), reason: reason.into() }
    }
}

trait Loopback {
    fn no_proxy_for_loopback(self, url: &Url) -> Self;
}

impl Loopback for reqwest::ClientBuilder {
    /// A proxy from the environment cannot reach this machine's own loopback.
    fn no_proxy_for_loopback(self, url: &Url) -> Self {
        let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if local { self.no_proxy() } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_with_slashes_stays_one_segment() {
        let client = Client::new("http://host/instar/", Some("k")).unwrap();
        let url = client.url(&["v1", "sessions", "../x?y", "pause"]);
        assert_eq!(url.as_str(), "http://host/instar/v1/sessions/..%2Fx%3Fy/pause");
        assert!(!format!("{client:?}").contains("Bearer k"));
    }

    #[test]
    fn what_is_no_server_is_refused_and_a_password_is_not_shown() {
        for bad in ["", "host:7700", "ftp://host", "http://"] {
            assert!(matches!(Client::new(bad, None), Err(ClientError::Protocol(_))), "{bad}");
        }
        let client = Client::new("http://me:secret@host:1/", None).unwrap();
        assert_eq!(client.server(), "http://host:1");
    }
}
