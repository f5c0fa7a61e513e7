//! Transactions: sends and settlements that take effect together or not at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use peeklock_client::{Error as Low, LockToken};

use crate::Outcome;
use crate::connection::Connection;
use crate::delivery::{Delivery, Hold, Source, by_token};
use crate::error::{Error, Kind};
use crate::message::Message;
use crate::sender::Sender;

/// Sends and settlements that take effect together with [`Transaction::commit`], or not at all. It can send to several queues; its settlements
/// must be of messages of one queue.
///
/// A transaction belongs to the connection on which it began. When that is lost, the broker rolls it back, and every further call fails with
/// [`Kind::RolledBack`], which is transient: begin again. A step that fails dooms the transaction. After a rollback, the messages that were
/// settled in it are abandoned, so that they are delivered again at once. A dropped transaction is rolled back.
///
/// ```no_run
/// # async fn example(client: peeklock::Client) -> Result<(), peeklock::Error> {
/// use peeklock::Message;
///
/// let invoices = client.sender("invoices").await?;
/// let mut orders = client.receiver("orders").open().await?;
/// while let Some(order) = orders.next().await? {
///     let work = client.transaction().await?;
///     work.send(&invoices, Message::text("one invoice")).await?;
///     work.complete(order).await?;
///     work.commit().await?;   // the invoice is stored and the order gone, both or neither
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a transaction rolls it back"]
pub struct Transaction {
    /// `None` after the commit or rollback.
    begun: Option<peeklock_client::Transaction>,
    is_doomed: AtomicBool,
    /// The messages that are settled in the transaction.
    held: Mutex<Vec<(Arc<Source>, LockToken)>>,
    /// The sources of the messages that it completes.
    completed: Mutex<Vec<Arc<Source>>>,
}

impl Transaction {
    pub(crate) async fn begin(connection: &Connection) -> Result<Self, Error> {
        let mut attempts = connection.attempts();
        loop {
            let begun = match connection.live().await {
                Ok(live) => live.transaction().await.map_err(Error::from),
                Err(error) => Err(error),
            };
            match begun {
                Ok(begun) => {
                    let (is_doomed, held) = (AtomicBool::new(false), Mutex::default());
                    let (begun, completed) = (Some(begun), Mutex::default());
                    return Ok(Transaction { begun, is_doomed, held, completed });
                }
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Sends a message when the transaction is committed.
    pub async fn send(&self, sender: &Sender, message: impl Into<Message>) -> Result<(), Error> {
        let message = message.into().ready()?;
        let link = self.step(sender.link().await)?;
        let sent = self.begun()?.send(&link, &message).await;
        self.step(sent.map_err(explain_step))
    }

    /// Sends messages as one delivery when the transaction is committed.
    pub async fn send_batch(
        &self,
        sender: &Sender,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<(), Error> {
        let messages = messages.into_iter().map(Message::ready).collect::<Result<Vec<_>, _>>()?;
        let link = self.step(sender.link().await)?;
        let sent = self.begun()?.send_batch(&link, &messages).await;
        self.step(sent.map_err(explain_step))
    }

    /// Completes a message when the transaction is committed.
    pub async fn complete(&self, delivery: Delivery) -> Result<(), Error> {
        self.settle(delivery, Outcome::Complete).await
    }

    /// Settles a message when the transaction is committed. Other brokers than Peeklock ignore the delay of an abandonment.
    pub async fn settle(&self, delivery: Delivery, outcome: Outcome) -> Result<(), Error> {
        let begun = self.begun()?;
        let Some((source, hold)) = delivery.into_hold() else { return Ok(()) };
        if let Some(token) = hold.token() {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push((Arc::clone(&source), token));
        }
        if outcome == Outcome::Complete && source.connection.observer().is_some() {
            self.completed.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&source));
        }
        let outcome = source.without_unknown_delay(outcome);
        let settled = match hold {
            Hold::Link(link) if !link.is_cut_off() => begun.settle(link, outcome).await,
            // The lock outlives the link.
            hold => match hold.token() {
                Some(token) => begun.settle_tokens(&source.entity, &[token], outcome).await,
                None => Ok(()),
            },
        };
        self.step(settled.map_err(explain_step))
    }

    /// Commits the transaction. Everything is on stable storage when this returns.
    ///
    /// After [`Kind::RolledBack`] nothing was done. With code `E-TX-03` the connection was lost before the answer, and the result is unknown.
    pub async fn commit(mut self) -> Result<(), Error> {
        let Some(begun) = self.begun.take() else { return Ok(()) };
        if self.is_doomed.load(Ordering::Relaxed) {
            // Dropping it rolls it back.
            drop(begun);
            self.give_back();
            let text = "The transaction was rolled back, because a step of it has failed. Nothing of it was done. Begin it again.";
            return Err(Error::new(Kind::RolledBack, "E-TX-01", text).transient(None));
        }
        let result = begun.commit().await.map_err(explain_commit);
        match &result {
            Ok(()) => self.note_completed(),
            Err(error) if error.kind() == Kind::RolledBack => self.give_back(),
            Err(_) => {}
        }
        result
    }

    fn note_completed(&mut self) {
        let completed = std::mem::take(self.completed.get_mut().unwrap_or_else(PoisonError::into_inner));
        for source in completed {
            if let Some(observer) = source.connection.observer() {
                observer.completed(&source.entity);
            }
        }
    }

    /// Rolls the transaction back. The messages that were settled in it are abandoned.
    pub async fn roll_back(mut self) -> Result<(), Error> {
        let Some(begun) = self.begun.take() else { return Ok(()) };
        let result = match begun.roll_back().await.map_err(explain_step) {
            // It was rolled back with its connection.
            Err(error) if error.kind() == Kind::RolledBack => Ok(()),
            result => result,
        };
        let held = std::mem::take(self.held.get_mut().unwrap_or_else(PoisonError::into_inner));
        abandon(held).await;
        result
    }

    fn begun(&self) -> Result<&peeklock_client::Transaction, Error> {
        // Only `commit` and `roll_back`, which consume the transaction, take it.
        self.begun.as_ref().ok_or_else(|| Low::OtherConnection.into())
    }

    /// Notes the result of a step.
    fn step<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.is_doomed.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Abandons the settled messages in the background. Without a runtime they stay locked until their locks expire.
    fn give_back(&mut self) {
        let held = std::mem::take(self.held.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !held.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(abandon(held));
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.begun.take().is_some() {
            self.give_back();
        }
    }
}

async fn abandon(held: Vec<(Arc<Source>, LockToken)>) {
    let abandoned = held.into_iter().map(|(source, token)| async move {
        if let Err(error) = by_token(&source, token, Outcome::Abandon, None, true).await {
            tracing::debug!(%error, "a message of a transaction that was rolled back stays locked");
        }
    });
    join_all(abandoned).await;
}

/// Returns the error of a step. A transaction ends with its connection.
fn explain_step(error: Low) -> Error {
    match error {
        Low::ConnectionLost { .. } | Low::Closed => Error::from(Low::OtherConnection).caused_by(error),
        error => error.into(),
    }
}

fn explain_commit(error: Low) -> Error {
    match error {
        Low::ConnectionLost { .. } | Low::NoAnswer { .. } | Low::LinkLost { .. } | Low::Closed => {
            let text = "The result of the commit is unknown: the connection was lost before the answer. Everything of the transaction was done, or \
                        nothing. Check the effects, or make them repeatable with message ids.";
            Error::new(Kind::Connection, "E-TX-03", text).caused_by(error)
        }
        error => error.into(),
    }
}
