//! What becomes of one message in a topic, and what that adds to the journal.
//!
//! All copies of a message are decided together and share a group of the journal, so what one message can lead to is bounded here, whatever
//! rules a topic has.

use bytes::Bytes;
use peeklock_filter::RuleName;
use peeklock_types::limits;

use crate::error::Error;
use crate::message::{Attributes, EntityId};

/// What a copy adds to the journal when it is like all others.
const COPY_BYTES: usize = 12;
/// What a copy adds that has words of its own or goes to the dead-letter queue, beside those words.
const OWN_COPY_BYTES: usize = 256;
/// What is said of a message in numbers.
const NUMBERS_BYTES: usize = 64;
/// What all changed copies of one message may add together.
const CHANGED_BYTES_MAX: usize = 1024 * 1024;
/// What is said about a copy that failed: enough for a sentence.
const WHY_BYTES_MAX: usize = 400;

/// What becomes of a message in a topic.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Who gets it as it is.
    pub(crate) plain: Vec<EntityId>,
    /// Who gets it as it is, and has an order in which it takes a place.
    pub(crate) placed: Vec<EntityId>,
    /// Who gets it changed by an action. A subscription gets a copy for each rule with one.
    pub(crate) changed: Vec<(EntityId, Bytes)>,
    /// Who gets it in the dead-letter queue, and why. Each subscription at most once.
    pub(crate) failed: Vec<(EntityId, String)>,
    /// What a copy says of the message beside its changes.
    base_bytes: usize,
    changed_bytes: usize,
    placed_bytes: usize,
    /// Of what waits in the topic or goes to dead-letter queues.
    other_bytes: usize,
}

impl Plan {
    /// For a message with these attributes.
    pub(crate) fn of(attributes: Option<&Attributes>) -> Plan {
        Plan { base_bytes: attributes.map_or(0, size_of), ..Plan::default() }
    }

    /// The topic gives each copy a time to live.
    pub(crate) fn add_time_to_live(&mut self) {
        self.base_bytes = self.base_bytes.max(NUMBERS_BYTES);
    }

    /// For one that waits in the topic until it is due.
    pub(crate) fn waiting(attributes: &Attributes) -> Plan {
        let view = attributes.view.as_ref().map_or(0, Bytes::len);
        Plan { base_bytes: size_of(attributes), other_bytes: view, ..Plan::default() }
    }

    pub(crate) fn copy_count(&self) -> usize {
        self.plain.len() + self.placed.len() + self.changed.len() + self.failed.len()
    }

    /// At least what the facts about it add to the journal, beside a few bytes for the message itself, as any message needs them.
    pub(crate) fn size_bytes(&self) -> usize {
        // Plain copies and failed ones each share what is said of the message.
        let shared = 2 * self.base_bytes + COPY_BYTES * (self.plain.len() + self.failed.len());
        shared + self.changed_bytes + self.other_bytes
    }

    /// A copy as it is. `is_dead`: it goes to the dead-letter queue.
    pub(crate) fn copy(&mut self, to: EntityId, is_dead: bool) {
        self.other_bytes += if is_dead { OWN_COPY_BYTES } else { 0 };
        self.plain.push(to);
    }

    /// A copy as it is, which says its place by itself. Where too many do so of one message, the rest wait with those of which nothing is known.
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
        // What a subscription gets is planned together.
        if self.failed.last().is_some_and(|(last, _)| *last == to) {
            return;
        }
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        self.other_bytes += OWN_COPY_BYTES + why.len();
        self.failed.push((to, why));
    }

    /// All who get a copy; those more than once who get more than one.
    pub(crate) fn targets(&self) -> impl Iterator<Item = &EntityId> {
        let changed = self.changed.iter().map(|(to, _)| to);
        self.plain.iter().chain(&self.placed).chain(changed).chain(self.failed.iter().map(|(to, _)| to))
    }
}

/// All copies of one send share a group of the journal.
pub(crate) fn check_copies<'p>(plans: impl Iterator<Item = &'p Plan> + Clone) -> Result<(), Error> {
    let size_bytes: usize = plans.clone().map(Plan::size_bytes).sum();
    // Of a single message a plan bounds it.
    if size_bytes > limits::COPIES_SIZE_BYTES_MAX && plans.clone().count() > 1 {
        return Err(Error::TooManyCopies { copy_count: plans.map(Plan::copy_count).sum() });
    }
    Ok(())
}

/// Of most messages nothing is said: they have a view, but that is not kept.
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
