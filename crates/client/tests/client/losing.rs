//! A broken connection or link gives a clear error to everybody who waits.

use peeklock_amqp::connection::{Connection, Event};
use peeklock_amqp::{AmqpError, condition};
use peeklock_client::{Client, ConnectError, Error, Message, PipelineError, SequenceNumber};

use crate::script::{Then, accept, connect};

/// Grants everything, answers nothing, and goes when something comes in.
fn vanishing(connection: &mut Connection, event: Event) -> Then {
    match event {
        Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
        Event::Delivery { .. } => return Then::Vanish,
        _ => {}
    }
    Then::GoOn
}

#[tokio::test]
async fn everybody_who_waits_learns_of_a_lost_connection() {
    let client = connect(vanishing).await;
    let sender = client.sender("orders").await.unwrap();
    let mut pipeline = client.pipeline("orders", 1).await.unwrap();
    let mut receiver = client.receiver("orders").open().await.unwrap();
    let message = Message::data("x");
    let piped = async {
        pipeline.send(&message).await?;
        pipeline.flush().await
    };
    let (sent, piped, received) = tokio::join!(sender.send(&message), piped, receiver.next());
    let is_lost = |error: &Error| matches!(error, Error::ConnectionLost { .. });
    assert!(is_lost(sent.as_ref().unwrap_err()), "{sent:?}");
    assert!(matches!(&piped, Err(PipelineError::Lost(error)) if is_lost(error)), "{piped:?}");
    assert!(received.as_ref().err().is_some_and(is_lost));
    // And whoever comes later.
    assert!(is_lost(&sender.send(&message).await.unwrap_err()));
    assert!(is_lost(&client.peek("orders", SequenceNumber(1), 1).await.unwrap_err()));
    assert!(client.sender("orders").await.err().as_ref().is_some_and(is_lost));
    client.close().await;
}

#[tokio::test]
async fn a_refused_link_says_why() {
    let client = connect(|connection, event| {
        if let Event::Attach { link, .. } = event {
            connection.refuse(link, AmqpError::new(condition::NOT_FOUND, "no such queue"));
        }
        Then::GoOn
    })
    .await;
    let entity: std::sync::Arc<str> = "orders".into();
    let not_found = Error::NotFound { entity };
    assert_eq!(client.sender("orders").await.err(), Some(not_found.clone()));
    assert_eq!(client.receiver("orders").open().await.err(), Some(not_found.clone()));
    assert_eq!(client.peek("orders", SequenceNumber(1), 1).await.err(), Some(not_found));
}

#[tokio::test]
async fn a_link_that_the_broker_ends_leaves_the_others_alone() {
    let client = connect(|connection, event| {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Delivery { link, .. } => {
                connection
                    .detach(link, Some(AmqpError::new(condition::RESOURCE_DELETED, "the queue was deleted")));
            }
            _ => {}
        }
        Then::GoOn
    })
    .await;
    let sender = client.sender("orders").await.unwrap();
    let other = client.sender("bills").await.unwrap();
    let told = sender.send(&Message::data("x")).await;
    assert!(matches!(&told, Err(Error::LinkLost { .. })), "{told:?}");
    let again = sender.send(&Message::data("x")).await;
    assert_eq!(again, told);
    // Its own link is ended by its own send, not by the other's.
    assert!(told.unwrap_err().to_string().contains("'orders'"));
    assert!(other.send(&Message::data("x")).await.unwrap_err().to_string().contains("'bills'"));
}

#[tokio::test]
async fn a_closed_client_is_closed_for_everybody() {
    let client = connect(vanishing).await;
    let sender = client.sender("orders").await.unwrap();
    client.clone().close().await;
    assert_eq!(sender.send(&Message::data("x")).await, Err(Error::Closed));
    assert_eq!(client.receiver("orders").open().await.err(), Some(Error::Closed));
}

#[tokio::test]
async fn something_that_is_no_broker_is_not_taken_for_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let told = Client::connect(&format!("amqp://a:b@{address}")).await;
    assert!(matches!(told, Err(ConnectError::Protocol { .. })));
}
