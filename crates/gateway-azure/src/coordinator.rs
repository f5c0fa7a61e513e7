//! Transactions on the wire: the control link, and steps of a transaction on other links.
//!
//! The answer to a step says what will be once the transaction is committed, so it comes at once, or as soon as the lock was looked at.

use bytes::{Bytes, BytesMut};
use peeklock_amqp::connection::{AttachReply, Delivery, DeliveryId, LinkId, SessionId};
use peeklock_amqp::{
    Attach, Coordinator, Declare, DeliveryState, Discharge, RawValue, Sections, Symbol, Target,
};
use peeklock_broker::{Answer, Error, Request, TransactionSend, TransactionSettle};
use peeklock_types::{EntityPath, LockToken};
use rustc_hash::FxHashMap;

use crate::attach::{REQUEST_CREDIT, fill_source};
use crate::conversation::Conversation;
use crate::error::{Refusal, refusal};
use crate::group::LockEnd;
use crate::incoming;
use crate::link::{EntityRef, Link, LinkKind, LinkNumber};
use crate::outcome::settlement_of;
use crate::request::{Mirror, Waiter};
use crate::transaction::{Discharger, HeldMessage, HeldSend, TransactionNumber, Work, rolled_back};

const CAPABILITIES: [Symbol; 3] = [
    Symbol::from_static("amqp:local-transactions"),
    Symbol::from_static("amqp:multi-txns-per-ssn"),
    Symbol::from_static("amqp:multi-ssns-per-txn"),
];

/// Settlements whose locks are being looked at.
#[derive(Default)]
pub(crate) struct Checks {
    waiting: FxHashMap<u32, Check>,
    next: u32,
}

struct Check {
    transaction: TransactionNumber,
    link: LinkNumber,
    delivery: DeliveryId,
    mirror: Mirror,
}

impl Checks {
    fn insert(&mut self, check: Check) -> Waiter {
        // No more wait than deliveries can be unsettled, so a number that comes round again is free.
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.waiting.insert(number, check);
        Waiter::Check(number)
    }
}

/// The transaction that a delivery belongs to, if it belongs to one.
pub(crate) fn transaction_of(delivery: &Delivery) -> Option<&Bytes> {
    match delivery.state.as_deref() {
        Some(DeliveryState::Transactional { txn_id, .. }) => Some(txn_id),
        _ => None,
    }
}

/// The answer to a step.
pub(crate) fn in_transaction(txn_id: Bytes, outcome: DeliveryState) -> DeliveryState {
    DeliveryState::Transactional { txn_id, outcome: Some(Box::new(outcome)) }
}

