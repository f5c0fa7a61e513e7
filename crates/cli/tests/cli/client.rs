//! The client against a broker in another process, for features without a command.

use std::time::Duration;

use peeklock::low_level::{
    Admin, AdminError, Client, Delivery, EntityName, Error, Fields, Message, MessageExt, Options, Outcome,
    QueueSpec, ReceiveMode, Receiver, SequenceNumber, Target, Timestamp, Transaction, Value,
};

use crate::broker::Broker;

const QUEUES: [&str; 10] = [
    "--listen-tls",
    "off",
    "--queue",
    "orders",
    "--queue",
    "invoices",
    "--queue",
    "tables,sessions",
    "--queue",
    "short,sessions,lock=1s",
];

async fn connect() -> (Broker, Client) {
    let broker = Broker::start(&QUEUES);
    let client = Client::connect(broker.connection_string()).await.unwrap();
    (broker, client)
}

fn admin(broker: &Broker) -> Admin {
    Admin::new(&Target::parse(broker.connection_string()).unwrap(), &Options::default())
}

async fn send(client: &Client, queue: &str, messages: &[Message]) {
    client.sender(queue).await.unwrap().send_batch(messages).await.unwrap();
}

async fn next(receiver: &mut Receiver) -> Delivery {
    receiver.next().await.unwrap().unwrap()
}

async fn bodies(client: &Client, queue: &str) -> Vec<String> {
    let seen = client.peek(queue, SequenceNumber(0), 100).await.unwrap();
    seen.iter().map(|message| message.body_text().into_owned()).collect()
}

fn in_an_hour() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_millis(u64::try_from(now.as_millis()).unwrap()) + Duration::from_secs(3600)
}

