//! What the clients of a test have received and completed.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::connection::Observer;
use crate::{LockToken, ReceivedMessage, SequenceNumber};

/// A message that a client holds, for [`TestBroker::lose_lock_of`](super::TestBroker::lose_lock_of).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldMessage<'a> {
    /// The message with this message id.
    Id(&'a str),
    /// The message with this sequence number.
    Number(SequenceNumber),
}

impl<'a> From<&'a str> for HeldMessage<'a> {
    fn from(id: &'a str) -> Self {
        HeldMessage::Id(id)
    }
}

impl From<SequenceNumber> for HeldMessage<'_> {
    fn from(number: SequenceNumber) -> Self {
        HeldMessage::Number(number)
    }
}

impl fmt::Display for HeldMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldMessage::Id(id) => write!(f, "message '{id}'"),
            HeldMessage::Number(number) => write!(f, "message number {number}"),
        }
    }
}

/// The last lock of each received message, and the number of completed messages, by entity in lower case.
#[derive(Default)]
pub(super) struct Ledger {
    entities: Mutex<HashMap<String, Page>>,
}

#[derive(Default)]
struct Page {
    completed_count: u64,
    locks: HashMap<SequenceNumber, Lock>,
}

struct Lock {
    id: Option<String>,
    token: LockToken,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Page>> {
        self.entities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn completed(&self, entity: &str) -> u64 {
        self.lock().get(&entity.to_ascii_lowercase()).map_or(0, |page| page.completed_count)
    }

    /// Returns the last lock token of a message.
    pub(super) fn token(&self, entity: &str, message: HeldMessage<'_>) -> Option<LockToken> {
        let entities = self.lock();
        let locks = &entities.get(&entity.to_ascii_lowercase())?.locks;
        let lock = match message {
            HeldMessage::Number(number) => locks.get(&number),
            // Of several messages with one id, the newest is meant.
            HeldMessage::Id(id) => {
                let mut named: Vec<_> =
                    locks.iter().filter(|(_, lock)| lock.id.as_deref() == Some(id)).collect();
                named.sort_unstable_by_key(|(number, _)| **number);
                named.last().map(|(_, lock)| *lock)
            }
        };
        lock.map(|lock| lock.token)
    }
}

impl Observer for Ledger {
    fn received(&self, entity: &str, message: &ReceivedMessage) {
        let (Some(number), Some(token)) = (message.sequence_number(), message.lock_token) else { return };
        let lock = Lock { id: message.message_id(), token };
        self.lock().entry(entity.to_ascii_lowercase()).or_default().locks.insert(number, lock);
    }

    fn completed(&self, entity: &str) {
        self.lock().entry(entity.to_ascii_lowercase()).or_default().completed_count += 1;
    }
}
