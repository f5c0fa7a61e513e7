//! Requests that are steps of a transaction: settlements, scheduled messages and their cancellation, states of sessions.
//!
//! The broker checks a step when it is requested, and the commit applies it. A scheduled message gets its sequence
//! number with the step, because the response contains it. The number is reserved, and stays unused if the transaction
//! is rolled back.

use bytes::{Bytes, BytesMut};
use peeklock_broker::engine::{Reserved, Settlement};
use peeklock_broker::request::transactions::{CheckLock, CheckScheduled, CheckState, ReserveNumbers};
use peeklock_broker::{Found, SessionHold, TransactionSettle, TransactionState};
use peeklock_message::Needs;
use peeklock_types::{EntityPath, LockToken, SequenceNumber};

use super::answer::Content;
use super::operation::Operation;
use crate::connection::context::Context;
use crate::connection::link::EntityRef;
use crate::connection::request::LockWaiter;
use crate::error::Refusal;
use crate::incoming;
use crate::management::Management;
use crate::transaction::{HeldBody, HeldMessage, HeldSend, Transactions};

/// A request of a transaction whose entity is found.
pub(super) struct Step {
    /// The number of the request.
    pub(super) number: u32,
    pub(super) txn_id: Bytes,
    pub(super) path: EntityPath,
    pub(super) entity: EntityRef,
    pub(super) hold: Option<SessionHold>,
}

impl Management {
    pub(super) fn take_step(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        step: Step,
        operation: Operation,
        found: &Found,
    ) -> Result<(), Refusal> {
        match operation {
            Operation::Settle { tokens, settlement, .. } => {
                self.settle_step(context, transactions, &step, tokens, &settlement)
            }
            Operation::Schedule { messages } => {
                self.schedule_step(context, &step, &messages, incoming::needs_of(found))
            }
            Operation::CancelScheduled { numbers } => self.cancel_step(context, transactions, &step, numbers),
            Operation::SetSessionState { state, .. } => self.state_step(context, transactions, step, state),
            _ => Err(Refusal::not_implemented("this request cannot be part of a transaction")),
        }
    }

    /// Adds settlements to the transaction and checks each lock.
    fn settle_step(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        step: &Step,
        tokens: Vec<LockToken>,
        settlement: &Settlement,
    ) -> Result<(), Refusal> {
        let (sub_queue, entity) = (step.path.sub_queue, step.entity);
        let settle = |token| TransactionSettle { sub_queue, token, settlement: settlement.clone() };
        let settles = tokens.iter().copied().map(settle).collect();
        transactions.add_settles(context.millis, &step.txn_id, (&step.path.name, entity), settles)?;
        self.expect_answers(step, tokens.len());
        let (waiter, EntityRef { shard, entity }) = (LockWaiter::Management(step.number), entity);
        for token in tokens {
            context.ask(shard, waiter, CheckLock { entity, sub_queue, token });
        }
        Ok(())
    }

    /// Holds messages and reserves their sequence numbers.
    fn schedule_step(
        &mut self,
        context: &mut Context<'_>,
        step: &Step,
        payloads: &[Bytes],
        needs: Needs,
    ) -> Result<(), Refusal> {
        let mut messages = Vec::with_capacity(payloads.len());
        for payload in payloads {
            let mut body = BytesMut::new();
            let attributes = incoming::store(payload, context.now, needs, &mut body)?;
            messages.push(HeldMessage { body: HeldBody::Whole(body.freeze()), attributes });
        }
        let (count, entity) = (messages.len(), step.entity);
        let held = HeldSend { target: step.path.name.clone(), entity, messages };
        if let Some(pending) = self.requests.get_mut(&step.number) {
            pending.held = Some(held);
        }
        context.ask_numbered(entity.shard, step.number, ReserveNumbers { entity: entity.entity, count });
        Ok(())
    }

    /// Adds messages to the transaction whose sequence numbers are reserved.
    pub(super) fn hold_scheduled(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        numbers: Vec<SequenceNumber>,
    ) -> Result<(), Refusal> {
        let Some(pending) = self.requests.get_mut(&number) else { return Ok(()) };
        let (Some(mut held), Some(txn_id)) = (pending.held.take(), pending.transaction.clone()) else {
            return Ok(());
        };
        let entity = held.entity.entity;
        for (message, &sequence_number) in held.messages.iter_mut().zip(&numbers) {
            let attributes = message.attributes.get_or_insert_default();
            attributes.reserved = Some(Reserved { entity, sequence_number });
        }
        self.take_answer(number, Ok(numbers), |_, numbers| Content::scheduled(&numbers));
        transactions.add_send(context.millis, &txn_id, held)
    }

    /// Drops messages that the transaction itself scheduled, and checks the others.
    fn cancel_step(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        step: &Step,
        numbers: Vec<SequenceNumber>,
    ) -> Result<(), Refusal> {
        let (now, entity) = (context.millis, step.entity);
        let others = transactions.add_cancels(now, &step.txn_id, (&step.path.name, entity), numbers)?;
        if others.is_empty() {
            self.expect_answers(step, 0);
            return Ok(());
        }
        let EntityRef { shard, entity } = entity;
        context.ask_numbered(shard, step.number, CheckScheduled { entity, numbers: others });
        Ok(())
    }

    fn state_step(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        step: Step,
        state: Option<Bytes>,
    ) -> Result<(), Refusal> {
        let Step { number, txn_id, path, entity, hold } = step;
        let hold = hold.ok_or_else(|| Refusal::session_lock_lost(&path))?;
        let state = TransactionState { entity: entity.entity, hold, state };
        transactions.add_state(context.millis, &txn_id, (&path.name, entity), state.clone())?;
        context.ask_numbered(entity.shard, number, CheckState { state });
        Ok(())
    }

    fn expect_answers(&mut self, step: &Step, count: usize) {
        if let Some(pending) = self.requests.get_mut(&step.number) {
            pending.remaining = count;
        }
    }
}
