//! Records and snapshots are read from a disk: a round trip restores all values, and no bytes make the engine panic or
//! accept an invalid state.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{
    Attributes, DecodeError, Engine, EntityId, Fact, LaneKey, Metadata, Origin, Output, Patch, PatchPart,
    ReplayError, Reserved, record,
};
use peeklock_filter::{Filter, Rule, RuleName, SqlFilter};
use peeklock_types::wire::put_field;
use peeklock_types::{
    BodyRange, BodyRef, ClassName, ClassRule, ClassSettings, CommitGroupNumber, EntityKind, EntityName,
    OrderPolicy, OrderSettings, Placement, PoisonSession, QueueSettings, QueueStatus, Rate, RetryPolicy,
    SequenceNumber, SessionId, ShardId, SubQueue, Target, TenantClass, TenantSettings, Timestamp,
};
use proptest::prelude::*;

const GROUP: CommitGroupNumber = CommitGroupNumber(1000);

fn sub_queue() -> impl Strategy<Value = SubQueue> {
    prop_oneof![
        6 => Just(SubQueue::Main),
        2 => Just(SubQueue::DeadLetter),
        1 => Just(SubQueue::Transfer),
        1 => Just(SubQueue::TransferDeadLetter),
    ]
}

/// Generates small numbers, so that facts affect the same messages, and sometimes any number.
fn small(limit: u64) -> impl Strategy<Value = u64> {
    prop_oneof![9 => 0..limit, 1 => any::<u64>()]
}

fn time() -> impl Strategy<Value = Timestamp> {
    small(1000).prop_map(Timestamp::from_millis)
}

fn span() -> impl Strategy<Value = Duration> {
    small(100_000).prop_map(Duration::from_millis)
}

fn number() -> impl Strategy<Value = SequenceNumber> {
    small(14).prop_map(SequenceNumber)
}

fn entity() -> impl Strategy<Value = EntityId> {
    prop_oneof![9 => 0..2u32, 1 => any::<u32>()].prop_map(EntityId)
}

fn name() -> impl Strategy<Value = EntityName> {
    let names = prop_oneof![
        Just("orders"),
        Just("Bills"),
        Just("a/b.c"),
        Just("news"),
        Just("News/subscriptions/All")
    ];
    names.prop_map(|name| EntityName::parse(name).unwrap())
}

fn session() -> impl Strategy<Value = SessionId> {
    prop_oneof!["[ab]", ".{0,20}"].prop_map(|text| SessionId::parse(&text).unwrap())
}

fn body() -> impl Strategy<Value = BodyRef> {
    prop_oneof![
        3 => (0..100u32).prop_map(|n| BodyRef::in_group(GROUP, n * 8).unwrap()),
        1 => (0..=GROUP.0, 0..100u32).prop_map(|(group, n)| BodyRef::in_group(CommitGroupNumber(group), n * 8).unwrap()),
        1 => (0..3u64, 0..100u64).prop_map(|(segment, n)| BodyRef::standalone((segment << 32) | n).unwrap()),
    ]
}

fn map() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn patch() -> impl Strategy<Value = Patch> {
    let text = || prop::option::of(".{0,40}");
    let part = prop_oneof![
        map().prop_map(PatchPart::Properties),
        map().prop_map(PatchPart::Changes),
        (text(), text()).prop_map(|(reason, description)| PatchPart::DeadLetter { reason, description }),
    ];
    prop::collection::vec(part, 0..3).prop_map(|parts| Patch { parts })
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    (0..4u8, span(), span(), any::<bool>()).prop_map(|(kind, first, cap, jitter)| match kind {
        0 => RetryPolicy::Immediate,
        1 => RetryPolicy::Fixed { delay: first },
        2 => RetryPolicy::Linear { step: first, cap },
        _ => RetryPolicy::Exponential { base: first, cap, jitter },
    })
}

