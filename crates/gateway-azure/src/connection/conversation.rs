//! One connection's side of everything: events of the AMQP engine go to shards as batches, replies of shards go back as frames.

use std::collections::VecDeque;

use bytes::BytesMut;
use peeklock_amqp::connection::{Connection, DeliveryId, Event, LinkId, Millis, SessionId};
use peeklock_amqp::{DeliveryState, DeliveryTag, SaslCode, Symbol, Text, condition};
use peeklock_broker::request::receiving::{Credit, Detach};
use peeklock_broker::request::settling::Settle;
use peeklock_broker::{Ask, Asked, Batch, Drain, Peer, ReceiverReply, Reply, Request, Ticket};
use peeklock_types::{LockToken, SubQueue, Timestamp};
use tokio::sync::{mpsc, watch};

use crate::Gateway;
use crate::access::cbs::PendingTokens;
use crate::access::claims::Claims;
use crate::connection::attach::REQUEST_CREDIT;
use crate::connection::early::{OUTCOME_DELAY, loses_early_outcomes};
use crate::connection::ending::PeerName;
use crate::connection::link::{EntityRef, Link, LinkKind, LinkNumber, Links, ReceiverLink, Service};
use crate::connection::request::{SettleWaiter, Waiter, numbered};
use crate::error::Refusal;
use crate::hub::{HubRequests, ReaderLine};
use crate::management::Pending;
use crate::namespace::{Namespace, without_port};
use crate::publishing::upload::Uploads;
use crate::queue_group::{LockEnd, Membership, lock_lost};
use crate::receiving::outcome::settlement_of;
use crate::receiving::stream::Streams;
use crate::transaction::Transactions;
use crate::transaction::coordinator::{Checks, in_transaction, transaction_of};

/// Longer host names are none: a name in DNS has at most 253 characters.
const HOST_BYTES_MAX: usize = 255;

/// How shards reach a conversation.
pub(crate) type Replies = mpsc::UnboundedReceiver<Vec<Reply>>;

pub(crate) struct Conversation<'g> {
    pub(crate) gateway: &'g Gateway,
    /// The one that the peer means, as far as is known.
    pub(crate) namespace: &'g Namespace,
    /// Whether that is certain.
    pub(crate) is_at_home: bool,
    pub(crate) moved: Option<(Replies, watch::Receiver<u64>)>,
    pub(crate) connection: Connection,
    pub(crate) peer: Peer,
    pub(crate) peer_name: PeerName,
    /// The host that the peer wants to speak to, for sentences about entities.
    pub(crate) host: String,
    pub(crate) tokens: PendingTokens,
    pub(crate) links: Links,
    pub(crate) claims: Claims,
    /// When the bytes came in that are being handled.
    pub(crate) now: Timestamp,
    /// The same moment by the connection's own clock.
    pub(crate) millis: Millis,
    pub(crate) pending: Pending,
    pub(crate) hub_requests: HubRequests,
    /// Readers with events to write.
    pub(crate) readers: ReaderLine,
    pub(crate) transactions: Transactions,
    pub(crate) checks: Checks,
    pub(crate) uploads: Uploads,
    pub(crate) streams: Streams,
    /// When links of groups must be looked at.
    pub(crate) queue_groups_wake_at: Option<Millis>,
    /// Reused for the part of a delivery that is written anew each time.
    pub(crate) scratch: BytesMut,
    /// One batch per shard, for everything that one round has brought.
    batches: Vec<Batch>,
    /// Shards that know this peer and must hear when it goes.
    known_to: Vec<bool>,
    /// Replies that the connection had no room for.
    backlog: VecDeque<Reply>,
    /// Requests that shards have not answered yet.
    waiting_count: usize,
    is_closing: bool,
    is_over: bool,
}

