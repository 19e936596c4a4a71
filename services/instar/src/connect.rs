//! Which server, and with which key.

use crate::cli::Global;
use crate::failure::{Failure, USAGE};
use crate::folder;
use instar_client::Client;
use std::path::Path;

pub(crate) const SERVER: &str = "http://127.0.0.1:7700";

pub(crate) fn client(global: &Global) -> Result<Client, Failure> {
    let server = global.server.as_deref().filter(|text| !text.is_empty()).unwrap_or(SERVER);
    let given = global.key.clone().filter(|key| !key.trim().is_empty());
    // Only to this machine: a key that lies around must not be sent to whoever is named.
    let key = given.or_else(|| is_loopback(server).then(|| local_key(&folder::default())).flatten());
    Client::new(server, key.as_deref()).map_err(|error| Failure::new(USAGE, error.to_string()))
}

fn local_key(folder: &Path) -> Option<String> {
    let key = std::fs::read_to_string(folder.join(folder::KEY)).ok()?.trim().to_owned();
    (!key.is_empty()).then_some(key)
}

fn is_loopback(server: &str) -> bool {
    let Some((_, rest)) = server.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for local in ["http://127.0.0.1:7700", "http://localhost", "https://[::1]:1/x", "http://127.8.8.8"] {
            assert!(is_loopback(local), "{local}");
        }
        let others = ["http://example.com", "http://localhost@example.com", "http://127.0.0.1.example.com", "nonsense"];
        for other in others {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn a_key_is_read_from_the_folder_of_dev() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(local_key(folder.path()), None);
        std::fs::write(folder.path().join(folder::KEY), "k1\n").unwrap();
        assert_eq!(local_key(folder.path()).as_deref(), Some("k1"));
    }
}
