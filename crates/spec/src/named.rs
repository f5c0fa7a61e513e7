//! Tables with names as keys, in the order of the document.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use peeklock_filter::RuleName;
use peeklock_types::{EntityName, NameError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// The key of a [`Named`] table. Names that differ only in case are equal.
pub trait Name: Sized {
    fn parse_name(text: &str) -> Result<Self, String>;
    fn as_text(&self) -> &str;
}

impl Name for EntityName {
    fn parse_name(text: &str) -> Result<Self, String> {
        EntityName::parse(text).map_err(|error| error.to_string())
    }

    fn as_text(&self) -> &str {
        self.as_str()
    }
}

impl Name for String {
    fn parse_name(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn as_text(&self) -> &str {
        self
    }
}

impl Name for RuleName {
    fn parse_name(text: &str) -> Result<Self, String> {
        RuleName::parse(text).map_err(|error| error.to_string())
    }

    fn as_text(&self) -> &str {
        self.as_str()
    }
}

/// The name of a subscription without its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionName(String);

impl SubscriptionName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        // The rules for names do not depend on the topic.
        let topic = EntityName::parse("topic")?;
        EntityName::subscription(&topic, text).map(|_| SubscriptionName(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Name for SubscriptionName {
    fn parse_name(text: &str) -> Result<Self, String> {
        SubscriptionName::parse(text).map_err(|error| error.to_string())
    }

    fn as_text(&self) -> &str {
        &self.0
    }
}

/// A table with names as keys. Each name occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<K, T>(pub Vec<(K, T)>);

impl<K, T> Default for Named<K, T> {
    fn default() -> Self {
        Named(Vec::new())
    }
}

impl<'de, K: Name, T: Deserialize<'de>> Deserialize<'de> for Named<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

impl<K: Name, T: Serialize> Serialize for Named<K, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name.as_text(), value)))
    }
}

impl<K, T: JsonSchema> JsonSchema for Named<K, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Owned(format!("Named{}", T::schema_name()))
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}

struct NamedVisitor<K, T>(PhantomData<(K, T)>);

impl<'de, K: Name, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<K, T> {
    type Value = Named<K, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table from names to what they name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let (mut named, mut seen) = (Vec::new(), HashSet::new());
        // The name is checked while it is read, so that an error has its place.
        while let Some(name) = entries.next_key_seed(Unseen(&mut seen, PhantomData))? {
            named.push((name, entries.next_value()?));
        }
        Ok(Named(named))
    }
}

struct Unseen<'a, K>(&'a mut HashSet<String>, PhantomData<K>);

impl<'de, K: Name> DeserializeSeed<'de> for Unseen<'_, K> {
    type Value = K;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<K, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<K: Name> Visitor<'_> for Unseen<'_, K> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<K, E> {
        let name = K::parse_name(text).map_err(E::custom)?;
        if !self.0.insert(text.to_lowercase()) {
            return Err(E::custom(format!("the name '{text}' is given twice; case makes no difference")));
        }
        Ok(name)
    }
}
