//! The transactions of one connection, until they are committed.
//!
//! Nothing of a transaction is durable or visible before its commit, so all of it lives here: the messages that it sends, and the
//! settlements that it makes. A connection that ends takes its transactions along, which is the same as rolling them back.
//!
//! A transaction with a step that was refused can only be rolled back. A client may commit without having looked at the answer to each
//! step, and half of a transaction must never be done.

pub(crate) mod coordinator;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::condition;
use peeklock_amqp::connection::{DeliveryId, Millis};
use peeklock_broker::engine::{Attributes, EntityId, Settlement};
use peeklock_broker::{KeptBody, TransactionSettle, TransactionState, Upload};
use peeklock_types::{EntityName, LockToken, SequenceNumber, limits};
use rustc_hash::FxHashMap;

use crate::connection::link::{EntityRef, LinkNumber};
use crate::connection::request::Mirror;
use crate::error::Refusal;
use crate::queue_group::LockEnd;

/// Transactions that one connection may have open at a time.
const OPEN_MAX: usize = 100;
/// What all transactions of one connection may hold in memory.
const SIZE_BYTES_MAX: usize = 2 * limits::TRANSACTION_SIZE_BYTES_MAX;
/// A transaction in which nothing happens for so long is rolled back.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// How many timed-out transactions are remembered, so that late steps learn why they are refused.
const REMEMBERED_MAX: usize = 1000;

/// A transaction's number within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TransactionNumber(pub(crate) u32);

/// Identifies a transaction on the wire: its number, then random bits.
///
/// The random bits make it unique in the broker. A client may by mistake use the id of another connection's transaction; a bare number
/// could then match one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TransactionId([u8; 16]);

impl TransactionId {
    fn new(number: u32, nonce: u128) -> Self {
        let mut bytes = nonce.to_be_bytes();
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        TransactionId(bytes)
    }

    fn of(id: &[u8]) -> Result<Self, Refusal> {
        <[u8; 16]>::try_from(id).map(TransactionId).map_err(|_| unknown())
    }

    fn number(self) -> TransactionNumber {
        let [a, b, c, d, ..] = self.0;
        TransactionNumber(u32::from_be_bytes([a, b, c, d]))
    }
}

/// Describes a settlement that was answered. The commit settles it on the wire; after a rollback the peer still holds the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) link: LinkNumber,
    pub(crate) delivery: DeliveryId,
    pub(crate) token: LockToken,
    pub(crate) mirror: Mirror,
    pub(crate) end: LockEnd,
}

/// A message that waits for its transaction's commit, in its stored form.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    pub(crate) body: HeldBody,
    pub(crate) attributes: Option<Box<Attributes>>,
}

#[derive(Debug)]
pub(crate) enum HeldBody {
    Whole(Bytes),
    /// A large body that was written and is not durable yet. The commit makes it durable; dropping it deletes it.
    Upload(Option<Upload>),
    Kept(KeptBody),
}

impl HeldMessage {
    /// Returns the sequence number that was reserved for it.
    fn number(&self) -> Option<SequenceNumber> {
        let reserved = self.attributes.as_ref().and_then(|attributes| attributes.reserved);
        reserved.map(|reserved| reserved.sequence_number)
    }

    fn size_bytes(&self) -> usize {
        let view = self.attributes.as_ref().and_then(|attributes| attributes.view.as_ref());
        let body = if let HeldBody::Whole(body) = &self.body { body.len() } else { 0 };
        body + view.map_or(0, Bytes::len)
    }
}

/// One transactional delivery: its messages are sent together.
#[derive(Debug)]
pub(crate) struct HeldSend {
    pub(crate) target: EntityName,
    pub(crate) entity: EntityRef,
    pub(crate) messages: Vec<HeldMessage>,
}

/// Everything that a commit does.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The one queue whose messages are settled.
    settled: Option<(EntityName, EntityRef)>,
    /// The queue, or the topic of subscriptions, that settlements, cancellations and states change, and the first entity of it. They share a shard.
    changed: Option<(EntityName, EntityRef)>,
    pub(crate) settles: Vec<TransactionSettle>,
    pub(crate) cancels: Vec<(EntityId, SequenceNumber)>,
    pub(crate) states: Vec<TransactionState>,
    pub(crate) sends: Vec<HeldSend>,
    step_count: usize,
    size_bytes: usize,
}

