//! The settings of event hubs as a builder.

use std::time::Duration;

use peeklock_spec::{HubSpec, Size};
use peeklock_types::{ConsumerGroup, ExpiredPosition, QueueStatus};

use super::invalid;
use crate::error::Error;

/// The settings of an event hub.
///
/// A setting that is not set has its default in a new hub, and keeps its value in an update.
///
/// ```
/// use std::time::Duration;
/// use peeklock::admin::Hub;
///
/// let telemetry = Hub::new().partitions(8).retention(Duration::from_secs(7 * 24 * 3600)).consumer_group("billing");
/// # let _ = telemetry;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to a method of Admin"]
pub struct Hub {
    spec: HubSpec,
    /// The first setting that could not be parsed.
    wrong: Option<Error>,
}

impl Hub {
    /// Returns settings without any value.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of partitions. The default is 4; it can be increased later, but not reduced.
    pub fn partitions(mut self, count: u32) -> Self {
        self.spec.partition_count = Some(count);
        self
    }

    /// Sets the minimum time for which events are kept, or `None` for ever. The default is one day.
    pub fn retention(mut self, span: impl Into<Option<Duration>>) -> Self {
        self.spec.retention = Some(span.into());
        self
    }

    /// Limits the approximate size of each partition.
    pub fn retention_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.spec.retention_bytes = Some(bytes.into().map(Size));
        self
    }

    /// Continues a reader whose next event is gone at the earliest event. The default is an error.
    pub fn continue_at_earliest(mut self, enabled: bool) -> Self {
        let position = if enabled { ExpiredPosition::Earliest } else { ExpiredPosition::Refuse };
        self.spec.expired_position = Some(position);
        self
    }

    /// Opens or closes the hub for senders and readers.
    pub fn status(mut self, status: QueueStatus) -> Self {
        self.spec.status = Some(status);
        self
    }

    /// Stores a note with the hub.
    pub fn user_metadata<'a>(mut self, text: impl Into<Option<&'a str>>) -> Self {
        self.spec.user_metadata = Some(text.into().map(str::to_owned));
        self
    }

    /// Adds a consumer group beside `$Default`.
    pub fn consumer_group(mut self, name: &str) -> Self {
        match ConsumerGroup::parse(name) {
            Ok(group) => self.spec.consumer_groups.get_or_insert_default().push(group),
            Err(error) => {
                self.wrong.get_or_insert_with(|| invalid(error.to_string()));
            }
        }
        self
    }

    /// Returns the spec, validated.
    pub(super) fn checked(self) -> Result<HubSpec, Error> {
        if let Some(error) = self.wrong {
            return Err(error);
        }
        self.spec.settings().check().map_err(|error| invalid(error.to_string()))?;
        Ok(self.spec)
    }
}

impl From<HubSpec> for Hub {
    fn from(spec: HubSpec) -> Self {
        Hub { spec, wrong: None }
    }
}
