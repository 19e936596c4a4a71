//! Keys and what they may do. The key itself is never stored: only its SHA-256.

use axum::http::{HeaderMap, header};
use chrono::{DateTime, Utc};
use instar_core::machine::By;
use instar_core::rune::Actor;
use instar_store::clock;
use instar_store::entity::api_key;
use instar_store::{NewKey, Store, StoreError};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::pace::Pace;
use crate::problem::Problem;

/// How long a key that was found good is not looked up again; a revoked one lives on that long.
const FRESH: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const FAILED: &str = "instar.auth.failures";
const REMEMBERED_MAX: usize = 10_000;
const KEY_BYTES_MAX: usize = 512;
/// Keys that are looked up at once for addresses that have tried too many bad ones.
const DOUBTED_MAX: usize = 4;
pub(crate) const KEY_PREFIX: &str = "key";

/// Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Viewer,
    Operator,
    Approver,
    Admin,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Operator, Role::Approver, Role::Admin];

    pub const fn token(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Approver => "approver",
            Role::Admin => "admin",
        }
    }

    pub fn parse(token: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.token() == token)
    }
}

/// Whoever holds the key of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) key: Uuid,
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) role: Role,
    expires_at: Option<DateTime<Utc>>,
    hash: [u8; 32],
}

impl Caller {
    pub(crate) fn key_id(&self) -> String {
        key_id(self.key)
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::new(By::User, self.key_id())
    }
}

pub(crate) fn key_id(id: Uuid) -> String {
    format!("{KEY_PREFIX}_{}", id.simple())
}

pub(crate) fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Stores a key that is known beforehand, such as the first admin's. Once more changes nothing.
pub async fn ensure_key(store: &Store, namespace: &str, name: &str, role: Role, key: &str) -> Result<(), StoreError> {
    store.add_key(&NewKey { namespace, name, role: role.token(), hash: hash(key), expires_at: None }).await.map(drop)
}

/// Keys that were found good, and where those come from that were not.
pub(crate) struct Known {
    good: Mutex<HashMap<[u8; 32], (Caller, Instant)>>,
    failed: Pace<IpAddr>,
    /// Whoever comes from where many failed waits for one of these: a flood of guesses must not be a flood of lookups.
    doubted: Semaphore,
}

impl Known {
    pub(crate) fn new(failed_per_minute_max: u32) -> Known {
        Known {
            good: Mutex::default(),
            failed: Pace::new(failed_per_minute_max, MINUTE),
            doubted: Semaphore::new(DOUBTED_MAX),
        }
    }

    /// Whose request this is, that comes `from` there.
    pub(crate) async fn caller(
        &self,
        store: &Store,
        headers: &HeaderMap,
        from: Option<IpAddr>,
    ) -> Result<Caller, Problem> {
        let key = bearer(headers).ok_or_else(Problem::unauthenticated)?;
        let hash = hash(key);
        let from = from.map(network);
        if let Some((caller, true)) = self.remembered(&hash) {
            return Ok(caller);
        }
        // Behind a proxy all come from one address: only its bad keys are refused, never the good ones among them.
        let refused = from.and_then(|from| self.failed.has_room(from, Instant::now()).err());
        let found = {
            let _turn = match refused {
                Some(_) => self.doubted.acquire().await.ok(),
                None => None,
            };
            self.found(store, hash).await?
        };
        let Some(caller) = found else {
            if let Some(wait) = refused {
                return Err(too_many_failed(wait));
            }
            if let Some(from) = from {
                metrics::counter!(FAILED).increment(1);
                self.failed.take(from, Instant::now()).map_err(too_many_failed)?;
            }
            return Err(Problem::unauthenticated());
        };
        let (store, id) = (store.clone(), caller.key);
        tokio::spawn(async move {
            if let Err(error) = store.note_key_use(id, clock::now()).await {
                tracing::debug!(%error, "the use of a key was not noted");
            }
        });
        Ok(caller)
    }

    /// Whether a caller's key opens what it did when he came, for those who stay.
    pub(crate) async fn stands(&self, store: &Store, caller: &Caller) -> Result<bool, StoreError> {
        if caller.expires_at.is_some_and(|until| until <= clock::now()) {
            return Ok(false);
        }
        let found = match self.remembered(&caller.hash) {
            Some((found, true)) => Some(found),
            _ => self.found(store, caller.hash).await?,
        };
        Ok(found.is_some_and(|found| found.role >= caller.role && found.namespace == caller.namespace))
    }

    /// The holder of a key that is good, as the database has it.
    async fn found(&self, store: &Store, hash: [u8; 32]) -> Result<Option<Caller>, StoreError> {
        let good =
            |row: &api_key::Model| row.revoked_at.is_none() && row.expires_at.is_none_or(|until| until > clock::now());
        let found = store.key_by_hash(&hash).await?.filter(good).and_then(|row| read(row, hash));
        match &found {
            Some(caller) => self.remember(hash, caller.clone()),
            None => drop(self.good.lock().unwrap_or_else(PoisonError::into_inner).remove(&hash)),
        }
        Ok(found)
    }

    /// Forgets a key that was just revoked here; other processes forget it by themselves.
    pub(crate) fn forget(&self, id: Uuid) {
        self.good.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, (caller, _)| caller.key != id);
    }

    /// One that was good, and whether that is so recent that it is not looked up again.
    fn remembered(&self, hash: &[u8; 32]) -> Option<(Caller, bool)> {
        let known = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = |caller: &Caller| caller.expires_at.is_none_or(|until| until > clock::now());
        known.get(hash).map(|(caller, at)| (caller.clone(), at.elapsed() < FRESH && lasts(caller)))
    }

    fn remember(&self, hash: [u8; 32], caller: Caller) {
        let mut known = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, (_, at)| at.elapsed() < FRESH);
        }
        if known.len() < REMEMBERED_MAX {
            known.insert(hash, (caller, Instant::now()));
        }
    }
}

fn too_many_failed(wait: Duration) -> Problem {
    Problem::too_many("too many requests with keys that open nothing came from this address; wait a while", wait)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty() && key.len() <= KEY_BYTES_MAX).then_some(key)
}

/// What an address is counted by: whoever has one of IPv6 has the 2^64 beside it as well.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

fn read(row: api_key::Model, hash: [u8; 32]) -> Option<Caller> {
    // A role that this version does not know gives no right at all.
    let role = Role::parse(&row.role)?;
    let (name, namespace) = (row.name.into(), row.namespace.into());
    Some(Caller { key: row.id, name, namespace, role, expires_at: row.expires_at, hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_caller_and_one_address_of_ipv4_is() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
