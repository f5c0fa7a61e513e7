//! Tests of hubs in shards: events are visible only when they are durable, in order and once, through crash, gathering
//! and retention; a reader that loses its partition is fenced first; and a hub that spans several shards exists
//! completely or not at all.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{Rig, TestPeer};
use bytes::BufMut;
use peeklock_broker::hubs::block::{Block, events};
use peeklock_broker::hubs::{CheckpointBy, Error as Refused, HubView, ReaderEnd, ReaderSpec, StartAt};
use peeklock_broker::request::events::{Append, AttachReader};
use peeklock_broker::request::receiving::{Credit, Window};
use peeklock_broker::{
    AdminError, Asked, Batch, Drain, Error, Events, Fence, Partition, ReaderReply, Reply, Ticket,
};
use peeklock_journal::{BodyRange, MemoryJournal};
use peeklock_types::{
    CommitGroupNumber, ConsumerGroup, EntityName, HubSettings, Placement, QueueSettings, ReceiverId, ShardId,
};

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

fn default_group() -> ConsumerGroup {
    ConsumerGroup::default_group()
}

fn settings(partition_count: u32) -> HubSettings {
    HubSettings { partition_count, ..HubSettings::default() }
}

fn earliest() -> ReaderSpec {
    ReaderSpec {
        group: default_group(),
        start: StartAt::Earliest,
        owner_level: None,
        hub_revision: 1,
        name: None,
    }
}

fn refused(error: AdminError) -> Refused {
    match error {
        AdminError::Refused(Error::Hub(error)) => *error,
        other => panic!("{other}"),
    }
}

/// A peer of one partition.
struct Client<'r> {
    rig: &'r Rig,
    shard: usize,
    partition: Partition,
    peer: TestPeer,
}

