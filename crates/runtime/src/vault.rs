//! Seals the secrets of accounts, so that a copy of the database tells none of them.
//!
//! The key comes from outside the database. What is sealed belongs to one account: moved to the row of
//! another it does not open.

use crate::config::{Secret, SecretsConfig};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use uuid::Uuid;

const KEY_BYTES: usize = 32;
/// How what follows was sealed.
const FORM: u8 = 1;

#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("{0}: cannot be read: {1}")]
    Unread(&'static str, std::io::Error),
    #[error(
        "{0}: is not set, or holds something other than 64 hexadecimal digits: make a key with `openssl rand -hex 32`"
    )]
    NoKey(&'static str),
    #[error("secrets.key_file: others can read it: let only its owner do so (chmod 600)")]
    Open,
    #[error("the kernel gave no random bytes")]
    NoRandom,
    /// Which of them it is cannot be told apart, and must not be.
    #[error("it was sealed under another key than this process has, or was changed since")]
    Sealed,
}

/// The key under which an installation keeps the secrets of accounts.
pub struct Vault {
    key: LessSafeKey,
    random: SystemRandom,
    mac: ring::hmac::Key,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vault")
    }
}

impl Vault {
    /// `None` where no key is configured.
    pub fn load(
        config: &SecretsConfig,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Vault>, VaultError> {
        let (at, text) = match (&config.key_env, &config.key_file) {
            (Some(name), _) => ("secrets.key_env", environment(name).ok_or(VaultError::NoKey("secrets.key_env"))?),
            (None, Some(file)) => {
                let unread = |error| VaultError::Unread("secrets.key_file", error);
                let mode = std::fs::metadata(file).map_err(unread)?.permissions().mode();
                if mode & 0o007 != 0 {
                    return Err(VaultError::Open);
                }
                ("secrets.key_file", std::fs::read_to_string(file).map_err(unread)?)
            }
            (None, None) => return Ok(None),
        };
        let key = Secret::new(text).and_then(|text| unhex(text.expose())).ok_or(VaultError::NoKey(at))?;
        Vault::new(key).map(Some)
    }

    pub fn new(key: [u8; KEY_BYTES]) -> Result<Vault, VaultError> {
        let mac = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| VaultError::Sealed)?;
        Ok(Vault { key: LessSafeKey::new(key), random: SystemRandom::new(), mac })
    }

    pub fn seal(&self, account: Uuid, fields: &BTreeMap<String, Secret>) -> Result<Vec<u8>, VaultError> {
        let plain: BTreeMap<&str, &str> = fields.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
        let mut body = serde_json::to_vec(&plain).map_err(|_| VaultError::Sealed)?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| VaultError::NoRandom)?;
        let bound = Aad::from(account.into_bytes());
        let sealing = self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound, &mut body);
        sealing.map_err(|_| VaultError::Sealed)?;
        Ok([&[FORM][..], &nonce, &body].concat())
    }

    pub fn open(&self, account: Uuid, sealed: &[u8]) -> Result<BTreeMap<String, Secret>, VaultError> {
        let (&FORM, rest) = sealed.split_first().ok_or(VaultError::Sealed)? else { return Err(VaultError::Sealed) };
        let (nonce, body) = rest.split_first_chunk::<NONCE_LEN>().ok_or(VaultError::Sealed)?;
        let (mut body, bound) = (body.to_vec(), Aad::from(account.into_bytes()));
        let opened = self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), bound, &mut body);
        let opened = opened.map_err(|_| VaultError::Sealed)?;
        let fields: BTreeMap<String, String> = serde_json::from_slice(opened).map_err(|_| VaultError::Sealed)?;
        Ok(fields.into_iter().filter_map(|(name, value)| Some((name, Secret::exact(value)?))).collect())
    }

    /// What stands for a secret where only equality matters: nobody without the key can try guesses on it.
    pub fn stand_in(&self, secret: &str) -> String {
        let tag = ring::hmac::sign(&self.mac, secret.as_bytes());
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn unhex(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    if text.len() != KEY_BYTES * 2 || !text.is_ascii() {
        return None;
    }
    for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> BTreeMap<String, Secret> {
        [("password".to_owned(), Secret::exact("p w\"é ").unwrap())].into()
    }

    #[test]
    fn what_is_sealed_opens_for_its_account_and_under_its_key_only() {
        let (vault, other) = (Vault::new([1; 32]).unwrap(), Vault::new([2; 32]).unwrap());
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let sealed = vault.seal(one, &fields()).unwrap();
        assert_eq!(vault.open(one, &sealed).unwrap(), fields());
        assert_ne!(vault.seal(one, &fields()).unwrap(), sealed, "the same twice is not seen to be the same");
        assert!(vault.open(two, &sealed).is_err() && other.open(one, &sealed).is_err());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(vault.open(one, &changed).is_err(), "byte {at}");
            assert!(vault.open(one, &sealed[..at]).is_err(), "{at} bytes");
        }
        assert!(!sealed.windows(3).any(|w| w == b"p w"));
        assert_eq!(vault.stand_in("x"), vault.stand_in("x"));
        assert_ne!(vault.stand_in("x"), other.stand_in("x"));
    }

    #[test]
    fn a_key_is_64_hexadecimal_digits_that_only_its_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let config = SecretsConfig { key_file: Some(file.clone()), ..Default::default() };
        let load = |config: &SecretsConfig| Vault::load(config, |_| None).map(|vault| vault.is_some());
        assert!(!load(&SecretsConfig::default()).unwrap());
        assert!(matches!(load(&config), Err(VaultError::Unread(..))));
        for (text, good) in [("ab".repeat(32), true), ("ab".repeat(31), false), ("zz".repeat(32), false)] {
            std::fs::write(&file, format!("{text}\n")).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            assert_eq!(load(&config).is_ok(), good, "{text}");
        }
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(load(&config), Err(VaultError::Open)));
        let config = SecretsConfig { key_env: Some("KEY".into()), ..Default::default() };
        let given = Vault::load(&config, |name| (name == "KEY").then(|| "0f".repeat(32)));
        assert!(given.unwrap().is_some());
        assert!(matches!(load(&config), Err(VaultError::NoKey(_))));
    }
}
