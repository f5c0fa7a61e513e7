//! Storage accounts and their keys.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use peeklock_broker::Broker;
use ring::hmac;

/// The account name and key of the storage emulators. The key is public, so it is safe only on loopback, where every
/// client is already on this machine.
pub const WELL_KNOWN_ACCOUNT: &str = "devstoreaccount1";
pub const WELL_KNOWN_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

const NAME_CHARS_MAX: usize = 63;
const KEY_BYTES_MAX: usize = 256;

/// A storage account: a namespace of the broker under a name and a key of the storage services.
#[derive(Clone)]
pub struct Account {
    pub name: String,
    pub key: AccountKey,
    pub broker: Broker,
}

/// The key that signs requests. It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountKey(Arc<[u8]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a storage key is base64; `openssl rand -base64 64 | tr -d '\\n'` makes one")]
    NotBase64,
    #[error("a storage key has from 1 to {KEY_BYTES_MAX} bytes behind its base64")]
    Length,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name of a storage account has from 1 to {NAME_CHARS_MAX} characters: a to z, 0 to 9 and '-'")]
pub struct NameError;

/// Rejects a name that cannot be part of a host name.
pub fn check_account_name(name: &str) -> Result<(), NameError> {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_known);
    if fits { Ok(()) } else { Err(NameError) }
}

impl AccountKey {
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = BASE64.decode(text.trim()).map_err(|_| KeyError::NotBase64)?;
        match bytes.len() {
            1..=KEY_BYTES_MAX => Ok(AccountKey(bytes.into())),
            _ => Err(KeyError::Length),
        }
    }

    /// Returns whether this is the public key of the emulators.
    pub fn is_well_known(&self) -> bool {
        AccountKey::parse(WELL_KNOWN_KEY).is_ok_and(|known| known == *self)
    }

    /// Returns whether `signature`, in base64, is the signature of `text`. The duration does not depend on the position
    /// of a difference.
    pub(crate) fn has_signed(&self, text: &str, signature: &str) -> bool {
        let Ok(signature) = BASE64.decode(signature) else { return false };
        hmac::verify(&self.key(), text.as_bytes(), &signature).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn sign(&self, text: &str) -> String {
        BASE64.encode(hmac::sign(&self.key(), text.as_bytes()))
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountKey(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_base64_and_are_not_printed() {
        let key = AccountKey::parse(WELL_KNOWN_KEY).unwrap();
        assert!(key.is_well_known() && !format!("{key:?}").contains("Eby8"));
        assert!(key.has_signed("text", &key.sign("text")));
        assert!(!key.has_signed("text", &key.sign("texts")) && !key.has_signed("text", "?"));
        assert!(!AccountKey::parse("c2VjcmV0").unwrap().is_well_known());
        assert_eq!(AccountKey::parse("not base64").unwrap_err(), KeyError::NotBase64);
        assert_eq!(AccountKey::parse("").unwrap_err(), KeyError::Length);
    }

    #[test]
    fn names_are_valid_in_host_names() {
        assert!(check_account_name(WELL_KNOWN_ACCOUNT).is_ok() && check_account_name("a-1").is_ok());
        for name in ["", "A", "a.b", "a/b", "ä", &"a".repeat(64)] {
            assert!(check_account_name(name).is_err(), "{name}");
        }
    }
}
