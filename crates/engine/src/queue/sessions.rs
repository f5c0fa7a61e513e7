//! The sessions of one queue: their messages, their holders, and the next available one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use bytes::Bytes;
use peeklock_types::{SessionId, Timestamp};

use super::former::Former;
use super::waiting::Waiting;
use crate::message::ReceiverId;
use crate::order::LaneSlot;

/// The index of a session. Counts from one, so that a message without a session needs no extra byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionSlot(NonZeroU32);

impl SessionSlot {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_id: BTreeMap<SessionId, SessionSlot>,
    slots: Vec<Option<Session>>,
    free: Vec<SessionSlot>,
    /// Available sessions: the one that has waited longest comes first.
    available: BTreeSet<(Turn, SessionSlot)>,
    /// The largest number of a message that was added.
    newest: u64,
    /// The number of holds so far.
    hold_count: u64,
    /// Sessions with an available message and a holder that requests one. Some may have lost the message or the holder
    /// since.
    ready: VecDeque<SessionSlot>,
    /// Receivers that wait for a session, in the order of their requests.
    waiters: VecDeque<ReceiverId>,
    waiter_deadlines: BTreeSet<(Timestamp, ReceiverId)>,
    lock_deadlines: BTreeSet<(Timestamp, SessionSlot)>,
    /// Receivers that have lost their session and are to be closed soon.
    pub(crate) former: Former,
}

/// Sessions that use memory only if there are any: each of the four parts of a queue could have some, but few do.
#[derive(Debug, Default)]
pub(crate) struct LazySessions(Option<Box<Sessions>>);

static NO_SESSIONS: Sessions = Sessions {
    by_id: BTreeMap::new(),
    slots: Vec::new(),
    free: Vec::new(),
    available: BTreeSet::new(),
    newest: 0,
    hold_count: 0,
    ready: VecDeque::new(),
    waiters: VecDeque::new(),
    waiter_deadlines: BTreeSet::new(),
    lock_deadlines: BTreeSet::new(),
    former: Former::NONE,
};

impl Deref for LazySessions {
    type Target = Sessions;

    #[inline]
    fn deref(&self) -> &Sessions {
        self.0.as_deref().unwrap_or(&NO_SESSIONS)
    }
}

impl DerefMut for LazySessions {
    fn deref_mut(&mut self) -> &mut Sessions {
        self.0.get_or_insert_default()
    }
}

impl LazySessions {
    /// Returns the sessions, if there were ever any.
    pub(crate) fn if_any(&mut self) -> Option<&mut Sessions> {
        self.0.as_deref_mut()
    }
}

/// The position of an available session among the others. A session waits since its first message arrived, or since its
/// last hold ended if that was later: otherwise a session with a long backlog would be the next one again and again.
/// Sessions that were let go after the same message follow each other in the order in which they were accepted, so each
/// goes ahead of a waiting session at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    since: LetGo,
    /// The number of the first message.
    pub(crate) head: u64,
}

/// The moment at which a session was let go. It is kept only in memory, like the holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LetGo {
    /// The number of the newest message at that time.
    after: u64,
    /// The number of the hold.
    hold: u64,
}

/// An available session: its position, and the lane of its first message.
pub(crate) type Listed = (Turn, Option<LaneSlot>);

#[derive(Debug)]
pub(crate) struct Session {
    /// The id in the spelling of the first message or state that still exists.
    pub(crate) id: SessionId,
    /// All messages of the session, in any state.
    numbers: BTreeSet<u64>,
    waiting: Waiting,
    locked: BTreeSet<u64>,
    poison_count: u32,
    pub(crate) state: Option<Bytes>,
    pub(crate) state_set_at: Timestamp,
    /// The holder is kept only in memory: after a restart all receivers are gone, and their sessions are free.
    holder: Option<Holder>,
    /// The number of the last hold.
    hold: u64,
    let_go: LetGo,
    /// The message to deliver next; `None` while the first message is delayed.
    head: Option<u64>,
    /// The key of the session in the list of available sessions, and its lane.
    listed: Option<Listed>,
    is_ready: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    /// `None`: the receiver is gone, and the session is free as soon as all messages that it had locked have returned.
    pub(crate) receiver: Option<ReceiverId>,
    pub(crate) until: Timestamp,
    /// Whether the receiver can take a message now.
    pub(crate) is_asking: bool,
}

