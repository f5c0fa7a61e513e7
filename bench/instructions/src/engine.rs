//! The queue engine alone: batches of messages are sent, locked and completed, and their facts are encoded.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Result, ensure};
use peeklock_engine::{Engine, EntityId, NewMessage, Output, ReceiveMode, ReceiverId, SessionWish, record};
use peeklock_types::{BodyRef, CommitGroupNumber, EntityName, QueueSettings, SubQueue, Timestamp};

use crate::counting::counted;
use crate::{COUNTED, WARM_UP};

const RECEIVER: ReceiverId = ReceiverId(1);
const BATCH: u32 = 100;
const SIZE_BYTES: u32 = 1024;

pub(crate) fn run() -> Result<u32> {
    let mut rig = Rig::new()?;
    rig.pass(WARM_UP)?;
    counted(|| rig.pass(COUNTED))
}

struct Rig {
    engine: Engine,
    queue: EntityId,
    out: Output,
    records: Vec<u8>,
    now: Timestamp,
    commit_group: CommitGroupNumber,
}

impl Rig {
    fn new() -> Result<Self> {
        let (mut engine, mut out) = (Engine::default(), Output::default());
        let now = Timestamp::from_millis(1_700_000_000_000);
        let queue =
            engine.create_queue(now, EntityName::parse("orders")?, QueueSettings::default(), &mut out)?;
        let mode = ReceiveMode::PeekLock;
        engine.attach_receiver(now, queue, SubQueue::Main, RECEIVER, mode, SessionWish::None)?;
        engine.add_window(RECEIVER, i64::MAX);
        Ok(Rig { engine, queue, out, records: Vec::new(), now, commit_group: CommitGroupNumber(1) })
    }

    /// Sends, locks and completes `count` messages, and returns the number of the completed ones.
    fn pass(&mut self, count: u32) -> Result<u32> {
        let mut completed = 0;
        while completed < count {
            self.out.clear();
            self.commit_group = self.commit_group.next();
            self.now = self.now + Duration::from_millis(1);
            self.send()?;
            completed += self.receive_and_complete()?;
            self.records.clear();
            self.out.facts.iter().for_each(|fact| record::encode(fact, self.commit_group, &mut self.records));
            black_box(&self.records);
        }
        Ok(completed)
    }

    fn send(&mut self) -> Result<()> {
        let place = |number| BodyRef::in_group(self.commit_group, number * SIZE_BYTES);
        let message =
            |number| Some(NewMessage { body: place(number)?, size_bytes: SIZE_BYTES, attributes: None });
        let batch: Vec<_> = (0..BATCH).filter_map(message).collect();
        self.engine.send(self.now, self.queue, batch, &mut self.out)?;
        Ok(())
    }

    fn receive_and_complete(&mut self) -> Result<u32> {
        self.engine.set_credit(RECEIVER, BATCH);
        let _more = self.engine.deliver(self.now, &mut || fastrand::u64(..), &mut self.out);
        let tokens: Vec<_> = self.out.deliveries.iter().map(|delivery| ((), delivery.token)).collect();
        let (queue, main, wanted, mut completed) = (self.queue, SubQueue::Main, tokens.len(), 0);
        self.engine.complete_each(self.now, queue, main, tokens, &mut self.out, |(), result| {
            completed += u32::from(result.is_ok());
        });
        ensure!(completed as usize == wanted, "{completed} of {wanted} messages were completed");
        Ok(completed)
    }
}
