//! Entities for people and for programs.

use std::io::{self, Write};

use peeklock_client::{Counts, QueueInfo, QueueSettings, RuleInfo, Runtime, SubscriptionInfo, TopicInfo};
use serde::Serialize;

use crate::order;
use crate::rule::filter_text;
use crate::settings;
use crate::table::Table;

/// One object per line.
pub(crate) fn json_lines<T: Serialize>(out: &mut Vec<u8>, items: &[T]) -> io::Result<()> {
    items.iter().try_for_each(|item| writeln!(out, "{}", serde_json::to_string(item)?))
}

pub(crate) fn queues(out: &mut Vec<u8>, queues: &[QueueInfo], as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, queues);
    }
    let table = Table::new().text("NAME").number("ACTIVE").number("LOCKED").number("DEFERRED");
    let mut table = table.number("SCHEDULED").number("DEAD").number("BYTES").text("ORDER");
    for QueueInfo { name, counts, spec, .. } in queues {
        let numbers = [
            counts.active_count,
            counts.locked_count,
            counts.deferred_count,
            counts.scheduled_count,
            counts.dead_letter_count,
            counts.size_bytes,
        ];
        let numbers = numbers.map(|number| number.to_string());
        table.row(std::iter::once(name.clone()).chain(numbers).chain([order_of(&spec.settings())]));
    }
    table.write(out)
}

/// Nothing for messages that go as they came.
fn order_of(settings: &QueueSettings) -> String {
    settings.order.as_deref().map(order::summary).unwrap_or_default()
}

pub(crate) fn topics(out: &mut Vec<u8>, topics: &[TopicInfo], as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, topics);
    }
    let mut table = Table::new().text("NAME").number("SUBSCRIPTIONS").number("SCHEDULED").number("BYTES");
    for topic in topics {
        let numbers = [topic.subscription_count, topic.scheduled_count, topic.size_bytes];
        table.row(std::iter::once(topic.name.clone()).chain(numbers.map(|number| number.to_string())));
    }
    table.write(out)
}

pub(crate) fn subscriptions(
    out: &mut Vec<u8>,
    subscriptions: &[SubscriptionInfo],
    as_json: bool,
) -> io::Result<()> {
    if as_json {
        return json_lines(out, subscriptions);
    }
    let table = Table::new().text("NAME").number("RULES").number("ACTIVE").number("LOCKED");
    let mut table = table.number("DEFERRED").number("DEAD").number("BYTES").text("ORDER");
    for SubscriptionInfo { name, counts, rule_count, spec, .. } in subscriptions {
        let numbers = [
            *rule_count,
            counts.active_count,
            counts.locked_count,
            counts.deferred_count,
            counts.dead_letter_count,
            counts.size_bytes,
        ];
        let numbers = numbers.map(|number| number.to_string());
        table.row(std::iter::once(name.clone()).chain(numbers).chain([order_of(&spec.settings())]));
    }
    table.write(out)
}

/// The settings that are not as usual, in the words of the flags that set them, and all counts.
pub(crate) fn queue(out: &mut Vec<u8>, queue: &QueueInfo, as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, std::slice::from_ref(queue));
    }
    let mut page = Page(out);
    page.line("Queue", &queue.name)?;
    let settings = queue.spec.settings();
    page.settings(&settings)?;
    page.counts(&queue.counts)?;
    page.order(&settings, queue.runtime.as_ref())
}

pub(crate) fn topic(out: &mut Vec<u8>, topic: &TopicInfo, as_json: bool) -> io::Result<()> {
    if as_json {
        return json_lines(out, std::slice::from_ref(topic));
    }
    let mut page = Page(out);
    page.line("Topic", &topic.name)?;
    page.settings(&topic.spec.settings())?;
    page.line("Subscriptions", &topic.subscription_count)?;
    page.line("Scheduled", &topic.scheduled_count)?;
    page.line("Bytes", &topic.size_bytes)
}

pub(crate) fn subscription(
    out: &mut Vec<u8>,
    subscription: &SubscriptionInfo,
    rules: &[RuleInfo],
    as_json: bool,
) -> io::Result<()> {
    if as_json {
        return json_lines(out, std::slice::from_ref(subscription));
    }
    let mut page = Page(out);
    page.line("Subscription", &subscription.name)?;
    page.line("Rules", &if rules.is_empty() { "none, so it gets nothing" } else { "" })?;
    for rule in rules {
        page.line(&format!("  {}", rule.name), &filter_text(&rule.spec))?;
    }
    let settings = subscription.spec.settings();
    page.settings(&settings)?;
    page.counts(&subscription.counts)?;
    page.order(&settings, subscription.runtime.as_ref())
}

/// Labels with their values behind them, in one column.
pub(crate) struct Page<'a>(pub(crate) &'a mut Vec<u8>);

impl Page<'_> {
    pub(crate) fn line(&mut self, label: &str, value: &dyn std::fmt::Display) -> io::Result<()> {
        let line = format!("{label:<24} {value}");
        writeln!(self.0, "{}", line.trim_end())
    }

    fn settings(&mut self, settings: &QueueSettings) -> io::Result<()> {
        let unusual = settings::unusual(settings);
        let told = match (unusual.is_empty(), settings.order.is_some()) {
            (true, false) => "all as by default",
            (true, true) => "as by default, but for the order",
            (false, _) => "as by default, but",
        };
        self.line("Settings", &told)?;
        unusual.into_iter().try_for_each(|(key, value)| self.line(&format!("  {key}"), &value))
    }

    fn order(&mut self, settings: &QueueSettings, runtime: Option<&Runtime>) -> io::Result<()> {
        let Some(order) = &settings.order else { return Ok(()) };
        order::show(self.0, order, runtime.and_then(|runtime| runtime.order.as_ref()))
    }

    fn counts(&mut self, counts: &Counts) -> io::Result<()> {
        self.line("Active", &counts.active_count)?;
        self.line("Locked", &counts.locked_count)?;
        self.line("Deferred", &counts.deferred_count)?;
        self.line("Scheduled", &counts.scheduled_count)?;
        self.line("Dead-lettered", &counts.dead_letter_count)?;
        self.line("Being forwarded", &counts.transfer_count)?;
        self.line("Not forwardable", &counts.transfer_dead_letter_count)?;
        self.line("Bytes", &counts.size_bytes)
    }
}
