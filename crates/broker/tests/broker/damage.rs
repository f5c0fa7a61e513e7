//! Tests of a disk that returns other bytes than were written: the damage is logged and counted, lost messages and
//! events are durably set aside, the others are served, and the log can reuse its space.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Rig, TestPeer, TestQueue};
use bytes::BufMut;
use peeklock_broker::engine::{PatchPart, ReceiveMode, Settlement};
use peeklock_broker::hubs::block::{Block, events};
use peeklock_broker::hubs::{HubView, ReaderEnd, ReaderSpec, StartAt};
use peeklock_broker::request::events::{Append, AttachReader};
use peeklock_broker::request::receiving::{Credit, Peek, Window};
use peeklock_broker::{Asked, Batch, Damage, Drain, Fence, Partition, ReaderReply, Reply, Ticket};
use peeklock_journal::BodyRange;
use peeklock_types::{
    CommitGroupNumber, ConsumerGroup, EntityName, ExpiredPosition, HubSettings, QueueSettings, ReceiverId,
    SequenceNumber, ShardId, SubQueue,
};

/// Sends these messages, each in its own commit group, and returns the groups.
async fn send(rig: &Rig, queue: &mut TestQueue<'_>, bodies: &[&[u8]]) -> Vec<CommitGroupNumber> {
    let mut groups = Vec::new();
    for body in bodies {
        queue.send(body).await;
        groups.push(rig.journal.newest_group(queue.shard_id()));
    }
    groups
}

async fn dead_letters(queue: &mut TestQueue<'_>) -> Vec<(u64, u32, String)> {
    let (entity, from) = (queue.entity, SequenceNumber(0));
    let sub_queue = SubQueue::DeadLetter;
    let peek = Peek { entity, sub_queue, from, count_max: 1000, session: None };
    let messages = queue.ask(peek).await.unwrap();
    let told = |message: peeklock_broker::Message| {
        let message = message.message;
        let reason = message.patch.parts.iter().find_map(|part| match part {
            PatchPart::DeadLetter { reason, .. } => reason.clone(),
            _ => None,
        });
        (message.sequence_number.0, message.size_bytes, reason.unwrap())
    };
    messages.into_iter().map(told).collect()
}

fn damaged(number: u64) -> (u64, u32, String) {
    (number, 0, "BodyDamaged".to_owned())
}

async fn evacuate(rig: &Rig, shard: ShardId) -> CommitGroupNumber {
    let upto = rig.journal.newest_group(shard);
    rig.journal.ask_move(shard, BodyRange::groups_upto(upto));
    tokio::time::sleep(Duration::from_secs(20)).await;
    upto
}

#[tokio::test(start_paused = true)]
async fn damaged_bodies_leave_the_log_as_dead_letters_and_others_are_unchanged() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    let bodies: Vec<Vec<u8>> = (0..40_u8).map(|number| vec![number; 10]).collect();
    let bodies: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
    let groups = send(&rig, &mut queue, &bodies).await;
    let shard = queue.shard_id();
    rig.journal.cool(shard);
    for at in [0, 17, 18, 39] {
        rig.journal.damage_group(shard, groups[at]);
    }
    let upto = evacuate(&rig, shard).await;
    assert!(rig.journal.trimmed(shard) >= upto, "the log is not trimmed");
    assert_eq!(rig.broker.damage(), Damage { message_count: 4, event_count: 0 });
    assert_eq!(dead_letters(&mut queue).await, [damaged(1), damaged(18), damaged(19), damaged(40)]);
    assert_eq!(queue.peek().await.len(), 36);
    let rig = rig.crash().await;
    let mut queue = rig.queue("orders").await;
    assert_eq!(dead_letters(&mut queue).await.len(), 4);
    let found = queue.peek().await;
    assert!(found.iter().all(|body| bodies.contains(&&body[..])) && found.len() == 36);
    evacuate(&rig, shard).await;
    assert_eq!(rig.broker.damage(), Damage::default(), "the damage is reported once");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_body_in_a_cold_segment_does_not_block_the_move_of_others() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    send(&rig, &mut queue, &[b"one"]).await;
    let shard = queue.shard_id();
    evacuate(&rig, shard).await;
    rig.journal.cool(shard);
    rig.journal.damage_standalone(shard);
    send(&rig, &mut queue, &[b"two"]).await;
    evacuate(&rig, shard).await;
    rig.journal.ask_move_standalone(shard);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(dead_letters(&mut queue).await, [damaged(1)]);
    assert_eq!(queue.peek().await, [&b"two"[..]]);
    assert_eq!(rig.broker.damage().message_count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_gets_the_next_message_in_place_of_a_damaged_one() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", QueueSettings::default()).await;
    let groups = send(&rig, &mut queue, &[b"one", b"two"]).await;
    rig.journal.cool(queue.shard_id());
    rig.journal.damage_group(queue.shard_id(), groups[0]);
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, body) = queue.delivery().await;
    assert_eq!(body, &b"two"[..], "the damaged message must not use up the receiver's credit");
    queue.settle(delivery.token, Settlement::Complete).await.unwrap();
    assert_eq!(dead_letters(&mut queue).await, [damaged(1)]);
    assert_eq!(rig.broker.damage().message_count, 1);
}

