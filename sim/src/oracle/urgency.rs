//! Checks that messages are delivered in the configured order.

use peeklock_types::{OrderPolicy, OrderSettings};

use super::Violation;
use super::history::{History, TOLERANCE_MS};
use super::stage::{Pick, Stage, Wait, stages};
use crate::log::{MessageNumber, Part};

/// Checks that the broker reports the right class with each delivery.
pub(super) fn classes_are_what_was_asked_for(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, message) in &history.messages {
        let sends = message.sends.iter().filter_map(|send| history.sends.get(*send));
        let Some(sent_ms) = sends.map(|send| send.at_ms).min() else { continue };
        for delivery in message.deliveries.iter().filter(|delivery| delivery.seen.part == Part::Main) {
            let (queue, said) = (delivery.seen.queue, delivery.seen.class.as_deref());
            let possible = history.classes(queue, history.wish(*number), sent_ms, delivery.at_ms);
            let is_wrong = match (&possible, said) {
                (Some(possible), Some(said)) => !possible.contains(&said.to_ascii_lowercase()),
                (Some(_), None) => true,
                (None, said) => said.is_some() && history.is_plain(queue, sent_ms, delivery.at_ms),
            };
            if is_wrong {
                let what = format!("it came in class {said:?}, and should be in {possible:?}");
                violations.push(Violation::new("classes are what was asked for", *number, what));
            }
        }
    }
    violations
}

/// Checks that a message that was never delivered precedes every later one of its class and tenant; and without an
/// order, every later one.
pub(super) fn lanes_keep_their_order(history: &History<'_>) -> Vec<Violation> {
    judge(history, lane_rule).violations("lanes keep their order")
}

fn lane_rule<'h>(history: &'h History<'_>, stage: &Stage, pick: &'h Pick) -> Option<Rule<'h>> {
    let whole = is_one_lane(history, stage, pick.at_ms);
    let order = history.order(stage.queue, pick.at_ms, pick.at_ms);
    let has_tenants = order.is_none_or(|order| order.tenants.is_some());
    Some(Box::new(move |wait| {
        let is_class = pick.class.is_some() && wait.pick.class == pick.class;
        let is_tenant = pick.has_tenant && wait.pick.has_tenant && wait.pick.tenant == pick.tenant;
        let is_same = is_class && (!has_tenants || is_tenant);
        let was_there = wait.pick.place < pick.place || wait.is_at(pick.at_ms);
        let is_later = pick.at_ms < wait.pick.at_ms - TOLERANCE_MS;
        (was_there && is_later && (whole || is_same)).then_some(wait.pick.place > pick.place)
    }))
}

/// Returns whether all messages share one lane: there is no order, or the policy is fifo.
fn is_one_lane(history: &History<'_>, stage: &Stage, at_ms: i64) -> bool {
    let fifo = |order: &OrderSettings| {
        order.policy == OrderPolicy::Fifo
            && order.tenants.is_none()
            && order.classes.iter().all(|class| class.rate.is_none())
    };
    history.is_plain(stage.queue, at_ms, at_ms) || history.order(stage.queue, at_ms, at_ms).is_some_and(fifo)
}

/// Checks that no message is delivered while one of a more urgent class waits.
pub(super) fn strict_is_strict(history: &History<'_>) -> Vec<Violation> {
    judge(history, strict_rule).violations("strict is strict")
}

fn strict_rule<'h>(history: &'h History<'_>, stage: &Stage, pick: &'h Pick) -> Option<Rule<'h>> {
    let order = policy_at(history, stage, pick, OrderPolicy::Strict)?;
    let rank = rank(order, pick)?;
    Some(Box::new(move |wait| {
        let own = self::rank(order, &wait.pick).filter(|own| *own != rank)?;
        (wait.is_at(pick.at_ms) && is_free(order, wait)).then_some(rank < own)
    }))
}

/// Checks that the message with the smallest arrival time plus class offset is delivered.
pub(super) fn aged_goes_by_age(history: &History<'_>) -> Vec<Violation> {
    judge(history, aged_rule).violations("aged goes by age")
}

fn aged_rule<'h>(history: &'h History<'_>, stage: &Stage, pick: &'h Pick) -> Option<Rule<'h>> {
    let order = policy_at(history, stage, pick, OrderPolicy::Aged).filter(|order| order.tenants.is_none())?;
    // A stepping clock puts messages with unsorted ages into one lane.
    let key = key(order, pick).filter(|_| history.is_steady())?;
    Some(Box::new(move |wait| {
        let own = self::key(order, &wait.pick).filter(|_| wait.pick.class != pick.class)?;
        (wait.is_at(pick.at_ms) && is_free(order, wait)).then_some(key <= own + TOLERANCE_MS)
    }))
}

