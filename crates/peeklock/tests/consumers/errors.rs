//! Errors that users meet: kind, code and text are the same over every transport, and no message is lost.

use peeklock::admin::{Queue, QueueStatus};
use peeklock::{Error, Kind, Message};

use crate::world::{World, take};

on_every_transport!(
    a_missing_queue_is_named,
    a_disabled_queue_is_named,
    a_queue_with_sessions_needs_a_session,
    a_message_that_is_too_large_is_refused,
);

/// Asserts the kind and the code of an error that does not pass, and parts of its text.
fn assert_error(error: &Error, kind: Kind, code: &str, parts: &[&str]) {
    assert_eq!((error.kind(), error.code(), error.is_transient()), (kind, code, false), "{error}");
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

async fn a_missing_queue_is_named(world: World) {
    let sender = world.client.sender("ordrs").await.err().unwrap();
    let receiver = world.client.receiver("ordrs").open().await.err().unwrap();
    let processor = world.client.processor("ordrs").handler(|| async {}).start().await.err().unwrap();
    for error in [sender, receiver, processor] {
        assert_error(&error, Kind::NotFound, "E-ENT-04", &["ordrs", "peeklock queue create ordrs"]);
    }
}

async fn a_disabled_queue_is_named(world: World) {
    world.queue_with("orders", Queue::new(), &["a"]).await;
    let sender = world.client.sender("orders").await.unwrap();
    let admin = world.client.admin();
    admin.update_queue("orders", Queue::new().status(QueueStatus::Disabled)).await.unwrap();
    let parts = ["\"orders\" is disabled", "Set its status to active"];
    let sent = sender.send(Message::text("b")).await.unwrap_err();
    assert_error(&sent, Kind::WrongEntity, "E-ENT-05", &parts);
    let opened = world.client.receiver("orders").open().await.err().unwrap();
    assert_error(&opened, Kind::WrongEntity, "E-ENT-05", &parts);
    let started = world.client.processor("orders").handler(|| async {}).start().await.err().unwrap();
    assert_error(&started, Kind::WrongEntity, "E-ENT-05", &parts);
    admin.update_queue("orders", Queue::new().status(QueueStatus::Active)).await.unwrap();
    take(&mut world.receiver("orders").await).await.complete().await.unwrap();
    world.assert_empty("orders").await;
}

async fn a_queue_with_sessions_needs_a_session(world: World) {
    world.queue("chat", Queue::new().sessions(true)).await;
    let parts = ["Queue \"chat\" requires sessions", "session_processor(\"chat\")"];
    let opened = world.client.receiver("chat").open().await.err().unwrap();
    assert_error(&opened, Kind::WrongEntity, "E-SESS-02", &parts);
    let started = world.client.processor("chat").handler(|| async {}).start().await.err().unwrap();
    assert_error(&started, Kind::WrongEntity, "E-SESS-02", &parts);
    let sent = world.client.sender("chat").await.unwrap().send(Message::text("a")).await.unwrap_err();
    assert_error(&sent, Kind::Rejected, "E-REJ-02", &["\"chat\"", "session"]);
    world.assert_empty("chat").await;
}

async fn a_message_that_is_too_large_is_refused(world: World) {
    world.queue("orders", Queue::new().max_message_size_bytes(10_000)).await;
    let sender = world.client.sender("orders").await.unwrap();
    let parts =
        ["bytes exceeds the limit of 10,000 for \"orders\"", "split the batch, or raise max-message-size"];
    let single = sender.send(Message::new(vec![7; 10_001])).await.unwrap_err();
    assert_error(&single, Kind::TooLarge, "E-SIZE-01", &parts);
    let batch = sender.send_batch((0..3).map(|_| Message::new(vec![7; 4_000]))).await.unwrap_err();
    assert_error(&batch, Kind::TooLarge, "E-SIZE-01", &parts);
    world.assert_empty("orders").await;
    // The sender is not harmed.
    sender.send(Message::text("small")).await.unwrap();
    take(&mut world.receiver("orders").await).await.complete().await.unwrap();
}