impl Work {
    /// Returns the entity whose shard commits: that of the settlements, else that of another change, else that of the first send. `None`: the
    /// transaction has no steps.
    pub(crate) fn home(&self) -> Option<EntityRef> {
        let of_sends = || self.sends.first().map(|send| send.entity);
        let changed = self.settled.as_ref().or(self.changed.as_ref());
        changed.map(|(_, entity)| *entity).or_else(of_sends)
    }

    /// Notes the entity that a step changes. Refuses a second one: one shard commits the whole transaction.
    fn change(&mut self, name: &EntityName, entity: EntityRef) -> Result<(), Refusal> {
        let root = name.topic().unwrap_or_else(|| name.clone());
        let (changed, _) = self.changed.get_or_insert_with(|| (root.clone(), entity));
        if *changed != root {
            return Err(other_queue(changed, name));
        }
        Ok(())
    }
}

fn other_queue(changed: &EntityName, name: &EntityName) -> Refusal {
    Refusal::not_allowed(format!(
        "the transaction changes messages of '{changed}' already, and cannot change those of '{name}' too; it may send to any queue. Use \
         one transaction for each"
    ))
}

/// The delivery on a control link that asked for the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Discharger {
    pub(crate) control: LinkNumber,
    pub(crate) delivery: DeliveryId,
}

#[derive(Debug)]
struct Transaction {
    id: TransactionId,
    control: LinkNumber,
    expires_at: Millis,
    work: Work,
    retired: Vec<Retired>,
    /// Counts requests and large messages of it that are not answered yet.
    request_count: usize,
    /// Why it can only be rolled back.
    doomed: Option<String>,
    /// Its commit is under way.
    discharger: Option<Discharger>,
    /// The work of a commit that waits for its large bodies to be durable.
    parked: Option<(EntityRef, Work)>,
}

#[derive(Debug, Default)]
pub(crate) struct Transactions {
    open: FxHashMap<u32, Transaction>,
    timed_out: VecDeque<TransactionId>,
    next: u32,
    size_bytes: usize,
}

