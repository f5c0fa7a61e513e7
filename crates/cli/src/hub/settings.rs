//! Settings of a hub as flags.

use std::time::Duration;

use peeklock_client::HubSpec;
use peeklock_spec::{
    NONE, Size, parse_duration, parse_expired_position, parse_size, parse_status, show_duration, show_size,
    show_status,
};
use peeklock_types::{ConsumerGroup, ExpiredPosition, HubSettings, QueueStatus, limits};

#[derive(clap::Args)]
pub(super) struct Settings {
    /// How many partitions; 4 unless said
    #[arg(long, value_name = "COUNT", visible_alias = "partition-count",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::PARTITIONS_MAX)))]
    partitions: Option<u32>,
    /// How long events are kept at least, or 'none' for ever; 1d unless said
    #[arg(long, value_name = "TIME", value_parser = retention)]
    retention: Option<Retention>,
    /// How much one partition keeps at most, about, or 'none' for what the disk holds
    #[arg(long, value_name = "SIZE", value_parser = retention_bytes)]
    retention_bytes: Option<RetentionBytes>,
    /// What becomes of a reader whose next event is gone: 'refuse', or go on at the 'earliest' that is there
    #[arg(long, value_name = "WHAT", value_parser = parse_expired_position)]
    expired_position: Option<ExpiredPosition>,
    /// active, send-disabled, receive-disabled or disabled
    #[arg(long, value_parser = parse_status)]
    status: Option<QueueStatus>,
    /// Anything that its owner wants to note; '' removes it
    #[arg(long, value_name = "TEXT")]
    user_metadata: Option<String>,
    /// A consumer group beside $Default; may be repeated
    #[arg(long = "group", value_name = "NAME", value_parser = ConsumerGroup::parse)]
    groups: Vec<ConsumerGroup>,
}

/// `None`: for ever.
#[derive(Clone, Copy)]
struct Retention(Option<Duration>);

#[derive(Clone, Copy)]
struct RetentionBytes(Option<u64>);

fn retention(text: &str) -> Result<Retention, peeklock_spec::TextError> {
    if text == NONE { Ok(Retention(None)) } else { parse_duration(text).map(|span| Retention(Some(span))) }
}

fn retention_bytes(text: &str) -> Result<RetentionBytes, peeklock_spec::TextError> {
    if text == NONE {
        Ok(RetentionBytes(None))
    } else {
        parse_size(text).map(|size| RetentionBytes(Some(size)))
    }
}

impl Settings {
    pub(super) fn spec(self) -> HubSpec {
        HubSpec {
            partition_count: self.partitions,
            retention: self.retention.map(|retention| retention.0),
            retention_bytes: self.retention_bytes.map(|bytes| bytes.0.map(Size)),
            expired_position: self.expired_position,
            status: self.status,
            user_metadata: self.user_metadata.map(|text| Some(text).filter(|text| !text.is_empty())),
            consumer_groups: Some(self.groups).filter(|groups| !groups.is_empty()),
        }
    }
}

/// `4 partitions, kept for 1d`.
pub(super) fn in_short(settings: &HubSettings) -> String {
    let partitions = crate::serve::plural(settings.partition_count.into(), "partition");
    let kept = settings
        .retention
        .map_or_else(|| "kept for ever".to_owned(), |span| format!("kept for {}", show_duration(span)));
    let mut parts = vec![partitions, kept];
    if let Some(bytes) = settings.retention_bytes {
        parts.push(format!("up to {} in each", show_size(bytes)));
    }
    if settings.status != QueueStatus::Active {
        parts.push(show_status(settings.status).to_owned());
    }
    parts.join(", ")
}