impl<'r> Client<'r> {
    fn of(rig: &'r Rig, hub: &HubView, number: u32) -> Client<'r> {
        let shard = rig.broker.place_partition(&hub.name, number);
        Client { rig, shard, partition: Partition { hub: hub.id, number }, peer: TestPeer::of(&rig.broker) }
    }

    fn shard_id(&self) -> ShardId {
        ShardId(u16::try_from(self.shard).unwrap())
    }

    async fn ask(&self, batch: impl Into<Batch>) {
        let shard = self.rig.broker.shard(self.shard).unwrap();
        shard.send(self.peer.peer.clone(), batch.into()).await.unwrap();
    }

    async fn start_append(&self, bodies: &[String]) {
        let mut block = Block::with_capacity(0);
        for body in bodies {
            let written: Result<(), Infallible> = block.add(|out| {
                out.put_slice(body.as_bytes());
                Ok(())
            });
            written.unwrap();
        }
        let (ticket, partition) = (Ticket::new(1), self.partition);
        self.ask(Asked { ticket, request: Append { partition, block, producer: None } }).await;
    }

    async fn append(&mut self, range: std::ops::Range<u64>) {
        let bodies: Vec<_> = range.map(|number| format!("event {number}")).collect();
        self.start_append(&bodies).await;
        self.peer.answer::<Append>().await.unwrap();
    }

    async fn attach_with(&mut self, local: u32, spec: ReaderSpec) -> Result<(ReceiverId, Fence), Error> {
        let receiver = self.peer.peer.id.receiver(local);
        let (partition, spec, fence) = (self.partition, Box::new(spec), Fence::default());
        let request = AttachReader { partition, receiver, spec, fence: fence.clone() };
        self.ask(Asked { ticket: Ticket::new(2), request }).await;
        self.peer.answer::<AttachReader>().await?;
        self.ask(Window { receiver, size_bytes: 1 << 30 }).await;
        Ok((receiver, fence))
    }

    async fn attach(&mut self, local: u32, start: StartAt) -> ReceiverId {
        let spec =
            ReaderSpec { group: default_group(), start, owner_level: None, hub_revision: 1, name: None };
        self.attach_with(local, spec).await.unwrap().0
    }

    async fn credit(&self, receiver: ReceiverId, limit: u64) {
        self.ask(Credit { receiver, limit, drain: Drain::Keep }).await;
    }

    async fn events(&mut self) -> Box<Events> {
        match self.peer.next().await {
            Reply::Reader(ReaderReply::Events(events)) => events,
            other => panic!("expected events, got {other:?}"),
        }
    }

    /// Reads up to the event before `upto`, and checks each event.
    async fn read(&mut self, mut next: u64, upto: u64) {
        while next < upto {
            let run = self.events().await;
            assert_eq!(run.from, next);
            let found = run.extents.iter().flat_map(|extent| events(extent.clone(), run.from));
            for event in found.map(|event| event.unwrap()).filter(|event| event.sequence < run.upto) {
                assert_eq!(event.sequence, next);
                assert_eq!(event.bytes, format!("event {next}").as_bytes());
                next += 1;
            }
            assert_eq!(next, run.upto);
        }
        assert_eq!(next, upto);
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_read_in_order_and_again_after_a_crash() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(2), Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 1);
    client.append(0..3).await;
    client.append(3..4).await;
    let reader = client.attach(1, StartAt::Earliest).await;
    client.credit(reader, 2).await;
    client.read(0, 2).await;
    client.credit(reader, 100).await;
    client.read(2, 4).await;
    client.append(4..9).await;
    client.read(4, 9).await;
    let rig = rig.crash().await;
    assert_eq!(rig.broker.hub(name("homes")).await.unwrap(), hub);
    let mut client = Client::of(&rig, &hub, 1);
    client.append(9..12).await;
    let reader = client.attach(1, StartAt::Sequence { sequence: 3, inclusive: false }).await;
    client.credit(reader, 100).await;
    client.read(4, 12).await;
}

#[tokio::test(start_paused = true)]
async fn no_event_is_visible_before_it_is_durable() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(1), Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 0);
    let reader = client.attach(1, StartAt::Earliest).await;
    client.credit(reader, 100).await;
    client.append(0..1).await;
    client.read(0, 1).await;
    rig.journal.hold();
    client.start_append(&["event 1".to_owned()]).await;
    assert!(client.peer.stays_silent().await);
    rig.journal.release();
    client.peer.answer::<Append>().await.unwrap();
    client.read(1, 2).await;
    rig.journal.hold();
    client.start_append(&["lost".to_owned()]).await;
    assert!(client.peer.stays_silent().await);
    let rig = rig.crash().await;
    rig.journal.release();
    let mut client = Client::of(&rig, &hub, 0);
    client.append(2..3).await;
    let reader = client.attach(1, StartAt::Earliest).await;
    client.credit(reader, 100).await;
    client.read(0, 3).await;
}

