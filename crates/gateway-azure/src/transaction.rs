//! The transactions of one connection, until they are committed.
//!
//! Nothing of a transaction is durable or visible before its commit, so this module stores all of it: the messages that
//! it sends, and its settlements. When a connection ends, its transactions are rolled back.
//!
//! A transaction with a rejected step can only be rolled back. A client may commit before it has received the answer to
//! each step, and a transaction must never be applied in part.

mod checks;
pub(crate) mod coordinator;
mod id;
mod work;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::condition;
use peeklock_amqp::connection::{DeliveryId, Millis};
use peeklock_broker::{TransactionSettle, TransactionState};
use peeklock_types::{EntityName, LockToken, SequenceNumber, limits};
use rustc_hash::FxHashMap;

use crate::connection::link::{EntityRef, LinkNumber};
use crate::connection::request::Mirror;
use crate::error::Refusal;
use crate::queue_group::LockEnd;
use checks::Checks;
pub(crate) use id::TransactionNumber;
use id::{TransactionId, unknown};
use work::size_of;
pub(crate) use work::{HeldBody, HeldMessage, HeldSend, Work};

/// The limit on open transactions of one connection.
const OPEN_MAX: usize = 100;
/// The limit on the memory of all transactions of one connection.
const SIZE_BYTES_MAX: usize = 2 * limits::TRANSACTION_SIZE_BYTES_MAX;
/// The time after which an idle transaction is rolled back.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// The number of timed-out transactions that are remembered, so that late steps receive the reason.
const REMEMBERED_MAX: usize = 1000;

/// A settlement that was answered. The commit settles it on the wire; after a rollback the peer still holds the
/// delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) link: LinkNumber,
    pub(crate) delivery: DeliveryId,
    pub(crate) token: LockToken,
    pub(crate) mirror: Mirror,
    pub(crate) end: LockEnd,
}

/// The delivery on a control link that requested the end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Discharger {
    pub(crate) control: LinkNumber,
    pub(crate) delivery: DeliveryId,
    /// Whether a new transaction begins under the same id.
    pub(crate) renews: bool,
}

