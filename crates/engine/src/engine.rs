use crate::*;
use peeklock_types::{
    BodyRef, EntityName, GroupNumber, LockToken, QueueSettings, SequenceNumber, SubQueue, Timestamp,
};
/// All queues of one shard.
#[derive(Debug, Default)]
pub struct Engine {}
/// How much one call of [`Engine::tick`] or [`Engine::deliver`] decides at most, so that its facts fit one journal group.
pub const FACTS_PER_CALL_MAX: usize = 4096;
impl Engine {
    pub fn create_queue(
        &mut self,
        now: Timestamp,
        name: EntityName,
        settings: QueueSettings,
        out: &mut Outbox,
    ) -> Result<EntityId, Error> {
        todo!()
    }
    pub fn delete_queue(&mut self, name: &EntityName, out: &mut Outbox) -> Result<EntityId, Error> {
        todo!()
    }
    pub fn find(&self, name: &EntityName) -> Option<EntityId> {
        todo!()
    }
    pub fn queue(&self, entity: EntityId) -> Option<QueueView<'_>> {
        todo!()
    }
    pub fn queues(&self) -> impl Iterator<Item = QueueView<'_>> {
        std::iter::empty()
    }
    pub fn send(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        messages: &[NewMessage],
        out: &mut Outbox,
    ) -> Result<SequenceNumber, Error> {
        todo!()
    }
    pub fn settle(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        todo!()
    }
    pub fn renew(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        out: &mut Outbox,
    ) -> Result<Vec<Timestamp>, Error> {
        todo!()
    }
    pub fn receive_deferred(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
        nonce: u64,
        out: &mut Outbox,
    ) -> Result<Vec<Received>, Error> {
        todo!()
    }
    pub fn peek(
        &self,
        entity: EntityId,
        sub_queue: SubQueue,
        from: SequenceNumber,
        max: usize,
    ) -> Result<Vec<Message>, Error> {
        todo!()
    }
    pub fn attach_receiver(
        &mut self,
        entity: EntityId,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        mode: ReceiveMode,
    ) -> Result<(), Error> {
        todo!()
    }
    /// Locks that the receiver holds stay until they run out.
    pub fn detach_receiver(&mut self, receiver: ReceiverId) {
        todo!()
    }
    pub fn set_credit(&mut self, receiver: ReceiverId, credit: u32) {
        todo!()
    }
    pub fn credit(&self, receiver: ReceiverId) -> u32 {
        todo!()
    }
    /// The receiver gets what there is up to its credit, then the rest of the credit is taken back: see `Outbox::drained`.
    pub fn drain(&mut self, receiver: ReceiverId) {
        todo!()
    }
    /// A receiver is served while credit and window are above zero; each message takes its size from the window. Starts at zero.
    pub fn add_window(&mut self, receiver: ReceiverId, bytes: i64) {
        todo!()
    }
    /// True: stopped at FACTS_PER_CALL_MAX, call again with the next group.
    #[must_use]
    pub fn deliver(&mut self, now: Timestamp, nonces: &mut dyn FnMut() -> u64, out: &mut Outbox) -> bool {
        todo!()
    }
    pub fn tick(&mut self, now: Timestamp, out: &mut Outbox) {
        todo!()
    }
    pub fn next_deadline(&self) -> Option<Timestamp> {
        todo!()
    }
    pub fn apply(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        todo!()
    }
    pub fn snapshot(&self) -> Vec<u8> {
        todo!()
    }
    pub fn restore(bytes: &[u8]) -> Result<Engine, DecodeError> {
        todo!()
    }
    pub fn oldest_log_body(&mut self) -> Option<GroupNumber> {
        todo!()
    }
    pub fn bodies_in(&mut self, what: Evacuate, max: usize) -> Vec<LiveBody> {
        todo!()
    }
    pub fn move_body(
        &mut self,
        entity: EntityId,
        sequence_number: SequenceNumber,
        from: BodyRef,
        to: BodyRef,
        out: &mut Outbox,
    ) -> bool {
        todo!()
    }
    pub fn cold_bodies(&self) -> impl Iterator<Item = ColdBody> {
        std::iter::empty()
    }
}