/// Generates valid and invalid orders.
fn order() -> BoxedStrategy<OrderSettings> {
    use prop::option::of as some;

    let policy = prop_oneof![
        Just(OrderPolicy::Fifo),
        Just(OrderPolicy::Strict),
        Just(OrderPolicy::Aged),
        Just(OrderPolicy::Weighted)
    ];
    let class_name = || "[a-c][a-z]{0,2}".prop_map(|name| ClassName::parse(&name).unwrap());
    let rate = || {
        some((0..5_000u64, 0..9u32).prop_map(|(per_second_milli, burst)| Rate { per_second_milli, burst }))
    };
    let when = || prop_oneof![Just("size > 3"), Just("a = "), Just("")].prop_map(str::to_owned);
    let target =
        (span(), 0..1_100_000u32).prop_map(|(within, objective_ppm)| Target { within, objective_ppm });
    let class = (class_name(), any::<(u8, u8)>(), some(span()), some(0..5u32), some(target), rate(), rate())
        .prop_map(|(name, priorities, offset, weight, target, rate, send_rate)| ClassSettings {
            name,
            priorities,
            offset,
            weight,
            target,
            rate,
            send_rate,
        });
    let tenant = (class_name(), some(when()), 0..3000u32, some(0..1200u32), any::<bool>(), rate(), rate())
        .prop_map(|(name, when, weight_milli, max_share_milli, is_share_hard, rate, send_rate)| {
            TenantClass { name, when, weight_milli, max_share_milli, is_share_hard, rate, send_rate }
        });
    let tenants = (when(), prop::collection::vec(tenant, 0..3), some(class_name()))
        .prop_map(|(key, classes, default_class)| TenantSettings { key, classes, default_class })
        .boxed();
    let rules = (when(), class_name()).prop_map(|(when, class)| ClassRule { when, class });
    let lists = (prop::collection::vec(class, 0..3), prop::collection::vec(rules, 0..2), some(tenants));
    (policy, lists, some(class_name()), rate(), rate(), 0..40u32)
        .prop_map(|(policy, (classes, rules, tenants), default_class, rate, send_rate, max_outstanding)| {
            OrderSettings { policy, classes, default_class, rules, tenants, rate, send_rate, max_outstanding }
        })
        .boxed()
}

/// Generates valid and invalid settings.
fn settings() -> impl Strategy<Value = QueueSettings> {
    let spans = (0..400_000u64, prop::option::of(span()), prop::option::of(span()), prop::option::of(span()));
    let sizes = (0..2100u32, prop::option::of(small(10_000)), any::<u32>());
    let targets = (prop::option::of(name()), prop::option::of(name()));
    let status = prop_oneof![
        3 => Just(QueueStatus::Active),
        1 => Just(QueueStatus::SendDisabled),
        1 => Just(QueueStatus::ReceiveDisabled),
        1 => Just(QueueStatus::Disabled),
    ];
    let poison = prop_oneof![
        Just(PoisonSession::DeadLetter),
        Just(PoisonSession::Block),
        Just(PoisonSession::SetAside)
    ];
    let order = prop::option::of(order().prop_map(Box::new));
    (spans, sizes, targets, status, poison, retry(), any::<[bool; 7]>(), order).prop_map(
        |(spans, sizes, targets, status, poison_session, retry, flags, order)| QueueSettings {
            lock_duration: Duration::from_millis(spans.0),
            max_delivery_count: sizes.0,
            requires_session: flags[0],
            default_time_to_live: spans.1,
            dead_letter_on_expiration: flags[1],
            auto_delete_on_idle: spans.2,
            duplicate_window: spans.3,
            unused_duplicate_window: spans.2,
            max_size_bytes: sizes.1,
            max_count: sizes.1.is_some().then_some(sizes.2),
            max_message_size_bytes: sizes.2,
            status,
            forward_to: targets.0,
            forward_dead_letters_to: targets.1,
            retry,
            poison_session,
            order,
            dead_letter_on_filter_error: flags[2],
            batched_operations: flags[3],
            support_ordering: flags[4],
            express: flags[5],
            partitioning: flags[6],
            user_metadata: flags[3].then(|| "our own words".to_owned()),
        },
    )
}

