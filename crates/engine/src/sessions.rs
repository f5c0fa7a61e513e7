//! Attaches and detaches receivers, and manages the sessions that they hold.

use std::time::Duration;

use bytes::Bytes;
use peeklock_types::{EntityKind, SequenceNumber, SessionId, SubQueue, Timestamp, limits};

use crate::agenda::Address;
use crate::engine::{Engine, FACTS_PER_CALL_MAX};
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{EntityId, Message, ReceiveMode, ReceiverId, SessionWish};
use crate::output::{Accepted, CloseReason, Closed, HeldSession, Output, Received};
use crate::queue::{Holder, Queue, SessionSlot};
use crate::receivers::{Place, Receiver, Receivers};

/// The source of a new receiver's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    Queue,
    Session(HeldSession),
    /// [`Output::accepted`] will report the session, or [`Output::closed`] that none became free in time.
    Waiting,
}

impl Engine {
    /// Adds a receiver, without credit and with an empty window.
    pub fn attach_receiver(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        mode: ReceiveMode,
        wish: SessionWish,
    ) -> Result<Attached, Error> {
        if self.receivers.by_id.contains_key(&receiver) {
            return Err(Error::ReceiverExists { receiver });
        }
        let (place, attached) = self.command(now, entity, |queue| {
            if queue.kind == EntityKind::Topic && sub_queue != SubQueue::TransferDeadLetter {
                return Err(Error::IsTopic { name: queue.name.clone() });
            }
            check_receive(queue, sub_queue)?;
            let found = find_place(now, queue, sub_queue, receiver, wish)?;
            queue.receiver_count += 1;
            Ok(found)
        })?;
        let mut new = Receiver::new(Address { entity, sub_queue }, mode, place);
        new.set_bound(self.queues.get(&entity).and_then(|queue| queue.settings.order.as_deref()));
        self.receivers.by_id.insert(receiver, new);
        Ok(attached)
    }

    /// Removes a receiver: it gets no further messages. Its locks stay until they are settled or expire; but a session
    /// that it holds is free at once, and the messages locked in it return. If more than [`FACTS_PER_CALL_MAX`]
    /// messages are locked, the rest follows with the next [`Engine::tick`], and the session is free then.
    pub fn detach_receiver(&mut self, now: Timestamp, id: ReceiverId, out: &mut Output) {
        self.detach(now, id, FACTS_PER_CALL_MAX, out);
    }

    /// Releases at most `max` locked messages, and returns their number.
    fn detach(&mut self, now: Timestamp, id: ReceiverId, max: usize, out: &mut Output) -> usize {
        self.set_credit(id, 0);
        self.cancel_drain(id);
        self.watch(id, None);
        let Some(receiver) = self.receivers.by_id.remove(&id) else { return 0 };
        let Some(queue) = self.queues.get_mut(&receiver.address.entity) else { return 0 };
        queue.receiver_count = queue.receiver_count.saturating_sub(1);
        queue.used_at = queue.used_at.max(now);
        let returned_count = match receiver.place {
            Place::Queue => 0,
            Place::Nowhere => {
                queue.main.messages.sessions_mut().stop_waiting(id);
                0
            }
            Place::Session(slot) => free_session(now, queue, slot, max, out),
            Place::Former(close_at) => {
                queue.main.messages.sessions_mut().former.remove(id, close_at);
                0
            }
        };
        self.agenda.note(queue);
        returned_count
    }

    /// Renews the session's lock for another lock duration from now.
    pub fn renew_session(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        session: &SessionId,
        receiver: ReceiverId,
    ) -> Result<Timestamp, Error> {
        self.command(now, entity, |queue| {
            let (slot, holder) = held(now, queue, session, receiver)?;
            let until = now + queue.settings.lock_duration;
            queue.main.messages.set_holder(slot, Some(Holder { until, ..holder }));
            Ok(until)
        })
    }

    pub fn session_state(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        session: &SessionId,
        receiver: ReceiverId,
    ) -> Result<Option<Bytes>, Error> {
        self.command(now, entity, |queue| {
            let (slot, _) = held(now, queue, session, receiver)?;
            Ok(queue.main.messages.sessions().get(slot).and_then(|session| session.state.clone()))
        })
    }

    pub fn set_session_state(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        session: &SessionId,
        receiver: ReceiverId,
        state: Option<Bytes>,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.check_session_state(now, entity, session, receiver, state.as_ref())?;
        self.command(now, entity, |queue| {
            let session = session.clone();
            queue.record(Fact::SessionStateSet { entity, session, state, at: now }, out);
            Ok(())
        })
    }

