//! The keys of the listeners: the well-known key on loopback, real keys elsewhere.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use peeklock_access::{Access, Policy, Right};

/// The well-known key. It is accepted on loopback only, where every client is on this machine already.
pub const WELL_KNOWN_KEY_NAME: &str = "RootManageSharedAccessKey";
pub const WELL_KNOWN_KEY_SECRET: &str = "SAS_KEY_VALUE";
/// The file in the data directory with the policies that were created at run time.
const KEY_FILE: &str = "keys.json";

/// The minimum length of secrets if other machines can reach the broker. Who records one signed token can guess a shorter secret offline.
const SECRET_CHARS_MIN: usize = 16;

/// The reason why an address must not be reachable from other machines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exposure {
    #[error(
        "there is no key. Give one with --key NAME=SECRET (for example --key app=$(openssl rand -base64 32)), or listen on 127.0.0.1"
    )]
    NoKey,
    /// A key has the secret that everybody knows.
    #[error(
        "the secret {WELL_KNOWN_KEY_SECRET} is known to everybody. Give another one with --key NAME=SECRET, or listen on 127.0.0.1"
    )]
    WellKnownSecret,
    #[error(
        "the key '{name}' has a secret of fewer than {SECRET_CHARS_MIN} characters, which can be guessed. Give it a longer one (for example of \
         openssl rand -base64 32), or listen on 127.0.0.1"
    )]
    ShortSecret { name: String },
}

/// Returns the file with the policies that were created at run time.
pub(crate) fn key_file(folder: &Path) -> PathBuf {
    folder.join(KEY_FILE)
}

/// Returns the policy that is valid without any declared one.
pub(crate) fn well_known() -> Policy {
    Policy::with_one_key(WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET, &[Right::Manage])
}

/// Opens the declared policies and the stored ones.
pub(crate) fn open(
    given: Vec<Policy>,
    file: Option<PathBuf>,
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<Access> {
    let open_address = addresses.into_iter().find(|address| !address.ip().is_loopback());
    let declared = match open_address {
        None if given.is_empty() => vec![well_known()],
        _ => given,
    };
    let access = Access::open(file, declared)?;
    if let Some(address) = open_address
        && let Some(exposure) = exposure(&access)
    {
        bail!("{address} can be reached from other machines, and {exposure}");
    }
    Ok(access)
}

/// Returns the reason why other machines must not reach a broker with these policies, if there is one.
pub(crate) fn exposure(access: &Access) -> Option<Exposure> {
    if access.key_names().is_empty() {
        return Some(Exposure::NoKey);
    }
    if access.uses_secret(WELL_KNOWN_KEY_SECRET.as_bytes()) {
        return Some(Exposure::WellKnownSecret);
    }
    access.shorter_secret(SECRET_CHARS_MIN).map(|name| Exposure::ShortSecret { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_in(data: &Path, keys: Vec<Policy>, address: &str) -> Result<Access> {
        open(keys, Some(key_file(data)), std::iter::once(address.parse().unwrap()))
    }

    fn choose(keys: Vec<Policy>, address: &str) -> Result<Access> {
        open_in(tempfile::tempdir().unwrap().path(), keys, address)
    }

    #[test]
    fn the_well_known_key_works_on_loopback_only() {
        assert_eq!(choose(vec![], "127.0.0.1:5672").unwrap().key_names(), [WELL_KNOWN_KEY_NAME]);
        assert_eq!(choose(vec![], "[::1]:5672").unwrap().key_names(), [WELL_KNOWN_KEY_NAME]);
        let refused = choose(vec![], "0.0.0.0:5672").err().unwrap().to_string();
        assert!(refused.contains("--key NAME=SECRET"), "{refused}");
    }

    #[test]
    fn the_well_known_secret_is_rejected_under_any_name() {
        let key = || Policy::with_one_key("app", WELL_KNOWN_KEY_SECRET, &[Right::Send]);
        assert!(choose(vec![key()], "192.0.2.1:5672").is_err());
        assert!(choose(vec![key()], "127.0.0.1:5672").is_ok());
        let long = Policy::with_one_key("app", "0123456789abcdef", &[Right::Send]);
        assert!(choose(vec![long], "192.0.2.1:5672").is_ok());
    }

    #[test]
    fn a_short_secret_is_rejected_where_other_machines_can_guess_it() {
        let short = || vec![Policy::with_one_key("app", "0123456789abcde", &[Right::Send])];
        let refused = choose(short(), "192.0.2.1:5672").err().unwrap().to_string();
        assert!(refused.contains("'app'") && !refused.contains("0123"), "{refused}");
        assert!(choose(short(), "127.0.0.1:5672").is_ok());
    }

    #[test]
    fn stored_policies_allow_other_machines() {
        let data = tempfile::tempdir().unwrap();
        let local = open_in(data.path(), vec![], "127.0.0.1:5672").unwrap();
        let change = peeklock_access::PolicyChange {
            rights: Some([Right::Send].into_iter().collect()),
            ..Default::default()
        };
        local.put(None, "app", change, peeklock_types::Timestamp::ZERO).unwrap();
        let open = open_in(data.path(), vec![], "192.0.2.1:5672").unwrap();
        assert_eq!(open.key_names(), ["app"]);
    }
}