impl Transactions {
    /// Begins a transaction and returns its id, which contains `nonce`.
    pub(crate) fn declare(
        &mut self,
        control: LinkNumber,
        now: Millis,
        nonce: u128,
    ) -> Result<Bytes, Refusal> {
        if self.open.len() >= OPEN_MAX {
            let text = format!("this connection has {OPEN_MAX} open transactions; end one first");
            return Err(Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, text));
        }
        // Few are open at a time, so a number that comes round again is free.
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let id = TransactionId::new(number, nonce);
        let transaction = Transaction {
            id,
            control,
            expires_at: now.after(IDLE_MAX),
            work: Work::default(),
            retired: Vec::new(),
            request_count: 0,
            doomed: None,
            discharger: None,
            parked: None,
        };
        self.open.insert(number, transaction);
        Ok(Bytes::copy_from_slice(&id.0))
    }

    /// Adds the messages of one delivery.
    pub(crate) fn add_send(&mut self, now: Millis, id: &[u8], send: HeldSend) -> Result<(), Refusal> {
        let size_bytes = send.messages.iter().map(HeldMessage::size_bytes).sum();
        let transaction = self.step(now, id, send.messages.len(), size_bytes)?;
        transaction.work.sends.push(send);
        Ok(())
    }

    /// Adds settlements of messages of one queue.
    pub(crate) fn add_settles(
        &mut self,
        now: Millis,
        id: &[u8],
        queue: (&EntityName, EntityRef),
        settles: Vec<TransactionSettle>,
    ) -> Result<(), Refusal> {
        let size_bytes = settles.iter().map(|settle| size_of(&settle.settlement)).sum();
        let transaction = self.step(now, id, settles.len(), size_bytes)?;
        let ((name, entity), work) = (queue, &mut transaction.work);
        let changed = work.change(name, entity).and_then(|()| {
            let (settled, _) = work.settled.get_or_insert_with(|| (name.clone(), entity));
            if settled == name { Ok(()) } else { Err(other_queue(settled, name)) }
        });
        changed.map_err(|refusal| transaction.refuse(refusal))?;
        transaction.work.settles.extend(settles);
        Ok(())
    }

    /// Adds cancellations of scheduled messages of one queue or topic. Drops messages that the transaction itself scheduled, and returns the
    /// other numbers, which must be checked.
    pub(crate) fn add_cancels(
        &mut self,
        now: Millis,
        id: &[u8],
        (name, entity): (&EntityName, EntityRef),
        mut numbers: Vec<SequenceNumber>,
    ) -> Result<Vec<SequenceNumber>, Refusal> {
        let transaction = self.step(now, id, numbers.len(), 0)?;
        let dropped_bytes = transaction.work.drop_scheduled(entity.entity, &mut numbers);
        if !numbers.is_empty() {
            let changed = transaction.work.change(name, entity);
            changed.map_err(|refusal| transaction.refuse(refusal))?;
            transaction.work.cancels.extend(numbers.iter().map(|number| (entity.entity, *number)));
        }
        self.size_bytes = self.size_bytes.saturating_sub(dropped_bytes);
        Ok(numbers)
    }

    /// Adds a state for a session of a queue.
    pub(crate) fn add_state(
        &mut self,
        now: Millis,
        id: &[u8],
        (name, entity): (&EntityName, EntityRef),
        state: TransactionState,
    ) -> Result<(), Refusal> {
        let size_bytes = state.state.as_ref().map_or(0, Bytes::len);
        let transaction = self.step(now, id, 1, size_bytes)?;
        let changed = transaction.work.change(name, entity);
        changed.map_err(|refusal| transaction.refuse(refusal))?;
        transaction.work.states.push(state);
        Ok(())
    }

    /// Counts a request that is a step. The step is added when the entity is found.
    pub(crate) fn start_request(&mut self, id: &[u8]) -> Result<(), Refusal> {
        let number = self.find(id)?;
        let transaction = self.open.get_mut(&number.0).filter(|transaction| transaction.discharger.is_none());
        transaction.ok_or_else(unknown)?.request_count += 1;
        Ok(())
    }

    /// Ends a request that was counted.
    pub(crate) fn end_request(&mut self, now: Millis, id: &[u8]) {
        let number = self.find(id).ok();
        if let Some(transaction) = number.and_then(|number| self.open.get_mut(&number.0)) {
            transaction.request_count = transaction.request_count.saturating_sub(1);
            transaction.expires_at = now.after(IDLE_MAX);
        }
    }

    /// Notes a settlement that was answered, for the commit. Its commit may be under way already.
    pub(crate) fn retire(&mut self, id: &[u8], retired: Retired) -> Result<(), Refusal> {
        let number = self.find(id)?;
        let transaction = self.open.get_mut(&number.0).ok_or_else(unknown)?;
        transaction.retired.push(retired);
        Ok(())
    }

    /// The transaction, for a step that needs so much room.
    fn step(
        &mut self,
        now: Millis,
        id: &[u8],
        count: usize,
        size_bytes: usize,
    ) -> Result<&mut Transaction, Refusal> {
        let number = self.find(id)?;
        let transaction = self.open.get_mut(&number.0).ok_or_else(unknown)?;
        if transaction.discharger.is_some() {
            return Err(unknown());
        }
        transaction.expires_at = now.after(IDLE_MAX);
        let work = &mut transaction.work;
        let refusal = if work.step_count + count > limits::TRANSACTION_STEPS_MAX {
            Some(format!("a transaction can have {} sends and settlements", limits::TRANSACTION_STEPS_MAX))
        } else if work.size_bytes + size_bytes > limits::TRANSACTION_SIZE_BYTES_MAX {
            Some(format!("a transaction can hold {} bytes", limits::TRANSACTION_SIZE_BYTES_MAX))
        } else if self.size_bytes + size_bytes > SIZE_BYTES_MAX {
            Some(format!("the open transactions of one connection can hold {SIZE_BYTES_MAX} bytes"))
        } else {
            None
        };
        if let Some(limit) = refusal {
            let refusal =
                Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, format!("{limit}; use several"));
            return Err(transaction.refuse(refusal));
        }
        work.step_count += count;
        work.size_bytes += size_bytes;
        self.size_bytes += size_bytes;
        Ok(transaction)
    }

    /// A step was refused elsewhere, so the transaction cannot be committed any more.
    pub(crate) fn doom(&mut self, id: &[u8], reason: &str) {
        let number = self.find(id).ok();
        if let Some(transaction) = number.and_then(|number| self.open.get_mut(&number.0)) {
            transaction.doomed.get_or_insert_with(|| reason.to_owned());
        }
    }

    /// Nothing that is open can be committed any more. A commit that is under way goes on.
    pub(crate) fn doom_all(&mut self, reason: &str) {
        for transaction in self.open.values_mut() {
            transaction.doomed.get_or_insert_with(|| reason.to_owned());
        }
    }

    /// Finds a transaction that is open or being committed.
    fn find(&self, id: &[u8]) -> Result<TransactionNumber, Refusal> {
        let id = TransactionId::of(id)?;
        let number = id.number();
        if self.open.get(&number.0).is_some_and(|transaction| transaction.id == id) {
            return Ok(number);
        }
        if self.timed_out.contains(&id) {
            let text = format!(
                "nothing happened in the transaction for {IDLE_MAX:?}, so it was rolled back; begin a new one"
            );
            return Err(Refusal::new(408, condition::TRANSACTION_TIMEOUT, text));
        }
        Err(unknown())
    }

    pub(crate) fn roll_back(&mut self, id: &[u8]) -> Result<(), Refusal> {
        let number = self.dischargeable(id)?;
        self.remove(number);
        Ok(())
    }

    /// What a commit has to do. The transaction is known until [`Transactions::end`].
    pub(crate) fn commit(
        &mut self,
        id: &[u8],
        discharger: Discharger,
    ) -> Result<(TransactionNumber, Work), Refusal> {
        let number = self.dischargeable(id)?;
        let transaction = self.open.get(&number.0).ok_or_else(unknown)?;
        // Nobody knows yet what the request does, and half of a transaction must never be done.
        let is_early = transaction.request_count > 0;
        let early =
            || "a request of it was not answered; wait for all responses before the commit".to_owned();
        if let Some(reason) = transaction.doomed.clone().or_else(|| is_early.then(early)) {
            self.remove(number);
            return Err(rolled_back(&reason));
        }
        let transaction = self.open.get_mut(&number.0).ok_or_else(unknown)?;
        transaction.discharger = Some(discharger);
        let work = std::mem::take(&mut transaction.work);
        self.size_bytes = self.size_bytes.saturating_sub(work.size_bytes);
        Ok((number, work))
    }

    /// Keeps the work of a commit until its large bodies are durable.
    pub(crate) fn park(&mut self, number: TransactionNumber, home: EntityRef, work: Work) {
        if let Some(transaction) = self.open.get_mut(&number.0) {
            transaction.parked = Some((home, work));
        }
    }

    pub(crate) fn unpark(&mut self, number: TransactionNumber) -> Option<(EntityRef, Work)> {
        self.open.get_mut(&number.0)?.parked.take()
    }

    /// Counts the large messages of all transactions.
    pub(crate) fn upload_count(&self) -> usize {
        let sends = self.open.values().flat_map(|transaction| &transaction.work.sends);
        let messages = sends.flat_map(|send| &send.messages);
        messages.filter(|message| matches!(message.body, HeldBody::Upload(_))).count()
    }

    fn dischargeable(&self, id: &[u8]) -> Result<TransactionNumber, Refusal> {
        let number = self.find(id)?;
        let is_open = self.open.get(&number.0).is_some_and(|transaction| transaction.discharger.is_none());
        if is_open { Ok(number) } else { Err(unknown()) }
    }

    /// Forgets a transaction whose commit is over, one way or the other. Returns its id, too.
    pub(crate) fn end(&mut self, number: TransactionNumber) -> Option<(Bytes, Discharger, Vec<Retired>)> {
        let transaction = self.remove(number)?;
        Some((Bytes::copy_from_slice(&transaction.id.0), transaction.discharger?, transaction.retired))
    }

    /// The control link is gone, and with it those who could commit. A commit that is under way goes on.
    pub(crate) fn roll_back_all_of(&mut self, control: LinkNumber) {
        self.remove_where(|transaction| transaction.control == control && transaction.discharger.is_none());
    }

    /// Rolls back what has been idle for too long.
    pub(crate) fn expire(&mut self, now: Millis) {
        let gone =
            self.remove_where(|transaction| transaction.is_idle() && transaction.expires_at.0 <= now.0);
        self.timed_out.extend(gone);
        let excess = self.timed_out.len().saturating_sub(REMEMBERED_MAX);
        self.timed_out.drain(..excess);
    }

    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let waiting = self.open.values().filter(|transaction| transaction.is_idle());
        waiting.map(|transaction| transaction.expires_at.0).min().map(Millis)
    }

    fn remove_where(&mut self, is_over: impl Fn(&Transaction) -> bool) -> Vec<TransactionId> {
        let over = self.open.values().filter(|transaction| is_over(transaction));
        let over: Vec<_> = over.map(|transaction| transaction.id).collect();
        for id in &over {
            self.remove(id.number());
        }
        over
    }

    fn remove(&mut self, number: TransactionNumber) -> Option<Transaction> {
        let transaction = self.open.remove(&number.0)?;
        self.size_bytes = self.size_bytes.saturating_sub(transaction.work.size_bytes);
        Some(transaction)
    }
}

