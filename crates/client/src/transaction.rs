//! Transactions: sends and settlements that take effect together or not at all.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::{DeliveryState, Encode, Message, Value};
use peeklock_types::LockToken;

use crate::driver::command::{Command, Reply};
use crate::error::{Error, MalformedReason};
use crate::management::Management;
use crate::outcome::Outcome;
use crate::receiver::Delivery;
use crate::sender::Sender;
use crate::shared::Shared;

/// Descriptors of the two requests to a coordinator, AMQP 1.0 §4.5.
const DECLARE: u64 = 0x31;
const DISCHARGE: u64 = 0x32;

/// Sends and settlements that take effect together with [`Transaction::commit`], or not at all.
///
/// A transaction can send to any queues, but its settlements must be of messages of one queue. After a rollback, a message that was settled
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
    is_over: bool,
}

impl Transaction {
    pub(crate) async fn declare(shared: Arc<Shared>) -> Result<Self, Error> {
        let request = request(DECLARE, Vec::new());
        match shared.control("declare", |reply| Command::Control { request, reply }).await? {
            DeliveryState::Declared { txn_id } => Ok(Self { shared, id: txn_id, is_over: false }),
            DeliveryState::Rejected { error } => Err(Error::not_committed(error.map(|error| *error))),
            _ => Err(Error::malformed(
                &"$coordinator".into(),
                MalformedReason::Missing("the transaction's id"),
            )),
        }
    }

    /// Sends one message when the transaction is committed.
    pub async fn send(&self, sender: &Sender, message: &Message) -> Result<(), Error> {
        self.check(sender.shared())?;
        sender.send_in(&self.id, message).await
    }

    /// Sends messages as one delivery when the transaction is committed.
    pub async fn send_batch(&self, sender: &Sender, messages: &[Message]) -> Result<(), Error> {
        self.check(sender.shared())?;
        sender.send_batch_in(&self.id, messages).await
    }

    /// Completes a message when the transaction is committed.
    pub async fn complete(&self, delivery: Delivery) -> Result<(), Error> {
        self.settle(delivery, Outcome::Complete).await
    }

    /// Settles a message when the transaction is committed. An error means that the lock is lost; the transaction can then only be rolled
    /// back.
    pub async fn settle(&self, delivery: Delivery, outcome: Outcome) -> Result<(), Error> {
        self.check(delivery.shared())?;
        delivery.settle_in(&self.id, outcome).await
    }

    /// Settles messages by their lock tokens when the transaction is committed, for messages that were not received over a link.
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
        let command = discharge(&self.id, fail);
        // From here on, `drop` sends nothing. The broker rolls back a transaction whose request was never sent.
        self.is_over = true;
        match self.shared.control("discharge", command).await? {
            DeliveryState::Rejected { error } => Err(Error::not_committed(error.map(|error| *error))),
            _ => Ok(()),
        }
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
            let _ = self.shared.commands.try_send(discharge(&self.id, true)(reply));
        }
    }
}

fn discharge(id: &Bytes, fail: bool) -> impl FnOnce(Reply<DeliveryState>) -> Command + use<> {
    let request = request(DISCHARGE, vec![id.clone().into(), fail.into()]);
    |reply| Command::Control { request, reply }
}

fn request(descriptor: u64, fields: Vec<Value>) -> Bytes {
    Message::value(Value::described(descriptor, fields)).to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_amqp::{Declare, Discharge, Sections};

    #[test]
    fn requests_have_the_form_of_the_coordinator() {
        let declare = request(DECLARE, Vec::new());
        let sections = Sections::scan(&declare).unwrap();
        assert_eq!(sections.value().unwrap().decode_as::<Declare>(), Ok(Declare::default()));
        let id = Bytes::from_static(b"7");
        let discharge = request(DISCHARGE, vec![id.clone().into(), true.into()]);
        let sections = Sections::scan(&discharge).unwrap();
        let expected = Discharge { txn_id: id, fail: Some(true) };
        assert_eq!(sections.value().unwrap().decode_as::<Discharge>(), Ok(expected));
    }
}