    /// Checks that the receiver holds the session and that the state is not too large.
    pub fn check_session_state(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        session: &SessionId,
        receiver: ReceiverId,
        state: Option<&Bytes>,
    ) -> Result<(), Error> {
        let size_bytes = state.map_or(0, Bytes::len);
        if size_bytes > limits::SESSION_STATE_BYTES_MAX {
            return Err(Error::StateTooLarge { size_bytes });
        }
        self.command(now, entity, |queue| held(now, queue, session, receiver).map(|_| ()))
    }

    /// Returns sessions by name: those with messages or a state, or those whose state was set after a time.
    pub fn list_sessions(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        updated_since: Option<Timestamp>,
        skip: usize,
        top: usize,
    ) -> Result<Vec<SessionId>, Error> {
        self.command(now, entity, |queue| {
            if !queue.settings.requires_session {
                return Err(Error::NoSessions { path: queue.path(SubQueue::Main) });
            }
            let all = queue.main.messages.sessions().iter();
            let wanted = all.filter(|session| match updated_since {
                Some(since) => session.state.is_some() && session.state_set_at > since,
                None => session.message_count() > 0 || session.state.is_some(),
            });
            Ok(wanted
                .skip(skip)
                .take(top.min(limits::BATCH_COUNT_MAX))
                .map(|session| session.id.clone())
                .collect())
        })
    }

    /// Like [`Engine::peek`], within one session.
    pub fn peek_session(
        &self,
        entity: EntityId,
        session: &SessionId,
        from: SequenceNumber,
        max: usize,
    ) -> Result<Vec<Message>, Error> {
        let queue = self.queues.get(&entity).ok_or(Error::NoSuchEntity { entity })?;
        Ok(queue.peek_session(session, from, max))
    }

    /// Receives deferred messages by number, all or none. A message that is locked or not deferred gives
    /// [`Error::NotFound`]. In a queue with sessions the messages must belong to the session that the receiver holds.
    #[expect(
        clippy::too_many_arguments,
        reason = "time and nonce are arguments, beside those of the receiver"
    )]
    pub fn receive_deferred(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
        hold: Option<(&SessionId, ReceiverId)>,
        nonce: u64,
        out: &mut Output,
    ) -> Result<Vec<Received>, Error> {
        let near_from = self.near_from;
        self.command(now, entity, |queue| {
            queue.check_address(sub_queue)?;
            let slot = queue.held_slot(now, sub_queue, hold)?;
            queue.receive_deferred(now, sub_queue, numbers, mode, slot, near_from, nonce, out)
        })
    }

    /// Deletes messages of a session that the receiver holds: the first `count_max` of those that were enqueued before
    /// `before` and are neither locked nor scheduled. Returns their number. If there are more than
    /// [`FACTS_PER_CALL_MAX`], the rest is left to the next call.
    #[expect(clippy::too_many_arguments, reason = "time is an argument, beside those of the receiver")]
    pub fn purge_session(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        session: &SessionId,
        receiver: ReceiverId,
        before: Timestamp,
        count_max: u64,
        out: &mut Output,
    ) -> Result<u64, Error> {
        self.command(now, entity, |queue| {
            let (slot, _) = held(now, queue, session, receiver)?;
            Ok(queue.purge_session(now, slot, before, count_max, out))
        })
    }

    /// Ends sessions whose lock has expired by `now`, closes receivers that lost their session some time ago, and
    /// closes those whose wait for a session has timed out. Releases at most `max` locked messages, and returns their
    /// number.
    pub(crate) fn end_sessions(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        max: usize,
        out: &mut Output,
    ) -> usize {
        let mut returned_count = 0;
        while let Some(queue) = self.queues.get_mut(&entity) {
            let sessions = queue.main.messages.sessions();
            let left = max - returned_count;
            if let Some(slot) = sessions.next_expired(now).filter(|_| left > 0) {
                let holder = queue.main.messages.holder(slot).and_then(|holder| holder.receiver);
                if let Some(receiver) = holder {
                    lose_session(now, queue, slot, receiver, &mut self.receivers);
                }
                returned_count += free_session(now, queue, slot, left, out);
            } else if let Some(receiver) = sessions.next_former(now) {
                self.close_receiver(now, receiver, CloseReason::SessionLockLost, 0, out);
            } else if sessions.next_impatient(now).is_some() {
                // No receiver times out while a session is available.
                match_waiters(now, queue, &mut self.receivers, out);
                if let Some(receiver) = queue.main.messages.sessions().next_impatient(now) {
                    self.close_receiver(now, receiver, CloseReason::NoSession, 0, out);
                }
            } else {
                break;
            }
        }
        self.note(entity);
        returned_count
    }

    pub(crate) fn close_receiver(
        &mut self,
        now: Timestamp,
        receiver: ReceiverId,
        reason: CloseReason,
        max: usize,
        out: &mut Output,
    ) -> usize {
        out.closed.push(Closed { receiver, reason });
        self.detach(now, receiver, max, out)
    }

    /// Ends the receiver's hold on its session, because the broker cannot deliver one of the messages now. The messages
    /// that are locked in it return, and their deliveries do not count. The receiver is closed. Returns whether the receiver
    /// holds a session.
    pub fn let_go(&mut self, now: Timestamp, id: ReceiverId, out: &mut Output) -> bool {
        let Some(receiver) = self.receivers.by_id.get(&id) else { return false };
        let Place::Session(slot) = receiver.place else { return false };
        let entity = receiver.address.entity;
        let Some(queue) = self.queues.get_mut(&entity) else { return false };
        let session = queue.main.messages.sessions().get(slot);
        let locked: Vec<_> = session.map(|session| session.locked().collect()).unwrap_or_default();
        for number in locked {
            let (sub_queue, sequence_number) = (SubQueue::Main, SequenceNumber(number));
            queue.record_end(now, Fact::Released { entity, sub_queue, sequence_number }, out);
        }
        self.close_receiver(now, id, CloseReason::SessionLockLost, FACTS_PER_CALL_MAX, out);
        true
    }

    /// Prepares the state after recovery. The caller calls it once. The receivers that held sessions are gone: the
    /// messages locked in them return, at the latest with the next [`Engine::deliver`]. Locks that would last too long,
    /// because the clock was set back, are shortened. The idle time of queues starts anew.
    pub fn wake(&mut self, now: Timestamp, out: &mut Output) {
        let entities: Vec<_> = self.names.values().copied().collect();
        let mut left = FACTS_PER_CALL_MAX;
        for entity in entities {
            let Some(queue) = self.queues.get_mut(&entity) else { continue };
            queue.used_at = queue.used_at.max(now);
            let slots: Vec<_> = queue.main.messages.sessions().with_locks().collect();
            for slot in slots {
                left -= free_session(now, queue, slot, left, out);
            }
            left -= shorten_locks(now, queue, left, out);
            self.agenda.note(queue);
        }
    }
}

