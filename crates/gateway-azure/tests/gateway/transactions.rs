//! Transactions: no step is visible before the commit, and after it all steps are, or none.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::connection::{LinkId, Outgoing, SaslClient};
use peeklock_amqp::{
    Array, Attach, Coordinator, DeliveryState, DeliveryTag, Encode, Fields, Message, Role, Source, Target,
    Value, condition,
};
use peeklock_types::{EntityName, Placement, QueueSettings, QueueStatus, ShardId};

use crate::large::large_receiver;
use crate::support::{Client, Response, Rig, condition_of, message, modified, sender, sessions, symbol};

fn accepted(txn_id: &Bytes) -> DeliveryState {
    in_transaction(txn_id, DeliveryState::Accepted)
}

fn in_transaction(txn_id: &Bytes, outcome: DeliveryState) -> DeliveryState {
    DeliveryState::Transactional { txn_id: txn_id.clone(), outcome: Some(Box::new(outcome)) }
}

async fn two_queues() -> (Rig, Client) {
    let rig = Rig::with_queue("one", QueueSettings::default()).await;
    rig.queue("two", QueueSettings::default()).await;
    let client = rig.client().await;
    (rig, client)
}

#[tokio::test(start_paused = true)]
async fn the_control_link_requires_no_token_and_lists_its_capabilities() {
    let rig = Rig::start().await;
    let mut client = rig.client_with(SaslClient::anonymous()).await;
    let (control, attach) = client.coordinator().await;
    let Some(Target::Coordinator(coordinator)) = attach.target else { panic!("{:?}", attach.target) };
    assert!(coordinator.capabilities.contains(&symbol("amqp:local-transactions")));
    let txn_id = client.declare(control).await;
    assert!(!txn_id.is_empty() && txn_id.len() <= 32);
    assert_eq!(
        client.discharge(control, &txn_id, false).await,
        DeliveryState::Accepted,
        "an empty transaction can be committed"
    );
    let again = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&again), condition::TRANSACTION_UNKNOWN_ID);
    assert_eq!(condition_of(&client.send(control, &message("hello")).await), condition::ARGUMENT_ERROR);
}

#[tokio::test(start_paused = true)]
async fn sends_are_visible_after_the_commit_and_never_after_a_rollback() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let (one, two) = (client.sender("one").await, client.sender("two").await);
    let (see_one, see_two) = (client.management("one").await, client.management("two").await);
    let (kept, dropped) = (client.declare(control).await, client.declare(control).await);
    assert_eq!(client.send_in(one, &message("a"), Some(&kept)).await, accepted(&kept));
    assert_eq!(client.send_in(one, &message("x"), Some(&dropped)).await, accepted(&dropped));
    assert_eq!(client.send_in(two, &message("b"), Some(&kept)).await, accepted(&kept));
    assert_eq!((client.count(&see_one).await, client.count(&see_two).await), (0, 0));

    assert_eq!(client.discharge(control, &dropped, true).await, DeliveryState::Accepted);
    assert_eq!(client.discharge(control, &kept, false).await, DeliveryState::Accepted);
    assert_eq!(client.count(&see_one).await, 1);
    let link = client.receiver("two").await;
    let (_, found) = client.receive(link).await;
    assert_eq!(found.body, message("b").body, "messages to other shards arrive soon after");
}

#[tokio::test(start_paused = true)]
async fn a_message_is_moved_in_one_transaction() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let (one, two) = (client.sender("one").await, client.sender("two").await);
    client.send(one, &message("work")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    // The first step may be a send to another queue. The service requires a receiver as the first step.
    assert_eq!(client.send_in(two, &message("result"), Some(&txn_id)).await, accepted(&txn_id));
    let outcome = client.settle_in(link, delivery.id, accepted(&txn_id)).await;
    assert_eq!(outcome, (accepted(&txn_id), false), "the commit settles it");
    let see_one = client.management("one").await;
    assert_eq!(client.count(&see_one).await, 1, "not visible before the commit");
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    let came_before = client.connection.unsettled(link) == 0;
    assert!(came_before, "the delivery is settled before the discharge is answered");
    let state = client.settled(link, delivery.id).await;
    assert_eq!(state, accepted(&txn_id), "azure-messaging-servicebus requires the state that it has sent");
    assert_eq!(client.count(&see_one).await, 0);
    let link = client.receiver("two").await;
    assert_eq!(client.receive(link).await.1.body, message("result").body);
}

