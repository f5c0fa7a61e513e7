//! A lost connection or link fails every pending call with a clear error.

use peeklock_amqp::connection::{Connection, Event};
use peeklock_amqp::{AmqpError, condition};
use peeklock_client::{Client, ConnectError, Error, Message, PipelineError, SequenceNumber};

use crate::script::{Then, accept, connect};

/// Grants credit, answers nothing, and disconnects at the first delivery.
fn vanishing(connection: &mut Connection, event: Event) -> Then {
    match event {
        Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
        Event::Delivery { .. } => return Then::Vanish,
        _ => {}
    }
    Then::GoOn
}

#[tokio::test]
async fn pending_calls_fail_when_the_connection_is_lost() {
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
    // Later calls fail as well.
    assert!(is_lost(&sender.send(&message).await.unwrap_err()));
    assert!(is_lost(&client.peek("orders", SequenceNumber(1), 1).await.unwrap_err()));
    assert!(client.sender("orders").await.err().as_ref().is_some_and(is_lost));
    client.close().await;
}

#[tokio::test]
async fn a_rejected_link_returns_the_reason() {
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
async fn a_link_that_the_broker_ends_does_not_affect_others() {
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
    // The link is ended by its own send, not by that of the other link.
    assert!(told.unwrap_err().to_string().contains("'orders'"));
    assert!(other.send(&Message::data("x")).await.unwrap_err().to_string().contains("'bills'"));
}

#[tokio::test]
async fn a_closed_client_is_closed_for_its_clones() {
    let client = connect(vanishing).await;
    let sender = client.sender("orders").await.unwrap();
    client.clone().close().await;
    assert_eq!(sender.send(&Message::data("x")).await, Err(Error::Closed));
    assert_eq!(client.receiver("orders").open().await.err(), Some(Error::Closed));
}

#[tokio::test]
async fn a_server_of_another_protocol_is_rejected() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let told = Client::connect(&format!("amqp://a:b@{address}")).await;
    assert!(matches!(told, Err(ConnectError::Protocol { .. })));
}
