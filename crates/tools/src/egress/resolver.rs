//! The only way from a name to an address.

use super::{Blocked, Policy};
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Looks names up; tests bring their own.
pub trait Lookup: Send + Sync {
    fn look_up<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The machine's own resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn look_up<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|found| found.ip()).collect()) })
    }
}

/// Gives the HTTP client only addresses that the policy lets through. The client connects to what
/// it is given here and asks nobody else, so a name that changes its mind gains nothing.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub policy: Arc<Policy>,
    pub lookup: Arc<dyn Lookup>,
}

impl Guarded {
    async fn addresses(&self, name: &str) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = self.lookup.look_up(name).await?;
        let mut refusal: Option<Blocked> = None;
        let mut passed = Vec::new();
        for address in found {
            match self.policy.check_address(address) {
                // The client puts the port of the URL in place of 0.
                Ok(()) => passed.push(SocketAddr::new(address, 0)),
                Err(blocked) => refusal = Some(refusal.unwrap_or(blocked)),
            }
        }
        match (passed.is_empty(), refusal) {
            (true, Some(blocked)) => Err(blocked.into()),
            (true, None) => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into()),
            (false, _) => Ok(passed),
        }
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let guarded = self.clone();
        Box::pin(async move {
            let addresses = guarded.addresses(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
