//! Records and snapshots come from a disk: what was written comes back equal, and no bytes whatever make the engine panic or trust them.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{DecodeError, Engine, EntityId, Fact, Patch, PatchPart, ReplayError, record};
use peeklock_types::{BodyRef, EntityName, GroupNumber, QueueSettings, SequenceNumber, SubQueue, Timestamp};
use proptest::prelude::*;

const GROUP: GroupNumber = GroupNumber(1000);

fn sub_queue() -> impl Strategy<Value = SubQueue> {
    prop_oneof![3 => Just(SubQueue::Main), 1 => Just(SubQueue::DeadLetter)]
}

/// Small numbers, so that facts meet each other, and now and then any number.
fn small(limit: u64) -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..limit, 1 => any::<u64>()]
}

fn entity() -> impl Strategy<Value = EntityId> {
    prop_oneof![9 => 0..2u32, 1 => any::<u32>()].prop_map(EntityId)
}

fn body() -> impl Strategy<Value = BodyRef> {
    prop_oneof![
        3 => (0..100u32).prop_map(|n| BodyRef::in_log(GROUP, n * 8).unwrap()),
        1 => (0..=GROUP.0, 0..100u32).prop_map(|(group, n)| BodyRef::in_log(GroupNumber(group), n * 8).unwrap()),
        1 => (0..3u32, 0..100u64).prop_map(|(segment, n)| BodyRef::in_cold(segment, n * 8).unwrap()),
    ]
}

fn map() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn patch() -> impl Strategy<Value = Patch> {
    let text = || prop::option::of(".{0,40}");
    let part = prop_oneof![
        map().prop_map(PatchPart::Properties),
        (text(), text()).prop_map(|(reason, description)| PatchPart::DeadLetter { reason, description }),
    ];
    prop::collection::vec(part, 0..3).prop_map(|parts| Patch { parts })
}

fn created() -> impl Strategy<Value = Fact> {
    let names = prop_oneof![Just("orders"), Just("Bills"), Just("a/b.c")];
    (entity(), names, 0..400_000u64, 0..2100u32, small(1000)).prop_map(|(entity, name, millis, count, at)| {
        let lock_duration = Duration::from_millis(millis) + Duration::from_nanos(count.into());
        let settings = QueueSettings { lock_duration, max_delivery_count: count };
        let name = EntityName::parse(name).unwrap();
        Fact::QueueCreated { entity, name, settings, created_at: Timestamp::from_millis(at) }
    })
}

fn step() -> impl Strategy<Value = Fact> {
    let common = (entity(), sub_queue(), small(12).prop_map(SequenceNumber));
    let time = small(1000).prop_map(Timestamp::from_millis);
    (common, time, any::<u64>(), prop::option::of(map()), patch(), 0..8u8).prop_map(
        |((entity, sub_queue, sequence_number), until, nonce, map, patch, kind)| match kind {
            0 | 1 => Fact::Locked { entity, sub_queue, sequence_number, nonce, until },
            2 => Fact::Renewed { entity, sub_queue, sequence_number, until },
            3 => Fact::Completed { entity, sub_queue, sequence_number },
            4 => Fact::Abandoned { entity, sub_queue, sequence_number, patch: map },
            5 => match nonce % 2 {
                0 => Fact::LockExpired { entity, sub_queue, sequence_number },
                _ => Fact::Released { entity, sub_queue, sequence_number },
            },
            6 => Fact::Deferred { entity, sub_queue, sequence_number, patch: map },
            _ => Fact::DeadLettered { entity, sub_queue, sequence_number, failed: nonce % 2 == 0, patch },
        },
    )
}

fn fact() -> impl Strategy<Value = Fact> {
    let number = || small(12).prop_map(SequenceNumber);
    prop_oneof![
        1 => created(),
        1 => entity().prop_map(|entity| Fact::QueueDeleted { entity }),
        6 => (entity(), number(), small(1000), body(), any::<u32>()).prop_map(
            |(entity, sequence_number, at, body, size_bytes)| {
                let enqueued_at = Timestamp::from_millis(at);
                Fact::Enqueued { entity, sequence_number, enqueued_at, body, size_bytes }
            }
        ),
        12 => step(),
        1 => (entity(), number(), body(), body())
            .prop_map(|(entity, sequence_number, from, to)| Fact::Moved { entity, sequence_number, from, to }),
    ]
}

fn orders(entity: u32) -> Fact {
    Fact::QueueCreated {
        entity: EntityId(entity),
        name: EntityName::parse(["orders", "bills"][entity as usize]).unwrap(),
        settings: QueueSettings::default(),
        created_at: Timestamp::from_millis(5),
    }
}

fn enqueued(entity: u32, number: u64) -> Fact {
    Fact::Enqueued {
        entity: EntityId(entity),
        sequence_number: SequenceNumber(number),
        enqueued_at: Timestamp::from_millis(10 + number),
        body: BodyRef::in_log(GroupNumber(number), 8).unwrap(),
        size_bytes: 100,
    }
}

