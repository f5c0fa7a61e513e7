use std::time::Duration;

/// Bounds that hold everywhere, each with its unit in the name.
pub mod limits {
    use std::time::Duration;

    pub const ENTITY_NAME_CHARS_MAX: usize = 260;
    pub const LOCK_DURATION_MIN: Duration = Duration::from_secs(1);
    pub const LOCK_DURATION_MAX: Duration = Duration::from_secs(300);
    pub const DELIVERY_COUNT_MAX: u32 = 2000;
    pub const MESSAGE_ID_CHARS_MAX: usize = 128;
    pub const DEAD_LETTER_TEXT_CHARS_MAX: usize = 4096;
    /// One message with all its sections; also the ceiling for one batch.
    pub const MESSAGE_SIZE_BYTES_MAX: usize = 1024 * 1024;
    /// Bodies of all messages that one answer carries, unless it carries only one.
    pub const ANSWER_SIZE_BYTES_MAX: usize = 4 * 1024 * 1024;
    /// Messages that one batch, one peek or one management call may name.
    pub const BATCH_COUNT_MAX: usize = 4096;
}

/// What a queue was told when it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    pub lock_duration: Duration,
    /// A message that was delivered this often without success goes to the dead-letter queue.
    pub max_delivery_count: u32,
}

impl Default for QueueSettings {
    fn default() -> Self {
        QueueSettings { lock_duration: Duration::from_secs(60), max_delivery_count: 10 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("a lock duration of {given:?} is outside of {min:?} to {max:?}", min = limits::LOCK_DURATION_MIN, max = limits::LOCK_DURATION_MAX)]
    LockDuration { given: Duration },
    #[error("a max delivery count of {given} is outside of 1 to {max}", max = limits::DELIVERY_COUNT_MAX)]
    MaxDeliveryCount { given: u32 },
}

impl QueueSettings {
    pub fn check(&self) -> Result<(), SettingsError> {
        if !(limits::LOCK_DURATION_MIN..=limits::LOCK_DURATION_MAX).contains(&self.lock_duration) {
            return Err(SettingsError::LockDuration { given: self.lock_duration });
        }
        if !(1..=limits::DELIVERY_COUNT_MAX).contains(&self.max_delivery_count) {
            return Err(SettingsError::MaxDeliveryCount { given: self.max_delivery_count });
        }
        Ok(())
    }
}