#[derive(Debug)]
struct Transaction {
    id: TransactionId,
    control: LinkNumber,
    expires_at: Millis,
    work: Work,
    retired: Vec<Retired>,
    /// The number of deliveries and settlements that have named the transaction on their links, whatever their outcome.
    arrived_count: u64,
    /// The number of requests and large messages of the transaction that are not answered yet.
    request_count: usize,
    /// The reason why the transaction can only be rolled back.
    doomed: Option<String>,
    /// The discharge whose commit is in flight.
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
    checks: Checks,
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
        // Few transactions are open at a time, so a number is free again when the counter wraps around.
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let id = TransactionId::new(number, nonce);
        self.open.insert(number, Transaction::new(id, control, now));
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
        let settled = transaction.work.settle(queue.0, queue.1, settles);
        settled.map_err(|refusal| transaction.refuse(refusal))
    }

    /// Adds cancellations of scheduled messages of one queue or topic. Drops messages that the transaction itself
    /// scheduled, and returns the other numbers, which must be checked.
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

    /// Stores a settlement that was answered, for the commit. The commit may already be in flight.
    pub(crate) fn retire(&mut self, id: &[u8], retired: Retired) -> Result<(), Refusal> {
        let number = self.find(id)?;
        let transaction = self.open.get_mut(&number.0).ok_or_else(unknown)?;
        transaction.retired.push(retired);
        Ok(())
    }

    /// Counts a delivery or a settlement that names the transaction on its link.
    pub(crate) fn count_arrival(&mut self, id: &[u8]) {
        let number = self.find(id).ok();
        if let Some(transaction) = number.and_then(|number| self.open.get_mut(&number.0)) {
            transaction.arrived_count += 1;
        }
    }

    /// Returns the transaction, for a step that needs this much memory.
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

    /// Prevents the commit of a transaction after a step was rejected elsewhere.
    pub(crate) fn doom(&mut self, id: &[u8], reason: &str) {
        let number = self.find(id).ok();
        if let Some(transaction) = number.and_then(|number| self.open.get_mut(&number.0)) {
            transaction.doomed.get_or_insert_with(|| reason.to_owned());
        }
    }

    /// Prevents the commit of all open transactions. A commit in flight continues.
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

    pub(crate) fn roll_back(
        &mut self,
        now: Millis,
        id: &[u8],
        discharger: Discharger,
    ) -> Result<(), Refusal> {
        let number = self.dischargeable(id)?;
        self.discharge(now, number, discharger);
        Ok(())
    }

    /// Removes a transaction that is committed or rolled back, and begins the next one if the peer has requested it.
    fn discharge(
        &mut self,
        now: Millis,
        number: TransactionNumber,
        discharger: Discharger,
    ) -> Option<Transaction> {
        let ended = self.remove(number)?;
        if discharger.renews {
            self.open.insert(number.0, Transaction::new(ended.id, discharger.control, now));
        }
        Some(ended)
    }

    /// Returns the work of a commit. The transaction is stored until [`Transactions::end`].
    ///
    /// A peer that does not wait for the answers to its steps sends their number. A step may have been lost on the way,
    /// because its link was ended in the meantime.
    pub(crate) fn commit(
        &mut self,
        now: Millis,
        id: &[u8],
        discharger: Discharger,
        sent_count: Option<u64>,
    ) -> Result<(TransactionNumber, Work), Refusal> {
        let number = self.dischargeable(id)?;
        let transaction = self.open.get(&number.0).ok_or_else(unknown)?;
        // The result of the request is not known yet, and a transaction must never be applied in part.
        let is_early = transaction.request_count > 0;
        let early =
            || "a request of it was not answered; wait for all responses before the commit".to_owned();
        let lost = || match sent_count {
            Some(sent) if sent != transaction.arrived_count => Some(format!(
                "{} of its {sent} steps arrived; their links have ended",
                transaction.arrived_count
            )),
            _ => None,
        };
        let doomed = transaction.doomed.clone().or_else(|| is_early.then(early)).or_else(lost);
        if let Some(reason) = doomed {
            self.discharge(now, number, discharger);
            return Err(rolled_back(&reason));
        }
        let transaction = self.open.get_mut(&number.0).ok_or_else(unknown)?;
        transaction.discharger = Some(discharger);
        let work = std::mem::take(&mut transaction.work);
        self.size_bytes = self.size_bytes.saturating_sub(work.size_bytes);
        Ok((number, work))
    }

    /// Stores the work of a commit until its large bodies are durable.
    pub(crate) fn park(&mut self, number: TransactionNumber, home: EntityRef, work: Work) {
        if let Some(transaction) = self.open.get_mut(&number.0) {
            transaction.parked = Some((home, work));
        }
    }

    pub(crate) fn unpark(&mut self, number: TransactionNumber) -> Option<(EntityRef, Work)> {
        self.open.get_mut(&number.0)?.parked.take()
    }

    /// Returns the number of large messages of all transactions.
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

    /// Removes a transaction whose commit has succeeded or failed. Returns its id, too.
    pub(crate) fn end(
        &mut self,
        now: Millis,
        number: TransactionNumber,
    ) -> Option<(Bytes, Discharger, Vec<Retired>)> {
        let discharger = self.open.get(&number.0)?.discharger?;
        let transaction = self.discharge(now, number, discharger)?;
        Some((Bytes::copy_from_slice(&transaction.id.0), discharger, transaction.retired))
    }

    /// Rolls back the transactions of a control link that was detached, because no peer can commit them any more. A
    /// commit in flight continues.
    pub(crate) fn roll_back_all_of(&mut self, control: LinkNumber) {
        self.remove_where(|transaction| transaction.control == control && transaction.discharger.is_none());
    }

    /// Rolls back transactions that have been idle for too long.
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

impl Transaction {
    fn new(id: TransactionId, control: LinkNumber, now: Millis) -> Self {
        Transaction {
            id,
            control,
            expires_at: now.after(IDLE_MAX),
            work: Work::default(),
            retired: Vec::new(),
            arrived_count: 0,
            request_count: 0,
            doomed: None,
            discharger: None,
            parked: None,
        }
    }

    /// Returns whether no commit, request or large message of the transaction is in flight.
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

#[cfg(test)]
mod tests;