#[tokio::test(start_paused = true)]
async fn after_a_rollback_the_delivery_can_be_settled_over_its_link() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    client.send(one, &message("work")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    for _ in 0..2 {
        let txn_id = client.declare(control).await;
        let outcome = client.settle_in(link, delivery.id, accepted(&txn_id)).await;
        assert_eq!(outcome, (accepted(&txn_id), false));
        assert_eq!(client.discharge(control, &txn_id, true).await, DeliveryState::Accepted);
    }
    // A rejected commit does not settle it either.
    let txn_id = client.declare(control).await;
    client.settle_in(link, delivery.id, accepted(&txn_id)).await;
    assert_eq!(client.settle_in(link, delivery.id, accepted(&txn_id)).await.0, accepted(&txn_id));
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK, "one message was settled twice");
    assert_eq!(client.connection.unsettled(link), 1);
    let see_one = client.management("one").await;
    assert_eq!(client.count(&see_one).await, 1);

    let outcome = client.settle(link, delivery.id, DeliveryState::Accepted).await;
    assert_eq!(outcome, DeliveryState::Accepted);
    assert_eq!(client.count(&see_one).await, 0);
}

/// Sends a message in a transaction without waiting for its answer.
fn send_settled(client: &mut Client, link: LinkId, body: &'static str, txn_id: &Bytes) {
    let state = Some(DeliveryState::Transactional { txn_id: txn_id.clone(), outcome: None });
    let outgoing = Outgoing { tag: DeliveryTag::from(7_u32), message_format: 0, settled: true, state };
    client.connection.send(link, &outgoing, &[&message(body).to_bytes()]).unwrap();
}

/// Commits with the number of steps that were sent.
async fn commit_counted(client: &mut Client, control: LinkId, txn_id: &Bytes, count: u32) -> DeliveryState {
    let fields: Vec<Value> = vec![txn_id.clone().into(), false.into()];
    let discharge = Value::described(0x32_u64, fields);
    let mut request = Message::value(discharge);
    request.message_annotations.insert("x-opt-peeklock-step-count", count);
    request.message_annotations.insert("x-opt-peeklock-renew", true);
    client.send(control, &request).await
}

#[tokio::test(start_paused = true)]
async fn steps_need_no_answer_if_the_commit_names_their_number() {
    let (_rig, mut client) = two_queues().await;
    let desired = vec![symbol("peeklock:step-count")];
    let attach = Attach {
        source: Some(Source::default()),
        target: Some(Target::Coordinator(Coordinator::default())),
        desired_capabilities: desired.clone(),
        ..Attach::new("", 0, Role::Sender)
    };
    let (control, attach) = client.attach(attach).await.unwrap();
    assert_eq!(attach.offered_capabilities, desired);
    let (one, two) = (client.sender("one").await, client.sender("two").await);
    client.send(one, &message("work")).await;
    client.send(two, &message("warm")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    send_settled(&mut client, two, "result", &txn_id);
    client.connection.settle(link, delivery.id, accepted(&txn_id));
    assert_eq!(commit_counted(&mut client, control, &txn_id, 2).await, DeliveryState::Accepted);
    let (see_one, see_two) = (client.management("one").await, client.management("two").await);
    assert_eq!((client.count(&see_one).await, client.count(&see_two).await), (0, 2));

    // The commit has begun the next transaction under the same id.
    send_settled(&mut client, two, "more", &txn_id);
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    assert_eq!(client.count(&see_two).await, 3);
    let again = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&again), condition::TRANSACTION_UNKNOWN_ID, "this commit has begun none");
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_rejected_if_another_number_of_steps_has_arrived() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    client.send(one, &message("warm")).await;
    let txn_id = client.declare(control).await;
    send_settled(&mut client, one, "never", &txn_id);
    let refused = commit_counted(&mut client, control, &txn_id, 2).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    let see_one = client.management("one").await;
    assert_eq!(client.count(&see_one).await, 1);
    assert_eq!(commit_counted(&mut client, control, &txn_id, 0).await, DeliveryState::Accepted, "a new one");
    assert_eq!(client.count(&see_one).await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_commit_reports_a_settled_step_whose_lock_is_lost() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    client.send(one, &message("work")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    send_settled(&mut client, one, "never", &txn_id);
    client.connection.settle(link, delivery.id, accepted(&txn_id));
    let refused = commit_counted(&mut client, control, &txn_id, 2).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    let see_one = client.management("one").await;
    assert_eq!(client.count(&see_one).await, 1, "the message waits again");
}

#[tokio::test(start_paused = true)]
async fn a_commit_requires_neither_the_receivers_link_nor_an_earlier_answer() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    client.send(one, &message("first")).await;
    client.send(one, &message("second")).await;
    let link = client.receiver("one").await;
    let (first, second) = (client.receive(link).await.0, client.receive(link).await.0);
    let txn_id = client.declare(control).await;
    // The discharge is in the same write as the settlement.
    client.connection.set_outcome(link, first.id, accepted(&txn_id));
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    assert_eq!(client.settled(link, first.id).await, accepted(&txn_id));

    let txn_id = client.declare(control).await;
    client.settle_in(link, second.id, accepted(&txn_id)).await;
    client.connection.detach(link, None);
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    let see_one = client.management("one").await;
    assert_eq!(client.count(&see_one).await, 0);
}