impl Work {
    fn bodies(&mut self) -> impl Iterator<Item = &mut HeldBody> {
        self.sends.iter_mut().flat_map(|send| &mut send.messages).map(|message| &mut message.body)
    }

    /// Takes the large bodies that are not durable.
    pub(crate) fn take_uploads(&mut self) -> Vec<Upload> {
        let upload =
            |body: &mut HeldBody| if let HeldBody::Upload(upload) = body { upload.take() } else { None };
        self.bodies().filter_map(upload).collect()
    }

    /// Puts durable bodies in the places of those that were taken.
    pub(crate) fn put_kept(&mut self, kept: Vec<KeptBody>) {
        let awaited = self.bodies().filter(|body| matches!(body, HeldBody::Upload(None)));
        awaited.zip(kept).for_each(|(body, kept)| *body = HeldBody::Kept(kept));
    }

    /// Drops those of these messages that the transaction itself scheduled, and returns their size. `numbers` keeps the others.
    fn drop_scheduled(&mut self, entity: EntityId, numbers: &mut Vec<SequenceNumber>) -> usize {
        let mut dropped_bytes = 0;
        for send in self.sends.iter_mut().filter(|send| send.entity.entity == entity) {
            send.messages.retain(|message| {
                let place = numbers.iter().position(|number| message.number() == Some(*number));
                if let Some(place) = place {
                    numbers.swap_remove(place);
                    dropped_bytes += message.size_bytes();
                }
                place.is_none()
            });
        }
        self.sends.retain(|send| !send.messages.is_empty());
        self.size_bytes = self.size_bytes.saturating_sub(dropped_bytes);
        dropped_bytes
    }
}

