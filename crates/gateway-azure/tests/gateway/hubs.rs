//! Event hubs: sending, reading from every position, owner levels, and rejections.

use std::time::Duration;

use peeklock_amqp::connection::{Event, LinkId, Outgoing};
use peeklock_amqp::{
    Attach, BATCH_FORMAT, BatchBuilder, Body, DeliveryState, DeliveryTag, Encode, Fields, Message, Role,
    SenderSettleMode, Source, Symbol, Target, Value, condition,
};
use peeklock_journal::BodyRange;
use peeklock_types::{
    CommitGroupNumber, ConsumerGroup, EntityName, HubSettings, QueueSettings, ShardId, partition_of_key,
};

use crate::support::{Client, Rig, condition_of, receiver, sender};

const SELECTOR: &str = "apache.org:selector-filter:string";
const EPOCH: &str = "com.microsoft:epoch";
const KEY: &str = "x-opt-partition-key";

pub(crate) async fn rig(partition_count: u32) -> Rig {
    let rig = Rig::start().await;
    let settings = HubSettings { partition_count, ..HubSettings::default() };
    let groups = vec![ConsumerGroup::parse("audit").unwrap()];
    rig.broker.create_hub(hub(), settings, groups).await.unwrap();
    rig
}

pub(crate) fn hub() -> EntityName {
    EntityName::parse("clicks").unwrap()
}

pub(crate) fn reader_at(address: &'static str, position: Option<&str>) -> Attach {
    let filter = position.map(|position| {
        let position = Value::described(Value::symbol(SELECTOR), position.to_owned());
        Fields::new().with(SELECTOR, position)
    });
    let source = Some(Source { filter, ..Source::with_address(address) });
    let target = Some(Target::with_address("here"));
    Attach { source, target, ..Attach::new("", 0, Role::Receiver) }
}

fn reader(position: &str) -> Attach {
    reader_at("clicks/ConsumerGroups/$Default/Partitions/0", Some(position))
}

pub(crate) fn earliest() -> Attach {
    reader("amqp.annotation.x-opt-offset > '-1'")
}

fn with_level(level: i64, attach: Attach) -> Attach {
    Attach { properties: Some(Fields::new().with(EPOCH, level)), ..attach }
}

fn keyed(body: &'static str, key: &'static str) -> Message {
    let message_annotations = Fields::new().with(KEY, key);
    Message { message_annotations, ..Message::data(body) }
}

fn text(message: &Message) -> String {
    let Body::Data(parts) = &message.body else { panic!("{message:?}") };
    String::from_utf8(parts[0].to_vec()).unwrap()
}

fn number(message: &Message) -> i64 {
    message.message_annotations.get("x-opt-sequence-number").and_then(Value::as_i64).unwrap()
}

impl Client {
    async fn next_event(&mut self, link: LinkId) -> Message {
        let (delivery, message) = self
            .until(|event| match event {
                Event::Delivery { link: found, delivery } if *found == link => {
                    Some((delivery.clone(), Message::decode(&delivery.payload).unwrap()))
                }
                _ => None,
            })
            .await;
        assert!(delivery.settled, "events are sent settled");
        message
    }

    async fn events(&mut self, link: LinkId, count: usize) -> Vec<Message> {
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(self.next_event(link).await);
        }
        found
    }

    /// Attaches a reader and grants it credit.
    pub(crate) async fn read(&mut self, attach: Attach) -> LinkId {
        let link = self.attach(attach).await.unwrap().0;
        self.connection.set_credit(link, 100);
        self.flush().await;
        link
    }

    pub(crate) async fn send_all(&mut self, address: &'static str, bodies: &[&'static str]) {
        let link = self.sender(address).await;
        for body in bodies {
            assert_eq!(self.send(link, &Message::data(*body)).await, DeliveryState::Accepted);
        }
    }

    pub(crate) async fn send_batch(&mut self, link: LinkId, batch: BatchBuilder) -> DeliveryState {
        while self.connection.credit(link) == 0 {
            self.turn().await;
        }
        let tag = DeliveryTag::from(1_000_000 + u32::try_from(batch.message_count()).unwrap());
        let outgoing = Outgoing { tag, message_format: BATCH_FORMAT, settled: false, state: None };
        self.connection.send(link, &outgoing, &[&batch.finish()]).unwrap();
        self.outcome(link, tag).await
    }
}