impl Session {
    fn new(id: SessionId) -> Session {
        Session {
            id,
            numbers: BTreeSet::new(),
            waiting: Waiting::default(),
            locked: BTreeSet::new(),
            poison_count: 0,
            state: None,
            state_set_at: Timestamp::ZERO,
            holder: None,
            hold: 0,
            let_go: LetGo::default(),
            head: None,
            listed: None,
            is_ready: false,
        }
    }

    pub(crate) fn holder(&self) -> Option<Holder> {
        self.holder
    }

    /// Returns whether a receiver holds the session, and its lock has not expired.
    pub(crate) fn is_held(&self, now: Timestamp) -> bool {
        self.holder.is_some_and(|holder| holder.receiver.is_some() && holder.until > now)
    }

    pub(crate) fn head(&self) -> Option<u64> {
        self.head
    }

    pub(crate) fn message_count(&self) -> usize {
        self.numbers.len()
    }

    pub(crate) fn locked(&self) -> impl Iterator<Item = u64> {
        self.locked.iter().copied()
    }

    pub(crate) fn numbers_from(&self, number: u64) -> impl Iterator<Item = u64> {
        self.numbers.range(number..).copied()
    }

    /// Returns whether the session survives a restart: it has messages or a state.
    pub(crate) fn is_kept(&self) -> bool {
        !self.numbers.is_empty() || self.state.is_some()
    }

    fn is_needed(&self) -> bool {
        self.is_kept() || self.holder.is_some()
    }

    /// Returns the position of the session if it is available to a receiver that accepts any session.
    fn turn(&self) -> Option<Turn> {
        let head = self.head.filter(|_| self.holder.is_none() && self.poison_count == 0)?;
        Some(Turn { since: self.let_go.max(LetGo { after: head, hold: 0 }), head })
    }
}

impl Sessions {
    pub(crate) fn find(&self, id: &SessionId) -> Option<SessionSlot> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn get(&self, slot: SessionSlot) -> Option<&Session> {
        self.slots.get(slot.index()).and_then(Option::as_ref)
    }

    fn get_mut(&mut self, slot: SessionSlot) -> Option<&mut Session> {
        self.slots.get_mut(slot.index()).and_then(Option::as_mut)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = SessionSlot> {
        self.by_id.values().copied()
    }

    /// Clears the list of available sessions, so that it is computed anew.
    pub(crate) fn forget_listed(&mut self) {
        self.available.clear();
        self.slots.iter_mut().flatten().for_each(|session| session.listed = None);
    }

    /// Returns all sessions, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.by_id.values().filter_map(|&slot| self.get(slot))
    }

    /// Returns the sessions with locked messages.
    pub(crate) fn with_locks(&self) -> impl Iterator<Item = SessionSlot> {
        let is_locked =
            |slot: &SessionSlot| self.get(*slot).is_some_and(|session| !session.locked.is_empty());
        self.by_id.values().copied().filter(is_locked)
    }

    /// Opens the session for a message or a state, and returns its index. The first one decides the spelling of the id:
    /// a holder alone stores nothing, and after a restart the spelling must be the same.
    pub(crate) fn open_to_keep(&mut self, id: &SessionId) -> SessionSlot {
        let slot = self.open(id);
        if let Some(session) = self.get_mut(slot).filter(|session| !session.is_kept()) {
            session.id = id.clone();
        }
        slot
    }

