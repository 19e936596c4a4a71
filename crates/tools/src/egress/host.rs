//! The host of a URL, and names that never lead outside.

use super::Rule;
use reqwest::Url;
use std::net::{IpAddr, Ipv6Addr};

pub(super) enum Host {
    Address(IpAddr),
    /// Lower case, without the final dot.
    Name(String),
}

impl Host {
    /// The parser has already turned decimal, octal, hexadecimal, short and full-width forms into
    /// one spelling of an address, and names into ASCII.
    pub(super) fn of(url: &Url) -> Option<Host> {
        let text = url.host_str()?;
        if let Some(inner) = text.strip_prefix('[') {
            let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Host::Address(address.into()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Host::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        // The system's resolver reads more forms as addresses than the parser does: a name whose
        // last part is a number is left to nobody's interpretation.
        let numeric = name.rsplit('.').next().is_some_and(|last| last.starts_with(|c: char| c.is_ascii_digit()));
        if name.is_empty() || name.ends_with('.') || numeric { None } else { Some(Host::Name(name)) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostPattern {
    Exact(String),
    /// Below the suffix; the suffix itself is not meant.
    Below(String),
    Any,
}

impl HostPattern {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let plain = |name: &str| {
            let byte = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            !name.is_empty() && name.split('.').all(|part| !part.is_empty() && part.bytes().all(byte))
        };
        let lower = text.to_ascii_lowercase();
        match lower.strip_prefix("*.") {
            _ if lower == "*" => Some(Self::Any),
            Some(suffix) if plain(suffix) => Some(Self::Below(suffix.to_owned())),
            None if plain(&lower) => Some(Self::Exact(lower)),
            _ => None,
        }
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Below(suffix) => name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.ends_with('.')),
            Self::Any => true,
        }
    }
}

const METADATA: [&str; 5] =
    ["metadata", "metadata.google.internal", "metadata.goog", "instance-data", "metadata.azure.internal"];
const LOCAL_SUFFIXES: [&str; 10] =
    ["localhost", "local", "internal", "localdomain", "intranet", "lan", "corp", "home", "home.arpa", "svc"];

/// Names that mean something only inside some network. A name without a dot is completed by the
/// search list of the machine, which in a cluster leads to its services.
pub(super) fn local(name: &str) -> Option<Rule> {
    if METADATA.contains(&name) {
        return Some(Rule::MetadataName);
    }
    let inside = |suffix: &str| name == suffix || name.strip_suffix(suffix).is_some_and(|rest| rest.ends_with('.'));
    (!name.contains('.') || LOCAL_SUFFIXES.into_iter().any(inside)).then_some(Rule::LocalName)
}
