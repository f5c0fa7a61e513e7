//! Transactions of a connection: their steps, their end, and their limits.

use peeklock_broker::engine::{EntityId, Settlement};
use peeklock_types::SubQueue;

use super::*;

const CONTROL: LinkNumber = LinkNumber(1);
const NOW: Millis = Millis(1000);
const NONCE: u128 = 7 << 64 | 3;
const DISCHARGER: Discharger = Discharger { control: CONTROL, delivery: DeliveryId(7), renews: false };

fn retired() -> Retired {
    let token = LockToken::new(SequenceNumber(1), 1);
    let (link, delivery) = (LinkNumber(2), DeliveryId(8));
    Retired { link, delivery, token, mirror: Mirror::Accepted, end: LockEnd::Settled }
}

fn begun() -> (Transactions, Bytes) {
    let mut transactions = Transactions::default();
    let id = transactions.declare(CONTROL, NOW, NONCE).unwrap();
    (transactions, id)
}

fn queue(name: &str, number: u32) -> (EntityName, EntityRef) {
    (EntityName::parse(name).unwrap(), EntityRef { shard: 0, entity: EntityId(number) })
}

fn send(size_bytes: usize) -> HeldSend {
    let (target, entity) = queue("target", 1);
    let body = HeldBody::Whole(Bytes::from(vec![0; size_bytes]));
    HeldSend { target, entity, messages: vec![HeldMessage { body, attributes: None }] }
}

fn settle(number: u64) -> TransactionSettle {
    TransactionSettle {
        sub_queue: SubQueue::Main,
        token: LockToken::new(SequenceNumber(number), 1),
        settlement: Settlement::Complete,
    }
}

fn add_settle(transactions: &mut Transactions, id: &[u8], name: &str) -> Result<(), Refusal> {
    let (name, entity) = queue(name, 9);
    transactions.add_settles(NOW, id, (&name, entity), vec![settle(1)])
}

fn condition_of<T: std::fmt::Debug>(result: Result<T, Refusal>) -> &'static str {
    result.unwrap_err().condition
}

#[test]
fn a_commit_performs_all_steps_at_the_settled_queue() {
    let (mut transactions, id) = begun();
    transactions.add_send(NOW, &id, send(10)).unwrap();
    add_settle(&mut transactions, &id, "source").unwrap();
    let (number, work) = transactions.commit(NOW, &id, DISCHARGER, None).unwrap();
    assert_eq!((work.sends.len(), work.settles.len()), (1, 1));
    assert_eq!(work.home().unwrap().entity, EntityId(9));
    assert_eq!(condition_of(transactions.add_send(NOW, &id, send(1))), condition::TRANSACTION_UNKNOWN_ID);
    transactions.retire(&id, retired()).expect("answers to its steps may be in flight");
    assert_eq!(transactions.end(NOW, number), Some((id.clone(), DISCHARGER, vec![retired()])));
    assert_eq!(condition_of(transactions.retire(&id, retired())), condition::TRANSACTION_UNKNOWN_ID);
    assert_eq!(condition_of(transactions.roll_back(NOW, &id, DISCHARGER)), condition::TRANSACTION_UNKNOWN_ID);
    assert_eq!(transactions.size_bytes, 0);
}

#[test]
fn without_settlements_the_first_target_commits_and_without_sends_no_entity_does() {
    let (mut transactions, id) = begun();
    transactions.add_send(NOW, &id, send(10)).unwrap();
    let (_, work) = transactions.commit(NOW, &id, DISCHARGER, None).unwrap();
    assert_eq!(work.home().unwrap().entity, EntityId(1));
    let (mut transactions, id) = begun();
    let (_, work) = transactions.commit(NOW, &id, DISCHARGER, None).unwrap();
    assert!(work.home().is_none());
}

#[test]
fn several_transactions_are_independent() {
    let (mut transactions, one) = begun();
    let two = transactions.declare(CONTROL, NOW, NONCE).unwrap();
    assert_ne!(one, two);
    transactions.add_send(NOW, &one, send(1)).unwrap();
    transactions.roll_back(NOW, &one, DISCHARGER).unwrap();
    add_settle(&mut transactions, &two, "q").unwrap();
    assert_eq!(transactions.commit(NOW, &two, DISCHARGER, None).unwrap().1.sends.len(), 0);
}

#[test]
fn two_queues_cannot_be_settled_together() {
    let (mut transactions, id) = begun();
    add_settle(&mut transactions, &id, "one").unwrap();
    add_settle(&mut transactions, &id, "ONE").unwrap();
    assert_eq!(condition_of(add_settle(&mut transactions, &id, "two")), condition::NOT_ALLOWED);
    let refusal = transactions.commit(NOW, &id, DISCHARGER, None).unwrap_err();
    assert_eq!(refusal.condition, condition::TRANSACTION_ROLLBACK);
    assert!(refusal.description.contains("'two'"), "{}", refusal.description);
}