/// Limits locks to the time that they would have if they were made now: a wall clock that was set back while the
/// program was stopped must not lock messages for hours.
fn shorten_locks(now: Timestamp, queue: &mut Queue, max: usize, out: &mut Output) -> usize {
    let (entity, until) = (queue.entity, now + queue.settings.lock_duration);
    let mut count = 0;
    for sub_queue in SubQueue::ALL {
        let messages = &queue.part(sub_queue).messages;
        // The holder of a receipt has chosen the time for which the message is hidden.
        let longest = |number| if messages.has_receipt(number) { now + limits::HIDDEN_MAX } else { until };
        let beyond = messages.locked_beyond(until).map(|(number, held)| (number, held, longest(number)));
        let beyond = beyond.filter(|(_, held, longest)| held > longest);
        let locks: Vec<_> = beyond.take(max - count).map(|(number, _, longest)| (number, longest)).collect();
        count += locks.len();
        for (sequence_number, until) in locks {
            queue.record(Fact::Renewed { entity, sub_queue, sequence_number, until }, out);
        }
    }
    count
}

pub(crate) fn check_receive(queue: &Queue, sub_queue: SubQueue) -> Result<(), Error> {
    queue.check_address(sub_queue)?;
    if !queue.settings.status.can_receive() {
        return Err(Error::Disabled { name: queue.name.clone(), what: "receiving" });
    }
    match queue.forwards_to(sub_queue) {
        Some(target) => Err(Error::Forwards { path: queue.path(sub_queue), target: target.clone() }),
        None => Ok(()),
    }
}

fn find_place(
    now: Timestamp,
    queue: &mut Queue,
    sub_queue: SubQueue,
    receiver: ReceiverId,
    wish: SessionWish,
) -> Result<(Place, Attached), Error> {
    let has_sessions = queue.settings.requires_session && sub_queue == SubQueue::Main;
    let path = || queue.path(sub_queue);
    match wish {
        SessionWish::None if has_sessions => Err(Error::SessionRequired { path: path() }),
        SessionWish::None => Ok((Place::Queue, Attached::Queue)),
        _ if !has_sessions => Err(Error::NoSessions { path: path() }),
        SessionWish::Named(session) => {
            let sessions = queue.main.messages.sessions();
            let is_held = sessions.find(&session).and_then(|slot| queue.main.messages.holder(slot)).is_some();
            if is_held {
                return Err(Error::SessionLocked { path: path(), session });
            }
            let slot = queue.main.messages.open_session(&session);
            let held = hold(now, queue, slot, session, receiver);
            Ok((Place::Session(slot), Attached::Session(held)))
        }
        SessionWish::Next { give_up_at } => {
            let sessions = queue.main.messages.sessions_mut();
            sessions.wait(receiver, give_up_at);
            Ok((Place::Nowhere, Attached::Waiting))
        }
    }
}

