//! Confirmations and rejections reach the send that they belong to.

use peeklock_amqp::connection::{Connection, Event};
use peeklock_amqp::{AmqpError, DeliveryState, Message as AmqpMessage, condition};
use peeklock_client::{Error, Message, PipelineError};

use crate::script::{Then, accept, connect};

/// Accepts every message, except those with the body "bad".
fn picky(connection: &mut Connection, event: Event) -> Then {
    match event {
        Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
        Event::Delivery { link, delivery } => {
            let is_bad = AmqpMessage::decode(&delivery.payload).unwrap() == AmqpMessage::data("bad");
            let state = match is_bad {
                true => DeliveryState::rejected(AmqpError::new(condition::NOT_ALLOWED, "it is bad")),
                false => DeliveryState::Accepted,
            };
            connection.settle(link, delivery.id, state);
            connection.set_credit(link, 100);
        }
        _ => {}
    }
    Then::GoOn
}

#[tokio::test]
async fn a_rejected_message_is_the_error_of_its_own_send() {
    let client = connect(picky).await;
    let sender = client.sender("orders").await.unwrap();
    let (good, bad) = (Message::data("good"), Message::data("bad"));
    let (first, second, third) = tokio::join!(sender.send(&good), sender.send(&bad), sender.send(&good));
    assert_eq!((first, third), (Ok(()), Ok(())));
    let Err(Error::Rejected { entity, error }) = second else { panic!("{second:?}") };
    assert_eq!((&*entity, error.condition.as_str()), ("orders", condition::NOT_ALLOWED));
}

#[tokio::test]
async fn a_pipeline_names_the_message_that_failed_and_continues() {
    let client = connect(picky).await;
    let mut pipeline = client.pipeline("orders", 10).await.unwrap();
    let messages: Vec<_> = (0..25).map(|n| Message::data(if n == 3 { "bad" } else { "good" })).collect();
    let told = pipeline.send_many(&messages[..5]).await.and(pipeline.flush().await);
    let Err(PipelineError::Failed(failure)) = told else { panic!("{told:?}") };
    assert_eq!(failure.number, 3);
    pipeline.send_many(&messages[5..]).await.unwrap();
    pipeline.flush().await.unwrap();
    assert_eq!(pipeline.unconfirmed_count(), 0);
}

#[tokio::test]
async fn a_batch_is_one_delivery() {
    let (told, mut formats) = tokio::sync::mpsc::unbounded_channel();
    let client = connect(move |connection, event| {
        if let Event::Delivery { delivery, .. } = &event {
            told.send(delivery.message_format).unwrap();
        }
        picky(connection, event)
    })
    .await;
    let sender = client.sender("orders").await.unwrap();
    sender.send_batch(&[Message::data("one"), Message::data("two")]).await.unwrap();
    sender.send_batch(&[]).await.unwrap();
    assert_eq!(formats.recv().await, Some(0x8001_3700));
    assert!(formats.try_recv().is_err(), "an empty batch is not sent");
}

#[tokio::test]
async fn sends_wait_for_credit_and_keep_their_order() {
    let (told, mut bodies) = tokio::sync::mpsc::unbounded_channel();
    // One credit at a time, the first after a delay.
    let client = connect(move |connection, event| {
        match event {
            Event::Attach { link, .. } => {
                connection.accept(link, Default::default());
                connection.set_credit(link, 1);
            }
            Event::Delivery { link, delivery } => {
                told.send(delivery.payload.clone()).unwrap();
                connection.settle(link, delivery.id, DeliveryState::Accepted);
                connection.set_credit(link, 1);
            }
            _ => {}
        }
        Then::GoOn
    })
    .await;
    let mut pipeline = client.pipeline("orders", 50).await.unwrap();
    let messages: Vec<_> = (0..50).map(|n| Message::data(format!("{n}"))).collect();
    pipeline.send_many(&messages).await.unwrap();
    pipeline.flush().await.unwrap();
    for message in &messages {
        assert_eq!(AmqpMessage::decode(&bodies.recv().await.unwrap()).as_ref(), Ok(message));
    }
}

#[tokio::test]
async fn a_message_over_the_limit_of_the_link_is_not_sent() {
    let client = connect(picky).await;
    let sender = client.sender("orders").await.unwrap();
    let told = sender.send(&Message::data(vec![0; 2 << 20])).await;
    assert!(matches!(told, Err(Error::TooLarge { max: 1_048_576, .. })), "{told:?}");
}