/// Returns whether a pick was right to precede a waiting message; `None` if unknown.
type Rule<'h> = Box<dyn Fn(&Wait) -> Option<bool> + 'h>;

/// The result of judging each pick at a clear time.
#[derive(Default)]
struct Judged {
    /// The number of picks that could have been wrong.
    count: usize,
    wrong: Vec<(MessageNumber, String)>,
}

fn judge(
    history: &History<'_>,
    rule: for<'h> fn(&'h History<'_>, &Stage, &'h Pick) -> Option<Rule<'h>>,
) -> Judged {
    let mut judged = Judged::default();
    for stage in stages(history) {
        for pick in stage.picks.iter().filter(|pick| stage.is_clear(pick.at_ms)) {
            let Some(rule) = rule(history, &stage, pick) else { continue };
            let verdicts = || stage.waits.iter().filter_map(|wait| Some((wait, rule(wait)?)));
            judged.count += usize::from(verdicts().next().is_some());
            if let Some((wait, _)) = verdicts().find(|(_, is_right)| !is_right) {
                let since_ms = wait.since_ms;
                let what = format!(
                    "queue {}: {} waited since {since_ms:?} when {} went",
                    stage.queue,
                    told(&wait.pick),
                    told(pick)
                );
                judged.wrong.push((pick.number, what));
            }
        }
    }
    judged
}

impl Judged {
    fn violations(self, promise: &'static str) -> Vec<Violation> {
        self.wrong.into_iter().map(|(number, what)| Violation::new(promise, number, what)).collect()
    }
}

/// Returns how many picks could have been wrong, by promise.
pub(super) fn judged_counts(history: &History<'_>) -> [(&'static str, usize); 3] {
    [
        ("in lanes", judge(history, lane_rule).count),
        ("strict", judge(history, strict_rule).count),
        ("aged", judge(history, aged_rule).count),
    ]
}

fn told(pick: &Pick) -> String {
    let Pick { number, at_ms, place, enqueued_ms, class, tenant, .. } = pick;
    format!(
        "message {number} (place {place} since {enqueued_ms}, class {class:?}, tenant {tenant:?}, picked at {at_ms})"
    )
}

/// Returns the order of the queue at the time of a pick, if it certainly has this policy.
fn policy_at<'h>(
    history: &'h History<'_>,
    stage: &Stage,
    pick: &Pick,
    policy: OrderPolicy,
) -> Option<&'h OrderSettings> {
    history.order(stage.queue, pick.at_ms, pick.at_ms).filter(|order| order.policy == policy)
}

fn rank(order: &OrderSettings, pick: &Pick) -> Option<usize> {
    order.class_index(pick.class.as_deref()?)
}

fn key(order: &OrderSettings, pick: &Pick) -> Option<i64> {
    let offset = order.offset(rank(order, pick)?);
    Some(pick.enqueued_ms + i64::try_from(offset.as_millis()).unwrap_or(i64::MAX / 2))
}

