//! One connection between the AMQP engine and the shards: events of the engine go to shards as batches, replies of
//! shards go back as frames.

mod answer;
mod reply;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use peeklock_amqp::connection::{Delivery, Event, LinkId, Millis, SessionId};
use peeklock_amqp::{DeliveryState, SaslCode, Symbol, Text, condition};
use peeklock_broker::{Clock, Drain, ReceiverReply, Reply};
use peeklock_types::EntityPath;
use tokio::sync::{mpsc, watch};

use crate::Gateway;
use crate::access::Access;
use crate::connection::attach::{NewLink, REQUEST_CREDIT, on_attach};
use crate::connection::context::Context;
use crate::connection::early::{OUTCOME_DELAY, loses_early_outcomes};
use crate::connection::ending::PeerName;
use crate::connection::link::{LinkKind, Service};
use crate::error::Refusal;
use crate::hub::Hubs;
use crate::hub::publish::on_events;
use crate::management::respond::send_responses;
use crate::management::{Management, Received};
use crate::namespace::without_port;
use crate::publishing::Publishing;
use crate::publishing::send::on_message;
use crate::queue_group::QueueGroups;
use crate::receiving::deliver::give_back;
use crate::receiving::{Disposition, Receiving};
use crate::transaction::Transactions;
use crate::transaction::coordinator::{in_transaction, transaction_of};

/// The longest host name that is accepted: a name in DNS has at most 253 characters.
const HOST_BYTES_MAX: usize = 255;

/// The channel of replies from shards to a conversation.
pub(crate) type Replies = mpsc::UnboundedReceiver<Vec<Reply>>;

pub(crate) struct Conversation<'g> {
    context: Context<'g>,
    access: Access,
    peer_name: PeerName,
    management: Management,
    hubs: Hubs,
    transactions: Transactions,
    publishing: Publishing,
    receiving: Receiving,
    queue_groups: QueueGroups,
    /// Replies that the connection had no room for.
    backlog: VecDeque<Reply>,
    /// The steps of the broker's clock that the conversation has followed.
    stepped: Duration,
    is_over: bool,
}

impl<'g> Conversation<'g> {
    pub(crate) fn new(gateway: &'g Gateway, from: Option<SocketAddr>, now: Millis) -> (Self, Replies) {
        let (context, replies) = Context::new(gateway, now);
        let stepped = context.namespace.broker.clock().stepped();
        let conversation = Conversation {
            context,
            access: Access::new(now),
            peer_name: PeerName::new(from),
            management: Management::default(),
            hubs: Hubs::default(),
            transactions: Transactions::default(),
            publishing: Publishing::default(),
            receiving: Receiving::default(),
            queue_groups: QueueGroups::default(),
            backlog: VecDeque::new(),
            stepped,
            is_over: false,
        };
        (conversation, replies)
    }