#[tokio::test(start_paused = true)]
async fn every_outcome_is_answered_with_its_kind() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    let link = client.receiver("one").await;
    let txn_id = client.declare(control).await;
    for outcome in [modified(Fields::new()), DeliveryState::Rejected { error: None }, DeliveryState::Accepted]
    {
        client.send(one, &message("m")).await;
        let (delivery, _) = client.receive(link).await;
        let answer = client.settle_in(link, delivery.id, in_transaction(&txn_id, outcome.clone())).await;
        let (DeliveryState::Transactional { outcome: Some(mirrored), .. }, false) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(std::mem::discriminant(&*mirrored), std::mem::discriminant(&outcome));
    }
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    let (see, see_dead) = (client.management("one").await, client.management("one/$DeadLetterQueue").await);
    assert_eq!((client.count(&see).await, client.count(&see_dead).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_with_a_lost_lock_can_only_be_rolled_back() {
    let settings = QueueSettings { lock_duration: Duration::from_secs(5), ..QueueSettings::default() };
    let rig = Rig::with_queue("one", settings).await;
    let mut client = rig.client().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    client.send(one, &message("m")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    client.send_in(one, &message("other"), Some(&txn_id)).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let refused = client.settle(link, delivery.id, accepted(&txn_id)).await;
    assert_eq!(condition_of(&refused), condition::MESSAGE_LOCK_LOST);
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    let see = client.management("one").await;
    assert_eq!(client.count(&see).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lock_lost_between_settlement_and_commit_rejects_the_whole_transaction() {
    let settings = QueueSettings { lock_duration: Duration::from_secs(5), ..QueueSettings::default() };
    let rig = Rig::with_queue("one", settings).await;
    let mut client = rig.client().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    client.send(one, &message("m")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    client.send_in(one, &message("other"), Some(&txn_id)).await;
    assert_eq!(client.settle_in(link, delivery.id, accepted(&txn_id)).await, (accepted(&txn_id), false));
    tokio::time::sleep(Duration::from_secs(6)).await;
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    let see = client.management("one").await;
    assert_eq!(client.count(&see).await, 1, "neither settled nor sent");
}

#[tokio::test(start_paused = true)]
async fn two_queues_cannot_be_settled_in_one_transaction() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let txn_id = client.declare(control).await;
    let mut answers = Vec::new();
    for name in ["one", "two"] {
        let link = client.sender(name).await;
        client.send(link, &message("m")).await;
        let link = client.receiver(name).await;
        let (delivery, _) = client.receive(link).await;
        answers.push(client.settle_in(link, delivery.id, accepted(&txn_id)).await.0);
    }
    assert_eq!(answers[0], accepted(&txn_id));
    assert_eq!(condition_of(&answers[1]), condition::NOT_ALLOWED);
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
}

#[tokio::test(start_paused = true)]
async fn an_idle_transaction_times_out_with_an_error() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    let txn_id = client.declare(control).await;
    tokio::time::sleep(Duration::from_secs(121)).await;
    let late = client.send_in(one, &message("late"), Some(&txn_id)).await;
    assert_eq!(condition_of(&late), condition::TRANSACTION_TIMEOUT);
    let late = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&late), condition::TRANSACTION_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn unknown_ids_are_rejected_and_a_closed_control_link_rolls_back() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    let unknown = Bytes::from_static(b"nobody's");
    let refused = client.send_in(one, &message("m"), Some(&unknown)).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_UNKNOWN_ID);
    let txn_id = client.declare(control).await;
    client.send_in(one, &message("m"), Some(&txn_id)).await;
    client.connection.detach(control, None);
    let other = client.coordinator().await.0;
    let refused = client.discharge(other, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_UNKNOWN_ID);
}

#[tokio::test(start_paused = true)]
async fn the_id_of_another_connection_is_rejected() {
    let (rig, mut client) = two_queues().await;
    let mut other = rig.client().await;
    let (control, others_control) = (client.coordinator().await.0, other.coordinator().await.0);
    let one = client.sender("one").await;
    client.send(one, &message("work")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    // Both are the first transaction of their connection.
    let (txn_id, others) = (client.declare(control).await, other.declare(others_control).await);
    assert_ne!(txn_id, others);
    let refused = client.send_in(one, &message("m"), Some(&others)).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_UNKNOWN_ID);
    let (refused, _) = client.settle_in(link, delivery.id, accepted(&others)).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_UNKNOWN_ID);
    let refused = client.discharge(control, &others, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_UNKNOWN_ID);
    assert_eq!(
        client.discharge(control, &txn_id, false).await,
        DeliveryState::Accepted,
        "no foreign step was added"
    );
    assert_eq!(other.discharge(others_control, &others, false).await, DeliveryState::Accepted);
}

#[tokio::test(start_paused = true)]
async fn management_settles_in_a_transaction() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let management = client.management("one").await;
    let one = client.sender("one").await;
    client.send(one, &message("m")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let tag: [u8; 16] = delivery.tag.as_slice().try_into().unwrap();
    let token = peeklock_types::LockToken::from_guid_bytes(tag).to_bytes();
    let body = |token| {
        vec![
            ("disposition-status", Value::from("completed")),
            ("lock-tokens", Value::Array(Array::uuids([token]))),
        ]
    };
    let operation = "com.microsoft:update-disposition";

    let txn_id = client.declare(control).await;
    assert_eq!(client.request_in(&management, operation, body(token), Some(&txn_id)).await.status, 200);
    assert_eq!(client.count(&management).await, 1, "not settled before the commit");
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    assert_eq!(client.count(&management).await, 0);

    let txn_id = client.declare(control).await;
    let lost = client.request_in(&management, operation, body(token), Some(&txn_id)).await;
    assert_eq!((lost.status, lost.condition.as_deref()), (410, Some(condition::MESSAGE_LOCK_LOST)));
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
}

const SCHEDULE: &str = "com.microsoft:schedule-message";
const CANCEL: &str = "com.microsoft:cancel-scheduled-message";
const SET_STATE: &str = "com.microsoft:set-session-state";

/// Returns the body of a request that schedules a message for a distant time.
fn later(text: &'static str) -> Vec<(&'static str, Value)> {
    let mut message = message(text);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let due = Value::Timestamp(i64::try_from(now).unwrap() + 3_600_000);
    message.message_annotations = Fields::new().with("x-opt-scheduled-enqueue-time", due);
    let entry = vec![(Value::from("message"), Value::from(message.to_bytes()))];
    vec![("messages", Value::List(vec![Value::Map(entry)]))]
}

fn cancel(number: i64) -> Vec<(&'static str, Value)> {
    vec![("sequence-numbers", Value::Array(Array::longs([number])))]
}

/// Returns the sequence number in the response to a schedule request.
fn number_of(response: &Response) -> i64 {
    assert_eq!(response.status, 200, "{response:?}");
    let Value::Array(numbers) = response.get("sequence-numbers") else { panic!("{response:?}") };
    let [Value::Long(number)] = numbers.elements() else { panic!("{numbers:?}") };
    *number
}

#[tokio::test(start_paused = true)]
async fn scheduling_and_cancelling_are_steps() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let management = client.management("one").await;
    let kept = number_of(&client.request(&management, SCHEDULE, later("kept")).await);

    // A rollback keeps the message that was scheduled before, and schedules none.
    let txn_id = client.declare(control).await;
    let lost = number_of(&client.request_in(&management, SCHEDULE, later("lost"), Some(&txn_id)).await);
    assert_eq!(client.request_in(&management, CANCEL, cancel(kept), Some(&txn_id)).await.status, 200);
    assert_eq!(client.count(&management).await, 1, "neither is applied before the commit");
    assert_eq!(client.discharge(control, &txn_id, true).await, DeliveryState::Accepted);
    assert_eq!(client.count(&management).await, 1);
    assert_eq!(client.request(&management, CANCEL, cancel(lost)).await.status, 404);

    // A commit applies both. A message that is scheduled and cancelled in the same transaction is never stored.
    let txn_id = client.declare(control).await;
    let new = number_of(&client.request_in(&management, SCHEDULE, later("new"), Some(&txn_id)).await);
    let brief = number_of(&client.request_in(&management, SCHEDULE, later("brief"), Some(&txn_id)).await);
    for number in [brief, kept] {
        assert_eq!(client.request_in(&management, CANCEL, cancel(number), Some(&txn_id)).await.status, 200);
    }
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    assert_eq!(client.count(&management).await, 1);
    assert!(kept < lost && lost < new && new < brief, "a number is never reused");
    assert_eq!(
        client.request(&management, CANCEL, cancel(new)).await.status,
        200,
        "the number in the response"
    );
    assert_eq!(client.count(&management).await, 0);

    // The cancellation of a missing message rejects the transaction.
    let txn_id = client.declare(control).await;
    client.request_in(&management, SCHEDULE, later("never"), Some(&txn_id)).await;
    let missing = client.request_in(&management, CANCEL, cancel(new), Some(&txn_id)).await;
    assert_eq!(missing.status, 404);
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_scheduled_for_another_queue_has_a_number_of_that_queue() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let (at_one, at_two) = (client.management("one").await, client.management("two").await);
    let one = client.sender("one").await;
    client.send(one, &message("work")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    // The first step is a schedule request to a queue other than the settled one.
    let number = number_of(&client.request_in(&at_two, SCHEDULE, later("retry"), Some(&txn_id)).await);
    client.settle_in(link, delivery.id, accepted(&txn_id)).await;
    let elsewhere = client.request_in(&at_two, CANCEL, cancel(number), Some(&txn_id)).await;
    assert_eq!(
        elsewhere.status, 200,
        "a message that the transaction itself has scheduled can be cancelled at another queue"
    );
    let number = number_of(&client.request_in(&at_two, SCHEDULE, later("retry"), Some(&txn_id)).await);
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    assert_eq!(client.count(&at_one).await, 0);
    while client.count(&at_two).await == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(client.request(&at_two, CANCEL, cancel(number)).await.status, 200);

    let number = number_of(&client.request(&at_two, SCHEDULE, later("other")).await);
    client.send(one, &message("work")).await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    client.settle_in(link, delivery.id, accepted(&txn_id)).await;
    let refused = client.request_in(&at_two, CANCEL, cancel(number), Some(&txn_id)).await;
    assert_eq!(refused.condition.as_deref(), Some(condition::NOT_ALLOWED), "only one queue can be changed");
}

#[tokio::test(start_paused = true)]
async fn setting_a_session_state_is_a_step() {
    let rig = Rig::with_queue("talks", sessions()).await;
    let mut client = rig.client().await;
    let control = client.coordinator().await.0;
    let management = client.management("talks").await;
    let (link, _) = client.session("talks", "alpha").await.unwrap();
    let state = |text: &'static str| {
        let state = Value::Binary(Bytes::from_static(text.as_bytes()));
        vec![("session-id", Value::from("alpha")), ("session-state", state)]
    };
    let session = || vec![("session-id", Value::from("alpha"))];
    let get = "com.microsoft:get-session-state";
    for (text, fail, expected) in [("rolled back", true, ""), ("kept", false, "kept")] {
        let txn_id = client.declare(control).await;
        assert_eq!(client.request_in(&management, SET_STATE, state(text), Some(&txn_id)).await.status, 200);
        let found = client.request_in(&management, get, session(), Some(&txn_id)).await;
        assert_eq!(found.get("session-state"), Value::Null, "the read is outside the transaction");
        assert_eq!(client.discharge(control, &txn_id, fail).await, DeliveryState::Accepted);
        let found = client.request(&management, get, session()).await;
        assert_eq!(
            found.get("session-state").as_bytes().map_or(&b""[..], |state| &state[..]),
            expected.as_bytes()
        );
    }
    // A peer that no longer holds the session cannot commit.
    let txn_id = client.declare(control).await;
    assert_eq!(client.request_in(&management, SET_STATE, state("lost"), Some(&txn_id)).await.status, 200);
    client.connection.detach(link, None);
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
}

