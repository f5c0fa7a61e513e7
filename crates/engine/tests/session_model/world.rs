//! The engine and the model side by side, with a journal that loses unwritten facts.

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{
    Attached, Attributes, CloseReason, Closed, Engine, EntityId, Error, HeldSession, Message, MessageState,
    NewMessage, Output, ReceiveMode, ReceiverId, SessionWish, Settlement, record,
};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityName, LockToken, Placement, PoisonSession, QueueSettings, RetryPolicy,
    SequenceNumber, SessionId, SubQueue, Timestamp,
};

use crate::Step;
use crate::model::{Hold, LetGo, Model, ModelMessage};

const QUEUE: EntityId = EntityId(0);
const MAIN: SubQueue = SubQueue::Main;
const LOCK_DURATION: Duration = Duration::from_secs(3);
const FORMER_HOLDER_STAYS: Duration = Duration::from_secs(1);

struct CommitGroup {
    bytes: Vec<u8>,
    model: Model,
    snapshot: Option<Vec<u8>>,
}

pub(crate) struct World {
    engine: Engine,
    model: Model,
    holds: Vec<Hold>,
    hold_count: u64,
    let_go: [LetGo; 3],
    /// Receivers that lost their session and are still attached: `until` is the time at which they are closed.
    former: Vec<Hold>,
    /// Receivers that wait for a session, and until when.
    waiters: Vec<(ReceiverId, Timestamp)>,
    credits: Vec<(ReceiverId, u32)>,
    tokens: Vec<LockToken>,
    now: Timestamp,
    out: Output,
    groups: Vec<CommitGroup>,
    nonce: u64,
    next_receiver: u64,
}

const IDS: [&str; 3] = ["", "a", "b"];
/// The same sessions in another spelling.
const LOUD_IDS: [&str; 3] = ["", "A", "B"];

fn session(n: usize) -> SessionId {
    SessionId::parse(IDS[n]).unwrap()
}

