//! Event hubs in documents.

use std::borrow::Cow;
use std::time::Duration;

use peeklock_types::{ConsumerGroup, ExpiredPosition, HubSettings, QueueStatus, limits};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

#[cfg(feature = "cli")]
use crate::flag::{or_none, text_unless_empty};
use crate::schema;
use crate::text::{self, NONE, TextError};
use crate::written::{Form, Maybe, Size, Written, setting, written};

/// The names of the ways to treat a reader whose next event has expired.
pub const EXPIRED_POSITIONS: [(&str, ExpiredPosition); 2] =
    [("refuse", ExpiredPosition::Refuse), ("earliest", ExpiredPosition::Earliest)];

const HOUR_MS: f64 = 3_600_000.0;

/// An event hub. The documentation of a field is the help of its flag.
///
/// `None` leaves a setting as it is. Where a setting can be absent, `Some(None)` removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "HubForm")]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct HubSpec {
    /// How many partitions; 4 unless said
    #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long = "partitions", value_name = "COUNT", visible_alias = "partition-count",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::PARTITIONS_MAX))))]
    pub partition_count: Option<u32>,
    /// How long events are kept at least, or 'none' for ever; 1d unless said
    // Documents may use the key `retention` (`7d`, `PT1H`) as well.
    #[serde(rename = "retentionHours", serialize_with = "hours", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", value_parser = or_none(text::parse_duration)))]
    pub retention: Option<Maybe<Duration>>,
    /// How much one partition keeps at most, about, or 'none' for what the disk holds
    #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "SIZE", value_parser = or_none(str::parse::<Size>)))]
    pub retention_bytes: Option<Maybe<Size>>,
    /// What becomes of a reader whose next event is gone: 'refuse', or go on at the 'earliest' that is there
    #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WHAT", value_parser = parse_expired_position))]
    pub expired_position: Option<ExpiredPosition>,
    /// active, send-disabled, receive-disabled or disabled
    #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = text::parse_status))]
    pub status: Option<QueueStatus>,
    /// Anything that its owner wants to note; '' removes it
    #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT", value_parser = text_unless_empty))]
    pub user_metadata: Option<Maybe<String>>,
    /// A consumer group beside $Default; may be repeated
    // An update adds these groups to the existing ones.
    #[serde(with = "groups", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long = "group", value_name = "NAME", value_parser = ConsumerGroup::parse))]
    pub consumer_groups: Option<Vec<ConsumerGroup>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct HubForm {
    #[serde(with = "setting")]
    partition_count: Option<u32>,
    #[serde(with = "setting")]
    retention_hours: Option<Maybe<Hours>>,
    #[serde(with = "setting")]
    retention: Option<Maybe<Retention>>,
    #[serde(with = "setting")]
    retention_bytes: Option<Maybe<Size>>,
    #[serde(with = "setting")]
    expired_position: Option<ExpiredPosition>,
    #[serde(with = "setting")]
    status: Option<QueueStatus>,
    #[serde(with = "setting")]
    user_metadata: Option<Maybe<String>>,
    #[serde(with = "groups")]
    consumer_groups: Option<Vec<ConsumerGroup>>,
}

impl TryFrom<HubForm> for HubSpec {
    type Error = &'static str;

    fn try_from(form: HubForm) -> Result<Self, Self::Error> {
        let HubForm { partition_count, retention_hours, retention, .. } = form;
        let hours = retention_hours.map(|hours| hours.map(|hours| hours.0));
        let span = retention.map(|span| span.and_then(|span| span.0));
        let retention = match (hours, span) {
            (Some(hours), Some(span)) if hours != span => {
                return Err("retentionHours and retention say different things; leave one of them out");
            }
            (hours, span) => hours.or(span),
        };
        Ok(HubSpec {
            partition_count,
            retention,
            retention_bytes: form.retention_bytes,
            expired_position: form.expired_position,
            status: form.status,
            user_metadata: form.user_metadata,
            consumer_groups: form.consumer_groups,
        })
    }
}

impl HubSpec {
    /// Returns a spec with every setting.
    pub fn of(settings: &HubSettings) -> Self {
        HubSpec {
            partition_count: Some(settings.partition_count),
            retention: Some(settings.retention),
            retention_bytes: Some(settings.retention_bytes.map(Size)),
            expired_position: Some(settings.expired_position),
            status: Some(settings.status),
            user_metadata: Some(settings.user_metadata.clone()),
            consumer_groups: None,
        }
    }

    /// Changes the settings that have a value here. [`HubSettings::check`] decides whether the result is valid.
    pub fn apply(&self, settings: &mut HubSettings) {
        let HubSpec { partition_count, retention, retention_bytes, expired_position, status, .. } = self;
        settings.partition_count = partition_count.unwrap_or(settings.partition_count);
        settings.retention = retention.unwrap_or(settings.retention);
        settings.expired_position = expired_position.unwrap_or(settings.expired_position);
        settings.status = status.unwrap_or(settings.status);
        if let Some(bytes) = retention_bytes {
            settings.retention_bytes = bytes.map(|size| size.0);
        }
        if let Some(text) = &self.user_metadata {
            settings.user_metadata.clone_from(text);
        }
    }