#[tokio::test(start_paused = true)]
async fn other_requests_are_outside_the_transaction_and_do_not_end_it() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let management = client.management("one").await;
    let one = client.sender("one").await;
    client.send(one, &message("m")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let tag: [u8; 16] = delivery.tag.as_slice().try_into().unwrap();
    let token = peeklock_types::LockToken::from_guid_bytes(tag).to_bytes();
    let txn_id = client.declare(control).await;
    let renew = |token| vec![("lock-tokens", Value::Array(Array::uuids([token])))];
    let peek = vec![("from-sequence-number", 0_i64.into()), ("message-count", 1.into())];
    let deferred = vec![
        ("sequence-numbers", Value::Array(Array::longs([99]))),
        ("receiver-settle-mode", Value::Uint(1)),
    ];
    let requests = [
        ("com.microsoft:renew-lock", renew(token), 200),
        ("com.microsoft:peek-message", peek, 200),
        ("com.microsoft:renew-lock", renew([7; 16]), 410),
        ("com.microsoft:receive-by-sequence-number", deferred, 404),
    ];
    for (operation, body, status) in requests {
        assert_eq!(client.request_in(&management, operation, body, Some(&txn_id)).await.status, status);
    }
    client.settle_in(link, delivery.id, accepted(&txn_id)).await;
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_commit_before_the_response_to_a_step_is_rejected() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let management = client.management("one").await;
    let txn_id = client.declare(control).await;
    client.start_request(&management, SCHEDULE, later("m"), Some(&txn_id));
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    assert_ne!(client.response(&management).await.1.status, 200);
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_sender_by_way_of_another_queue_reaches_its_destination() {
    const DESTINATION: &str = "com.microsoft:transfer-destination-address";
    let (_rig, mut client) = two_queues().await;
    let via =
        |to: &'static str| Attach { properties: Some(Fields::new().with(DESTINATION, to)), ..sender("one") };
    let (link, attach) = client.attach(via("two")).await.unwrap();
    assert_eq!(attach.target.unwrap().address(), Some("one"));
    assert_eq!(attach.properties.unwrap().get(DESTINATION), Some(&Value::from("two")));
    assert_eq!(client.send(link, &message("m")).await, DeliveryState::Accepted);
    let link = client.receiver("two").await;
    client.receive(link).await;
    let error = client.attach(via("nowhere")).await.unwrap_err();
    assert_eq!(error.condition, condition::NOT_FOUND);
}

fn large(byte: u8, size_bytes: usize) -> peeklock_amqp::Message {
    peeklock_amqp::Message::data(vec![byte; size_bytes]).with_message_id("large")
}

/// Creates two queues for large messages in different shards.
async fn large_queues() -> (Rig, Client) {
    let settings = QueueSettings { max_message_size_bytes: 8 << 20, ..QueueSettings::default() };
    let rig = Rig::with_queue("one", settings.clone()).await;
    rig.queue("two", settings).await;
    let shard = |name| Placement::default().of(&EntityName::parse(name).unwrap());
    assert_ne!(shard("one"), shard("two"));
    let client = rig.client().await;
    (rig, client)
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_a_step_like_any_other() {
    let (_rig, mut client) = large_queues().await;
    let control = client.coordinator().await.0;
    let (one, two) = (client.sender("one").await, client.sender("two").await);
    let (see_one, see_two) = (client.management("one").await, client.management("two").await);

    let txn_id = client.declare(control).await;
    let outcome = client.send_in(one, &large(1, 2 << 20), Some(&txn_id)).await;
    assert_eq!(outcome, accepted(&txn_id));
    assert_eq!(client.discharge(control, &txn_id, true).await, DeliveryState::Accepted);
    assert_eq!(client.count(&see_one).await, 0, "the rollback has removed it");

    // A small message is settled in the shard that commits, and large ones are sent to that shard and to another.
    client.send(one, &message("work")).await;
    let link = client.attach(large_receiver("one", false)).await.unwrap().0;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    for (link, byte, size_bytes) in [(two, 2, 5 << 20), (one, 3, 3 << 20), (two, 4, (1 << 20) + 1)] {
        let outcome = client.send_in(link, &large(byte, size_bytes), Some(&txn_id)).await;
        assert_eq!(outcome, accepted(&txn_id));
    }
    client.settle_in(link, delivery.id, accepted(&txn_id)).await;
    assert_eq!(
        (client.count(&see_one).await, client.count(&see_two).await),
        (1, 0),
        "not visible before the commit"
    );
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    let (_, found) = client.receive(link).await;
    assert_eq!(found.body, large(3, 3 << 20).body);
    let link = client.attach(large_receiver("two", false)).await.unwrap().0;
    for (byte, size_bytes) in [(2, 5 << 20), (4, (1 << 20) + 1)] {
        assert_eq!(client.receive(link).await.1.body, large(byte, size_bytes).body);
    }
}

#[tokio::test(start_paused = true)]
async fn many_messages_below_the_large_size_fit_into_one_transaction() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    let txn_id = client.declare(control).await;
    for _ in 0..9 {
        let outcome = client.send_in(one, &large(1, (1 << 20) - 200), Some(&txn_id)).await;
        assert_eq!(outcome, accepted(&txn_id));
    }
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    let link = client.receiver("one").await;
    assert_eq!(client.receive(link).await.1.body, large(1, (1 << 20) - 200).body);
}

#[tokio::test(start_paused = true)]
async fn a_large_message_that_cannot_be_sent_rejects_the_whole_transaction() {
    let (rig, mut client) = large_queues().await;
    let control = client.coordinator().await.0;
    let (one, two) = (client.sender("one").await, client.sender("two").await);
    let txn_id = client.declare(control).await;
    client.send_in(one, &large(1, 2 << 20), Some(&txn_id)).await;
    assert_eq!(client.send_in(two, &message("other"), Some(&txn_id)).await, accepted(&txn_id));
    let name = EntityName::parse("one").unwrap();
    let settings = QueueSettings { status: QueueStatus::SendDisabled, ..QueueSettings::default() };
    rig.broker.update(name, settings, None).await.unwrap();
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    let see_two = client.management("two").await;
    assert_eq!(client.count(&see_two).await, 0);

    let unknown = Bytes::from_static(b"nobody's");
    let refused = client.send_in(two, &large(1, 2 << 20), Some(&unknown)).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_UNKNOWN_ID);
}