#[tokio::test(start_paused = true)]
async fn events_are_numbered_stored_and_sent_to_all_readers() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    client.send_all("clicks/Partitions/0", &["a", "b", "c"]).await;
    for address in [
        "amqps://localhost/clicks/ConsumerGroups/%24Default/Partitions/0",
        "/clicks/consumergroups/audit/partitions/0",
    ] {
        let link = client.read(reader_at(address, None)).await;
        let found = client.events(link, 3).await;
        assert_eq!(found.iter().map(text).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(found.iter().map(number).collect::<Vec<_>>(), [0, 1, 2]);
        let annotations = &found[2].message_annotations;
        assert_eq!(annotations.get("x-opt-offset"), Some(&Value::from("2")));
        assert!(matches!(annotations.get("x-opt-enqueued-time"), Some(Value::Timestamp(_))));
        assert_eq!(annotations.len(), 3);
        assert!(found[2].delivery_annotations.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_starts_at_the_requested_position() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    client.send_all("clicks", &["a", "b", "c"]).await;
    let positions = [
        ("amqp.annotation.x-opt-offset > '-1'", "a"),
        ("amqp.annotation.x-opt-offset > '0'", "b"),
        ("amqp.annotation.x-opt-offset >= '2'", "c"),
        ("amqp.annotation.x-opt-sequence-number > 1", "c"),
        ("amqp.annotation.x-opt-sequence-number >='1'", "b"),
        ("amqp.annotation.x-opt-enqueued-time > '0'", "a"),
    ];
    for (position, expected) in positions {
        let link = client.read(reader(position)).await;
        assert_eq!(text(&client.next_event(link).await), expected, "{position}");
        client.connection.detach(link, None);
    }
    let latest = client.read(reader("amqp.annotation.x-opt-offset > '@latest'")).await;
    client.send_all("clicks", &["d"]).await;
    assert_eq!(text(&client.next_event(latest).await), "d");
    let later = client.attach(reader("amqp.annotation.x-opt-enqueued-time > '99999999999999'")).await;
    later.unwrap();
    let beyond = client.attach(reader("amqp.annotation.x-opt-offset > '77'")).await.unwrap_err();
    assert_eq!(beyond.condition, condition::ARGUMENT_OUT_OF_RANGE);
    let nonsense = client.attach(reader("color = 'blue'")).await.unwrap_err();
    assert_eq!(nonsense.condition, condition::ARGUMENT_ERROR);
}

#[tokio::test(start_paused = true)]
async fn the_reply_contains_the_settings_of_the_reader() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let wish = Symbol::from_static("com.microsoft:enable-receiver-runtime-metric");
    let attach = Attach { desired_capabilities: vec![wish.clone()], ..with_level(7, earliest()) };
    let (link, reply) = client.attach(attach.clone()).await.unwrap();
    assert_eq!(reply.snd_settle_mode, SenderSettleMode::Settled);
    assert_eq!(reply.source.unwrap().filter, attach.source.unwrap().filter);
    assert_eq!(reply.properties.unwrap().get(EPOCH), Some(&Value::Long(7)));
    assert_eq!(reply.offered_capabilities, [wish]);
    client.connection.set_credit(link, 10);
    client.send_all("clicks", &["a"]).await;
    let found = client.next_event(link).await.delivery_annotations;
    assert_eq!(found.get("last_enqueued_sequence_number"), Some(&Value::Long(0)));
    assert_eq!(found.get("last_enqueued_offset"), Some(&Value::from("0")));
    assert!(matches!(found.get("last_enqueued_time_utc"), Some(Value::Timestamp(_))));
    assert!(matches!(found.get("runtime_info_retrieval_time_utc"), Some(Value::Timestamp(_))));
}

#[tokio::test(start_paused = true)]
async fn a_key_selects_one_partition_and_no_key_uses_all() {
    let rig = rig(4).await;
    let mut client = rig.client().await;
    let link = client.sender("clicks").await;
    for _ in 0..4 {
        assert_eq!(client.send(link, &Message::data("spread")).await, DeliveryState::Accepted);
    }
    for _ in 0..2 {
        assert_eq!(client.send(link, &keyed("together", "device-42")).await, DeliveryState::Accepted);
    }
    let publisher = client.sender("clicks/Publishers/device-42").await;
    assert_eq!(client.send(publisher, &Message::data("published")).await, DeliveryState::Accepted);
    let view = rig.broker.hub(hub()).await.unwrap();
    let home = partition_of_key("device-42", 4);
    for number in 0..4 {
        let count = rig.broker.partition(&view, number, None).await.unwrap().view.next_sequence;
        assert_eq!(count, if number == home { 4 } else { 1 }, "partition {number}");
    }
    let address = "clicks/ConsumerGroups/$Default/Partitions/0";
    assert_eq!(home, 0, "the partition from the test vectors");
    let reader = client.read(reader_at(address, None)).await;
    let found = client.events(reader, 4).await;
    assert_eq!(found[3].message_annotations.get(KEY), Some(&Value::from("device-42")));
}

#[tokio::test(start_paused = true)]
async fn a_partition_stores_the_events_sent_to_it() {
    let rig = rig(4).await;
    let mut client = rig.client().await;
    let link = client.sender("clicks/Partitions/3").await;
    let mut batch = BatchBuilder::new(1000);
    assert!(batch.try_add(&keyed("m", "device-42").to_bytes()));
    assert!(batch.try_add(&keyed("n", "another").to_bytes()));
    assert_eq!(client.send_batch(link, batch).await, DeliveryState::Accepted);
    let reader = client.read(reader_at("clicks/ConsumerGroups/$Default/Partitions/3", None)).await;
    let found = client.events(reader, 2).await;
    let keys = found.iter().map(|event| event.message_annotations.get(KEY).unwrap().clone());
    assert_eq!(keys.collect::<Vec<_>>(), [Value::from("device-42"), Value::from("another")]);
    assert_eq!(client.send(link, &keyed("o", "third")).await, DeliveryState::Accepted);
    let single = client.next_event(reader).await;
    assert_eq!(
        single.message_annotations.get(KEY),
        Some(&Value::from("third")),
        "the key does not affect routing, and is stored"
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_events_are_rejected_and_the_link_continues() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let link = client.sender("clicks").await;
    let long: &'static str = Box::leak("x".repeat(129).into_boxed_str());
    let refused = client.send(link, &keyed("m", long)).await;
    assert_eq!(condition_of(&refused), condition::ARGUMENT_OUT_OF_RANGE);
    let large = client.send(link, &Message::data(vec![0; 1024 * 1024])).await;
    assert_eq!(condition_of(&large), condition::MESSAGE_SIZE_EXCEEDED);
    let mut batch = BatchBuilder::new(1000);
    assert!(batch.try_add(&keyed("m", "a").to_bytes()));
    assert!(batch.try_add(&keyed("m", "b").to_bytes()));
    let two_keys = client.send_batch(link, batch).await;
    assert_eq!(condition_of(&two_keys), condition::ARGUMENT_ERROR);
    assert_eq!(client.send(link, &Message::data("m")).await, DeliveryState::Accepted);
    let reader = client.read(earliest()).await;
    assert_eq!(number(&client.next_event(reader).await), 0, "nothing else was stored");
}

#[tokio::test(start_paused = true)]
async fn a_higher_owner_level_takes_over() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    client.send_all("clicks", &["a"]).await;
    let plain = client.read(earliest()).await;
    assert_eq!(text(&client.next_event(plain).await), "a");
    let named = |level, name: &'static str| {
        let mut attach = with_level(level, earliest());
        attach.properties.as_mut().unwrap().insert("com.microsoft:receiver-name", name);
        attach
    };
    let first = client.read(named(1, "first")).await;
    let stolen = client.detached(plain).await;
    assert_eq!(stolen.condition, condition::STOLEN);
    let said = stolen.description.unwrap().to_string();
    assert!(said.contains("'first' with higher epoch of '1'"), "{said}");
    assert_eq!(text(&client.next_event(first).await), "a");
    let second = client.read(named(1, "second")).await;
    let stolen = client.detached(first).await;
    assert_eq!(stolen.condition, condition::STOLEN, "an equal level takes over, too");
    assert!(stolen.description.unwrap().to_string().contains("receiver 'first' with epoch '1'"));
    let too_low = [
        (with_level(0, earliest()), "Received: 0, Current: 1"),
        (earliest(), "with epoch of '1', and so non-epoch receiver is not allowed. "),
    ];
    for (attach, sentence) in too_low {
        let refused = client.attach(attach).await.unwrap_err();
        assert_eq!(refused.condition, condition::STOLEN);
        assert!(refused.description.unwrap().to_string().contains(sentence));
    }
    let negative = client.attach(with_level(-1, earliest())).await.unwrap_err();
    assert_eq!(negative.condition, condition::ARGUMENT_OUT_OF_RANGE);
    assert_eq!(text(&client.next_event(second).await), "a", "the current owner keeps the partition");
}

