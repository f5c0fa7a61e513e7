//! Transactions on the wire: the control link, and steps of a transaction on other links.
//!
//! The answer to a step states the outcome that the commit applies. It is sent at once, or as soon as the lock was
//! checked. A peer can do without these answers: it sends its steps settled, and the number of its steps with the
//! discharge. The commit then checks everything. The discharge can also begin the next transaction.

use bytes::{Bytes, BytesMut};
use peeklock_amqp::connection::{AttachReply, Delivery, DeliveryId, LinkId};
use peeklock_amqp::{Coordinator, Declare, DeliveryState, Discharge, RawValue, Sections, Symbol, Target};
use peeklock_broker::request::transactions::{CheckLock, Commit};
use peeklock_broker::{Error, KeptBody, TransactionSend, TransactionSettle};
use peeklock_types::LockToken;

use super::checks::Check;
use crate::connection::attach::{NewLink, REQUEST_CREDIT, fill_source};
use crate::connection::context::Context;
use crate::connection::link::{EntityRef, Link, LinkKind, LinkNumber};
use crate::connection::request::numbered;
use crate::error::{Refusal, refusal};
use crate::incoming;
use crate::queue_group::runs::source_of;
use crate::queue_group::{LockEnd, QueueGroups};
use crate::receiving::outcome::settlement_of;
use crate::transaction::{
    Discharger, HeldBody, HeldMessage, HeldSend, Retired, TransactionNumber, Transactions, Work, rolled_back,
};

/// The number of steps on links that precede a discharge, as an annotation of its message. The transaction is rolled
/// back if another number has arrived.
const STEP_COUNT: &str = "x-opt-peeklock-step-count";

/// An annotation of a discharge. If it is true, a new transaction has the same id after the discharge is answered,
/// unless the id was unknown.
const RENEW: &str = "x-opt-peeklock-renew";

/// The capability to send the number of steps and to renew. It is offered to peers that desire it.
const STEP_COUNT_CAPABILITY: Symbol = Symbol::from_static("peeklock:step-count");

const CAPABILITIES: [Symbol; 3] = [
    Symbol::from_static("amqp:local-transactions"),
    Symbol::from_static("amqp:multi-txns-per-ssn"),
    Symbol::from_static("amqp:multi-ssns-per-txn"),
];

/// Returns the transaction of a delivery, if it has one.
pub(crate) fn transaction_of(delivery: &Delivery) -> Option<&Bytes> {
    match delivery.state.as_deref() {
        Some(DeliveryState::Transactional { txn_id, .. }) => Some(txn_id),
        _ => None,
    }
}

/// Returns the answer to a step.
pub(crate) fn in_transaction(txn_id: Bytes, outcome: DeliveryState) -> DeliveryState {
    DeliveryState::Transactional { txn_id, outcome: Some(Box::new(outcome)) }
}

impl Transactions {
    /// Attaches a control link. It requires no token: some clients open it before they put one, and the links of the
    /// steps check the rights.
    pub(crate) fn start_coordinator(
        &mut self,
        context: &mut Context<'_>,
        NewLink { session, id, attach }: &NewLink,
    ) -> Result<(), Refusal> {
        let (session, id) = (*session, *id);
        context.insert(Link { id, session, kind: LinkKind::Coordinator, rests_on: Box::default() })?;
        let mut source = attach.source.clone().unwrap_or_default();
        fill_source(&mut source, attach);
        let target = Target::Coordinator(Coordinator { capabilities: CAPABILITIES.to_vec() });
        let offered = attach.desired_capabilities.contains(&STEP_COUNT_CAPABILITY);
        let reply = AttachReply {
            source: Some(source),
            target: Some(target),
            offered_capabilities: offered.then_some(STEP_COUNT_CAPABILITY).into_iter().collect(),
            ..AttachReply::default()
        };
        context.connection.accept(id, reply);
        context.connection.set_credit(id, REQUEST_CREDIT);
        Ok(())
    }

    /// Handles a declare or a discharge.
    pub(crate) fn on_control(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        id: LinkId,
        delivery: &Delivery,
    ) {
        if context.connection.credit(id) <= REQUEST_CREDIT / 2 {
            context.connection.set_credit(id, REQUEST_CREDIT);
        }
        let state = match self.control(context, number, delivery) {
            Ok(Some(state)) => state,
            Ok(None) => return,
            Err(refusal) => DeliveryState::rejected(refusal.into()),
        };
        context.connection.settle(id, delivery.id, state);
    }

