//! A link that receives: where deliveries go, and which settlements wait for their confirmation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use peeklock_amqp::DeliveryState;
use peeklock_amqp::connection::{self, Connection, DeliveryId, LinkId};
use tokio::sync::mpsc;

use super::command::{ReceiverCommand, Reply};
use crate::error::{Ending, Error};
use crate::outcome::outcome_of;
use crate::receiver::Arrival;
use crate::settler::{Results, Settlement};

pub(super) struct ReceivingLink {
    entity: Arc<str>,
    ending: Ending,
    /// `None` after the last delivery.
    arrivals: Option<mpsc::Sender<Arrival>>,
    initial_credit: u32,
    is_stopping: bool,
    awaited: BTreeMap<u32, Awaiting>,
    /// The number of unconfirmed settlements that have no caller waiting for them.
    counted: usize,
    /// The number of such settlements that the broker has confirmed, for the receiver to read.
    confirmed_count: Arc<AtomicU64>,
    first_failure: Option<Error>,
    flushes: Vec<Reply<()>>,
    /// The calls that wait for the end of a drain.
    drains: Vec<Reply<()>>,
}

/// The caller that waits for the confirmation of a settlement.
enum Awaiting {
    Reply(Reply<()>),
    Result { key: u64, results: Arc<Results> },
}

impl Awaiting {
    fn answer(self, result: Result<(), Error>) {
        match self {
            // A caller that has stopped waiting needs no answer.
            Awaiting::Reply(reply) => drop(reply.send(result)),
            Awaiting::Result { key, results } => results.push(key, result),
        }
    }
}

impl ReceivingLink {
    pub(super) fn new(
        entity: Arc<str>,
        ending: Ending,
        arrivals: mpsc::Sender<Arrival>,
        initial_credit: u32,
        confirmed_count: Arc<AtomicU64>,
    ) -> Self {
        Self {
            entity,
            ending,
            arrivals: Some(arrivals),
            initial_credit,
            is_stopping: false,
            awaited: BTreeMap::new(),
            counted: 0,
            confirmed_count,
            first_failure: None,
            flushes: Vec::new(),
            drains: Vec::new(),
        }
    }

    pub(super) fn entity(&self) -> Arc<str> {
        Arc::clone(&self.entity)
    }

    pub(super) fn initial_credit(&self) -> u32 {
        self.initial_credit
    }

    pub(super) fn handle_delivery(
        &mut self,
        link: LinkId,
        delivery: connection::Delivery,
        connection: &mut Connection,
    ) {
        let (id, is_settled) = (delivery.id, delivery.settled);
        let arrival = Arrival { id, tag: delivery.tag, is_settled, payload: delivery.payload };
        let taken = self.arrivals.as_ref().is_some_and(|arrivals| arrivals.try_send(arrival).is_ok());
        if !taken && !is_settled {
            // The receiver is gone, or the broker exceeded the credit, so the message is released to the queue.
            connection.settle(link, id, DeliveryState::Released);
        }
    }

    pub(super) fn handle_command(
        &mut self,
        link: LinkId,
        command: ReceiverCommand,
        connection: &mut Connection,
    ) {
        match command {
            ReceiverCommand::AddCredit(count) => self.add_credit(link, count, connection),
            ReceiverCommand::Stop => self.stop(link, connection),
            ReceiverCommand::Drain(reply) => self.drain(link, reply, connection),
            ReceiverCommand::Settle { id, state, reply } => {
                self.awaited.insert(id.0, Awaiting::Reply(reply));
                connection.set_outcome(link, id, state);
            }
            ReceiverCommand::SettleEach(batch) => {
                let (settlements, results) = batch.take();
                for Settlement { key, id, state } in settlements {
                    let awaiting = Awaiting::Result { key, results: Arc::clone(&results) };
                    self.awaited.insert(id.0, awaiting);
                    connection.set_outcome(link, id, state);
                }
            }
            ReceiverCommand::SettleStep { id, state } => connection.settle(link, id, state),
            ReceiverCommand::SettleMany { ids, state } => {
                self.counted += ids.len();
                ids.into_iter().for_each(|id| connection.set_outcome(link, id, state.clone()));
            }
            ReceiverCommand::Flush(reply) => self.flush(reply),
        }
    }

    fn add_credit(&mut self, link: LinkId, count: u32, connection: &mut Connection) {
        if !self.is_stopping {
            let credit = connection.credit(link).saturating_add(count);
            connection.set_credit(link, credit);
        }
    }

    fn stop(&mut self, link: LinkId, connection: &mut Connection) {
        self.is_stopping = true;
        if connection.credit(link) == 0 { self.arrivals = None } else { connection.drain(link) }
    }

    fn drain(&mut self, link: LinkId, reply: Reply<()>, connection: &mut Connection) {
        if connection.credit(link) == 0 {
            let _ = reply.send(Ok(()));
        } else {
            self.drains.push(reply);
            connection.drain(link);
        }
    }

    pub(super) fn handle_drained(&mut self) {
        for reply in self.drains.drain(..) {
            let _ = reply.send(Ok(()));
        }
        if self.is_stopping {
            self.arrivals = None;
        }
    }

    /// Handles the broker's confirmation or rejection of a settlement.
    pub(super) fn handle_confirmation(&mut self, id: DeliveryId, state: Option<DeliveryState>) {
        let result = match outcome_of(state) {
            Some(DeliveryState::Rejected { error: Some(error) }) => {
                Err(Error::not_settled(&self.entity, *error))
            }
            _ => Ok(()),
        };
        if !self.awaited.is_empty()
            && let Some(awaiting) = self.awaited.remove(&id.0)
        {
            return awaiting.answer(result);
        }
        self.counted = self.counted.saturating_sub(1);
        match result {
            Ok(()) => drop(self.confirmed_count.fetch_add(1, Ordering::Relaxed)),
            Err(error) => drop(self.first_failure.get_or_insert(error)),
        }
        if self.counted == 0 {
            self.answer_flushes();
        }
    }

    fn flush(&mut self, reply: Reply<()>) {
        self.flushes.push(reply);
        if self.counted == 0 {
            self.answer_flushes();
        }
    }

    fn answer_flushes(&mut self) {
        for reply in self.flushes.drain(..) {
            let result = self.first_failure.take().map_or(Ok(()), Err);
            let _ = reply.send(result);
        }
    }

    pub(super) fn end(self, error: &Error) {
        // The reason is set before pending calls are woken.
        let _ = self.ending.set(error.clone());
        for awaiting in self.awaited.into_values() {
            awaiting.answer(Err(error.clone()));
        }
        for reply in self.flushes.into_iter().chain(self.drains) {
            let _ = reply.send(Err(error.clone()));
        }
    }
}