impl Transaction {
    /// Tells whether no commit, request or large message of it is in progress.
    fn is_idle(&self) -> bool {
        self.discharger.is_none() && self.request_count == 0
    }

    fn refuse(&mut self, refusal: Refusal) -> Refusal {
        self.doomed.get_or_insert_with(|| refusal.description.clone());
        refusal
    }
}

pub(crate) fn rolled_back(reason: &str) -> Refusal {
    let text = format!("the transaction was rolled back, nothing of it was done: {reason}");
    Refusal::new(400, condition::TRANSACTION_ROLLBACK, text)
}

fn unknown() -> Refusal {
    let text = "there is no open transaction with this id on this connection; it ended, or it never was";
    Refusal::new(400, condition::TRANSACTION_UNKNOWN_ID, text)
}

fn size_of(settlement: &Settlement) -> usize {
    let bytes = |patch: &Option<Bytes>| patch.as_ref().map_or(0, Bytes::len);
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match settlement {
        Settlement::Complete | Settlement::Release => 0,
        Settlement::Abandon { patch, .. } | Settlement::Defer { patch } => bytes(patch),
        Settlement::DeadLetter { reason, description, patch } => {
            text(reason) + text(description) + bytes(patch)
        }
    }
}

#[cfg(test)]
mod tests {
    use peeklock_types::SubQueue;

    use super::*;

    const CONTROL: LinkNumber = LinkNumber(1);
    const NOW: Millis = Millis(1000);
    const NONCE: u128 = 7 << 64 | 3;
    const DISCHARGER: Discharger = Discharger { control: CONTROL, delivery: DeliveryId(7) };

    fn retired() -> Retired {
        let token = LockToken::new(SequenceNumber(1), 1);
        let (link, delivery) = (LinkNumber(2), DeliveryId(8));
        Retired { link, delivery, token, mirror: Mirror::Accepted, end: LockEnd::Settled }
    }

    fn begun() -> (Transactions, Bytes) {
        let mut transactions = Transactions::default();
        let id = transactions.declare(CONTROL, NOW, NONCE).unwrap();
        (transactions, id)
    }

    fn queue(name: &str, number: u32) -> (EntityName, EntityRef) {
        (EntityName::parse(name).unwrap(), EntityRef { shard: 0, entity: EntityId(number) })
    }

