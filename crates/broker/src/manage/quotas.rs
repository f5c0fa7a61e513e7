//! The quotas of the official emulators, for tests against the emulators' limits. They are off by default.
//!
//! Unset values then have the emulators' defaults; values beyond the quotas are rejected. Existing entities are not
//! changed.

use std::time::Duration;

use peeklock_hubs::HubView;
use peeklock_types::{ConsumerGroup, EntityKind, EntityName, HubSettings, QueueSettings, Tier, limits};
use tokio::sync::MutexGuard;

use super::AdminError;
use crate::broker::Broker;
use crate::reply::Error;
use crate::request::entities::Listing;

const ENTITIES_MAX: usize = 50;
const SUBSCRIPTIONS_MAX: usize = 50;
const HUBS_MAX: usize = 10;
const PARTITIONS_MAX: u32 = 32;
/// The number of consumer groups, beside the one that every hub has.
const GROUPS_MAX: usize = 20;
const LOCK_DURATION: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
const DUPLICATE_WINDOW: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// The default window of the service, and that of the emulator.
const DUPLICATE_WINDOW_OF_SERVICE: Duration = Duration::from_secs(600);
const DUPLICATE_WINDOW_USUAL: Duration = Duration::from_secs(20);
const TIME_TO_LIVE: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(3600));
const DELIVERY_COUNT_MAX: u32 = 10;
const MESSAGE_SIZE_BYTES_MAX: u32 = limits::STANDARD_MESSAGE_SIZE_BYTES_MAX;
/// The default maximum size of the service.
const ENTITY_SIZE_OF_SERVICE_BYTES: u64 = 1 << 30;
const ENTITY_SIZE_BYTES_MAX: u64 = 100 * 1024 * 1024;
const RETENTION_MAX: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; the official emulator allows {allowed}. Without --strict-emulator-quotas there can be more")]
pub struct QuotaError {
    what: String,
    allowed: String,
}

fn check(fits: bool, what: impl FnOnce() -> String, allowed: impl FnOnce() -> String) -> Result<(), Error> {
    if fits { Ok(()) } else { Err(Error::Quota(Box::new(QuotaError { what: what(), allowed: allowed() }))) }
}

fn check_span(what: &str, given: Duration, (min, max): (Duration, Duration)) -> Result<(), Error> {
    let seconds = |span: Duration| span.as_secs_f64();
    check(
        given >= min && given <= max,
        || format!("a {what} of {} s", seconds(given)),
        || format!("{} s to {} s", seconds(min), seconds(max)),
    )
}

/// Applies the quotas to the settings of a queue, topic or subscription.
fn entity_settings(mut settings: QueueSettings, is_subscription: bool) -> Result<QueueSettings, Error> {
    let usual = QueueSettings::default();
    check_span("lock duration", settings.lock_duration, LOCK_DURATION)?;
    if settings.duplicate_window == Some(DUPLICATE_WINDOW_OF_SERVICE) {
        settings.duplicate_window = Some(DUPLICATE_WINDOW_USUAL);
    }
    if let Some(window) = settings.duplicate_window {
        check_span("duplicate detection window", window, DUPLICATE_WINDOW)?;
    }
    let time_to_live = settings.default_time_to_live.unwrap_or(TIME_TO_LIVE.1);
    check_span("default time to live", time_to_live, TIME_TO_LIVE)?;
    settings.default_time_to_live = Some(time_to_live);
    let count = settings.max_delivery_count;
    check(
        count <= DELIVERY_COUNT_MAX,
        || format!("a max delivery count of {count}"),
        || format!("1 to {DELIVERY_COUNT_MAX}"),
    )?;
    // A subscription accepts the sizes that its topic accepts.
    if is_subscription {
        return Ok(settings);
    }
    if settings.max_message_size_bytes == usual.max_message_size_bytes {
        settings.max_message_size_bytes = MESSAGE_SIZE_BYTES_MAX;
    }
    let bytes = settings.max_message_size_bytes;
    check(
        bytes <= MESSAGE_SIZE_BYTES_MAX,
        || format!("messages of up to {bytes} bytes"),
        || format!("{MESSAGE_SIZE_BYTES_MAX}"),
    )?;
    let given = settings.max_size_bytes.filter(|bytes| *bytes != ENTITY_SIZE_OF_SERVICE_BYTES);
    let bytes = given.unwrap_or(ENTITY_SIZE_BYTES_MAX);
    check(
        bytes <= ENTITY_SIZE_BYTES_MAX,
        || format!("a max size of {bytes} bytes"),
        || format!("{ENTITY_SIZE_BYTES_MAX}"),
    )?;
    settings.max_size_bytes = Some(bytes);
    Ok(settings)
}