#[tokio::test(start_paused = true)]
async fn gathered_events_are_read_unchanged() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(1), Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 0);
    for number in 0..50 {
        client.append(number * 2..number * 2 + 2).await;
    }
    let shard = client.shard_id();
    rig.journal.ask_move(shard, BodyRange::groups_upto(CommitGroupNumber(40)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(rig.journal.standalone_bytes(shard) > 0);
    let view = rig.broker.partition(&hub, 0, None).await.unwrap().view;
    assert!(view.extent_count < 20, "{view:?}");
    let rig = rig.crash().await;
    let mut client = Client::of(&rig, &hub, 0);
    let reader = client.attach(1, StartAt::Earliest).await;
    for limit in [1, 2, 7, 90, 100] {
        client.credit(reader, limit).await;
    }
    client.read(0, 100).await;
    client.append(100..101).await;
    client.credit(reader, 1000).await;
    client.read(100, 101).await;
}

#[tokio::test(start_paused = true)]
async fn events_older_than_the_retention_are_removed_and_their_space_is_released() {
    let rig = Rig::start().await;
    let short = HubSettings { retention: Some(Duration::from_secs(60)), ..settings(1) };
    let hub = rig.broker.create_hub(name("homes"), short, Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 0);
    client.append(0..10).await;
    let shard = client.shard_id();
    rig.journal.ask_move(shard, BodyRange::groups_upto(CommitGroupNumber(100)));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let cold_bytes = rig.journal.standalone_bytes(shard);
    client.append(10..12).await;
    let slow = client.attach(1, StartAt::Earliest).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let view = rig.broker.partition(&hub, 0, None).await.unwrap().view;
    assert_eq!((view.begin_sequence, view.next_sequence), (10, 12));
    assert!(rig.journal.standalone_bytes(shard) < cold_bytes);
    match client.peer.next().await {
        Reply::Reader(ReaderReply::Ended { receiver, reason }) => {
            assert_eq!((receiver, *reason), (slow, ReaderEnd::Expired { next: 0, first: 10 }));
        }
        other => panic!("{other:?}"),
    }
    let old = ReaderSpec {
        group: default_group(),
        start: StartAt::Sequence { sequence: 3, inclusive: false },
        owner_level: None,
        hub_revision: 1,
        name: None,
    };
    assert!(
        matches!(client.attach_with(2, old).await, Err(Error::Hub(error)) if matches!(*error, Refused::Expired { first: 10, .. }))
    );
    let reader = client.attach(3, StartAt::Sequence { sequence: 9, inclusive: false }).await;
    client.credit(reader, 100).await;
    client.read(10, 12).await;
}

#[tokio::test(start_paused = true)]
async fn the_old_reader_is_fenced_before_the_new_one_is_admitted() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(1), Vec::new()).await.unwrap();
    let (mut old, mut new) = (Client::of(&rig, &hub, 0), Client::of(&rig, &hub, 0));
    let spec = |level| ReaderSpec {
        group: default_group(),
        start: StartAt::Earliest,
        owner_level: Some(level),
        hub_revision: 1,
        name: Some(format!("reader {level}")),
    };
    let (reader, fence) = old.attach_with(1, spec(0)).await.unwrap();
    old.credit(reader, 100).await;
    assert!(!fence.is_closed());
    let (newer, _) = new.attach_with(1, spec(0)).await.unwrap();
    assert!(fence.is_closed());
    assert!(
        matches!(old.peer.next().await, Reply::Reader(ReaderReply::Ended { reason, .. }) if matches!(*reason, ReaderEnd::Stolen { level: 0, .. }))
    );
    new.credit(newer, 100).await;
    new.append(0..2).await;
    new.read(0, 2).await;
    assert!(old.peer.stays_silent().await);
    Client::of(&rig, &hub, 0).attach_with(1, spec(5)).await.unwrap();
    assert!(
        matches!(old.attach_with(2, spec(4)).await, Err(Error::Hub(error)) if matches!(*error, Refused::OwnerLevel { current: 5, .. }))
    );
}

#[tokio::test(start_paused = true)]
async fn a_hub_exists_completely_or_not_at_all() {
    let rig = Rig::start().await;
    let broker = &rig.broker;
    broker.create_queue(name("orders"), QueueSettings::default()).await.unwrap();
    let taken = broker.create_hub(name("orders"), settings(4), Vec::new()).await.unwrap_err();
    assert!(matches!(taken, AdminError::Refused(Error::NameTaken { is_hub: false, .. })), "{taken}");
    let audit = ConsumerGroup::parse("audit").unwrap();
    let hub = broker.create_hub(name("homes"), settings(20), vec![audit.clone()]).await.unwrap();
    assert_eq!(hub.groups.len(), 2);
    let taken = broker.create_queue(name("HOMES"), QueueSettings::default()).await.unwrap_err();
    assert!(matches!(taken, AdminError::Refused(Error::NameTaken { is_hub: true, .. })), "{taken}");
    let again = broker.create_hub(name("Homes"), settings(4), Vec::new()).await.unwrap_err();
    assert!(matches!(refused(again), Refused::HubExists { .. }));
    let fewer = broker.update_hub(name("homes"), settings(19), None).await.unwrap_err();
    assert!(matches!(refused(fewer), Refused::Settings(_)));
    let hub = broker.update_hub(name("homes"), settings(21), None).await.unwrap();
    assert_eq!(broker.partitions(&hub).await.unwrap().len(), 21);
    broker.delete_hub(name("homes"), None).await.unwrap();
    assert!(matches!(refused(broker.hub(name("homes")).await.unwrap_err()), Refused::NoSuchHub { .. }));
    assert!(matches!(
        refused(broker.partition(&hub, 3, None).await.unwrap_err()),
        Refused::NoSuchStream { .. }
    ));
    let anew = broker.create_hub(name("homes"), settings(2), Vec::new()).await.unwrap();
    assert_ne!(anew.id, hub.id);
}