    /// Returns the answer, or `None` if it is sent when the commit is done.
    fn control(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        delivery: &Delivery,
    ) -> Result<Option<DeliveryState>, Refusal> {
        let unreadable = |error| Refusal::bad_request(format!("the request is not valid AMQP: {error}"));
        let sections = Sections::scan(&delivery.payload).map_err(unreadable)?;
        let nothing = || Refusal::bad_request("a request to the coordinator is a declare or a discharge");
        match Control::decode(&sections.value().ok_or_else(nothing)?).ok_or_else(nothing)? {
            Control::Declare => {
                let txn_id = self.declare(number, context.millis, peeklock_broker::random::u128())?;
                Ok(Some(DeliveryState::Declared { txn_id }))
            }
            Control::Discharge(Discharge { txn_id, fail }) => {
                let Hints { sent_count, renews } = Hints::read(&sections)?;
                let discharger = Discharger { control: number, delivery: delivery.id, renews };
                if fail == Some(true) {
                    self.roll_back(context.millis, &txn_id, discharger)?;
                    return Ok(Some(DeliveryState::Accepted));
                }
                let (transaction, work) = self.commit(context.millis, &txn_id, discharger, sent_count)?;
                let Some(home) = work.home() else {
                    self.end(context.millis, transaction);
                    return Ok(Some(DeliveryState::Accepted));
                };
                self.send_commit(context, transaction, home, work);
                Ok(None)
            }
        }
    }

    fn send_commit(
        &mut self,
        context: &mut Context<'_>,
        transaction: TransactionNumber,
        home: EntityRef,
        mut work: Work,
    ) {
        let uploads = work.take_uploads();
        if !uploads.is_empty() {
            self.park(transaction, home, work);
            context.namespace.broker.keep_bodies(home.shard, &context.peer, transaction.0, uploads);
            return context.expect_answer();
        }
        let Some(batch) = context.batch(home.shard) else { return };
        let mut sends = Vec::with_capacity(work.sends.len());
        for send in std::mem::take(&mut work.sends) {
            let mut messages = batch.messages();
            for HeldMessage { body, attributes } in send.messages {
                match body {
                    HeldBody::Whole(body) => {
                        let Ok(()) = messages.add(|out| {
                            out.extend_from_slice(&body);
                            Ok::<_, std::convert::Infallible>(attributes)
                        });
                    }
                    HeldBody::Kept(body) => messages.add_kept(body, attributes),
                    // Every upload was replaced before.
                    HeldBody::Upload(_) => {}
                }
            }
            sends.push(TransactionSend { target: send.target, messages: messages.keep() });
        }
        let Work { settles, cancels, states, .. } = work;
        let commit = Commit { entity: home.entity, settles, cancels, states, sends };
        batch.ask(numbered(transaction.0), commit);
    }

    /// Continues a commit whose large bodies are durable, or rejects it.
    pub(crate) fn on_kept(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        transaction: TransactionNumber,
        result: Result<Vec<KeptBody>, Error>,
    ) {
        let parked = self.unpark(transaction);
        match (result, parked) {
            (Ok(kept), Some((home, mut work))) => {
                work.put_kept(kept);
                self.send_commit(context, transaction, home, work);
            }
            (Err(error), _) => self.on_committed(context, queue_groups, transaction, Err(error)),
            (Ok(_), None) => {
                let error = Error::NotKept("its large messages are not there".to_owned());
                self.on_committed(context, queue_groups, transaction, Err(error));
            }
        }
    }

    /// Handles the shard's answer to a commit.
    pub(crate) fn on_committed(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        transaction: TransactionNumber,
        result: Result<(), Error>,
    ) {
        let ended = self.end(context.millis, transaction);
        let Some((txn_id, discharger, retired)) = ended else { return };
        let Discharger { control, delivery, .. } = discharger;
        if result.is_ok() {
            retired
                .into_iter()
                .for_each(|retired| self.settle_retired(context, queue_groups, &txn_id, retired));
        }
        let Some(link) = context.links.get_mut(control) else { return };
        let state = match result {
            Ok(()) => DeliveryState::Accepted,
            Err(error) => {
                let refusal = rolled_back(&refusal(&error, None).description);
                DeliveryState::rejected(refusal.into())
            }
        };
        context.connection.settle(link.id, delivery, state);
    }

    /// Settles a delivery whose outcome a commit has applied. The settlement is sent before the answer to the
    /// discharge, so a client that detaches on that answer holds no delivery that was removed. It names the
    /// transaction, as the peer's settlement did: azure-messaging-servicebus compares the two, and ends its connection
    /// on a bare rejected outcome.
    fn settle_retired(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        txn_id: &Bytes,
        Retired { link: number, delivery, token, mirror, end }: Retired,
    ) {
        queue_groups.release_lock(context, number, token, end);
        if let Some(link) = context.links.get(number) {
            context.connection.settle(link.id, delivery, in_transaction(txn_id.clone(), mirror.state()));
        }
    }

    /// Adds messages of a peer that are stored when the transaction is committed.
    pub(crate) fn on_transactional_message(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        delivery: &Delivery,
        txn_id: &Bytes,
    ) {
        let Some(id) = context.links.get_mut(number).map(|link| link.id) else { return };
        self.count_arrival(txn_id);
        let outcome = match self.hold_messages(context, number, delivery, txn_id) {
            Ok(()) => DeliveryState::Accepted,
            Err(refusal) => {
                self.doom(txn_id, &refusal.description);
                DeliveryState::rejected(refusal.into())
            }
        };
        if !delivery.settled {
            context.connection.settle(id, delivery.id, in_transaction(txn_id.clone(), outcome));
        }
    }