impl World {
    pub(crate) fn new(poison_session: PoisonSession, retry: RetryPolicy) -> World {
        let (mut engine, mut out) = (Engine::default(), Output::default());
        let settings = QueueSettings {
            requires_session: true,
            lock_duration: LOCK_DURATION,
            max_delivery_count: 3,
            poison_session,
            retry,
            ..QueueSettings::default()
        };
        let now = Timestamp::from_millis(1_000_000);
        let name = EntityName::parse("orders").unwrap();
        assert_eq!(engine.create_queue(now, name, settings.clone(), &mut out), Ok(QUEUE));
        let model = Model { settings, next_number: 1, messages: Vec::new(), states: [None; 3], ids: IDS };
        let mut world = World {
            engine,
            model,
            holds: Vec::new(),
            hold_count: 0,
            let_go: [(0, 0); 3],
            former: Vec::new(),
            waiters: Vec::new(),
            credits: Vec::new(),
            tokens: Vec::new(),
            now,
            out,
            groups: Vec::new(),
            nonce: 0,
            next_receiver: 1,
        };
        world.journal();
        world
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Send { session, is_loud, time_to_live, ahead } => {
                let id = if is_loud { LOUD_IDS[session] } else { IDS[session] };
                self.send(session, id, time_to_live, ahead);
            }
            Step::AcceptNamed { session } => self.accept_named(session),
            Step::AcceptNext { patience } => self.accept_next(patience),
            Step::Detach { pick } => self.detach(pick),
            Step::Credit { pick, credit } => self.set_credit(pick, credit),
            Step::Settle { pick, settlement } => self.settle(pick, settlement),
            Step::RenewSession { pick } => self.renew_session(pick),
            Step::SetState { pick, state } => self.set_state(pick, state),
            Step::ReceiveDeferred { pick, number_pick } => self.receive_deferred(pick, number_pick),
            Step::Purge { age, count_max } => self.purge(age, count_max),
            Step::PurgeSession { pick, age, count_max } => self.purge_session(pick, age, count_max),
            Step::Deliver => self.deliver(),
            Step::Tick => self.tick(),
            Step::Wait { span } => self.now = self.now + span,
            Step::Snapshot => {
                self.journal();
                let snapshot = self.engine.snapshot();
                self.groups.last_mut().unwrap().snapshot = Some(snapshot);
            }
            Step::Crash { lost_group_count, from_snapshot } => self.crash(lost_group_count, from_snapshot),
        }
        if !self.out.facts.is_empty() {
            self.journal();
        }
        self.out.clear();
    }

    fn next_group(&self) -> CommitGroupNumber {
        CommitGroupNumber(self.groups.len() as u64 + 1)
    }

    fn journal(&mut self) {
        let (group, mut bytes) = (self.next_group(), Vec::new());
        self.out.facts.drain(..).for_each(|fact| record::encode(&fact, group, &mut bytes));
        self.groups.push(CommitGroup { bytes, model: self.model.clone(), snapshot: None });
    }

    fn send(&mut self, n: usize, id: &'static str, time_to_live: Option<Duration>, ahead: Option<Duration>) {
        self.model.note_id(n, id);
        let id = Some(SessionId::parse(id).unwrap());
        let (now, body) = (self.now, BodyRef::in_group(self.next_group(), 8).unwrap());
        let scheduled_for = ahead.map(|ahead| now + ahead);
        let attributes = Attributes { session: id, time_to_live, scheduled_for, ..Attributes::default() };
        let message = NewMessage { body, size_bytes: 1, attributes: Some(Box::new(attributes)) };
        self.engine.send(now, QUEUE, [message], &mut self.out).unwrap();
        let due = scheduled_for.filter(|due| *due > now);
        self.model.messages.push(ModelMessage {
            number: SequenceNumber(self.model.next_number),
            body,
            session: n,
            is_dead: false,
            enqueued_at: now,
            time_to_live,
            state: if due.is_some() { MessageState::Scheduled } else { MessageState::Active },
            due,
            failed_count: 0,
            nonce: None,
            is_poison: false,
            was_locked_until: None,
            is_activated: false,
        });
        self.model.next_number += 1;
    }

    fn attach(&mut self, wish: SessionWish) -> (ReceiverId, Result<Attached, Error>) {
        let receiver = ReceiverId(self.next_receiver);
        self.next_receiver += 1;
        let attached =
            self.engine.attach_receiver(self.now, QUEUE, MAIN, receiver, ReceiveMode::PeekLock, wish);
        if attached.is_ok() {
            self.engine.add_window(receiver, i64::MAX);
            self.credits.push((receiver, 0));
        }
        (receiver, attached)
    }

    fn accept_named(&mut self, n: usize) {
        let (receiver, attached) = self.attach(SessionWish::Named(session(n)));
        if self.holds.iter().any(|hold| hold.session == n) {
            assert!(matches!(attached, Err(Error::SessionLocked { .. })));
            return;
        }
        let until = self.now + LOCK_DURATION;
        assert_eq!(attached, Ok(Attached::Session(HeldSession { session: session(n), locked_until: until })));
        self.hold(receiver, n, until);
    }

    /// Adds a hold. The receiver that lost the session is closed with the next tick.
    fn hold(&mut self, receiver: ReceiverId, session: usize, until: Timestamp) {
        let former = self.former.iter_mut().filter(|former| former.session == session);
        former.for_each(|former| former.until = Timestamp::ZERO);
        self.hold_count += 1;
        self.holds.push(Hold { receiver, session, until, number: self.hold_count });
    }

    /// Records that a hold has ended.
    fn let_go(&mut self, hold: Hold) {
        self.model.free(self.now, hold.session);
        self.let_go[hold.session] = (self.model.next_number - 1, hold.number);
    }

    fn accept_next(&mut self, patience: Duration) {
        let give_up_at = self.now + patience;
        let (receiver, attached) = self.attach(SessionWish::Next { give_up_at });
        assert_eq!(attached, Ok(Attached::Waiting));
        self.waiters.push((receiver, give_up_at));
    }

    fn detach(&mut self, pick: usize) {
        if !self.credits.is_empty() {
            let (receiver, _) = self.credits[pick % self.credits.len()];
            self.engine.detach_receiver(self.now, receiver, &mut self.out);
            self.model_detach(receiver);
        }
    }

    fn model_detach(&mut self, receiver: ReceiverId) {
        self.credits.retain(|(other, _)| *other != receiver);
        self.waiters.retain(|(other, _)| *other != receiver);
        self.former.retain(|former| former.receiver != receiver);
        let gone: Vec<_> = self.holds.extract_if(.., |hold| hold.receiver == receiver).collect();
        gone.into_iter().for_each(|hold| self.let_go(hold));
    }

    fn set_credit(&mut self, pick: usize, credit: u32) {
        let count = self.credits.len().max(1);
        if let Some((receiver, left)) = self.credits.get_mut(pick % count) {
            *left = credit;
            self.engine.set_credit(*receiver, credit);
        }
    }

    fn settle(&mut self, pick: usize, settlement: Settlement) {
        let Some(&token) = self.tokens.get(pick % self.tokens.len().max(1)) else { return };
        let number = token.sequence_number();
        let settled = self.engine.settle(self.now, QUEUE, MAIN, token, settlement.clone(), &mut self.out);
        let found = self.model.find(number).filter(|m| m.nonce == Some(token.nonce())).map(|m| m.session);
        let held = self.holds.iter().find(|hold| found == Some(hold.session) && hold.until > self.now);
        if let Some(hold) = held {
            assert_eq!(settled, Ok(()));
            self.model.settle(self.now, number, &settlement, hold.until);
        } else {
            assert!(matches!(settled, Err(Error::LockLost { .. } | Error::SessionLockLost { .. })));
            assert!(self.out.is_empty(), "a rejected command decides nothing");
        }
        if self.tokens.len() > 20 {
            self.tokens.swap_remove(pick % self.tokens.len());
        }
    }

    /// Returns a hold, and whether it is still valid.
    fn pick_hold(&self, pick: usize) -> Option<(usize, bool)> {
        let at = pick % self.holds.len().max(1);
        self.holds.get(at).map(|hold| (at, hold.until > self.now))
    }

    fn renew_session(&mut self, pick: usize) {
        let Some((at, is_good)) = self.pick_hold(pick) else { return };
        let hold = &mut self.holds[at];
        let renewed = self.engine.renew_session(self.now, QUEUE, &session(hold.session), hold.receiver);
        if is_good {
            hold.until = self.now + LOCK_DURATION;
            assert_eq!(renewed, Ok(hold.until));
        } else {
            assert!(matches!(renewed, Err(Error::SessionLockLost { .. })));
        }
    }

    fn set_state(&mut self, pick: usize, state: Option<u8>) {
        let Some((at, is_good)) = self.pick_hold(pick) else { return };
        let (now, Hold { receiver, session: n, .. }) = (self.now, self.holds[at]);
        let bytes = state.map(|state| Bytes::from(vec![state]));
        let set = self.engine.set_session_state(now, QUEUE, &session(n), receiver, bytes, &mut self.out);
        assert_eq!(set.is_ok(), is_good);
        if is_good {
            self.model.note_id(n, IDS[n]);
            self.model.states[n] = state.map(|state| (state, now));
            let told = self.engine.session_state(now, QUEUE, &session(n), receiver);
            assert_eq!(told.unwrap().map(|state| state[0]), state);
        }
    }

    fn receive_deferred(&mut self, pick: usize, number_pick: usize) {
        let Some((at, is_good)) = self.pick_hold(pick) else { return };
        let Hold { receiver, session: n, until, .. } = self.holds[at];
        let count = self.model.messages.len().max(1);
        let Some(number) = self.model.messages.get(number_pick % count).map(|m| m.number) else { return };
        self.nonce += 1;
        let (now, nonce, mode) = (self.now, self.nonce, ReceiveMode::PeekLock);
        let (id, out) = (session(n), &mut self.out);
        let hold = Some((&id, receiver));
        let received = self.engine.receive_deferred(now, QUEUE, MAIN, &[number], mode, hold, nonce, out);
        let found = self.model.find(number).unwrap();
        let is_there = !found.is_dead
            && (found.session, found.state, found.nonce) == (n, MessageState::Deferred, None)
            && found.expires_at().is_none_or(|at| at > now);
        if is_good && is_there {
            found.nonce = Some(nonce);
            let received = received.unwrap().remove(0);
            assert_eq!(received.message.locked_until, Some(until));
            self.tokens.push(received.token);
        } else {
            assert!(matches!(received, Err(Error::NotFound { .. } | Error::SessionLockLost { .. })));
        }
    }

    fn purge(&mut self, age: Duration, count_max: u64) {
        let purged = self.engine.purge(self.now, QUEUE, MAIN, self.now - age, count_max, &mut self.out);
        assert_eq!(purged, Ok(self.model.purge(None, self.now - age, count_max)));
    }

    fn purge_session(&mut self, pick: usize, age: Duration, count_max: u64) {
        let Some((at, is_good)) = self.pick_hold(pick) else { return };
        let (now, Hold { receiver, session: n, .. }) = (self.now, self.holds[at]);
        let (id, before) = (session(n), now - age);
        let purged = self.engine.purge_session(now, QUEUE, &id, receiver, before, count_max, &mut self.out);
        if is_good {
            assert_eq!(purged, Ok(self.model.purge(Some(n), before, count_max)));
        } else {
            assert!(matches!(purged, Err(Error::SessionLockLost { .. })));
        }
    }

    fn tick(&mut self) {
        self.engine.tick(self.now, &mut self.out);
        self.model_tick();
        assert_eq!(self.out.accepted, []);
    }

    /// Executes the timers of the model: due and expired messages, lost sessions and receivers that waited too long.
    /// Messages that a lost session returns may expire at once.
    fn model_tick(&mut self) {
        let now = self.now;
        self.model.tick(now);
        let mut expected = Vec::new();
        let lost: Vec<_> = self.holds.extract_if(.., |hold| hold.until <= now).collect();
        for lost in lost {
            self.let_go(lost);
            self.former.push(Hold { until: now + FORMER_HOLDER_STAYS, ..lost });
        }
        self.model_close_former(&mut expected);
        let is_tired = |(_, give_up_at): &&(ReceiverId, Timestamp)| *give_up_at <= now;
        if self.waiters.iter().any(|waiter| is_tired(&waiter)) {
            // No receiver times out while a session is available.
            self.match_waiters();
        }
        self.model_close_former(&mut expected);
        let tired: Vec<_> = self.waiters.iter().filter(is_tired).map(|(receiver, _)| *receiver).collect();
        self.model_close(&tired, CloseReason::NoSession, &mut expected);
        self.model.tick(now);
        let mut told = self.out.closed.clone();
        told.sort_by_key(|closed| closed.receiver);
        expected.sort_by_key(|closed| closed.receiver);
        assert_eq!(told, expected);
    }

    fn model_close_former(&mut self, closed: &mut Vec<Closed>) {
        let gone = self.former.iter().filter(|former| former.until <= self.now);
        let gone: Vec<_> = gone.map(|former| former.receiver).collect();
        self.model_close(&gone, CloseReason::SessionLockLost, closed);
    }

    fn model_close(&mut self, receivers: &[ReceiverId], reason: CloseReason, closed: &mut Vec<Closed>) {
        for &receiver in receivers {
            self.model_detach(receiver);
            closed.push(Closed { receiver, reason });
        }
    }

    /// Assigns sessions to waiting receivers, and checks that the engine did the same.
    fn match_waiters(&mut self) {
        let until = self.now + LOCK_DURATION;
        while let Some(n) =
            self.model.available(&self.holds, &self.let_go).filter(|_| !self.waiters.is_empty())
        {
            let (receiver, _) = self.waiters.remove(0);
            let accepted = self.out.accepted.remove(0);
            assert_eq!(accepted.receiver, receiver, "receivers get sessions in the order of their requests");
            assert_eq!(accepted.held, HeldSession { session: session(n), locked_until: until });
            self.hold(receiver, n, until);
        }
    }

    fn deliver(&mut self) {
        let nonce = &mut self.nonce;
        let mut nonces = || {
            *nonce += 1;
            *nonce
        };
        assert!(!self.engine.deliver(self.now, &mut nonces, &mut self.out));
        self.model_tick();
        self.match_waiters();
        assert_eq!(self.out.accepted, []);
        let mut deliveries = std::mem::take(&mut self.out.deliveries);
        for hold in &self.holds {
            let (_, credit) = self.credits.iter_mut().find(|(id, _)| *id == hold.receiver).unwrap();
            while let Some(number) = self.model.head(hold.session).filter(|_| *credit > 0) {
                let at = deliveries.iter().position(|delivery| delivery.receiver == hold.receiver).unwrap();
                let delivery = deliveries.remove(at);
                assert_eq!(delivery.message.sequence_number, number, "first in, first out");
                assert_eq!(delivery.message.locked_until, Some(hold.until));
                self.model.find(number).unwrap().nonce = Some(delivery.token.nonce());
                self.tokens.push(delivery.token);
                *credit -= 1;
            }
        }
        assert_eq!(deliveries, [], "no other receiver gets a message");
    }

    fn crash(&mut self, lost_group_count: usize, from_snapshot: bool) {
        let kept = self.groups.len().saturating_sub(lost_group_count).max(1);
        self.groups.truncate(kept);
        self.model = self.groups.last().unwrap().model.clone();
        self.engine = self.replay(from_snapshot);
        assert_eq!(self.engine.snapshot(), self.replay(!from_snapshot).snapshot());
        self.holds.clear();
        self.let_go = [(0, 0); 3];
        self.former.clear();
        self.waiters.clear();
        self.credits.clear();
        self.engine.wake(self.now, &mut self.out);
        for n in 0..3 {
            // The messages that were locked return when the engine wakes up, as if their session were let go then.
            if self.model.in_session(n).any(|m| m.nonce.is_some()) {
                self.let_go[n] = (self.model.next_number - 1, 0);
            }
            self.model.free(self.now, n);
        }
    }

    fn replay(&self, from_snapshot: bool) -> Engine {
        let last = self.groups.iter().rposition(|group| group.snapshot.is_some()).filter(|_| from_snapshot);
        let mut engine = match last {
            Some(at) => {
                Engine::restore(self.groups[at].snapshot.as_ref().unwrap(), Placement::default()).unwrap()
            }
            None => Engine::default(),
        };
        for (group, number) in self.groups.iter().zip(1..).skip(last.map_or(0, |at| at + 1)) {
            let mut bytes = group.bytes.as_slice();
            while !bytes.is_empty() {
                engine.apply(&record::decode(&mut bytes, CommitGroupNumber(number)).unwrap()).unwrap();
            }
        }
        engine
    }

    pub(crate) fn check(&mut self) {
        assert_eq!(self.engine.next_deadline(), self.next_deadline());
        let seen = self.engine.peek(QUEUE, MAIN, SequenceNumber(0), 1000).unwrap();
        self.check_messages(&seen, &|m: &ModelMessage| !m.is_dead);
        let dead = self.engine.peek(QUEUE, SubQueue::DeadLetter, SequenceNumber(0), 1000).unwrap();
        self.check_messages(&dead, &|m: &ModelMessage| m.is_dead);
        for n in 0..3 {
            let seen = self.engine.peek_session(QUEUE, &session(n), SequenceNumber(0), 1000).unwrap();
            self.check_messages(&seen, &|m: &ModelMessage| !m.is_dead && m.session == n);
        }
        let is_there =
            |n: &usize| self.model.in_session(*n).next().is_some() || self.model.states[*n].is_some();
        let there: Vec<_> = (0..3).filter(is_there).collect();
        let written: Vec<_> = there.iter().map(|n| self.model.ids[*n]).collect();
        let listed = self.list(None);
        assert_eq!(listed, there.into_iter().map(session).collect::<Vec<_>>());
        assert_eq!(listed.iter().map(SessionId::as_str).collect::<Vec<_>>(), written);
        let since = self.now - Duration::from_secs(1);
        let is_new = |n: &usize| self.model.states[*n].is_some_and(|(_, at)| at > since);
        let with_state: Vec<_> = (0..3).filter(is_new).map(session).collect();
        assert_eq!(self.list(Some(since)), with_state);
        let locked_count = self.model.messages.iter().filter(|m| m.nonce.is_some()).count();
        assert_eq!(self.engine.queue(QUEUE).unwrap().counts.locked_count, locked_count as u64);
    }

    fn list(&mut self, since: Option<Timestamp>) -> Vec<SessionId> {
        self.engine.list_sessions(self.now, QUEUE, since, 0, 10).unwrap()
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let messages = self.model.messages.iter().flat_map(|m| [m.due, m.expires_at()]).flatten();
        let holds = self.holds.iter().chain(&self.former).map(|hold| hold.until);
        messages.chain(holds).chain(self.waiters.iter().map(|(_, give_up_at)| *give_up_at)).min()
    }

    fn check_messages(&self, seen: &[Message], is_meant: &dyn Fn(&ModelMessage) -> bool) {
        let until = |m: &ModelMessage| {
            let hold = self.holds.iter().find(|hold| hold.session == m.session);
            m.nonce.map(|_| hold.expect("a locked message is in a held session").until)
        };
        let expected = self.model.messages.iter().filter(|m| is_meant(m));
        let expected = expected.map(|m| {
            let times = (m.due, until(m), m.was_locked_until);
            (m.number, m.body, m.state, m.is_activated, m.failed_count, times)
        });
        let seen = seen.iter().map(|message| {
            let Message { sequence_number, body, state, is_activated, delivery_count, locked_until, .. } =
                *message;
            let details = message.details.as_deref();
            let due = details.and_then(|details| details.due);
            let was_locked_until = details.and_then(|details| details.was_locked_until);
            let times = (due, locked_until, was_locked_until);
            (sequence_number, body, state, is_activated, delivery_count, times)
        });
        assert_eq!(seen.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
}
