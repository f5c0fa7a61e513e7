//! Facts and snapshots as bytes: a round trip restores them, and no bytes cause a panic.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock_hubs::{Checkpoint, Fact, Hubs, Producer, StreamId, StreamSpec};
use peeklock_types::{
    BodyRef, CommitGroupNumber, ConsumerGroup, EntityName, Etag, ExpiredPosition, HubId, HubSettings,
    QueueStatus, Timestamp,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const HERE: CommitGroupNumber = CommitGroupNumber(900);

fn name() -> impl Strategy<Value = EntityName> {
    prop_oneof![Just("meters"), Just("a/b"), Just("zähler")].prop_map(|text| EntityName::parse(text).unwrap())
}

fn group() -> impl Strategy<Value = ConsumerGroup> {
    prop_oneof![Just("$Default"), Just("audit"), Just("Prüfung")]
        .prop_map(|text| ConsumerGroup::parse(text).unwrap())
}

fn at() -> impl Strategy<Value = Timestamp> {
    prop_oneof![0..100_u64, any::<u64>()].prop_map(Timestamp::from_millis)
}

fn body() -> impl Strategy<Value = BodyRef> {
    prop_oneof![
        (898..=HERE.0, 0..4000_u32)
            .prop_map(|(group, eights)| BodyRef::in_group(CommitGroupNumber(group), eights * 8)),
        (0..9_u64, 0..4000_u64).prop_map(|(segment, n)| BodyRef::standalone((segment << 32) | n)),
    ]
    .prop_map(Option::unwrap)
}

fn settings() -> impl Strategy<Value = Box<HubSettings>> {
    let status = prop_oneof![
        Just(QueueStatus::Active),
        Just(QueueStatus::SendDisabled),
        Just(QueueStatus::ReceiveDisabled),
        Just(QueueStatus::Disabled)
    ];
    let retention = option::of((0..1u64 << 40).prop_map(Duration::from_millis));
    (1..9_u32, retention, option::of(any::<u64>()), any::<bool>(), status, option::of(".{0,9}")).prop_map(
        |(partition_count, retention, retention_bytes, earliest, status, user_metadata)| {
            let expired_position = if earliest { ExpiredPosition::Earliest } else { ExpiredPosition::Refuse };
            Box::new(HubSettings {
                partition_count,
                retention,
                retention_bytes,
                expired_position,
                status,
                user_metadata,
            })
        },
    )
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..6_u64, 1 => any::<u64>()]
}

fn hub_fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (name(), any::<u64>().prop_map(HubId), settings(), at())
            .prop_map(|(name, id, settings, at)| Fact::HubCreated { name, id, settings, at }),
        (name(), settings(), at()).prop_map(|(name, settings, at)| Fact::HubUpdated { name, settings, at }),
        name().prop_map(|name| Fact::HubDeleted { name }),
        (name(), group(), option::of(".{0,9}"), at())
            .prop_map(|(name, group, user_metadata, at)| Fact::GroupSet { name, group, user_metadata, at }),
        (name(), group()).prop_map(|(name, group)| Fact::GroupDeleted { name, group }),
        (name(), group(), 0..9_u32, ".{0,9}", small(), small().prop_map(Etag), at()).prop_map(
            |(name, group, partition, owner, epoch, etag, at)| Fact::Claimed {
                name,
                group,
                partition,
                owner,
                epoch,
                etag,
                at
            }
        ),
        (name(), group(), 0..9_u32, option::of((any::<u64>(), at()))).prop_map(
            |(name, group, partition, checkpoint)| {
                let checkpoint = checkpoint.map(|(sequence, at)| Checkpoint { sequence, at });
                Fact::Checkpointed { name, group, partition, checkpoint }
            }
        ),
    ]
}

fn stream() -> impl Strategy<Value = StreamId> {
    prop_oneof![4 => 1..3_u32, 1 => any::<u32>()].prop_map(StreamId)
}

fn stream_fact() -> impl Strategy<Value = Fact> {
    let producer = (any::<i64>(), any::<i16>(), any::<i32>()).prop_map(|(id, epoch, sequence)| Producer {
        id,
        epoch,
        sequence,
    });
    prop_oneof![
        (stream(), small(), name(), 0..9_u32, settings()).prop_map(
            |(stream, hub, name, partition, settings)| {
                let spec = StreamSpec { hub: HubId(hub), name, partition, settings: *settings };
                Fact::StreamOpened { stream, spec: Box::new(spec) }
            }
        ),
        stream().prop_map(|stream| Fact::StreamDeleted { stream }),
        (stream(), small(), any::<u32>(), at(), body(), any::<u32>(), option::of(producer)).prop_map(
            |(stream, first_sequence, count, enqueued_at, body, size_bytes, producer)| Fact::Appended {
                stream,
                first_sequence,
                count,
                enqueued_at,
                body,
                size_bytes,
                producer
            }
        ),
        (stream(), small(), any::<u32>(), body(), any::<u32>()).prop_map(
            |(stream, first_sequence, extent_count, body, size_bytes)| Fact::Gathered {
                stream,
                first_sequence,
                extent_count,
                body,
                size_bytes
            }
        ),
        (stream(), small()).prop_map(|(stream, upto)| Fact::Retired { stream, upto }),
        (stream(), small()).prop_map(|(stream, first_sequence)| Fact::Lost { stream, first_sequence }),
    ]
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![hub_fact(), stream_fact()]
}

