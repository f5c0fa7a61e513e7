//! Messages from the outbox of another shard, and the outcome of transfers from this shard.

use peeklock_journal::Log;
use peeklock_types::{EntityName, ShardId, Timestamp};

use crate::batch::{Batch, PeerId};
use crate::reply::Error;
use crate::request::outbox::{Bring, Brought, OutboxRequest, TransferOutcome, Transferred};
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    pub(super) fn execute_outbox(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        batch: &mut Batch,
        request: OutboxRequest,
    ) {
        match request {
            OutboxRequest::Bring(asked) => self.answer(peer, asked, |shard, Bring { source, messages }| {
                shard.take_in(now, source, batch, messages)
            }),
            OutboxRequest::Transferred(Transferred { target, outcome }) => {
                let (engine, out) = (&mut self.state.engine, &mut self.output);
                engine.transferred(target, outcome.upto, out);
                if let Some((number, reason)) = outcome.refused {
                    engine.transfer_refused(target, number, reason, out);
                }
                self.transfers.end(target);
            }
        }
    }

    /// Accepts messages from another shard in order, until one is rejected.
    fn take_in(
        &mut self,
        now: Timestamp,
        source: ShardId,
        batch: &mut Batch,
        messages: Vec<Brought>,
    ) -> Result<TransferOutcome, Error> {
        if let Err(error) = self.check_space() {
            // The stored bodies are released: the messages are transferred again later, and a large body is then copied
            // again.
            for brought in messages {
                self.free_unused(batch, brought.message..brought.message + 1);
            }
            return Err(error);
        }
        let mut outcome = TransferOutcome::default();
        for Brought { number, target, message } in messages {
            match self.take_one(now, source, number, &target, batch, message) {
                Ok(()) => {
                    outcome.upto = number;
                    self.end_large_group();
                }
                Err(error) => {
                    outcome.refused = Some((number, error.to_string()));
                    break;
                }
            }
        }
        Ok(outcome)
    }

    fn take_one(
        &mut self,
        now: Timestamp,
        source: ShardId,
        number: u64,
        target: &EntityName,
        batch: &mut Batch,
        number_in_batch: usize,
    ) -> Result<(), Error> {
        let mark = self.group.mark();
        let result = self.in_group(|shard| {
            let messages = number_in_batch..number_in_batch + 1;
            let mut new = shard.put_messages(shard.state.engine.find(target), batch, messages)?;
            let Some(message) = new.pop() else { return Ok(false) };
            Ok(shard.state.engine.arrive(now, source, number, target, message, &mut shard.output)?)
        });
        self.free_unused(batch, number_in_batch..number_in_batch + 1);
        if !result? {
            self.group.truncate(mark);
        }
        self.collect();
        Ok(())
    }
}
