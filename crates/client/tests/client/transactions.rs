//! Transactions and sessions with a broker that loses its coordinator or lacks features.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock_amqp::connection::{AttachReply, Connection, Event};
use peeklock_amqp::{AmqpError, Declare, DeliveryState, Role, Sections, Target, condition};
use peeklock_client::{Error, Message};

use crate::script::{Then, accept, connect};

fn is_coordinator(attach: &peeklock_amqp::Attach) -> bool {
    matches!(attach.target, Some(Target::Coordinator(_)))
}

#[tokio::test]
async fn a_broker_without_a_coordinator_is_reported() {
    let client = connect(|connection, event| {
        if let Event::Attach { link, attach, .. } = event {
            assert!(is_coordinator(&attach));
            connection.refuse(link, AmqpError::new(condition::NOT_IMPLEMENTED, "no transactions here"));
        }
        Then::GoOn
    })
    .await;
    for _ in 0..2 {
        let told = client.transaction().await.err();
        assert!(matches!(&told, Some(Error::LinkLost { .. })), "{told:?}");
    }
}

/// Ends the coordinator link at the first request, and accepts declarations from then on.
struct Forgetful {
    has_ended: bool,
    declared: u8,
}

impl Forgetful {
    fn handle(&mut self, connection: &mut Connection, event: Event) -> Then {
        match event {
            Event::Attach { link, attach, .. } => accept(connection, link, attach.role),
            Event::Delivery { link, .. } if !self.has_ended => {
                self.has_ended = true;
                connection.detach(link, Some(AmqpError::new(condition::DETACH_FORCED, "idle")));
            }
            Event::Delivery { link, delivery } => {
                let state = match delivery.state.as_deref() {
                    // A step is rejected inside its transaction.
                    Some(DeliveryState::Transactional { txn_id, .. }) => {
                        let error = AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, "the queue is full");
                        let outcome = Some(Box::new(DeliveryState::rejected(error)));
                        DeliveryState::Transactional { txn_id: txn_id.clone(), outcome }
                    }
                    _ if self.declared == 1 => DeliveryState::rejected(AmqpError::new(
                        condition::TRANSACTION_ROLLBACK,
                        "a step failed",
                    )),
                    _ => {
                        self.declared += 1;
                        DeliveryState::Declared { txn_id: vec![self.declared].into() }
                    }
                };
                connection.settle(link, delivery.id, state);
            }
            _ => {}
        }
        Then::GoOn
    }
}

#[tokio::test]
async fn a_lost_coordinator_is_attached_again() {
    let mut broker = Forgetful { has_ended: false, declared: 0 };
    let client = connect(move |connection, event| broker.handle(connection, event)).await;
    let told = client.transaction().await.err();
    assert!(matches!(&told, Some(Error::LinkLost { .. })), "{told:?}");
    let work = client.transaction().await.unwrap();
    let orders = client.sender("orders").await.unwrap();
    let told = work.send(&orders, &Message::data("x")).await;
    assert!(
        matches!(&told, Err(Error::Rejected { .. })),
        "a rejection inside a transaction is an error: {told:?}"
    );
    let told = work.commit().await;
    assert_eq!(told, Err(Error::RolledBack { reason: "a step failed".into() }));
}

/// The number of steps before a discharge, and the number in its message.
type Discharged = (i64, Option<i64>);

/// A broker that counts steps. It grants one credit at a time to senders, and notes the number of steps before each discharge.
#[derive(Default)]
struct Counting {
    declared: u8,
    arrived: i64,
    discharges: Arc<Mutex<Vec<Discharged>>>,
}

impl Counting {
    fn handle(&mut self, connection: &mut Connection, event: Event) -> Then {
        match event {
            Event::Attach { link, attach, .. } if is_coordinator(&attach) => {
                let offered_capabilities = attach.desired_capabilities.clone();
                let reply = AttachReply { offered_capabilities, ..AttachReply::default() };
                connection.accept(link, reply);
                connection.set_credit(link, 10);
            }
            Event::Attach { link, attach, .. } => {
                accept(connection, link, attach.role);
                connection.set_credit(link, 1);
            }
            Event::Delivery { link, delivery } if delivery.state.is_some() => {
                assert!(delivery.settled, "a step waits for no answer");
                self.arrived += 1;
                connection.set_credit(link, 1);
            }
            Event::Delivery { link, delivery } => {
                let sections = Sections::scan(&delivery.payload).unwrap();
                let state = if sections.value().unwrap().decode_as::<Declare>().is_ok() {
                    self.declared += 1;
                    DeliveryState::Declared { txn_id: vec![self.declared].into() }
                } else {
                    let annotations = sections.message_annotations().unwrap();
                    let count = annotations.get("x-opt-peeklock-step-count").unwrap();
                    let count = count.and_then(|count| count.as_i64());
                    self.discharges.lock().unwrap().push((std::mem::take(&mut self.arrived), count));
                    DeliveryState::Accepted
                };
                connection.settle(link, delivery.id, state);
            }
            _ => {}
        }
        Then::GoOn
    }
}

#[tokio::test]
async fn a_discharge_follows_its_steps_although_they_wait_for_credit() {
    let mut broker = Counting::default();
    let discharges = Arc::clone(&broker.discharges);
    let client = connect(move |connection, event| broker.handle(connection, event)).await;
    let orders = client.sender("orders").await.unwrap();
    for count in [5, 0, 3] {
        let work = client.transaction().await.unwrap();
        for _ in 0..count {
            work.send(&orders, &Message::data("x")).await.unwrap();
        }
        work.commit().await.unwrap();
    }
    assert_eq!(*discharges.lock().unwrap(), [(5, Some(5)), (0, Some(0)), (3, Some(3))]);
}

#[tokio::test]
async fn a_link_without_the_requested_session_is_rejected() {
    let client = connect(|connection, event| {
        if let Event::Attach { link, attach, .. } = event {
            let mut source = attach.source.clone().unwrap();
            source.filter = None;
            let reply = peeklock_amqp::connection::AttachReply { source: Some(source), ..Default::default() };
            assert_eq!(attach.role, Role::Receiver);
            connection.accept(link, reply);
        }
        Then::GoOn
    })
    .await;
    for builder in [
        client.receiver("orders").session("a"),
        client.receiver("orders").next_session(Duration::from_secs(1)),
    ] {
        let told = builder.open().await.err();
        assert!(matches!(&told, Some(Error::Malformed { .. })), "{told:?}");
    }
    assert!(client.receiver("orders").open().await.unwrap().session().is_none());
}
