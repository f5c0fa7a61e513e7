//! Queue groups in configuration files.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use peeklock_types::{EntityName, MemberSettings, OrderPolicy, OrderSettings, QueueGroupSettings};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::written::{Form, nullable};

/// Queues and subscriptions under one name for receivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QueueGroupSpec {
    /// The members, with the most urgent first.
    pub members: Vec<MemberSpec>,
    #[serde(with = "nullable", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Form<OrderPolicy>>")]
    pub order: Option<OrderPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_outstanding: Option<u32>,
}

/// A member by its name, or as a table: `"jobs"`, `{ name = "jobs", weight = 4 }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSpec(pub MemberSettings);

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct MemberForm {
    name: Form<EntityName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<Form<Duration>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
}

impl QueueGroupSpec {
    pub fn of(settings: &QueueGroupSettings) -> Self {
        QueueGroupSpec {
            members: settings.members.iter().cloned().map(MemberSpec).collect(),
            order: Some(settings.policy),
            max_outstanding: Some(settings.max_outstanding),
        }
    }

    pub fn settings(&self) -> QueueGroupSettings {
        QueueGroupSettings {
            policy: self.order.unwrap_or_default(),
            members: self.members.iter().map(|member| member.0.clone()).collect(),
            max_outstanding: self.max_outstanding.unwrap_or(OrderSettings::MAX_OUTSTANDING),
        }
    }
}

impl<'de> Deserialize<'de> for MemberSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Member)
    }
}

impl JsonSchema for MemberSpec {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("QueueGroupMember")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, generator.subschema_for::<MemberForm>()] })
    }
}

struct Member;

impl<'de> Visitor<'de> for Member {
    type Value = MemberSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a queue or subscription, or a table with its name")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<MemberSpec, E> {
        EntityName::parse(text).map(|name| MemberSpec(MemberSettings::new(name))).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<MemberSpec, A::Error> {
        let MemberForm { name, offset, weight } =
            MemberForm::deserialize(MapAccessDeserializer::new(entries))?;
        Ok(MemberSpec(MemberSettings { name: name.0, offset: offset.map(|form| form.0), weight }))
    }
}

impl Serialize for MemberSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let MemberSettings { name, offset, weight } = &self.0;
        if offset.is_none() && weight.is_none() {
            return serializer.serialize_str(name.as_str());
        }
        MemberForm { name: Form(name.clone()), offset: offset.map(Form), weight: *weight }
            .serialize(serializer)
    }
}
