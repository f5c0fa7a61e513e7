//! The elements of descriptions, and their effects on the settings of an entity.

use std::str::FromStr;
use std::time::Duration;

use peeklock_spec::iso8601;
use peeklock_types::{EntityKind, EntityName, QueueSettings, QueueStatus, Tier, limits};

use super::describe::{
    BYTES_PER_KILOBYTE, BYTES_PER_MEGABYTE, DEFAULT_MEGABYTES, DUPLICATE_WINDOW_DEFAULT, kilobytes,
    megabytes, status_name,
};
use super::version::Version;
use crate::problem::Problem;
use crate::request::shown;
use peeklock_spec::nearest;
use peeklock_web::xml::{Element, Space};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    LockDuration,
    MaxSize,
    RequiresDuplicateDetection,
    DuplicateWindow,
    RequiresSession,
    TimeToLive,
    DeadLetterOnExpiration,
    DeadLetterOnFilterError,
    MaxDeliveryCount,
    BatchedOperations,
    Status,
    ForwardTo,
    ForwardDeadLettersTo,
    AutoDeleteOnIdle,
    UserMetadata,
    MaxMessageSize,
    SupportOrdering,
    Express,
    Partitioning,
    /// The element is parsed in another place.
    Elsewhere,
    /// The broker sets the element; clients return it unchanged with the rest of a description.
    ReadOnly,
    /// The broker supports only this value.
    Only(bool, &'static str),
}

const QUEUE: u8 = 1;
const TOPIC: u8 = 2;
const SUBSCRIPTION: u8 = 4;
const ALL: u8 = QUEUE | TOPIC | SUBSCRIPTION;

const NOT_PARTITIONED: &str = "an entity here lives whole in one place, and keeps its order";
const NEVER_ANONYMOUS: &str = "every client must show a key";
const FILTERS_LATER: &str = "a message that no subscription wants is taken and dropped here";

const ELEMENTS: [(&str, u8, Property); 34] = [
    ("LockDuration", QUEUE | SUBSCRIPTION, Property::LockDuration),
    ("MaxSizeInMegabytes", QUEUE | TOPIC, Property::MaxSize),
    ("RequiresDuplicateDetection", QUEUE | TOPIC, Property::RequiresDuplicateDetection),
    ("RequiresSession", QUEUE | SUBSCRIPTION, Property::RequiresSession),
    ("DefaultMessageTimeToLive", ALL, Property::TimeToLive),
    ("DeadLetteringOnMessageExpiration", QUEUE | SUBSCRIPTION, Property::DeadLetterOnExpiration),
    ("DeadLetteringOnFilterEvaluationExceptions", SUBSCRIPTION, Property::DeadLetterOnFilterError),
    ("DefaultRuleDescription", SUBSCRIPTION, Property::Elsewhere),
    ("DuplicateDetectionHistoryTimeWindow", QUEUE | TOPIC, Property::DuplicateWindow),
    ("MaxDeliveryCount", QUEUE | SUBSCRIPTION, Property::MaxDeliveryCount),
    ("EnableBatchedOperations", ALL, Property::BatchedOperations),
    ("SizeInBytes", QUEUE | TOPIC, Property::ReadOnly),
    ("MessageCount", QUEUE | SUBSCRIPTION, Property::ReadOnly),
    ("FilteringMessagesBeforePublishing", TOPIC, Property::Only(false, FILTERS_LATER)),
    ("IsAnonymousAccessible", QUEUE | TOPIC, Property::Only(false, NEVER_ANONYMOUS)),
    ("AuthorizationRules", QUEUE | TOPIC, Property::Elsewhere),
    ("Status", ALL, Property::Status),
    ("ForwardTo", QUEUE | SUBSCRIPTION, Property::ForwardTo),
    ("CreatedAt", ALL, Property::ReadOnly),
    ("UpdatedAt", ALL, Property::ReadOnly),
    ("AccessedAt", ALL, Property::ReadOnly),
    ("SupportOrdering", QUEUE | TOPIC, Property::SupportOrdering),
    ("CountDetails", ALL, Property::ReadOnly),
    ("SubscriptionCount", TOPIC, Property::ReadOnly),
    ("SqlFilterCount", TOPIC, Property::ReadOnly),
    ("CorrelationFilterCount", TOPIC, Property::ReadOnly),
    ("AutoDeleteOnIdle", ALL, Property::AutoDeleteOnIdle),
    ("EnablePartitioning", QUEUE | TOPIC, Property::Partitioning),
    ("EntityAvailabilityStatus", ALL, Property::ReadOnly),
    ("EnableSubscriptionPartitioning", TOPIC, Property::Only(false, NOT_PARTITIONED)),
    ("EnableExpress", QUEUE | TOPIC, Property::Express),
    ("UserMetadata", ALL, Property::UserMetadata),
    ("ForwardDeadLetteredMessagesTo", QUEUE | SUBSCRIPTION, Property::ForwardDeadLettersTo),
    ("MaxMessageSizeInKilobytes", QUEUE | TOPIC, Property::MaxMessageSize),
];

