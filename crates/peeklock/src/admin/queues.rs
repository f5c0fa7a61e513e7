//! Queues.

use peeklock_client::{AdminError, ExplainedMessage, QueueInfo, SequenceNumber};

use super::{Admin, Queue, entity};
use crate::error::Error;

impl Admin {
    /// Creates a queue. If the name is taken, the error is of the kind [`Exists`](crate::Kind::Exists).
    ///
    /// ```no_run
    /// # async fn example(admin: peeklock::admin::Admin) -> Result<(), peeklock::Error> {
    /// use peeklock::admin::Queue;
    ///
    /// admin.create_queue("orders", Queue::new()).await?;
    /// admin.create_queue("tables", Queue::new().sessions(true).max_delivery_count(3)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_queue(&self, name: &str, queue: impl Into<Queue>) -> Result<QueueInfo, Error> {
        let (name, spec) = (entity(name)?, queue.into().checked()?);
        attempts!(self, Always, |admin, is_repeated| {
            match admin.create_queue(&name, &spec).await {
                // The earlier attempt has created it.
                Err(AdminError::Exists { .. }) if is_repeated => admin.queue(&name).await,
                created => created,
            }
        })
    }

    /// Changes the settings that `changes` has; the others keep their values.
    pub async fn update_queue(&self, name: &str, changes: impl Into<Queue>) -> Result<QueueInfo, Error> {
        let (name, spec) = (entity(name)?, changes.into().checked()?);
        attempts!(self, Always, |admin| admin.update_queue(&name, &spec).await)
    }

    /// Like [`update_queue`](Self::update_queue), but fails with the kind [`Changed`](crate::Kind::Changed) if the queue has another revision
    /// than `history.revision` of a [`QueueInfo`]. For changes that depend on the previous settings.
    pub async fn update_queue_at(
        &self,
        name: &str,
        revision: u64,
        changes: impl Into<Queue>,
    ) -> Result<QueueInfo, Error> {
        let (name, spec) = (entity(name)?, changes.into().checked()?);
        attempts!(self, Unsent, |admin| admin.update_queue_at(&name, revision, &spec).await)
    }

    /// Returns a queue with its settings, counts and the state of its classes.
    pub async fn queue(&self, name: &str) -> Result<QueueInfo, Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin| admin.queue(&name).await)
    }

    /// Lists all queues by name.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>, Error> {
        attempts!(self, Always, |admin| admin.queues().await)
    }

    /// Deletes a queue with its messages.
    pub async fn delete_queue(&self, name: &str) -> Result<(), Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.delete_queue(&name).await {
                // The earlier attempt has deleted it.
                Err(AdminError::NotFound { .. }) if is_repeated => Ok(()),
                deleted => deleted,
            }
        })
    }

    /// Returns why a message of a queue or subscription has not been received yet, and which messages are ahead of it.
    pub async fn explain_message(
        &self,
        name: &str,
        number: SequenceNumber,
    ) -> Result<ExplainedMessage, Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin| admin.explain_message(&name, number).await)
    }
}
