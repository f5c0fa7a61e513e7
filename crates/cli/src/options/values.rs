//! The values of options and their text forms.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use peeklock_server::{AccountKey, WebOrigin};
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

/// The origins of web pages, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origins(pub(crate) Vec<WebOrigin>);

impl FromStr for Origins {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parsed = |origin: &str| {
            origin.trim().parse::<WebOrigin>().map_err(|error| anyhow!("'{origin}' is {error}"))
        };
        Ok(Origins(text.split(',').map(parsed).collect::<Result<_>>()?))
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origins: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&origins.join(","))
    }
}

/// Host names, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hosts(pub(crate) Vec<String>);

impl FromStr for Hosts {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let parsed = |host: &str| match host.trim() {
            host if !host.is_empty() && host.chars().all(is_part) => Ok(host.to_ascii_lowercase()),
            host => {
                bail!("'{host}' is not a host name; write it without scheme and port, such as broker.example")
            }
        };
        Ok(Hosts(text.split(',').map(parsed).collect::<Result<_>>()?))
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Names of a certificate, separated by commas: host names, also with `*` as the first label, and IP addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsNames(pub(crate) Vec<String>);

impl FromStr for TlsNames {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let parsed = |name: &str| {
            let name = name.trim();
            let host = name.strip_prefix("*.").unwrap_or(name);
            let is_host = !host.is_empty() && host.chars().all(is_part);
            if is_host || name.parse::<IpAddr>().is_ok() {
                return Ok(name.to_ascii_lowercase());
            }
            bail!(
                "'{name}' is neither a host name nor an IP address; write it without scheme and port, such as broker.example"
            )
        };
        Ok(TlsNames(text.split(',').map(parsed).collect::<Result<_>>()?))
    }
}

impl fmt::Display for TlsNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
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
    fn lists_of_origins_and_hosts_are_checked() {
        let origins = |text: &str| text.parse::<Origins>().map(|origins| origins.to_string());
        assert_eq!(
            origins("https://A:443, http://localhost:3000/").unwrap(),
            "https://a,http://localhost:3000"
        );
        for wrong in ["", "*", "https://a,", "a.example", "https://a/path"] {
            let error = origins(wrong).unwrap_err().to_string();
            assert!(error.contains("https://shop.example"), "{error}");
        }
        let hosts = |text: &str| text.parse::<Hosts>().map(|hosts| hosts.to_string()).ok();
        assert_eq!(hosts("Broker.example,b2").as_deref(), Some("broker.example,b2"));
        for wrong in ["", "a:1", "https://a", "a,", "*"] {
            assert_eq!(hosts(wrong), None, "{wrong}");
        }
        let names = |text: &str| text.parse::<TlsNames>().map(|names| names.to_string()).ok();
        assert_eq!(names("A.example,*.b.example, ::1").as_deref(), Some("a.example,*.b.example,::1"));
        for wrong in ["", "*", "a:1", "https://a"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_namespace_has_the_name_of_a_host() {
        assert_eq!(NamespaceName::parse_name("Shop-1").unwrap().as_text(), "shop-1");
        for wrong in ["", "-a", "a-", "a.b", "../x", "a/b", &"x".repeat(64)] {
            assert!(NamespaceName::parse_name(wrong).is_err(), "{wrong}");
        }
    }
}
