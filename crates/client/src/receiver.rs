//! Receiving and settling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::connection::{DeliveryId, LinkId};
use peeklock_amqp::{DeliveryState, DeliveryTag, Fields, Text};
use peeklock_types::{LockToken, SequenceNumber};
use tokio::sync::{mpsc, oneshot};

use crate::driver::command::{Command, LinkKind, LinkRequest, ReceiverCommand, Reply};
use crate::error::{Ending, Error, MalformedReason};
use crate::management::Management;
use crate::outcome::Outcome;
use crate::received::ReceivedMessage;
use crate::session::{Session, SessionWish};
use crate::shared::Shared;

/// Credit of a receiver that was not told otherwise.
const CREDIT_DEFAULT: u32 = 100;
/// More would let one receiver hold more than its session may leave unsettled.
const CREDIT_MAX: u32 = 10_000;

/// What becomes of a message when it is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiveMode {
    /// It is locked for this receiver until it is settled or the lock runs out.
    #[default]
    PeekLock,
    /// It is gone from the queue as soon as it is sent; a crash of the receiver loses it.
    ReceiveAndDelete,
}

/// A delivery on its way from the driver to its receiver.
pub(crate) struct Arrival {
    pub(crate) id: DeliveryId,
    pub(crate) tag: DeliveryTag,
    pub(crate) is_settled: bool,
    pub(crate) payload: Bytes,
}

/// How to receive; made by [`Client::receiver`](crate::Client::receiver).
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

    pub fn mode(mut self, mode: ReceiveMode) -> Self {
        self.mode = mode;
        self
    }

    /// Receive from the dead-letter queue of the queue.
    pub fn dead_letter(mut self) -> Self {
        self.entity = format!("{}/$DeadLetterQueue", self.entity).into();
        self
    }

    /// Receive the messages of this session only, and nobody else meanwhile. The session need not have messages yet;
    /// [`Error::SessionLocked`] if somebody holds it.
    pub fn session(mut self, id: impl Into<Text>) -> Self {
        self.session = SessionWish::Named(id.into());
        self
    }

    /// Receive the messages of any session that has some and that nobody holds. [`Error::NoSession`] if none comes free within `wait`.
    pub fn next_session(mut self, wait: Duration) -> Self {
        self.session = SessionWish::Next { wait };
        self
    }

    /// Only what this condition takes, as the broker understands it: readers of a hub say so where they start, such as
    /// `amqp.annotation.x-opt-offset > '@latest'`.
    pub fn selector(mut self, selector: impl Into<String>) -> Self {
        self.selector = Some(selector.into());
        self
    }

    /// Read a partition of a hub alone: readers of the same consumer group with no level, or one that is not higher, are driven out.
    pub fn owner_level(mut self, level: i64) -> Self {
        self.owner_level = Some(level);
        self
    }

    /// How many messages the broker may send ahead of what was taken; granted again as messages are taken.
    pub fn credit(mut self, credit: u32) -> Self {
        self.credit = credit.clamp(1, CREDIT_MAX);
        self.is_manual = false;
        self
    }

    /// No messages come until [`Receiver::add_credit`] asks for them, and never more than that.
    pub fn manual_credit(mut self) -> Self {
        self.is_manual = true;
        self
    }

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
        let opened = self.shared.open(request).await?;
        let link = ReceiverLink { shared: self.shared, link: opened.link, entity: self.entity, ending };
        let session = match (self.session, opened.session) {
            (SessionWish::None, _) => None,
            (_, Some(held)) => Some(Session::new(Arc::clone(&link.shared), Arc::clone(&link.entity), held)),
            // A broker that knows no sessions gives a link to all messages.
            (_, None) => return Err(Error::malformed(&link.entity, MalformedReason::Missing("the session"))),
        };
        let credit = Credit { window: credit, taken: 0 };
        let (link, batch) = (Arc::new(link), Vec::new());
        Ok(Receiver { link, arrived, mode: self.mode, session, credit, batch, confirmed_count })
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
    credit: Credit,
    /// Empty between calls; kept for its room.
    batch: Vec<Arrival>,
    confirmed_count: Arc<AtomicU64>,
}

/// Shared by a receiver and its deliveries; the link is detached when the last of them is gone.
struct ReceiverLink {
    shared: Arc<Shared>,
    link: LinkId,
    entity: Arc<str>,
    ending: Ending,
}

impl ReceiverLink {
    fn lost(&self) -> Error {
        self.ending.get().cloned().unwrap_or_else(|| self.shared.lost())
    }