    fn send(size_bytes: usize) -> HeldSend {
        let (target, entity) = queue("target", 1);
        let body = HeldBody::Whole(Bytes::from(vec![0; size_bytes]));
        HeldSend { target, entity, messages: vec![HeldMessage { body, attributes: None }] }
    }

    fn settle(number: u64) -> TransactionSettle {
        TransactionSettle {
            sub_queue: SubQueue::Main,
            token: LockToken::new(SequenceNumber(number), 1),
            settlement: Settlement::Complete,
        }
    }

    fn add_settle(transactions: &mut Transactions, id: &[u8], name: &str) -> Result<(), Refusal> {
        let (name, entity) = queue(name, 9);
        transactions.add_settles(NOW, id, (&name, entity), vec![settle(1)])
    }

    fn condition_of<T: std::fmt::Debug>(result: Result<T, Refusal>) -> &'static str {
        result.unwrap_err().condition
    }

    #[test]
    fn a_commit_does_all_steps_at_the_settled_queue() {
        let (mut transactions, id) = begun();
        transactions.add_send(NOW, &id, send(10)).unwrap();
        add_settle(&mut transactions, &id, "source").unwrap();
        let (number, work) = transactions.commit(&id, DISCHARGER).unwrap();
        assert_eq!((work.sends.len(), work.settles.len()), (1, 1));
        assert_eq!(work.home().unwrap().entity, EntityId(9));
        assert_eq!(condition_of(transactions.add_send(NOW, &id, send(1))), condition::TRANSACTION_UNKNOWN_ID);
        transactions.retire(&id, retired()).expect("answers to its steps may be on their way");
        assert_eq!(transactions.end(number), Some((id.clone(), DISCHARGER, vec![retired()])));
        assert_eq!(condition_of(transactions.retire(&id, retired())), condition::TRANSACTION_UNKNOWN_ID);
        assert_eq!(condition_of(transactions.roll_back(&id)), condition::TRANSACTION_UNKNOWN_ID);
        assert_eq!(transactions.size_bytes, 0);
    }

    #[test]
    fn without_settlements_the_first_target_commits_and_without_sends_nobody() {
        let (mut transactions, id) = begun();
        transactions.add_send(NOW, &id, send(10)).unwrap();
        let (_, work) = transactions.commit(&id, DISCHARGER).unwrap();
        assert_eq!(work.home().unwrap().entity, EntityId(1));
        let (mut transactions, id) = begun();
        let (_, work) = transactions.commit(&id, DISCHARGER).unwrap();
        assert!(work.home().is_none());
    }

    #[test]
    fn several_transactions_do_not_disturb_each_other() {
        let (mut transactions, one) = begun();
        let two = transactions.declare(CONTROL, NOW, NONCE).unwrap();
        assert_ne!(one, two);
        transactions.add_send(NOW, &one, send(1)).unwrap();
        transactions.roll_back(&one).unwrap();
        add_settle(&mut transactions, &two, "q").unwrap();
        assert_eq!(transactions.commit(&two, DISCHARGER).unwrap().1.sends.len(), 0);
    }

    #[test]
    fn two_queues_cannot_be_settled_together() {
        let (mut transactions, id) = begun();
        add_settle(&mut transactions, &id, "one").unwrap();
        add_settle(&mut transactions, &id, "ONE").unwrap();
        assert_eq!(condition_of(add_settle(&mut transactions, &id, "two")), condition::NOT_ALLOWED);
        let refusal = transactions.commit(&id, DISCHARGER).unwrap_err();
        assert_eq!(refusal.condition, condition::TRANSACTION_ROLLBACK);
        assert!(refusal.description.contains("'two'"), "{}", refusal.description);
    }

    #[test]
    fn a_refused_step_leaves_only_the_way_back() {
        let (mut transactions, id) = begun();
        transactions.add_send(NOW, &id, send(1)).unwrap();
        transactions.doom(&id, "the lock is lost");
        assert_eq!(condition_of(transactions.commit(&id, DISCHARGER)), condition::TRANSACTION_ROLLBACK);
        assert_eq!(condition_of(transactions.commit(&id, DISCHARGER)), condition::TRANSACTION_UNKNOWN_ID);
        let id = transactions.declare(CONTROL, NOW, NONCE).unwrap();
        transactions.doom(&id, "the lock is lost");
        transactions.roll_back(&id).unwrap();
        transactions.doom(b"nonsense", "nobody hears it");
    }

    #[test]
    fn steps_and_bytes_are_bounded() {
        let (mut transactions, id) = begun();
        for _ in 0..limits::TRANSACTION_STEPS_MAX {
            transactions.add_send(NOW, &id, send(1)).unwrap();
        }
        let refused = add_settle(&mut transactions, &id, "q");
        assert_eq!(condition_of(refused), condition::RESOURCE_LIMIT_EXCEEDED);
        transactions.roll_back(&id).unwrap();

        let most = limits::TRANSACTION_SIZE_BYTES_MAX;
        let mut declare = || transactions.declare(CONTROL, NOW, NONCE).unwrap();
        let ids = [declare(), declare(), declare()];
        for id in &ids[..2] {
            transactions.add_send(NOW, id, send(most)).unwrap();
        }
        let condition = condition_of(transactions.add_send(NOW, &ids[0], send(1)));
        assert_eq!(condition, condition::RESOURCE_LIMIT_EXCEEDED, "too much for one");
        let condition = condition_of(transactions.add_send(NOW, &ids[2], send(1)));
        assert_eq!(condition, condition::RESOURCE_LIMIT_EXCEEDED, "too much for all");
        transactions.roll_back(&ids[0]).unwrap();
        let id = transactions.declare(CONTROL, NOW, NONCE).unwrap();
        transactions.add_send(NOW, &id, send(1)).unwrap();
    }

    #[test]
    fn open_transactions_are_bounded() {
        let (mut transactions, _) = begun();
        for _ in 1..OPEN_MAX {
            transactions.declare(CONTROL, NOW, NONCE).unwrap();
        }
        assert_eq!(
            condition_of(transactions.declare(CONTROL, NOW, NONCE)),
            condition::RESOURCE_LIMIT_EXCEEDED
        );
        transactions.roll_back_all_of(LinkNumber(2));
        assert!(transactions.declare(CONTROL, NOW, NONCE).is_err());
        transactions.roll_back_all_of(CONTROL);
        assert!(transactions.declare(CONTROL, NOW, NONCE).is_ok());
    }

    #[test]
    fn an_idle_transaction_times_out_and_late_steps_learn_why() {
        let (mut transactions, id) = begun();
        let deadline = transactions.next_deadline().unwrap();
        assert_eq!(deadline, Millis(121_000));
        let later = Millis(deadline.0 - 1);
        transactions.expire(later);
        transactions.add_send(later, &id, send(5)).unwrap();
        transactions.expire(deadline);
        let deadline = transactions.next_deadline().unwrap();
        assert_eq!(deadline, Millis(later.0 + 120_000), "each step starts the time anew");
        transactions.expire(deadline);
        assert_eq!(transactions.next_deadline(), None);
        assert_eq!(transactions.size_bytes, 0);
        assert_eq!(
            condition_of(transactions.add_send(deadline, &id, send(5))),
            condition::TRANSACTION_TIMEOUT
        );
        assert_eq!(condition_of(transactions.commit(&id, DISCHARGER)), condition::TRANSACTION_TIMEOUT);
        assert_eq!(condition_of(transactions.roll_back(&id)), condition::TRANSACTION_TIMEOUT);
    }

    #[test]
    fn a_commit_under_way_neither_times_out_nor_ends_with_its_link() {
        let (mut transactions, id) = begun();
        let (number, _) = transactions.commit(&id, DISCHARGER).unwrap();
        assert_eq!(transactions.next_deadline(), None);
        transactions.expire(Millis(u64::MAX));
        transactions.roll_back_all_of(CONTROL);
        assert_eq!(transactions.end(number), Some((id, DISCHARGER, Vec::new())));
    }

    #[test]
    fn ids_that_nobody_gave_out_are_unknown() {
        let (mut transactions, id) = begun();
        let mut guess = TransactionId::of(&id).unwrap();
        guess.0[15] ^= 1;
        for id in [&b""[..], b"abcd", &guess.0, b"a long id that is none of ours at all"] {
            assert_eq!(
                condition_of(transactions.add_send(NOW, id, send(1))),
                condition::TRANSACTION_UNKNOWN_ID
            );
            assert_eq!(condition_of(transactions.roll_back(id)), condition::TRANSACTION_UNKNOWN_ID);
        }
    }
}
