use bytes::Bytes;
use peeklock_types::{EntityKind, SequenceNumber, SubQueue, Timestamp, limits};

use super::{NUMBERS_PER_MESSAGE, Queue};
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Attributes, MESSAGE_ID_BYTES_MAX, NewMessage};
use crate::output::Output;

impl Queue {
    /// Checks that the queue accepts all of these messages.
    pub(crate) fn check_send(&self, now: Timestamp, messages: &[NewMessage]) -> Result<(), Error> {
        self.check_open()?;
        if messages.is_empty() {
            return Err(Error::Nothing);
        }
        self.check_room(messages)?;
        self.check_bodies(messages)?;
        messages.iter().try_for_each(|message| self.check_message(now, message))
    }

    /// Checks that the entity accepts messages at all.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.kind == EntityKind::Subscription {
            return Err(Error::IsSubscription { name: self.name.clone() });
        }
        if !self.settings.status.can_send() {
            return Err(Error::Disabled { name: self.name.clone(), what: "sending" });
        }
        Ok(())
    }

    /// Stores a message that was checked, and returns its number. A duplicate is dropped, and the number is that of the
    /// first message.
    #[inline]
    pub(crate) fn store(&mut self, now: Timestamp, message: NewMessage, out: &mut Output) -> SequenceNumber {
        if let Some(number) = self.find_duplicate(now, &message) {
            return number;
        }
        let lane = self.lane_for(message.attributes.as_deref(), message.seed(now));
        let NewMessage { body, size_bytes, mut attributes } = message;
        if let Some((key, _)) = &lane {
            attributes.get_or_insert_default().lane = Some(key.clone());
        }
        let reserved = attributes.as_ref().and_then(|attributes| self.reserved_for(now, attributes));
        if let Some(attributes) = &mut attributes {
            attributes.scheduled_for = attributes.scheduled_for.filter(|due| *due > now);
            attributes.reserved = attributes.reserved.filter(|_| reserved.is_some());
        }
        let attributes = Attributes::kept(attributes, self.kind == EntityKind::Topic);
        let (entity, sequence_number) = (self.entity, reserved.unwrap_or(self.next_number));
        let fact = Fact::Enqueued { entity, sequence_number, enqueued_at: now, body, size_bytes, attributes };
        self.record(fact, out);
        if let Some((key, is_misfit)) = lane {
            self.note_new(now, sequence_number, &key, is_misfit);
        }
        sequence_number
    }

    pub(crate) fn find_duplicate(&self, now: Timestamp, message: &NewMessage) -> Option<SequenceNumber> {
        let window = self.settings.duplicate_window?;
        let id = message.attributes.as_ref()?.message_id.as_ref()?;
        self.history.find(now, window, id)
    }

    fn check_message(&self, now: Timestamp, message: &NewMessage) -> Result<(), Error> {
        let path = || self.path(SubQueue::Main);
        self.check_size(message.size_bytes)?;
        let attributes = message.attributes.as_deref();
        if self.settings.requires_session && attributes.is_none_or(|attributes| attributes.session.is_none())
        {
            return Err(Error::SessionRequired { path: path() });
        }
        let Some(attributes) = attributes else { return Ok(()) };
        if attributes.time_to_live.is_some_and(|ttl| ttl < limits::TIME_TO_LIVE_MIN) {
            return Err(Error::NoTimeToLive);
        }
        let size_bytes = attributes.message_id.as_ref().map_or(0, Bytes::len);
        if size_bytes > MESSAGE_ID_BYTES_MAX {
            return Err(Error::MessageIdTooLong { size_bytes });
        }
        let size_bytes = attributes.view.as_ref().map_or(0, Bytes::len);
        if size_bytes > limits::VIEW_SIZE_BYTES_MAX {
            return Err(Error::PropertiesTooLarge { path: path(), size_bytes });
        }
        if attributes.scheduled_for.is_some_and(|due| due > now + limits::SCHEDULE_AHEAD_MAX) {
            return Err(Error::TooFarAhead);
        }
        Ok(())
    }

    pub(super) fn check_size(&self, size_bytes: u32) -> Result<(), Error> {
        let max = self.settings.max_message_size_bytes;
        // The stored form of a message is slightly larger than the sent one.
        if size_bytes > max.saturating_add(STORED_EXTRA_BYTES) {
            return Err(Error::MessageTooLarge { path: self.path(SubQueue::Main), size_bytes, max });
        }
        Ok(())
    }

    fn check_room(&self, messages: &[NewMessage]) -> Result<(), Error> {
        self.check_numbers(messages.len())?;
        self.check_count(messages.len())?;
        let Some(max) = self.settings.max_size_bytes else { return Ok(()) };
        let size_bytes = self.size_bytes();
        let more: u64 = messages.iter().map(|message| u64::from(message.size_bytes)).sum();
        if size_bytes + more > max {
            return Err(self.full(size_bytes, max, "bytes", "max size"));
        }
        Ok(())
    }

    fn check_count(&self, more: usize) -> Result<(), Error> {
        let Some(max) = self.settings.max_count.map(u64::from) else { return Ok(()) };
        let count: u64 = self.parts().into_iter().map(|part| part.messages.count()).sum();
        if count + more as u64 > max {
            return Err(self.full(count, max, "messages", "max count"));
        }
        Ok(())
    }

    /// Returns the error for a limit that is reached, in the unit and with the name of its setting.
    pub(crate) fn full(&self, taken: u64, max: u64, unit: &'static str, setting: &'static str) -> Error {
        Error::QueueFull { path: self.path(SubQueue::Main), taken, max, unit, setting }
    }

    pub(crate) fn check_numbers(&self, count: usize) -> Result<(), Error> {
        if self.numbers_left() / NUMBERS_PER_MESSAGE < count as u64 {
            return Err(Error::NoSequenceNumberLeft { path: self.path(SubQueue::Main) });
        }
        Ok(())
    }

    pub(crate) fn check_bodies<'m>(
        &self,
        messages: impl IntoIterator<Item = &'m NewMessage>,
    ) -> Result<(), Error> {
        let mut newest = self.newest_group;
        for message in messages {
            if let Some(group) = message.body.group() {
                if group < newest {
                    return Err(Error::BodyOrder { path: self.path(SubQueue::Main), group, newest });
                }
                newest = group;
            }
        }
        Ok(())
    }
}

/// The bytes by which a stored message may exceed the sent one: a prefix, and a message id for messages that are sent
/// without one.
const STORED_EXTRA_BYTES: u32 = 1024;