#[tokio::test(start_paused = true)]
async fn large_messages_of_an_unfinished_transaction_leave_no_bytes_on_the_disk() {
    let (rig, mut client) = large_queues().await;
    let cold_bytes = || async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        (0..Placement::SHARD_COUNT_DEFAULT)
            .map(|shard| rig.journal.standalone_bytes(ShardId(shard)))
            .sum::<u64>()
    };
    let (one, two) = (client.sender("one").await, client.sender("two").await);
    let control = client.coordinator().await.0;

    let txn_id = client.declare(control).await;
    client.send_in(two, &large(1, 2 << 20), Some(&txn_id)).await;
    assert_eq!(client.discharge(control, &txn_id, true).await, DeliveryState::Accepted);
    assert_eq!(cold_bytes().await, 0, "the transaction was rolled back");

    // The lock is lost when the bodies are already durable, one of them in both shards.
    client.send(one, &message("work")).await;
    let link = client.receiver("one").await;
    let (delivery, _) = client.receive(link).await;
    let txn_id = client.declare(control).await;
    client.settle_in(link, delivery.id, accepted(&txn_id)).await;
    client.send_in(one, &large(1, 2 << 20), Some(&txn_id)).await;
    client.send_in(two, &large(2, 2 << 20), Some(&txn_id)).await;
    client.settle(link, delivery.id, DeliveryState::Accepted).await;
    let refused = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    assert_eq!(cold_bytes().await, 0, "the commit was rejected");

    let txn_id = client.declare(control).await;
    client.send_in(two, &large(1, 2 << 20), Some(&txn_id)).await;
    drop(client);
    assert_eq!(cold_bytes().await, 0, "the connection has ended");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_with_a_message_above_the_links_limit_can_only_be_rolled_back() {
    let (_rig, mut client) = two_queues().await;
    let control = client.coordinator().await.0;
    let one = client.sender("one").await;
    let txn_id = client.declare(control).await;
    assert_eq!(client.send_in(one, &message("a"), Some(&txn_id)).await, accepted(&txn_id));
    let large = peeklock_amqp::Message::data(vec![0; 2 << 20]);
    let refused = client.send_in(one, &large, Some(&txn_id)).await;
    assert_eq!(condition_of(&refused), condition::MESSAGE_SIZE_EXCEEDED);
    let outcome = client.discharge(control, &txn_id, false).await;
    assert_eq!(condition_of(&outcome), condition::TRANSACTION_ROLLBACK);
}