#[test]
fn a_transaction_with_a_rejected_step_can_only_be_rolled_back() {
    let (mut transactions, id) = begun();
    transactions.add_send(NOW, &id, send(1)).unwrap();
    transactions.doom(&id, "the lock is lost");
    assert_eq!(
        condition_of(transactions.commit(NOW, &id, DISCHARGER, None)),
        condition::TRANSACTION_ROLLBACK
    );
    assert_eq!(
        condition_of(transactions.commit(NOW, &id, DISCHARGER, None)),
        condition::TRANSACTION_UNKNOWN_ID
    );
    let id = transactions.declare(CONTROL, NOW, NONCE).unwrap();
    transactions.doom(&id, "the lock is lost");
    transactions.roll_back(NOW, &id, DISCHARGER).unwrap();
    transactions.doom(b"nonsense", "nobody hears it");
}

#[test]
fn steps_and_bytes_are_limited() {
    let (mut transactions, id) = begun();
    for _ in 0..limits::TRANSACTION_STEPS_MAX {
        transactions.add_send(NOW, &id, send(1)).unwrap();
    }
    let refused = add_settle(&mut transactions, &id, "q");
    assert_eq!(condition_of(refused), condition::RESOURCE_LIMIT_EXCEEDED);
    transactions.roll_back(NOW, &id, DISCHARGER).unwrap();

    let most = limits::TRANSACTION_SIZE_BYTES_MAX;
    let mut declare = || transactions.declare(CONTROL, NOW, NONCE).unwrap();
    let ids = [declare(), declare(), declare()];
    for id in &ids[..2] {
        transactions.add_send(NOW, id, send(most)).unwrap();
    }
    let condition = condition_of(transactions.add_send(NOW, &ids[0], send(1)));
    assert_eq!(condition, condition::RESOURCE_LIMIT_EXCEEDED, "the limit of one transaction");
    let condition = condition_of(transactions.add_send(NOW, &ids[2], send(1)));
    assert_eq!(condition, condition::RESOURCE_LIMIT_EXCEEDED, "the limit of all transactions");
    transactions.roll_back(NOW, &ids[0], DISCHARGER).unwrap();
    let id = transactions.declare(CONTROL, NOW, NONCE).unwrap();
    transactions.add_send(NOW, &id, send(1)).unwrap();
}

#[test]
fn open_transactions_are_limited() {
    let (mut transactions, _) = begun();
    for _ in 1..OPEN_MAX {
        transactions.declare(CONTROL, NOW, NONCE).unwrap();
    }
    assert_eq!(condition_of(transactions.declare(CONTROL, NOW, NONCE)), condition::RESOURCE_LIMIT_EXCEEDED);
    transactions.roll_back_all_of(LinkNumber(2));
    assert!(transactions.declare(CONTROL, NOW, NONCE).is_err());
    transactions.roll_back_all_of(CONTROL);
    assert!(transactions.declare(CONTROL, NOW, NONCE).is_ok());
}

#[test]
fn an_idle_transaction_times_out_and_late_steps_receive_the_reason() {
    let (mut transactions, id) = begun();
    let deadline = transactions.next_deadline().unwrap();
    assert_eq!(deadline, Millis(121_000));
    let later = Millis(deadline.0 - 1);
    transactions.expire(later);
    transactions.add_send(later, &id, send(5)).unwrap();
    transactions.expire(deadline);
    let deadline = transactions.next_deadline().unwrap();
    assert_eq!(deadline, Millis(later.0 + 120_000), "each step restarts the timeout");
    transactions.expire(deadline);
    assert_eq!(transactions.next_deadline(), None);
    assert_eq!(transactions.size_bytes, 0);
    assert_eq!(condition_of(transactions.add_send(deadline, &id, send(5))), condition::TRANSACTION_TIMEOUT);
    assert_eq!(condition_of(transactions.commit(NOW, &id, DISCHARGER, None)), condition::TRANSACTION_TIMEOUT);
    assert_eq!(condition_of(transactions.roll_back(NOW, &id, DISCHARGER)), condition::TRANSACTION_TIMEOUT);
}

#[test]
fn a_commit_in_flight_neither_times_out_nor_ends_with_its_link() {
    let (mut transactions, id) = begun();
    let (number, _) = transactions.commit(NOW, &id, DISCHARGER, None).unwrap();
    assert_eq!(transactions.next_deadline(), None);
    transactions.expire(Millis(u64::MAX));
    transactions.roll_back_all_of(CONTROL);
    assert_eq!(transactions.end(NOW, number), Some((id, DISCHARGER, Vec::new())));
}

#[test]
fn ids_that_were_not_issued_are_unknown() {
    let (mut transactions, id) = begun();
    let mut guess = TransactionId::of(&id).unwrap();
    guess.0[15] ^= 1;
    for id in [&b""[..], b"abcd", &guess.0, b"a long id that is none of ours at all"] {
        assert_eq!(condition_of(transactions.add_send(NOW, id, send(1))), condition::TRANSACTION_UNKNOWN_ID);
        assert_eq!(
            condition_of(transactions.roll_back(NOW, id, DISCHARGER)),
            condition::TRANSACTION_UNKNOWN_ID
        );
    }
}