impl Conversation<'_> {
    /// A control link. Needs no token: some clients open it before they put one, and what a transaction does is allowed or not by the
    /// links on which it is done.
    pub(crate) fn start_coordinator(
        &mut self,
        session: SessionId,
        id: LinkId,
        attach: &Attach,
    ) -> Result<(), Refusal> {
        self.insert(Link { id, session, kind: LinkKind::Coordinator, rests_on: Box::default() })?;
        let mut source = attach.source.clone().unwrap_or_default();
        fill_source(&mut source, attach);
        let target = Target::Coordinator(Coordinator { capabilities: CAPABILITIES.to_vec() });
        let reply = AttachReply { source: Some(source), target: Some(target), ..AttachReply::default() };
        self.connection.accept(id, reply);
        self.connection.set_credit(id, REQUEST_CREDIT);
        Ok(())
    }

    /// A declare or a discharge.
    pub(crate) fn on_control(&mut self, number: LinkNumber, id: LinkId, delivery: &Delivery) {
        if self.connection.credit(id) <= REQUEST_CREDIT / 2 {
            self.connection.set_credit(id, REQUEST_CREDIT);
        }
        let state = match self.control(number, delivery) {
            Ok(Some(state)) => state,
            Ok(None) => return,
            Err(refusal) => DeliveryState::rejected(refusal.into()),
        };
        self.connection.settle(id, delivery.id, state);
    }

    /// `None`: the answer comes when the commit is done.
    fn control(&mut self, number: LinkNumber, delivery: &Delivery) -> Result<Option<DeliveryState>, Refusal> {
        let unreadable = |error| Refusal::bad_request(format!("the request is not valid AMQP: {error}"));
        let sections = Sections::scan(&delivery.payload).map_err(unreadable)?;
        let nothing = || Refusal::bad_request("a request to the coordinator is a declare or a discharge");
        match Control::decode(&sections.value().ok_or_else(nothing)?).ok_or_else(nothing)? {
            Control::Declare => {
                let transaction = self.transactions.declare(number, self.millis)?;
                Ok(Some(DeliveryState::Declared { txn_id: transaction.to_id() }))
            }
            Control::Discharge(Discharge { txn_id, fail: Some(true) }) => {
                self.transactions.roll_back(&txn_id)?;
                Ok(Some(DeliveryState::Accepted))
            }
            Control::Discharge(Discharge { txn_id, .. }) => {
                let discharger = Discharger { control: number, delivery: delivery.id };
                let (transaction, work) = self.transactions.commit(&txn_id, discharger)?;
                let Some(home) = work.home() else {
                    self.transactions.end(transaction);
                    return Ok(Some(DeliveryState::Accepted));
                };
                self.commit(transaction, home, work);
                Ok(None)
            }
        }
    }

    fn commit(&mut self, transaction: TransactionNumber, home: EntityRef, work: Work) {
        let ticket = Waiter::Commit(transaction).ticket();
        let Some(batch) = self.batch(home.shard) else { return };
        let mut sends = Vec::with_capacity(work.sends.len());
        for send in work.sends {
            let mut messages = batch.messages();
            for HeldMessage { body, attributes } in send.messages {
                let Ok(()) = messages.add(|out| {
                    out.extend_from_slice(&body);
                    Ok::<_, std::convert::Infallible>(attributes)
                });
            }
            sends.push(TransactionSend { target: send.target, messages: messages.keep() });
        }
        batch.push(Request::Commit { ticket, entity: home.entity, settles: work.settles, sends });
    }

    /// The shard has committed a transaction, or refused to.
    pub(crate) fn on_committed(&mut self, transaction: TransactionNumber, result: Result<Answer, Error>) {
        let Some(Discharger { control, delivery }) = self.transactions.end(transaction) else { return };
        let Some(link) = self.links.get_mut(control) else { return };
        let state = match result {
            Ok(_) => DeliveryState::Accepted,
            Err(error) => {
                let refusal = rolled_back(&refusal(&error, None).description);
                DeliveryState::rejected(refusal.into())
            }
        };
        self.connection.settle(link.id, delivery, state);
    }

    /// A peer sends messages that are stored when the transaction is committed.
    pub(crate) fn on_transactional_message(
        &mut self,
        number: LinkNumber,
        delivery: &Delivery,
        txn_id: &Bytes,
    ) {
        let Some(id) = self.links.get_mut(number).map(|link| link.id) else { return };
        let outcome = match self.hold_messages(number, delivery, txn_id) {
            Ok(()) => DeliveryState::Accepted,
            Err(refusal) => {
                self.transactions.doom(txn_id, &refusal.description);
                DeliveryState::rejected(refusal.into())
            }
        };
        self.connection.settle(id, delivery.id, in_transaction(txn_id.clone(), outcome));
    }

    fn hold_messages(
        &mut self,
        number: LinkNumber,
        delivery: &Delivery,
        txn_id: &[u8],
    ) -> Result<(), Refusal> {
        let Some(LinkKind::Sender(sender)) = self.links.get_mut(number).map(|link| &link.kind) else {
            return Ok(());
        };
        let (target, entity) = (sender.path.name.clone(), sender.entity);
        let (now, needs) = (self.now, sender.needs);
        let mut messages = Vec::new();
        incoming::each_message(delivery.message_format, &delivery.payload, |payload| {
            let mut body = BytesMut::new();
            let attributes = incoming::store(payload, now, needs, &mut body)?;
            messages.push(HeldMessage { body: body.freeze(), attributes });
            Ok(())
        })?;
        self.transactions.add_send(self.millis, txn_id, HeldSend { target, entity, messages })
    }

    /// A receiver settles a delivery; it takes effect when the transaction is committed.
    pub(crate) fn on_transactional_disposition(
        &mut self,
        number: LinkNumber,
        delivery: DeliveryId,
        token: LockToken,
        (txn_id, outcome): (Bytes, Option<DeliveryState>),
    ) {
        let Some(link) = self.links.get_mut(number) else { return };
        let id = link.id;
        let Some((path, entity)) = self.source_of(number, token) else { return };
        let settled = settlement_of(outcome, false).and_then(|found| {
            let (settlement, mirror) = found
                .ok_or_else(|| Refusal::bad_request("a settlement in a transaction needs an outcome"))?;
            let end = LockEnd::of(&settlement);
            let step = TransactionSettle { sub_queue: path.sub_queue, token, settlement };
            let transaction = self.add_settles(&txn_id, &path, entity, vec![step])?;
            Ok((Check { transaction, link: number, delivery, mirror }, end))
        });
        match settled {
            Ok((check, end)) => {
                self.release_lock(number, token, end);
                let ticket = self.checks.insert(check).ticket();
                let (entity, sub_queue) = (entity, path.sub_queue);
                self.push(
                    entity.shard,
                    Request::CheckLock { ticket, entity: entity.entity, sub_queue, token },
                );
            }
            Err(refusal) => {
                self.transactions.doom(&txn_id, &refusal.description);
                let state = in_transaction(txn_id, DeliveryState::rejected(refusal.into()));
                self.connection.settle(id, delivery, state);
            }
        }
    }

    pub(crate) fn add_settles(
        &mut self,
        txn_id: &[u8],
        path: &EntityPath,
        entity: EntityRef,
        settles: Vec<TransactionSettle>,
    ) -> Result<TransactionNumber, Refusal> {
        self.transactions.add_settles(self.millis, txn_id, (&path.name, entity), settles)
    }

    /// The shard has looked at the lock of a message that is settled in a transaction.
    pub(crate) fn on_checked(&mut self, number: u32, result: Result<Answer, Error>) {
        let Some(check) = self.checks.waiting.remove(&number) else { return };
        let txn_id = check.transaction.to_id();
        let checked = match result {
            Ok(_) => self.transactions.check_known(check.transaction),
            Err(error) => Err(refusal(&error, None)),
        };
        let outcome = match checked {
            Ok(()) => check.mirror.state(),
            Err(refusal) => {
                self.transactions.doom(&txn_id, &refusal.description);
                DeliveryState::rejected(refusal.into())
            }
        };
        if let Some(link) = self.links.get_mut(check.link) {
            self.connection.settle(link.id, check.delivery, in_transaction(txn_id, outcome));
        }
    }
}

enum Control {
    Declare,
    Discharge(Discharge),
}

impl Control {
    fn decode(value: &RawValue<'_>) -> Option<Self> {
        if value.decode_as::<Declare>().is_ok() {
            return Some(Control::Declare);
        }
        value.decode_as().ok().map(Control::Discharge)
    }
}
