//! Checks that classes share by weight while both have waiting messages.

use std::collections::BTreeMap;

use peeklock_types::{OrderPolicy, OrderSettings};

use super::Violation;
use super::history::{History, TOLERANCE_MS};
use super::stage::{Pick, Stage, stages};

/// Checks that each of two classes gets its share while both have waiting messages.
pub(super) fn weights_are_kept(history: &History<'_>) -> Vec<Violation> {
    weigh_all(history).1
}

/// Returns how many picks could have exceeded the share.
pub(super) fn judged_count(history: &History<'_>) -> usize {
    weigh_all(history).0
}

fn weigh_all(history: &History<'_>) -> (usize, Vec<Violation>) {
    let mut violations = Vec::new();
    let mut count = 0;
    for stage in stages(history) {
        for (one, other) in pairs_of(history, &stage) {
            for span in spans(&stage, &one, &other) {
                let (weighed, violation) = weigh(history, &stage, (&one, &other), span);
                count += weighed;
                violations.extend(violation);
            }
        }
    }
    (count, violations)
}

/// Returns the classes that ever shared by weight in this queue.
fn pairs_of(history: &History<'_>, stage: &Stage) -> Vec<(String, String)> {
    let orders = history.orders(stage.queue, i64::MIN, i64::MAX);
    let mut names: Vec<_> = orders
        .into_iter()
        .flatten()
        .filter(|order| order.policy == OrderPolicy::Weighted)
        .flat_map(|order| order.classes.iter().map(|class| class.name.as_str().to_ascii_lowercase()))
        .collect();
    names.sort_unstable();
    names.dedup();
    let pairs = names
        .iter()
        .enumerate()
        .flat_map(|(at, one)| names.iter().skip(at + 1).map(move |other| (one, other)));
    pairs.map(|(one, other)| (one.clone(), other.clone())).collect()
}

/// Returns the longest times in which both classes certainly had waiting messages.
fn spans(stage: &Stage, one: &str, other: &str) -> Vec<(i64, i64)> {
    let (one, other) = (backlog(stage, one), backlog(stage, other));
    let mut spans = Vec::new();
    for (from, upto) in &one {
        for (other_from, other_upto) in &other {
            let span = (*from.max(other_from), *upto.min(other_upto));
            if span.0 < span.1 {
                spans.push(span);
            }
        }
    }
    spans
}

/// Returns the disjoint times in which a class certainly had waiting messages.
fn backlog(stage: &Stage, class: &str) -> Vec<(i64, i64)> {
    let mut times: Vec<_> = stage
        .waits
        .iter()
        .filter(|wait| wait.pick.class.as_deref() == Some(class))
        .filter_map(|wait| Some((wait.since_ms? + TOLERANCE_MS + 1, wait.pick.at_ms - TOLERANCE_MS - 1)))
        .filter(|(from, upto)| from < upto)
        .collect();
    times.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (from, upto) in times {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(upto),
            _ => joined.push((from, upto)),
        }
    }
    joined
}

/// Visits the picks of a span in parts that can be judged: one order, and no receiver that may have missed a pick.
fn weigh(
    history: &History<'_>,
    stage: &Stage,
    pair: (&str, &str),
    (from, upto): (i64, i64),
) -> (usize, Option<Violation>) {
    let mut count = 0;
    let mut tally = Tally::default();
    let mut last_ms = from;
    let mut order: Option<&OrderSettings> = None;
    let blurred = history.blurred_times(stage.queue);
    let bound = bound(history, stage, pair);
    let mut by_time: BTreeMap<i64, Vec<&Pick>> = BTreeMap::new();
    for pick in stage.picks.iter().filter(|pick| (from..=upto).contains(&pick.at_ms)) {
        by_time.entry(pick.at_ms).or_default().push(pick);
    }
    for (at_ms, picks) in by_time {
        let now =
            history.order(stage.queue, last_ms, at_ms).filter(|order| order.policy == OrderPolicy::Weighted);
        let is_same = now.is_some() && now == order;
        let is_missing = blurred
            .iter()
            .chain(&stage.dim)
            .any(|(dim, upto)| *dim <= at_ms + TOLERANCE_MS && upto.saturating_add(TOLERANCE_MS) >= last_ms);
        last_ms = at_ms;
        if !is_same || is_missing || picks.iter().any(|pick| pick.class.is_none()) {
            tally = Tally::default();
            order = now;
            continue;
        }
        let Some((order, weights)) = order.and_then(|order| Some((order, weights(order, pair)?))) else {
            continue;
        };
        if !may_share(order, pair) {
            continue;
        }
        count += picks.len();
        for pick in &picks {
            tally.add(pick, pair, weights);
        }
        if let Some(what) = tally.unfair(bound) {
            let number = picks.first().map(|pick| pick.number);
            let what = format!(
                "queue {}: {} and {} with weights {weights:?}, up to {at_ms}: {what}",
                stage.queue, pair.0, pair.1
            );
            return (count, Some(Violation::new("weights are kept", number, what)));
        }
    }
    (count, None)
}

