//! The two hot paths: messages from senders to shards, and replies from shards to links.

use peeklock_amqp::connection::{Delivery, DeliveryId, Outgoing, SendError};
use peeklock_amqp::{AmqpError, DeliveryState, DeliveryTag};
use peeklock_broker::engine::{self, ReceiveMode, Settlement};
use peeklock_broker::request::receiving::Window;
use peeklock_broker::request::settling::{Release, Settle};
use peeklock_broker::{
    Answer, Answered, Delivered, DeliveredBody, DeliveryRun, Drain, Error, PeerId, ReaderReply,
    ReceiverReply, Reply,
};
use peeklock_message::write_front;
use peeklock_types::ShardId;

use crate::connection::attach::{RECEIVER_WINDOW_BYTES, SENDER_CREDIT};
use crate::connection::conversation::Conversation;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::connection::request::{Mirror, SendWaiter, SettleWaiter, Waiter};
use crate::error::{Refusal, refusal};
use crate::incoming;
use crate::transaction::TransactionNumber;
use crate::transaction::coordinator::transaction_of;

impl Conversation<'_> {
    /// A peer has sent a message, or a batch of them, to an entity.
    pub(crate) fn on_message(&mut self, number: LinkNumber, delivery: &Delivery) {
        let now = self.now;
        let Some(link) = self.links.get_mut(number) else { return };
        let id = link.id;
        let LinkKind::Sender(sender) = &mut link.kind else { return };
        let (entity, needs) = (sender.entity, sender.needs);
        sender.unconfirmed += 1;
        if let Some(txn_id) = transaction_of(delivery) {
            self.on_transactional_message(number, delivery, txn_id);
            return self.confirm(number);
        }
        let ticket = SendWaiter::for_delivery(number, delivery).ticket();
        let Some(batch) = self.batch(entity.shard) else { return };
        let mut messages = batch.messages();
        let stored = incoming::each_message(delivery.message_format, &delivery.payload, |payload| {
            messages.add(|out| incoming::store(payload, now, needs, out))
        });
        match stored {
            Ok(()) => messages.send(ticket, entity.entity),
            Err(refusal) => {
                drop(messages);
                if !delivery.settled {
                    self.connection.settle(id, delivery.id, DeliveryState::rejected(refusal.into()));
                }
                self.confirm(number);
            }
        }
    }

    /// Gives the reply back if there is no room for it now.
    pub(crate) fn on_reply(&mut self, reply: Reply) -> Option<Reply> {
        match reply {
            Reply::Answer(answer) => self.on_answer(answer),
            Reply::Receiver(reply) => return self.on_receiver_reply(reply).map(Reply::Receiver),
            Reply::Reader(ReaderReply::Events(events)) => self.on_read(*events),
            Reply::Reader(ReaderReply::Drained { receiver }) => {
                self.on_reader_drained(LinkNumber(PeerId::local(receiver)));
            }
            Reply::Reader(ReaderReply::Ended { receiver, reason }) => {
                self.on_reader_ended(LinkNumber(PeerId::local(receiver)), &reason);
            }
            Reply::Kept { number, result } => self.on_kept(TransactionNumber(number), result),
            Reply::Stopped { reason } => self.connection.close(Some(Refusal::stopped(&reason).into())),
        }
        None
    }

    fn on_receiver_reply(&mut self, reply: ReceiverReply) -> Option<ReceiverReply> {
        match reply {
            ReceiverReply::Deliveries(run) => return self.deliver_run(run).map(ReceiverReply::Deliveries),
            ReceiverReply::Range { receiver, token, bytes } => self.on_range(receiver, token, bytes),
            ReceiverReply::Drained { receiver } => self.on_drained(LinkNumber(PeerId::local(receiver))),
            ReceiverReply::Head { receiver, serial, head } => {
                self.on_head(LinkNumber(PeerId::local(receiver)), serial, head);
            }
            ReceiverReply::Closed { receiver, reason } => {
                self.on_closed(LinkNumber(PeerId::local(receiver)), reason);
            }
        }
        None
    }

    /// Passes on deliveries in order. Gives those back for which there is no room now.
    fn deliver_run(&mut self, mut run: DeliveryRun) -> Option<DeliveryRun> {
        let shard = run.shard;
        while let Some(Delivered { delivery, body }) = run.deliveries.pop_front() {
            let blocked = match body {
                DeliveredBody::Whole(body) => match self.deliver(shard, &delivery, &body) {
                    Ok(()) => None,
                    // One that waits for a large message on its own link waits here, too.
                    Err(SendError::Blocked | SendError::Incomplete) => {
                        Some(Delivered { delivery, body: DeliveredBody::Whole(body) })
                    }
                    Err(_) => {
                        self.give_back(shard, &delivery);
                        None
                    }
                },
                DeliveredBody::Large(hold) => self.start_stream(shard, delivery, hold),
            };
            if let Some(blocked) = blocked {
                run.deliveries.push_front(blocked);
                return Some(run);
            }
        }
        None
    }

    fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Sent(run) => {
                for Answered { ticket, result } in run {
                    self.on_sent(SendWaiter::of(ticket), result);
                }
            }
            Answer::Settled(run) => {
                for Answered { ticket, result } in run {
                    if let SettleWaiter::Delivery(link, id, mirror) = SettleWaiter::of(ticket) {
                        self.on_settled(link, id, mirror, result);
                    }
                }
            }
            Answer::Sending(answer) => self.on_sending_answer(answer),
            Answer::Settling(answer) => self.on_settling_answer(answer),
            Answer::Receiving(answer) => self.on_receiving_answer(answer),
            Answer::Sessions(answer) => self.on_session_answer(answer),
            Answer::Transactions(answer) => self.on_transaction_answer(*answer),
            Answer::Entities(answer) => self.on_entity_answer(*answer),
            Answer::Rules(answer) => self.on_rule_answer(*answer),
            Answer::Events(answer) => self.on_event_answer(answer),
            Answer::Hubs(answer) => self.on_hub_answer(*answer),
            // A connection has no such requests.
            Answer::Blobs(_) | Answer::Receipts(_) | Answer::Outbox(_) => {}
        }
    }

    fn on_sent(&mut self, waiter: SendWaiter, result: Result<(), Error>) {
        let (number, delivery) = waiter.delivery();
        let Some(link) = self.links.get_mut(number) else { return };
        let LinkKind::Sender(sender) = &link.kind else { return };
        let (state, is_gone) = match result {
            Ok(()) => (DeliveryState::Accepted, false),
            Err(error) => {
                let refusal = refusal(&error, Some(&sender.path)).at(&self.host);
                (DeliveryState::rejected(refusal.clone().into()), refusal.status == 404)
            }
        };
        let (id, path) = (link.id, is_gone.then(|| sender.path.clone()));
        if let Some(delivery) = delivery {
            self.connection.settle(id, delivery, state);
        }
        self.confirm(number);
        if let Some(path) = path {
            // A queue of that name may be created anew; only a new link finds it.
            self.connection.detach(id, Some(Refusal::no_such_entity(&path.name).at(&self.host).into()));
        }
    }

    /// One delivery less under way; gives new credit when enough is free.
    pub(crate) fn confirm(&mut self, number: LinkNumber) {
        let Some(link) = self.links.get_mut(number) else { return };
        let (unconfirmed, confirmed) = match &mut link.kind {
            LinkKind::Sender(sender) => (&mut sender.unconfirmed, &mut sender.confirmed),
            LinkKind::Publisher(publisher) => (&mut publisher.unconfirmed, &mut publisher.confirmed),
            _ => return,
        };
        *unconfirmed = unconfirmed.saturating_sub(1);
        *confirmed += 1;
        if *confirmed >= SENDER_CREDIT / 4 {
            *confirmed = 0;
            self.connection.set_credit(link.id, SENDER_CREDIT.saturating_sub(*unconfirmed));
        }
    }

    fn on_settled(&mut self, number: LinkNumber, id: DeliveryId, mirror: Mirror, result: Result<(), Error>) {
        let Some(link) = self.links.get_mut(number) else { return };
        let path = match &link.kind {
            LinkKind::Receiver(receiver) => Some(&receiver.path),
            // The error names the member.
            LinkKind::QueueGroup(_) => None,
            _ => return,
        };
        let state = match result {
            Ok(()) => mirror.state(),
            Err(error) => DeliveryState::rejected(AmqpError::from(refusal(&error, path))),
        };
        self.connection.settle(link.id, id, state);
    }

    fn deliver(&mut self, shard: ShardId, delivery: &engine::Delivery, body: &[u8]) -> Result<(), SendError> {
        let number = LinkNumber(PeerId::local(delivery.receiver));
        let link = self.links.get_mut(number).ok_or(SendError::NotAttached)?;
        let LinkKind::Receiver(receiver) = &mut link.kind else { return Err(SendError::NotAttached) };
        let token = (receiver.mode == ReceiveMode::PeekLock).then_some(delivery.token);
        self.scratch.clear();
        let rest = match write_front(&delivery.message, token, body, &mut self.scratch) {
            Ok(rest) => rest,
            Err(error) => {
                let sequence_number = delivery.message.sequence_number;
                tracing::error!(
                    "message {sequence_number} of '{}' cannot be read back: {error}",
                    receiver.path
                );
                self.pass(number, shard, delivery.message.size_bytes);
                self.set_aside(shard, delivery, &error.to_string());
                return Ok(());
            }
        };
        let outgoing = Outgoing {
            tag: DeliveryTag::from(delivery.token.to_guid_bytes()),
            message_format: 0,
            settled: token.is_none(),
            state: None,
        };
        let sent = self.connection.send(link.id, &outgoing, &[&self.scratch, rest]);
        if matches!(sent, Err(SendError::Blocked | SendError::Incomplete)) {
            return sent;
        }
        if sent.is_ok() {
            self.hold_lock(delivery);
        }
        self.pass(number, shard, delivery.message.size_bytes);
        sent
    }

    /// Counts a delivery as passed on, and tells the shard when enough of them have made room.
    pub(crate) fn pass(&mut self, number: LinkNumber, shard: ShardId, size_bytes: u32) {
        let Some(link) = self.links.get_mut(number) else { return };
        let LinkKind::Receiver(receiver) = &mut link.kind else { return };
        receiver.passed_count += 1;
        receiver.passed_bytes += i64::from(size_bytes);
        let is_spent = receiver.passed_count >= receiver.limit;
        let returned = (receiver.passed_bytes >= RECEIVER_WINDOW_BYTES / 4)
            .then(|| std::mem::take(&mut receiver.passed_bytes));
        let (id, receiver) = (link.id, receiver.receiver);
        if let Some(size_bytes) = returned {
            self.push(usize::from(shard.0), Window { receiver, size_bytes });
        }
        // The limit was the window's; if that has moved meanwhile, nobody else tells.
        if is_spent && self.connection.sendable(id) > 0 {
            self.grant(number, Drain::Keep);
        }
    }

    /// A message whose stored form is damaged would come back for ever; the dead-letter queue is where somebody looks at it.
    pub(crate) fn set_aside(&mut self, shard: ShardId, delivery: &engine::Delivery, description: &str) {
        let (entity, sub_queue, token) = (delivery.entity, delivery.sub_queue, delivery.token);
        let reason = Some("Unreadable".to_owned());
        let settlement =
            Settlement::DeadLetter { reason, description: Some(description.to_owned()), patch: None };
        let settle = Settle { entity, sub_queue, token, settlement };
        self.settle(usize::from(shard.0), SettleWaiter::Nobody, settle);
    }

    /// A delivery that cannot reach its receiver returns to the queue, uncounted.
    pub(crate) fn give_back(&mut self, shard: ShardId, delivery: &engine::Delivery) {
        let (entity, sub_queue, token) = (delivery.entity, delivery.sub_queue, delivery.token);
        self.push(usize::from(shard.0), Release { entity, sub_queue, token });
    }
}
