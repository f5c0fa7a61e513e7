//! The order in which messages are handed out is the one that the queue was told.

use peeklock_types::{OrderPolicy, OrderSettings};

use super::Violation;
use super::history::{History, TOLERANCE_MS};
use super::stage::{Pick, Stage, Wait, stages};
use crate::log::Part;

/// The broker says of each delivery which class it is in.
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

/// A message that nobody had yet goes before every later one of its class and tenant; and where nothing else is said, before every later one.
pub(super) fn lanes_keep_their_order(history: &History<'_>) -> Vec<Violation> {
    judge(history, "lanes keep their order", |history, stage, pick, waits| {
        let whole = is_one_lane(history, stage, pick.at_ms);
        let order = history.order(stage.queue, pick.at_ms, pick.at_ms);
        let has_tenants = order.is_none_or(|order| order.tenants.is_some());
        let is_overtaken = |wait: &&Wait| {
            let is_class = pick.class.is_some() && wait.pick.class == pick.class;
            let is_same = is_class && (!has_tenants || wait.pick.tenant == pick.tenant);
            let is_before = wait.pick.place < pick.place && pick.at_ms < wait.pick.at_ms - TOLERANCE_MS;
            is_before && (whole || is_same)
        };
        let overtaken = waits.iter().find(is_overtaken)?;
        Some(format!("{} came after {}", told(&overtaken.pick), told(pick)))
    })
}

/// One line for all: there is no order, or one that asks only who came first.
fn is_one_lane(history: &History<'_>, stage: &Stage, at_ms: i64) -> bool {
    let fifo = |order: &OrderSettings| {
        order.policy == OrderPolicy::Fifo
            && order.tenants.is_none()
            && order.classes.iter().all(|class| class.rate.is_none())
    };
    history.is_plain(stage.queue, at_ms, at_ms) || history.order(stage.queue, at_ms, at_ms).is_some_and(fifo)
}

/// Nothing goes while something of a more urgent class waits.
pub(super) fn strict_is_strict(history: &History<'_>) -> Vec<Violation> {
    judge(history, "strict is strict", |history, stage, pick, waits| {
        let order = policy_at(history, stage, pick, OrderPolicy::Strict)?;
        let rank = rank(order, pick)?;
        let is_overtaken = |wait: &&Wait| {
            wait.is_at(pick.at_ms)
                && is_free(order, wait)
                && self::rank(order, &wait.pick).is_some_and(|own| own < rank)
        };
        let overtaken = waits.iter().find(is_overtaken)?;
        Some(format!(
            "{} waited since {:?} when {} went",
            told(&overtaken.pick),
            overtaken.since_ms,
            told(pick)
        ))
    })
}

/// The message goes for which the time of its coming and the offset of its class are the earliest.
pub(super) fn aged_goes_by_age(history: &History<'_>) -> Vec<Violation> {
    // A clock that steps puts messages into one line whose ages are not in order.
    if !history.is_steady() {
        return Vec::new();
    }
    judge(history, "aged goes by age", |history, stage, pick, waits| {
        let order =
            policy_at(history, stage, pick, OrderPolicy::Aged).filter(|order| order.tenants.is_none())?;
        let key = key(order, pick)?;
        let is_overtaken = |wait: &&Wait| {
            let is_earlier = self::key(order, &wait.pick).is_some_and(|own| own + TOLERANCE_MS < key);
            is_earlier && wait.is_at(pick.at_ms) && is_free(order, wait)
        };
        let overtaken = waits.iter().find(is_overtaken)?;
        let own = self::key(order, &overtaken.pick);
        Some(format!(
            "{} with key {own:?} waited when {} with key {key} went",
            told(&overtaken.pick),
            told(pick)
        ))
    })
}

type Verdict = fn(&History<'_>, &Stage, &Pick, &[Wait]) -> Option<String>;

/// Asks of each pick at a clear time whether it should have been another.
fn judge(history: &History<'_>, promise: &'static str, verdict: Verdict) -> Vec<Violation> {
    let mut violations = Vec::new();
    for stage in stages(history) {
        for pick in stage.picks.iter().filter(|pick| stage.is_clear(pick.at_ms)) {
            if let Some(what) = verdict(history, &stage, pick, &stage.waits) {
                violations.push(Violation::new(
                    promise,
                    pick.number,
                    format!("queue {}: {what}", stage.queue),
                ));
            }
        }
    }
    violations
}

fn told(pick: &Pick) -> String {
    let Pick { number, at_ms, place, class, tenant, .. } = pick;
    format!("message {number} (place {place}, class {class:?}, tenant {tenant:?}, picked at {at_ms})")
}

/// The order of the queue at the time of a pick, if it has this policy beyond doubt.
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

/// No limit of its class or its tenant may have held it back. One of the whole queue holds all back alike.
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

    /// A queue with the classes high, normal and low, and offsets of 0, 1 and 2 s.
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
    fn a_class_that_nobody_asked_for() {
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
    fn a_class_that_is_gone_gives_way_to_the_default_class() {
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
    fn a_lane_out_of_order() {
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

    /// Both are sent, the second one first, and then they come in this order.
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
    fn a_less_urgent_class_that_goes_first() {
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
    fn nothing_is_judged_while_a_receiver_may_have_missed_something() {
        let mut forge = forge(OrderPolicy::Strict);
        let (high, low) = (forge.sent_to("high"), forge.sent_to("low"));
        forge.add(Event::Attaching { link: 77, queue: 0, part: Part::Main, run: 1, connection: 5 });
        forge.pass(10);
        forge.took_first(low);
        forge.pass(10);
        forge.add(Event::Broken { connection: 5 });
        forge.pass(10);
        forge.took_first(high);
        assert!(promises(strict_is_strict, &forge).is_empty(), "the other receiver may have had it");
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