    /// Returns the session of this name, and creates it if necessary. The caller gives it a reason to stay, and then
    /// calls [`Sessions::refresh`].
    pub(crate) fn open(&mut self, id: &SessionId) -> SessionSlot {
        if let Some(slot) = self.find(id) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            let number = u32::try_from(self.slots.len()).ok().and_then(NonZeroU32::new);
            SessionSlot(number.expect("four billion sessions would not fit in memory"))
        });
        self.slots[slot.index()] = Some(Session::new(id.clone()));
        self.by_id.insert(id.clone(), slot);
        slot
    }

    pub(crate) fn add_message(&mut self, slot: SessionSlot, number: u64) {
        self.newest = self.newest.max(number);
        if let Some(session) = self.get_mut(slot) {
            session.numbers.insert(number);
        }
    }

    pub(crate) fn remove_message(&mut self, slot: SessionSlot, number: u64, is_poison: bool) {
        if let Some(session) = self.get_mut(slot) {
            session.numbers.remove(&number);
            session.locked.remove(&number);
            session.poison_count -= u32::from(is_poison);
        }
    }

    pub(crate) fn add_waiting(&mut self, slot: SessionSlot, number: u64) {
        if let Some(session) = self.get_mut(slot) {
            session.waiting.add(number);
        }
    }

    pub(crate) fn remove_waiting(&mut self, slot: SessionSlot, number: u64) {
        if let Some(session) = self.get_mut(slot) {
            session.waiting.remove(number);
        }
    }

    pub(crate) fn set_locked(&mut self, slot: SessionSlot, number: u64, is_locked: bool) {
        let Some(session) = self.get_mut(slot) else { return };
        if is_locked {
            session.locked.insert(number);
        } else {
            session.locked.remove(&number);
        }
    }

    pub(crate) fn add_poison(&mut self, slot: SessionSlot) {
        if let Some(session) = self.get_mut(slot) {
            session.poison_count += 1;
        }
    }

    pub(crate) fn set_state(&mut self, slot: SessionSlot, state: Option<Bytes>, at: Timestamp) {
        if let Some(session) = self.get_mut(slot) {
            // A session without a state has no time either: a session that is removed and created again must be equal
            // to one that stayed.
            session.state_set_at = if state.is_some() { at } else { Timestamp::ZERO };
            session.state = state;
        }
    }

    /// Updates everything that follows from a session's messages, state and holder. `look` returns whether a message
    /// waits, and whether it is delayed. Returns the old and the new position among the available sessions, if it has
    /// changed.
    pub(crate) fn refresh(
        &mut self,
        slot: SessionSlot,
        look: impl Fn(u64) -> Look,
    ) -> Option<(Option<Listed>, Option<Listed>)> {
        let session = self.slots.get_mut(slot.index()).and_then(Option::as_mut)?;
        let mut changed = None;
        let Session { numbers, waiting, .. } = session;
        let row = |from| numbers.range(from..).next().map(|&number| (number, look(number).waits));
        session.head = waiting.first(row).filter(|&number| !look(number).is_delayed);
        let listed = session.turn().map(|turn| (turn, look(turn.head).lane));
        if listed != session.listed {
            let old = std::mem::replace(&mut session.listed, listed);
            if let Some((turn, _)) = old {
                self.available.remove(&(turn, slot));
            }
            if let Some((turn, _)) = listed {
                self.available.insert((turn, slot));
            }
            changed = Some((old, listed));
        }
        if session.head.is_some()
            && session.holder.is_some_and(|holder| holder.is_asking)
            && !session.is_ready
        {
            session.is_ready = true;
            self.ready.push_back(slot);
        }
        if !session.is_needed() {
            self.by_id.remove(&session.id);
            self.slots[slot.index()] = None;
            self.free.push(slot);
        }
        changed
    }

    /// Assigns the session to a receiver, removes it from one, or changes its expiry. The caller calls
    /// [`Sessions::refresh`] afterwards.
    pub(crate) fn set_holder(&mut self, slot: SessionSlot, holder: Option<Holder>) {
        let Some(session) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        let old = std::mem::replace(&mut session.holder, holder);
        match (old, holder) {
            (None, Some(Holder { receiver: Some(_), .. })) => {
                self.hold_count += 1;
                session.hold = self.hold_count;
            }
            (Some(_), None) => session.let_go = LetGo { after: self.newest, hold: session.hold },
            _ => {}
        }
        if let Some(old) = old {
            self.lock_deadlines.remove(&(old.until, slot));
        }
        if let Some(new) = holder {
            self.lock_deadlines.insert((new.until, slot));
        }
    }

    /// Returns whether there is a session for a waiting receiver, or a message for a holder. `is_blocked` is set if
    /// rates permit no new session now, although some are available.
    pub(crate) fn has_work(&self, is_blocked: bool) -> bool {
        !self.ready.is_empty() || (!is_blocked && !self.waiters.is_empty() && !self.available.is_empty())
    }

    /// Resumes a session whose holder was held up.
    pub(crate) fn go_on(&mut self, slot: SessionSlot) {
        let Some(session) = self.slots.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        let is_asking = session.holder.is_some_and(|holder| holder.is_asking);
        if session.head.is_some() && is_asking && !session.is_ready {
            session.is_ready = true;
            self.ready.push_back(slot);
        }
    }

    pub(crate) fn next_ready(&mut self) -> Option<SessionSlot> {
        let slot = self.ready.pop_front()?;
        if let Some(session) = self.get_mut(slot) {
            session.is_ready = false;
        }
        Some(slot)
    }

    /// Returns the first message of the next available session.
    pub(crate) fn first_available(&self) -> Option<u64> {
        self.available.first().map(|(turn, _)| turn.head)
    }

    pub(crate) fn next_available(&self) -> Option<SessionSlot> {
        self.available.first().map(|&(_, slot)| slot)
    }

    pub(crate) fn wait(&mut self, receiver: ReceiverId, give_up_at: Timestamp) {
        self.waiters.push_back(receiver);
        self.waiter_deadlines.insert((give_up_at, receiver));
    }

    pub(crate) fn next_waiter(&self) -> Option<ReceiverId> {
        self.waiters.front().copied()
    }

    pub(crate) fn stop_waiting(&mut self, receiver: ReceiverId) {
        self.waiters.retain(|&other| other != receiver);
        self.waiter_deadlines.retain(|&(_, other)| other != receiver);
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let locks = self.lock_deadlines.first().map(|&(at, _)| at);
        let waiters = self.waiter_deadlines.first().map(|&(at, _)| at);
        let former = self.former.first().map(|(at, _)| at);
        locks.into_iter().chain(waiters).chain(former).min()
    }

    /// Lets locks and waits that end after `before` end later by `by`, because the clock has stepped.
    pub(crate) fn follow_step(&mut self, before: Timestamp, by: Duration) {
        let moved = |at: Timestamp| if at > before { at + by } else { at };
        for (until, slot) in std::mem::take(&mut self.lock_deadlines) {
            let until = moved(until);
            self.lock_deadlines.insert((until, slot));
            if let Some(holder) = self.get_mut(slot).and_then(|session| session.holder.as_mut()) {
                holder.until = until;
            }
        }
        let waits = std::mem::take(&mut self.waiter_deadlines);
        self.waiter_deadlines = waits.into_iter().map(|(at, receiver)| (moved(at), receiver)).collect();
    }

    /// Returns a session whose lock expired by `now`.
    pub(crate) fn next_expired(&self, now: Timestamp) -> Option<SessionSlot> {
        self.lock_deadlines.first().filter(|&&(at, _)| at <= now).map(|&(_, slot)| slot)
    }

    /// Returns a receiver that has lost its session and is to be closed by `now`.
    pub(crate) fn next_former(&self, now: Timestamp) -> Option<ReceiverId> {
        self.former.first().filter(|(at, _)| *at <= now).map(|(_, receiver)| receiver)
    }

    /// Returns a receiver whose wait for a session has timed out by `now`.
    pub(crate) fn next_impatient(&self, now: Timestamp) -> Option<ReceiverId> {
        self.waiter_deadlines.first().filter(|&&(at, _)| at <= now).map(|&(_, receiver)| receiver)
    }
}

/// The properties of a message that its session needs.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) waits: bool,
    pub(crate) is_delayed: bool,
    pub(crate) lane: Option<LaneSlot>,
}
