//! Producers that number their events, so that an event that is sent again is stored once.

use peeklock_amqp::{Attach, Message, Symbol, Value};

const CAPABILITY: &str = "com.microsoft:idempotent-producer";
const ID: &str = "com.microsoft:producer-id";
const EPOCH: &str = "com.microsoft:producer-epoch";
const SEQUENCE: &str = "com.microsoft:producer-sequence-number";

/// A producer that numbers its events. Of two producers with the same id, the broker accepts the one with the higher epoch and rejects the
/// other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// The id of the producer.
    pub id: i64,
    /// The epoch of the producer; it increases when another instance takes over the id.
    pub epoch: i16,
}

impl Producer {
    /// Sets the number of an event. Numbers in a partition are consecutive and continue with 0 after `i32::MAX`.
    #[must_use]
    pub fn number(self, mut event: Message, number: i32) -> Message {
        event.message_annotations.insert(ID, Value::Long(self.id));
        event.message_annotations.insert(EPOCH, Value::Short(self.epoch));
        event.message_annotations.insert(SEQUENCE, Value::Int(number));
        event
    }

    pub(crate) fn fill(self, attach: &mut Attach) {
        attach.desired_capabilities.push(Symbol::from_static(CAPABILITY));
        let properties = attach.properties.get_or_insert_default();
        properties.insert(ID, Value::Long(self.id));
        properties.insert(EPOCH, Value::Short(self.epoch));
    }

    /// Returns the last stored number, from the broker's attach response.
    pub(crate) fn last_number(attach: &Attach) -> Option<i32> {
        let number = attach.properties.as_ref()?.get(SEQUENCE)?.as_i64()?;
        i32::try_from(number).ok()
    }
}
