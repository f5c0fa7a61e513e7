//! Whoever asks a shard without a connection.

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::batch::{Batch, Peer};
use crate::broker::{Broker, ShardHandle, ShardStopped};
use crate::reply::Reply;
use crate::request::Request;
use crate::shard::Envelope;

/// A peer of one shard for as long as a question takes. The shard hears when it goes, also if whoever asked has lost patience: nobody else would
/// ever say so, and what a peer has attached there stays until it goes.
pub(crate) struct Guest {
    pub(crate) peer: Peer,
    replies: mpsc::UnboundedReceiver<Vec<Reply>>,
    shard: ShardHandle,
}

impl Guest {
    pub(crate) fn new(broker: &Broker, shard: usize) -> Result<Self, ShardStopped> {
        let shard = broker.shard(shard).ok_or(ShardStopped)?.clone();
        let (peer, replies) = broker.peer();
        Ok(Guest { peer, replies, shard })
    }

    pub(crate) async fn send(&self, batch: Batch) -> Result<(), ShardStopped> {
        self.shard.send(self.peer.clone(), batch).await
    }

    /// What the shard has said since the last time; waits until it says something.
    pub(crate) async fn replies(&mut self) -> Result<Vec<Reply>, ShardStopped> {
        self.replies.recv().await.ok_or(ShardStopped)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let gone = Envelope { peer: self.peer.clone(), batch: Batch::from(Request::Gone), place: None };
        if let Err(TrySendError::Full(gone)) = self.shard.incoming.try_send(gone)
            && let Ok(runtime) = Handle::try_current()
        {
            let incoming = self.shard.incoming.clone();
            runtime.spawn(async move { incoming.send(gone).await.is_ok() });
        }
    }
}
