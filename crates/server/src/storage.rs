//! The storage services: their addresses and their accounts.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use axum::Router;
use peeklock_storage::{Account, AccountKey, Service, Storage, WELL_KNOWN_ACCOUNT, WELL_KNOWN_KEY};
use peeklock_storage::{check_account_name, router};

use crate::namespace::{DEFAULT_NAMESPACE, Opened};
use crate::{HttpLimits, WELL_KNOWN_KEY_SECRET};

/// The configuration of Blob and Queue Storage.
#[derive(Clone, Debug, Default)]
pub struct StorageOptions {
    pub blobs: Option<StorageListen>,
    pub queues: Option<StorageListen>,
    /// The account of the default namespace, or `None` for the account of the storage emulators.
    pub account: Option<String>,
    /// The key of the account, or `None` for the well-known key, which requires that the broker accepts its own well-known key.
    pub key: Option<AccountKey>,
}

/// The address of a storage service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageListen {
    pub address: SocketAddr,
    /// Whether the address is a default. If a default cannot be bound, the broker starts without the service and reports the reason.
    pub is_usual: bool,
}

/// The result of starting a storage service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    Off,
    At(SocketAddr),
    /// The service does not run at its default address, for this reason.
    Without(String),
}

/// The addresses of the storage services.
#[derive(Clone, Debug)]
pub struct StorageDoors {
    pub account: String,
    pub uses_well_known_key: bool,
    pub blobs: Served,
    pub queues: Served,
}

/// The accounts of the storage services. Their names and keys are checked before the data is opened.
pub(crate) struct Accounts {
    pub(crate) name: String,
    key: AccountKey,
    pub(crate) uses_well_known_key: bool,
}

impl Accounts {
    /// Checks the accounts and returns, for both services, the reason why they cannot run at their default addresses.
    ///
    /// `is_trusting` means that the broker accepts its own well-known key. Queue Storage serves the queues of the broker, so a broker with
    /// real keys must not accept the well-known storage key.
    pub(crate) fn open(options: &mut StorageOptions, is_trusting: bool) -> Result<(Self, Served, Served)> {
        let name = options.account.clone().unwrap_or_else(|| WELL_KNOWN_ACCOUNT.to_owned());
        check_account_name(&name)?;
        let given = options.key.clone();
        let blobs = admit(&mut options.blobs, "--blob-port", given.as_ref(), is_trusting)?;
        let queues = admit(&mut options.queues, "--queue-port", given.as_ref(), is_trusting)?;
        let key = given.map_or_else(|| AccountKey::parse(WELL_KNOWN_KEY), Ok)?;
        let uses_well_known_key = key.is_well_known();
        Ok((Accounts { name, key, uses_well_known_key }, blobs, queues))
    }

    /// Returns the routes of an account for the default namespace. With the well-known storage key, each other namespace that accepts the
    /// broker's well-known key has an account of its name.
    pub(crate) fn routes<'a>(
        &self,
        spaces: impl Iterator<Item = &'a Opened>,
        limits: HttpLimits,
    ) -> (Router, Router) {
        let account = |space: &Opened| {
            let is_default = space.name == DEFAULT_NAMESPACE;
            let name = if is_default { self.name.clone() } else { space.name.to_lowercase() };
            // A namespace with keys of its own must not be open to the key that everybody knows.
            let is_trusting = space.access.uses_secret(WELL_KNOWN_KEY_SECRET.as_bytes());
            let is_open = is_default || (self.uses_well_known_key && is_trusting);
            is_open.then(|| Account { name, key: self.key.clone(), broker: space.broker.clone() })
        };
        let storage = Storage::new(spaces.filter_map(account).collect(), limits);
        (router(storage.clone(), Service::Blob), router(storage, Service::Queue))
    }
}

fn admit(
    listen: &mut Option<StorageListen>,
    flag: &str,
    key: Option<&AccountKey>,
    is_trusting: bool,
) -> Result<Served> {
    let Some(StorageListen { address, is_usual }) = *listen else { return Ok(Served::Off) };
    let is_open = !address.ip().is_loopback();
    let problem = match key {
        Some(key) if is_open && key.is_well_known() => {
            "can be reached from other machines, and the key of the storage emulators is known to everybody"
        }
        Some(key) if !is_trusting && key.is_well_known() => {
            "serves the queues of a broker that has keys, and the key of the storage emulators is known to everybody"
        }
        None if is_open => "can be reached from other machines, and there is no storage key",
        None if !is_trusting => "serves the queues of a broker that has keys, and there is no storage key",
        _ => return Ok(Served::At(address)),
    };
    let text = format!(
        "{address} {problem}. Give one with --storage-key (for example --storage-key $(openssl rand -base64 64 | tr -d '\\n')), \
         or leave it out with '{flag} off'"
    );
    if !is_usual {
        bail!(text);
    }
    *listen = None;
    Ok(Served::Without("give a key with --storage-key to have it".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(address: &str, is_usual: bool, key: Option<&str>, is_trusting: bool) -> Result<Served> {
        let listen = Some(StorageListen { address: address.parse().unwrap(), is_usual });
        let key = key.map(|key| AccountKey::parse(key).unwrap());
        let mut options = StorageOptions { blobs: listen, key, ..StorageOptions::default() };
        Accounts::open(&mut options, is_trusting).map(|(_, blobs, _)| blobs)
    }

    #[test]
    fn the_well_known_key_is_accepted_on_loopback_and_beside_the_well_known_broker_key_only() {
        let local = "127.0.0.1:10000";
        assert_eq!(open(local, false, None, true).unwrap(), Served::At(local.parse().unwrap()));
        assert!(open(local, false, None, false).is_err());
        assert!(matches!(open(local, true, None, false).unwrap(), Served::Without(_)));
        let refused = open("0.0.0.0:10000", false, None, true).unwrap_err().to_string();
        assert!(refused.contains("--storage-key"), "{refused}");
        assert!(open("0.0.0.0:10000", false, Some(WELL_KNOWN_KEY), true).is_err());
        assert!(
            open(local, false, Some(WELL_KNOWN_KEY), false).is_err(),
            "the well-known storage key would open every namespace"
        );
    }

    #[test]
    fn a_real_key_is_accepted_at_every_address() {
        for address in ["127.0.0.1:10000", "192.0.2.1:10000"] {
            let served = open(address, false, Some("c2VjcmV0"), false).unwrap();
            assert_eq!(served, Served::At(address.parse().unwrap()));
        }
    }
}
