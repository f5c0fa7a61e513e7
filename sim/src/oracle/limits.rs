//! Checks the limits of a queue on deliveries and sends.

use std::collections::{BTreeMap, BTreeSet};

use peeklock_types::{OrderSettings, Rate, TenantClass, limits};

use super::Violation;
use super::history::{Delivery, History, Send, TOLERANCE_MS};
use super::locks::certain_end;
use super::stage::{Pick, stages};
use crate::log::{Answer, Part};

/// Checks that no receiver holds more unsettled messages than the limit, whatever its credit.
pub(super) fn receivers_hold_no_more_than_they_may(history: &History<'_>) -> Vec<Violation> {
    let mut by_link: BTreeMap<u32, Vec<&Delivery>> = BTreeMap::new();
    for delivery in history.messages.values().flat_map(|message| &message.deliveries) {
        let is_own =
            !delivery.is_deleted() && delivery.seen.hold.is_none() && delivery.seen.part == Part::Main;
        if let Some(link) = delivery.seen.link.filter(|_| is_own) {
            by_link.entry(link).or_default().push(delivery);
        }
    }
    by_link.values_mut().filter_map(|deliveries| too_many(history, deliveries)).collect()
}

fn too_many(history: &History<'_>, deliveries: &mut [&Delivery]) -> Option<Violation> {
    deliveries.sort_by_key(|delivery| delivery.locked_at_ms);
    for (at, delivery) in deliveries.iter().enumerate() {
        let now_ms = delivery.locked_at_ms;
        let orders = history.orders(delivery.seen.queue, now_ms, now_ms);
        // Without an order there is no limit.
        let max = orders.iter().map(|order| order.map_or(u32::MAX, |order| order.max_outstanding)).max()?;
        let earlier = deliveries.get(..=at).unwrap_or_default();
        // Deliveries from a time without an order do not count.
        let is_counted = |held: &Delivery| {
            history.orders(held.seen.queue, held.locked_at_ms, now_ms).iter().all(Option::is_some)
        };
        let is_held =
            |held: &&&Delivery| certain_end(history, held) > now_ms + TOLERANCE_MS && is_counted(held);
        let held = earlier.iter().filter(is_held).count();
        if held as u64 > u64::from(max) && held > settled_lately(earlier, now_ms) {
            let what = format!("{} held {held} messages at {now_ms}, and may hold {max}", delivery.party);
            return Some(Violation::new("receivers hold no more than they may", delivery.seen.message, what));
        }
    }
    None
}

/// Returns an upper bound of the settlements that reached the broker within the current or the previous horizon.
fn settled_lately(deliveries: &[&Delivery], now_ms: i64) -> usize {
    let horizon_ms = i64::try_from(limits::OUTSTANDING_HORIZON.as_millis()).unwrap_or(i64::MAX);
    let from_ms = now_ms - 2 * horizon_ms - TOLERANCE_MS;
    let attempts = deliveries.iter().flat_map(|delivery| &delivery.attempts);
    attempts
        .filter(|attempt| attempt.at_ms <= now_ms + TOLERANCE_MS && attempt.answered_ms >= from_ms)
        .count()
}

/// Checks that first deliveries are no faster than the rates of the queue, its classes and its tenants. A start of the
/// broker, or another order, resets the rates, and so does a step of its clock: a pause seems to have passed.
pub(super) fn rates_are_kept(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for stage in stages(history) {
        let mut buckets: BTreeMap<Limited, Bucket> = BTreeMap::new();
        let mut former: Option<(u32, usize, &OrderSettings)> = None;
        let mut last_ms = i64::MIN;
        for pick in stage.picks.iter().filter(|pick| pick.is_first) {
            let order = history.order(stage.queue, last_ms.max(pick.at_ms - HOUR_MS), pick.at_ms);
            last_ms = pick.at_ms;
            let now = order.map(|order| (pick.run, history.step_count(pick.at_ms), order));
            if now.is_none() || now != former {
                buckets.clear();
            }
            former = now;
            let Some(order) = order else { continue };
            for (lane, rate) in rates(order, pick) {
                let bucket = buckets.entry(lane.clone()).or_insert_with(|| Bucket::full(rate, pick.at_ms));
                if !bucket.take(rate, pick.at_ms) {
                    let what = format!("queue {}: {lane:?} went faster than {rate}", stage.queue);
                    violations.push(Violation::new("rates are kept", pick.number, what));
                    bucket.level = 0.0;
                }
            }
        }
    }
    violations
}