/// The values that determine the available elements, in addition to the kind of the entity.
#[derive(Clone, Copy)]
pub(super) struct Dialect {
    pub(super) version: Version,
    pub(super) tier: Tier,
}

/// Returns the settings in a description. With `current`, the settings of an entity to change: an omitted element is
/// reset to its default, as the SDKs expect, except settings that cannot be changed and those without an ATOM element.
pub(super) fn read_settings(
    dialect: Dialect,
    kind: EntityKind,
    description: &Element,
    current: Option<&QueueSettings>,
) -> Result<QueueSettings, Problem> {
    let mut reading = Reading {
        settings: start(dialect.version, kind, current),
        dialect,
        current,
        detects_duplicates: current.is_some_and(|current| current.duplicate_window.is_some()),
        window: current.and_then(|current| current.duplicate_window.or(current.unused_duplicate_window)),
    };
    let mut seen: Vec<&str> = Vec::new();
    for element in &description.children {
        let property = find(kind, element)?;
        check_version(dialect.version, property, element)?;
        if seen.contains(&element.name.as_str()) {
            return Err(Problem::bad(format!("the element {} is there twice", shown(&element.name))));
        }
        seen.push(&element.name);
        if !element.is_nil {
            reading.take(property, element)?;
        }
    }
    Ok(reading.finish())
}

fn start(version: Version, kind: EntityKind, current: Option<&QueueSettings>) -> QueueSettings {
    let mut default = QueueSettings::default();
    // A subscription has no size of its own, and ATOM cannot represent an entity without a limit.
    if kind != EntityKind::Subscription && current.is_none_or(|current| current.max_size_bytes.is_some()) {
        default.max_size_bytes = Some(DEFAULT_MEGABYTES * BYTES_PER_MEGABYTE);
    }
    let Some(current) = current else { return default };
    // Settings without an ATOM element, and those that cannot be changed, keep their values.
    QueueSettings {
        lock_duration: default.lock_duration,
        max_delivery_count: default.max_delivery_count,
        default_time_to_live: default.default_time_to_live,
        dead_letter_on_expiration: default.dead_letter_on_expiration,
        dead_letter_on_filter_error: default.dead_letter_on_filter_error,
        auto_delete_on_idle: default.auto_delete_on_idle,
        max_size_bytes: default.max_size_bytes,
        max_message_size_bytes: match version.has_message_size() {
            true => default.max_message_size_bytes,
            false => current.max_message_size_bytes,
        },
        status: default.status,
        forward_to: default.forward_to,
        forward_dead_letters_to: default.forward_dead_letters_to,
        batched_operations: default.batched_operations,
        support_ordering: default.support_ordering,
        express: default.express,
        user_metadata: default.user_metadata,
        ..current.clone()
    }
}

