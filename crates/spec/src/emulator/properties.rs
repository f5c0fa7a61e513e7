//! Values under `Properties`, where `""` means absent.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use peeklock_types::{EntityName, PoisonSession, QueueStatus, RetryPolicy};
use serde::de::{self, Deserializer, Visitor};

use crate::{iso8601, text};

/// A value with a text form.
pub(super) trait FromText: Sized {
    const WHAT: &'static str;
    fn from_text(text: &str) -> Result<Self, String>;
}

/// A time to live or a time until an idle entity is deleted. `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime(pub(super) Option<Duration>);

impl FromText for Lifetime {
    const WHAT: &'static str = Duration::WHAT;

    fn from_text(text: &str) -> Result<Self, String> {
        Duration::from_text(text)
            .map(|span| Lifetime(Some(span).filter(|span| *span < iso8601::INFINITE_FROM)))
    }
}

impl FromText for Duration {
    const WHAT: &'static str = "a duration such as PT30S or P1D";

    fn from_text(text: &str) -> Result<Self, String> {
        iso8601::parse(text).or_else(|error| text::parse_duration(text).map_err(|_| error.to_string()))
    }
}

impl FromText for EntityName {
    const WHAT: &'static str = "the name of an entity";

    fn from_text(text: &str) -> Result<Self, String> {
        EntityName::parse(text).map_err(|error| error.to_string())
    }
}

impl FromText for QueueStatus {
    const WHAT: &'static str = "a status such as Active";

    fn from_text(text: &str) -> Result<Self, String> {
        text::parse_status(text).map_err(|error| error.to_string())
    }
}

impl FromText for RetryPolicy {
    const WHAT: &'static str = "a retry policy such as fixed:5s";

    fn from_text(text: &str) -> Result<Self, String> {
        text::parse_retry(text).map_err(|error| error.to_string())
    }
}

impl FromText for PoisonSession {
    const WHAT: &'static str = "dead-letter, block or set-aside";

    fn from_text(text: &str) -> Result<Self, String> {
        text::parse_poison_session(text).map_err(|error| error.to_string())
    }
}

impl FromText for String {
    const WHAT: &'static str = "text";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

/// For `serde`: text, with `""` and `null` for an absent value.
pub(super) fn unless_empty<'de, D: Deserializer<'de>, T: FromText>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(UnlessEmpty(PhantomData))
}

struct UnlessEmpty<T>(PhantomData<T>);

impl<T: FromText> Visitor<'_> for UnlessEmpty<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::WHAT)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text.is_empty() {
            return Ok(None);
        }
        T::from_text(text).map(Some).map_err(E::custom)
    }
}

/// Reads a count. One of the emulators' published schemas has it as text.
pub(super) fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    deserializer.deserialize_any(NumberOrText)
}

struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        u32::try_from(number).map(Some).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}
