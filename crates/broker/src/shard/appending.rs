//! Appends finished commit groups to the log.

use std::collections::VecDeque;

use peeklock_journal::{AppendError, Log, Payload};
use peeklock_types::CommitGroupNumber;

use super::Failure;

/// The largest commit group for which a shard lets the log block it.
const ALONE_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct Appending {
    /// Commit groups that are not appended yet, usually because the log had no room.
    finished: VecDeque<Payload>,
    appended: CommitGroupNumber,
    durable: CommitGroupNumber,
}

impl Appending {
    pub(crate) fn new(watermark: CommitGroupNumber) -> Self {
        Appending { finished: VecDeque::new(), appended: watermark, durable: watermark }
    }

    pub(crate) fn push(&mut self, group: Payload) {
        self.finished.push_back(group);
    }

    /// Appends the finished commit groups in order, until the log has no room. With `is_alone`, the shard has nothing
    /// else to do, so the log may block it while it writes a small group.
    pub(crate) fn append_to<L: Log>(&mut self, log: &mut L, is_alone: bool) -> Result<(), Failure> {
        while let Some(payload) = self.finished.front() {
            let is_alone = is_alone && self.finished.len() == 1 && payload.len() <= ALONE_BYTES_MAX;
            let payload = payload.clone();
            let appended = if is_alone { log.append_alone(payload) } else { log.append(payload) };
            match appended {
                Ok(number) => self.appended = number,
                Err(AppendError::Busy) => return Ok(()),
                Err(AppendError::Poisoned(poisoned)) => return Err(poisoned.into()),
                Err(error) => return Err(Failure::Append(error)),
            }
            self.finished.pop_front();
        }
        Ok(())
    }

    /// Returns whether the log has accepted every finished commit group. The shard starts no new batch before that.
    pub(crate) fn has_room(&self) -> bool {
        self.finished.is_empty()
    }

    pub(crate) fn appended(&self) -> CommitGroupNumber {
        self.appended
    }

    pub(crate) fn durable(&self) -> CommitGroupNumber {
        self.durable
    }

    pub(crate) fn set_durable(&mut self, watermark: CommitGroupNumber) {
        self.durable = watermark;
    }

    /// Returns whether appended commit groups are not durable yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.appended > self.durable
    }
}