    pub(crate) fn handle_input(&mut self, now: Millis, input: &mut BytesMut) {
        self.context.now = self.context.namespace.broker.clock().now();
        self.context.millis = now;
        loop {
            let result = self.context.connection.handle_input(now, input);
            let mut waits_for_sasl = false;
            while let Some(event) = self.context.connection.poll_event() {
                waits_for_sasl |= matches!(event, Event::SaslInit { .. });
                self.on_event(event);
                self.forget_removed();
            }
            if let Err(error) = result {
                self.peer_name.log_failure(&self.context, &error);
                self.is_over = true;
                return;
            }
            self.retry_backlog();
            // A client may send more after its credentials without waiting for the SASL outcome.
            if !waits_for_sasl || input.is_empty() {
                return;
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Millis) {
        self.context.now = self.context.namespace.broker.clock().now();
        self.context.millis = now;
        self.transactions.expire(now);
        self.access.watch_claims(&mut self.context, &mut self.transactions);
        self.queue_groups.tend_queue_groups(&mut self.context);
        if let Err(error) = self.context.connection.handle_timeout(now) {
            self.peer_name.log_failure(&self.context, &error);
            self.is_over = true;
        }
        self.handle_events();
    }

    /// Handles events of the AMQP engine that no input has caused, such as a flow that arrived before its link was
    /// accepted.
    pub(crate) fn handle_events(&mut self) {
        self.forget_removed();
        while let Some(event) = self.context.connection.poll_event() {
            self.on_event(event);
            self.forget_removed();
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        let timeouts = [
            self.context.connection.poll_timeout(),
            self.transactions.next_deadline(),
            self.access.claims_deadline(&self.context),
            self.queue_groups.next_deadline(),
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Prepares the output and returns its length in bytes.
    pub(crate) fn prepare_output(&mut self) -> usize {
        self.context.connection.output().len()
    }

    pub(crate) fn output(&mut self) -> &mut BytesMut {
        self.context.connection.output()
    }

    /// Returns whether the connection ends once the output is written.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over || self.context.connection.is_closed()
    }

    /// Returns whether the peer still waits for answers.
    pub(crate) fn is_waiting(&self) -> bool {
        self.context.is_waiting()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.context.is_closing()
    }

    /// Returns whether more than one shard may have replies for the peer.
    pub(crate) fn has_several_shards(&self) -> bool {
        self.context.has_several_shards()
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.context.namespace.broker.clock()
    }

    /// Returns the revision of the policies that the peer's claims depend on.
    pub(crate) fn access_revision(&self) -> watch::Receiver<u64> {
        self.context.namespace.access.revision()
    }

    /// Drops the claims that a change of the policies has ended.
    pub(crate) fn handle_access_change(&mut self) {
        self.access.review_claims(&mut self.context, &mut self.transactions);
        self.forget_removed();
    }

    /// Follows the steps of the broker's clock: claims may have expired, and locks last longer.
    pub(crate) fn follow_clock(&mut self) {
        let stepped = self.clock().stepped();
        let by = stepped.saturating_sub(self.stepped);
        if stepped == self.stepped {
            return;
        }
        self.stepped = stepped;
        self.queue_groups.follow_step(&mut self.context, by);
        self.handle_access_change();
    }

    /// Drops the claims whose time has ended.
    pub(crate) fn handle_expired_claims(&mut self, now: Millis) {
        if self.access.claims_deadline(&self.context).is_none_or(|deadline| deadline > now) {
            return;
        }
        self.context.now = self.context.namespace.broker.clock().now();
        self.context.millis = now;
        self.access.watch_claims(&mut self.context, &mut self.transactions);
        self.forget_removed();
    }

    /// Counts input that was handled.
    pub(crate) fn count_input(&mut self, count: usize) {
        self.access.count_input(&mut self.context, count);
    }

    /// Returns the replies and the policies to listen to, if they have changed.
    pub(crate) fn take_moved(&mut self) -> Option<(Replies, watch::Receiver<u64>)> {
        self.access.take_moved()
    }

    /// Logs the links, sessions and connections that were ended since the last call.
    pub(crate) fn log_endings(&mut self) {
        self.peer_name.log_endings(&mut self.context);
    }

    pub(crate) fn log_failure(&self, reason: &dyn fmt::Display) {
        self.peer_name.log_failure(&self.context, reason);
    }

    /// Writes events that wait for readers.
    pub(crate) fn pump_readers(&mut self) {
        self.hubs.pump_readers(&mut self.context);
    }

    /// Stops deliveries. Those in flight still arrive, before the answers to this request.
    pub(crate) fn detach_receivers(&mut self) {
        let receiving =
            self.context.links.iter().filter_map(|(number, link)| Some((number, link.receives_from()?)));
        let receiving: Vec<_> = receiving.collect();
        for (number, shard) in receiving {
            self.context.detach_receiver(number, shard);
        }
    }

    /// Closes the connection, once.
    pub(crate) fn stop(&mut self) {
        let text = "the broker is stopping; connect again when it is back";
        self.context.close(Refusal::new(503, condition::CONNECTION_FORCED, text));
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslInit { mechanism, initial_response, hostname } => {
                let response = initial_response.as_deref().unwrap_or_default();
                let code = self.check_sasl(&mechanism, response, hostname.as_ref().map(Text::as_str));
                if code != SaslCode::Ok {
                    self.peer_name.log_failure(&self.context, &"the name or the secret of its key is wrong");
                }
                self.context.connection.sasl_outcome(code, None);
            }
            Event::Attach { session, link: id, attach } => on_attach(
                &mut self.context,
                &self.access,
                &mut self.queue_groups,
                &mut self.transactions,
                NewLink { session, id, attach },
            ),
            Event::Delivery { link, delivery } => self.on_delivery(link, delivery),
            Event::Part { link, id, part } => {
                self.publishing.on_part(&mut self.context, &mut self.transactions, link, id, part)
            }
            Event::Oversized { state, .. } => {
                if let DeliveryState::Transactional { txn_id, .. } = *state {
                    self.transactions.doom(&txn_id, "a message was larger than its link takes");
                }
            }
            Event::Disposition { link, id, tag, state, settled } => {
                let disposition = Disposition { delivery: id, tag, state, settled };
                self.receiving.on_disposition(
                    &mut self.context,
                    &mut self.queue_groups,
                    &mut self.transactions,
                    link,
                    disposition,
                );
            }
            Event::Flow { link, drain, .. } => self.on_flow(link, drain),
            Event::Detached { link, .. } => self.on_detached(link),
            Event::Unblocked { session } => self.on_unblocked(session),
            Event::Closed { .. } => self.is_over = true,
            Event::Opened { open, .. } => {
                if loses_early_outcomes(&open) {
                    self.context.connection.hold_outcomes(OUTCOME_DELAY);
                }
                self.peer_name.set_container(open.container_id.as_str());
                let host = open.hostname.as_ref().map(Text::as_str);
                self.access.choose(&mut self.context, host, None);
                self.context.host = host
                    .map(without_port)
                    .filter(|host| host.len() <= HOST_BYTES_MAX)
                    .unwrap_or(&self.context.namespace.name)
                    .to_owned();
            }
            Event::SaslOutcome { .. }
            | Event::SessionBegun { .. }
            | Event::SessionEnded { .. }
            | Event::Attached { .. } => {}
        }
    }

    /// Checks the SASL response. A mechanism without a secret is accepted; its peer authenticates later with a token
    /// through `$cbs`.
    fn check_sasl(&mut self, mechanism: &Symbol, response: &[u8], host: Option<&str>) -> SaslCode {
        if *mechanism != "PLAIN" {
            return SaslCode::Ok;
        }
        let mut parts = response.splitn(3, |byte| *byte == 0).skip(1);
        let (Some(name), Some(secret)) = (parts.next(), parts.next()) else { return SaslCode::Auth };
        let is_known = std::str::from_utf8(name)
            .is_ok_and(|name| self.access.sign_in(&mut self.context, host, name, secret));
        if is_known { SaslCode::Ok } else { SaslCode::Auth }
    }

    fn on_delivery(&mut self, id: LinkId, delivery: Delivery) {
        let Some(number) = self.context.links.number(id) else { return };
        let Some(link) = self.context.links.get_mut(number) else { return };
        match &link.kind {
            LinkKind::Sender(_) => on_message(&mut self.context, &mut self.transactions, number, &delivery),
            LinkKind::Publisher(_) => on_events(&mut self.context, &mut self.transactions, number, &delivery),
            LinkKind::Requests(service) => {
                let (service, session) = (service.clone(), link.session);
                let accepted = DeliveryState::Accepted;
                let state = match transaction_of(&delivery) {
                    Some(txn_id) => in_transaction(txn_id.clone(), accepted),
                    None => accepted,
                };
                self.context.connection.settle(id, delivery.id, state);
                if self.context.connection.credit(id) <= REQUEST_CREDIT / 2 {
                    self.context.connection.set_credit(id, REQUEST_CREDIT);
                }
                let handled = match service {
                    Service::Cbs => self.access.on_token(
                        &mut self.context,
                        &mut self.transactions,
                        session,
                        &delivery.payload,
                    ),
                    Service::Management(path) => self.on_management(session, path, &delivery),
                };
                // A request without a response would leave its sender waiting.
                if let Err(refusal) = handled {
                    if let Some(txn_id) = transaction_of(&delivery) {
                        self.transactions.doom(txn_id, &refusal.description);
                    }
                    self.context.connection.detach(id, Some(refusal.into()));
                }
            }
            LinkKind::Coordinator => self.transactions.on_control(&mut self.context, number, id, &delivery),
            LinkKind::Pending(_)
            | LinkKind::PendingHub(_)
            | LinkKind::Responses(_)
            | LinkKind::Receiver(_)
            | LinkKind::Reader(_)
            | LinkKind::QueueGroup(_)
            | LinkKind::Joining(_) => {}
        }
    }

    fn on_management(
        &mut self,
        session: SessionId,
        path: Option<EntityPath>,
        delivery: &Delivery,
    ) -> Result<(), Refusal> {
        let received = Received::read(&mut self.context, session, path, delivery)?;
        if received.transaction.is_none()
            && self.hubs.on_hub_management(&mut self.context, &mut self.access, &received)
        {
            return Ok(());
        }
        self.management.start(&mut self.context, &self.access, &mut self.transactions, received);
        Ok(())
    }

    fn on_flow(&mut self, id: LinkId, drain: bool) {
        let Some(number) = self.context.links.number(id) else { return };
        match self.context.links.get_mut(number).map(|link| &mut link.kind) {
            Some(LinkKind::QueueGroup(_)) => {
                self.queue_groups.on_queue_group_flow(&mut self.context, number, drain)
            }
            Some(LinkKind::Reader(_)) => self.hubs.on_reader_flow(&mut self.context, number, drain),
            Some(LinkKind::Receiver(_)) => self.receiving.grant(
                &mut self.context,
                &mut self.queue_groups,
                number,
                if drain { Drain::Start } else { Drain::Cancel },
            ),
            Some(LinkKind::Responses(_)) => {
                send_responses(&mut self.context, number);
                if drain {
                    self.context.connection.drained(id);
                }
            }
            _ => {}
        }
    }

    /// Resumes streams and deliveries after a session window has opened.
    fn on_unblocked(&mut self, session: SessionId) {
        self.receiving.resume_streams(&mut self.context, &mut self.queue_groups);
        self.retry_backlog();
        let of_session = self.context.links.iter().filter(|(_, link)| link.session == session);
        let numbers: Vec<_> = of_session.map(|(number, _)| number).collect();
        for number in numbers {
            send_responses(&mut self.context, number);
            self.receiving.grant(&mut self.context, &mut self.queue_groups, number, Drain::Keep);
            self.hubs.line_up(&mut self.context, number);
        }
    }

    /// Drops the state of all parts for the links that were removed and returns their messages.
    pub(crate) fn forget_removed(&mut self) {
        for removed in self.context.take_removed() {
            self.publishing.forget_upload(&mut self.context, &mut self.transactions, removed.number);
            self.receiving.give_up_stream(&mut self.context, &mut self.queue_groups, removed.number);
            self.context.detach_removed(&removed);
            self.transactions.roll_back_all_of(removed.number);
        }
    }

    fn on_detached(&mut self, id: LinkId) {
        if let Some(number) = self.context.links.number(id) {
            self.context.remove_link(number);
        }
    }

    /// Handles replies. Answers are sent at once; a delivery without room waits, with all replies that must follow it.
    /// The windows of the receivers limit the size of this backlog.
    pub(crate) fn handle_replies(&mut self, replies: Vec<Reply>) {
        for reply in replies {
            match &reply {
                Reply::Answer(answer) => {
                    self.context.count_answers(answer.count());
                }
                Reply::Kept { .. } => self.context.count_answers(1),
                // A delivery in the backlog may wait for the range. Events wait in the link of their reader.
                Reply::Receiver(ReceiverReply::Range { .. }) | Reply::Reader(_) => {}
                Reply::Receiver(_) | Reply::Stopped { .. } => {
                    if !self.backlog.is_empty() {
                        self.backlog.push_back(reply);
                        continue;
                    }
                }
            }
            if let Some(reply) = self.on_reply(reply) {
                self.backlog.push_back(reply);
            }
            self.forget_removed();
        }
    }

    pub(crate) fn retry_backlog(&mut self) {
        while let Some(reply) = self.backlog.pop_front() {
            if let Some(reply) = self.on_reply(reply) {
                return self.backlog.push_front(reply);
            }
        }
    }

    /// Sends the requests of this round to every shard.
    pub(crate) async fn send_batches(&mut self) {
        self.publishing.flush_uploads(&mut self.context, &mut self.transactions).await;
        self.context.send_batches().await;
    }

    /// Notifies every shard that has received a batch of the end of the connection. Deliveries that were not sent to
    /// the peer return to their queues at once.
    pub(crate) async fn leave(&mut self, mut replies: Replies) {
        replies.close();
        let mut unseen: Vec<_> = self.backlog.drain(..).collect();
        while let Ok(batch) = replies.try_recv() {
            unseen.extend(batch);
        }
        self.receiving.give_up_all(&mut self.context);
        for reply in unseen {
            if let Reply::Receiver(ReceiverReply::Deliveries(run)) = reply {
                let shard = run.shard;
                run.into_deliveries().for_each(|unseen| give_back(&mut self.context, shard, &unseen));
            }
        }
        self.context.say_goodbye();
        self.send_batches().await;
    }
}
