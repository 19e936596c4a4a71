//! Where a request that a model chose may go.
//!
//! A name is looked up once, by the resolver that also filters, and the connection is made to what
//! passed: nothing is checked first and looked up again later. A refusal names the rule and never
//! the address, which would tell the model what lies inside.

mod config;
mod host;
mod range;
mod resolver;

pub use config::Config;
pub use range::{Cidr, NotACidr};
pub use resolver::{Lookup, SystemLookup};

pub(crate) use resolver::Guarded;

use host::{Host, HostPattern};
use reqwest::Url;
use std::net::IpAddr;
use std::str::FromStr;

/// Why a request may not go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    NotAUrl,
    Scheme,
    UserInfo,
    Port,
    HostNotAllowed,
    LocalName,
    MetadataName,
    Loopback,
    Private,
    LinkLocal,
    UniqueLocal,
    CarrierNat,
    Multicast,
    Unspecified,
    /// IPv4 inside IPv6: mapped, compatible, NAT64, 6to4, Teredo.
    EmbeddedIpv4,
    Metadata,
    Reserved,
    /// A range the operator listed, such as pods and services of a cluster.
    Denied,
    Redirects,
}

impl Rule {
    pub const fn token(self) -> &'static str {
        match self {
            Rule::NotAUrl => "not_a_url",
            Rule::Scheme => "scheme",
            Rule::UserInfo => "user_info",
            Rule::Port => "port",
            Rule::HostNotAllowed => "host_not_allowed",
            Rule::LocalName => "local_name",
            Rule::MetadataName => "metadata_name",
            Rule::Loopback => "loopback",
            Rule::Private => "private",
            Rule::LinkLocal => "link_local",
            Rule::UniqueLocal => "unique_local",
            Rule::CarrierNat => "carrier_nat",
            Rule::Multicast => "multicast",
            Rule::Unspecified => "unspecified",
            Rule::EmbeddedIpv4 => "embedded_ipv4",
            Rule::Metadata => "metadata",
            Rule::Reserved => "reserved",
            Rule::Denied => "denied_range",
            Rule::Redirects => "redirects",
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Rule::NotAUrl => "give an absolute URL, such as https://example.com/page",
            Rule::Scheme => "only http and https are allowed",
            Rule::UserInfo => "a URL must not contain a user or password",
            Rule::Port => "this port is not allowed",
            Rule::HostNotAllowed => "the operator has not allowed this host",
            Rule::LocalName | Rule::MetadataName => "this name belongs to an internal network",
            Rule::Redirects => "there were too many redirects",
            _ => "this host does not lead to a public address",
        }
    }
}

/// A request that was refused, with the rule and without the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("blocked by rule {}: {}", .rule.token(), .rule.advice())]
pub struct Blocked {
    pub rule: Rule,
}

/// The operator's word on hosts and addresses. By default no host is allowed.
#[derive(Clone, Debug)]
pub struct Policy {
    hosts: Vec<HostPattern>,
    addresses: Vec<Cidr>,
    denied: Vec<Cidr>,
    ports: Vec<u16>,
    pub redirects_max: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a host, nor *.suffix, nor a range such as 10.0.0.0/8, nor *")]
pub struct NotAllowable(pub String);

impl Default for Policy {
    fn default() -> Self {
        Self { hosts: vec![], addresses: vec![], denied: vec![], ports: vec![80, 443], redirects_max: 5 }
    }
}

impl Policy {
    /// Every public host.
    pub fn public() -> Self {
        Self { hosts: vec![HostPattern::Any], ..Self::default() }
    }

    /// Adds to the allow list: `example.com`, `*.example.com`, `*` for every public host, or a
    /// range of addresses. A name never opens a range: to reach an internal service by name, list
    /// both, so that whoever answers for the name cannot point it elsewhere inside.
    pub fn allow(mut self, entry: &str) -> Result<Self, NotAllowable> {
        if let Ok(range) = Cidr::from_str(entry) {
            self.addresses.push(range);
        } else {
            self.hosts.push(HostPattern::parse(entry).ok_or_else(|| NotAllowable(entry.to_owned()))?);
        }
        Ok(self)
    }

    /// Refuses a range whatever else is allowed: public addresses of the cluster, for example.
    pub fn deny(mut self, range: Cidr) -> Self {
        self.denied.push(range);
        self
    }

    pub fn ports(mut self, ports: impl Into<Vec<u16>>) -> Self {
        self.ports = ports.into();
        self
    }

    /// Everything that can be said before a name is looked up.
    pub fn check(&self, text: &str) -> Result<Url, Blocked> {
        let url = Url::parse(text).map_err(|_| Blocked { rule: Rule::NotAUrl })?;
        self.check_url(&url).map(|()| url)
    }

    pub(crate) fn check_url(&self, url: &Url) -> Result<(), Blocked> {
        let blocked = |rule| Err(Blocked { rule });
        if !matches!(url.scheme(), "http" | "https") {
            return blocked(Rule::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return blocked(Rule::UserInfo);
        }
        if !url.port_or_known_default().is_some_and(|port| self.ports.contains(&port)) {
            return blocked(Rule::Port);
        }
        match Host::of(url) {
            None => blocked(Rule::NotAUrl),
            Some(Host::Address(address)) => self.check_literal(address),
            Some(Host::Name(name)) => self.check_name(&name),
        }
    }

    fn check_literal(&self, address: IpAddr) -> Result<(), Blocked> {
        self.check_address(address)?;
        let listed = self.addresses.iter().any(|range| range.contains(address));
        let any = self.hosts.contains(&HostPattern::Any);
        if listed || any { Ok(()) } else { Err(Blocked { rule: Rule::HostNotAllowed }) }
    }

    fn check_name(&self, name: &str) -> Result<(), Blocked> {
        let named = self.hosts.iter().any(|host| *host != HostPattern::Any && host.matches(name));
        if named {
            return Ok(());
        }
        if let Some(rule) = host::local(name) {
            return Err(Blocked { rule });
        }
        if self.hosts.contains(&HostPattern::Any) { Ok(()) } else { Err(Blocked { rule: Rule::HostNotAllowed }) }
    }

    /// What an address may be, wherever it came from.
    pub fn check_address(&self, address: IpAddr) -> Result<(), Blocked> {
        if self.denied.iter().any(|range| range.contains(address)) {
            return Err(Blocked { rule: Rule::Denied });
        }
        if self.addresses.iter().any(|range| range.contains(address)) {
            return Ok(());
        }
        range::blocked(address).map_or(Ok(()), |rule| Err(Blocked { rule }))
    }
}
