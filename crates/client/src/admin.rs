//! Creating, changing, listing, purging and deleting queues.

use std::sync::Arc;

use peeklock_amqp::Value;
use peeklock_types::{EntityName, QueueSettings, Timestamp};

use crate::error::Error;
use crate::management::Management;
use crate::settings::{self, Setting};
use crate::shared::Shared;

/// Manages the queues of a namespace. Needs a key with the Manage right.
///
/// ```no_run
/// # async fn example(client: peeklock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use peeklock_client::{EntityName, QueueSettings};
///
/// client.admin().create_queue(&EntityName::parse("orders")?, &QueueSettings::default()).await?;
/// for queue in client.admin().list_queues().await? {
///     println!("{}: {} waiting", queue.name, queue.active_count);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    shared: Arc<Shared>,
}

/// A queue as the broker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    pub name: String,
    pub settings: QueueSettings,
    /// Waiting to be received.
    pub active_count: u64,
    /// Held by a receiver.
    pub locked_count: u64,
    pub deferred_count: u64,
    /// Not yet available.
    pub scheduled_count: u64,
    pub dead_letter_count: u64,
    /// On their way to the queue that this one forwards to.
    pub transfer_count: u64,
    /// Those that could not be forwarded.
    pub transfer_dead_letter_count: u64,
    pub size_bytes: u64,
}

impl Admin {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Creates a queue; one that is there already is an error with status 409.
    pub async fn create_queue(&self, name: &EntityName, settings: &QueueSettings) -> Result<(), Error> {
        self.call("peeklock:create-queue", name.as_str(), body(name, &Setting::all(settings)))
            .await
            .map(|_| ())
    }

    /// Changes these settings of a queue and leaves the others as they are.
    pub async fn update_queue(&self, name: &EntityName, changes: &[Setting]) -> Result<(), Error> {
        self.call("peeklock:update-queue", name.as_str(), body(name, changes)).await.map(|_| ())
    }

    /// Removes all messages of a queue or sub-queue (`orders/$DeadLetterQueue`), or those that were enqueued before a time; how many.
    /// Messages that a receiver holds stay, and so do scheduled ones. Needs the Listen right only.
    pub async fn purge(&self, entity: &str, before: Option<Timestamp>) -> Result<u64, Error> {
        Management::open(&self.shared, entity).await?.purge(before).await
    }

    /// Deletes a queue with everything in it; one that is not there is [`Error::NotFound`].
    pub async fn delete_queue(&self, name: &EntityName) -> Result<(), Error> {
        self.call("peeklock:delete-queue", name.as_str(), vec![name_entry(name)]).await.map(|_| ())
    }

    pub async fn list_queues(&self) -> Result<Vec<QueueInfo>, Error> {
        self.call("peeklock:list-queues", "$management", Vec::new()).await
    }

    pub async fn show_queue(&self, name: &EntityName) -> Result<QueueInfo, Error> {
        let queues = self.call("peeklock:show-queue", name.as_str(), vec![name_entry(name)]).await?;
        queues.into_iter().next().ok_or_else(|| Error::NotFound { entity: name.as_str().into() })
    }

    /// `about` is what an error speaks of: the namespace itself has no name that would mean anything to a reader.
    async fn call(
        &self,
        operation: &str,
        about: &str,
        body: Vec<(Value, Value)>,
    ) -> Result<Vec<QueueInfo>, Error> {
        let management = Management::open(&self.shared, "").await?;
        let response = management.call(operation, body).await.map_err(|error| error.about(about))?;
        let queues = response.lookup("queues").and_then(Value::as_elements).unwrap_or_default();
        queues
            .iter()
            .map(queue_info)
            .collect::<Option<_>>()
            .ok_or_else(|| management.missing("a field of a queue"))
    }
}

fn name_entry(name: &EntityName) -> (Value, Value) {
    ("name".into(), name.as_str().to_owned().into())
}

fn body(name: &EntityName, settings: &[Setting]) -> Vec<(Value, Value)> {
    let mut body = vec![name_entry(name)];
    settings.iter().for_each(|setting| setting.encode(&mut body));
    body
}

fn queue_info(value: &Value) -> Option<QueueInfo> {
    let number = |key: &str| value.lookup(key).and_then(Value::as_u64);
    Some(QueueInfo {
        name: value.lookup("name")?.as_str()?.to_owned(),
        settings: settings::decode(value)?,
        active_count: number("active-count")?,
        locked_count: number("locked-count")?,
        deferred_count: number("deferred-count")?,
        scheduled_count: number("scheduled-count")?,
        dead_letter_count: number("dead-letter-count")?,
        transfer_count: number("transfer-count")?,
        transfer_dead_letter_count: number("transfer-dead-letter-count")?,
        size_bytes: number("size-bytes")?,
    })
}