/// A time that is longer than a bucket needs to fill.
const HOUR_MS: i64 = 3_600_000;

/// The subject of a rate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limited {
    Queue,
    Class(String),
    Tenant(String, Option<u32>),
}

fn rates(order: &OrderSettings, pick: &Pick) -> Vec<(Limited, Rate)> {
    let mut rates: Vec<_> = order.rate.map(|rate| (Limited::Queue, rate)).into_iter().collect();
    let Some(class) = &pick.class else { return rates };
    let own = order.class_index(class).and_then(|place| order.classes.get(place)?.rate);
    rates.extend(own.map(|rate| (Limited::Class(class.clone()), rate)));
    rates.extend(tenant_rate(order, pick).map(|rate| (Limited::Tenant(class.clone(), pick.tenant), rate)));
    rates
}

/// Returns the rate of the tenant. The drawn tenant classes depend only on the tenant.
fn tenant_rate(order: &OrderSettings, pick: &Pick) -> Option<Rate> {
    let tenants = order.tenants.as_ref()?;
    let own = tenants
        .classes
        .get(tenants.default_class_index())
        .filter(|_| pick.is_steady && pick.tenant.is_some_and(|tenant| tenant > 1));
    own.and_then(|class: &TenantClass| class.rate)
}

/// The largest possible number of tokens of one rate.
struct Bucket {
    level: f64,
    at_ms: i64,
}

/// The factor by which a rate may be exceeded, because times are in whole milliseconds.
const SLACK: f64 = 1.001;

