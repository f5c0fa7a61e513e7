//! Tests of the quotas of the official emulators: they apply only when enabled, unset values get the emulators'
//! defaults, and larger values are rejected.

use std::time::Duration;

use peeklock_broker::{AdminError, Broker, Error};
use peeklock_journal::MemoryJournal;
use peeklock_types::{ConsumerGroup, EntityKind, EntityName, HubSettings, QueueSettings, Tier};

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[track_caller]
fn over<T: std::fmt::Debug>(done: Result<T, AdminError>, what: &str) {
    let error = done.unwrap_err();
    assert!(
        matches!(error, AdminError::Refused(Error::Quota(_))) && error.to_string().contains(what),
        "{error}"
    );
}

#[tokio::test]
async fn entities_are_counted_and_their_settings_limited() {
    let (broker, _running, _) = Broker::open(&MemoryJournal::new(), |_, _| None).await.unwrap();
    let strict = broker.clone().with_emulator_quotas();
    let queue = |settings| strict.create(name("first"), EntityKind::Queue, settings, None);
    let usual = QueueSettings::default;
    over(queue(QueueSettings { lock_duration: secs(4), ..usual() }).await, "lock duration of 4 s");
    over(queue(QueueSettings { max_delivery_count: 11, ..usual() }).await, "delivery count of 11");
    over(queue(QueueSettings { default_time_to_live: Some(secs(3601)), ..usual() }).await, "300 s to 3600 s");
    over(queue(QueueSettings { max_message_size_bytes: 300 << 10, ..usual() }).await, "262144");
    over(queue(QueueSettings { max_size_bytes: Some(2 << 30), ..usual() }).await, "max size");
    assert_eq!((broker.tier(), strict.tier()), (Tier::Premium, Tier::Standard));
    // SDKs send the service's defaults, which differ from those of the emulators.
    let (duplicate_window, max_size_bytes) = (Some(secs(600)), Some(1 << 30));
    let made = queue(QueueSettings { duplicate_window, max_size_bytes, ..usual() }).await.unwrap().settings;
    assert_eq!((made.default_time_to_live, made.duplicate_window), (Some(secs(3600)), Some(secs(20))));
    assert_eq!((made.max_message_size_bytes, made.max_size_bytes), (256 << 10, Some(100 << 20)));
    over(
        strict.update(name("first"), QueueSettings { lock_duration: secs(301), ..made }, None).await,
        "lock",
    );

    strict.create(name("news"), EntityKind::Topic, usual(), None).await.unwrap();
    for number in 0..50 {
        let subscription = EntityName::subscription(&name("news"), &format!("s{number}")).unwrap();
        strict.create(subscription, EntityKind::Subscription, usual(), None).await.unwrap();
    }
    let subscription = EntityName::subscription(&name("news"), "more").unwrap();
    over(strict.create(subscription, EntityKind::Subscription, usual(), None).await, "51 subscriptions");
    for number in 2..50 {
        strict.create_queue(name(&format!("q{number}")), usual()).await.unwrap();
    }
    over(
        strict.create_queue(name("more"), usual()).await,
        "51 queues and topics; the official emulator allows 50",
    );
    broker.create_queue(name("more"), usual()).await.unwrap();
}

#[tokio::test]
async fn hubs_are_counted_and_their_settings_limited() {
    let (broker, _running, _) = Broker::open(&MemoryJournal::new(), |_, _| None).await.unwrap();
    let strict = broker.clone().with_emulator_quotas();
    let usual = HubSettings::default;
    let groups = |count: usize| -> Vec<_> {
        (0..count).map(|number| ConsumerGroup::parse(&format!("g{number}")).unwrap()).collect()
    };
    let wide = HubSettings { partition_count: 33, ..usual() };
    over(strict.create_hub(name("first"), wide, Vec::new()).await, "33 partitions");
    let long = HubSettings { retention: None, ..usual() };
    over(strict.create_hub(name("first"), long, Vec::new()).await, "without end");
    over(strict.create_hub(name("first"), usual(), groups(21)).await, "21 consumer groups");
    let made = strict.create_hub(name("first"), usual(), groups(20)).await.unwrap();
    assert_eq!(made.settings.retention, Some(secs(3600)));
    let group = ConsumerGroup::parse("more").unwrap();
    over(strict.create_group(name("first"), group.clone(), None).await, "21 consumer groups");
    broker.create_group(name("first"), group, None).await.unwrap();
    for number in 1..10 {
        strict.create_hub(name(&format!("h{number}")), usual(), Vec::new()).await.unwrap();
    }
    over(strict.create_hub(name("more"), usual(), Vec::new()).await, "11 event hubs");
}