    async fn tell(&self, command: ReceiverCommand) -> Result<(), Error> {
        let command = Command::Receiver { link: self.link, command };
        self.shared.commands.send(command).await.map_err(|_| self.lost())
    }

    /// For places that must not wait.
    fn try_tell(&self, command: ReceiverCommand) -> bool {
        self.shared.commands.try_send(Command::Receiver { link: self.link, command }).is_ok()
    }

    async fn ask(&self, command: impl FnOnce(Reply<()>) -> ReceiverCommand) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply)).await?;
        answer.await.unwrap_or_else(|_| Err(self.lost()))
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

/// Grants credit again in halves of the window, so that a busy receiver neither runs dry nor sends a flow per message.
struct Credit {
    /// 0: the user grants it.
    window: u32,
    /// Taken and not granted again.
    taken: u32,
}

impl Credit {
    fn take(&mut self, count: usize) {
        self.taken = self.taken.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// What to grant now; 0 for nothing yet.
    fn due(&self) -> u32 {
        if self.window > 0 && self.taken >= self.window.div_ceil(2) { self.taken } else { 0 }
    }
}

impl Receiver {
    /// The next message. `None` after [`Receiver::stop`], when all that were on their way have come.
    ///
    /// May be dropped and called again without losing a message.
    pub async fn next(&mut self) -> Result<Option<Delivery>, Error> {
        self.grant().await?;
        let Some(arrival) = self.arrived.recv().await else { return self.ended().map(|()| None) };
        self.credit.take(1);
        Ok(Some(self.delivery(arrival)))
    }

    /// Adds the messages that are there to `into`, at most `max`; waits for the first. 0 after [`Receiver::stop`].
    ///
    /// May be dropped and called again without losing a message.
    pub async fn next_many(&mut self, into: &mut Vec<Delivery>, max: usize) -> Result<usize, Error> {
        self.grant().await?;
        let count = self.arrived.recv_many(&mut self.batch, max).await;
        if count == 0 && max > 0 {
            return self.ended().map(|()| 0);
        }
        self.credit.take(count);
        into.extend(self.batch.drain(..).map(|arrival| Delivery { link: Arc::clone(&self.link), arrival }));
        Ok(count)
    }

    /// The session that this receiver holds, if it was told to hold one.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Fetches deferred messages by their sequence numbers, in the mode and the session of this receiver. In peek-lock mode settle them
    /// with [`Client::settle`](crate::Client::settle) or [`Session::settle`].
    pub async fn receive_deferred(&self, numbers: &[SequenceNumber]) -> Result<Vec<ReceivedMessage>, Error> {
        let management = Management::open(&self.link.shared, &self.link.entity).await?;
        management.receive_deferred(numbers, self.mode, self.session.as_ref().map(Session::id)).await
    }

    fn delivery(&self, arrival: Arrival) -> Delivery {
        Delivery { link: Arc::clone(&self.link), arrival }
    }

    /// A reason means that the link broke; without one the receiver was stopped.
    fn ended(&self) -> Result<(), Error> {
        match self.link.ending.get().or_else(|| self.link.shared.ending.get()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Grants again what was taken. Before a message is in hand, not after: a call that is given up must not lose one.
    async fn grant(&mut self) -> Result<(), Error> {
        let count = self.credit.due();
        if count > 0 {
            let place = self.link.shared.commands.reserve().await.map_err(|_| self.link.lost())?;
            place
                .send(Command::Receiver { link: self.link.link, command: ReceiverCommand::AddCredit(count) });
            self.credit.taken = 0;
        }
        Ok(())
    }

    /// Asks for `count` more messages, for receivers with manual credit.
    pub async fn add_credit(&self, count: u32) -> Result<(), Error> {
        self.link.tell(ReceiverCommand::AddCredit(count.min(CREDIT_MAX))).await
    }

    /// Asks for no more messages. Those on their way still come from [`Receiver::next`], then it returns `None`.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.credit.window = 0;
        self.link.tell(ReceiverCommand::Stop).await
    }

    /// Settles many messages the same way without waiting; [`Receiver::flush`] tells when all are confirmed.
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

    /// Waits until every settlement of [`Receiver::settle_many`] is confirmed. Returns the first that failed.
    pub async fn flush(&self) -> Result<(), Error> {
        self.link.ask(ReceiverCommand::Flush).await
    }

    /// How many settlements of [`Receiver::settle_many`] the broker has confirmed so far.
    pub fn confirmed_count(&self) -> u64 {
        self.confirmed_count.load(Ordering::Relaxed)
    }

    /// Stops, gives back what nobody has taken, and detaches. Deliveries still held can no longer be settled.
    ///
    /// In mode [`ReceiveMode::ReceiveAndDelete`] what nobody has taken is lost: stop first and take the rest.
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
    /// Gives back what nobody has taken. The link itself goes with the last delivery.
    fn drop(&mut self) {
        self.arrived.close();
        let mut unseen = Vec::new();
        while let Ok(arrival) = self.arrived.try_recv() {
            if !arrival.is_settled {
                unseen.push(arrival.id);
            }
        }
        // If the driver is too busy to listen, the locks run out and nothing is lost.
        self.link.try_tell(ReceiverCommand::Stop);
        if !unseen.is_empty() {
            self.link.try_tell(ReceiverCommand::SettleMany { ids: unseen, state: DeliveryState::Released });
        }
    }
}

/// One message, locked for us until it is settled (in mode [`ReceiveMode::PeekLock`]).
///
/// Dropping it leaves it locked until its lock runs out.
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

