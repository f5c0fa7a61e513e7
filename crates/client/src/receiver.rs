//! Receives and settles messages.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::connection::{DeliveryId, LinkId};
use peeklock_amqp::{DeliveryState, DeliveryTag, Fields, Text};
use peeklock_types::{LockToken, SequenceNumber};
use tokio::sync::mpsc::error::{SendError, TrySendError};
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::clock::BrokerClock;
use crate::driver::command::{Command, LinkKind, LinkRequest, ReceiverCommand, Reply};
use crate::error::{Ending, Error, MalformedReason};
use crate::extensions::Extensions;
use crate::management::Management;
use crate::outcome::Outcome;
use crate::received::ReceivedMessage;
use crate::session::{Session, SessionWish};
use crate::shared::Shared;

/// The default credit of a receiver.
const CREDIT_DEFAULT: u32 = 100;
/// A higher credit would exceed the number of unsettled deliveries that a session allows.
const CREDIT_MAX: u32 = 10_000;

/// The effect of a receive on the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveMode {
    /// The message is locked for this receiver until it is settled or the lock expires.
    #[default]
    PeekLock,
    /// The message is deleted when it is sent. It is lost if the receiver crashes.
    ReceiveAndDelete,
}

/// A delivery on its way from the driver to its receiver.
pub(crate) struct Arrival {
    pub(crate) id: DeliveryId,
    pub(crate) tag: DeliveryTag,
    pub(crate) is_settled: bool,
    pub(crate) payload: Bytes,
}

/// The settings of a receiver, from [`Client::receiver`](crate::Client::receiver).
#[must_use = "call open"]
pub struct ReceiverBuilder {
    shared: Arc<Shared>,
    entity: Arc<str>,
    mode: ReceiveMode,
    session: SessionWish,
    selector: Option<String>,
    owner_level: Option<i64>,
    credit: u32,
    is_manual: bool,
}

impl ReceiverBuilder {
    pub(crate) fn new(shared: Arc<Shared>, entity: &str) -> Self {
        Self {
            shared,
            entity: entity.into(),
            mode: ReceiveMode::PeekLock,
            session: SessionWish::None,
            selector: None,
            owner_level: None,
            credit: CREDIT_DEFAULT,
            is_manual: false,
        }
    }

    /// Sets the effect of a receive on the message.
    pub fn mode(mut self, mode: ReceiveMode) -> Self {
        self.mode = mode;
        self
    }

    /// Receives from the dead-letter queue of the queue.
    pub fn dead_letter(mut self) -> Self {
        self.entity = format!("{}/$DeadLetterQueue", self.entity).into();
        self
    }

    /// Receives the messages of this session and locks the session. The session may have no messages yet. Opening fails with
    /// [`Error::SessionLocked`] if another receiver holds it.
    pub fn session(mut self, id: impl Into<Text>) -> Self {
        self.session = SessionWish::Named(id.into());
        self
    }

    /// Receives the messages of any unlocked session that has messages. Opening fails with [`Error::NoSession`] if no session becomes
    /// available within `wait`.
    pub fn next_session(mut self, wait: Duration) -> Self {
        self.session = SessionWish::Next { wait };
        self
    }

    /// Receives only messages that fit this condition. Readers of a hub use it to set their start, such as `amqp.annotation.x-opt-offset >
    /// '@latest'`.
    pub fn selector(mut self, selector: impl Into<String>) -> Self {
        self.selector = Some(selector.into());
        self
    }

    /// Reads a partition of a hub exclusively. The broker disconnects readers of the same consumer group with a lower level or none.
    pub fn owner_level(mut self, level: i64) -> Self {
        self.owner_level = Some(level);
        self
    }

    /// Sets how many messages the broker may send in advance. The receiver renews the credit as messages are taken.
    pub fn credit(mut self, credit: u32) -> Self {
        self.credit = credit.clamp(1, CREDIT_MAX);
        self.is_manual = false;
        self
    }

    /// Receives no messages until [`Receiver::add_credit`] is called, and at most as many as it requests.
    pub fn manual_credit(mut self) -> Self {
        self.is_manual = true;
        self
    }

