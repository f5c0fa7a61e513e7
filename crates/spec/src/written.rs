//! The document form of one value of a setting.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use peeklock_types::{EntityName, PoisonSession, QueueStatus, RetryPolicy, Tier};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::text::{self, NONE};

/// A value with its own form in documents.
pub(crate) trait Written: Sized {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
    fn schema(generator: &mut SchemaGenerator) -> Schema;
}

/// A value that tables show as text, in the form of its flag.
pub(crate) trait Shown {
    fn shown(&self) -> String;
}

/// A value of a setting in documents, and the engine's value for it.
pub(crate) trait Setting {
    type Value;
    fn of(value: &Self::Value) -> Self;
    fn value(&self) -> Self::Value;
}

/// A value that can be absent: `null` in JSON, `none` elsewhere. `clap` treats an `Option` in an `Option` as a flag with an optional value,
/// but not this alias.
pub type Maybe<T> = Option<T>;

/// A number of bytes: `10MiB`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of bytes within the limit of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageSize(pub u32);

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

/// Text that a function parses. Numbers are parsed as the text of their digits where that is allowed.
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

/// The JSON types that a value is read from.
#[derive(Clone, Copy)]
pub(crate) enum ReadFrom {
    Text,
    /// A number, or the same as text.
    Number,
}

impl ReadFrom {
    pub(crate) fn read<'de, D: Deserializer<'de>, T>(
        self,
        deserializer: D,
        what: &'static str,
        parse: fn(&str) -> Result<T, String>,
    ) -> Result<T, D::Error> {
        let numbers = matches!(self, ReadFrom::Number);
        deserializer.deserialize_any(Words { what, numbers, parse, made: PhantomData })
    }

    pub(crate) fn schema(self, what: &str) -> Schema {
        match self {
            ReadFrom::Text => json_schema!({ "type": "string", "description": what }),
            ReadFrom::Number => json_schema!({ "type": ["number", "string"], "description": what }),
        }
    }
}

/// Declares a [`Written`] value: its description, its JSON types and parser, its serialization, and further keys of its JSON schema.
macro_rules! written {
    (
        $kind:ty, $what:literal, $from:ident($parse:expr), |$value:ident, $to:ident| $write:expr
        $(, { $( $key:literal: $more:expr ),* })?
    ) => {
        impl $crate::written::Written for $kind {
            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let parse = |text: &str| $parse(text).map_err(|error| error.to_string());
                $crate::written::ReadFrom::$from.read(deserializer, $what, parse)
            }

            fn write<S: serde::Serializer>(&self, $to: S) -> Result<S::Ok, S::Error> {
                let $value = self;
                $write
            }

            fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                #[allow(unused_mut, reason = "some values have no further keys")]
                let mut schema = $crate::written::ReadFrom::$from.schema($what);
                $( $( schema.insert($key.to_owned(), serde_json::json!($more)); )* )?
                schema
            }
        }
    };
}
pub(crate) use written;

/// Declares values that have the same text in documents and tables.
macro_rules! as_text {
    ($( $kind:ty: $what:literal, $from:ident($parse:expr), $show:expr $(, $schema:tt)?; )*) => { $(
        written!($kind, $what, $from($parse), |value, to| to.serialize_str(&value.shown()) $(, $schema)?);

        impl Shown for $kind {
            fn shown(&self) -> String {
                $show(self).into()
            }
        }
    )* };
}

as_text! {
    Duration: "a duration such as 30s, 1h30m or PT30S", Text(text::parse_duration), |span: &Duration| text::show_duration(*span);
    Size: "a size such as 10MiB, or a number of bytes", Number(str::parse::<Size>), ToString::to_string;
    MessageSize: "a size such as 10MiB, or a number of bytes", Number(str::parse::<MessageSize>), ToString::to_string;
    QueueStatus: "a status such as active or disabled", Text(text::parse_status), |status: &QueueStatus| text::show_status(*status),
        { "enum": text::STATUSES.map(|(word, _)| word) };
    Tier: "premium or standard", Text(text::parse_tier), |tier: &Tier| text::show_tier(*tier);
    PoisonSession: "dead-letter, block or set-aside", Text(text::parse_poison_session), |rule: &PoisonSession| text::show_poison_session(*rule),
        { "enum": text::POISON_SESSIONS.map(|(word, _)| word) };
    RetryPolicy: "a retry policy such as immediate or fixed:5s", Text(text::parse_retry), |policy: &RetryPolicy| text::show_retry(*policy);
    EntityName: "the name of an entity", Text(EntityName::parse), EntityName::as_str;
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

            fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                generator.subschema_for::<Self>()
            }
        }
    )* };
}
pub(crate) use as_serde_has_it;
as_serde_has_it!(bool, u32, String);

macro_rules! shown_as_it_is {
    ($($kind:ty),*) => { $(
        impl Shown for $kind {
            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )* };
}
shown_as_it_is!(bool, u32, String);

impl<T: Written> Written for Maybe<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<Form<T>>::deserialize(deserializer)?.map(|form| form.0))
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(Borrowed).serialize(serializer)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Option<Form<T>>>()
    }
}

impl<T: Shown> Shown for Maybe<T> {
    fn shown(&self) -> String {
        self.as_ref().map_or_else(|| NONE.to_owned(), T::shown)
    }
}

macro_rules! setting_is_the_same {
    ($($kind:ty),*) => { $(
        impl Setting for $kind {
            type Value = $kind;

            fn of(value: &$kind) -> $kind {
                value.clone()
            }

            fn value(&self) -> $kind {
                self.clone()
            }
        }
    )* };
}
setting_is_the_same!(bool, u32, String, Duration, EntityName, PoisonSession, QueueStatus, RetryPolicy);

impl Setting for Size {
    type Value = u64;

    fn of(size_bytes: &u64) -> Self {
        Size(*size_bytes)
    }

    fn value(&self) -> u64 {
        self.0
    }
}

impl Setting for MessageSize {
    type Value = u32;

    fn of(size_bytes: &u32) -> Self {
        MessageSize(*size_bytes)
    }

    fn value(&self) -> u32 {
        self.0
    }
}

impl<T: Setting> Setting for Maybe<T> {
    type Value = Option<T::Value>;

    fn of(value: &Self::Value) -> Self {
        value.as_ref().map(T::of)
    }

    fn value(&self) -> Self::Value {
        self.as_ref().map(T::value)
    }
}

/// For `serde`: the document form of a [`Written`] value.
pub(crate) struct Form<T>(pub(crate) T);

impl<'de, T: Written> Deserialize<'de> for Form<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Form)
    }
}

impl<T: Written> Serialize for Form<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

impl<T: Written> JsonSchema for Form<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Form")
    }

    fn schema_id() -> Cow<'static, str> {
        Cow::Borrowed(std::any::type_name::<Self>())
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::schema(generator)
    }
}

/// The document form of a borrowed value.
struct Borrowed<'a, T>(&'a T);

impl<T: Written> Serialize for Borrowed<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

/// For `serde`: a setting that stays as it is if a document leaves it out. `null` removes a [`Maybe`] value and is rejected for others.
pub(crate) mod setting {
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

/// For `serde`: a value that is absent if a document leaves it out or contains `null`.
pub(crate) mod nullable {
    use super::{Deserializer, Serializer, Written};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Written>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        Written::read(deserializer)
    }

    pub(crate) fn serialize<S: Serializer, T: Written>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.write(serializer)
    }
}
