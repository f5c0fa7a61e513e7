//! Sessions with messages are served in turn.

use std::collections::BTreeMap;

use peeklock_engine::{Delivery, ReceiverId, Settlement};
use peeklock_types::QueueSettings;
use proptest::prelude::*;

use crate::story::{Story, secs, settings};

fn story() -> Story {
    Story::with(QueueSettings { requires_session: true, max_delivery_count: 1000, ..settings() })
}

/// Accepts the next session and returns its id. Leaves its messages locked.
fn accept(story: &mut Story, receiver: u64) -> Option<(String, Vec<Delivery>)> {
    story.accept_next(receiver);
    let deliveries = story.deliver();
    let accepted = story.out.accepted.pop();
    if accepted.is_none() {
        story.detach(receiver);
    }
    accepted.map(|accepted| (accepted.held.session.as_str().to_owned(), deliveries))
}

#[test]
fn a_session_that_was_let_go_waits_behind_the_others() {
    let mut story = story();
    story.send_in_session("busy", 100);
    story.send_in_session("b", 1);
    story.send_in_session("c", 1);
    let mut turns = Vec::new();
    for receiver in 1..=6 {
        turns.push(accept(&mut story, receiver).unwrap().0);
        story.detach(receiver);
    }
    assert_eq!(turns, ["busy", "b", "c", "busy", "b", "c"]);
    // A session whose first message arrives now waits behind all of them.
    story.send_in_session("new", 1);
    let mut turn = |receiver| {
        let (id, _) = accept(&mut story, receiver).unwrap();
        story.detach(receiver);
        id
    };
    assert_eq!([turn(7), turn(8), turn(9), turn(10)], ["busy", "b", "c", "new"]);
}

#[test]
fn a_lost_lock_ends_the_turn_as_well() {
    let mut story = story();
    story.send_in_session("busy", 2);
    story.send_in_session("b", 1);
    assert_eq!(accept(&mut story, 1).unwrap().0, "busy");
    story.wait(secs(30));
    assert_eq!(accept(&mut story, 2).unwrap().0, "b");
    assert_eq!(accept(&mut story, 3).unwrap().0, "busy");
}

#[test]
fn after_a_restart_the_oldest_message_decides() {
    let mut story = story();
    story.send_in_session("busy", 2);
    story.send_in_session("b", 1);
    let (_, deliveries) = accept(&mut story, 1).unwrap();
    story.settle(&deliveries[0], Settlement::Complete).unwrap();
    story.settle(&deliveries[1], Settlement::Release).unwrap();
    story.restart();
    assert_eq!(accept(&mut story, 2).unwrap().0, "busy");
}

#[derive(Clone, Debug)]
enum Step {
    Send { session: usize },
    Accept,
    LetGo { pick: usize },
    Complete { pick: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..6usize).prop_map(|session| Step::Send { session }),
        4 => Just(Step::Accept),
        3 => any::<usize>().prop_map(|pick| Step::LetGo { pick }),
        2 => any::<usize>().prop_map(|pick| Step::Complete { pick }),
    ];
    prop::collection::vec(step, 1..150)
}

/// The sessions as a user sees them.
#[derive(Default)]
struct Turns {
    message_counts: BTreeMap<String, usize>,
    holds: Vec<(u64, String, Vec<Delivery>)>,
    /// For each available session: how many others were accepted since it became available, and how many others there were then.
    passed_over: BTreeMap<String, (usize, usize)>,
}

impl Turns {
    /// Begins to count for a session that has become available.
    fn wait(&mut self, id: &str) {
        let is_held = self.holds.iter().any(|(_, held, _)| held == id);
        if is_held || self.message_counts.get(id).is_none_or(|count| *count == 0) {
            return;
        }
        let with_messages = self.message_counts.iter().filter(|(_, count)| **count > 0).map(|(id, _)| id);
        let others =
            with_messages.chain(self.holds.iter().map(|(_, held, _)| held)).filter(|other| *other != id);
        let others: std::collections::BTreeSet<_> = others.collect();
        let others = others.len();
        self.passed_over.entry(id.to_owned()).or_insert((0, others));
    }

    fn accept(&mut self, receiver: u64, id: String, deliveries: Vec<Delivery>) {
        assert!(self.passed_over.remove(&id).is_some(), "{id} was available");
        for (other, (count, others)) in &mut self.passed_over {
            *count += 1;
            assert!(*count <= *others, "{other} was passed over {count} times, with {others} others");
        }
        self.holds.push((receiver, id, deliveries));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn each_other_session_goes_first_at_most_once(steps in steps()) {
        let (mut story, mut turns) = (story(), Turns::default());
        for (step, receiver) in steps.into_iter().zip(1..) {
            match step {
                Step::Send { session } => {
                    let id = format!("s{session}");
                    story.send_in_session(&id, 1);
                    *turns.message_counts.entry(id.clone()).or_default() += 1;
                    turns.wait(&id);
                    // The holder may get the message at once.
                    for delivery in story.deliver() {
                        let hold = turns.holds.iter_mut().find(|hold| ReceiverId(hold.0) == delivery.receiver);
                        hold.unwrap().2.push(delivery);
                    }
                }
                Step::Accept => match accept(&mut story, receiver) {
                    Some((id, deliveries)) => turns.accept(receiver, id, deliveries),
                    None => assert!(turns.passed_over.is_empty(), "{:?}", turns.passed_over),
                },
                Step::LetGo { pick } if !turns.holds.is_empty() => {
                    let (receiver, id, _) = turns.holds.remove(pick % turns.holds.len());
                    story.detach(receiver);
                    turns.wait(&id);
                }
                Step::Complete { pick } if !turns.holds.is_empty() => {
                    let at = pick % turns.holds.len();
                    let (_, id, deliveries) = &mut turns.holds[at];
                    if let Some(delivery) = deliveries.pop() {
                        story.settle(&delivery, Settlement::Complete).unwrap();
                        *turns.message_counts.get_mut(id).unwrap() -= 1;
                    }
                }
                Step::LetGo { .. } | Step::Complete { .. } => {}
            }
        }
    }
}
