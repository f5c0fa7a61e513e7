//! Receives messages.

mod attach;
mod builder;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use futures_util::future::{BoxFuture, join_all};
use peeklock_client::{Receiver as Link, SequenceNumber};

use crate::Outcome;
use crate::delivery::{Delivery, Source};
use crate::error::Error;
use crate::requests;
use crate::session::Session;
use attach::{Plan, SessionWish};
pub use builder::ReceiverBuilder;

/// Receives messages from one queue or subscription.
///
/// When its link or connection is lost, the receiver attaches again and goes on with its remaining credit. Deliveries that were returned before
/// stay usable. A receiver of a session accepts the same session again; see [`Session`] for what that means for work in progress.
///
/// It ends with an error that does not pass: the entity was deleted or disabled, it needs sessions, the right was lost, or the session is lost.
/// Each further call then returns that error. If the broker is away for longer than the retries of the client allow, a call fails, and the next
/// one tries again.
///
/// It is also a [`Stream`] of deliveries, which ends after [`Receiver::stop`] or with an error that does not pass.
pub struct Receiver {
    plan: Plan,
    link: State,
    source: Arc<Source>,
    /// The messages that were requested with [`Receiver::add_credit`] and have not arrived.
    outstanding: AtomicU32,
    is_stopping: bool,
}

enum State {
    Attached(Link),
    /// It is a mutex only to make the receiver `Sync`.
    Attaching(Mutex<BoxFuture<'static, Result<Link, Error>>>),
    Stopped,
    Ended(Error),
}

impl Receiver {
    fn new(mut plan: Plan, link: Link) -> Self {
        let source = source(&mut plan, &link);
        let (link, outstanding) = (State::Attached(link), AtomicU32::new(0));
        Receiver { plan, link, source, outstanding, is_stopping: false }
    }

    /// Returns the next message, or `None` after [`Receiver::stop`] once all messages in flight were returned.
    ///
    /// The future can be dropped without losing a message.
    pub async fn next(&mut self) -> Result<Option<Delivery>, Error> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Delivery>, Error>> {
        loop {
            match &mut self.link {
                State::Attached(link) => match ready!(link.poll_next(cx)) {
                    // The hold of the session has ended with the link, and with it the lock. The message is delivered again.
                    Ok(Some(delivery)) if self.source.session.is_some() && delivery.is_cut_off() => {}
                    Ok(Some(delivery)) => {
                        self.count_arrival();
                        return Poll::Ready(Delivery::new(delivery, &self.source).map(Some));
                    }
                    Ok(None) => {
                        self.link = State::Stopped;
                    }
                    Err(error) => self.lose(error.into()),
                },
                State::Attaching(attaching) => {
                    let attaching = attaching.get_mut().unwrap_or_else(PoisonError::into_inner);
                    match ready!(attaching.as_mut().poll(cx)) {
                        Ok(link) => self.go_on(link),
                        Err(error) => {
                            self.lose(error.clone());
                            return Poll::Ready(Err(error));
                        }
                    }
                }
                State::Stopped => return Poll::Ready(Ok(None)),
                State::Ended(error) => return Poll::Ready(Err(error.clone())),
            }
        }
    }

    /// Handles the end of a link, or an attempt to attach that has failed.
    fn lose(&mut self, error: Error) {
        if self.plan.connection.is_closed() {
            self.link = State::Ended(Error::closed());
        } else if self.is_stopping {
            // The messages in flight on the former link stay in the queue.
            self.link = State::Stopped;
        } else if error.is_transient() {
            tracing::debug!(queue = &*self.plan.entity, %error, "a receiver attaches again");
            self.link = State::Attaching(Mutex::new(Box::pin(self.plan.clone().attach_again())));
        } else {
            self.link = State::Ended(error);
        }
    }

    fn go_on(&mut self, mut link: Link) {
        link.request(*self.outstanding.get_mut());
        self.source = source(&mut self.plan, &link);
        self.link = State::Attached(link);
    }

    fn count_arrival(&mut self) {
        let outstanding = self.outstanding.get_mut();
        *outstanding = outstanding.saturating_sub(1);
    }

    /// Returns the name of the queue or subscription.
    pub fn entity(&self) -> &str {
        &self.plan.entity
    }

    /// Returns the session that this receiver holds, if it was opened for one.
    pub fn session(&self) -> Option<&Session> {
        self.source.session.as_ref()
    }

    /// Returns whether the broker does not return a session that was just let go while others wait.
    pub(crate) fn serves_sessions_in_turn(&self) -> bool {
        self.source.extensions.serves_sessions_in_turn
    }

