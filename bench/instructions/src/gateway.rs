//! The gateway and the broker in memory, with a scripted client: everything between the bytes of a socket and the journal. Copies between
//! the ends of the pipe and the runtime's own instructions are counted, those of the client are not.

use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use peeklock_access::{Access, Policy, Right};
use peeklock_amqp::connection::{LinkId, SaslClient};
use peeklock_amqp::{BATCH_FORMAT, BatchBuilder, Encode, Message};
use peeklock_broker::{Broker, Clock, Running};
use peeklock_gateway_azure::Gateway;
use peeklock_journal::MemoryJournal;
use peeklock_types::{EntityName, HubSettings, QueueSettings, Timestamp};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::client::Client;
use crate::counting::counted;
use crate::{COUNTED, WARM_UP};

const QUEUE: &str = "orders";
const HUB: &str = "clicks";
const PARTITION: &str = "clicks/Partitions/0";
const READER: &str = "clicks/ConsumerGroups/$Default/Partitions/0";
const MESSAGE_BYTES: usize = 256;
const EVENT_BYTES: usize = 1024;
const EVENTS_PER_BATCH: u32 = 20;
/// The limit on messages between the send and the completion, and on events that a reader requests.
const IN_FLIGHT: u32 = 100;
/// The limit on batches of events that are not confirmed.
const BATCHES_UNCONFIRMED: u32 = 8;
const PIPE_BYTES: usize = 256 * 1024;
const KEY: &str = "secret";

/// Messages that are sent, delivered and completed.
pub(crate) fn queue() -> Result<u32> {
    let payload = Message::data(vec![b'x'; MESSAGE_BYTES]).with_message_id("script").to_bytes();
    let mut script = Script::start()?;
    script.queue()?;
    let sender = script.sender(QUEUE)?;
    script.client.receiver(QUEUE, IN_FLIGHT)?;
    script.pass(sender, &payload, WARM_UP)?;
    counted(|| script.pass(sender, &payload, COUNTED))
}

/// Batches of events that are sent to a partition and confirmed.
pub(crate) fn publish() -> Result<u32> {
    let (mut script, batch) = (Script::start()?, batch());
    script.hub()?;
    let sender = script.sender(PARTITION)?;
    script.publish(sender, &batch, WARM_UP)?;
    counted(|| script.publish(sender, &batch, COUNTED))
}

/// Events that wait in a partition and are read from its start.
pub(crate) fn read() -> Result<u32> {
    let (mut script, batch) = (Script::start()?, batch());
    script.hub()?;
    let sender = script.sender(PARTITION)?;
    script.publish(sender, &batch, WARM_UP + COUNTED + IN_FLIGHT)?;
    script.client.receiver(READER, IN_FLIGHT)?;
    script.read(WARM_UP)?;
    counted(|| script.read(COUNTED))
}

fn batch() -> Bytes {
    let event = Message::data(vec![b'x'; EVENT_BYTES]).to_bytes();
    let mut batch = BatchBuilder::new(usize::MAX);
    (0..EVENTS_PER_BATCH).for_each(|_| assert!(batch.try_add(&event), "the batch has no limit"));
    batch.finish()
}

/// A broker in memory with one connected client, on one thread and paused time.
struct Script {
    client: Client,
    broker: Broker,
    _running: Running,
    _stop: watch::Sender<bool>,
    // The last field, because it is dropped last: the others have tasks in it.
    runtime: Runtime,
}

impl Script {
    fn start() -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (broker, running) = runtime.block_on(open())?;
        let policy = Policy::with_one_key("all", KEY, &[Right::Manage]);
        let gateway = Arc::new(Gateway::new(broker.clone(), Access::open(None, vec![policy])?));
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let (stop, stopping) = watch::channel(false);
        runtime.spawn(async move { gateway.serve(far, None, stopping).await });
        let client = Client::new(near, SaslClient::plain("all", KEY))?;
        Ok(Script { client, broker, _running: running, _stop: stop, runtime })
    }

    fn queue(&self) -> Result<()> {
        let name = EntityName::parse(QUEUE)?;
        self.runtime.block_on(self.broker.create_queue(name, QueueSettings::default()))?;
        Ok(())
    }

    fn hub(&self) -> Result<()> {
        let settings = HubSettings { partition_count: 1, ..HubSettings::default() };
        self.runtime.block_on(self.broker.create_hub(EntityName::parse(HUB)?, settings, Vec::new()))?;
        Ok(())
    }

    fn sender(&mut self, address: &'static str) -> Result<LinkId> {
        self.runtime.block_on(self.client.sender(address))
    }

    /// Sends, receives and completes `count` messages.
    fn pass(&mut self, sender: LinkId, payload: &Bytes, count: u32) -> Result<u32> {
        let client = &mut self.client;
        let start = client.progress().completed;
        self.runtime.block_on(async {
            let mut sent = 0;
            loop {
                let completed = client.progress().completed - start;
                if completed >= count {
                    return Ok(completed);
                }
                let room = (count - sent).min(IN_FLIGHT - (sent - completed));
                sent += client.send(sender, 0, payload, room)?;
                client.turn().await?;
            }
        })
    }

    /// Sends batches with `count` events together.
    fn publish(&mut self, sender: LinkId, batch: &Bytes, count: u32) -> Result<u32> {
        let client = &mut self.client;
        let (start, count) = (client.progress().confirmed, count / EVENTS_PER_BATCH);
        self.runtime.block_on(async {
            let mut sent = 0;
            loop {
                let confirmed = client.progress().confirmed - start;
                if confirmed >= count {
                    return Ok(confirmed * EVENTS_PER_BATCH);
                }
                let room = (count - sent).min(BATCHES_UNCONFIRMED - (sent - confirmed));
                sent += client.send(sender, BATCH_FORMAT, batch, room)?;
                client.turn().await?;
            }
        })
    }

    /// Reads at least `count` events.
    fn read(&mut self, count: u32) -> Result<u32> {
        let client = &mut self.client;
        let start = client.progress().received;
        self.runtime.block_on(async {
            loop {
                let received = client.progress().received - start;
                if received >= count {
                    return Ok(received);
                }
                client.turn().await?;
            }
        })
    }
}

async fn open() -> Result<(Broker, Running)> {
    let clock = Clock::start_at(Timestamp::from_millis(1_700_000_000_000));
    let (broker, running, _) = Broker::open_at(&MemoryJournal::new(), clock, peeklock_message::describe)
        .await
        .context("no broker")?;
    Ok((broker, running))
}
