use peeklock_types::{BodyPlace, SequenceNumber, SubQueue, Timestamp};

use super::{Queue, SEQUENCE_NUMBER_MAX};
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{NewMessage, check_count};
use crate::outbox::Outbox;

impl Queue {
    pub(crate) fn send(
        &mut self,
        now: Timestamp,
        messages: &[NewMessage],
        out: &mut Outbox,
    ) -> Result<SequenceNumber, Error> {
        check_count(messages.len())?;
        self.check_numbers(messages.len())?;
        self.check_bodies(messages)?;
        let (entity, first) = (self.entity, self.next_number);
        for &NewMessage { body, size_bytes } in messages {
            let sequence_number = self.next_number;
            self.record(Fact::Enqueued { entity, sequence_number, enqueued_at: now, body, size_bytes }, out);
        }
        Ok(first)
    }

    fn check_numbers(&self, count: usize) -> Result<(), Error> {
        if SEQUENCE_NUMBER_MAX.0 - self.next_number.0 < count as u64 {
            return Err(Error::NoSequenceNumberLeft { path: self.path(SubQueue::Main) });
        }
        Ok(())
    }

    fn check_bodies(&self, messages: &[NewMessage]) -> Result<(), Error> {
        let mut newest = self.newest_group;
        for message in messages {
            if let BodyPlace::Log { group, .. } = message.body.place() {
                if group < newest {
                    return Err(Error::BodyOrder { path: self.path(SubQueue::Main), group, newest });
                }
                newest = group;
            }
        }
        Ok(())
    }
}