fn find(kind: EntityKind, element: &Element) -> Result<Property, Problem> {
    let bit = match kind {
        EntityKind::Queue => QUEUE,
        EntityKind::Topic => TOPIC,
        EntityKind::Subscription => SUBSCRIPTION,
    };
    let known = || ELEMENTS.iter().filter(move |(_, kinds, _)| kinds & bit != 0);
    let found =
        known().find(|(name, ..)| *name == element.name).filter(|_| element.space == Space::ServiceBus);
    found.map(|(_, _, property)| *property).ok_or_else(|| {
        let near = nearest(&element.name, known().map(|(name, ..)| *name));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        Problem::bad(format!("a {kind} has no property '{}'{near}", shown(&element.name)))
    })
}

/// Rejects an element of a later version, because the client would expect an effect that this version does not have.
fn check_version(version: Version, property: Property, element: &Element) -> Result<(), Problem> {
    if property != Property::MaxMessageSize || version.has_message_size() {
        return Ok(());
    }
    let (name, given, first) = (&element.name, version.name(), Version::V2021.name());
    Err(Problem::bad(format!("the api-version {given} has no property '{name}'; use {first} or later")))
}

struct Reading<'a> {
    settings: QueueSettings,
    dialect: Dialect,
    current: Option<&'a QueueSettings>,
    detects_duplicates: bool,
    window: Option<Duration>,
}

impl Reading<'_> {
    fn take(&mut self, property: Property, element: &Element) -> Result<(), Problem> {
        let (settings, current) = (&mut self.settings, self.current);
        match property {
            Property::LockDuration => settings.lock_duration = duration(element)?,
            Property::MaxSize => settings.max_size_bytes = max_size(element, current)?,
            Property::RequiresDuplicateDetection => self.detects_duplicates = boolean(element)?,
            Property::DuplicateWindow => self.window = Some(duplicate_window(element, self.window)?),
            Property::RequiresSession => settings.requires_session = boolean(element)?,
            Property::TimeToLive => settings.default_time_to_live = endless_duration(element)?,
            Property::DeadLetterOnExpiration => settings.dead_letter_on_expiration = boolean(element)?,
            Property::DeadLetterOnFilterError => settings.dead_letter_on_filter_error = boolean(element)?,
            Property::MaxDeliveryCount => settings.max_delivery_count = number(element)?,
            Property::BatchedOperations => settings.batched_operations = boolean(element)?,
            Property::Status => settings.status = status(element)?,
            Property::ForwardTo => settings.forward_to = target(element)?,
            Property::ForwardDeadLettersTo => settings.forward_dead_letters_to = target(element)?,
            Property::AutoDeleteOnIdle => settings.auto_delete_on_idle = endless_duration(element)?,
            Property::UserMetadata => {
                settings.user_metadata = Some(element.text.clone()).filter(|text| !text.is_empty());
            }
            Property::MaxMessageSize => {
                settings.max_message_size_bytes = max_message_size(element, self.dialect.tier, current)?;
            }
            Property::SupportOrdering => settings.support_ordering = boolean(element)?,
            Property::Express => settings.express = boolean(element)?,
            Property::Partitioning => settings.partitioning = boolean(element)?,
            Property::Elsewhere | Property::ReadOnly => {}
            Property::Only(value, why) => only(element, value, why)?,
        }
        Ok(())
    }

    /// Returns the settings. As in the service, a window without duplicate detection is stored without an effect. The
    /// default is not stored, because descriptions contain it anyway.
    fn finish(self) -> QueueSettings {
        let window = self.window.unwrap_or(DUPLICATE_WINDOW_DEFAULT);
        let unused = Some(window).filter(|window| *window != DUPLICATE_WINDOW_DEFAULT);
        let (duplicate_window, unused_duplicate_window) = match self.detects_duplicates {
            true => (Some(window), None),
            false => (None, unused),
        };
        QueueSettings { duplicate_window, unused_duplicate_window, ..self.settings }
    }
}

