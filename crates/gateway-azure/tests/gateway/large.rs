//! Large messages: they are received and sent in parts, and otherwise behave like any message.

use std::time::Duration;

use peeklock_amqp::connection::{Config, Event, LinkId, SaslClient};
use peeklock_amqp::{
    Attach, BATCH_FORMAT, Body, DeliveryState, Encode, Message, SenderSettleMode, Value, condition,
};
use peeklock_types::{EntityName, Placement, QueueSettings};

use crate::support::{Client, Management, Response, Rig, condition_of, message, receiver, sender};

const MIB: usize = 1024 * 1024;
const SIZE_MAX: u32 = 8 * 1024 * 1024;

fn settings() -> QueueSettings {
    QueueSettings { max_message_size_bytes: SIZE_MAX, ..QueueSettings::default() }
}

fn large(size: usize) -> Message {
    let body: Vec<u8> = (0..size).map(|n| u8::try_from((n * 31 + n / 251) % 251).unwrap()).collect();
    let mut message = Message::data(body).with_message_id("large").with_property("colour", "green");
    message.properties.subject = Some("much".into());
    message
}

/// Returns the attach of a receiver of large messages. `settled` selects receive-and-delete.
pub(crate) fn large_receiver(name: &'static str, settled: bool) -> Attach {
    let mode = if settled { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
    Attach { max_message_size: Some(100 << 20), snd_settle_mode: mode, ..receiver(name, None) }
}

async fn receive_from(
    client: &mut Client,
    name: &'static str,
) -> (LinkId, peeklock_amqp::connection::Delivery, Message) {
    let link = client.attach(large_receiver(name, false)).await.unwrap().0;
    let (delivery, message) = client.receive(link).await;
    (link, delivery, message)
}

async fn peek_from(client: &mut Client, management: &Management, from: i64) -> Vec<Message> {
    let body = vec![("from-sequence-number", from.into()), ("message-count", 100.into())];
    messages_of(&client.request(management, "com.microsoft:peek-message", body).await)
}

fn messages_of(response: &Response) -> Vec<Message> {
    let decode =
        |entry: &Value| Message::decode(entry.lookup("message").unwrap().as_bytes().unwrap()).unwrap();
    response.get("messages").as_list().map_or(Vec::new(), |list| list.iter().map(decode).collect())
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_sent_and_received_like_any_other() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    for size in [MIB - 200, MIB + 1, 2 * MIB, 2 * MIB + 4096, 5 * MIB] {
        let sent = large(size);
        assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted, "{size}");
        let (link, delivery, found) = receive_from(&mut client, "q").await;
        assert!(found.body == sent.body, "{size}");
        assert_eq!(found.properties.subject, sent.properties.subject);
        assert_eq!(found.application_properties, sent.application_properties);
        assert_eq!(client.settle(link, delivery.id, DeliveryState::Accepted).await, DeliveryState::Accepted);
        client.connection.detach(link, None);
    }
    let management = client.management("q").await;
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_above_the_limit_is_rejected_and_the_link_continues() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    for _ in 0..3 {
        let refused = client.send(sender, &large(SIZE_MAX as usize)).await;
        assert_eq!(condition_of(&refused), condition::MESSAGE_SIZE_EXCEEDED);
    }
    assert_eq!(client.send(sender, &message("small")).await, DeliveryState::Accepted);
    let management = client.management("q").await;
    assert_eq!(client.count(&management).await, 1);
}

#[tokio::test(start_paused = true)]
async fn invalid_large_deliveries_are_rejected_with_their_condition() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    client.send(sender, &message("credit has come")).await;
    let batch = peeklock_amqp::connection::Outgoing {
        tag: 77.into(),
        message_format: BATCH_FORMAT,
        settled: false,
        state: None,
    };
    client.connection.send(sender, &batch, &[&large(3 * MIB).to_bytes()]).unwrap();
    let refused = client
        .until(|event| match event {
            Event::Disposition { state: Some(state), .. } => Some(state.clone()),
            _ => None,
        })
        .await;
    assert_eq!(condition_of(&refused), condition::MESSAGE_SIZE_EXCEEDED);
    let mut broken = large(3 * MIB).to_bytes().to_vec();
    broken.truncate(2 * MIB);
    let whole = peeklock_amqp::connection::Outgoing { tag: 78.into(), message_format: 0, ..batch };
    client.connection.send(sender, &whole, &[&broken]).unwrap();
    let refused = client
        .until(|event| match event {
            Event::Disposition { state: Some(state), .. } => Some(state.clone()),
            _ => None,
        })
        .await;
    assert_eq!(condition_of(&refused), condition::DECODE_ERROR);
    assert_eq!(client.send(sender, &message("small")).await, DeliveryState::Accepted);
}