fn kind() -> impl Strategy<Value = EntityKind> {
    prop_oneof![Just(EntityKind::Queue), Just(EntityKind::Topic), Just(EntityKind::Subscription)]
}

fn rule_name() -> impl Strategy<Value = RuleName> {
    prop_oneof![Just("$Default"), Just("big")].prop_map(|name| RuleName::parse(name).unwrap())
}

fn rule() -> impl Strategy<Value = Rule> {
    let filter = prop_oneof![
        Just(Filter::True),
        Just(Filter::False),
        Just(Filter::Sql(SqlFilter { expression: "size > 3".to_owned(), parameters: Vec::new() })),
    ];
    (rule_name(), filter).prop_map(|(name, filter)| Rule { name, filter, action: None })
}

fn of_a_topic() -> impl Strategy<Value = Fact> {
    let copies = prop::collection::vec((entity(), number()), 0..4).prop_map(Vec::into_boxed_slice);
    let attributes = prop::option::of(attributes().prop_map(Box::new));
    let id = prop::collection::vec(0..3u8, 0..3).prop_map(Bytes::from);
    prop_oneof![
        4 => (copies, time(), body(), any::<u32>(), attributes, any::<bool>()).prop_map(
            |(copies, enqueued_at, body, size_bytes, attributes, again)| {
                Fact::FannedOut { copies, enqueued_at, body, size_bytes, attributes, again }
            }
        ),
        1 => (entity(), id, time()).prop_map(|(entity, message_id, at)| Fact::Seen { entity, message_id, at }),
        2 => (entity(), rule(), time())
            .prop_map(|(entity, rule, at)| Fact::RuleSet { entity, rule: Box::new(rule), at }),
        1 => (entity(), rule_name()).prop_map(|(entity, name)| Fact::RuleRemoved { entity, name }),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let origin = (number(), any::<u8>(), prop::option::of(name())).prop_map(
        |(sequence_number, hop_count, dead_letter_source)| Origin {
            sequence_number,
            hop_count,
            dead_letter_source,
        },
    );
    use prop::option::of as some;

    let id = prop::collection::vec(0..3u8, 0..3).prop_map(Bytes::from);
    let lane = (any::<u8>(), any::<u8>(), some("[a-z]{0,3}")).prop_map(|(class, tenant_class, tenant)| {
        LaneKey { class, tenant_class, tenant: tenant.map(Into::into) }
    });
    let reserved =
        (entity(), number()).prop_map(|(entity, sequence_number)| Reserved { entity, sequence_number });
    let times = (some(span()), some(time()));
    (some(session()), times, some(id), some(origin), patch(), some(map()), some(lane), some(reserved))
        .prop_map(
            |(session, (time_to_live, scheduled_for), message_id, origin, patch, view, lane, reserved)| {
                Attributes {
                    session,
                    time_to_live,
                    scheduled_for,
                    message_id,
                    origin,
                    patch,
                    view,
                    lane,
                    reserved,
                }
            },
        )
}

fn of_a_queue() -> impl Strategy<Value = Fact> {
    let state = prop::option::of(map());
    prop_oneof![
        2 => (entity(), name(), kind(), settings(), time()).prop_map(
            |(entity, name, kind, settings, created_at)| {
                Fact::QueueCreated { entity, name, kind, settings: Box::new(settings), created_at }
            }
        ),
        2 => (entity(), settings(), time())
            .prop_map(|(entity, settings, at)| Fact::QueueUpdated { entity, settings: Box::new(settings), at }),
        1 => entity().prop_map(|entity| Fact::QueueDeleted { entity }),
        2 => (entity(), session(), state, time())
            .prop_map(|(entity, session, state, at)| Fact::SessionStateSet { entity, session, state, at }),
        1 => (entity(), sub_queue(), time(), small(20)).prop_map(|(entity, sub_queue, before, count_max)| {
            Fact::Purged { entity, sub_queue, before, count_max }
        }),
        1 => entity().prop_map(|entity| Fact::Cleared { entity }),
        2 => (entity(), number()).prop_map(|(entity, next)| Fact::NumbersReserved { entity, next }),
        1 => (entity(), prop::collection::vec((".{0,5}", ".{0,5}"), 0..3)).prop_map(|(entity, pairs)| {
            Fact::MetadataSet { entity, metadata: Box::new(Metadata(pairs)) }
        }),
        1 => (any::<u16>(), small(20))
            .prop_map(|(source, number)| Fact::Arrived { source: ShardId(source), number }),
    ]
}

fn new_message() -> impl Strategy<Value = Fact> {
    let attributes = prop::option::of(attributes().prop_map(Box::new));
    (entity(), number(), time(), body(), any::<u32>(), attributes, prop::option::of((name(), small(20))))
        .prop_map(|(entity, sequence_number, enqueued_at, body, size_bytes, attributes, transfer)| {
            match transfer {
                None => Fact::Enqueued { entity, sequence_number, enqueued_at, body, size_bytes, attributes },
                Some((target, number)) => {
                    // Empty attributes are written as none.
                    let attributes = attributes.filter(|attributes| !attributes.is_empty());
                    let target = Box::new(target);
                    Fact::SentOn {
                        entity,
                        sequence_number,
                        enqueued_at,
                        body,
                        size_bytes,
                        attributes,
                        target,
                        number,
                    }
                }
            }
        })
}

fn step() -> impl Strategy<Value = Fact> {
    let common = (entity(), sub_queue(), number());
    let due = prop::option::of(time());
    let more = (name(), small(20));
    (common, time(), any::<u64>(), prop::option::of(map()), patch(), due, more, 0..14u8).prop_map(
        |((entity, sub_queue, sequence_number), until, nonce, map, patch, due, (target, number), kind)| {
            match kind {
                0..=2 => Fact::Locked { entity, sub_queue, sequence_number, nonce, until },
                3 => Fact::Renewed { entity, sub_queue, sequence_number, until },
                4 => Fact::Completed { entity, sub_queue, sequence_number },
                5 => Fact::Abandoned { entity, sub_queue, sequence_number, patch: map, due },
                6 => Fact::LockExpired { entity, sub_queue, sequence_number, due },
                7 => Fact::Released { entity, sub_queue, sequence_number },
                8 => {
                    let locked_until = until;
                    Fact::Deferred { entity, sub_queue, sequence_number, locked_until, patch: map }
                }
                9 => Fact::DeadLettered { entity, sub_queue, sequence_number, failed: nonce % 2 == 0, patch },
                10 => Fact::DelayEnded { entity, sub_queue, sequence_number },
                11 => Fact::TransferStarted { entity, sub_queue, sequence_number, target, number },
                12 => Fact::Charged { entity, sequence_number, cost_ms: u32::from(nonce.to_le_bytes()[0]) },
                _ => Fact::TransferFailed { entity, sub_queue, sequence_number, patch },
            }
        },
    )
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        2 => of_a_queue(),
        3 => of_a_topic(),
        6 => new_message(),
        14 => step(),
        1 => (entity(), number(), number(), time()).prop_map(|(entity, sequence_number, new_number, at)| {
            Fact::Activated { entity, sequence_number, new_number, at }
        }),
        2 => (entity(), number(), any::<u64>(), prop::option::of(time())).prop_map(
            |(entity, sequence_number, nonce, until)| {
                Fact::Receipted { entity, sequence_number, nonce, until }
            }
        ),
        1 => (entity(), number(), body(), any::<u32>()).prop_map(|(entity, sequence_number, body, size_bytes)| {
            Fact::Replaced { entity, sequence_number, body, size_bytes }
        }),
        1 => (entity(), number(), body(), patch()).prop_map(|(entity, sequence_number, body, patch)| {
            Fact::BodyLost { entity, sequence_number, body, patch }
        }),
        1 => (entity(), number(), body(), body(), any::<bool>()).prop_map(
            |(entity, sequence_number, from, to, again)| {
                Fact::Moved { entity, sequence_number, from, to, again }
            }
        ),
    ]
}