/// Empty bodies have places of their own, so none is moved or released in place of another.
#[tokio::test(start_paused = true)]
async fn bodies_that_are_lost_together_are_distinguished() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    let groups = send(&rig, &mut queue, &[b"one", b"two"]).await;
    let shard = queue.shard_id();
    rig.journal.cool(shard);
    groups.iter().for_each(|group| rig.journal.damage_group(shard, *group));
    assert_eq!(queue.peek().await.len(), 0, "a peek must also detect the damage");
    assert_eq!(dead_letters(&mut queue).await, [damaged(1), damaged(2)]);
    queue.send(b"three").await;
    evacuate(&rig, shard).await;
    assert_eq!(rig.journal.standalone_bytes(shard), 3 * 8);
    assert_eq!(dead_letters(&mut queue).await, [damaged(1), damaged(2)]);
    assert_eq!(queue.peek().await, [&b"three"[..]]);
    assert_eq!(rig.broker.damage().message_count, 2);
}

struct TestReader<'r> {
    rig: &'r Rig,
    shard: usize,
    partition: Partition,
    peer: TestPeer,
}

impl<'r> TestReader<'r> {
    fn of(rig: &'r Rig, hub: &HubView) -> Self {
        let shard = rig.broker.place_partition(&hub.name, 0);
        let partition = Partition { hub: hub.id, number: 0 };
        TestReader { rig, shard, partition, peer: TestPeer::of(&rig.broker) }
    }

    fn shard_id(&self) -> ShardId {
        ShardId(u16::try_from(self.shard).unwrap())
    }

    async fn ask(&self, batch: impl Into<Batch>) {
        let shard = self.rig.broker.shard(self.shard).unwrap();
        shard.send(self.peer.peer.clone(), batch.into()).await.unwrap();
    }

    /// Stores one event in its own commit group, and returns the group.
    async fn append(&mut self, number: u64) -> CommitGroupNumber {
        let mut block = Block::with_capacity(0);
        let written: Result<(), Infallible> = block.add(|out| {
            out.put_slice(&number.to_be_bytes());
            Ok(())
        });
        written.unwrap();
        let (ticket, partition) = (Ticket::new(1), self.partition);
        self.ask(Asked { ticket, request: Append { partition, block, producer: None } }).await;
        self.peer.answer::<Append>().await.unwrap();
        self.rig.journal.newest_group(self.shard_id())
    }

