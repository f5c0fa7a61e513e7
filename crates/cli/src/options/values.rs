//! The values of options and their text forms.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};
use peeklock_server::AccountKey;
use peeklock_spec::{Name, parse_duration, parse_tier, show_duration, show_tier};
use peeklock_types::Tier;

/// An address to listen on, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl FromStr for Listen {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "off" || text == "none" {
            return Ok(Listen(None));
        }
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Listen(Some((Ipv4Addr::LOCALHOST, port).into())));
        }
        match text.parse() {
            Ok(address) => Ok(Listen(Some(address))),
            Err(_) => bail!("not an address such as 127.0.0.1:5671, nor a port, nor 'off'"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("off"),
        }
    }
}

/// A file or folder; relative paths start at the working directory of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePath(pub(crate) PathBuf);

impl FromStr for FilePath {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            bail!("a path has at least one character");
        }
        Ok(FilePath(text.into()))
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

impl FromStr for Time {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let span = parse_duration(text)?;
        if span.is_zero() {
            bail!("a limit of no time lets nobody in");
        }
        Ok(Time(span))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show_duration(self.0))
    }
}

/// The tier of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TierName(pub(crate) Tier);

impl FromStr for TierName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(TierName(parse_tier(text)?))
    }
}

impl fmt::Display for TierName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(show_tier(self.0))
    }
}

/// The key of a storage account. It is never printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageKey(pub(crate) AccountKey);

impl FromStr for StorageKey {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(StorageKey(AccountKey::parse(text)?))
    }
}

impl fmt::Display for StorageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The name of a namespace, which is also the first part of a host name and a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamespaceName(pub(crate) String);

const NAMESPACE_NAME_CHARS_MAX: usize = 63;

impl Name for NamespaceName {
    fn parse_name(text: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let edges = text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric());
        if text.len() > NAMESPACE_NAME_CHARS_MAX || !edges || !text.chars().all(fits) {
            return Err(format!(
                "'{text}' is not the name of a namespace; use 1 to {NAMESPACE_NAME_CHARS_MAX} letters, digits and '-', with no '-' at \
                 either end"
            ));
        }
        Ok(NamespaceName(text.to_ascii_lowercase()))
    }

    fn as_text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_can_be_turned_off() {
        let listen = |text: &str| text.parse::<Listen>().map(|listen| listen.to_string()).ok();
        assert_eq!(listen("off").as_deref(), Some("off"));
        assert_eq!(listen("[::1]:7").as_deref(), Some("[::1]:7"));
        assert_eq!(listen("8080").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(listen("localhost"), None);
        assert_eq!(listen("99999"), None);
    }

    #[test]
    fn a_namespace_has_the_name_of_a_host() {
        assert_eq!(NamespaceName::parse_name("Shop-1").unwrap().as_text(), "shop-1");
        for wrong in ["", "-a", "a-", "a.b", "../x", "a/b", &"x".repeat(64)] {
            assert!(NamespaceName::parse_name(wrong).is_err(), "{wrong}");
        }
    }
}
