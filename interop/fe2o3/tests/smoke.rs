//! Tests with a third-party AMQP 1.0 client in Rust: sends, receives, and all settlements.

mod broker;

use anyhow::{Result, ensure};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::definitions::ReceiverSettleMode;
use fe2o3_amqp::types::messaging::{Body, Message, Modified, Outcome};
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::{Connection, Receiver, Sender, Session};

use crate::broker::Broker;

const QUEUE: &str = "work";

/// A broker and one session with a sender and a receiver.
struct Scene {
    sender: Sender,
    receiver: Receiver,
    session: SessionHandle<()>,
    connection: ConnectionHandle<()>,
    _broker: Broker,
}

impl Scene {
    async fn set() -> Result<Self> {
        Scene::with_settle_mode(ReceiverSettleMode::First).await
    }

    async fn with_settle_mode(mode: ReceiverSettleMode) -> Result<Self> {
        let broker = Broker::start(&[QUEUE])?;
        let url = format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{}", broker.address);
        let mut connection = Connection::open("fe2o3", url.as_str()).await?;
        let mut session = Session::begin(&mut connection).await?;
        let sender = Sender::attach(&mut session, "sender", QUEUE).await?;
        let options = Receiver::builder().name("receiver").source(QUEUE).receiver_settle_mode(mode);
        let receiver = options.attach(&mut session).await?;
        Ok(Scene { sender, receiver, session, connection, _broker: broker })
    }

    async fn send(&mut self, body: &str) -> Result<()> {
        let outcome = self.sender.send(body).await?;
        ensure!(matches!(outcome, Outcome::Accepted(_)), "the send of '{body}' ended as {outcome:?}");
        Ok(())
    }

    async fn receive(&mut self) -> Result<Delivery<String>> {
        Ok(self.receiver.recv().await?)
    }

    async fn close(mut self) -> Result<()> {
        self.sender.close().await?;
        self.receiver.close().await?;
        self.session.end().await?;
        self.connection.close().await?;
        Ok(())
    }
}

fn delivery_count(delivery: &Delivery<String>) -> u32 {
    delivery.message().header.as_ref().map_or(0, |header| header.delivery_count)
}

#[tokio::test]
async fn sends_arrive_in_order_and_are_accepted() -> Result<()> {
    let mut scene = Scene::set().await?;
    let bodies: Vec<String> = (0..50).map(|number| format!("entry {number}")).collect();
    for body in &bodies {
        scene.send(body).await?;
    }
    for body in &bodies {
        let delivery = scene.receive().await?;
        assert_eq!(delivery.body(), body);
        assert_eq!(delivery.delivery_tag().len(), 16, "the delivery tag must be the lock token");
        scene.receiver.accept(&delivery).await?;
    }
    scene.close().await
}

/// The Service Bus SDKs use this mode: the receiver keeps a delivery until the broker has settled it.
#[tokio::test]
async fn settlements_are_confirmed_when_the_receiver_settles_second() -> Result<()> {
    let mut scene = Scene::with_settle_mode(ReceiverSettleMode::Second).await?;
    for body in ["one", "two", "three"] {
        scene.send(body).await?;
        let delivery = scene.receive().await?;
        assert_eq!(delivery.body(), body);
        scene.receiver.accept(&delivery).await?;
    }
    scene.close().await
}

#[tokio::test]
async fn a_released_message_returns_without_counting_and_a_modified_one_counts() -> Result<()> {
    let mut scene = Scene::set().await?;
    scene.send("again").await?;
    let delivery = scene.receive().await?;
    scene.receiver.release(&delivery).await?;
    let delivery = scene.receive().await?;
    assert_eq!(delivery_count(&delivery), 0);
    let failed =
        Modified { delivery_failed: Some(true), undeliverable_here: None, message_annotations: None };
    scene.receiver.modify(&delivery, failed).await?;
    let delivery = scene.receive().await?;
    assert_eq!(delivery_count(&delivery), 1);
    scene.receiver.accept(&delivery).await?;
    scene.close().await
}

#[tokio::test]
async fn a_rejected_message_is_moved_to_the_dead_letter_queue() -> Result<()> {
    let mut scene = Scene::set().await?;
    scene.send("poison").await?;
    let delivery = scene.receive().await?;
    scene.receiver.reject(&delivery, None).await?;
    let mut dead = Receiver::attach(&mut scene.session, "dead", format!("{QUEUE}/$DeadLetterQueue")).await?;
    let delivery = dead.recv::<String>().await?;
    assert_eq!(delivery.body(), "poison");
    dead.accept(&delivery).await?;
    dead.close().await?;
    scene.close().await
}

#[tokio::test]
async fn a_large_message_in_many_frames_arrives_unchanged() -> Result<()> {
    let mut scene = Scene::set().await?;
    let large: Vec<u8> = (0..900 * 1024_u32).map(|number| u8::try_from(number % 251).unwrap()).collect();
    let message = Message::builder().data(large.clone()).build();
    scene.sender.send(message).await?;
    let delivery = scene.receiver.recv::<Body<Value>>().await?;
    let got: Vec<u8> =
        delivery.body().clone().try_into_data().unwrap().flat_map(|section| section.into_vec()).collect();
    assert!(got == large, "received {} bytes instead of {}", got.len(), large.len());
    scene.receiver.accept(&delivery).await?;
    scene.close().await
}

#[tokio::test]
async fn an_unknown_queue_is_rejected() -> Result<()> {
    let mut scene = Scene::set().await?;
    let refused = Sender::attach(&mut scene.session, "stray", "no-such-queue").await;
    let error = refused.err().map(|error| format!("{error:?}")).unwrap_or_default();
    assert!(error.contains("NotFound"), "{error}");
    scene.close().await
}