fn hold(
    now: Timestamp,
    queue: &mut Queue,
    slot: SessionSlot,
    session: SessionId,
    receiver: ReceiverId,
) -> HeldSession {
    queue.main.messages.sessions_mut().former.displace(&session);
    let locked_until = now + queue.settings.lock_duration;
    let holder = Holder { receiver: Some(receiver), until: locked_until, is_asking: false };
    queue.main.messages.set_holder(slot, Some(holder));
    HeldSession { session, locked_until }
}

/// Assigns available sessions to waiting receivers, in the order of their requests.
pub(crate) fn match_waiters(now: Timestamp, queue: &mut Queue, receivers: &mut Receivers, out: &mut Output) {
    loop {
        let Some(receiver) = queue.main.messages.sessions().next_waiter() else { return };
        let Some(slot) = queue.main.messages.next_session(now) else { return };
        let sessions = queue.main.messages.sessions_mut();
        sessions.stop_waiting(receiver);
        let Some(session) = sessions.get(slot).map(|session| session.id.clone()) else { return };
        let Some(waiting) = receivers.by_id.get_mut(&receiver) else { continue };
        waiting.place = Place::Session(slot);
        let held = hold(now, queue, slot, session, receiver);
        // The receiver may have got credit before it got the session.
        if waiting.can_take()
            && let Some(holder) = queue.main.messages.holder(slot)
        {
            queue.main.messages.set_holder(slot, Some(Holder { is_asking: true, ..holder }));
        }
        out.accepted.push(Accepted { receiver, held });
    }
}

/// Returns the session if the receiver holds it.
pub(crate) fn held(
    now: Timestamp,
    queue: &Queue,
    session: &SessionId,
    receiver: ReceiverId,
) -> Result<(SessionSlot, Holder), Error> {
    let messages = &queue.main.messages;
    let slot = messages.sessions().find(session);
    let holder = slot.and_then(|slot| Some((slot, messages.holder(slot)?)));
    let is_held =
        |(_, holder): &(SessionSlot, Holder)| holder.receiver == Some(receiver) && holder.until > now;
    holder
        .filter(is_held)
        .ok_or_else(|| Error::SessionLockLost { path: queue.path(SubQueue::Main), session: session.clone() })
}

/// The time for which a receiver stays attached after the lock on its session expired, unless another receiver gets the
/// session. The service does the same: a program that is slightly late then gets the error of its own call instead of a
/// detached link.
const FORMER_HOLDER_STAYS: Duration = Duration::from_secs(1);

/// Handles the expiry of the lock on the receiver's session: the receiver gets no further messages, and is closed a
/// little later.
fn lose_session(
    now: Timestamp,
    queue: &mut Queue,
    slot: SessionSlot,
    id: ReceiverId,
    receivers: &mut Receivers,
) {
    let sessions = queue.main.messages.sessions_mut();
    let Some(session) = sessions.get(slot).map(|session| session.id.clone()) else { return };
    let Some(receiver) = receivers.by_id.get_mut(&id) else { return };
    let close_at = now + FORMER_HOLDER_STAYS;
    receiver.place = Place::Former(close_at);
    sessions.former.add(session, id, close_at);
}

/// Ends the hold on a session: the messages locked in it return, and their deliveries count as failed. Returns at most
/// `max` messages; if more are locked, the session stays expired and without a holder until the next call.
fn free_session(now: Timestamp, queue: &mut Queue, slot: SessionSlot, max: usize, out: &mut Output) -> usize {
    let nobody = Holder { receiver: None, until: Timestamp::ZERO, is_asking: false };
    queue.main.messages.set_holder(slot, Some(nobody));
    let locked = queue.main.messages.sessions().get(slot).map(|session| session.locked().take(max).collect());
    let locked: Vec<_> = locked.unwrap_or_default();
    for &number in &locked {
        let fact = queue.expire_lock(now, SubQueue::Main, SequenceNumber(number));
        queue.record_end(now, fact, out);
    }
    let sessions = queue.main.messages.sessions();
    if sessions.get(slot).is_some_and(|session| session.locked().next().is_none()) {
        queue.main.messages.set_holder(slot, None);
    }
    locked.len()
}