impl<'g> Conversation<'g> {
    pub(crate) fn new(gateway: &'g Gateway, now: Millis) -> (Self, Replies) {
        let namespace = &gateway.namespaces.first;
        let (peer, replies) = namespace.broker.peer();
        let shard_count = namespace.broker.shard_count();
        let conversation = Conversation {
            gateway,
            namespace,
            is_at_home: false,
            moved: None,
            connection: Connection::server(gateway.limits.config(), now),
            peer,
            peer_name: PeerName::default(),
            host: namespace.name.clone(),
            tokens: PendingTokens::default(),
            links: Links::new(gateway.limits.link_numbers_per_connection_max),
            claims: Claims::new(now),
            now: namespace.broker.clock().now(),
            millis: now,
            pending: Pending::default(),
            hub_requests: HubRequests::default(),
            readers: ReaderLine::default(),
            transactions: Transactions::default(),
            checks: Checks::default(),
            uploads: Uploads::default(),
            streams: Streams::default(),
            queue_groups_wake_at: None,
            scratch: BytesMut::new(),
            batches: (0..shard_count).map(|_| Batch::default()).collect(),
            known_to: vec![false; shard_count],
            backlog: VecDeque::new(),
            waiting_count: 0,
            is_closing: false,
            is_over: false,
        };
        (conversation, replies)
    }

    /// Begins anew as a peer of another namespace.
    pub(crate) fn enter(&mut self, namespace: &'g Namespace) -> Replies {
        let (peer, replies) = namespace.broker.peer();
        let shard_count = namespace.broker.shard_count();
        self.peer = peer;
        self.batches = (0..shard_count).map(|_| Batch::default()).collect();
        self.known_to = vec![false; shard_count];
        replies
    }

