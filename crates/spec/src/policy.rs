//! Shared access policies in documents.

use std::borrow::Cow;

use peeklock_access::{Policy, PolicyChange, PolicyError, Right, Rights, Secret};
use peeklock_types::{EntityName, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};
use serde::{Deserialize as DeriveDeserialize, Serialize as DeriveSerialize};

use crate::text::TextError;
use crate::written::setting;

/// A policy: the rights of its keys, and the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, DeriveSerialize, DeriveDeserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "PolicySettings")]
pub struct PolicySpec {
    /// In configuration files: the queue or topic of the policy. The default is the whole namespace.
    #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub entity: Option<EntityName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rights: Option<RightList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_key: Option<KeyText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secondary_key: Option<KeyText>,
}

/// Rights as a list of words: `["Send", "Listen"]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RightList(pub Rights);

/// A key as text. It is serialized in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyText(pub Secret);

impl PolicySpec {
    /// Returns a spec of the whole policy with its keys.
    pub fn of(policy: &Policy) -> Self {
        PolicySpec {
            entity: policy.scope.clone(),
            rights: Some(RightList(policy.rights)),
            primary_key: Some(KeyText(policy.primary.clone())),
            secondary_key: Some(KeyText(policy.secondary.clone())),
        }
    }

    /// Returns the change of a policy.
    pub fn change(&self) -> PolicyChange {
        PolicyChange {
            rights: self.rights.map(|list| list.0),
            primary: self.primary_key.clone().map(|key| key.0),
            secondary: self.secondary_key.clone().map(|key| key.0),
        }
    }

    /// Returns the policy that a configuration file declares. It requires a key; one is enough.
    pub fn declared(&self, name: &str) -> Result<Policy, DeclaredPolicyError> {
        let key = self.primary_key.as_ref().or(self.secondary_key.as_ref());
        let key = key.ok_or_else(|| DeclaredPolicyError::NoKey { name: name.to_owned() })?;
        let or_key = |given: &Option<KeyText>| given.as_ref().unwrap_or(key).0.clone();
        let policy = Policy {
            name: name.to_owned(),
            scope: self.entity.clone(),
            rights: self.rights.map_or(Rights::ALL, |list| list.0),
            primary: or_key(&self.primary_key),
            secondary: or_key(&self.secondary_key),
            created_at: Timestamp::ZERO,
            modified_at: Timestamp::ZERO,
        };
        policy.check()?;
        Ok(policy)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclaredPolicyError {
    #[error(
        "the policy '{name}' has no key; give it a primary-key, for example one made by `openssl rand -base64 32`"
    )]
    NoKey { name: String },
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl Serialize for RightList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Right::name))
    }
}

impl<'de> Deserialize<'de> for RightList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<RightWord>::deserialize(deserializer)?;
        Ok(RightList(words.into_iter().map(|word| word.0).collect()))
    }
}

struct RightWord(Right);

impl<'de> Deserialize<'de> for RightWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let wrong = || de::Error::custom(TextError::new(&word, "a right", "Send, Listen or Manage"));
        Right::parse(&word).map(RightWord).ok_or_else(wrong)
    }
}

impl FromIterator<Right> for RightList {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        RightList(rights.into_iter().collect())
    }
}

impl JsonSchema for RightList {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Rights")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words = Rights::ALL.iter().map(Right::name).collect::<Vec<_>>();
        json_schema!({ "type": "array", "items": { "type": "string", "enum": words } })
    }
}

impl JsonSchema for KeyText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Key")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        String::json_schema(generator)
    }
}

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| KeyText(Secret::new(text)))
    }
}