    /// The message as it came: all its sections, encoded.
    pub fn payload(&self) -> &Bytes {
        &self.arrival.payload
    }

    /// `None` when the message is gone from the queue already, or the broker sent something else as the tag.
    pub fn lock_token(&self) -> Option<LockToken> {
        if self.arrival.is_settled {
            return None;
        }
        self.arrival.tag.as_slice().try_into().ok().map(LockToken::from_guid_bytes)
    }

    /// The work is done: the message goes for good. On stable storage when this returns.
    pub async fn complete(self) -> Result<(), Error> {
        self.settle(Outcome::Complete).await
    }

    /// The work failed: the message becomes available again, with one more delivery on its count.
    pub async fn abandon(self) -> Result<(), Error> {
        self.settle(Outcome::Abandon).await
    }

    /// The work failed, and to try again at once would not help: the message becomes available after the delay. Only with Peeklock;
    /// another broker takes it for [`Delivery::abandon`].
    pub async fn abandon_after(self, delay: Duration) -> Result<(), Error> {
        self.settle(Outcome::AbandonWith { properties: Fields::new(), delay: Some(delay) }).await
    }

    /// The work failed: the message becomes available again with these application properties set.
    pub async fn abandon_with(self, properties: Fields) -> Result<(), Error> {
        self.settle(Outcome::AbandonWith { properties, delay: None }).await
    }

    /// Sets the message aside until somebody asks for its sequence number.
    pub async fn defer(self) -> Result<(), Error> {
        self.settle(Outcome::Defer).await
    }

    /// The message can never be handled: moves it to the dead-letter queue with the reason.
    pub async fn dead_letter(self, reason: &str, description: &str) -> Result<(), Error> {
        self.settle(Outcome::DeadLetter { reason: reason.to_owned(), description: description.to_owned() })
            .await
    }

    /// Hands the message back untouched: it counts as no delivery.
    pub async fn release(self) -> Result<(), Error> {
        self.settle(Outcome::Release).await
    }

    /// Settles the message and waits until the broker has confirmed it.
    pub async fn settle(self, outcome: Outcome) -> Result<(), Error> {
        self.settle_as(outcome, |state| state).await
    }

    pub(crate) async fn settle_in(self, transaction: &Bytes, outcome: Outcome) -> Result<(), Error> {
        let in_transaction = |state| DeliveryState::Transactional {
            txn_id: transaction.clone(),
            outcome: Some(Box::new(state)),
        };
        self.settle_as(outcome, in_transaction).await
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.link.shared
    }

    async fn settle_as(
        self,
        outcome: Outcome,
        wrap: impl FnOnce(DeliveryState) -> DeliveryState,
    ) -> Result<(), Error> {
        if self.arrival.is_settled {
            return match outcome {
                Outcome::Complete => Ok(()),
                _ => Err(Error::NotLocked { entity: Arc::clone(&self.link.entity) }),
            };
        }
        let (id, state) = (self.arrival.id, wrap(outcome.into_state()));
        self.link.ask(|reply| ReceiverCommand::Settle { id, state, reply }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_granted_again_in_halves() {
        let mut credit = Credit { window: 10, taken: 0 };
        credit.take(4);
        assert_eq!(credit.due(), 0);
        credit.take(1);
        assert_eq!(credit.due(), 5);
        credit.take(9);
        assert_eq!(credit.due(), 14);
        let single = Credit { window: 1, taken: 1 };
        assert_eq!(single.due(), 1);
        let manual = Credit { window: 0, taken: 1000 };
        assert_eq!(manual.due(), 0);
    }
}
