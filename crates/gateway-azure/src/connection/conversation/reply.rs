//! The two hot paths: messages from senders to shards, and replies from shards to links.

use bytes::Bytes;
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::request::settling::Settle;
use peeklock_broker::{Answer, Answered, PeerId, ReaderReply, ReceiverReply, Reply, Unreadable};
use peeklock_types::LockToken;

use crate::connection::attach::on_closed;
use crate::connection::conversation::Conversation;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::connection::outcomes::OutcomeRuns;
use crate::connection::request::{Mirror, SendWaiter, SettleWaiter, Waiter};
use crate::error::Refusal;
use crate::management::respond::on_response_range;
use crate::publishing::send::{on_sent, on_stored};
use crate::transaction::TransactionNumber;

impl Conversation<'_> {
    /// Handles a reply. Returns the reply if there is no room for it now.
    pub(crate) fn on_reply(&mut self, reply: Reply) -> Option<Reply> {
        match reply {
            Reply::Answer(answer) => self.on_answer(answer),
            Reply::Receiver(reply) => return self.on_receiver_reply(reply).map(Reply::Receiver),
            Reply::Reader(ReaderReply::Events(events)) => self.hubs.on_read(&mut self.context, *events),
            Reply::Reader(ReaderReply::Drained { receiver }) => {
                self.hubs.on_reader_drained(&mut self.context, LinkNumber(PeerId::local(receiver)));
            }
            Reply::Reader(ReaderReply::Ended { receiver, reason }) => {
                self.hubs.on_reader_ended(&mut self.context, LinkNumber(PeerId::local(receiver)), &reason);
            }
            Reply::Kept { number, result } => self.transactions.on_kept(
                &mut self.context,
                &mut self.queue_groups,
                TransactionNumber(number),
                result,
            ),
            Reply::Stopped { reason } => {
                self.context.connection.close(Some(Refusal::stopped(&reason).into()))
            }
        }
        None
    }

    fn on_receiver_reply(&mut self, reply: ReceiverReply) -> Option<ReceiverReply> {
        match reply {
            ReceiverReply::Deliveries(run) => {
                return self
                    .receiving
                    .deliver_run(&mut self.context, &mut self.queue_groups, run)
                    .map(ReceiverReply::Deliveries);
            }
            ReceiverReply::Range { receiver, token, bytes } => {
                self.on_range_read(LinkNumber(PeerId::local(receiver)), token, bytes)
            }
            ReceiverReply::Drained { receiver } => {
                self.queue_groups.on_drained(&mut self.context, LinkNumber(PeerId::local(receiver)))
            }
            ReceiverReply::Head { receiver, serial, head } => {
                self.queue_groups.on_head(
                    &mut self.context,
                    LinkNumber(PeerId::local(receiver)),
                    serial,
                    head,
                );
            }
            ReceiverReply::Closed { receiver, reason } => {
                on_closed(
                    &mut self.context,
                    &mut self.queue_groups,
                    LinkNumber(PeerId::local(receiver)),
                    reason,
                );
            }
        }
        None
    }

    /// Handles a range of a large message that was read, for a receiver or for a response.
    fn on_range_read(&mut self, number: LinkNumber, token: LockToken, bytes: Result<Bytes, Unreadable>) {
        if matches!(self.context.links.get(number).map(|link| &link.kind), Some(LinkKind::Responses(_))) {
            let bytes = bytes.map_err(|unreadable| unreadable.why);
            return on_response_range(&mut self.context, number, token, bytes);
        }
        if self.receiving.on_range(&mut self.context, &mut self.queue_groups, number, token, bytes) {
            self.retry_backlog();
        }
    }

    fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Sent(run) => self.on_sent_run(run),
            Answer::Settled(run) => self.on_settled_run(run),
            Answer::Sending(answer) => self.on_sending_answer(answer),
            Answer::Settling(answer) => self.on_settling_answer(answer),
            Answer::Receiving(answer) => self.on_receiving_answer(answer),
            Answer::Sessions(answer) => self.on_session_answer(answer),
            Answer::Transactions(answer) => self.on_transaction_answer(*answer),
            Answer::Entities(answer) => self.on_entity_answer(*answer),
            Answer::Rules(answer) => self.on_rule_answer(*answer),
            Answer::Events(answer) => self.on_event_answer(answer),
            Answer::Hubs(answer) => self.on_hub_answer(*answer),
            // A connection does not send such requests.
            Answer::Blobs(_) | Answer::Receipts(_) | Answer::Outbox(_) => {}
        }
    }

    fn on_sent_run(&mut self, run: Vec<Answered<SendMessages>>) {
        let mut stored = OutcomeRuns::default();
        for Answered { ticket, result } in run {
            match (SendWaiter::of(ticket), result) {
                (SendWaiter::Delivery(link, id), Ok(())) => {
                    let done = stored.add(link, id, Mirror::Accepted);
                    done.into_iter().for_each(|run| on_stored(&mut self.context, run));
                }
                (waiter, result) => {
                    stored.end().into_iter().for_each(|run| on_stored(&mut self.context, run));
                    on_sent(&mut self.context, waiter, result);
                }
            }
        }
        stored.end().into_iter().for_each(|run| on_stored(&mut self.context, run));
    }

    fn on_settled_run(&mut self, run: Vec<Answered<Settle>>) {
        let (context, receiving) = (&mut self.context, &mut self.receiving);
        let mut settled = OutcomeRuns::default();
        let mut has_room = false;
        for Answered { ticket, result } in run {
            let (link, id, mirror) = match SettleWaiter::of(ticket) {
                SettleWaiter::Delivery(link, id, mirror) => (link, id, mirror),
                SettleWaiter::Removal(link) => {
                    has_room |= receiving.on_removed(context, &mut self.queue_groups, link, result);
                    continue;
                }
                SettleWaiter::Nobody => continue,
            };
            match result {
                Ok(()) => {
                    let done = settled.add(link, id, mirror);
                    done.into_iter().for_each(|run| receiving.on_done(context, run));
                }
                Err(error) => {
                    settled.end().into_iter().for_each(|run| receiving.on_done(context, run));
                    receiving.on_not_settled(context, link, id, error);
                }
            }
        }
        settled.end().into_iter().for_each(|run| receiving.on_done(context, run));
        if has_room {
            self.retry_backlog();
        }
    }
}