    /// Attaches the link.
    pub async fn open(self) -> Result<Receiver, Error> {
        let room = if self.is_manual { CREDIT_MAX } else { self.credit };
        let (arrivals, arrived) = mpsc::channel(usize::try_from(room).unwrap_or(usize::MAX));
        let ending = Ending::default();
        let credit = if self.is_manual { 0 } else { self.credit };
        let confirmed_count = Arc::<AtomicU64>::default();
        let kind = LinkKind::Receive {
            mode: self.mode,
            session: self.session.clone(),
            selector: self.selector,
            owner_level: self.owner_level,
            credit,
            arrivals,
            confirmed_count: Arc::clone(&confirmed_count),
        };
        let request = LinkRequest { entity: Arc::clone(&self.entity), ending: Arc::clone(&ending), kind };
        let asked_at = Instant::now();
        let opened = self.shared.open(request).await?;
        // The broker read its clock after the request was sent. While a link waits for a session, that moment is much too early.
        let read_at =
            if matches!(self.session, SessionWish::Next { .. }) { Instant::now() } else { asked_at };
        let clock = opened.broker_time.map(|time| {
            let clock = BrokerClock::new(read_at, time);
            opened.lock_duration.map_or(clock, |longest| clock.with_lock_duration(longest))
        });
        let link = ReceiverLink { shared: self.shared, link: opened.link, entity: self.entity, ending };
        let session = match (self.session, opened.session) {
            (SessionWish::None, _) => None,
            (_, Some(held)) => Some(Session::new(Arc::clone(&link.shared), Arc::clone(&link.entity), held)),
            // A broker without sessions ignores the filter and attaches a link to all messages.
            (_, None) => return Err(Error::malformed(&link.entity, MalformedReason::Missing("the session"))),
        };
        let credit = Credit { window: credit, taken: 0, owed: 0 };
        let (link, batch, granting) = (Arc::new(link), Vec::new(), None);
        Ok(Receiver {
            link,
            arrived,
            mode: self.mode,
            session,
            clock,
            extensions: opened.extensions,
            credit,
            granting,
            batch,
            confirmed_count,
        })
    }
}

/// Receives messages from one queue.
///
/// ```no_run
/// # async fn example(client: peeklock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let mut orders = client.receiver("orders").open().await?;
/// while let Some(delivery) = orders.next().await? {
///     println!("{}", delivery.message()?.body_text());
///     delivery.complete().await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Receiver {
    link: Arc<ReceiverLink>,
    arrived: mpsc::Receiver<Arrival>,
    mode: ReceiveMode,
    session: Option<Session>,
    clock: Option<BrokerClock>,
    extensions: Extensions,
    credit: Credit,
    /// The wait for a place in the command queue, to grant credit. It is a mutex only to make the receiver `Sync`.
    granting: Option<Mutex<Place>>,
    /// A buffer that is empty between calls and keeps its capacity.
    batch: Vec<Arrival>,
    confirmed_count: Arc<AtomicU64>,
}

type Place = Pin<Box<dyn Future<Output = Result<OwnedPermit<Command>, SendError<()>>> + Send>>;

/// The link that a receiver and its deliveries share. It is detached when the last of them is dropped.
pub(crate) struct ReceiverLink {
    shared: Arc<Shared>,
    link: LinkId,
    entity: Arc<str>,
    ending: Ending,
}

impl ReceiverLink {
    /// Returns the reason why the link has ended.
    pub(crate) fn lost(&self) -> Error {
        self.ending.get().cloned().unwrap_or_else(|| self.shared.lost())
    }

    pub(crate) async fn tell(&self, command: ReceiverCommand) -> Result<(), Error> {
        let command = Command::Receiver { link: self.link, command };
        self.shared.commands.send(command).await.map_err(|_| self.lost())
    }

    /// Sends a command without waiting.
    fn try_tell(&self, command: ReceiverCommand) -> bool {
        self.shared.commands.try_send(Command::Receiver { link: self.link, command }).is_ok()
    }

    async fn ask(&self, command: impl FnOnce(Reply<()>) -> ReceiverCommand) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply)).await?;
        answer.await.unwrap_or_else(|_| Err(self.lost()))
    }

    /// Settles a message that the broker deleted when it was received.
    pub(crate) fn without_lock(&self, outcome: &Outcome) -> Result<(), Error> {
        match outcome {
            Outcome::Complete => Ok(()),
            _ => Err(Error::NotLocked { entity: Arc::clone(&self.entity) }),
        }
    }

    async fn detach(&self, unseen: Vec<DeliveryId>) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Detach { link: self.link, unseen, reply: Some(reply) };
        self.shared.commands.send(command).await.map_err(|_| self.lost())?;
        answer.await.unwrap_or_else(|_| Err(self.lost()))
    }
}

impl Drop for ReceiverLink {
    fn drop(&mut self) {
        self.shared.let_go(self.link);
    }
}

