//! What can be set on a bus, with defaults and limits.
//!
//! Must not know: where settings come from.

use std::path::PathBuf;
use std::time::Duration;

use crate::topology::StreamLimits;

/// Settings that hold for both implementations.
#[derive(Debug, Clone)]
pub struct Options {
    /// The largest message. The server's own limit (1 MiB by default) holds as well.
    pub payload_bytes_max: usize,
    /// Messages handed over with `publish_soon` that may wait; more are refused at once.
    pub queue_max: usize,
    /// Messages sent and not yet acknowledged by the server.
    pub in_flight_max: usize,
    /// How long a publish may wait for a connection, and then again for its receipt.
    pub publish_within: Duration,
    /// Live messages that may wait for one listener; the oldest go first.
    pub mailbox_max: usize,
    pub streams: StreamLimits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            payload_bytes_max: 512 * 1024,
            queue_max: 16 * 1024,
            in_flight_max: 1024,
            publish_within: Duration::from_secs(5),
            mailbox_max: 1024,
            streams: StreamLimits::default(),
        }
    }
}

/// How to reach a NATS server. With certificates the process must have installed a default rustls
/// provider first.
#[derive(Clone)]
pub struct Connection {
    /// One or several, separated by commas. May hold user and password.
    pub url: String,
    /// How long a server may take to appear at start; after that it is gone on without, until there is one.
    pub within: Duration,
    /// Shown in the server's connection list.
    pub name: String,
    pub credentials_file: Option<PathBuf>,
    pub root_certificate_file: Option<PathBuf>,
    /// Client certificate and its key.
    pub certificate_files: Option<(PathBuf, PathBuf)>,
}

impl Connection {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            within: Duration::from_secs(2),
            name: "instar".into(),
            credentials_file: None,
            root_certificate_file: None,
            certificate_files: None,
        }
    }

    /// User and password, or a token, of the first address that has any.
    pub(crate) fn login(&self) -> Option<(String, Option<String>)> {
        let own = |url: &str| {
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            let (login, _) = rest.rsplit_once('@')?;
            let (user, password) = login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word)));
            Some((decoded(user), password.map(decoded)))
        };
        self.url.split(',').find_map(|url| own(url.trim()))
    }

    /// The addresses without user and password, for messages and logs.
    pub(crate) fn shown(&self) -> String {
        let shown = |url: &str| match url.split_once("://") {
            Some((scheme, rest)) => {
                format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
            }
            None => url.rsplit_once('@').map_or(url, |(_, host)| host).to_owned(),
        };
        self.url.split(',').map(|url| shown(url.trim())).collect::<Vec<_>>().join(",")
    }
}

/// A part of a URL as it was before it was put there; what is no escape stands for itself.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.shown()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_address_is_never_shown() {
        let connection = Connection::new("nats://user:p@ss@one:4222, token@two:4222,three");
        assert_eq!(connection.shown(), "nats://one:4222,two:4222,three");
        assert!(!format!("{connection:?}").contains("ss@"));
        assert_eq!(connection.login(), Some(("user".into(), Some("p@ss".into()))));
    }

    #[test]
    fn a_login_is_read_from_the_address_as_it_was_meant() {
        let login = |url: &str| Connection::new(url).login();
        assert_eq!(login("nats://host:4222"), None);
        assert_eq!(login("nats://one,nats://t0k3n@two"), Some(("t0k3n".into(), None)));
        assert_eq!(login("tls://a%40b:p%3Ass%2F@host"), Some(("a@b".into(), Some("p:ss/".into()))));
        assert_eq!(login("nats://me:100%@host"), Some(("me".into(), Some("100%".into()))));
    }
}