    /// Returns the settings of a new hub.
    pub fn settings(&self) -> HubSettings {
        let mut settings = HubSettings::default();
        self.apply(&mut settings);
        settings
    }

    /// Returns the named groups, each once and without `$Default`, which always exists.
    pub fn groups(&self) -> Vec<ConsumerGroup> {
        let mut groups: Vec<ConsumerGroup> = Vec::new();
        for group in self.consumer_groups.iter().flatten() {
            if !group.is_default() && !groups.contains(group) {
                groups.push(group.clone());
            }
        }
        groups
    }

    /// Checks whether this is a valid new hub.
    pub fn check(&self) -> Result<(), String> {
        self.settings().check().map_err(|error| error.to_string())?;
        let count = self.groups().len();
        // The limit includes `$Default`, which the count does not.
        if count >= limits::CONSUMER_GROUPS_MAX {
            let max = limits::CONSUMER_GROUPS_MAX;
            return Err(format!(
                "{count} consumer groups beside $Default are too many; a hub has {max} at most"
            ));
        }
        Ok(())
    }
}

pub fn parse_expired_position(text: &str) -> Result<ExpiredPosition, TextError> {
    text::parse_word(text, "what becomes of a reader whose events are gone", &EXPIRED_POSITIONS)
}

pub fn show_expired_position(position: ExpiredPosition) -> &'static str {
    text::word_of(&EXPIRED_POSITIONS, position)
}

written!(
    ExpiredPosition,
    "refuse or earliest",
    Text(parse_expired_position),
    |position, to| to.serialize_str(show_expired_position(*position)),
    { "enum": EXPIRED_POSITIONS.map(|(word, _)| word) }
);

/// A duration as a number of hours.
struct Hours(Duration);

written!(Hours, "a number of hours", Number(parse_hours), |hours, to| {
    let seconds = hours.0.as_secs();
    if hours.0.subsec_nanos() == 0 && seconds.is_multiple_of(3600) {
        return to.serialize_u64(seconds / 3600);
    }
    to.serialize_f64(hours.0.as_secs_f64() / 3600.0)
});

fn parse_hours(text: &str) -> Result<Hours, String> {
    let hours: Option<f64> = text.parse().ok();
    let span = hours.and_then(|hours| Duration::try_from_secs_f64((hours * HOUR_MS).round() / 1000.0).ok());
    let wrong = || format!("'{text}' is not a number of hours; write 24, or 0.5 for half an hour");
    span.map(Hours).ok_or_else(wrong)
}

fn hours<S: Serializer>(value: &Option<Maybe<Duration>>, serializer: S) -> Result<S::Ok, S::Error> {
    match value.flatten() {
        Some(span) => Hours(span).write(serializer),
        None => serializer.serialize_none(),
    }
}

/// A duration, or `none` where there is no `null`.
struct Retention(Option<Duration>);

written!(
    Retention,
    "a duration such as 7d or PT1H, or none to keep events for ever",
    Text(parse_retention),
    |retention, to| match retention.0 {
        Some(span) => span.write(to),
        None => to.serialize_str(NONE),
    }
);

fn parse_retention(text: &str) -> Result<Retention, TextError> {
    match text {
        NONE => Ok(Retention(None)),
        _ => text::parse_duration(text).map(|span| Retention(Some(span))),
    }
}

written!(ConsumerGroup, "the name of a consumer group", Text(ConsumerGroup::parse), |group, to| to
    .serialize_str(group.as_str()));

impl JsonSchema for HubSpec {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("HubSettings")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut settings = vec![
            ("partition_count", generator.subschema_for::<u32>()),
            ("retention_hours", generator.subschema_for::<Form<Maybe<Hours>>>()),
            ("retention_bytes", generator.subschema_for::<Form<Maybe<Size>>>()),
            ("expired_position", generator.subschema_for::<Form<ExpiredPosition>>()),
            ("status", generator.subschema_for::<Form<QueueStatus>>()),
            ("user_metadata", generator.subschema_for::<Option<String>>()),
            ("consumer_groups", generator.subschema_for::<Vec<String>>()),
        ];
        if generator.contract().is_deserialize() {
            settings.push(("retention", generator.subschema_for::<Form<Maybe<Retention>>>()));
        }
        schema::settings("An event hub.", settings)
    }
}

mod groups {
    use peeklock_types::ConsumerGroup;
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{SerializeSeq, Serializer};

    use crate::written::Form;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<ConsumerGroup>>, D::Error> {
        let forms = Vec::<Form<ConsumerGroup>>::deserialize(deserializer)?;
        Ok(Some(forms.into_iter().map(|form| form.0).collect()))
    }

    pub(super) fn serialize<S: Serializer>(
        value: &Option<Vec<ConsumerGroup>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let groups = value.as_deref().unwrap_or_default();
        let mut list = serializer.serialize_seq(Some(groups.len()))?;
        groups.iter().try_for_each(|group| list.serialize_element(group.as_str()))?;
        list.end()
    }
}
