//! Fields of a message that Service Bus and Peeklock read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_amqp::{Header, Message, Text, Value};
use peeklock_types::{Timestamp, limits};

pub(crate) const SCHEDULED_TIME: &str = "x-opt-scheduled-enqueue-time";
/// Application properties that a queue with an order reads.
const PRIORITY: &str = "Priority";
const TENANT: &str = "tenant";

/// Sets fields of a message that Service Bus defines on top of AMQP.
///
/// ```
/// use std::time::Duration;
/// use peeklock_client::{Message, MessageExt};
///
/// let message = Message::data("one coffee")
///     .with_message_id("order-17")
///     .with_session_id("table-4")
///     .with_reply_to("served")
///     .with_time_to_live(Duration::from_secs(600));
/// assert_eq!(message.properties.group_id.unwrap(), "table-4");
/// ```
pub trait MessageExt: Sized {
    /// Sets the session of the message. A queue with sessions rejects a message without one.
    #[must_use]
    fn with_session_id(self, id: impl Into<Text>) -> Self;

    /// Sets the subject of the message.
    #[must_use]
    fn with_subject(self, subject: impl Into<Text>) -> Self;

    /// Sets the queue for replies.
    #[must_use]
    fn with_reply_to(self, address: impl Into<Text>) -> Self;

    /// Sets the session for replies.
    #[must_use]
    fn with_reply_to_session_id(self, id: impl Into<Text>) -> Self;

    /// Sets the time after which the message expires. The queue may have a lower limit.
    #[must_use]
    fn with_time_to_live(self, span: Duration) -> Self;

    /// Sets the priority as a number. A queue with classes hands out higher priorities first.
    #[must_use]
    fn with_priority(self, priority: u8) -> Self;

    /// Sets the priority as the name of a class of the queue. It takes precedence over a number.
    #[must_use]
    fn with_class(self, name: impl Into<Text>) -> Self;

    /// Sets the tenant, for a queue that identifies tenants by the property `tenant`.
    #[must_use]
    fn with_tenant(self, tenant: impl Into<Text>) -> Self;

    /// Sets the time when the message becomes available. A time in the past makes it available at once.
    #[must_use]
    fn with_scheduled_time(self, at: Timestamp) -> Self;
}

impl MessageExt for Message {
    fn with_session_id(mut self, id: impl Into<Text>) -> Self {
        self.properties.group_id = Some(id.into());
        self
    }

    fn with_subject(mut self, subject: impl Into<Text>) -> Self {
        self.properties.subject = Some(subject.into());
        self
    }

    fn with_reply_to(mut self, address: impl Into<Text>) -> Self {
        self.properties.reply_to = Some(address.into());
        self
    }

    fn with_reply_to_session_id(mut self, id: impl Into<Text>) -> Self {
        self.properties.reply_to_group_id = Some(id.into());
        self
    }

    fn with_time_to_live(mut self, span: Duration) -> Self {
        let millis = i64::try_from(span.min(limits::DURATION_MAX).as_millis()).unwrap_or(i64::MAX);
        let ttl = u32::try_from(millis).unwrap_or(u32::MAX);
        self.header = Some(Header { ttl: Some(ttl), ..self.header.unwrap_or_default() });
        if ttl == u32::MAX {
            // The header field holds at most 49 days. For longer times, these two fields hold the expiry.
            let now = now_ms();
            self.properties.creation_time = Some(now);
            self.properties.absolute_expiry_time = Some(now.saturating_add(millis));
        }
        self
    }

    fn with_priority(mut self, priority: u8) -> Self {
        self.header = Some(Header { priority: Some(priority), ..self.header.unwrap_or_default() });
        self
    }

    fn with_class(self, name: impl Into<Text>) -> Self {
        self.with_property(PRIORITY, Value::String(name.into()))
    }

    fn with_tenant(self, tenant: impl Into<Text>) -> Self {
        self.with_property(TENANT, Value::String(tenant.into()))
    }

    fn with_scheduled_time(mut self, at: Timestamp) -> Self {
        let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        self.message_annotations.insert(SCHEDULED_TIME, Value::Timestamp(millis));
        self
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_amqp::Encode;

    #[test]
    fn every_field_is_stored_where_service_bus_reads_it() {
        let message = Message::data("x")
            .with_session_id("s")
            .with_subject("coffee")
            .with_reply_to("served")
            .with_reply_to_session_id("r")
            .with_time_to_live(Duration::from_secs(5))
            .with_priority(7)
            .with_class("high")
            .with_tenant("shop-1")
            .with_scheduled_time(Timestamp::from_millis(7));
        let message = Message::decode(&message.to_bytes()).unwrap();
        assert_eq!(message.properties.group_id.unwrap(), "s");
        assert_eq!(message.properties.subject.unwrap(), "coffee");
        assert_eq!(message.properties.reply_to.unwrap(), "served");
        assert_eq!(message.properties.reply_to_group_id.unwrap(), "r");
        assert_eq!(message.header.unwrap().ttl, Some(5000));
        assert_eq!(message.header.unwrap().priority, Some(7));
        let properties = [("Priority".into(), "high".into()), ("tenant".into(), "shop-1".into())];
        assert_eq!(message.application_properties, properties);
        assert_eq!(message.message_annotations.get(SCHEDULED_TIME), Some(&Value::Timestamp(7)));
        assert_eq!(message.properties.absolute_expiry_time, None);
    }

    #[test]
    fn a_long_time_to_live_does_not_end_after_49_days() {
        let year = Duration::from_secs(365 * 86_400);
        let message = Message::data("x").with_time_to_live(year);
        assert_eq!(message.header.unwrap().ttl, Some(u32::MAX));
        let (start, end) =
            (message.properties.creation_time.unwrap(), message.properties.absolute_expiry_time);
        assert_eq!(end.unwrap() - start, 31_536_000_000);
    }
}