/// Applies the tier's default message size to a queue or topic, and rejects a larger one.
fn of_tier(tier: Tier, mut settings: QueueSettings) -> Result<QueueSettings, Error> {
    if tier == Tier::Premium {
        return Ok(settings);
    }
    let (given, max) = (settings.max_message_size_bytes, limits::STANDARD_MESSAGE_SIZE_BYTES_MAX);
    if given == QueueSettings::default().max_message_size_bytes {
        settings.max_message_size_bytes = max;
    } else if given > max {
        return Err(Error::StandardTier { given, max });
    }
    Ok(settings)
}

fn hub_settings(mut settings: HubSettings) -> Result<HubSettings, Error> {
    let count = settings.partition_count;
    check(
        count <= PARTITIONS_MAX,
        || format!("a hub with {count} partitions"),
        || format!("1 to {PARTITIONS_MAX}"),
    )?;
    if settings.retention == HubSettings::default().retention {
        settings.retention = Some(RETENTION_MAX);
    }
    check(
        settings.retention.is_some_and(|retention| retention <= RETENTION_MAX),
        || match settings.retention {
            Some(retention) => format!("a retention of {} s", retention.as_secs_f64()),
            None => "a retention without end".to_owned(),
        },
        || format!("{} s", RETENTION_MAX.as_secs()),
    )?;
    Ok(settings)
}

fn check_groups<'g>(name: &EntityName, groups: impl Iterator<Item = &'g ConsumerGroup>) -> Result<(), Error> {
    let count = groups.filter(|group| **group != ConsumerGroup::default_group()).count();
    check(
        count <= GROUPS_MAX,
        || format!("{count} consumer groups of the hub '{name}' beside $Default"),
        || format!("{GROUPS_MAX}"),
    )
}

impl Broker {
    /// Locks creation under quotas, so that no other call creates an entity between the count and the creation. Returns
    /// `None` if there are no quotas.
    pub(crate) async fn quota_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match &self.quotas {
            Some(turn) => Some(turn.lock().await),
            None => None,
        }
    }

    pub(crate) fn entity_within_quotas(
        &self,
        name: &EntityName,
        settings: QueueSettings,
    ) -> Result<QueueSettings, Error> {
        let is_subscription = name.topic_and_subscription().is_some();
        match self.quotas {
            Some(_) => entity_settings(settings, is_subscription),
            None if is_subscription => Ok(settings),
            None => of_tier(self.tier(), settings),
        }
    }

    pub(crate) fn hub_within_quotas(&self, settings: HubSettings) -> Result<HubSettings, Error> {
        if self.quotas.is_some() { hub_settings(settings) } else { Ok(settings) }
    }

    /// Checks that one more entity may be created.
    pub(crate) async fn check_entity_count(
        &self,
        name: &EntityName,
        kind: EntityKind,
    ) -> Result<(), AdminError> {
        if self.quotas.is_none() || self.show(name.clone()).await.is_ok() {
            return Ok(());
        }
        let subscription = name.topic_and_subscription().filter(|_| kind == EntityKind::Subscription);
        match subscription {
            Some((topic, _)) => {
                let Ok(topic) = EntityName::parse(topic) else { return Ok(()) };
                let count = self.names(&Listing::Subscriptions { topic: topic.clone() }).await?.len() + 1;
                check(
                    count <= SUBSCRIPTIONS_MAX,
                    || format!("{count} subscriptions of the topic '{topic}'"),
                    || format!("{SUBSCRIPTIONS_MAX}"),
                )?;
            }
            None => {
                let (queues, topics) =
                    (self.names(&Listing::Queues).await?, self.names(&Listing::Topics).await?);
                let count = queues.len() + topics.len() + 1;
                check(
                    count <= ENTITIES_MAX,
                    || format!("{count} queues and topics"),
                    || format!("{ENTITIES_MAX}"),
                )?;
            }
        }
        Ok(())
    }

    pub(crate) async fn check_hub_count(
        &self,
        name: &EntityName,
        groups: &[ConsumerGroup],
    ) -> Result<(), AdminError> {
        if self.quotas.is_none() || self.hub(name.clone()).await.is_ok() {
            return Ok(());
        }
        check_groups(name, groups.iter())?;
        let count = self.hubs(None, usize::MAX).await?.len() + 1;
        check(count <= HUBS_MAX, || format!("{count} event hubs"), || format!("{HUBS_MAX}"))?;
        Ok(())
    }

    pub(crate) async fn check_group_count(
        &self,
        name: &EntityName,
        group: &ConsumerGroup,
    ) -> Result<(), AdminError> {
        if self.quotas.is_none() {
            return Ok(());
        }
        let HubView { groups, .. } = self.hub(name.clone()).await?;
        if groups.iter().any(|known| known.name == *group) {
            return Ok(());
        }
        check_groups(name, groups.iter().map(|known| &known.name).chain([group]))?;
        Ok(())
    }
}