    fn hold_messages(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        delivery: &Delivery,
        txn_id: &[u8],
    ) -> Result<(), Refusal> {
        let Some(LinkKind::Sender(sender)) = context.links.get_mut(number).map(|link| &link.kind) else {
            return Ok(());
        };
        let (target, entity) = (sender.path.name.clone(), sender.entity);
        let (now, needs) = (context.now, sender.needs);
        let mut messages = Vec::new();
        incoming::each_message(delivery.message_format, &delivery.payload, |payload| {
            let mut body = BytesMut::new();
            let attributes = incoming::store(payload, now, needs, &mut body)?;
            messages.push(HeldMessage { body: HeldBody::Whole(body.freeze()), attributes });
            Ok(())
        })?;
        self.add_send(context.millis, txn_id, HeldSend { target, entity, messages })
    }

    /// Adds a settlement of a receiver that takes effect when the transaction is committed. The lock is checked at once
    /// if the peer waits for an answer, and with the commit in any case.
    pub(crate) fn on_transactional_disposition(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        token: LockToken,
        Step { delivery, txn_id, outcome, settled }: Step,
    ) {
        let Some(link) = context.links.get_mut(number) else { return };
        let id = link.id;
        let Some((path, entity)) = source_of(context, number, token) else { return };
        self.count_arrival(&txn_id);
        let held = settlement_of(outcome, false).and_then(|found| {
            let (settlement, mirror) = found
                .ok_or_else(|| Refusal::bad_request("a settlement in a transaction needs an outcome"))?;
            let end = LockEnd::of(&settlement);
            let step = TransactionSettle { sub_queue: path.sub_queue, token, settlement };
            self.add_settles(context.millis, &txn_id, (&path.name, entity), vec![step])?;
            Ok(Retired { link: number, delivery, token, mirror, end })
        });
        match held {
            Ok(retired) if settled => {
                // The step was just added, so the transaction is open.
                let _ = self.retire(&txn_id, retired);
            }
            Ok(retired) => {
                let waiter = self.checks.insert(Check { txn_id, retired });
                let EntityRef { shard, entity } = entity;
                context.ask(shard, waiter, CheckLock { entity, sub_queue: path.sub_queue, token });
            }
            Err(refusal) => {
                self.doom(&txn_id, &refusal.description);
                if !settled {
                    let state = in_transaction(txn_id, DeliveryState::rejected(refusal.into()));
                    context.connection.settle(id, delivery, state);
                }
            }
        }
    }

    /// Handles the shard's check of the lock of a message that is settled in a transaction.
    ///
    /// The answer does not settle the delivery: the commit applies its outcome, and after a rollback the peer still
    /// holds it and may settle it again over the same link (AMQP 1.0 §4.4.3). A refusal settles it.
    pub(crate) fn on_checked(
        &mut self,
        context: &mut Context<'_>,
        queue_groups: &mut QueueGroups,
        number: u32,
        result: Result<(), Error>,
    ) {
        let Some(Check { txn_id, retired }) = self.checks.remove(number) else { return };
        let checked = match result {
            Ok(()) => self.retire(&txn_id, retired),
            Err(error) => {
                queue_groups.release_lock(context, retired.link, retired.token, retired.end);
                Err(refusal(&error, None))
            }
        };
        if let Err(refusal) = &checked {
            self.doom(&txn_id, &refusal.description);
        }
        let Some(id) = context.links.get(retired.link).map(|link| link.id) else { return };
        match checked {
            Ok(()) => {
                let state = in_transaction(txn_id, retired.mirror.state());
                context.connection.set_outcome(id, retired.delivery, state);
            }
            Err(refusal) => {
                let state = in_transaction(txn_id, DeliveryState::rejected(refusal.into()));
                context.connection.settle(id, retired.delivery, state);
            }
        }
    }
}

/// A settlement that names a transaction.
pub(crate) struct Step {
    pub(crate) delivery: DeliveryId,
    pub(crate) txn_id: Bytes,
    pub(crate) outcome: Option<DeliveryState>,
    /// Whether the peer has settled the delivery and waits for no answer.
    pub(crate) settled: bool,
}

/// The annotations of a discharge.
#[derive(Default)]
struct Hints {
    sent_count: Option<u64>,
    renews: bool,
}

impl Hints {
    fn read(sections: &Sections<'_>) -> Result<Self, Refusal> {
        let unreadable = |error| Refusal::bad_request(format!("the annotations are not valid AMQP: {error}"));
        let annotations = sections.message_annotations().map_err(unreadable)?;
        let mut hints = Hints::default();
        if let Some(value) = annotations.get(STEP_COUNT).map_err(unreadable)? {
            let count = value.as_i64().and_then(|count| u64::try_from(count).ok());
            let invalid = || Refusal::bad_request(format!("the annotation {STEP_COUNT} is not a number"));
            hints.sent_count = Some(count.ok_or_else(invalid)?);
        }
        if let Some(value) = annotations.get(RENEW).map_err(unreadable)? {
            hints.renews = value.decode_as().map_err(unreadable)?;
        }
        Ok(hints)
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
