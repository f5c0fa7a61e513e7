//! Who may come in: the well-known key on loopback, real keys anywhere else.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use peeklock_gateway_azure::{AccessKey, Right};

/// The key that everybody knows; good on loopback, where whoever can connect is on this machine already.
pub const WELL_KNOWN_KEY_NAME: &str = "RootManageSharedAccessKey";
pub const WELL_KNOWN_KEY_SECRET: &str = "SAS_KEY_VALUE";

pub(crate) fn choose_keys(
    given: Vec<AccessKey>,
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<Vec<AccessKey>> {
    let open_address = addresses.into_iter().find(|address| !address.ip().is_loopback());
    if let Some(address) = open_address {
        if given.is_empty() {
            bail!(
                "{address} can be reached from other machines, and there is no key. Give one with --key NAME=SECRET \
                 (for example --key app=$(openssl rand -base64 32)), or listen on 127.0.0.1"
            );
        }
        if given.iter().any(|key| key.has_secret(WELL_KNOWN_KEY_SECRET)) {
            bail!(
                "{address} can be reached from other machines, and the secret {WELL_KNOWN_KEY_SECRET} is known to everybody. \
                 Give another one with --key NAME=SECRET, or listen on 127.0.0.1"
            );
        }
    }
    if given.is_empty() {
        return Ok(vec![AccessKey::new(WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET, vec![Right::Manage])]);
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(keys: Vec<AccessKey>, address: &str) -> Result<Vec<AccessKey>> {
        choose_keys(keys, std::iter::once(address.parse().unwrap()))
    }

    #[test]
    fn the_well_known_key_works_on_loopback_only() {
        assert_eq!(choose(vec![], "127.0.0.1:5672").unwrap()[0].name(), WELL_KNOWN_KEY_NAME);
        assert_eq!(choose(vec![], "[::1]:5672").unwrap()[0].name(), WELL_KNOWN_KEY_NAME);
        let refused = choose(vec![], "0.0.0.0:5672").err().unwrap().to_string();
        assert!(refused.contains("--key NAME=SECRET"), "{refused}");
    }

    #[test]
    fn the_well_known_secret_is_refused_under_any_name() {
        let key = || AccessKey::new("app", WELL_KNOWN_KEY_SECRET, vec![Right::Send]);
        assert!(choose(vec![key()], "192.0.2.1:5672").is_err());
        assert!(choose(vec![key()], "127.0.0.1:5672").is_ok());
        assert!(choose(vec![AccessKey::new("app", "x7", vec![Right::Send])], "192.0.2.1:5672").is_ok());
    }
}