#[tokio::test(start_paused = true)]
async fn ownership_and_checkpoints_survive_a_crash_and_determine_the_lag() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(2), Vec::new()).await.unwrap();
    Client::of(&rig, &hub, 0).append(0..10).await;
    let claim = |rig: &Rig, owner: &str, expected| {
        let (broker, owner) = (rig.broker.clone(), owner.to_owned());
        async move { broker.claim(name("homes"), default_group(), 0, owner, expected).await }
    };
    let first = claim(&rig, "a", None).await.unwrap();
    assert!(matches!(refused(claim(&rig, "b", None).await.unwrap_err()), Refused::StaleEtag { .. }));
    let second = claim(&rig, "b", Some(first.etag)).await.unwrap();
    assert!(second.epoch > first.epoch);
    let checkpoint = |rig: &Rig, sequence, owner: &str, epoch| {
        let (broker, owner) = (rig.broker.clone(), owner.to_owned());
        let by = CheckpointBy::Owner { owner, epoch };
        async move { broker.checkpoint(name("homes"), default_group(), 0, Some(sequence), by).await }
    };
    let zombie = checkpoint(&rig, 5, "a", first.epoch).await.unwrap_err();
    assert!(matches!(refused(zombie), Refused::NotOwner { .. }));
    let beyond = checkpoint(&rig, 10, "b", second.epoch).await.unwrap_err();
    assert!(matches!(refused(beyond), Refused::BeyondEnd { last: 9, .. }));
    checkpoint(&rig, 6, "b", second.epoch).await.unwrap();
    let back = checkpoint(&rig, 5, "b", second.epoch).await.unwrap_err();
    assert!(matches!(refused(back), Refused::Backwards { current: 6, found: 5, .. }));
    let rig = rig.crash().await;
    assert_eq!(rig.broker.ownerships(name("homes"), default_group()).await.unwrap(), [second]);
    let lags = rig.broker.lag(name("homes"), default_group()).await.unwrap();
    assert_eq!(lags.iter().map(|lag| lag.events).collect::<Vec<_>>(), [3, 0]);
    assert!(lags[0].oldest_at.is_some() && lags[1].oldest_at.is_none());
    let reset = CheckpointBy::Reset;
    rig.broker.checkpoint(name("homes"), default_group(), 0, Some(1), reset).await.unwrap();
    assert_eq!(rig.broker.lag(name("homes"), default_group()).await.unwrap()[0].events, 8);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_contains_hubs_and_queues() {
    let journal = MemoryJournal::new();
    let rig = Rig::start_with(journal).await;
    let hub = rig.broker.create_hub(name("homes"), settings(8), Vec::new()).await.unwrap();
    for number in 0..8 {
        Client::of(&rig, &hub, number).append(0..5).await;
    }
    rig.queue("orders").await.send(b"one").await;
    for shard in 0..Placement::SHARD_COUNT_DEFAULT {
        rig.journal.ask_snapshot(ShardId(shard));
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let rig = rig.crash().await;
    assert_eq!(rig.queue("orders").await.peek().await.len(), 1);
    for number in 0..8 {
        let mut client = Client::of(&rig, &hub, number);
        client.append(5..6).await;
        let reader = client.attach(1, StartAt::Earliest).await;
        client.credit(reader, 100).await;
        client.read(0, 6).await;
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_looks_at_events_do_not_disturb_each_other_and_leave_no_reader() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(1), Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 0);
    client.append(0..3).await;
    rig.journal.hold();
    client.start_append(&["event 3".to_owned()]).await;
    for _ in 0..8 {
        let look = rig.broker.read_events(&hub, 0, StartAt::Earliest, 10);
        assert!(
            tokio::time::timeout(Duration::from_secs(1), look).await.is_err(),
            "the read waits for the disk"
        );
    }
    let mut looks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (broker, hub) = (rig.broker.clone(), hub.clone());
        looks.spawn(async move { broker.read_events(&hub, 0, StartAt::Earliest, 10).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.journal.release();
    client.peer.answer::<Append>().await.unwrap();
    while let Some(found) = looks.join_next().await {
        assert_eq!(found.unwrap().unwrap().len(), 4);
    }
    let view = rig.broker.partition(&hub, 0, None).await.unwrap().view;
    assert_eq!(view.readers, [], "the reader of a cancelled call is detached");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_hub_runs_to_its_end_even_if_its_caller_is_cancelled() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(4), Vec::new()).await.unwrap();
    rig.journal.hold();
    let deleting = rig.broker.delete_hub(name("homes"), None);
    assert!(tokio::time::timeout(Duration::from_secs(1), deleting).await.is_err());
    rig.journal.release();
    let again = rig.broker.create_hub(name("homes"), settings(4), Vec::new()).await.unwrap();
    for number in 0..4 {
        let spec = ReaderSpec {
            group: default_group(),
            start: StartAt::Earliest,
            owner_level: None,
            hub_revision: 1,
            name: None,
        };
        assert!(Client::of(&rig, &hub, number).attach_with(1, spec.clone()).await.is_err());
        Client::of(&rig, &again, number).attach_with(1, spec).await.unwrap();
    }
}

/// If the disk fails once or twice, the reader continues after a pause. If the disk fails permanently, the reader is
/// ended with an error.
#[tokio::test(start_paused = true)]
async fn a_failed_read_is_retried_for_a_while() {
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(1), Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 0);
    client.append(0..3).await;
    let shard = client.shard_id();
    rig.journal.cool(shard);
    rig.journal.fail_reads(shard, 3);
    let reader = client.attach(1, StartAt::Earliest).await;
    client.credit(reader, 100).await;
    client.read(0, 3).await;
    assert_eq!(rig.journal.failing_reads(shard), 0);
    rig.journal.fail_reads(shard, 1000);
    let unlucky = client.attach(2, StartAt::Earliest).await;
    let queue_before = tokio::time::Instant::now();
    client.append(3..4).await;
    client.credit(unlucky, 100).await;
    let mut ended = Vec::new();
    for _ in 0..2 {
        match client.peer.next().await {
            Reply::Reader(ReaderReply::Ended { receiver, reason }) => ended.push((receiver, *reason)),
            other => panic!("{other:?}"),
        }
    }
    ended.sort_by_key(|(receiver, _)| *receiver);
    let unreadable = |from| ReaderEnd::Unreadable { from };
    assert_eq!(ended, [(reader, unreadable(3)), (unlucky, unreadable(0))]);
    assert!(queue_before.elapsed() < Duration::from_secs(5), "the reader must be ended soon");
    rig.journal.fail_reads(shard, 0);
    let again = client.attach(3, StartAt::Earliest).await;
    client.credit(again, 100).await;
    client.read(0, 4).await;
}

/// The limit on concurrent reads also holds when many readers wait for the same group to become durable.
#[tokio::test(start_paused = true)]
async fn runs_that_become_durable_together_are_read_a_few_at_a_time() {
    const READS_MAX: usize = 16;
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(1), Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 0);
    let shard = client.shard_id();
    rig.journal.cool(shard);
    let mut readers = Vec::new();
    for local in 1..=5 {
        for group in 0..8 {
            let group = ConsumerGroup::parse(&format!("group{group}")).unwrap();
            let spec = ReaderSpec { group, ..earliest() };
            let (reader, _) =
                client.attach_with(local * 8 + u32::try_from(readers.len()).unwrap(), spec).await.unwrap();
            client.credit(reader, 100).await;
            readers.push(reader);
        }
    }
    rig.journal.hold_reads(shard, true);
    // Each reader waits in the line of its stream, and the first event wakes it.
    for number in 0..3 {
        client.append(number..number + 1).await;
    }
    assert!(client.peer.stays_silent().await);
    rig.journal.hold_reads(shard, false);
    let mut found = std::collections::BTreeMap::new();
    while found.values().filter(|upto| **upto == 3).count() < readers.len() {
        let run = client.events().await;
        let next = found.entry(run.receiver).or_insert(0);
        assert_eq!(run.from, *next);
        *next = run.upto;
    }
    assert!(rig.journal.reading_count_max(shard) <= READS_MAX, "{}", rig.journal.reading_count_max(shard));
}