/// Builds a machine with every feature.
fn machine() -> Hubs {
    let mut hubs = Hubs::default();
    let name = EntityName::parse("meters").unwrap();
    let settings = || Box::new(HubSettings { retention_bytes: Some(4096), ..HubSettings::default() });
    let at = Timestamp::from_millis;
    let owner = |etag| Fact::Claimed {
        name: EntityName::parse("meters").unwrap(),
        group: ConsumerGroup::default_group(),
        partition: 1,
        owner: "me".into(),
        epoch: 1,
        etag: Etag(etag),
        at: at(3),
    };
    let spec = StreamSpec { hub: HubId(1), name: name.clone(), partition: 0, settings: *settings() };
    let event = |number: u32| Fact::Appended {
        stream: StreamId(1),
        first_sequence: u64::from(number),
        count: 1,
        enqueued_at: at(number.into()),
        body: BodyRef::in_group(CommitGroupNumber(5), number * 8).unwrap(),
        size_bytes: 8,
        producer: Some(Producer { id: i64::from(number % 2), epoch: 0, sequence: number.cast_signed() }),
    };
    let facts = [
        Fact::HubCreated { name: name.clone(), id: HubId(1), settings: settings(), at: at(1) },
        owner(1),
        owner(2),
        Fact::Checkpointed {
            name,
            group: ConsumerGroup::default_group(),
            partition: 3,
            checkpoint: Some(Checkpoint { sequence: 9, at: at(4) }),
        },
        Fact::StreamOpened { stream: StreamId(1), spec: Box::new(spec) },
        event(0),
        event(1),
        event(2),
        Fact::Gathered {
            stream: StreamId(1),
            first_sequence: 0,
            extent_count: 2,
            body: BodyRef::standalone(1 << 32).unwrap(),
            size_bytes: 16,
        },
        event(3),
    ];
    facts.iter().for_each(|fact| hubs.apply(fact).unwrap());
    hubs
}

fn snapshot(hubs: &Hubs) -> Vec<u8> {
    let mut bytes = Vec::new();
    hubs.snapshot(&mut bytes);
    bytes
}

/// Corrects the checksum, so that the checksum alone does not find the damage.
fn with_checksum(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn facts_survive_a_round_trip_and_cut_ones_are_rejected(facts in vec(fact(), 1..5)) {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for fact in &facts {
            fact.encode(HERE, &mut bytes);
            ends.push(bytes.len());
        }
        let mut rest = bytes.as_slice();
        for fact in &facts {
            prop_assert_eq!(&Fact::decode(&mut rest, HERE).unwrap(), fact);
        }
        prop_assert!(rest.is_empty());
        for cut in ends[0]..ends[1] {
            let whole = &bytes[..cut];
            let mut rest = whole;
            prop_assert!(Fact::decode(&mut rest, HERE).is_err());
            prop_assert_eq!(rest, whole);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_rejected(kind in 62..80_u8, bytes in vec(any::<u8>(), 0..60)) {
        let mut input = vec![kind];
        input.extend_from_slice(&bytes);
        let mut rest = input.as_slice();
        if let Ok(fact) = Fact::decode(&mut rest, HERE) {
            let mut again = Vec::new();
            fact.encode(HERE, &mut again);
            prop_assert_eq!(Fact::decode(&mut again.as_slice(), HERE), Ok(fact));
        }
        let _ = Hubs::restore(&input);
    }

    #[test]
    fn facts_that_do_not_fit_are_rejected(facts in vec(fact(), 1..30)) {
        let mut hubs = machine();
        for fact in &facts {
            // A rejected fact may have been applied in part, so the test continues from the state before.
            let before = snapshot(&hubs);
            match hubs.apply(fact) {
                Ok(()) => prop_assert_eq!(snapshot(&Hubs::restore(&snapshot(&hubs)).unwrap()), snapshot(&hubs)),
                Err(_) => hubs = Hubs::restore(&before).unwrap(),
            }
        }
    }

    #[test]
    fn damaged_snapshots_are_rejected_or_consistent(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let whole = snapshot(&machine());
        let mut bytes = whole[..whole.len() - 4].to_vec();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let bytes = with_checksum(&bytes);
        if let Ok(restored) = Hubs::restore(&bytes) {
            prop_assert_eq!(snapshot(&Hubs::restore(&snapshot(&restored)).unwrap()), snapshot(&restored));
        }
    }
}

#[test]
fn a_cut_or_changed_snapshot_is_rejected() {
    let whole = snapshot(&machine());
    assert_eq!(snapshot(&Hubs::restore(&whole).unwrap()), whole);
    for cut in 0..whole.len() {
        assert!(Hubs::restore(&whole[..cut]).is_err());
        assert!(Hubs::restore(&with_checksum(&whole[..cut.min(whole.len() - 5)])).is_err());
        let mut changed = whole.clone();
        changed[cut] ^= 1;
        assert!(Hubs::restore(&changed).is_err());
    }
    let mut longer = whole[..whole.len() - 4].to_vec();
    longer.push(0);
    assert!(Hubs::restore(&with_checksum(&longer)).is_err());
}