    pub(crate) fn handle_input(&mut self, now: Millis, input: &mut BytesMut) {
        self.now = self.namespace.broker.clock().now();
        self.millis = now;
        loop {
            let result = self.connection.handle_input(now, input);
            let mut waits_for_sasl = false;
            while let Some(event) = self.connection.poll_event() {
                waits_for_sasl |= matches!(event, Event::SaslInit { .. });
                self.on_event(event);
            }
            if let Err(error) = result {
                self.log_failure(&error);
                self.is_over = true;
                return;
            }
            self.retry_backlog();
            // A client may have sent more behind its credentials without waiting for the verdict.
            if !waits_for_sasl || input.is_empty() {
                return;
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Millis) {
        self.now = self.namespace.broker.clock().now();
        self.millis = now;
        self.transactions.expire(now);
        self.watch_claims();
        self.tend_queue_groups();
        if let Err(error) = self.connection.handle_timeout(now) {
            self.log_failure(&error);
            self.is_over = true;
        }
        self.handle_events();
    }

    /// Takes what the engine has to say besides input: a flow that came before its link was accepted, say.
    pub(crate) fn handle_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.on_event(event);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        let timeouts = [
            self.connection.poll_timeout(),
            self.transactions.next_deadline(),
            self.claims_deadline(),
            self.queue_groups_wake_at,
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Readies what is to be written and says how much it is.
    pub(crate) fn prepare_output(&mut self) -> usize {
        self.connection.output().len()
    }

    pub(crate) fn output(&mut self) -> &mut BytesMut {
        self.connection.output()
    }

    /// Nothing more will be said once the output is written.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over || self.connection.is_closed()
    }

    /// Whether the peer still has answers to hear.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_count > 0
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Takes no more deliveries. What is under way still comes, and the answers to this come behind it.
    pub(crate) fn detach_receivers(&mut self) {
        let receiving = self.links.iter().filter_map(|(number, link)| Some((number, link.receives_from()?)));
        let receiving: Vec<_> = receiving.collect();
        for (number, shard) in receiving {
            self.detach_receiver(number, shard);
        }
    }

    fn detach_receiver(&mut self, number: LinkNumber, shard: usize) {
        let receiver = self.peer.id.receiver(number.0);
        // Nobody waits for the answer but the connection, which counts it.
        self.push(shard, Asked { ticket: Ticket::new(0), request: Detach { receiver } });
    }

    /// Says goodbye, once.
    pub(crate) fn stop(&mut self) {
        let text = "the broker is stopping; connect again when it is back";
        self.close(Refusal::new(503, condition::CONNECTION_FORCED, text));
    }

    pub(crate) fn close(&mut self, refusal: Refusal) {
        if !std::mem::replace(&mut self.is_closing, true) {
            self.connection.close(Some(refusal.into()));
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::SaslInit { mechanism, initial_response, hostname } => {
                let response = initial_response.as_deref().unwrap_or_default();
                let code = self.check_sasl(&mechanism, response, hostname.as_ref().map(Text::as_str));
                if code != SaslCode::Ok {
                    self.log_failure(&"the name or the secret of its key is wrong");
                }
                self.connection.sasl_outcome(code, None);
            }
            Event::Attach { session, link, attach } => self.on_attach(session, link, attach),
            Event::Delivery { link, delivery } => self.on_delivery(link, delivery),
            Event::Part { link, id, part } => self.on_part(link, id, part),
            Event::Oversized { state, .. } => {
                if let DeliveryState::Transactional { txn_id, .. } = *state {
                    self.transactions.doom(&txn_id, "a message was larger than its link takes");
                }
            }
            Event::Disposition { link, id, tag, state, settled } => {
                self.on_disposition(link, id, tag, state, settled)
            }
            Event::Flow { link, drain, .. } => self.on_flow(link, drain),
            Event::Detached { link, .. } => self.on_detached(link),
            Event::Unblocked { session } => self.on_unblocked(session),
            Event::Closed { .. } => self.is_over = true,
            Event::Opened { open, .. } => {
                if loses_early_outcomes(&open) {
                    self.connection.hold_outcomes(OUTCOME_DELAY);
                }
                self.peer_name.set_container(open.container_id.as_str());
                let host = open.hostname.as_ref().map(Text::as_str);
                self.choose(host, None);
                self.host = host
                    .map(without_port)
                    .filter(|host| host.len() <= HOST_BYTES_MAX)
                    .unwrap_or(&self.namespace.name)
                    .to_owned();
            }
            Event::SaslOutcome { .. }
            | Event::SessionBegun { .. }
            | Event::SessionEnded { .. }
            | Event::Attached { .. } => {}
        }
    }

    /// A mechanism without a secret is let in and shows its token later, through `$cbs`.
    fn check_sasl(&mut self, mechanism: &Symbol, response: &[u8], host: Option<&str>) -> SaslCode {
        if *mechanism != "PLAIN" {
            return SaslCode::Ok;
        }
        let mut parts = response.splitn(3, |byte| *byte == 0).skip(1);
        let (Some(name), Some(secret)) = (parts.next(), parts.next()) else { return SaslCode::Auth };
        let is_known = std::str::from_utf8(name).is_ok_and(|name| self.sign_in(host, name, secret));
        if is_known { SaslCode::Ok } else { SaslCode::Auth }
    }

    pub(crate) fn now_s(&self) -> u64 {
        self.now.as_millis() / 1000
    }

    fn on_delivery(&mut self, id: LinkId, delivery: peeklock_amqp::connection::Delivery) {
        let Some(number) = self.links.number(id) else { return };
        let Some(link) = self.links.get_mut(number) else { return };
        match &link.kind {
            LinkKind::Sender(_) => self.on_message(number, &delivery),
            LinkKind::Publisher(_) => self.on_events(number, &delivery),
            LinkKind::Requests(service) => {
                let (service, session) = (service.clone(), link.session);
                let accepted = DeliveryState::Accepted;
                let state = match transaction_of(&delivery) {
                    Some(txn_id) => in_transaction(txn_id.clone(), accepted),
                    None => accepted,
                };
                self.connection.settle(id, delivery.id, state);
                if self.connection.credit(id) <= REQUEST_CREDIT / 2 {
                    self.connection.set_credit(id, REQUEST_CREDIT);
                }
                let handled = match service {
                    Service::Cbs => self.on_token(session, &delivery.payload),
                    Service::Management(path) => self.on_management(session, path, &delivery),
                };
                // A request that cannot be answered would leave its sender waiting.
                if let Err(refusal) = handled {
                    if let Some(txn_id) = transaction_of(&delivery) {
                        self.transactions.doom(txn_id, &refusal.description);
                    }
                    self.connection.detach(id, Some(refusal.into()));
                }
            }
            LinkKind::Coordinator => self.on_control(number, id, &delivery),
            LinkKind::Pending(_)
            | LinkKind::PendingHub(_)
            | LinkKind::Responses(_)
            | LinkKind::Receiver(_)
            | LinkKind::Reader(_)
            | LinkKind::QueueGroup(_)
            | LinkKind::Joining(_) => {}
        }
    }

    fn on_disposition(
        &mut self,
        id: LinkId,
        delivery: DeliveryId,
        tag: DeliveryTag,
        state: Option<DeliveryState>,
        settled: bool,
    ) {
        let Some(number) = self.links.number(id) else { return };
        let (sub_queue, path) = match self.links.get(number).map(|link| &link.kind) {
            Some(LinkKind::Receiver(link)) => (link.sub_queue, &link.path),
            Some(LinkKind::QueueGroup(link)) => (SubQueue::Main, &link.path),
            // The peer speaks of what it has sent itself. That is answered when it is done, and not before.
            Some(
                LinkKind::Sender(_) | LinkKind::Publisher(_) | LinkKind::Requests(_) | LinkKind::Coordinator,
            ) => return,
            // A response: what the peer thinks of it changes nothing.
            _ => return self.connection.settle(id, delivery, DeliveryState::Accepted),
        };
        let Ok(token) = <[u8; 16]>::try_from(tag.as_slice()) else { return };
        let token = LockToken::from_guid_bytes(token);
        let Some(entity) = self.entity_of(number, token) else {
            // Of a group, and settled before, or long ago.
            let refusal = lock_lost(path, token);
            return self.connection.settle(id, delivery, DeliveryState::rejected(refusal.into()));
        };
        if let Some(DeliveryState::Transactional { txn_id, outcome }) = state {
            let step = (txn_id, outcome.map(|outcome| *outcome));
            return self.on_transactional_disposition(number, delivery, token, step);
        }
        match settlement_of(state, settled) {
            Ok(Some((settlement, mirror))) => {
                let waiter = match settled {
                    true => SettleWaiter::Nobody,
                    false => SettleWaiter::Delivery(number, delivery, mirror),
                };
                let (EntityRef { shard, entity }, end) = (entity, LockEnd::of(&settlement));
                self.settle(shard, waiter, Settle { entity, sub_queue, token, settlement });
                self.release_lock(number, token, end);
            }
            Ok(None) => {}
            Err(refusal) => self.connection.settle(id, delivery, DeliveryState::rejected(refusal.into())),
        }
    }

    fn on_flow(&mut self, id: LinkId, drain: bool) {
        let Some(number) = self.links.number(id) else { return };
        match self.links.get_mut(number).map(|link| &mut link.kind) {
            Some(LinkKind::QueueGroup(_)) => self.on_queue_group_flow(number, drain),
            Some(LinkKind::Reader(_)) => self.on_reader_flow(number, drain),
            Some(LinkKind::Receiver(_)) => {
                self.grant(number, if drain { Drain::Start } else { Drain::Cancel })
            }
            Some(LinkKind::Responses(_)) => {
                self.send_responses(number);
                if drain {
                    self.connection.drained(id);
                }
            }
            _ => {}
        }
    }

    /// Tells the shard how many deliveries the link takes: what the peer has credit for, and no more than its window lets out. What lies
    /// beyond the window is better off in the queue, where another receiver can have it.
    pub(crate) fn grant(&mut self, number: LinkNumber, drain: Drain) {
        let Some(link) = self.links.get_mut(number) else { return };
        let receiver = match &mut link.kind {
            LinkKind::Receiver(ReceiverLink { member_of: Some(of), .. }) => {
                let group = of.group;
                return self.arbitrate(group);
            }
            LinkKind::QueueGroup(_) => return self.arbitrate(number),
            LinkKind::Receiver(receiver) => receiver,
            _ => return,
        };
        let limit = receiver.passed_count + u64::from(self.connection.sendable(link.id));
        receiver.limit = limit;
        let (shard, receiver) = (receiver.entity.shard, receiver.receiver);
        self.push(shard, Credit { receiver, limit, drain });
    }

    /// A window that was closed is open: what waited for it goes on, and receivers may have more.
    fn on_unblocked(&mut self, session: SessionId) {
        self.resume_streams();
        self.retry_backlog();
        let of_session = self.links.iter().filter(|(_, link)| link.session == session);
        let numbers: Vec<_> = of_session.map(|(number, _)| number).collect();
        for number in numbers {
            self.send_responses(number);
            self.grant(number, Drain::Keep);
            self.line_up(number);
        }
    }

    fn on_detached(&mut self, id: LinkId) {
        if let Some(number) = self.links.number(id) {
            self.forget_link(number);
        }
    }

    /// Nobody hears of the link any more; what it held goes back.
    pub(crate) fn forget_link(&mut self, number: LinkNumber) -> Option<Link> {
        let link = self.links.remove(number)?;
        self.forget_upload(number);
        self.give_up_stream(number);
        if let Some(shard) = link.receives_from() {
            self.detach_receiver(number, shard);
        }
        match &link.kind {
            LinkKind::Coordinator => self.transactions.roll_back_all_of(number),
            LinkKind::QueueGroup(group) => {
                for member in group.members.iter().filter_map(Membership::link) {
                    self.forget_link(member);
                }
            }
            _ => {}
        }
        Some(link)
    }

    pub(crate) fn push(&mut self, shard: usize, request: impl Into<Request>) {
        if let Some(batch) = self.batch(shard) {
            batch.push(request);
        }
    }

    pub(crate) fn ask<R: Ask>(&mut self, shard: usize, waiter: impl Waiter<R>, request: R) {
        self.push(shard, Asked { ticket: waiter.ticket(), request });
    }

    /// Sends a request whose waiter is found by its number.
    pub(crate) fn ask_numbered<R: Ask>(&mut self, shard: usize, number: u32, request: R) {
        self.push(shard, Asked { ticket: numbered(number), request });
    }

    pub(crate) fn settle(&mut self, shard: usize, waiter: SettleWaiter, settle: Settle) {
        if let Some(batch) = self.batch(shard) {
            batch.settle(waiter.ticket(), settle);
        }
    }

    pub(crate) fn batch(&mut self, shard: usize) -> Option<&mut Batch> {
        self.batches.get_mut(shard)
    }

    /// Passes replies on. Answers go out at once; a delivery that there is no room for waits, with what must stay behind it. How much can
    /// wait is bounded by the windows of the receivers.
    pub(crate) fn handle_replies(&mut self, replies: Vec<Reply>) {
        for reply in replies {
            match &reply {
                Reply::Answer(answer) => {
                    self.waiting_count = self.waiting_count.saturating_sub(answer.count());
                }
                Reply::Kept { .. } => self.waiting_count = self.waiting_count.saturating_sub(1),
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
        }
    }

    /// One more answer will come, by another way than a batch.
    pub(crate) fn expect_answer(&mut self) {
        self.waiting_count += 1;
    }

    pub(crate) fn retry_backlog(&mut self) {
        while let Some(reply) = self.backlog.pop_front() {
            if let Some(reply) = self.on_reply(reply) {
                return self.backlog.push_front(reply);
            }
        }
    }

    /// Hands every shard what this round has for it.
    pub(crate) async fn send_batches(&mut self) {
        self.flush_uploads().await;
        for shard in 0..self.batches.len() {
            let Some(batch) = self.batches.get_mut(shard).filter(|batch| !batch.is_empty()) else { continue };
            let batch = batch.take();
            self.waiting_count += batch.answer_count();
            let Some(handle) = self.namespace.broker.shard(shard) else { continue };
            if handle.send(self.peer.clone(), batch).await.is_err() {
                let refusal = Refusal::stopped("its journal has failed");
                self.connection.close(Some(refusal.into()));
            }
            if let Some(known) = self.known_to.get_mut(shard) {
                *known = true;
            }
        }
    }

    /// Says goodbye to every shard that knows this peer. Deliveries that it never saw return to their queues at once.
    pub(crate) async fn leave(&mut self, mut replies: Replies) {
        replies.close();
        let mut unseen: Vec<_> = self.backlog.drain(..).collect();
        while let Ok(batch) = replies.try_recv() {
            unseen.extend(batch);
        }
        for stream in std::mem::take(&mut self.streams).into_values() {
            self.give_back(stream.shard, &stream.delivery);
        }
        for reply in unseen {
            if let Reply::Receiver(ReceiverReply::Deliveries(run)) = reply {
                run.deliveries.iter().for_each(|unseen| self.give_back(run.shard, &unseen.delivery));
            }
        }
        for shard in 0..self.known_to.len() {
            if self.known_to.get(shard).is_some_and(|known| *known) {
                self.push(shard, Request::Gone);
            }
        }
        self.send_batches().await;
    }
}
