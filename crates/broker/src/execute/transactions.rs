//! Transactions: steps are checked, and the commit applies them.

use peeklock_engine::{EntityId, NewState, Transaction};
use peeklock_journal::{Log, Space};
use peeklock_types::{SequenceNumber, Timestamp, limits};

use crate::batch::{Batch, PeerId};
use crate::reply::Error;
use crate::request::sessions::SessionHold;
use crate::request::transactions::{
    CheckLock, CheckScheduled, CheckState, Commit, ReserveNumbers, TransactionRequest, TransactionSend,
    TransactionSettle, TransactionState,
};
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    pub(super) fn execute_transaction(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        batch: &mut Batch,
        request: TransactionRequest,
    ) {
        match request {
            TransactionRequest::CheckLock(asked) => {
                self.answer(peer, asked, |shard, CheckLock { entity, sub_queue, token }| {
                    Ok(shard.state.engine.check_lock(now, entity, sub_queue, token)?)
                });
            }
            TransactionRequest::CheckScheduled(asked) => {
                self.answer(peer, asked, |shard, CheckScheduled { entity, numbers }| {
                    Ok(shard.state.engine.check_scheduled(now, entity, &numbers)?)
                });
            }
            TransactionRequest::CheckState(asked) => {
                self.answer(peer, asked, |shard, CheckState { state }| {
                    let TransactionState { entity, hold, state } = state;
                    let SessionHold { session, receiver } = &hold;
                    let engine = &mut shard.state.engine;
                    Ok(engine.check_session_state(now, entity, session, *receiver, state.as_ref())?)
                });
            }
            TransactionRequest::ReserveNumbers(asked) => {
                self.answer(peer, asked, |shard, ReserveNumbers { entity, count }| {
                    Ok(shard.state.engine.reserve_numbers(now, entity, count, &mut shard.output)?)
                });
            }
            TransactionRequest::Commit(asked) => self.answer(peer, asked, |shard, request| {
                let Commit { entity, settles, cancels, states, sends } = request;
                let transaction = new_transaction(settles, cancels, states);
                let result = shard.commit(now, entity, batch, transaction, &sends);
                sends.into_iter().for_each(|send| shard.free_unused(batch, send.messages));
                result
            }),
        }
    }

    fn commit(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        batch: &mut Batch,
        mut transaction: Transaction,
        sends: &[TransactionSend],
    ) -> Result<(), Error> {
        if transaction.states.iter().any(|state| state.state.is_some()) && self.log.space() > Space::Behind {
            return Err(Error::DiskFull);
        }
        let limit_bytes = limits::TRANSACTION_SIZE_BYTES_MAX;
        for send in sends {
            self.check_room(batch, send.messages.clone(), limit_bytes, limit_bytes)?;
        }
        self.in_group(|shard| {
            for TransactionSend { target, messages } in sends {
                let target_here = shard.state.engine.find(target);
                let new = shard.put_messages(target_here, batch, messages.clone())?;
                transaction.sends.extend(new.into_iter().map(|message| (target.clone(), message)));
            }
            Ok(shard.state.engine.commit(now, shard.id, entity, transaction, &mut shard.output)?)
        })
    }
}

/// Builds a transaction without its sends: their bodies are not in the group yet.
fn new_transaction(
    settles: Vec<TransactionSettle>,
    cancels: Vec<(EntityId, SequenceNumber)>,
    states: Vec<TransactionState>,
) -> Transaction {
    let settles = settles.into_iter().map(|step| (step.sub_queue, step.token, step.settlement)).collect();
    let state = |TransactionState { entity, hold, state }| {
        let SessionHold { session, receiver } = hold;
        NewState { entity, session, receiver, state }
    };
    let states = states.into_iter().map(state).collect();
    Transaction { settles, cancels, states, sends: Vec::new() }
}
