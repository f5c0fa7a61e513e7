//! Transactions: sends and settlements that take effect together or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use peeklock_amqp::{DeliveryState, Encode, Message};
use peeklock_types::LockToken;

use crate::driver::command::{Command, Discharge, Reply};
use crate::driver::coordinator::Unsent;
use crate::error::Error;
use crate::management::Management;
use crate::outcome::Outcome;
use crate::receiver::Delivery;
use crate::sender::{BATCH_FORMAT, Sender, batch};
use crate::shared::Shared;
use crate::spares::Declared;

/// The size up to which a message is sent without waiting for its outcome. For larger messages the wait costs little, and it limits the
/// memory of messages in flight.
const UNAWAITED_BYTES_MAX: usize = 64 * 1024;

/// Sends and settlements that take effect together with [`Transaction::commit`], or not at all.
///
/// A transaction can send to any queues, but its settlements must be of messages of one queue. Steps do not wait for the broker: a step
/// that it rejects makes [`Transaction::commit`] fail with [`Error::RolledBack`] and the reason. After a rollback, a message that was settled
/// in the transaction stays locked until its lock expires; [`Client::settle`](crate::Client::settle) can settle it by its token. A dropped
/// transaction is rolled back.
///
/// ```no_run
/// # async fn example(client: peeklock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use peeklock_client::Message;
///
/// let invoices = client.sender("invoices").await?;
/// let mut orders = client.receiver("orders").open().await?;
/// while let Some(order) = orders.next().await? {
///     let work = client.transaction().await?;
///     work.send(&invoices, &Message::data("one invoice")).await?;
///     work.complete(order).await?;
///     work.commit().await?;   // the invoice is stored and the order gone, both or neither
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a transaction rolls it back"]
pub struct Transaction {
    shared: Arc<Shared>,
    id: Bytes,
    /// Whether the broker compares the number of steps at the commit. Otherwise each step waits for its outcome: a step whose link has
    /// ended would be missing in the commit.
    counts_steps: bool,
    step_count: AtomicU32,
    unsent: Unsent,
    is_over: bool,
}

impl Transaction {
    pub(crate) async fn declare(shared: Arc<Shared>) -> Result<Self, Error> {
        let Declared { id, counts_steps, .. } = match shared.spares.take() {
            Some(spare) => spare,
            None => shared.control("declare", |reply| Command::Declare { reply }).await?,
        };
        let (step_count, unsent) = (AtomicU32::new(0), Unsent::default());
        Ok(Self { shared, id, counts_steps, step_count, unsent, is_over: false })
    }

    /// Sends one message when the transaction is committed.
    pub async fn send(&self, sender: &Sender, message: &Message) -> Result<(), Error> {
        self.send_encoded(sender, message.to_bytes(), 0).await
    }

    /// Sends messages as one delivery when the transaction is committed.
    pub async fn send_batch(&self, sender: &Sender, messages: &[Message]) -> Result<(), Error> {
        match batch(messages) {
            Some(payload) => self.send_encoded(sender, payload, BATCH_FORMAT).await,
            None => self.check(sender.shared()),
        }
    }

    async fn send_encoded(&self, sender: &Sender, payload: Bytes, message_format: u32) -> Result<(), Error> {
        self.check(sender.shared())?;
        if self.counts_steps && payload.len() <= UNAWAITED_BYTES_MAX {
            sender.send_step(&self.id, payload, message_format, &self.unsent).await?;
        } else {
            sender.send_in(&self.id, payload, message_format).await?;
        }
        self.count_step();
        Ok(())
    }

    /// Completes a message when the transaction is committed.
    pub async fn complete(&self, delivery: Delivery) -> Result<(), Error> {
        self.settle(delivery, Outcome::Complete).await
    }

    /// Settles a message when the transaction is committed.
    pub async fn settle(&self, delivery: Delivery, outcome: Outcome) -> Result<(), Error> {
        self.check(delivery.shared())?;
        if !self.counts_steps {
            return delivery.settle_in(&self.id, outcome).await;
        }
        if delivery.settle_step(&self.id, outcome).await? {
            self.count_step();
        }
        Ok(())
    }

    /// Settles messages by their lock tokens when the transaction is committed, for messages that were not received over a link. Waits for
    /// the broker's answer. An error means that a lock is lost; the transaction can then only be rolled back.
    pub async fn settle_tokens(
        &self,
        entity: &str,
        tokens: &[LockToken],
        outcome: Outcome,
    ) -> Result<(), Error> {
        let management = Management::open(&self.shared, entity).await?;
        management.in_transaction(&self.id).settle(tokens, outcome).await
    }

    /// Commits the transaction. Everything is on stable storage when this returns. After [`Error::RolledBack`] nothing was done; after any
    /// other error the outcome is unknown.
    pub async fn commit(self) -> Result<(), Error> {
        self.discharge(false).await
    }

    /// Rolls the transaction back.
    pub async fn roll_back(self) -> Result<(), Error> {
        self.discharge(true).await
    }

    async fn discharge(mut self, fail: bool) -> Result<(), Error> {
        let command = self.end(fail);
        match self.shared.control("discharge", command).await? {
            DeliveryState::Rejected { error } => Err(Error::not_committed(error.map(|error| *error))),
            _ => Ok(()),
        }
    }

    /// Returns the command that ends the transaction. From here on, `drop` sends nothing. The broker rolls back a transaction whose command
    /// was never sent.
    fn end(&mut self, fail: bool) -> impl FnOnce(Reply<DeliveryState>) -> Command + use<> {
        self.is_over = true;
        let id = self.id.clone();
        let step_count = Some(self.step_count.load(Ordering::Relaxed));
        let unsent = std::mem::take(&mut self.unsent);
        move |reply| Command::Discharge(Discharge { id, fail, step_count, unsent, reply })
    }

    fn count_step(&self) {
        self.step_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns an error that names the mistake; the broker would only reject the unknown id.
    fn check(&self, shared: &Arc<Shared>) -> Result<(), Error> {
        if Arc::ptr_eq(&self.shared, shared) { Ok(()) } else { Err(Error::OtherConnection) }
    }
}

impl Drop for Transaction {
    /// Rolls the transaction back. If the command queue is full, the broker does so after its timeout.
    fn drop(&mut self) {
        if !self.is_over {
            let (reply, _) = tokio::sync::oneshot::channel();
            let command = self.end(true);
            let _ = self.shared.commands.try_send(command(reply));
        }
    }
}
