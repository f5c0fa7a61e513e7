//! Peeklock, with its own client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use peeklock_client::{Client, Encode, EntityName, Message, Outcome, Pipeline, QueueSpec};
use tokio::task::JoinSet;

use super::peer::{Deliveries, Peer, Receiver, Sender, UNCONFIRMED_MAX, credit, queue_name, version_of};
use crate::broker::{self, Broker};
use crate::process::Process;

const RECEIVED_AT_ONCE: usize = 256;

pub(crate) struct Peeklock(Broker);

impl Peer for Peeklock {
    type Sender = Pipelines;
    type Receiver = Receivers;

    async fn start(data: PathBuf, queue_count: usize) -> Result<Self> {
        let broker = Broker::start_with(&data, &[])?;
        let mut admin = broker.admin()?;
        for queue in 0..queue_count {
            admin.create_queue(&EntityName::parse(&queue_name(queue))?, &QueueSpec::default()).await?;
        }
        Ok(Peeklock(broker))
    }

    async fn restart(self) -> Result<(Self, Instant)> {
        let broker = self.0.restart(&[])?;
        let started = Instant::now().checked_sub(broker.ready_after).unwrap_or_else(Instant::now);
        Ok((Peeklock(broker), started))
    }

    fn version(&self) -> Result<String> {
        version_of(&broker::binary()?.display().to_string(), "peeklock ")
    }

    fn process(&self) -> &Process {
        self.0.process()
    }

    fn encode(body: &[u8]) -> Bytes {
        Message::data(body.to_vec()).to_bytes()
    }

    async fn sender(&self, queues: Vec<usize>) -> Result<Pipelines> {
        let client = self.0.connect().await?;
        // The pipelines of one sender together have as many messages in flight as a sender of another peer.
        let unconfirmed_max = u32::try_from((UNCONFIRMED_MAX / queues.len()).max(1))?;
        let mut pipelines = Vec::with_capacity(queues.len());
        for queue in queues {
            pipelines.push(client.pipeline(&queue_name(queue), unconfirmed_max).await?);
        }
        Ok(Pipelines { _client: client, pipelines, next: 0 })
    }

    async fn receiver(&self, queues: Vec<usize>) -> Result<Receivers> {
        let client = self.0.connect().await?;
        let credit = u32::try_from(credit(queues.len()))?;
        let mut receivers = Vec::with_capacity(queues.len());
        for queue in queues {
            receivers.push(client.receiver(&queue_name(queue)).credit(credit).open().await?);
        }
        Ok(Receivers { _client: client, receivers })
    }
}

/// A connection with a pipeline for each queue.
pub(crate) struct Pipelines {
    /// Keeps the connection open.
    _client: Client,
    pipelines: Vec<Pipeline>,
    next: usize,
}

impl Sender for Pipelines {
    async fn send(&mut self, message: &Bytes, count: usize) -> Result<()> {
        if let [pipeline] = self.pipelines.as_mut_slice() {
            return Ok(pipeline.send_many_encoded(std::iter::repeat_n(message.clone(), count)).await?);
        }
        for _ in 0..count {
            self.pipelines[self.next].send_encoded(message.clone()).await?;
            self.next = (self.next + 1) % self.pipelines.len();
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        for pipeline in &mut self.pipelines {
            pipeline.flush().await?;
        }
        Ok(())
    }
}

/// A connection with a receiver for each queue.
pub(crate) struct Receivers {
    /// Keeps the connection open.
    _client: Client,
    receivers: Vec<peeklock_client::Receiver>,
}

impl Receiver for Receivers {
    async fn run(self, deliveries: Arc<Deliveries>) -> Result<()> {
        let mut tasks = JoinSet::new();
        for receiver in self.receivers {
            tasks.spawn(receive(receiver, Arc::clone(&deliveries)));
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }
}

async fn receive(mut receiver: peeklock_client::Receiver, deliveries: Arc<Deliveries>) -> Result<()> {
    let mut received = Vec::new();
    let mut counted = 0;
    loop {
        receiver.next_many(&mut received, RECEIVED_AT_ONCE).await?;
        received.iter().for_each(|delivery| deliveries.delivered(delivery.payload()));
        receiver.settle_many(received.drain(..), Outcome::Complete).await?;
        let confirmed = receiver.confirmed_count();
        deliveries.acknowledged(confirmed - counted);
        counted = confirmed;
    }
}