/// Parses a window within the service's limits, or the current one of the entity: the broker's own configuration
/// permits shorter ones.
fn duplicate_window(element: &Element, current: Option<Duration>) -> Result<Duration, Problem> {
    let window = duration(element)?;
    let range = limits::DUPLICATE_WINDOW_ATOM_MIN..=limits::DUPLICATE_WINDOW_MAX;
    if range.contains(&window) || current == Some(window) {
        return Ok(window);
    }
    Err(wrong(element, "20 seconds (PT20S) to 7 days (P7D)"))
}

/// Parses a size. The rounded value of the current size leaves it unchanged.
fn max_size(element: &Element, current: Option<&QueueSettings>) -> Result<Option<u64>, Problem> {
    let given: u64 = number(element)?;
    if let Some(current) = current
        && megabytes(current.max_size_bytes) == given
    {
        return Ok(current.max_size_bytes);
    }
    given.checked_mul(BYTES_PER_MEGABYTE).map(Some).ok_or_else(|| wrong(element, "a smaller number"))
}

/// Parses a message size. On the standard tier, only the value in the description is accepted, because clients return
/// it with the rest.
fn max_message_size(element: &Element, tier: Tier, current: Option<&QueueSettings>) -> Result<u32, Problem> {
    let given: u32 = number(element)?;
    if let Some(current) = current
        && kilobytes(current.max_message_size_bytes) == given
    {
        return Ok(current.max_message_size_bytes);
    }
    if tier == Tier::Standard && given != kilobytes(limits::STANDARD_MESSAGE_SIZE_BYTES_MAX) {
        let text = "MaxMessageSizeInKilobytes can be set in a namespace of the premium tier only; leave it out, or start the broker \
            with --tier premium";
        return Err(Problem::bad(text));
    }
    given.checked_mul(BYTES_PER_KILOBYTE).ok_or_else(|| wrong(element, "a smaller number"))
}

fn only(element: &Element, value: bool, why: &str) -> Result<(), Problem> {
    if boolean(element)? == value {
        return Ok(());
    }
    let text = format!("{} cannot be {}: {why}; leave it out", element.name, !value);
    Err(Problem::bad(text))
}

pub(super) fn boolean(element: &Element) -> Result<bool, Problem> {
    match element.trimmed() {
        text if text.eq_ignore_ascii_case("true") || text == "1" => Ok(true),
        text if text.eq_ignore_ascii_case("false") || text == "0" => Ok(false),
        _ => Err(wrong(element, "true or false")),
    }
}

fn number<T: FromStr>(element: &Element) -> Result<T, Problem> {
    element.trimmed().parse().map_err(|_| wrong(element, "a whole number within the limits"))
}

fn duration(element: &Element) -> Result<Duration, Problem> {
    iso8601::parse(element.trimmed()).map_err(|_| wrong(element, "an ISO 8601 duration such as PT1M or P14D"))
}

/// Parses a duration. A duration beyond the range of the clock is no limit.
fn endless_duration(element: &Element) -> Result<Option<Duration>, Problem> {
    Ok(Some(duration(element)?).filter(|span| *span < iso8601::INFINITE_FROM))
}

fn status(element: &Element) -> Result<QueueStatus, Problem> {
    const STATUSES: [QueueStatus; 4] =
        [QueueStatus::Active, QueueStatus::Disabled, QueueStatus::SendDisabled, QueueStatus::ReceiveDisabled];
    let found =
        STATUSES.into_iter().find(|status| status_name(*status).eq_ignore_ascii_case(element.trimmed()));
    found.ok_or_else(|| wrong(element, &STATUSES.map(status_name).join(", ")))
}

/// Parses a name, or an address that ends with a name.
fn target(element: &Element) -> Result<Option<EntityName>, Problem> {
    let path = peeklock_access::normalize(element.trimmed());
    if path.is_empty() {
        return Ok(None);
    }
    let name =
        EntityName::parse(&path).map_err(|error| Problem::bad(format!("{}: {error}", element.name)))?;
    Ok(Some(name))
}

pub(super) fn wrong(element: &Element, wanted: &str) -> Problem {
    Problem::bad(format!("{} is '{}'; give {wanted}", shown(&element.name), shown(element.trimmed())))
}
