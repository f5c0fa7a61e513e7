//! The order of a queue at each time, and so the class of a message.

use std::collections::{BTreeMap, BTreeSet};

use peeklock_types::OrderSettings;

use super::{History, TOLERANCE_MS, ms};
use crate::log::{Answer, Event, QueueIndex};
use crate::scenario::Wish;
use crate::scenario::order::default_class;

/// An order, and the longest time in which it may have been in force: times overlap where the change is uncertain.
#[derive(Clone, Debug)]
pub(super) struct Reign {
    order: Option<Box<OrderSettings>>,
    from_ms: i64,
    upto_ms: i64,
}

/// The name of a class in lower case, because class names are compared without case.
pub(in crate::oracle) type Class = String;

impl History<'_> {
    pub(super) fn collect_orders(&mut self) {
        for (queue, drawn) in self.scenario.queues.iter().enumerate() {
            let order = drawn.settings.order.clone();
            self.reigns.insert(queue, vec![Reign { order, from_ms: i64::MIN, upto_ms: i64::MAX }]);
        }
        let mut asked = BTreeMap::new();
        for entry in self.entries {
            let at_ms = ms(entry.at_ms);
            match &entry.event {
                Event::Ordering { request, queue, order } => {
                    self.begin_reign(
                        *queue,
                        Reign { order: order.clone(), from_ms: at_ms, upto_ms: i64::MAX },
                    );
                    asked.insert(*request, (*queue, at_ms));
                }
                Event::Ordered { request, answer } => {
                    let Some((queue, asked_ms)) = asked.remove(request) else { continue };
                    // A broker that died meanwhile may have confirmed a change that was lost.
                    let has_died = self.runs.iter().any(|run| (asked_ms..=at_ms).contains(&run.end_ms));
                    match answer {
                        Answer::Done if !has_died => self.end_reigns_before_last(queue, at_ms),
                        Answer::Refused { .. } => self.never_reigned(queue),
                        Answer::Done | Answer::Unknown => {}
                    }
                }
                _ => {}
            }
        }
    }

    fn begin_reign(&mut self, queue: QueueIndex, reign: Reign) {
        self.reigns.entry(queue).or_default().push(reign);
    }

    /// Ends all orders but the last. One client changes orders, one after the other.
    fn end_reigns_before_last(&mut self, queue: QueueIndex, answered_ms: i64) {
        let reigns = self.reigns.entry(queue).or_default();
        let former = reigns.split_last_mut().map(|(_, former)| former).unwrap_or_default();
        former.iter_mut().for_each(|reign| reign.upto_ms = reign.upto_ms.min(answered_ms));
    }

    fn never_reigned(&mut self, queue: QueueIndex) {
        self.reigns.entry(queue).or_default().pop();
    }

    fn reigns(
        &self,
        queue: QueueIndex,
        from_ms: i64,
        upto_ms: i64,
    ) -> impl Iterator<Item = Option<&OrderSettings>> + Clone {
        let reigns = self.reigns.get(&queue).map_or(&[][..], Vec::as_slice).iter();
        let (from_ms, upto_ms) = (from_ms.saturating_sub(TOLERANCE_MS), upto_ms.saturating_add(TOLERANCE_MS));
        reigns
            .filter(move |reign| reign.from_ms <= upto_ms && reign.upto_ms >= from_ms)
            .map(|reign| reign.order.as_deref())
    }

    /// Returns every order that the queue may have had between the two times.
    pub(in crate::oracle) fn orders(
        &self,
        queue: QueueIndex,
        from_ms: i64,
        upto_ms: i64,
    ) -> Vec<Option<&OrderSettings>> {
        self.reigns(queue, from_ms, upto_ms).collect()
    }

    /// Returns the order that the queue certainly had for the whole time between the two.
    pub(in crate::oracle) fn order(
        &self,
        queue: QueueIndex,
        from_ms: i64,
        upto_ms: i64,
    ) -> Option<&OrderSettings> {
        match self.orders(queue, from_ms, upto_ms).as_slice() {
            [only] => *only,
            _ => None,
        }
    }

    /// Returns whether the queue certainly had no order.
    pub(in crate::oracle) fn is_plain(&self, queue: QueueIndex, from_ms: i64, upto_ms: i64) -> bool {
        self.reigns(queue, from_ms, upto_ms).all(|order| order.is_none())
    }

    /// Returns whether the queue separated tenants in the same way for the whole time between the two.
    pub(in crate::oracle) fn asks_for_tenants(&self, queue: QueueIndex, from_ms: i64, upto_ms: i64) -> bool {
        let mut tenants =
            self.reigns(queue, from_ms, upto_ms).map(|order| order.and_then(|order| order.tenants.as_ref()));
        let first = tenants.next().flatten();
        first.is_some() && tenants.all(|other| other == first)
    }

    /// Returns every class that a message may have now if it was enqueued between the two times. `None`: unknown.
    pub(in crate::oracle) fn classes(
        &self,
        queue: QueueIndex,
        wish: Wish,
        from_ms: i64,
        upto_ms: i64,
    ) -> Option<BTreeSet<Class>> {
        let orders: Option<Vec<_>> = self.orders(queue, from_ms, upto_ms).into_iter().collect();
        let orders = orders?;
        let spelled = |class: &peeklock_types::ClassName| class.as_str().to_ascii_lowercase();
        let mut classes: BTreeSet<_> = orders.iter().map(|order| spelled(&wish.class(order))).collect();
        // A message stays in the class of its name; if that class is gone, it is in the default class.
        let keeps = |order: &OrderSettings, name: &str| {
            order.classes.iter().any(|class| spelled(&class.name) == name)
        };
        for _ in 0..orders.len() {
            let moved = orders.iter().filter(|order| classes.iter().any(|name| !keeps(order, name)));
            let moved: Vec<_> = moved.map(|order| spelled(&default_class(order))).collect();
            classes.extend(moved);
        }
        Some(classes)
    }
}