/// Renews credit when half of the window is used, so that a busy receiver neither runs out of credit nor sends a flow for each message.
struct Credit {
    /// The number of messages that the broker may send in advance; 0 for manual credit.
    window: u32,
    /// The number of messages taken since the last renewal.
    taken: u32,
    /// The credit that was requested with [`Receiver::request`] and is not granted yet.
    owed: u32,
}

impl Credit {
    fn take(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Returns the credit to grant now, or 0.
    fn due(&self) -> u32 {
        let renewed = if self.window > 0 && self.taken >= self.window.div_ceil(2) { self.taken } else { 0 };
        renewed.saturating_add(self.owed)
    }

    /// Notes that the credit that was due is granted.
    fn granted(&mut self) {
        if self.window > 0 && self.taken >= self.window.div_ceil(2) {
            self.taken = 0;
        }
        self.owed = 0;
    }
}

impl Receiver {
    /// Returns the next message, or `None` after [`Receiver::stop`] once all messages in flight were returned.
    ///
    /// The future can be dropped without losing a message.
    pub async fn next(&mut self) -> Result<Option<Delivery>, Error> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the next message, as [`Receiver::next`] does.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Delivery>, Error>> {
        self.poll_grant(cx);
        let Some(arrival) = ready!(self.arrived.poll_recv(cx)) else {
            return Poll::Ready(self.ended().map(|()| None));
        };
        self.credit.take(1);
        Poll::Ready(Ok(Some(self.delivery(arrival))))
    }

    /// Adds the available messages to `into`, at most `max`. Waits for the first one. Returns 0 after [`Receiver::stop`].
    ///
    /// The future can be dropped without losing a message.
    pub async fn next_many(&mut self, into: &mut Vec<Delivery>, max: usize) -> Result<usize, Error> {
        let receive = |cx: &mut Context<'_>| {
            self.poll_grant(cx);
            self.arrived.poll_recv_many(cx, &mut self.batch, max)
        };
        let count = poll_fn(receive).await;
        if count == 0 && max > 0 {
            return self.ended().map(|()| 0);
        }
        self.credit.take(count);
        into.extend(self.batch.drain(..).map(|arrival| Delivery { link: Arc::clone(&self.link), arrival }));
        Ok(count)
    }

    /// Returns the broker's clock, if the broker sent its time.
    pub fn clock(&self) -> Option<BrokerClock> {
        self.clock
    }

    /// Returns what the broker does beyond Service Bus.
    pub fn extensions(&self) -> Extensions {
        self.extensions
    }

    /// Returns the session that this receiver holds, if it was opened for one.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Fetches deferred messages by their sequence numbers, in the mode and the session of this receiver. In peek-lock mode, settle them
    /// with [`Client::settle`](crate::Client::settle) or [`Session::settle`].
    pub async fn receive_deferred(&self, numbers: &[SequenceNumber]) -> Result<Vec<ReceivedMessage>, Error> {
        let management = Management::open(&self.link.shared, &self.link.entity).await?;
        management.receive_deferred(numbers, self.mode, self.session.as_ref().map(Session::id)).await
    }

    fn delivery(&self, arrival: Arrival) -> Delivery {
        Delivery { link: Arc::clone(&self.link), arrival }
    }

    /// Returns the reason why the link ended, or `Ok` if the receiver was stopped.
    fn ended(&self) -> Result<(), Error> {
        match self.link.ending.get().or_else(|| self.link.shared.ending.get()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Grants the credit that is due. If the command queue is full, a later poll does so.
    ///
    /// A failure means that the connection has ended. The messages that have arrived before are still returned, and then the reason.
    fn poll_grant(&mut self, cx: &mut Context<'_>) {
        let count = self.credit.due();
        if count == 0 {
            return;
        }
        let command = Command::Receiver { link: self.link.link, command: ReceiverCommand::AddCredit(count) };
        if let Some(granting) = &mut self.granting {
            let place = granting.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            let Poll::Ready(place) = place.as_mut().poll(cx) else { return };
            self.granting = None;
            if let Ok(place) = place {
                drop(place.send(command));
                self.credit.granted();
            }
            return;
        }
        match self.link.shared.commands.try_send(command) {
            Ok(()) => self.credit.granted(),
            Err(TrySendError::Full(_)) => {
                self.granting = Some(Mutex::new(Box::pin(self.link.shared.commands.clone().reserve_owned())));
                self.poll_grant(cx);
            }
            Err(TrySendError::Closed(_)) => {}
        }
    }

    /// Requests `count` more messages with the next poll for a message, for receivers with manual credit.
    pub fn request(&mut self, count: u32) {
        self.credit.owed = self.credit.owed.saturating_add(count).min(CREDIT_MAX);
    }

    /// Requests `count` more messages, for receivers with manual credit.
    pub async fn add_credit(&self, count: u32) -> Result<(), Error> {
        self.link.tell(ReceiverCommand::AddCredit(count.min(CREDIT_MAX))).await
    }

    /// Takes back the credit, for receivers with manual credit. When this returns, [`Receiver::try_next`] returns the messages that were in
    /// flight, and no more follow until [`Receiver::add_credit`]. The link stays open.
    pub async fn drain(&self) -> Result<(), Error> {
        self.link.ask(ReceiverCommand::Drain).await
    }

    /// Returns a message that has arrived already, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        let arrival = self.arrived.try_recv().ok()?;
        self.credit.take(1);
        Some(self.delivery(arrival))
    }

    /// Stops the broker from sending more messages. [`Receiver::next`] returns the messages in flight, and then `None`.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.credit.window = 0;
        self.credit.owed = 0;
        self.link.tell(ReceiverCommand::Stop).await
    }