    async fn open(&mut self, local: u32, start: StartAt) -> ReceiverId {
        let receiver = self.peer.peer.id.receiver(local);
        let group = ConsumerGroup::default_group();
        let spec = Box::new(ReaderSpec { group, start, owner_level: None, hub_revision: 1, name: None });
        let (ticket, partition, fence) = (Ticket::new(2), self.partition, Fence::default());
        self.ask(Asked { ticket, request: AttachReader { partition, receiver, spec, fence } }).await;
        self.peer.answer::<AttachReader>().await.unwrap();
        self.ask(Window { receiver, size_bytes: 1 << 30 }).await;
        self.ask(Credit { receiver, limit: 1000, drain: Drain::Start }).await;
        receiver
    }

    /// Returns the numbers of all events up to the end, and the reason why the reader was ended, if it was.
    async fn read(&mut self) -> (Vec<u64>, Option<ReaderEnd>) {
        let mut found = Vec::new();
        loop {
            match self.peer.next().await {
                Reply::Reader(ReaderReply::Events(run)) => {
                    let all = run.extents.iter().flat_map(|extent| events(extent.clone(), run.from));
                    let all = all.map(|event| event.unwrap()).filter(|event| event.sequence < run.upto);
                    found.extend(all.map(|event| {
                        assert_eq!(event.bytes, &event.sequence.to_be_bytes()[..]);
                        event.sequence
                    }));
                }
                Reply::Reader(ReaderReply::Drained { .. }) => return (found, None),
                Reply::Reader(ReaderReply::Ended { reason, .. }) => return (found, Some(*reason)),
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn hub(rig: &Rig, expired_position: ExpiredPosition) -> HubView {
    let settings = HubSettings { partition_count: 1, expired_position, ..HubSettings::default() };
    rig.broker.create_hub(EntityName::parse("homes").unwrap(), settings, Vec::new()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn damaged_extents_leave_the_log_as_lost_and_others_are_unchanged() {
    let rig = Rig::start().await;
    let hub = hub(&rig, ExpiredPosition::Earliest).await;
    let mut reader = TestReader::of(&rig, &hub);
    let mut groups = Vec::new();
    for number in 0..40 {
        groups.push(reader.append(number).await);
    }
    let shard = reader.shard_id();
    rig.journal.cool(shard);
    for at in [0, 17, 18, 39] {
        rig.journal.damage_group(shard, groups[at]);
    }
    let upto = evacuate(&rig, shard).await;
    assert!(rig.journal.trimmed(shard) >= upto, "the log is not trimmed");
    assert_eq!(rig.broker.damage(), Damage { message_count: 0, event_count: 4 });
    let left: Vec<u64> = (0..40).filter(|number| ![0, 17, 18, 39].contains(number)).collect();
    reader.open(1, StartAt::Earliest).await;
    assert_eq!(reader.read().await, (left.clone(), None));
    let rig = rig.crash().await;
    let mut reader = TestReader::of(&rig, &hub);
    reader.open(1, StartAt::Earliest).await;
    assert_eq!(reader.read().await, (left, None));
    assert_eq!(rig.broker.damage(), Damage::default(), "the damage is reported once");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_reaches_damage_is_ended_with_the_lost_events() {
    let rig = Rig::start().await;
    let hub = hub(&rig, ExpiredPosition::Refuse).await;
    let mut reader = TestReader::of(&rig, &hub);
    reader.append(0).await;
    reader.append(1).await;
    let shard = reader.shard_id();
    let damaged = reader.append(2).await;
    reader.append(3).await;
    rig.journal.cool(shard);
    rig.journal.damage_group(shard, damaged);
    let lost = ReaderEnd::Lost { from: 2, upto: 3 };
    reader.open(1, StartAt::Earliest).await;
    assert_eq!(reader.read().await, (vec![0, 1], Some(lost.clone())));
    assert_eq!(rig.broker.damage().event_count, 1);
    reader.open(2, StartAt::Sequence { sequence: 1, inclusive: false }).await;
    assert_eq!(reader.read().await, (vec![], Some(lost)));
    reader.open(3, StartAt::Sequence { sequence: 3, inclusive: true }).await;
    assert_eq!(reader.read().await, (vec![3], None));
    assert_eq!(rig.broker.damage().event_count, 1, "the damage is reported once");
}