fn weights(order: &OrderSettings, (one, other): (&str, &str)) -> Option<(u32, u32)> {
    Some((order.weight(order.class_index(one)?), order.weight(order.class_index(other)?)))
}

/// Returns whether no limit holds either class back.
fn may_share(order: &OrderSettings, (one, other): (&str, &str)) -> bool {
    let is_free = |name: &str| order.class_index(name).is_some_and(|class| !order.may_hold_class(class));
    is_free(one) && is_free(other)
}

/// The current and the largest distance of two classes, each counted by its weight. Picks in the same millisecond have
/// no order.
#[derive(Default)]
struct Tally {
    counts: (u32, u32),
    apart: f64,
    least: f64,
    most: f64,
}

impl Tally {
    fn add(&mut self, pick: &Pick, pair: (&str, &str), weights: (u32, u32)) {
        if pick.class.as_deref() == Some(pair.0) {
            self.apart += 1.0 / f64::from(weights.0);
            self.counts.0 += 1;
        } else if pick.class.as_deref() == Some(pair.1) {
            self.apart -= 1.0 / f64::from(weights.1);
            self.counts.1 += 1;
        }
    }

    fn unfair(&mut self, bound: f64) -> Option<String> {
        self.least = self.least.min(self.apart);
        self.most = self.most.max(self.apart);
        let span = self.most - self.least;
        let (one, other) = self.counts;
        (span > bound + 1e-6).then(|| {
            format!("{one} and {other} were picked; they were {span:.2} apart, and may be {bound:.2}")
        })
    }
}

/// Returns the largest permitted distance: start-time fair queueing permits the cost of one pick of each class. Charges
/// by former weights still count.
fn bound(history: &History<'_>, stage: &Stage, pair: (&str, &str)) -> f64 {
    let orders = history.orders(stage.queue, i64::MIN, i64::MAX).into_iter().flatten();
    let weights: Vec<_> = orders.filter_map(|order| weights(order, pair)).collect();
    let one = weights.iter().map(|(one, _)| *one).min().unwrap_or(1);
    let other = weights.iter().map(|(_, other)| *other).min().unwrap_or(1);
    1.0 / f64::from(one) + 1.0 / f64::from(other)
}

#[cfg(test)]
mod tests {
    use super::super::forge::{Forge, promises};
    use super::*;
    use crate::scenario::Wish;

    #[test]
    fn a_class_above_its_weight_is_found() {
        let picked = |classes: &[&str]| {
            let mut forge = Forge::with_order();
            forge.order().policy = OrderPolicy::Weighted;
            forge.order().classes[0].weight = Some(3);
            let order = forge.order().clone();
            let mut left: Vec<_> = (0..20).map(|n| forge.sent_to(["high", "low"][n % 2])).collect();
            for class in classes {
                forge.pass(10);
                let is_it = |number: &u32| Wish::of(*number).class(&order).as_str() == *class;
                let place = left.iter().position(is_it).unwrap();
                forge.took_first(left.remove(place));
            }
            forge.pass(10);
            left.into_iter().for_each(|number| forge.took_first(number));
            promises(weights_are_kept, &forge).len()
        };
        assert_eq!(picked(&["high", "high", "high", "low", "high", "high", "high", "low"]), 0);
        assert_eq!(picked(&["high", "low", "low", "low", "high", "low"]), 1);
        assert_eq!(picked(&["high", "high", "high", "high", "high", "high", "high"]), 1);
    }
}
