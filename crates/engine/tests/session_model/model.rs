//! The rules of sessions in their simplest form.

use std::time::Duration;

use peeklock_engine::{MessageState, ReceiverId, Settlement};
use peeklock_types::{BodyRef, PoisonSession, QueueSettings, RetryPolicy, SequenceNumber, Timestamp};

/// The state that must survive a crash.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) settings: QueueSettings,
    pub(crate) next_number: u64,
    /// The messages, by sequence number.
    pub(crate) messages: Vec<ModelMessage>,
    /// The state of each session, and when it was set.
    pub(crate) states: [Option<(u8, Timestamp)>; 3],
    /// The spelling of each session's id.
    pub(crate) ids: [&'static str; 3],
}

#[derive(Clone, Debug)]
pub(crate) struct ModelMessage {
    pub(crate) number: SequenceNumber,
    pub(crate) body: BodyRef,
    pub(crate) session: usize,
    pub(crate) is_dead: bool,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) state: MessageState,
    pub(crate) due: Option<Timestamp>,
    pub(crate) failed_count: u32,
    pub(crate) nonce: Option<u64>,
    /// The message has failed as often as the queue permits, and its session is set aside for it.
    pub(crate) is_poison: bool,
    /// The expiry of the lock under which the message was deferred.
    pub(crate) was_locked_until: Option<Timestamp>,
    pub(crate) is_activated: bool,
}

/// A session with its holder. A crash removes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) receiver: ReceiverId,
    pub(crate) session: usize,
    pub(crate) until: Timestamp,
    /// The number of the hold.
    pub(crate) number: u64,
}

/// The moment at which a session was let go: the newest message number, and the number of the hold. A crash removes it.
pub(crate) type LetGo = (u64, u64);

impl ModelMessage {
    /// Returns whether the message is in its session's row. A delayed message is in the row, so that nothing overtakes
    /// it.
    fn is_in_row(&self) -> bool {
        let in_row = matches!(self.state, MessageState::Active | MessageState::Delayed);
        !self.is_dead && self.nonce.is_none() && in_row
    }

    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        let counts = !self.is_dead && self.nonce.is_none() && self.state != MessageState::Scheduled;
        self.time_to_live.filter(|_| counts).map(|ttl| self.enqueued_at + ttl)
    }

    fn dead_letter(&mut self, failed: bool) {
        self.nonce = None;
        self.failed_count += u32::from(failed);
        (self.is_dead, self.state, self.due) = (true, MessageState::Active, None);
        (self.was_locked_until, self.is_activated) = (None, false);
    }

    fn fail(&mut self, settings: &QueueSettings, now: Timestamp, wish: Option<Duration>) {
        let is_last = self.failed_count + 1 >= settings.max_delivery_count;
        if is_last && settings.poison_session == PoisonSession::DeadLetter {
            self.dead_letter(true);
            return;
        }
        self.nonce = None;
        self.failed_count += 1;
        self.is_poison |= is_last && settings.poison_session == PoisonSession::SetAside;
        let policy = match settings.retry {
            RetryPolicy::Fixed { delay } => delay,
            _ => Duration::ZERO,
        };
        let delay = wish.unwrap_or(policy);
        if self.state != MessageState::Deferred && !delay.is_zero() {
            (self.state, self.due) = (MessageState::Delayed, Some(now + delay));
        }
    }
}

impl Model {
    pub(crate) fn in_session(&self, session: usize) -> impl Iterator<Item = &ModelMessage> {
        self.messages.iter().filter(move |m| !m.is_dead && m.session == session)
    }

    /// Records the spelling of a session's id when the session gets a message or a state: the first one decides it.
    pub(crate) fn note_id(&mut self, session: usize, id: &'static str) {
        if self.in_session(session).next().is_none() && self.states[session].is_none() {
            self.ids[session] = id;
        }
    }

    /// Returns the message to deliver next, if it may be delivered.
    pub(crate) fn head(&self, session: usize) -> Option<SequenceNumber> {
        let first = self.in_session(session).find(|m| m.is_in_row());
        first.filter(|m| m.state == MessageState::Active).map(|m| m.number)
    }

    /// Returns the next available session: the one that has waited longest since its first message arrived, or since it was
    /// let go.
    pub(crate) fn available(&self, holds: &[Hold], let_go: &[LetGo; 3]) -> Option<usize> {
        let is_free = |session: &usize| holds.iter().all(|hold| hold.session != *session);
        let is_clean = |session: &usize| self.in_session(*session).all(|m| !m.is_poison);
        let free = (0..3).filter(is_free).filter(is_clean);
        let turns = free.filter_map(|session| {
            let SequenceNumber(head) = self.head(session)?;
            Some((let_go[session].max((head, 0)), head, session))
        });
        turns.min().map(|(.., session)| session)
    }

    pub(crate) fn find(&mut self, number: SequenceNumber) -> Option<&mut ModelMessage> {
        self.messages.iter_mut().find(|m| m.number == number)
    }

    pub(crate) fn remove(&mut self, number: SequenceNumber) {
        self.messages.retain(|m| m.number != number);
    }

    /// Settles a message. `until` is the expiry of the session lock.
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        number: SequenceNumber,
        settlement: &Settlement,
        until: Timestamp,
    ) {
        let settings = self.settings.clone();
        let held = self.find(number).unwrap();
        match settlement {
            Settlement::Complete => self.remove(number),
            Settlement::Release | Settlement::Interrupt => held.nonce = None,
            Settlement::Abandon { delay, .. } => held.fail(&settings, now, *delay),
            Settlement::Defer { .. } => {
                (held.nonce, held.state) = (None, MessageState::Deferred);
                (held.failed_count, held.was_locked_until) = (held.failed_count + 1, Some(until));
            }
            Settlement::DeadLetter { .. } => held.dead_letter(false),
        }
    }

    /// Releases the messages that are locked in a session, as failed.
    pub(crate) fn free(&mut self, now: Timestamp, session: usize) {
        let settings = &self.settings;
        let locked = self.messages.iter_mut().filter(|m| !m.is_dead && m.session == session);
        locked.filter(|m| m.nonce.is_some()).for_each(|m| m.fail(settings, now, None));
    }

    /// Executes the timers: messages become due and expire.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        let next_due = |messages: &[ModelMessage]| {
            let due = messages.iter().enumerate().filter(|(_, m)| m.due.is_some_and(|due| due <= now));
            due.min_by_key(|(at, m)| (m.due, *at)).map(|(at, _)| at)
        };
        while let Some(at) = next_due(&self.messages) {
            let is_scheduled = self.messages[at].state == MessageState::Scheduled;
            (self.messages[at].state, self.messages[at].due) = (MessageState::Active, None);
            if is_scheduled {
                let mut moved = self.messages.remove(at);
                (moved.number, moved.enqueued_at) = (SequenceNumber(self.next_number), now);
                moved.is_activated = true;
                self.next_number += 1;
                self.messages.push(moved);
            }
        }
        self.messages.retain(|m| m.expires_at().is_none_or(|at| at > now));
    }

    pub(crate) fn purge(&mut self, session: Option<usize>, before: Timestamp, count_max: u64) -> u64 {
        let mut left = count_max;
        self.messages.retain(|m| {
            let is_meant = !m.is_dead
                && session.is_none_or(|session| m.session == session)
                && m.nonce.is_none()
                && m.state != MessageState::Scheduled
                && m.enqueued_at < before
                && left > 0;
            left -= u64::from(is_meant);
            !is_meant
        });
        count_max - left
    }
}