/// Two queues with ten messages each, after whatever of `facts` fits.
fn engine_after(facts: &[Fact]) -> Engine {
    let mut engine = Engine::default();
    for entity in 0..2 {
        engine.apply(&orders(entity)).unwrap();
        (1..=10).for_each(|number| engine.apply(&enqueued(entity, number)).unwrap());
    }
    for fact in facts {
        // A fact that does not fit is an error; here it is passed over to see what the next ones do.
        let _error_or_not = engine.apply(fact);
    }
    engine
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Whatever state there is, it can be asked everything and written down.
fn use_it(mut engine: Engine) {
    let snapshot = engine.snapshot();
    let mut out = peeklock_engine::Outbox::default();
    engine.tick(Timestamp::MAX, &mut out);
    let _oldest = engine.oldest_log_body();
    for queue in engine.queues() {
        let peek = |sub_queue| engine.peek(queue.entity, sub_queue, SequenceNumber(0), 1000).unwrap();
        let messages = [SubQueue::Main, SubQueue::DeadLetter].into_iter().flat_map(peek);
        assert_eq!(
            messages.map(|message| u64::from(message.size_bytes)).sum::<u64>(),
            queue.counts.size_bytes
        );
    }
    assert_eq!(Engine::restore(&snapshot).unwrap().snapshot(), snapshot);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn records_come_back_equal(facts in prop::collection::vec(fact(), 1..20)) {
        let mut bytes = Vec::new();
        facts.iter().for_each(|fact| record::encode(fact, GROUP, &mut bytes));
        let mut rest = bytes.as_slice();
        for fact in &facts {
            prop_assert_eq!(&record::decode(&mut rest, GROUP).unwrap(), fact);
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn a_cut_record_is_refused_and_takes_nothing(fact in fact(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        record::encode(&fact, GROUP, &mut bytes);
        let mut rest = &bytes[..cut.index(bytes.len())];
        let before = rest;
        prop_assert!(matches!(record::decode(&mut rest, GROUP), Err(DecodeError::Short(_))));
        prop_assert_eq!(rest, before);
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut rest = bytes.as_slice();
        while let Ok(fact) = record::decode(&mut rest, GROUP) {
            let mut again = Vec::new();
            record::encode(&fact, GROUP, &mut again);
            prop_assert_eq!(record::decode(&mut again.as_slice(), GROUP).unwrap(), fact);
        }
    }

    #[test]
    fn facts_that_do_not_fit_are_errors(facts in prop::collection::vec(fact(), 0..60)) {
        use_it(engine_after(&facts));
    }

    #[test]
    fn any_bytes_are_a_snapshot_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Engine::restore(&bytes).is_err());
        // The checksum is no wall against a writer with a bug, so look behind it too.
        let mut dressed = b"PKLE\x01".to_vec();
        dressed.extend_from_slice(&bytes);
        if let Ok(engine) = Engine::restore(&with_checksum(dressed)) {
            use_it(engine);
        }
    }

    #[test]
    fn a_changed_snapshot_is_refused(
        facts in prop::collection::vec(fact(), 0..40),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut bytes = engine_after(&facts).snapshot();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(Engine::restore(&bytes).is_err());
        // With the checksum made to fit, it is some other state or an error.
        bytes.truncate(bytes.len() - 4);
        if let Ok(engine) = Engine::restore(&with_checksum(bytes)) {
            use_it(engine);
        }
    }
}

#[test]
fn a_snapshot_of_a_newer_format_says_so() {
    let mut bytes = Engine::default().snapshot();
    bytes[4] = 9;
    let error = Engine::restore(&bytes).unwrap_err();
    assert_eq!(error, DecodeError::Version { found: 9, known: 1 });
    assert_eq!(
        error.to_string(),
        "the snapshot has format 9, this program knows 1; use a newer version of the program"
    );
}

#[test]
fn a_body_of_a_group_to_come_is_refused() {
    let mut bytes = Vec::new();
    record::encode(&enqueued(0, 7), GROUP, &mut bytes);
    assert_eq!(record::decode(&mut bytes.as_slice(), GroupNumber(7)), Ok(enqueued(0, 7)));
    let early = record::decode(&mut bytes.as_slice(), GroupNumber(6));
    assert_eq!(early, Err(DecodeError::Value("a body's place")));
}

#[test]
fn a_record_of_a_body_in_its_own_group_is_short() {
    let mut bytes = Vec::new();
    record::encode(&enqueued(0, 7), GroupNumber(7), &mut bytes);
    assert_eq!(bytes.len(), 6);
    assert_eq!(record::decode(&mut bytes.as_slice(), GroupNumber(7)), Ok(enqueued(0, 7)));
}

#[test]
fn each_misfit_has_its_error() {
    let mut engine = engine_after(&[]);
    let (entity, sub_queue, sequence_number) = (EntityId(0), SubQueue::Main, SequenceNumber(1));
    let until = Timestamp::from_millis(99);
    let locked = Fact::Locked { entity, sub_queue, sequence_number, nonce: 1, until };
    let released = Fact::Released { entity, sub_queue, sequence_number };
    assert_eq!(engine.apply(&released), Err(ReplayError::NotLocked { entity, sequence_number }));
    engine.apply(&locked).unwrap();
    assert_eq!(engine.apply(&locked), Err(ReplayError::LockedTwice { entity, sequence_number }));
    let completed = Fact::Completed { entity, sub_queue, sequence_number };
    engine.apply(&completed).unwrap();
    assert_eq!(engine.apply(&completed), Err(ReplayError::NoSuchMessage { entity, sequence_number }));
    let (found, expected) = (SequenceNumber(13), SequenceNumber(11));
    assert_eq!(engine.apply(&enqueued(0, 13)), Err(ReplayError::SequenceOrder { entity, found, expected }));
    let (entity, expected) = (EntityId(0), EntityId(2));
    assert_eq!(engine.apply(&orders(0)), Err(ReplayError::EntityOrder { entity, expected }));
    let entity = EntityId(9);
    assert_eq!(engine.apply(&Fact::QueueDeleted { entity }), Err(ReplayError::NoSuchEntity { entity }));
}
