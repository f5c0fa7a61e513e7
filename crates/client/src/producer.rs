//! Producers that number their events: what is sent again is not stored again.

use peeklock_amqp::{Attach, Message, Symbol, Value};

const CAPABILITY: &str = "com.microsoft:idempotent-producer";
const ID: &str = "com.microsoft:producer-id";
const EPOCH: &str = "com.microsoft:producer-epoch";
const SEQUENCE: &str = "com.microsoft:producer-sequence-number";

/// Who numbers its events. Of two with the same id, the one with the higher epoch goes on, and the other is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
}

impl Producer {
    /// Gives an event its number. Those of one partition follow each other, and go on with 0 after `i32::MAX`.
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

    /// The number that was taken last, as the broker answers.
    pub(crate) fn last_number(attach: &Attach) -> Option<i32> {
        let number = attach.properties.as_ref()?.get(SEQUENCE)?.as_i64()?;
        i32::try_from(number).ok()
    }
}