/// For readers that take a few events at a time, far from each other, the bytes read are close to the bytes taken.
/// Whole extents are not read.
#[tokio::test(start_paused = true)]
async fn small_steps_do_not_read_whole_extents() {
    const EVENT_BYTES: usize = 1000;
    let (reader_count, rounds, step) = (12_u64, 8_u64, 10_u64);
    let rig = Rig::start().await;
    let hub = rig.broker.create_hub(name("homes"), settings(1), Vec::new()).await.unwrap();
    let mut client = Client::of(&rig, &hub, 0);
    let body = |number: u64| format!("event {number:EVENT_BYTES$}");
    for batch in 0..60_u64 {
        client.start_append(&(batch * 100..batch * 100 + 100).map(body).collect::<Vec<_>>()).await;
        client.peer.answer::<Append>().await.unwrap();
    }
    let shard = client.shard_id();
    rig.journal.ask_move(shard, BodyRange::groups_upto(rig.journal.newest_group(shard)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    rig.journal.cool(shard);
    let extents = rig.broker.partition(&hub, 0, None).await.unwrap().view.extent_count;
    assert!((10..20).contains(&extents), "{extents}");
    let mut readers = Vec::new();
    for at in 0..reader_count {
        let group = ConsumerGroup::parse(&format!("group{at}")).unwrap();
        let start = StartAt::Sequence { sequence: at * 500 + 7, inclusive: true };
        let spec = ReaderSpec { group, start, ..earliest() };
        let (reader, _) = client.attach_with(u32::try_from(at).unwrap() + 1, spec).await.unwrap();
        readers.push((reader, at * 500 + 7));
    }
    let mut first_round = 0;
    for round in 0..rounds {
        for (reader, next) in &mut readers {
            client.credit(*reader, (round + 1) * step).await;
            let end = *next + step;
            while *next < end {
                let run = client.events().await;
                assert_eq!((run.receiver, run.from), (*reader, *next));
                let found = run.extents.iter().flat_map(|extent| events(extent.clone(), run.from));
                for event in found.map(|event| event.unwrap()).filter(|event| event.sequence < run.upto) {
                    assert_eq!((event.sequence, &event.bytes[..]), (*next, body(*next).as_bytes()));
                    *next += 1;
                }
                assert_eq!(*next, run.upto);
            }
        }
        if round == 0 {
            first_round = rig.journal.read_bytes(shard);
        }
    }
    let later = rig.journal.read_bytes(shard) - first_round;
    let taken = reader_count * (rounds - 1) * step * EVENT_BYTES as u64;
    assert!(later < 5 * taken, "{later} bytes were read for {taken}");
}
