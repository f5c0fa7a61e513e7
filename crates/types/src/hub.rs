//! The settings of event hubs.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::{QueueStatus, limits};

/// The identity of a hub. A hub that is deleted and created again has another number, so remains of the old one are
/// never mistaken for its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubId(pub u64);

/// The settings of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubSettings {
    /// The number of partitions. It can be increased later, but not reduced.
    pub partition_count: u32,
    /// The minimum time for which an event is kept. `None`: events are kept for ever.
    pub retention: Option<Duration>,
    /// The approximate maximum of bytes that one partition keeps. `None`: limited by the disk.
    pub retention_bytes: Option<u64>,
    pub expired_position: ExpiredPosition,
    pub status: QueueStatus,
    /// Free text of the owner.
    pub user_metadata: Option<String>,
}

/// The handling of a reader whose next event was retired or lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiredPosition {
    /// The reader gets an error: no event is skipped unnoticed.
    #[default]
    Refuse,
    /// The reader starts at the oldest stored event.
    Earliest,
}

impl Default for HubSettings {
    fn default() -> Self {
        HubSettings {
            partition_count: 4,
            retention: Some(Duration::from_secs(24 * 3600)),
            retention_bytes: None,
            expired_position: ExpiredPosition::Refuse,
            status: QueueStatus::Active,
            user_metadata: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubSettingsError {
    #[error("a hub with {given} partitions; give it 1 to {max}", max = limits::PARTITIONS_MAX)]
    PartitionCount { given: u32 },
    #[error(
        "the hub has {old} partitions and cannot have fewer ({new}): the events of the others would be lost. Create another hub instead"
    )]
    FewerPartitions { old: u32, new: u32 },
    #[error(
        "a retention of {} s; give {} s to {} days, or none at all to keep events for ever",
        given.as_secs_f64(),
        limits::RETENTION_MIN.as_secs(),
        limits::DURATION_MAX.as_secs() / 86_400
    )]
    Retention { given: Duration },
    #[error("a retention of {given} bytes for each partition is too little; give at least {min}", min = limits::RETENTION_BYTES_MIN)]
    RetentionBytes { given: u64 },
    #[error("the user metadata has {count} characters; at most {max} are allowed", max = limits::USER_METADATA_CHARS_MAX)]
    UserMetadata { count: usize },
}

impl HubSettings {
    pub fn check(&self) -> Result<(), HubSettingsError> {
        let given = self.partition_count;
        if !(1..=limits::PARTITIONS_MAX).contains(&given) {
            return Err(HubSettingsError::PartitionCount { given });
        }
        let range = limits::RETENTION_MIN..=limits::DURATION_MAX;
        if let Some(given) = self.retention.filter(|given| !range.contains(given)) {
            return Err(HubSettingsError::Retention { given });
        }
        if let Some(given) = self.retention_bytes.filter(|given| *given < limits::RETENTION_BYTES_MIN) {
            return Err(HubSettingsError::RetentionBytes { given });
        }
        let count = self.user_metadata.as_ref().map_or(0, |text| text.chars().count());
        if count > limits::USER_METADATA_CHARS_MAX {
            return Err(HubSettingsError::UserMetadata { count });
        }
        Ok(())
    }

    /// Checks that a hub with these settings may change to `new` ones.
    pub fn check_change(&self, new: &HubSettings) -> Result<(), HubSettingsError> {
        let (old, new) = (self.partition_count, new.partition_count);
        if new < old { Err(HubSettingsError::FewerPartitions { old, new }) } else { Ok(()) }
    }
}

/// The name of a consumer group, as its creator wrote it. Two names that differ only in case are the same name.
#[derive(Clone)]
pub struct ConsumerGroup {
    text: Arc<str>,
    folded: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerGroupError {
    #[error(
        "the name of the consumer group has {count} characters; give it 1 to {max}",
        max = limits::CONSUMER_GROUP_CHARS_MAX
    )]
    Length { count: usize },
    #[error(
        "the consumer group '{name}' has the character {found:?}; use letters, digits, '.', '-', '_' and '~', and start and end with a \
         letter or digit ('$Default' exists always)"
    )]
    Character { name: String, found: char },
}

impl ConsumerGroup {
    pub const DEFAULT: &str = "$Default";

    /// Returns the group that every hub has.
    pub fn default_group() -> Self {
        ConsumerGroup { text: Self::DEFAULT.into(), folded: Self::DEFAULT.to_lowercase().into() }
    }

    /// Returns the group of observers, which show events to users and belong to no group of a hub. Clients cannot name
    /// it.
    pub fn observer() -> Self {
        ConsumerGroup { text: "$Observer".into(), folded: "$observer".into() }
    }

    pub fn is_observer(&self) -> bool {
        *self.folded == *"$observer"
    }

    pub fn parse(text: &str) -> Result<Self, ConsumerGroupError> {
        if text.eq_ignore_ascii_case(Self::DEFAULT) {
            return Ok(Self::default_group());
        }
        let count = text.chars().count();
        if !(1..=limits::CONSUMER_GROUP_CHARS_MAX).contains(&count) {
            return Err(ConsumerGroupError::Length { count });
        }
        let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '~');
        let is_outer = |c: char| c.is_alphanumeric() || c == '_';
        let wrong = text.chars().find(|c| !is_inner(*c));
        let wrong = wrong.or_else(|| text.chars().next().filter(|c| !is_outer(*c)));
        let wrong = wrong.or_else(|| text.chars().next_back().filter(|c| !is_outer(*c)));
        match wrong {
            Some(found) => Err(ConsumerGroupError::Character { name: text.to_owned(), found }),
            None => Ok(ConsumerGroup { text: text.into(), folded: text.to_lowercase().into() }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_default(&self) -> bool {
        *self.folded == *Self::DEFAULT.to_lowercase()
    }
}

impl PartialEq for ConsumerGroup {
    fn eq(&self, other: &Self) -> bool {
        self.folded == other.folded
    }
}

impl Eq for ConsumerGroup {}

impl PartialOrd for ConsumerGroup {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ConsumerGroup {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.folded.cmp(&other.folded)
    }
}

impl Hash for ConsumerGroup {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

impl fmt::Display for ConsumerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ConsumerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_groups_compare_without_case() {
        assert_eq!(ConsumerGroup::parse("$default").unwrap(), ConsumerGroup::default_group());
        assert_eq!(ConsumerGroup::parse("Audit").unwrap(), ConsumerGroup::parse("aUDIT").unwrap());
        assert!(matches!(ConsumerGroup::parse(""), Err(ConsumerGroupError::Length { count: 0 })));
        assert!(matches!(ConsumerGroup::parse("a/b"), Err(ConsumerGroupError::Character { found: '/', .. })));
        assert!(matches!(
            ConsumerGroup::parse("$other"),
            Err(ConsumerGroupError::Character { found: '$', .. })
        ));
        assert!(matches!(ConsumerGroup::parse("a."), Err(ConsumerGroupError::Character { found: '.', .. })));
    }

    #[test]
    fn partitions_are_never_removed() {
        let four = HubSettings::default();
        let three = HubSettings { partition_count: 3, ..HubSettings::default() };
        assert!(four.check_change(&three).is_err());
        assert!(three.check_change(&four).is_ok());
        assert!(HubSettings { partition_count: 0, ..four.clone() }.check().is_err());
        assert!(HubSettings { partition_count: 1025, ..four }.check().is_err());
    }
}