/// The message is removed before its last part is sent; its bytes must remain until then.
#[tokio::test(start_paused = true)]
async fn receive_and_delete_sends_the_whole_message() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(6 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    let link = client.attach(large_receiver("q", true)).await.unwrap().0;
    // Long enough for the shard to free bodies without a holder.
    client.connection.set_credit(link, 1);
    client.flush().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (delivery, found) = client.receive(link).await;
    assert!(delivery.settled && found.body == sent.body);
    let management = client.management("q").await;
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_large_message_that_cannot_be_read_for_a_while_is_delivered_later() {
    let shard = Placement::default().of(&EntityName::parse("q").unwrap());
    for settled in [false, true] {
        let rig = Rig::with_queue("q", settings()).await;
        let mut client = rig.client().await;
        let sender = client.sender("q").await;
        let sent = large(3 * MIB);
        assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
        rig.journal.cool(shard);
        // More failures than one delivery is retried for.
        rig.journal.fail_reads(shard, 6);
        let link = client.attach(large_receiver("q", settled)).await.unwrap().0;
        let (_, found) = client.receive(link).await;
        assert!(found.body == sent.body, "{settled}");
        assert_eq!(found.header.unwrap().delivery_count.unwrap_or(0), 0, "a failed read does not count");
        assert_eq!(rig.journal.failing_reads(shard), 0);
    }
}

/// The message is lost for its receiver if the read fails in the middle, and not for the queue.
#[tokio::test(start_paused = true)]
async fn receive_and_delete_removes_no_large_message_that_was_not_read_to_its_end() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(6 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    let link = client.attach(large_receiver("q", true)).await.unwrap().0;
    client.connection.set_credit(link, 1);
    client.flush().await;
    // The peer does not read, so the broker stops in the middle.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let shard = Placement::default().of(&EntityName::parse("q").unwrap());
    rig.journal.cool(shard);
    rig.journal.fail_reads(shard, 4);
    assert_eq!(client.detached(link).await.condition, condition::INTERNAL_ERROR);
    let (_, _, found) = receive_from(&mut client, "q").await;
    assert!(found.body == sent.body);
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_dead_lettered_with_its_reason() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(3 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    let (link, delivery, _) = receive_from(&mut client, "q").await;
    let error = peeklock_amqp::AmqpError::new("com.microsoft:dead-letter", "")
        .with_info("DeadLetterReason", "poison");
    client.settle(link, delivery.id, DeliveryState::rejected(error)).await;
    let (_, _, found) = receive_from(&mut client, "q/$deadletterqueue").await;
    assert!(found.body == sent.body);
    assert_eq!(found.application_properties.len(), 2, "{:?}", found.application_properties);
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_forwarded_from_shard_to_shard() {
    let name = |text: &str| EntityName::parse(text).unwrap();
    let far = ["far1", "far2", "far3", "far4"]
        .into_iter()
        .find(|far| Placement::default().of(&name(far)) != Placement::default().of(&name("q")))
        .unwrap();
    let rig = Rig::start().await;
    rig.queue(far, settings()).await;
    rig.queue("q", QueueSettings { forward_to: Some(name(far)), ..settings() }).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(4 * MIB);
    assert_eq!(client.send(sender, &message("before")).await, DeliveryState::Accepted);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    assert_eq!(client.send(sender, &message("after")).await, DeliveryState::Accepted);
    let link = client.attach(large_receiver(far, true)).await.unwrap().0;
    for expected in [message("before"), sent, message("after")] {
        assert!(client.receive(link).await.1.body == expected.body);
    }
}

/// The target accepts no message of that size: it is dead-lettered at the source, complete.
#[tokio::test(start_paused = true)]
async fn a_large_message_that_the_target_rejects_is_kept() {
    let rig = Rig::start().await;
    rig.queue("small", QueueSettings::default()).await;
    let forward_to = Some(EntityName::parse("small").unwrap());
    rig.queue("q", QueueSettings { forward_to, ..settings() }).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(4 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    let (_, _, found) = receive_from(&mut client, "q/$Transfer/$deadletterqueue").await;
    assert!(found.body == sent.body);
}

#[tokio::test(start_paused = true)]
async fn a_peek_returns_the_whole_message() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(7 * MIB);
    assert_eq!(client.send(sender, &message("small")).await, DeliveryState::Accepted);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    assert_eq!(client.send(sender, &message("last")).await, DeliveryState::Accepted);
    let management = client.management("q").await;
    let mut bodies = Vec::new();
    for from in [0, 2, 3] {
        let found = peek_from(&mut client, &management, from).await;
        assert_eq!(found.len(), 1, "a large message does not share a response with others");
        bodies.extend(found.into_iter().map(|found| found.body));
    }
    assert!(bodies == [message("small").body, sent.body, message("last").body]);
    let body = vec![
        ("from-sequence-number", 2_i64.into()),
        ("message-count", 1.into()),
        ("omit-message-body", true.into()),
    ];
    let response = client.request(&management, "com.microsoft:peek-message", body).await;
    let found = &messages_of(&response)[0];
    assert_eq!((&found.body, found.properties.subject.as_ref()), (&Body::None, Some(&"much".into())));
}

/// The response continues whenever the peer has room, and later responses of the same link wait for it.
#[tokio::test(start_paused = true)]
async fn a_peer_with_a_narrow_window_is_answered_in_full_and_in_order() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut config = Config::client("test", "localhost");
    config.incoming_window = 4;
    let mut client = rig.client_as(config, SaslClient::plain("all", "secret")).await;
    let sender = client.sender("q").await;
    let sent = large(6 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    assert_eq!(client.send(sender, &message("small")).await, DeliveryState::Accepted);
    let management = client.management("q").await;
    for from in [1_i64, 2, 1] {
        let body = vec![("from-sequence-number", from.into()), ("message-count", 1.into())];
        client.start_request(&management, "com.microsoft:peek-message", body, None);
    }
    for expected in [&sent.body, &message("small").body, &sent.body] {
        let (_, response) = client.response(&management).await;
        assert!(messages_of(&response)[0].body == *expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_deferred_and_received_by_its_number() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let bodies = [large(3 * MIB), message("small"), large(8 * MIB - 4096)];
    for sent in &bodies {
        assert_eq!(client.send(sender, sent).await, DeliveryState::Accepted);
        let (link, delivery, _) = receive_from(&mut client, "q").await;
        let deferred = DeliveryState::Modified {
            delivery_failed: Some(true),
            undeliverable_here: Some(true),
            message_annotations: None,
        };
        let outcome = client.settle(link, delivery.id, deferred).await;
        assert!(matches!(outcome, DeliveryState::Modified { .. }), "{outcome:?}");
        client.connection.detach(link, None);
    }
    let management = client.management("q").await;
    let by_number = |mode: u32| {
        let numbers = Value::Array(peeklock_amqp::Array::longs([1, 2, 3]));
        vec![("sequence-numbers", numbers), ("receiver-settle-mode", Value::Uint(mode))]
    };
    let operation = "com.microsoft:receive-by-sequence-number";
    let received = client.request(&management, operation, by_number(1)).await;
    let found = messages_of(&received);
    assert!(found.iter().map(|found| &found.body).eq(bodies.iter().map(|sent| &sent.body)));
    let entries = received.get("messages");
    let tokens = entries.as_list().unwrap().iter().map(|entry| entry.lookup("lock-token").unwrap().clone());
    let tokens = tokens.collect::<Vec<_>>();
    let body = vec![("lock-tokens", Value::List(tokens)), ("disposition-status", "abandoned".into())];
    assert_eq!(client.request(&management, "com.microsoft:update-disposition", body).await.status, 200);
    // The messages are deleted when the response is created; their bytes must remain until it is sent.
    let received = client.request(&management, operation, by_number(0)).await;
    let found = messages_of(&received);
    assert!(found.iter().map(|found| &found.body).eq(bodies.iter().map(|sent| &sent.body)));
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_stops_in_the_middle_leaves_no_bytes() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    assert_eq!(client.send(sender, &message("small")).await, DeliveryState::Accepted);
    let bytes = large(5 * MIB).to_bytes();
    let outgoing =
        peeklock_amqp::connection::Outgoing { tag: 9.into(), message_format: 0, settled: false, state: None };
    client.connection.send_part(sender, &outgoing, &[&bytes[..3 * MIB]], true).unwrap();
    client.flush().await;
    // The delivery is aborted, and the link continues.
    client.connection.abort(sender);
    assert_eq!(client.send(sender, &message("next")).await, DeliveryState::Accepted);
    client.connection.send_part(sender, &outgoing, &[&bytes[..3 * MIB]], true).unwrap();
    client.flush().await;
    drop(client);
    let mut client = rig.client().await;
    let management = client.management("q").await;
    assert_eq!(client.count(&management).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_returns_when_its_receiver_stops_in_the_middle() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(7 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    let mut slow = rig.client().await;
    let link = slow.attach(large_receiver("q", false)).await.unwrap().0;
    slow.connection.set_credit(link, 1);
    slow.flush().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(slow);
    let (_, _, found) = receive_from(&mut client, "q").await;
    assert!(found.body == sent.body);
    assert_eq!(found.header.unwrap().delivery_count.unwrap_or(0), 0, "an incomplete delivery does not count");
}

/// The peer's window is small: the message is sent as the peer accepts it, and other deliveries are not blocked.
#[tokio::test(start_paused = true)]
async fn a_slow_receiver_does_not_block_other_links() {
    let rig = Rig::with_queue("q", settings()).await;
    rig.queue("other", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(7 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    let other = client.sender("other").await;
    let small = client.receiver("other").await;
    let link = client.attach(large_receiver("q", false)).await.unwrap().0;
    client.connection.set_credit(link, 5);
    client.connection.set_credit(small, 5);
    client.flush().await;
    assert_eq!(client.send(other, &message("small")).await, DeliveryState::Accepted);
    let first = client
        .until(|event| match event {
            Event::Delivery { link, .. } => Some(*link),
            _ => None,
        })
        .await;
    assert_eq!(first, small, "the small one overtakes the large one");
    let (_, found) = client.receive(link).await;
    assert!(found.body == sent.body);
}

#[tokio::test(start_paused = true)]
async fn a_message_completed_while_a_response_contains_it_is_sent_whole() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let sent = large(5 * MIB);
    assert_eq!(client.send(sender, &sent).await, DeliveryState::Accepted);
    let mut slow = rig.client().await;
    let management = slow.management_with("q", 0).await;
    let peek = vec![("from-sequence-number", 1_i64.into()), ("message-count", 1.into())];
    slow.start_request(&management, "com.microsoft:peek-message", peek, None);
    slow.flush().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (link, delivery, _) = receive_from(&mut client, "q").await;
    assert_eq!(client.settle(link, delivery.id, DeliveryState::Accepted).await, DeliveryState::Accepted);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let cold_bytes =
        || rig.journal.standalone_bytes(Placement::default().of(&EntityName::parse("q").unwrap()));
    assert!(cold_bytes() > 0, "the body is kept for the response");
    slow.connection.set_credit(management.responses, 1);
    let (_, response) = slow.response(&management).await;
    assert!(messages_of(&response)[0].body == sent.body);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cold_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_sender_receives_the_batch_size_limit() {
    let rig = Rig::with_queue("q", settings()).await;
    let mut client = rig.client().await;
    let attach = client.attach(sender("q")).await.unwrap().1;
    assert_eq!(attach.max_message_size, Some(SIZE_MAX.into()));
    let batch_size_max =
        attach.properties.as_ref().and_then(|it| it.get("com.microsoft:max-message-batch-size"));
    assert_eq!(batch_size_max, Some(&Value::Ulong(MIB as u64)));
}