impl Bucket {
    fn full(rate: Rate, at_ms: i64) -> Self {
        Bucket { level: f64::from(rate.burst), at_ms }
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds of one run and rates of a few per second")]
    fn take(&mut self, rate: Rate, at_ms: i64) -> bool {
        let gained = (at_ms - self.at_ms) as f64 * rate.per_second_milli as f64 / 1e6;
        self.level = (self.level + gained).min(f64::from(rate.burst)) - 1.0;
        self.at_ms = at_ms;
        self.level >= -SLACK
    }
}

/// Sends are not confirmed faster than the queue's rate. One batch may exceed it, and a repeated send costs nothing,
/// because a duplicate is not stored.
pub(super) fn send_rates_are_kept(history: &History<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for queue in 0..history.scenario.queues.len() {
        let mut seen = BTreeSet::new();
        let mut sends = Vec::new();
        let here = |send: &&Send| send.queue == queue && send.terms.transaction.is_none();
        for send in history.sends.iter().filter(here) {
            let count = send.messages.iter().filter(|number| seen.insert(**number)).count();
            if let (Answer::Done, Some(answered_ms)) = (&send.answer, send.answered_ms) {
                sends.push((send.at_ms, answered_ms, count));
            }
        }
        sends.sort_unstable();
        let batch_max = sends.iter().map(|(_, _, count)| *count).max().unwrap_or(0);
        for (at, (from_ms, _, _)) in sends.iter().enumerate() {
            if let Some(what) =
                too_fast(history, queue, *from_ms, batch_max, sends.get(at..).unwrap_or_default())
            {
                violations.push(Violation::new(
                    "send rates are kept",
                    None,
                    format!("queue {queue}: {what}"),
                ));
                break;
            }
        }
    }
    violations
}

#[expect(clippy::cast_precision_loss, reason = "counts and milliseconds of one run")]
fn too_fast(
    history: &History<'_>,
    queue: usize,
    from_ms: i64,
    batch_max: usize,
    sends: &[(i64, i64, usize)],
) -> Option<String> {
    let order = history.order(queue, from_ms, from_ms)?;
    let rate = order.send_rate?;
    let mut by_answer: Vec<_> = sends.iter().map(|(_, answered, count)| (*answered, *count)).collect();
    by_answer.sort_unstable();
    let mut total = 0;
    for (answered_ms, count) in by_answer {
        let has_restarted = history.has_started_between(from_ms, answered_ms)
            || history.step_count(from_ms) != history.step_count(answered_ms + TOLERANCE_MS);
        if has_restarted || history.order(queue, from_ms, answered_ms) != Some(order) {
            return None;
        }
        total += count;
        let gained = (answered_ms - from_ms + 2 * TOLERANCE_MS) as f64 * rate.per_second_milli as f64 / 1e6;
        let most = f64::from(rate.burst) + gained + batch_max as f64;
        if total as f64 > most + SLACK {
            return Some(format!(
                "{total} messages were taken from {from_ms} to {answered_ms}, faster than {rate}"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use peeklock_client::Outcome;

    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::log::Seen;

    #[test]
    fn a_receiver_above_its_limit_is_found() {
        let mut forge = Forge::with_order();
        forge.order().max_outstanding = 2;
        let mut take = |settles: bool| {
            let number = forge.sent_to("high");
            forge.pass(300);
            forge.received_as(Seen { link: Some(7), ..forge.seen(number, 1) });
            if let Some(token) = forge.seen(number, 1).token.filter(|_| settles) {
                forge.settled(token, Outcome::Complete, Answer::Done);
            }
            promises(receivers_hold_no_more_than_they_may, &forge).len()
        };
        assert_eq!([take(false), take(true), take(false), take(false)], [0, 0, 0, 1]);
    }

    #[test]
    fn a_receiver_that_settles_fast_may_hold_more() {
        let mut forge = Forge::with_order();
        forge.order().max_outstanding = 1;
        for is_held in [false, false, false, true, true, true] {
            let number = forge.sent_to("high");
            forge.pass(10);
            forge.received_as(Seen { link: Some(7), ..forge.seen(number, 1) });
            if let Some(token) = forge.seen(number, 1).token.filter(|_| !is_held) {
                forge.settled(token, Outcome::Complete, Answer::Done);
            }
        }
        assert!(promises(receivers_hold_no_more_than_they_may, &forge).is_empty());
    }

    #[test]
    fn deliveries_above_the_rate_are_found() {
        let broken = |apart_ms, rate: fn(&mut OrderSettings, Rate)| {
            let mut forge = Forge::with_order();
            rate(forge.order(), Rate { per_second_milli: 10_000, burst: 2 });
            for _ in 0..10 {
                let number = forge.sent_to("high");
                forge.pass(apart_ms);
                forge.took_first(number);
            }
            promises(rates_are_kept, &forge).len().min(1)
        };
        let of_queue: fn(&mut OrderSettings, Rate) = |order, rate| order.rate = Some(rate);
        let of_class: fn(&mut OrderSettings, Rate) = |order, rate| order.classes[0].rate = Some(rate);
        let of_other: fn(&mut OrderSettings, Rate) = |order, rate| order.classes[1].rate = Some(rate);
        assert_eq!([broken(100, of_queue), broken(50, of_queue)], [0, 1]);
        assert_eq!([broken(100, of_class), broken(50, of_class), broken(50, of_other)], [0, 1, 0]);
    }

    #[test]
    fn sends_above_the_rate_are_found() {
        let broken = |apart_ms| {
            let mut forge = Forge::with_order();
            forge.order().send_rate = Some(Rate { per_second_milli: 10_000, burst: 2 });
            for _ in 0..20 {
                forge.sent_to("high");
                forge.pass(apart_ms);
            }
            promises(send_rates_are_kept, &forge).len()
        };
        assert_eq!([broken(100), broken(50)], [0, 1]);
    }

    #[test]
    fn duplicates_cost_nothing() {
        let mut forge = Forge::with_order();
        forge.order().send_rate = Some(Rate { per_second_milli: 10_000, burst: 2 });
        let number = forge.sent_to("high");
        (0..20).for_each(|_| forge.sent(number));
        assert_eq!(promises(send_rates_are_kept, &forge).len(), 0);
    }
}
