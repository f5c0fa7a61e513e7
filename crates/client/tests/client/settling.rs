//! Settlements in batches, with a result for each.

use std::future::poll_fn;

use peeklock_amqp::connection::{Connection, Event};
use peeklock_amqp::{AmqpError, DeliveryState, condition};
use peeklock_client::{Client, Delivery, Error, Outcome, Settled, Settler};

use crate::receiving::Endless;
use crate::script::{Then, accept, connect, deliver};

/// Receives `count` messages.
async fn receive(client: &Client, count: usize) -> Vec<Delivery> {
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.add_credit(u32::try_from(count).unwrap()).await.unwrap();
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        let room = count - deliveries.len();
        receiver.next_many(&mut deliveries, room).await.unwrap();
    }
    deliveries
}

/// Waits for `count` results, and returns them by their keys.
async fn results(settler: &mut Settler, count: usize) -> Vec<Settled> {
    let mut results = Vec::new();
    while results.len() < count {
        poll_fn(|cx| settler.poll_settled(cx, &mut results)).await;
    }
    results.sort_by_key(|(key, _)| *key);
    results
}

#[tokio::test]
async fn each_settlement_of_a_batch_has_a_result_of_its_own() {
    let client = connect(|connection: &mut Connection, event| {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Flow { link, credit, .. } if credit > 0 => deliver(connection, link, 0, credit),
            Event::Disposition { link, id, state: Some(state), .. } => {
                let lost = AmqpError::new(condition::MESSAGE_LOCK_LOST, "the lock expired");
                let answer = match state {
                    DeliveryState::Released => DeliveryState::rejected(lost),
                    state => state,
                };
                connection.settle(link, id, answer);
            }
            _ => {}
        }
        Then::GoOn
    })
    .await;
    let mut settler = Settler::default();
    for (key, delivery) in (0_u64..).zip(receive(&client, 20).await) {
        let outcome = if key % 5 == 0 { Outcome::Release } else { Outcome::Complete };
        settler.push(key, delivery, outcome);
    }
    settler.send().await;
    let results = results(&mut settler, 20).await;
    assert!(results.iter().map(|(key, _)| *key).eq(0..20), "{results:?}");
    for (key, result) in results {
        match result {
            Ok(()) => assert_ne!(key % 5, 0),
            Err(error) => assert!(key % 5 == 0 && matches!(error, Error::LockLost { .. }), "{key}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_batch_contains_deliveries_of_several_receivers() {
    let (client, queue) = Endless::connect().await;
    let (one, two) = (receive(&client, 3).await, receive(&client, 3).await);
    let mut settler = Settler::default();
    for (key, delivery) in (0..).zip(one.into_iter().zip(two).flat_map(|(one, two)| [one, two])) {
        settler.push(key, delivery, Outcome::Complete);
    }
    settler.send().await;
    assert!(results(&mut settler, 6).await.iter().all(|(_, result)| result.is_ok()));
    let accepted =
        |settled: &[DeliveryState]| settled.iter().filter(|state| **state == DeliveryState::Accepted).count();
    assert_eq!(accepted(&queue.lock().unwrap().settled), 6);
}

#[tokio::test]
async fn every_settlement_has_a_result_when_the_connection_is_lost() {
    let client = connect(|connection: &mut Connection, event| {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Flow { link, credit, .. } if credit > 0 => deliver(connection, link, 0, credit),
            Event::Disposition { .. } => return Then::Vanish,
            _ => {}
        }
        Then::GoOn
    })
    .await;
    let mut deliveries = receive(&client, 5).await;
    let late = deliveries.pop().unwrap();
    let mut settler = Settler::default();
    for (key, delivery) in (0..).zip(deliveries) {
        settler.push(key, delivery, Outcome::Complete);
    }
    settler.send().await;
    for (_, result) in results(&mut settler, 4).await {
        assert!(matches!(result, Err(Error::ConnectionLost { .. })), "{result:?}");
    }
    // The driver is gone, and with it the queue of commands.
    settler.push(7, late, Outcome::Complete);
    settler.send().await;
    let result = results(&mut settler, 1).await;
    assert!(matches!(result[..], [(7, Err(Error::ConnectionLost { .. }))]), "{result:?}");
}

#[tokio::test]
async fn a_message_that_was_deleted_when_it_was_received_has_a_result_at_once() {
    let client = connect(|connection: &mut Connection, event| {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Flow { link, credit, .. } if credit > 0 => {
                let tag = peeklock_amqp::DeliveryTag::from([7; 16]);
                let delivery = peeklock_amqp::connection::Outgoing {
                    tag,
                    message_format: 0,
                    settled: true,
                    state: None,
                };
                connection.send(link, &delivery, &[b"".as_slice()]).unwrap();
            }
            _ => {}
        }
        Then::GoOn
    })
    .await;
    let mut settler = Settler::default();
    for (key, outcome) in (0..).zip([Outcome::Complete, Outcome::Abandon]) {
        let delivery = receive(&client, 1).await.remove(0);
        settler.push(key, delivery, outcome);
    }
    let mut arrived = Vec::new();
    settler.try_settled(&mut arrived);
    assert!(matches!(arrived[..], [(0, Ok(())), (1, Err(Error::NotLocked { .. }))]), "{arrived:?}");
}