    /// Settles many messages with the same outcome without waiting. [`Receiver::flush`] waits for the confirmations.
    pub async fn settle_many(
        &self,
        deliveries: impl IntoIterator<Item = Delivery>,
        outcome: Outcome,
    ) -> Result<(), Error> {
        let state = outcome.into_state();
        let mut ids = Vec::new();
        for delivery in deliveries {
            if !Arc::ptr_eq(&delivery.link, &self.link) {
                return Err(Error::OtherReceiver { entity: Arc::clone(&self.link.entity) });
            }
            if !delivery.arrival.is_settled {
                ids.push(delivery.arrival.id);
            }
        }
        if ids.is_empty() {
            return Ok(());
        }
        self.link.tell(ReceiverCommand::SettleMany { ids, state }).await
    }

    /// Waits until every settlement of [`Receiver::settle_many`] is confirmed. Returns the first failure.
    pub async fn flush(&self) -> Result<(), Error> {
        self.link.ask(ReceiverCommand::Flush).await
    }

    /// Returns how many settlements of [`Receiver::settle_many`] the broker has confirmed.
    pub fn confirmed_count(&self) -> u64 {
        self.confirmed_count.load(Ordering::Relaxed)
    }

    /// Stops, releases the messages that were not taken, and detaches. Deliveries that are still held can no longer be settled.
    ///
    /// In mode [`ReceiveMode::ReceiveAndDelete`], messages that were not taken are lost. Call [`Receiver::stop`] first and take the rest.
    pub async fn close(mut self) -> Result<(), Error> {
        self.stop().await?;
        let mut unseen = Vec::new();
        while let Some(arrival) = self.arrived.recv().await {
            if !arrival.is_settled {
                unseen.push(arrival.id);
            }
        }
        self.ended()?;
        self.link.detach(unseen).await
    }
}

impl Drop for Receiver {
    /// Releases the messages that were not taken. The link is detached with the last delivery.
    fn drop(&mut self) {
        self.arrived.close();
        let mut unseen = Vec::new();
        while let Ok(arrival) = self.arrived.try_recv() {
            if !arrival.is_settled {
                unseen.push(arrival.id);
            }
        }
        // If the driver's queue is full, the locks expire and no message is lost.
        self.link.try_tell(ReceiverCommand::Stop);
        if !unseen.is_empty() {
            self.link.try_tell(ReceiverCommand::SettleMany { ids: unseen, state: DeliveryState::Released });
        }
    }
}

/// A received message. In mode [`ReceiveMode::PeekLock`] it is locked until it is settled.
///
/// A dropped delivery stays locked until its lock expires.
#[must_use = "settle it, or its message comes back when the lock runs out"]
pub struct Delivery {
    link: Arc<ReceiverLink>,
    arrival: Arrival,
}

impl Delivery {
    /// Decodes the message.
    pub fn message(&self) -> Result<ReceivedMessage, Error> {
        ReceivedMessage::decode(&self.link.entity, &self.arrival.payload, self.lock_token())
    }

    /// Returns all encoded sections of the message.
    pub fn payload(&self) -> &Bytes {
        &self.arrival.payload
    }

    /// Returns the lock token. `None` if the message is deleted already, or if the delivery tag is not a lock token.
    pub fn lock_token(&self) -> Option<LockToken> {
        if self.arrival.is_settled {
            return None;
        }
        self.arrival.tag.as_slice().try_into().ok().map(LockToken::from_guid_bytes)
    }

    /// Completes the message: it is removed. The removal is on stable storage when this returns.
    pub async fn complete(self) -> Result<(), Error> {
        self.settle(Outcome::Complete).await
    }

