use std::future::{Future, ready};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{Shard, Store, locked};
use crate::{BodyError, LargeBodies, LargeBody, Space, StoredBody};

/// Writes large bodies of one shard of a [`MemoryJournal`](super::MemoryJournal).
#[derive(Clone, Debug)]
pub struct MemoryLargeBodies {
    pub(super) store: Arc<Store>,
    pub(super) shard: Arc<Shard>,
    pub(super) epoch: u64,
}

impl MemoryLargeBodies {
    fn check(&self) -> Result<(), BodyError> {
        if locked(&self.store.settings).space != Space::Enough {
            return Err(BodyError::NoSpace("new messages are rejected".to_owned()));
        }
        Ok(locked(&self.shard.state).check(self.epoch)?)
    }
}

impl LargeBodies for MemoryLargeBodies {
    type Body = MemoryLargeBody;

    fn start(&self) -> impl Future<Output = Result<MemoryLargeBody, BodyError>> + Send + 'static {
        let body = || MemoryLargeBody { bodies: self.clone(), bytes: Some(BytesMut::new()) };
        ready(self.check().map(|()| body()))
    }
}

/// A large body while it is written.
#[derive(Debug)]
pub struct MemoryLargeBody {
    bodies: MemoryLargeBodies,
    /// `None` after an error.
    bytes: Option<BytesMut>,
}

impl MemoryLargeBody {
    fn add(&mut self, pieces: &[Bytes]) -> Result<(), BodyError> {
        let mut bytes = self.bytes.take().ok_or(BodyError::Lost)?;
        self.bodies.check()?;
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        self.bytes = Some(bytes);
        Ok(())
    }

    fn keep(self) -> Result<StoredBody, BodyError> {
        let bytes = self.bytes.ok_or(BodyError::Lost)?.freeze();
        let too_large = |_| BodyError::TooLarge { limit_bytes: u32::MAX };
        u32::try_from(bytes.len()).map_err(too_large)?;
        let mut state = locked(&self.bodies.shard.state);
        state.check(self.bodies.epoch)?;
        Ok(state.standalone.push_alone(bytes))
    }
}

impl LargeBody for MemoryLargeBody {
    fn write(&mut self, pieces: Vec<Bytes>) -> impl Future<Output = Result<(), BodyError>> + Send {
        ready(self.add(&pieces))
    }

    fn finish(self) -> impl Future<Output = Result<StoredBody, BodyError>> + Send {
        ready(self.keep())
    }
}
