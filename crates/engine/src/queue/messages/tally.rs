use super::super::table::MessageRow;
use crate::message::MessageState;

/// The counts of messages, updated with every change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) deferred: u64,
    pub(super) scheduled: u64,
    pub(super) standalone: u64,
    pub(super) size_bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, entry: &MessageRow) {
        if entry.state != MessageState::Active {
            self.deferred += u64::from(entry.state == MessageState::Deferred);
            self.scheduled += u64::from(entry.state == MessageState::Scheduled);
        }
        self.standalone += u64::from(entry.body.is_standalone());
        self.size_bytes += u64::from(entry.size_bytes);
    }

    pub(super) fn remove(&mut self, entry: &MessageRow) {
        if entry.state != MessageState::Active {
            self.deferred -= u64::from(entry.state == MessageState::Deferred);
            self.scheduled -= u64::from(entry.state == MessageState::Scheduled);
        }
        self.standalone -= u64::from(entry.body.is_standalone());
        self.size_bytes -= u64::from(entry.size_bytes);
    }
}
