//! The copies of one message of a topic, and the bytes that they add to the journal.
//!
//! All copies of a message are decided together and share a commit group, so this module limits the facts of one
//! message, whatever rules the topic has.

use bytes::Bytes;
use peeklock_filter::RuleName;
use peeklock_types::limits;

use crate::error::Error;
use crate::message::{Attributes, EntityId};

/// The bytes that a copy without changes adds to the journal.
const COPY_BYTES: usize = 12;
/// The bytes of a copy that has its own attributes or goes to the dead-letter queue, beside those attributes.
const OWN_COPY_BYTES: usize = 256;
/// The bytes of a message's numeric attributes.
const NUMBERS_BYTES: usize = 64;
/// The limit for all changed copies of one message together.
const CHANGED_BYTES_MAX: usize = 1024 * 1024;
/// The limit for the description of a failed copy: enough for a sentence.
const WHY_BYTES_MAX: usize = 400;

/// The copies of one message of a topic.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Subscriptions that get the message unchanged.
    pub(crate) plain: Vec<EntityId>,
    /// Subscriptions with an order that get the message unchanged, in a lane.
    pub(crate) placed: Vec<EntityId>,
    /// Subscriptions that get the message changed by an action. A subscription gets a copy for each rule with an
    /// action.
    pub(crate) changed: Vec<(EntityId, Bytes)>,
    /// Subscriptions that get the message in the dead-letter queue, with the reason. Each subscription occurs at most
    /// once.
    pub(crate) failed: Vec<(EntityId, String)>,
    /// The bytes of the attributes of each copy, beside its changes.
    base_bytes: usize,
    changed_bytes: usize,
    placed_bytes: usize,
    /// The bytes of messages that wait in the topic or go to dead-letter queues.
    other_bytes: usize,
}

impl Plan {
    /// Creates an empty plan for a message with these attributes.
    pub(crate) fn of(attributes: Option<&Attributes>) -> Plan {
        Plan { base_bytes: attributes.map_or(0, size_of), ..Plan::default() }
    }

    /// Accounts for a time to live that the topic sets on each copy.
    pub(crate) fn add_time_to_live(&mut self) {
        self.base_bytes = self.base_bytes.max(NUMBERS_BYTES);
    }

    /// Creates the plan of a message that waits in the topic until it is due.
    pub(crate) fn waiting(attributes: &Attributes) -> Plan {
        let view = attributes.view.as_ref().map_or(0, Bytes::len);
        Plan { base_bytes: size_of(attributes), other_bytes: view, ..Plan::default() }
    }

    pub(crate) fn copy_count(&self) -> usize {
        self.plain.len() + self.placed.len() + self.changed.len() + self.failed.len()
    }

    /// Returns an upper estimate of the bytes that the facts of the plan add to the journal, without the few bytes that
    /// every message needs.
    pub(crate) fn size_bytes(&self) -> usize {
        // Plain copies share one set of attributes, and so do failed ones.
        let shared = 2 * self.base_bytes + COPY_BYTES * (self.plain.len() + self.failed.len());
        shared + self.changed_bytes + self.other_bytes
    }

    /// Adds an unchanged copy. `is_dead` is set if it goes to the dead-letter queue.
    pub(crate) fn copy(&mut self, to: EntityId, is_dead: bool) {
        self.other_bytes += if is_dead { OWN_COPY_BYTES } else { 0 };
        self.plain.push(to);
    }

    /// Adds an unchanged copy that stores its own lane. If one message has too many of them, the rest go to the default
    /// lane.
    pub(crate) fn place(&mut self, to: EntityId, is_dead: bool) {
        let size_bytes = OWN_COPY_BYTES + self.base_bytes;
        if self.placed_bytes + size_bytes > CHANGED_BYTES_MAX {
            return self.copy(to, is_dead);
        }
        self.placed_bytes += size_bytes;
        self.other_bytes += size_bytes + if is_dead { OWN_COPY_BYTES } else { 0 };
        self.placed.push(to);
    }

    pub(crate) fn change(&mut self, to: EntityId, rule: &RuleName, changes: Bytes) {
        let size_bytes = OWN_COPY_BYTES + self.base_bytes + changes.len();
        if self.changed_bytes + size_bytes > CHANGED_BYTES_MAX {
            let why =
                format!("The rule '{rule}' and others change more of one message than is allowed together.");
            return self.fail(to, why);
        }
        self.changed_bytes += size_bytes;
        self.changed.push((to, changes));
    }

    pub(crate) fn fail(&mut self, to: EntityId, mut why: String) {
        // All copies of a subscription are planned one after the other.
        if self.failed.last().is_some_and(|(last, _)| *last == to) {
            return;
        }
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        self.other_bytes += OWN_COPY_BYTES + why.len();
        self.failed.push((to, why));
    }

    /// Returns the subscriptions that get a copy, once for each copy.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &EntityId> {
        let changed = self.changed.iter().map(|(to, _)| to);
        self.plain.iter().chain(&self.placed).chain(changed).chain(self.failed.iter().map(|(to, _)| to))
    }
}

/// Checks that all copies of one send fit in a commit group.
pub(crate) fn check_copies<'p>(plans: impl Iterator<Item = &'p Plan> + Clone) -> Result<(), Error> {
    let size_bytes: usize = plans.clone().map(Plan::size_bytes).sum();
    // The plan already limits the copies of a single message.
    if size_bytes > limits::COPIES_SIZE_BYTES_MAX && plans.clone().count() > 1 {
        return Err(Error::TooManyCopies { copy_count: plans.map(Plan::copy_count).sum() });
    }
    Ok(())
}

/// Returns the bytes that the attributes add to a record. Most messages add none: they only have a view, which is not
/// kept.
fn size_of(attributes: &Attributes) -> usize {
    let Attributes { session, time_to_live, scheduled_for, message_id, origin, patch, .. } = attributes;
    let has_numbers = time_to_live.is_some() || scheduled_for.is_some() || origin.is_some();
    if !has_numbers && session.is_none() && message_id.is_none() && patch.is_empty() {
        return 0;
    }
    let session = session.as_ref().map_or(0, |session| session.as_str().len());
    let id = message_id.as_ref().map_or(0, Bytes::len);
    let source = origin.as_ref().and_then(|origin| origin.dead_letter_source.as_ref());
    NUMBERS_BYTES + session + id + source.map_or(0, |name| name.as_str().len()) + patch.size_bytes()
}