    /// Requests `count` more messages, for receivers with manual credit. While the link is lost, the request is kept.
    pub async fn add_credit(&self, count: u32) -> Result<(), Error> {
        if self.plan.prefetch.is_some() {
            return Ok(());
        }
        match &self.link {
            State::Attached(link) => {
                self.outstanding.fetch_add(count, Ordering::Relaxed);
                // A lost link is noticed by the next receive, and its successor gets the whole credit.
                let _ = link.add_credit(count).await;
                Ok(())
            }
            State::Attaching(_) => {
                self.outstanding.fetch_add(count, Ordering::Relaxed);
                Ok(())
            }
            State::Stopped => Ok(()),
            State::Ended(error) => Err(error.clone()),
        }
    }

    /// Takes back the credit, for receivers with manual credit. When this returns, [`Receiver::try_next`] returns the messages that were in
    /// flight, and no more follow until [`Receiver::add_credit`]. The link stays open.
    pub async fn drain(&mut self) -> Result<(), Error> {
        *self.outstanding.get_mut() = 0;
        if let State::Attached(link) = &self.link {
            // A lost link has no credit any more.
            let _ = link.drain().await;
        }
        Ok(())
    }

    /// Returns a message that has arrived already, without waiting.
    pub fn try_next(&mut self) -> Result<Option<Delivery>, Error> {
        let State::Attached(link) = &mut self.link else { return Ok(None) };
        let Some(delivery) = link.try_next() else { return Ok(None) };
        self.count_arrival();
        Delivery::new(delivery, &self.source).map(Some)
    }

    /// Stops the broker from sending more messages. [`Receiver::next`] returns the messages in flight, and then `None`.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.is_stopping = true;
        *self.outstanding.get_mut() = 0;
        if let State::Attached(link) = &mut self.link
            && link.stop().await.is_ok()
        {
            return Ok(());
        }
        if !matches!(self.link, State::Ended(_)) {
            self.link = State::Stopped;
        }
        Ok(())
    }

    /// Releases the messages that were not taken, and detaches. Deliveries that are still held can be settled.
    ///
    /// In mode [`ReceiveMode::ReceiveAndDelete`](crate::ReceiveMode::ReceiveAndDelete), messages that were not taken are lost. Call
    /// [`Receiver::stop`] first and take the rest.
    pub async fn close(self) -> Result<(), Error> {
        let State::Attached(link) = self.link else { return Ok(()) };
        match link.close().await.map_err(Error::from) {
            // The link of a receiver that is closed does not matter any more.
            Err(error) if !error.is_transient() && error.code() != "E-CONN-03" => Err(error),
            _ => Ok(()),
        }
    }

    /// Fetches deferred messages by their sequence numbers, in the mode and the session of this receiver.
    pub async fn receive_deferred(&self, numbers: &[SequenceNumber]) -> Result<Vec<Delivery>, Error> {
        let messages = match &self.source.session {
            Some(session) => session.receive_deferred(numbers, self.plan.mode).await?,
            None => {
                requests::receive_deferred(&self.plan.connection, &self.plan.entity, numbers, self.plan.mode)
                    .await?
            }
        };
        Ok(messages.into_iter().map(|message| Delivery::fetched(message, &self.source)).collect())
    }

    /// Settles many messages with the same outcome and waits for all confirmations. Returns the first failure; the other messages are settled.
    pub async fn settle_many(
        &self,
        deliveries: impl IntoIterator<Item = Delivery>,
        outcome: Outcome,
    ) -> Result<(), Error> {
        let settlements = deliveries.into_iter().map(|delivery| delivery.settle(outcome.clone()));
        join_all(settlements).await.into_iter().collect()
    }
}

/// Returns the source of the deliveries of a link. From the first link on, the receiver wants its session and no other.
fn source(plan: &mut Plan, link: &Link) -> Arc<Source> {
    let clock = link.clock();
    let session = link.session().cloned().map(|held| Session::new(held, Arc::clone(&plan.entity), clock));
    if let Some(session) = &session {
        plan.session = SessionWish::Named(session.id().to_owned());
    }
    let (connection, entity) = (plan.connection.clone(), Arc::clone(&plan.entity));
    Arc::new(Source::new(connection, entity, clock, link.extensions()).in_session(session))
}

impl Stream for Receiver {
    type Item = Result<Delivery, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let receiver = self.get_mut();
        let item = ready!(receiver.poll(cx)).transpose();
        // An error that stays is returned once.
        if matches!(item, Some(Err(_))) && matches!(receiver.link, State::Ended(_)) {
            receiver.link = State::Stopped;
        }
        Poll::Ready(item)
    }
}