/// Creates a queue: the first one has sessions, the second one has times to live and message ids.
fn orders(entity: u32) -> Fact {
    let with_sessions = QueueSettings { requires_session: true, ..QueueSettings::default() };
    let with_times = QueueSettings {
        default_time_to_live: Some(Duration::from_millis(700)),
        duplicate_window: Some(Duration::from_secs(1)),
        ..QueueSettings::default()
    };
    Fact::QueueCreated {
        entity: EntityId(entity),
        name: EntityName::parse(["orders", "bills"][entity as usize]).unwrap(),
        kind: EntityKind::Queue,
        settings: Box::new([with_sessions, with_times][entity as usize].clone()),
        created_at: Timestamp::from_millis(5),
    }
}

fn enqueued(entity: u32, number: u64) -> Fact {
    let session = SessionId::parse(["a", "b"][(number % 2) as usize]).unwrap();
    let in_session = Attributes { session: Some(session), ..Attributes::default() };
    let later = Attributes {
        scheduled_for: number.is_multiple_of(3).then_some(Timestamp::from_millis(500)),
        message_id: Some(Bytes::from(vec![(number % 5) as u8])),
        ..Attributes::default()
    };
    Fact::Enqueued {
        entity: EntityId(entity),
        sequence_number: SequenceNumber(number),
        enqueued_at: Timestamp::from_millis(10 + number),
        body: BodyRef::in_group(CommitGroupNumber(number), 8).unwrap(),
        size_bytes: 100,
        attributes: Some(Box::new([in_session, later][entity as usize].clone())),
    }
}