#[tokio::test(start_paused = true)]
async fn at_most_five_readers_without_owner_level_are_permitted() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let mut links = Vec::new();
    for _ in 0..5 {
        links.push(client.read(earliest()).await);
    }
    let sixth = client.attach(earliest()).await.unwrap_err();
    assert_eq!(sixth.condition, condition::RESOURCE_LIMIT_EXCEEDED);
    let said = sixth.description.unwrap().to_string();
    assert!(said.contains("List of connected receivers - nil, nil, nil, nil, nil."), "{said}");
    client.connection.detach(links[0], None);
    client.read(earliest()).await;
    let other_group = reader_at("clicks/ConsumerGroups/audit/Partitions/0", None);
    client.read(other_group).await;
}

#[tokio::test(start_paused = true)]
async fn missing_hubs_and_parts_are_not_found() {
    let rig = rig(2).await;
    let mut client = rig.client().await;
    let missing = [
        sender("nothing"),
        sender("nothing/Partitions/0"),
        reader_at("nothing/ConsumerGroups/$Default/Partitions/0", None),
        reader_at("clicks/ConsumerGroups/nobody/Partitions/0", None),
        receiver("clicks/$DeadLetterQueue", None),
    ];
    for attach in missing {
        let refused = client.attach(attach).await.unwrap_err();
        assert_eq!(refused.condition, condition::NOT_FOUND);
        let said = refused.description.unwrap().to_string();
        assert!(said.contains("The messaging entity") && said.contains("could not be found"), "{said}");
    }
    let wrong_way = [
        receiver("clicks", None),
        receiver("clicks/Partitions/0", None),
        sender("clicks/ConsumerGroups/$Default/Partitions/0"),
    ];
    for attach in wrong_way {
        assert_eq!(client.attach(attach).await.unwrap_err().condition, condition::NOT_ALLOWED);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_partition_is_out_of_range() {
    let rig = rig(2).await;
    let mut client = rig.client().await;
    let sentence = "The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 and 1.";
    let missing = [
        sender("clicks/Partitions/2"),
        sender("clicks/Partitions/XYZ"),
        reader_at("clicks/ConsumerGroups/$Default/Partitions/2", None),
        reader_at("clicks/ConsumerGroups/$Default/Partitions/-1", None),
    ];
    for attach in missing {
        let refused = client.attach(attach).await.unwrap_err();
        assert_eq!(refused.condition, condition::ARGUMENT_OUT_OF_RANGE);
        let said = refused.description.unwrap().to_string();
        assert!(said.starts_with(sentence), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_cannot_have_the_address_of_a_partition() {
    let rig = rig(1).await;
    let name = EntityName::parse("shop/publishers/till").unwrap();
    let error = rig.broker.create_queue(name, QueueSettings::default()).await.unwrap_err().to_string();
    assert!(error.contains("'publishers'") && error.contains("another name"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn repeated_events_of_a_numbering_producer_are_stored_once() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let wish = || Attach {
        desired_capabilities: vec![Symbol::from_static("com.microsoft:idempotent-producer")],
        properties: Some(Fields::new()),
        ..sender("clicks/Partitions/0")
    };
    let (link, reply) = client.attach(wish()).await.unwrap();
    let given = reply.properties.unwrap();
    let id = given.get("com.microsoft:producer-id").unwrap().clone();
    assert_eq!(given.get("com.microsoft:producer-epoch"), Some(&Value::Short(0)));
    assert_eq!(given.get("com.microsoft:producer-sequence-number"), Some(&Value::Int(0)));
    let numbered = |body: &'static str, number: i32, epoch: i16| {
        let message_annotations = Fields::new()
            .with("com.microsoft:producer-id", id.clone())
            .with("com.microsoft:producer-epoch", epoch)
            .with("com.microsoft:producer-sequence-number", number);
        Message { message_annotations, ..Message::data(body) }
    };
    assert_eq!(client.send(link, &numbered("a", 1, 0)).await, DeliveryState::Accepted);
    assert_eq!(client.send(link, &numbered("a", 1, 0)).await, DeliveryState::Accepted);
    let gap = client.send(link, &numbered("c", 3, 0)).await;
    assert_eq!(condition_of(&gap), condition::OUT_OF_ORDER_SEQUENCE);
    assert_eq!(condition_of(&client.send(link, &Message::data("x")).await), condition::ARGUMENT_ERROR);

    let again = Fields::new()
        .with("com.microsoft:producer-id", id.clone())
        .with("com.microsoft:producer-epoch", 1_i16)
        .with("com.microsoft:producer-sequence-number", Value::Null);
    let (newer, reply) = client.attach(Attach { properties: Some(again), ..wish() }).await.unwrap();
    let known = reply.properties.unwrap();
    assert_eq!(known.get("com.microsoft:producer-sequence-number"), Some(&Value::Int(1)));
    assert_eq!(client.send(newer, &numbered("b", 2, 1)).await, DeliveryState::Accepted);
    let stolen = client.send(link, &numbered("b", 2, 0)).await;
    assert_eq!(condition_of(&stolen), condition::PRODUCER_EPOCH_STOLEN);
    assert_eq!(client.detached(link).await.condition, condition::PRODUCER_EPOCH_STOLEN);

    let reader = client.read(earliest()).await;
    let found = client.events(reader, 2).await;
    assert_eq!(found.iter().map(text).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(found[0].message_annotations.len(), 3, "the numbers are not sent to readers");
}

#[tokio::test(start_paused = true)]
async fn a_producer_that_reconnects_continues_from_its_own_number() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let attach = |epoch: Value, sequence: Value| {
        let properties = Fields::new()
            .with("com.microsoft:producer-id", 7_i64)
            .with("com.microsoft:producer-epoch", epoch)
            .with("com.microsoft:producer-sequence-number", sequence);
        Attach {
            desired_capabilities: vec![Symbol::from_static("com.microsoft:idempotent-producer")],
            properties: Some(properties),
            ..sender("clicks/Partitions/0")
        }
    };
    let numbered = |number: i32| {
        let message_annotations = Fields::new()
            .with("com.microsoft:producer-id", 7_i64)
            .with("com.microsoft:producer-epoch", 1_i16)
            .with("com.microsoft:producer-sequence-number", number);
        Message { message_annotations, ..Message::data(format!("event {number}")) }
    };
    let (link, _) = client.attach(attach(1_i16.into(), Value::Int(0))).await.unwrap();
    for number in 1..=3 {
        assert_eq!(client.send(link, &numbered(number)).await, DeliveryState::Accepted);
    }
    // The producer has not received the outcome of the third event, and repeats it.
    let mut client = rig.client().await;
    let (again, reply) = client.attach(attach(1_i16.into(), Value::Int(2))).await.unwrap();
    let number = reply.properties.unwrap().get("com.microsoft:producer-sequence-number").cloned();
    assert_eq!(number, Some(Value::Int(2)), "the number of the client");
    assert_eq!(client.send(again, &numbered(3)).await, DeliveryState::Accepted);
    assert_eq!(client.send(again, &numbered(4)).await, DeliveryState::Accepted);
    // A link with another start number: its events are neither new nor an exact repetition.
    let (lost, _) = client.attach(attach(Value::Null, Value::Int(1))).await.unwrap();
    let mut batch = BatchBuilder::new(10_000);
    assert!([2, 3].iter().all(|number| batch.try_add(&numbered(*number).to_bytes())));
    let two = client.send_batch(lost, batch).await;
    assert_eq!(condition_of(&two), condition::OUT_OF_ORDER_SEQUENCE);

    let lower = client.attach(attach(0_i16.into(), Value::Null)).await.unwrap_err();
    assert_eq!(lower.condition, condition::PRODUCER_EPOCH_STOLEN);
    assert!(lower.description.unwrap().to_string().contains("Received: 0, Current: 1"));
    let negative = client.attach(attach((-1_i16).into(), Value::Null)).await.unwrap_err();
    assert_eq!(negative.condition, condition::ARGUMENT_OUT_OF_RANGE);

    let reader = client.read(earliest()).await;
    let found = client.events(reader, 4).await;
    assert_eq!(found.iter().map(text).collect::<Vec<_>>(), ["event 1", "event 2", "event 3", "event 4"]);
}

#[tokio::test(start_paused = true)]
async fn credit_limits_events_and_can_be_drained() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    client.send_all("clicks", &["a", "b", "c"]).await;
    let (link, reply) = client.attach(earliest()).await.unwrap();
    assert!(
        reply.max_message_size.is_none_or(|size| size >= 100 << 20),
        "larger than every event with its annotations"
    );
    client.connection.set_credit(link, 2);
    assert_eq!(client.events(link, 2).await.iter().map(number).collect::<Vec<_>>(), [0, 1]);
    client.connection.set_credit(link, 5);
    client.connection.drain(link);
    assert_eq!(number(&client.next_event(link).await), 2);
    let is_drained = |event: &Event| matches!(event, Event::Flow { drain: true, .. }).then_some(());
    client.until(is_drained).await;
    assert_eq!(client.connection.credit(link), 0);
    client.send_all("clicks", &["d"]).await;
    client.connection.set_credit(link, 1);
    assert_eq!(number(&client.next_event(link).await), 3);
}

/// Omitted events use no credit: a drain ends only after the other events have arrived.
#[tokio::test(start_paused = true)]
async fn a_drain_from_a_start_time_returns_all_available_events() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    client.send_all("clicks", &["a", "b", "c", "d", "e", "f"]).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    client.send_all("clicks", &["g", "h", "i", "j"]).await;
    let shard = rig.broker.place_partition(&hub(), 0);
    let upto = CommitGroupNumber(1000);
    rig.journal.ask_move(ShardId(u16::try_from(shard).unwrap()), BodyRange::groups_upto(upto));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let view = rig.broker.hub(hub()).await.unwrap();
    let partition = rig.broker.partition(&view, 0, None).await.unwrap().view;
    assert_eq!(partition.extent_count, 1, "old and new events share an extent");
    let since = partition.last_enqueued_at.unwrap().as_millis() - 5000;
    let attach = reader(&format!("amqp.annotation.x-opt-enqueued-time > '{since}'"));
    let link = client.attach(attach).await.unwrap().0;
    client.connection.set_credit(link, 5);
    client.connection.drain(link);
    client.flush().await;
    let mut found = Vec::new();
    loop {
        let event = client
            .until(|event| match event {
                Event::Delivery { delivery, .. } => {
                    Some(Some(number(&Message::decode(&delivery.payload).unwrap())))
                }
                Event::Flow { drain: true, .. } => Some(None),
                _ => None,
            })
            .await;
        match event {
            Some(number) => found.push(number),
            None => break,
        }
    }
    assert_eq!(found, [6, 7, 8, 9]);
    assert_eq!(client.connection.credit(link), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_detached_when_its_hub_is_deleted() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let sender = client.sender("clicks").await;
    let link = client.read(earliest()).await;
    rig.broker.delete_hub(hub(), None).await.unwrap();
    assert_eq!(client.detached(link).await.condition, condition::NOT_FOUND);
    let refused = client.send(sender, &Message::data("late")).await;
    assert_eq!(condition_of(&refused), condition::NOT_FOUND);
    assert_eq!(client.detached(sender).await.condition, condition::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_reader_without_credit_delays_no_other_link() {
    let rig = rig(2).await;
    let mut client = rig.client().await;
    let big: &'static str = Box::leak("x".repeat(100_000).into_boxed_str());
    for address in ["clicks/Partitions/0", "clicks/Partitions/1"] {
        client.send_all(address, &[big; 30]).await;
    }
    let stuck = client.attach(earliest()).await.unwrap().0;
    client.connection.set_credit(stuck, 1);
    client.next_event(stuck).await;
    let address = "clicks/ConsumerGroups/$Default/Partitions/1";
    let link = client.read(reader_at(address, None)).await;
    let found = client.events(link, 30).await;
    assert_eq!(found.iter().map(number).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
    client.connection.set_credit(stuck, 100);
    let rest = client.events(stuck, 29).await;
    assert_eq!(rest.iter().map(number).collect::<Vec<_>>(), (1..30).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_sender_uses_partitions_that_were_added() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let link = client.sender("clicks").await;
    assert_eq!(client.send(link, &keyed("before", "abcd")).await, DeliveryState::Accepted);
    let settings = HubSettings { partition_count: 4, ..HubSettings::default() };
    let view = rig.broker.update_hub(hub(), settings, None).await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(6)).await;
    for _ in 0..2 {
        assert_eq!(client.send(link, &keyed("after", "abcd")).await, DeliveryState::Accepted);
    }
    let home = partition_of_key("abcd", 4);
    let count = rig.broker.partition(&view, home, None).await.unwrap().view.next_sequence;
    assert_eq!(count, 1, "the first of the two causes the lookup, the second uses its result");
}

/// Returns a batch of one megabyte with the largest possible number of messages: all are empty.
pub(crate) fn smallest_messages() -> BatchBuilder {
    let mut batch = BatchBuilder::new(1024 * 1024);
    let message = Message::data("").to_bytes();
    while batch.try_add(&message) {}
    batch
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_events_is_limited_only_by_its_bytes() {
    let rig = rig(1).await;
    let mut client = rig.client().await;
    let batch = smallest_messages();
    let count = i64::try_from(batch.message_count()).unwrap();
    assert!(count > 100_000);
    let link = client.sender("clicks/Partitions/0").await;
    assert_eq!(client.send_batch(link, batch).await, DeliveryState::Accepted);
    client.send_all("clicks/Partitions/0", &["behind"]).await;
    let last = format!("amqp.annotation.x-opt-sequence-number > '{}'", count - 1);
    let link = client.read(reader(&last)).await;
    assert_eq!(number(&client.next_event(link).await), count);
}
