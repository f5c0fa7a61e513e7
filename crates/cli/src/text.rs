//! Text on the command line that means something: durations, sizes, addresses, keys, properties.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use peeklock_server::{AccessKey, Right};

/// From small to large.
const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 5] =
    [("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// `500ms`, `30s`, `5m`, `1h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration> {
    let millis = parse_with_unit(text, &DURATION_UNITS);
    millis
        .map(Duration::from_millis)
        .with_context(|| format!("'{text}' is not a duration; write 500ms, 30s, 5m, 1h or 7d"))
}

/// In the largest unit that takes no fraction, as it can be said again.
pub(crate) fn show_duration(span: Duration) -> String {
    let millis = span.as_millis();
    let unit = DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, unit)| millis >= u128::from(*unit) && millis.is_multiple_of(u128::from(*unit)));
    let (name, unit) = unit.unwrap_or(&DURATION_UNITS[0]);
    format!("{}{name}", millis / u128::from(*unit))
}

/// `1000`, `64KiB`, `100MiB`, `1GiB`, `2TiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64> {
    parse_with_unit(text, &SIZE_UNITS)
        .with_context(|| format!("'{text}' is not a size; write 1000 (bytes), 64KiB, 100MiB, 1GiB or 2TiB"))
}

pub(crate) fn show_size(size_bytes: u64) -> String {
    let unit =
        SIZE_UNITS.iter().rev().find(|(_, unit)| size_bytes >= *unit && size_bytes.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(&SIZE_UNITS[0]);
    format!("{}{name}", size_bytes / unit)
}

/// Digits and the name of a unit.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, name) = text.split_at_checked(digits)?;
    let (_, unit) = units.iter().find(|(known, _)| *known == name)?;
    number.parse::<u64>().ok()?.checked_mul(*unit)
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl Listen {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text == "off" {
            return Ok(Listen(None));
        }
        let wrong = || format!("'{text}' is not an address such as 127.0.0.1:5671, nor 'off'");
        text.parse().map(|address| Listen(Some(address))).with_context(wrong)
    }
}

/// `NAME=SECRET[:Send,Listen,Manage]`, with all rights when none are named.
#[derive(Clone)]
pub(crate) struct KeySpec {
    pub(crate) name: String,
    pub(crate) secret: String,
    pub(crate) rights: Vec<Right>,
}

impl KeySpec {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // The text is not repeated in errors: it holds a secret.
        let Some((name, rest)) = text.split_once('=') else { bail!("a key is written NAME=SECRET") };
        // A secret may hold a colon itself, so what follows one counts as rights only if it reads as such.
        let (secret, rights) = match rest.rsplit_once(':').map(|(secret, list)| (secret, parse_rights(list)))
        {
            Some((secret, Some(rights))) => (secret, rights),
            _ => (rest, vec![Right::Manage]),
        };
        if name.is_empty() || secret.is_empty() {
            bail!("a key needs a name and a secret: NAME=SECRET");
        }
        Ok(KeySpec { name: name.to_owned(), secret: secret.to_owned(), rights })
    }

    pub(crate) fn into_key(self) -> AccessKey {
        AccessKey::new(self.name, self.secret, self.rights)
    }
}

fn parse_rights(list: &str) -> Option<Vec<Right>> {
    let right = |name: &str| match name.to_ascii_lowercase().as_str() {
        "send" => Some(Right::Send),
        "listen" => Some(Right::Listen),
        "manage" => Some(Right::Manage),
        _ => None,
    };
    list.split(',').map(right).collect()
}

/// `key=value`.
pub(crate) fn parse_property(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => bail!("'{text}' is not a property; write key=value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("30s").unwrap(), Duration::from_secs(30));
        assert_eq!(parse_duration("5m").unwrap(), Duration::from_secs(300));
        assert_eq!(parse_duration("1h").unwrap(), Duration::from_secs(3600));
        assert_eq!(parse_duration("7d").unwrap(), Duration::from_secs(7 * 86_400));
        for wrong in ["", "5", "s", "1w", "-1s", "1.5s", "99999999999999999999s", "9999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        assert_eq!(parse_size("1000").unwrap(), 1000);
        assert_eq!(parse_size("64KiB").unwrap(), 65_536);
        assert_eq!(parse_size("1GiB").unwrap(), 1 << 30);
        for wrong in ["", "GiB", "1GB", "1 GiB", "-1", "1.5MiB", "99999999999TiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_can_be_said_again() {
        for text in ["0ms", "1ms", "1500ms", "30s", "90s", "5m", "1h", "36h", "7d"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
        for text in ["0", "1000", "1025", "1KiB", "100MiB", "1GiB", "2TiB"] {
            assert_eq!(show_size(parse_size(text).unwrap()), text);
        }
        assert_eq!(show_duration(Duration::from_secs(120)), "2m");
    }

    #[test]
    fn a_key_has_all_rights_unless_it_names_some() {
        let key = KeySpec::parse("app=s3cret").unwrap();
        assert_eq!(
            (key.name.as_str(), key.secret.as_str(), key.rights),
            ("app", "s3cret", vec![Right::Manage])
        );
        let key = KeySpec::parse("app=a=b:c==:Send,listen").unwrap();
        assert_eq!((key.secret.as_str(), key.rights), ("a=b:c==", vec![Right::Send, Right::Listen]));
        let key = KeySpec::parse("app=with:colon").unwrap();
        assert_eq!(key.secret, "with:colon");
        for wrong in ["app", "=x", "app=", "app=:Send"] {
            assert!(KeySpec::parse(wrong).is_err(), "{wrong}");
        }
        let told = KeySpec::parse("hidden").err().unwrap().to_string();
        assert!(!told.contains("hidden"), "{told}");
    }

    #[test]
    fn listening_can_be_turned_off() {
        assert_eq!(Listen::parse("off").unwrap(), Listen(None));
        assert_eq!(Listen::parse("[::1]:7").unwrap(), Listen(Some("[::1]:7".parse().unwrap())));
        assert!(Listen::parse("localhost").is_err());
    }

    #[test]
    fn a_property_has_a_name() {
        assert_eq!(parse_property("a=b=c").unwrap(), ("a".to_owned(), "b=c".to_owned()));
        assert!(parse_property("=b").is_err());
        assert!(parse_property("a").is_err());
    }
}
