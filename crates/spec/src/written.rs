//! How one value of a setting is written: as text that people can read, and back.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use peeklock_types::{EntityName, PoisonSession, QueueStatus, RetryPolicy, Tier};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::text;

/// A value that a document holds in its own form.
pub(crate) trait Written: Sized {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

/// A number of bytes: `10MiB`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of bytes that fits a message's own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageSize(pub u32);

impl From<Size> for u64 {
    fn from(size: Size) -> u64 {
        size.0
    }
}

impl From<u64> for Size {
    fn from(size_bytes: u64) -> Size {
        Size(size_bytes)
    }
}

impl From<MessageSize> for u32 {
    fn from(size: MessageSize) -> u32 {
        size.0
    }
}

impl From<u32> for MessageSize {
    fn from(size_bytes: u32) -> MessageSize {
        MessageSize(size_bytes)
    }
}

impl std::str::FromStr for Size {
    type Err = text::TextError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text::parse_size(text).map(Size)
    }
}

impl std::str::FromStr for MessageSize {
    type Err = text::TextError;

    fn from_str(given: &str) -> Result<Self, Self::Err> {
        let size = text::parse_size(given)?;
        let wrong = |_| text::TextError::new(given, "a size of one message", "up to 100MiB");
        u32::try_from(size).map(MessageSize).map_err(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::show_size(self.0))
    }
}

impl fmt::Display for MessageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0.into()).fmt(f)
    }
}

/// Text that a function understands; numbers are taken as the text of their digits where that is allowed.
struct Words<T> {
    what: &'static str,
    numbers: bool,
    parse: fn(&str) -> Result<T, String>,
    made: PhantomData<T>,
}

impl<T> Visitor<'_> for Words<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        if !self.numbers {
            return Err(E::invalid_type(de::Unexpected::Unsigned(number), &self));
        }
        (self.parse)(&number.to_string()).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        if !self.numbers {
            return Err(E::invalid_type(de::Unexpected::Signed(number), &self));
        }
        (self.parse)(&number.to_string()).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        if !self.numbers {
            return Err(E::invalid_type(de::Unexpected::Float(number), &self));
        }
        (self.parse)(&number.to_string()).map_err(E::custom)
    }
}

pub(crate) fn read_text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    what: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Words { what, numbers: false, parse, made: PhantomData })
}

/// Numbers, and the same as text.
pub(crate) fn read_number<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    what: &'static str,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Words { what, numbers: true, parse, made: PhantomData })
}

fn read_size<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    read_number(deserializer, "a size such as 10MiB, or a number of bytes", parse)
}

impl Written for Duration {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text::parse_duration(text).map_err(|error| error.to_string());
        read_text(deserializer, "a duration such as 30s, 1h30m or PT30S", parse)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text::show_duration(*self))
    }
}

impl Written for Size {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_size(deserializer, |text| text.parse().map_err(|error: text::TextError| error.to_string()))
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Written for MessageSize {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_size(deserializer, |text| text.parse().map_err(|error: text::TextError| error.to_string()))
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Written for QueueStatus {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text::parse_status(text).map_err(|error| error.to_string());
        read_text(deserializer, "a status such as active or disabled", parse)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text::show_status(*self))
    }
}

impl Written for Tier {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text::parse_tier(text).map_err(|error| error.to_string());
        read_text(deserializer, "premium or standard", parse)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text::show_tier(*self))
    }
}

impl Written for PoisonSession {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text::parse_poison_session(text).map_err(|error| error.to_string());
        read_text(deserializer, "dead-letter, block or set-aside", parse)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text::show_poison_session(*self))
    }
}

impl Written for RetryPolicy {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| text::parse_retry(text).map_err(|error| error.to_string());
        read_text(deserializer, "a retry policy such as immediate or fixed:5s", parse)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text::show_retry(*self))
    }
}

impl Written for EntityName {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| EntityName::parse(text).map_err(|error| error.to_string());
        read_text(deserializer, "the name of an entity", parse)
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

macro_rules! as_serde_has_it {
    ($($kind:ty),*) => { $(
        impl $crate::written::Written for $kind {
            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <Self as serde::Deserialize>::deserialize(deserializer)
            }

            fn write<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <Self as serde::Serialize>::serialize(self, serializer)
            }
        }
    )* };
}
pub(crate) use as_serde_has_it;
as_serde_has_it!(bool, u32, String);

/// For `serde`: the form of a [`Written`] value.
pub(crate) struct Form<T>(pub(crate) T);

impl<'de, T: Written> Deserialize<'de> for Form<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Form)
    }
}

impl<T: Written> Serialize for Form<&T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

/// A setting that cannot be absent: left out it stays as it is, and `null` is refused.
pub(crate) mod required {
    use super::{Deserializer, Serializer, Written};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Written>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        T::read(deserializer).map(Some)
    }

    pub(crate) fn serialize<S: Serializer, T: Written>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => value.write(serializer),
            None => serializer.serialize_none(),
        }
    }
}

/// A setting that can be absent: left out it stays as it is, and `null` clears it.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Form, Serialize, Serializer, Written};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Written>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        let value = Option::<Form<T>>::deserialize(deserializer)?;
        Ok(Some(value.map(|form| form.0)))
    }

    pub(crate) fn serialize<S: Serializer, T: Written>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().and_then(Option::as_ref).map(Form).serialize(serializer)
    }
}

/// A value inside of one that is said as a whole: left out or `null`, it is not there.
pub(crate) mod nullable {
    use super::{Deserialize, Deserializer, Form, Serialize, Serializer, Written};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Written>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<Form<T>>::deserialize(deserializer)?.map(|form| form.0))
    }

    pub(crate) fn serialize<S: Serializer, T: Written>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Form).serialize(serializer)
    }
}