/// Returns whether no limit of its class or its tenant may have held it back. A limit of the whole queue holds all back
/// equally.
fn is_free(order: &OrderSettings, wait: &Wait) -> bool {
    let class = rank(order, &wait.pick).and_then(|rank| order.classes.get(rank));
    let is_limited =
        |class: &peeklock_types::TenantClass| class.rate.is_some() || class.max_share_milli.is_some();
    let has_limits = order.tenants.as_ref().is_some_and(|tenants| tenants.classes.iter().any(is_limited));
    class.is_some_and(|class| class.rate.is_none()) && !has_limits
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peeklock_types::Rate;

    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::log::{Answer, Event, Seen};

    /// Creates a log of a queue with the classes high, normal and low, and offsets of 0, 1 and 2 s.
    fn forge(policy: OrderPolicy) -> Forge {
        let mut forge = Forge::with_order();
        let order = forge.order();
        order.policy = policy;
        for (place, class) in (0..).zip(&mut order.classes) {
            class.offset = Some(Duration::from_secs(place));
        }
        forge
    }

    #[test]
    fn a_wrong_class_is_found() {
        let mut forge = forge(OrderPolicy::Strict);
        let high = forge.sent_to("high");
        forge.took_first(high);
        assert!(promises(classes_are_what_was_asked_for, &forge).is_empty());
        let low = forge.sent_to("low");
        forge.received_as(Seen { class: Some("normal".to_owned()), ..forge.seen(low, 1) });
        assert_eq!(promises(classes_are_what_was_asked_for, &forge).len(), 1);
        forge.received_as(Seen { class: None, ..forge.seen(high, 2) });
        assert_eq!(promises(classes_are_what_was_asked_for, &forge).len(), 2);
    }

    #[test]
    fn messages_of_a_deleted_class_move_to_the_default_class() {
        let mut forge = forge(OrderPolicy::Strict);
        let (high, low) = (forge.sent_to("high"), forge.sent_to("low"));
        let without: fn(&mut OrderSettings) =
            |order| order.classes.retain(|class| class.name.as_str() != "high");
        forge.reordered(Answer::Unknown, without);
        forge.took_as(high, "high");
        forge.reordered(Answer::Done, without);
        forge.pass(10);
        forge.took_as(high, "normal");
        assert!(promises(classes_are_what_was_asked_for, &forge).is_empty());
        forge.took_as(low, "normal");
        assert_eq!(promises(classes_are_what_was_asked_for, &forge).len(), 1);
    }

    #[test]
    fn a_lane_out_of_order_is_found() {
        let overtaken = |policy, classes: [&str; 2]| {
            let mut forge = forge(policy);
            let numbers = classes.map(|class| forge.sent_to(class));
            forge.pass(10);
            forge.took_first(numbers[1]);
            forge.pass(10);
            forge.took_first(numbers[0]);
            promises(lanes_keep_their_order, &forge).len()
        };
        assert_eq!(overtaken(OrderPolicy::Strict, ["low", "low"]), 1);
        assert_eq!(overtaken(OrderPolicy::Strict, ["low", "high"]), 0);
        assert_eq!(overtaken(OrderPolicy::Fifo, ["low", "high"]), 1);
    }

    /// Sends both, the second one first, and delivers them in this order.
    fn taken(forge: &mut Forge, classes: [&str; 2], apart_ms: u64) -> usize {
        let first = forge.sent_to(classes[1]);
        forge.pass(apart_ms);
        let second = forge.sent_to(classes[0]);
        forge.pass(10);
        forge.took_enqueued(second, apart_ms);
        forge.pass(10);
        forge.took_enqueued(first, 0);
        promises(strict_is_strict, forge).len() + promises(aged_goes_by_age, forge).len()
    }

    #[test]
    fn a_less_urgent_class_that_is_delivered_first_is_found() {
        assert_eq!(taken(&mut forge(OrderPolicy::Strict), ["high", "low"], 10), 0);
        assert_eq!(taken(&mut forge(OrderPolicy::Strict), ["low", "high"], 10), 1);
        assert_eq!(taken(&mut forge(OrderPolicy::Fifo), ["low", "high"], 10), 0);
        let mut limited = forge(OrderPolicy::Strict);
        limited.order().classes[0].rate = Some(Rate { per_second_milli: 1000, burst: 1 });
        assert_eq!(taken(&mut limited, ["low", "high"], 10), 0, "its class may have been over its rate");
    }

    #[test]
    fn age_counts_as_much_as_the_offset() {
        assert_eq!(taken(&mut forge(OrderPolicy::Aged), ["high", "low"], 1_900), 0);
        assert_eq!(taken(&mut forge(OrderPolicy::Aged), ["high", "low"], 2_100), 1);
        assert_eq!(taken(&mut forge(OrderPolicy::Aged), ["low", "high"], 10), 1);
    }

    #[test]
    fn nothing_is_judged_while_a_receiver_may_have_missed_a_delivery() {
        let mut forge = forge(OrderPolicy::Strict);
        let (high, low) = (forge.sent_to("high"), forge.sent_to("low"));
        forge.add(Event::Attaching { link: 77, queue: 0, part: Part::Main, run: 1, connection: 5 });
        forge.pass(10);
        forge.took_first(low);
        forge.pass(10);
        forge.add(Event::Broken { connection: 5 });
        forge.pass(10);
        forge.took_first(high);
        assert!(promises(strict_is_strict, &forge).is_empty(), "the other receiver may have held it");
    }

    #[test]
    fn an_order_that_may_have_changed_is_not_judged() {
        let mut forge = forge(OrderPolicy::Strict);
        forge.reordered(Answer::Unknown, |order| order.policy = OrderPolicy::Fifo);
        assert_eq!(taken(&mut forge, ["low", "high"], 10), 0);
        forge.reordered(Answer::Done, |order| order.policy = OrderPolicy::Strict);
        forge.pass(10);
        assert_eq!(taken(&mut forge, ["low", "high"], 10), 1);
    }
}