    /// Makes the message available again and increases its delivery count.
    pub async fn abandon(self) -> Result<(), Error> {
        self.settle(Outcome::Abandon).await
    }

    /// Makes the message available again after a delay. Only Peeklock supports the delay; other brokers treat it as [`Delivery::abandon`].
    pub async fn abandon_after(self, delay: Duration) -> Result<(), Error> {
        self.settle(Outcome::AbandonWith { properties: Fields::new(), delay: Some(delay) }).await
    }

    /// Makes the message available again with these application properties set.
    pub async fn abandon_with(self, properties: Fields) -> Result<(), Error> {
        self.settle(Outcome::AbandonWith { properties, delay: None }).await
    }

    /// Defers the message: it stays in the queue until a receiver fetches it by its sequence number.
    pub async fn defer(self) -> Result<(), Error> {
        self.settle(Outcome::Defer).await
    }

    /// Moves the message to the dead-letter queue with a reason.
    pub async fn dead_letter(self, reason: &str, description: &str) -> Result<(), Error> {
        self.settle(Outcome::DeadLetter { reason: reason.to_owned(), description: description.to_owned() })
            .await
    }

    /// Returns the message without increasing its delivery count.
    pub async fn release(self) -> Result<(), Error> {
        self.settle(Outcome::Release).await
    }

    /// Settles the message and waits for the broker's confirmation.
    pub async fn settle(self, outcome: Outcome) -> Result<(), Error> {
        self.settle_as(outcome, |state| state).await
    }

    /// Settles the message without waiting, for a caller that cannot wait. Returns `false` if the connection has ended or is too busy: the
    /// message is then locked until its lock expires.
    pub fn settle_unawaited(self, outcome: Outcome) -> bool {
        if self.arrival.is_settled {
            return true;
        }
        let command = ReceiverCommand::SettleMany { ids: vec![self.arrival.id], state: outcome.into_state() };
        self.link.ending.get().is_none() && self.link.try_tell(command)
    }

    /// Returns whether the link of this delivery has ended. A settlement is then possible only by the lock token.
    pub fn is_cut_off(&self) -> bool {
        self.link.ending.get().is_some() || self.link.shared.ending.get().is_some()
    }

    pub(crate) async fn settle_in(self, transaction: &Bytes, outcome: Outcome) -> Result<(), Error> {
        let in_transaction = |state| DeliveryState::Transactional {
            txn_id: transaction.clone(),
            outcome: Some(Box::new(state)),
        };
        self.settle_as(outcome, in_transaction).await
    }

    /// Settles the message in a transaction without an answer. Returns whether there is something to settle.
    pub(crate) async fn settle_step(self, transaction: &Bytes, outcome: Outcome) -> Result<bool, Error> {
        if self.arrival.is_settled {
            return self.settle(outcome).await.map(|()| false);
        }
        let state = DeliveryState::Transactional {
            txn_id: transaction.clone(),
            outcome: Some(Box::new(outcome.into_state())),
        };
        self.link.tell(ReceiverCommand::SettleStep { id: self.arrival.id, state }).await.map(|()| true)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.link.shared
    }

    async fn settle_as(
        self,
        outcome: Outcome,
        wrap: impl FnOnce(DeliveryState) -> DeliveryState,
    ) -> Result<(), Error> {
        let (link, id) = self.into_unsettled();
        let Some(id) = id else { return link.without_lock(&outcome) };
        let state = wrap(outcome.into_state());
        link.ask(|reply| ReceiverCommand::Settle { id, state, reply }).await
    }

    /// Returns what is needed to settle the message. There is no id if the broker has deleted it already.
    pub(crate) fn into_unsettled(self) -> (Arc<ReceiverLink>, Option<DeliveryId>) {
        let id = (!self.arrival.is_settled).then_some(self.arrival.id);
        (self.link, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_renewed_when_half_is_used() {
        let mut credit = Credit { window: 10, taken: 0, owed: 0 };
        credit.take(4);
        assert_eq!(credit.due(), 0);
        credit.take(1);
        assert_eq!(credit.due(), 5);
        credit.take(9);
        assert_eq!(credit.due(), 14);
        let single = Credit { window: 1, taken: 1, owed: 0 };
        assert_eq!(single.due(), 1);
        let manual = Credit { window: 0, taken: 1000, owed: 0 };
        assert_eq!(manual.due(), 0);
        let mut requested = Credit { window: 0, taken: 3, owed: 2 };
        assert_eq!(requested.due(), 2);
        requested.granted();
        assert_eq!(requested.due(), 0);
    }
}