#[tokio::test]
async fn a_committed_transaction_takes_effect() {
    let (_broker, client) = connect().await;
    send(&client, "orders", &[Message::data("one coffee")]).await;
    let invoices = client.sender("invoices").await.unwrap();
    let mut orders = client.receiver("orders").open().await.unwrap();
    let order = next(&mut orders).await;
    let work = client.transaction().await.unwrap();
    work.send(&invoices, &Message::data("an invoice")).await.unwrap();
    work.send_batch(&invoices, &[Message::data("a copy"), Message::data("another")]).await.unwrap();
    work.complete(order).await.unwrap();
    assert_eq!(bodies(&client, "invoices").await, [""; 0], "nothing is visible before the commit");
    assert_eq!(bodies(&client, "orders").await, ["one coffee"]);
    work.commit().await.unwrap();
    assert_eq!(bodies(&client, "orders").await, [""; 0]);
    let mut invoices = client.receiver("invoices").open().await.unwrap();
    for expected in ["an invoice", "a copy", "another"] {
        let invoice = next(&mut invoices).await;
        assert_eq!(invoice.message().unwrap().body_text(), expected);
        invoice.complete().await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_or_dropped_has_no_effect() {
    let (_broker, client) = connect().await;
    send(&client, "orders", &[Message::data("one"), Message::data("two")]).await;
    let invoices = client.sender("invoices").await.unwrap();
    let mut orders = client.receiver("orders").open().await.unwrap();
    let (one, two) = (next(&mut orders).await, next(&mut orders).await);
    let token = one.lock_token().unwrap();
    let work = client.transaction().await.unwrap();
    work.send(&invoices, &Message::data("never")).await.unwrap();
    work.complete(one).await.unwrap();
    work.roll_back().await.unwrap();
    let dropped = client.transaction().await.unwrap();
    dropped.send(&invoices, &Message::data("never")).await.unwrap();
    drop(dropped);
    assert_eq!(bodies(&client, "orders").await, ["one", "two"]);
    assert_eq!(bodies(&client, "invoices").await, [""; 0]);
    // The lock has outlived the transaction.
    let again = client.transaction().await.unwrap();
    again.settle_tokens("orders", &[token], Outcome::Complete).await.unwrap();
    again.settle(two, Outcome::Defer).await.unwrap();
    again.commit().await.unwrap();
    assert_eq!(bodies(&client, "orders").await, ["two"]);
}

#[tokio::test]
async fn a_transaction_with_a_step_that_failed_is_rolled_back() {
    let (_broker, client) = connect().await;
    send(&client, "orders", &[Message::data("one")]).await;
    let invoices = client.sender("invoices").await.unwrap();
    let mut orders = client.receiver("orders").open().await.unwrap();
    let order = next(&mut orders).await;
    let work = client.transaction().await.unwrap();
    work.send(&invoices, &Message::data("never")).await.unwrap();
    client.settle("orders", &[order.lock_token().unwrap()], Outcome::Complete).await.unwrap();
    work.complete(order).await.unwrap();
    let told = work.commit().await;
    let Err(Error::RolledBack { reason }) = &told else { panic!("{told:?}") };
    assert!(reason.contains("lock"), "the commit reports the step: {reason}");
    assert_eq!(bodies(&client, "invoices").await, [""; 0]);
}

#[tokio::test]
async fn transactions_follow_one_another_and_run_side_by_side() {
    let (_broker, client) = connect().await;
    let invoices = client.sender("invoices").await.unwrap();
    for round in 0..3 {
        let many = begin(&client, 20).await;
        for (number, work) in many.iter().enumerate() {
            work.send(&invoices, &Message::data(format!("{round}-{number}"))).await.unwrap();
        }
        for (number, work) in many.into_iter().enumerate() {
            if number % 2 == 0 { work.commit().await.unwrap() } else { work.roll_back().await.unwrap() }
        }
    }
    let committed = bodies(&client, "invoices").await;
    assert_eq!(committed.len(), 30);
    assert!(committed.iter().all(|body| body.ends_with(['0', '2', '4', '6', '8'])), "{committed:?}");
}

async fn begin(client: &Client, count: usize) -> Vec<Transaction> {
    let mut begun = Vec::new();
    for _ in 0..count {
        begun.push(client.transaction().await.unwrap());
    }
    begun
}

#[tokio::test]
async fn a_transaction_stays_on_its_connection() {
    let (broker, client) = connect().await;
    let other = Client::connect(broker.connection_string()).await.unwrap();
    let orders = other.sender("orders").await.unwrap();
    let work = client.transaction().await.unwrap();
    assert_eq!(work.send(&orders, &Message::data("x")).await, Err(Error::OtherConnection));
}

#[tokio::test]
async fn scheduled_messages_can_be_cancelled() {
    let (broker, client) = connect().await;
    let orders = client.sender("orders").await.unwrap();
    let later = |body: &'static str| Message::data(body).with_scheduled_time(in_an_hour());
    let numbers = orders.schedule(&[later("one"), later("two")]).await.unwrap();
    assert_eq!(numbers.len(), 2);
    assert_eq!(orders.schedule(&[]).await, Ok(Vec::new()));
    let counts = admin(&broker).queue(&EntityName::parse("orders").unwrap()).await.unwrap().counts;
    assert_eq!((counts.scheduled_count, counts.active_count), (2, 0));
    orders.cancel_scheduled(&numbers[..1]).await.unwrap();
    assert_eq!(bodies(&client, "orders").await, ["two"]);
    let told = orders.cancel_scheduled(&numbers).await;
    assert!(matches!(told, Err(Error::Refused { status: 404, .. })), "{told:?}");
    assert_eq!(bodies(&client, "orders").await, ["two"], "a failed cancellation cancels no message");
}

#[tokio::test]
async fn a_session_has_one_holder_and_a_state() {
    let (_broker, client) = connect().await;
    send(&client, "tables", &[Message::data("coffee").with_session_id("4")]).await;
    let mut table = client.receiver("tables").next_session(Duration::from_secs(5)).open().await.unwrap();
    let session = table.session().unwrap().clone();
    assert_eq!(session.id(), "4");
    let taken = client.receiver("tables").session("4").open().await;
    assert!(matches!(taken, Err(Error::SessionLocked { .. })), "{:?}", taken.err());
    let until = session.locked_until();
    assert!(session.renew().await.unwrap() >= until);
    assert_eq!(session.state().await, Ok(None));
    session.set_state(Some("half done".into())).await.unwrap();
    next(&mut table).await.complete().await.unwrap();
    table.close().await.unwrap();
    assert!(matches!(session.renew().await, Err(Error::SessionLockLost { .. })));
    let table = client.receiver("tables").session("4").open().await.unwrap();
    let session = table.session().unwrap();
    assert_eq!(session.state().await.unwrap().as_deref(), Some("half done".as_bytes()));
    session.set_state(None).await.unwrap();
    assert_eq!(session.state().await, Ok(None));
    let none = client.receiver("tables").next_session(Duration::from_millis(20)).open().await;
    assert!(matches!(none, Err(Error::NoSession { .. })), "{:?}", none.err());
}

#[tokio::test]
async fn a_lost_session_is_reported_to_its_receiver() {
    let (_broker, client) = connect().await;
    let mut table = client.receiver("short").session("4").open().await.unwrap();
    // The lock is not renewed and lasts a second.
    let told = table.next().await;
    assert!(matches!(told, Err(Error::SessionLockLost { .. })), "{:?}", told.err());
    let told = table.session().unwrap().state().await;
    assert!(matches!(told, Err(Error::SessionLockLost { .. })), "{told:?}");
}

#[tokio::test]
async fn deferred_messages_of_a_session_are_fetched_by_its_holder() {
    let (_broker, client) = connect().await;
    send(&client, "tables", &[Message::data("later").with_session_id("4")]).await;
    let mut table = client.receiver("tables").session("4").open().await.unwrap();
    let delivery = next(&mut table).await;
    let number = delivery.message().unwrap().sequence_number().unwrap();
    delivery.defer().await.unwrap();
    let fetched = table.receive_deferred(&[number]).await.unwrap();
    assert_eq!(fetched[0].body_text(), "later");
    let token = fetched[0].lock_token.unwrap();
    table.session().unwrap().settle(&[token], Outcome::Complete).await.unwrap();
    let gone = table.session().unwrap().receive_deferred(&[number], ReceiveMode::PeekLock).await;
    assert!(gone.is_err(), "{gone:?}");
}

#[tokio::test]
async fn an_abandoned_message_can_get_new_properties() {
    let (_broker, client) = connect().await;
    send(&client, "orders", &[Message::data("hard")]).await;
    let mut orders = client.receiver("orders").credit(1).open().await.unwrap();
    next(&mut orders).await.abandon_with(Fields::new().with("tried", "left door")).await.unwrap();
    let again = next(&mut orders).await;
    let message = again.message().unwrap();
    assert_eq!(message.message.property("tried"), Some(&Value::from("left door")));
    assert_eq!(message.delivery_count(), 1);
    again.abandon_after(Duration::from_millis(20)).await.unwrap();
    let third = next(&mut orders).await;
    assert_eq!(third.message().unwrap().message.application_properties.len(), 1, "the delay is not stored");
    let token = third.lock_token().unwrap();
    let outcome = Outcome::AbandonWith {
        properties: Fields::new().with("n", 1),
        delay: Some(Duration::from_secs(3600)),
    };
    client.settle("orders", &[token], outcome).await.unwrap();
    let seen = client.peek("orders", SequenceNumber(0), 1).await.unwrap();
    assert_eq!(seen[0].message.application_properties.len(), 2);
    assert_eq!(seen[0].delivery_count(), 3);
}

#[tokio::test]
async fn a_large_number_of_sessions_is_listed_completely() {
    let (_broker, client) = connect().await;
    let names: Vec<_> = (0..1500).map(|number| format!("s{number:04}")).collect();
    let messages: Vec<_> =
        names.iter().map(|name| Message::data("x").with_session_id(name.clone())).collect();
    send(&client, "tables", &messages).await;
    let mut listed = client.list_sessions("tables", None).await.unwrap();
    listed.sort();
    assert_eq!(listed, names);
    assert_eq!(client.purge("tables", None).await, Ok(1500));
    assert_eq!(client.list_sessions("tables", None).await, Ok(Vec::new()));
}

#[tokio::test]
async fn settings_are_changed_one_by_one() {
    let (broker, _client) = connect().await;
    let (mut admin, name) = (admin(&broker), EntityName::parse("orders").unwrap());
    let before = admin.queue(&name).await.unwrap().spec;
    let ttl = |ttl| QueueSpec { default_time_to_live: Some(ttl), ..QueueSpec::default() };
    let after = admin.update_queue(&name, &ttl(Some(Duration::from_secs(60)))).await.unwrap();
    assert_eq!(
        after.spec,
        QueueSpec { default_time_to_live: Some(Some(Duration::from_secs(60))), ..before.clone() }
    );
    assert_eq!(admin.queue(&name).await.unwrap(), after);
    assert_eq!(admin.update_queue(&name, &ttl(None)).await.unwrap().spec, before);
    let unknown = admin.update_queue(&EntityName::parse("nowhere").unwrap(), &ttl(None)).await;
    assert!(matches!(unknown, Err(AdminError::NotFound { .. })), "{unknown:?}");
    let again = admin.create_queue(&name, &QueueSpec::default()).await;
    assert!(matches!(again, Err(AdminError::Exists { .. })), "{again:?}");
}

#[tokio::test]
async fn a_large_number_of_queues_is_listed_completely() {
    let (broker, _client) = connect().await;
    let mut admin = admin(&broker);
    for number in 0..1100 {
        let name = EntityName::parse(&format!("many/{number}")).unwrap();
        admin.create_queue(&name, &QueueSpec::default()).await.unwrap();
    }
    assert_eq!(admin.queues().await.unwrap().len(), 1104);
}