/// Returns two queues with ten messages each, after those of `facts` that fit.
fn engine_after(facts: &[Fact]) -> Engine {
    let mut engine = Engine::default();
    for entity in 0..2 {
        engine.apply(&orders(entity)).unwrap();
        (1..=10).for_each(|number| engine.apply(&enqueued(entity, number)).unwrap());
    }
    for fact in facts {
        // A fact that does not fit is an error; here it is ignored, to test the next ones.
        let _error_or_not = engine.apply(fact);
    }
    engine
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Checks that any state can be queried, used and stored.
fn use_it(mut engine: Engine) {
    let snapshot = engine.snapshot();
    let mut out = Output::default();
    let now = Timestamp::from_millis(2000);
    engine.wake(now, &mut out);
    for now in [now, now + Duration::from_secs(600), Timestamp::MAX] {
        let _more = engine.deliver(now, &mut || 7, &mut out);
    }
    let _oldest = engine.oldest_log_body();
    let _old_bodies = engine.bodies_in(BodyRange::groups_upto(GROUP), 1000);
    for shard in engine.transfer_targets().collect::<Vec<_>>() {
        let waiting = engine.outgoing(shard, 2, u64::MAX);
        let Some(first) = waiting.first() else { continue };
        engine.transfer_refused(shard, first.number, "no".to_owned(), &mut out);
        engine.transferred(shard, u64::MAX, &mut out);
    }
    for queue in engine.queues() {
        let peek = |sub_queue| engine.peek(queue.entity, sub_queue, SequenceNumber(0), 1000).unwrap();
        let messages: Vec<_> = SubQueue::ALL.into_iter().flat_map(peek).collect();
        assert_eq!(queue.counts.message_count(), messages.len() as u64);
        let sizes = messages.iter().map(|message| u64::from(message.size_bytes));
        assert_eq!(sizes.sum::<u64>(), queue.counts.size_bytes);
    }
    assert_eq!(
        Engine::restore(&engine.snapshot(), Placement::default()).unwrap().snapshot(),
        engine.snapshot()
    );
    assert_eq!(Engine::restore(&snapshot, Placement::default()).unwrap().snapshot(), snapshot);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn records_are_decoded_as_encoded(facts in prop::collection::vec(fact(), 1..20)) {
        let mut bytes = Vec::new();
        facts.iter().for_each(|fact| record::encode(fact, GROUP, &mut bytes));
        let mut rest = bytes.as_slice();
        for fact in &facts {
            prop_assert_eq!(&record::decode(&mut rest, GROUP).unwrap(), fact);
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn a_truncated_record_is_rejected_and_consumes_nothing(fact in fact(), cut in any::<prop::sample::Index>()) {
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
        prop_assert!(Engine::restore(&bytes, Placement::default()).is_err());
        // The checksum is no protection against a writer with a bug, so the contents are tested too.
        if let Ok(engine) = Engine::restore(&with_checksum(bytes), Placement::default()) {
            use_it(engine);
        }
    }

    #[test]
    fn a_changed_snapshot_is_rejected(
        facts in prop::collection::vec(fact(), 0..40),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut bytes = engine_after(&facts).snapshot();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(Engine::restore(&bytes, Placement::default()).is_err());
        // With a matching checksum, the bytes give another state or an error.
        bytes.truncate(bytes.len() - 4);
        if let Ok(engine) = Engine::restore(&with_checksum(bytes), Placement::default()) {
            use_it(engine);
        }
    }
}

#[test]
fn data_of_a_newer_version_is_reported_and_rejected() {
    // An unknown kind of record.
    let mut bytes = Vec::new();
    put_field(9000, &7_u64, &mut bytes);
    let found = record::decode(&mut bytes.as_slice(), GROUP);
    assert_eq!(found, Err(DecodeError::Unknown { of: "record kind", tag: 9000 }));
    // An unknown field after those of a known record.
    let completed = Fact::Completed {
        entity: EntityId(0),
        sub_queue: SubQueue::DeadLetter,
        sequence_number: SequenceNumber(1),
    };
    let mut bytes = Vec::new();
    record::encode(&completed, GROUP, &mut bytes);
    let end = bytes.len();
    put_field(99, &7_u64, &mut bytes);
    bytes[1] += u8::try_from(bytes.len() - end).unwrap();
    let found = record::decode(&mut bytes.as_slice(), GROUP);
    assert_eq!(found, Err(DecodeError::Unknown { of: "field of a record of a queue", tag: 99 }));
    // An unknown part of a snapshot.
    let mut bytes = Engine::default().snapshot();
    bytes.truncate(bytes.len() - 4);
    put_field(99, &7_u64, &mut bytes);
    let found = Engine::restore(&with_checksum(bytes), Placement::default()).unwrap_err();
    assert_eq!(found.to_string(), "the part of a snapshot of queues 99 is unknown");
}

#[test]
fn a_body_of_a_later_group_is_rejected() {
    let mut bytes = Vec::new();
    record::encode(&enqueued(0, 7), GROUP, &mut bytes);
    assert_eq!(record::decode(&mut bytes.as_slice(), CommitGroupNumber(7)), Ok(enqueued(0, 7)));
    let early = record::decode(&mut bytes.as_slice(), CommitGroupNumber(6));
    assert_eq!(early, Err(DecodeError::Value("body")));
}

/// No queue assigns 0, so a journal that contains it is damaged; a snapshot could not store such a message.
#[test]
fn a_reserved_number_below_the_first_is_rejected() {
    let number = SequenceNumber(0);
    let attributes = Attributes {
        scheduled_for: Some(Timestamp::from_millis(1)),
        reserved: Some(Reserved { entity: EntityId(0), sequence_number: number }),
        ..Attributes::default()
    };
    let Fact::Enqueued { body, .. } = enqueued(0, 11) else { panic!("the fact enqueues no message") };
    let fact = Fact::Enqueued {
        entity: EntityId(0),
        sequence_number: number,
        enqueued_at: Timestamp::from_millis(0),
        body,
        size_bytes: 0,
        attributes: Some(Box::new(attributes)),
    };
    assert!(engine_after(&[]).apply(&fact).is_err());
    use_it(engine_after(&[fact]));
}

#[test]
fn a_record_of_a_body_in_its_own_group_is_short() {
    let mut bytes = Vec::new();
    let mut plain = enqueued(0, 7);
    if let Fact::Enqueued { attributes, .. } = &mut plain {
        *attributes = None;
    }
    record::encode(&plain, CommitGroupNumber(7), &mut bytes);
    assert_eq!(bytes.len(), 7);
    assert_eq!(record::decode(&mut bytes.as_slice(), CommitGroupNumber(7)), Ok(plain));
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
