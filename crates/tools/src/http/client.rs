//! HTTP clients, none of which follows a redirect, asks a proxy or tries again by itself.

use crate::egress::{Guarded, Lookup, Policy};
use reqwest::{Client, ClientBuilder, redirect};
use std::sync::Arc;
use std::time::Duration;

const CONNECT_MAX: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("instar/", env!("CARGO_PKG_VERSION"));

pub(crate) struct Clients {
    /// A connection of its own for each request: a kept one may be closed by the server at the very
    /// moment it is used, and then nobody knows whether the request arrived.
    pub fresh: Client,
    /// For tools that may be asked twice.
    pub kept: Client,
    /// For URLs that are not the operator's.
    pub guarded: Client,
    pub policy: Arc<Policy>,
}

impl Clients {
    pub(crate) fn new(policy: Policy, lookup: Arc<dyn Lookup>) -> Result<Self, reqwest::Error> {
        // Another part of the process may have chosen a provider already: then that one serves.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let policy = Arc::new(policy);
        let resolver = Guarded { policy: policy.clone(), lookup };
        Ok(Self {
            fresh: builder().pool_max_idle_per_host(0).build()?,
            kept: builder().build()?,
            // A kept connection would outlive the look-up that allowed it.
            guarded: builder().pool_max_idle_per_host(0).dns_resolver(Arc::new(resolver)).build()?,
            policy,
        })
    }
}

fn builder() -> ClientBuilder {
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .connect_timeout(CONNECT_MAX)
}
