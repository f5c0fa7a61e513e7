//! Receipts: the right to change a message whether it is locked or not.

use peeklock_types::{SequenceNumber, Timestamp};

use super::super::table::{Marks, Row};
use super::{Messages, Misfit};
use crate::message::{Details, MessageState};

impl Messages {
    pub(crate) fn receipt_of(&self, number: SequenceNumber) -> Option<u64> {
        let entry = self.get(number).filter(|entry| entry.marks.has(Marks::DETAILED));
        entry.and_then(|_| self.details_of(number)).and_then(|details| details.receipt)
    }

    pub(crate) fn has_receipt(&self, number: SequenceNumber) -> bool {
        self.receipt_of(number).is_some()
    }

    /// Permits the holder of `nonce` to change the message from now on. If there is a time, no other receiver gets the
    /// message before it.
    pub(crate) fn give_receipt(
        &mut self,
        number: SequenceNumber,
        nonce: u64,
        until: Option<Timestamp>,
    ) -> Result<(), Misfit> {
        let entry = *self.get(number).ok_or(Misfit::Missing)?;
        if entry.session.is_some() || !matches!(entry.state, MessageState::Active | MessageState::Delayed) {
            return Err(Misfit::OtherState);
        }
        if let Some(slot) = entry.lock {
            self.locks.rename(slot, nonce);
            if let Some(until) = until {
                self.locks.renew(slot, until);
            }
            return self.set_receipt(number, Some(nonce));
        }
        if until.is_none() {
            return self.set_receipt(number, Some(nonce));
        }
        self.disarm(number, &entry);
        self.change(number, |entry| entry.state = MessageState::Delayed)?;
        self.set_times(number, until, None)?;
        self.set_receipt(number, Some(nonce))?;
        let entry = *self.get(number).ok_or(Misfit::Missing)?;
        self.arm(number, &entry);
        Ok(())
    }

    /// Invalidates the receipt, because another receiver has got the message.
    #[inline]
    pub(crate) fn end_receipt(&mut self, number: SequenceNumber) {
        // Most queues have no message with details, and then no lookup is necessary.
        if !self.details.is_empty() && self.has_receipt(number) {
            // The message exists, as was just checked.
            let _ = self.set_receipt(number, None);
        }
    }

    fn set_receipt(&mut self, number: SequenceNumber, nonce: Option<u64>) -> Result<(), Misfit> {
        let details = self.details.entry(number.0).or_default();
        details.receipt = nonce;
        let is_needed = **details != Details::default();
        if !is_needed {
            self.details.remove(&number.0);
        }
        self.change(number, |entry| entry.marks.set(Marks::DETAILED, is_needed))
    }

    /// Returns the messages that could be delivered, in the order of their numbers.
    pub(crate) fn all_waiting(&self) -> impl Iterator<Item = (SequenceNumber, Row<'_>)> {
        let (returned, from) = self.waiting.returned();
        // With an order, the list of waiting messages is not maintained.
        let from = if self.order.is_some() { 0 } else { from };
        let returned = returned.filter_map(|number| Some((number, self.table.get(number)?)));
        let row = self.table.iter_from(from).filter(|(_, entry)| entry.is_waiting());
        returned.chain(row).map(|(number, entry)| (SequenceNumber(number), entry))
    }
}
