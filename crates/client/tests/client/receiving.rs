//! Credit, settlements and the end of a receiver.

use std::sync::{Arc, Mutex};

use peeklock_amqp::connection::{Connection, Event, LinkId, Outgoing};
use peeklock_amqp::{AmqpError, DeliveryState, DeliveryTag, Encode, Message, condition};
use peeklock_client::{Client, Error, Outcome};

use crate::script::{Then, accept, connect, deliver};

/// An endless queue: one message for every credit. Settlements are confirmed with the same state and recorded.
#[derive(Default)]
pub(crate) struct Endless {
    delivered: u32,
    /// The largest number of unsettled messages so far.
    out_max: u32,
    out: u32,
    pub(crate) settled: Vec<DeliveryState>,
}

impl Endless {
    pub(crate) async fn connect() -> (Client, Arc<Mutex<Endless>>) {
        let queue = Arc::<Mutex<Endless>>::default();
        let script = Arc::clone(&queue);
        (connect(move |connection, event| script.lock().unwrap().handle(connection, event)).await, queue)
    }

    pub(crate) fn handle(&mut self, connection: &mut Connection, event: Event) -> Then {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Flow { link, credit, drain, .. } => {
                if drain {
                    connection.drained(link);
                } else {
                    self.deliver(connection, link, credit);
                }
            }
            Event::Disposition { link, id, state: Some(state), .. } => {
                self.out = self.out.saturating_sub(1);
                connection.settle(link, id, confirmation(&state));
                self.settled.push(state);
            }
            _ => {}
        }
        Then::GoOn
    }

    fn deliver(&mut self, connection: &mut Connection, link: LinkId, count: u32) {
        deliver(connection, link, self.delivered, count);
        self.delivered += count;
        self.out += count;
        self.out_max = self.out_max.max(self.out);
    }
}

/// Returns the confirmation of Service Bus: the same kind of outcome, and a rejection without its error.
fn confirmation(state: &DeliveryState) -> DeliveryState {
    match state {
        DeliveryState::Rejected { .. } => DeliveryState::Rejected { error: None },
        other => other.clone(),
    }
}

#[tokio::test]
async fn messages_arrive_in_order_and_within_the_credit() {
    let (client, queue) = Endless::connect().await;
    let mut receiver = client.receiver("orders").credit(10).open().await.unwrap();
    for number in 0..100 {
        let delivery = receiver.next().await.unwrap().unwrap();
        assert_eq!(delivery.message().unwrap().body_text(), number.to_string());
        delivery.complete().await.unwrap();
    }
    let queue = queue.lock().unwrap();
    assert_eq!(queue.settled.iter().filter(|state| **state == DeliveryState::Accepted).count(), 100);
    assert!(queue.out_max <= 10, "{}", queue.out_max);
}

#[tokio::test]
async fn every_outcome_is_confirmed() {
    let (client, queue) = Endless::connect().await;
    let mut receiver = client.receiver("orders").credit(5).open().await.unwrap();
    let mut next = async || receiver.next().await.unwrap().unwrap();
    next().await.complete().await.unwrap();
    next().await.abandon().await.unwrap();
    next().await.defer().await.unwrap();
    next().await.dead_letter("bad", "street is empty").await.unwrap();
    next().await.release().await.unwrap();
    let settled = &queue.lock().unwrap().settled;
    assert!(matches!(
        settled[..],
        [
            DeliveryState::Accepted,
            DeliveryState::Modified { .. },
            DeliveryState::Modified { undeliverable_here: Some(true), .. },
            DeliveryState::Rejected { error: Some(_) },
            DeliveryState::Released,
        ]
    ));
}

#[tokio::test]
async fn many_settlements_are_flushed_together() {
    let (client, queue) = Endless::connect().await;
    let mut receiver = client.receiver("orders").credit(100).open().await.unwrap();
    let mut deliveries = Vec::new();
    while deliveries.len() < 100 {
        let room = 100 - deliveries.len();
        receiver.next_many(&mut deliveries, room).await.unwrap();
    }
    receiver.settle_many(deliveries, Outcome::Complete).await.unwrap();
    receiver.flush().await.unwrap();
    assert_eq!(receiver.confirmed_count(), 100);
    assert_eq!(queue.lock().unwrap().settled.len(), 100);
}

#[tokio::test]
async fn manual_credit_brings_the_requested_messages_and_stop_ends_them() {
    let (client, queue) = Endless::connect().await;
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.add_credit(3).await.unwrap();
    for _ in 0..3 {
        receiver.next().await.unwrap().unwrap().complete().await.unwrap();
    }
    receiver.stop().await.unwrap();
    assert!(receiver.next().await.unwrap().is_none());
    assert_eq!(queue.lock().unwrap().delivered, 3);
}

#[tokio::test]
async fn a_drained_receiver_has_all_messages_in_flight_and_can_go_on() {
    let (client, queue) = Endless::connect().await;
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.drain().await.unwrap();
    assert!(receiver.try_next().is_none());
    receiver.add_credit(2).await.unwrap();
    receiver.drain().await.unwrap();
    for _ in 0..2 {
        receiver.try_next().unwrap().complete().await.unwrap();
    }
    assert!(receiver.try_next().is_none());
    receiver.add_credit(1).await.unwrap();
    receiver.next().await.unwrap().unwrap().complete().await.unwrap();
    assert_eq!(queue.lock().unwrap().delivered, 3);
}

#[tokio::test]
async fn closing_releases_messages_that_were_not_taken() {
    let (client, queue) = Endless::connect().await;
    let mut receiver = client.receiver("orders").credit(10).open().await.unwrap();
    receiver.next().await.unwrap().unwrap().complete().await.unwrap();
    receiver.close().await.unwrap();
    client.close().await;
    let queue = queue.lock().unwrap();
    let released = queue.settled.iter().filter(|state| **state == DeliveryState::Released).count();
    assert_eq!(released, usize::try_from(queue.delivered).unwrap() - 1);
}

#[tokio::test]
async fn a_lost_lock_is_reported_with_its_consequence() {
    let client = connect(|connection, event| {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Flow { link, credit, .. } if credit > 0 => deliver(connection, link, 0, 1),
            Event::Disposition { link, id, .. } => {
                let error = AmqpError::new(condition::MESSAGE_LOCK_LOST, "the lock expired");
                connection.settle(link, id, DeliveryState::rejected(error));
            }
            _ => {}
        }
        Then::GoOn
    })
    .await;
    let mut receiver = client.receiver("orders").credit(1).open().await.unwrap();
    let told = receiver.next().await.unwrap().unwrap().complete().await;
    assert!(matches!(&told, Err(Error::LockLost { .. })), "{told:?}");
}

#[tokio::test]
async fn a_large_message_is_not_rejected() {
    let client = connect(|connection, event| {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Flow { link, credit, .. } if credit > 0 => {
                let delivery = Outgoing {
                    tag: DeliveryTag::from([7; 16]),
                    message_format: 0,
                    settled: false,
                    state: None,
                };
                let payload = Message::data(vec![b'x'; 3 << 20]).to_bytes();
                connection.send(link, &delivery, &[&payload]).unwrap();
            }
            Event::Disposition { link, id, state: Some(state), .. } => connection.settle(link, id, state),
            _ => {}
        }
        Then::GoOn
    })
    .await;
    let mut receiver = client.receiver("orders").credit(1).open().await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    assert_eq!(delivery.message().unwrap().body_text().len(), 3 << 20);
    delivery.complete().await.unwrap();
}
