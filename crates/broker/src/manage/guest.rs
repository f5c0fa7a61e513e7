//! A peer without a connection.

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::AdminError;
use crate::batch::{Batch, Peer};
use crate::broker::{Broker, ShardHandle, ShardStopped};
use crate::reply::Reply;
use crate::request::{Ask, Request};
use crate::shard::Envelope;

/// A peer of one shard for the duration of one call. Dropping it notifies the shard, also if the call was cancelled:
/// receivers of a peer stay attached until the shard gets that notice.
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

    /// Waits for the next replies.
    pub(crate) async fn replies(&mut self) -> Result<Vec<Reply>, ShardStopped> {
        self.replies.recv().await.ok_or(ShardStopped)
    }

    /// Waits for the answer to the one request of type `R` that was sent.
    pub(crate) async fn answer<R: Ask>(&mut self) -> Result<R::Answer, AdminError> {
        loop {
            for reply in self.replies().await? {
                match reply {
                    Reply::Answer(answer) => {
                        if let Some(answered) = R::answered(answer) {
                            return Ok(answered.result?);
                        }
                    }
                    Reply::Stopped { .. } => return Err(ShardStopped.into()),
                    Reply::Receiver(_) | Reply::Reader(_) | Reply::Kept { .. } => {}
                }
            }
        }
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
