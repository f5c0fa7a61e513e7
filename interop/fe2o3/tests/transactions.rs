//! Transactions with a third-party AMQP 1.0 client in Rust: sends and settlements, all or nothing.

mod broker;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::definitions::ReceiverSettleMode;
use fe2o3_amqp::types::messaging::Outcome;
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use tokio::time::timeout;

use crate::broker::Broker;

/// The timeout for all expected events.
const PATIENCE: Duration = Duration::from_secs(30);
/// The lock duration of the source queue.
const LOCK: Duration = Duration::from_secs(5);
/// The time to wait for a message that should not arrive.
const SILENCE: Duration = Duration::from_millis(300);

/// A broker with two queues, and one connection with a control link.
struct Scene {
    controller: Controller,
    source: Receiver,
    source_sender: Sender,
    target: Receiver,
    target_sender: Sender,
    session: SessionHandle<()>,
    connection: ConnectionHandle<()>,
    broker: Broker,
}

impl Scene {
    async fn set() -> Result<Self> {
        let broker = Broker::start(&[&format!("source,lock={}s", LOCK.as_secs()), "target"])?;
        let mut connection = connect(&broker).await?;
        let mut session = Session::begin(&mut connection).await?;
        Ok(Scene {
            controller: Controller::attach(&mut session, "controller").await?,
            source: Receiver::attach(&mut session, "source receiver", "source").await?,
            source_sender: Sender::attach(&mut session, "source sender", "source").await?,
            target: Receiver::attach(&mut session, "target receiver", "target").await?,
            target_sender: Sender::attach(&mut session, "target sender", "target").await?,
            session,
            connection,
            broker,
        })
    }

    /// Returns a message of the source that was received and not settled.
    async fn work(&mut self) -> Result<Delivery<String>> {
        self.source_sender.send("work").await?;
        received(&mut self.source).await
    }

    async fn close(mut self) -> Result<()> {
        self.controller.close().await?;
        self.session.end().await?;
        self.connection.close().await?;
        Ok(())
    }
}

async fn connect(broker: &Broker) -> Result<ConnectionHandle<()>> {
    let url = format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{}", broker.address);
    Ok(Connection::open("fe2o3", url.as_str()).await?)
}

async fn post(transaction: &Transaction<'_>, sender: &mut Sender, body: &str) -> Result<()> {
    let outcome = transaction.post(sender, body).await?;
    ensure!(matches!(outcome, Outcome::Accepted(_)), "the send of '{body}' ended as {outcome:?}");
    Ok(())
}

async fn received(receiver: &mut Receiver) -> Result<Delivery<String>> {
    Ok(timeout(PATIENCE, receiver.recv()).await.context("no message arrived")??)
}

async fn is_silent(receiver: &mut Receiver) -> bool {
    timeout(SILENCE, receiver.recv::<String>()).await.is_err()
}

#[tokio::test]
async fn a_commit_sends_and_settles() -> Result<()> {
    let mut scene = Scene::set().await?;
    let work = scene.work().await?;
    let transaction = Transaction::declare(&scene.controller, None).await?;
    post(&transaction, &mut scene.target_sender, "result").await?;
    transaction.accept(&mut scene.source, &work).await?;
    assert!(is_silent(&mut scene.target).await, "a message was visible before its commit");
    transaction.commit().await?;
    let result = received(&mut scene.target).await?;
    assert_eq!(result.body(), "result");
    scene.target.accept(&result).await?;
    let came_back = timeout(LOCK + SILENCE, scene.source.recv::<String>()).await;
    assert!(came_back.is_err(), "a completed message was redelivered");
    scene.close().await
}

#[tokio::test]
async fn a_rollback_changes_nothing() -> Result<()> {
    let mut scene = Scene::set().await?;
    let work = scene.work().await?;
    let transaction = Transaction::declare(&scene.controller, None).await?;
    post(&transaction, &mut scene.target_sender, "result").await?;
    transaction.accept(&mut scene.source, &work).await?;
    transaction.rollback().await?;
    let again = received(&mut scene.source).await?;
    assert_eq!(again.body(), "work");
    scene.source.accept(&again).await?;
    assert!(is_silent(&mut scene.target).await, "a message of a rolled-back transaction was stored");
    scene.close().await
}

/// A receiver in the mode where the broker settles first still holds the delivery after a rollback.
#[tokio::test]
async fn after_a_rollback_the_delivery_can_be_accepted_on_its_link() -> Result<()> {
    let mut scene = Scene::set().await?;
    scene.source.close().await?;
    let builder = Receiver::builder().name("second").source("source");
    let builder = builder.receiver_settle_mode(ReceiverSettleMode::Second);
    scene.source = builder.attach(&mut scene.session).await?;
    for commits in [false, true] {
        let work = scene.work().await?;
        let transaction = Transaction::declare(&scene.controller, None).await?;
        transaction.accept(&mut scene.source, &work).await?;
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
            scene.source.accept(&work).await?;
        }
    }
    let came_back = timeout(LOCK + SILENCE, scene.source.recv::<String>()).await;
    assert!(came_back.is_err(), "a completed message was redelivered");
    scene.close().await
}

#[tokio::test]
async fn two_concurrent_transactions_are_independent() -> Result<()> {
    let mut scene = Scene::set().await?;
    let kept = Transaction::declare(&scene.controller, None).await?;
    let dropped = Transaction::declare(&scene.controller, None).await?;
    post(&kept, &mut scene.target_sender, "kept").await?;
    post(&dropped, &mut scene.target_sender, "dropped").await?;
    dropped.rollback().await?;
    kept.commit().await?;
    let message = received(&mut scene.target).await?;
    assert_eq!(message.body(), "kept");
    scene.target.accept(&message).await?;
    assert!(is_silent(&mut scene.target).await);
    scene.close().await
}

#[tokio::test]
async fn a_commit_with_an_expired_lock_is_rejected() -> Result<()> {
    let mut scene = Scene::set().await?;
    let work = scene.work().await?;
    let transaction = Transaction::declare(&scene.controller, None).await?;
    post(&transaction, &mut scene.target_sender, "result").await?;
    transaction.accept(&mut scene.source, &work).await?;
    let again = received(&mut scene.source).await?;
    assert_eq!(again.body(), "work");
    let refused = transaction.commit().await.err().map(|error| format!("{error:?}"));
    let refused = refused.context("the commit of a lost lock was accepted")?;
    assert!(refused.contains("Rollback"), "{refused}");
    assert!(is_silent(&mut scene.target).await, "a rejected transaction was partly applied");
    scene.source.accept(&again).await?;
    scene.close().await
}

#[tokio::test]
async fn a_closed_connection_rolls_its_transaction_back() -> Result<()> {
    let mut scene = Scene::set().await?;
    let mut doomed = connect(&scene.broker).await?;
    let mut session = Session::begin(&mut doomed).await?;
    let controller = Controller::attach(&mut session, "controller").await?;
    let mut sender = Sender::attach(&mut session, "sender", "target").await?;
    let transaction = Transaction::declare(&controller, None).await?;
    post(&transaction, &mut sender, "never").await?;
    // Neither discharged nor detached: only the end of the connection ends the transaction.
    std::mem::forget(transaction);
    doomed.close().await?;
    assert!(is_silent(&mut scene.target).await, "a transaction was applied without a commit");
    scene.close().await
}
