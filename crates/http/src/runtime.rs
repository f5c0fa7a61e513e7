//! The state of a queue's order, converted from the engine's types to those of the JSON API.

use std::time::Duration;

use peeklock_api::{
    Ahead, Alert, ClassRuntime, ExplainedMessage, Never, OrderRuntime, Percentiles, TargetRuntime,
    TenantRuntime, TimeToDrain, WindowRuntime,
};
use peeklock_broker::engine::{
    ClassView, ExplainedMessage as EngineExplained, Histogram, OrderView, TargetView, TenantView, Window,
};
use peeklock_spec::{show_duration, show_time};
use peeklock_types::{ClassName, Timestamp};

/// The minimum number of messages in a window for an alert. With fewer, one or two late messages would cause an alert.
const ALERT_COUNT_MIN: u64 = 20;

/// The conditions of an alert: the permitted share of late messages is consumed at this rate in the long window and in
/// the short one.
const ALERTS: [(Alert, Duration, Duration, f64); 3] = [
    (Alert::Page, Duration::from_secs(3600), Duration::from_secs(300), 14.4),
    (Alert::Page, Duration::from_secs(6 * 3600), Duration::from_secs(1800), 6.0),
    (Alert::Ticket, Duration::from_secs(3 * 86_400), Duration::from_secs(6 * 3600), 1.0),
];

pub(crate) fn order(view: &OrderView, now: Timestamp) -> OrderRuntime {
    OrderRuntime {
        classes: view.classes.iter().map(|view| class(view, now)).collect(),
        tenant_classes: view.tenant_classes.iter().map(|view| class(view, now)).collect(),
        tenants: view.tenants.iter().map(tenant).collect(),
        lane_count: u64::try_from(view.lane_count).unwrap_or(u64::MAX),
        misfit_count: view.misfit_count,
        crowded_count: view.crowded_count,
        throttled_count: view.throttled_count,
        limited_until: view.limited_until.map(show_time),
    }
}

fn class(view: &ClassView, now: Timestamp) -> ClassRuntime {
    ClassRuntime {
        name: view.name.to_string(),
        waiting: view.waiting_count,
        in_flight: view.locked_count,
        oldest_age_seconds: view.oldest.map(|oldest| now.since(oldest).as_secs_f64()),
        enqueued_count: view.enqueued_count,
        started_count: view.started_count,
        settled_count: view.settled_count,
        enqueued_per_second: rounded(view.enqueued_per_second),
        settled_per_second: rounded(view.settled_per_second),
        time_to_drain_seconds: time_to_drain(view),
        time_in_queue: percentiles(&view.time_in_queue),
        critical_time: percentiles(&view.critical_time),
        target: view.target.as_ref().map(target),
    }
}

/// Returns the time to drain; `None` if no message waits.
fn time_to_drain(view: &ClassView) -> Option<TimeToDrain> {
    if view.waiting_count == 0 {
        return None;
    }
    let gain = view.settled_per_second - view.enqueued_per_second;
    #[expect(clippy::cast_precision_loss, reason = "an estimate that is shown with a few digits")]
    let seconds = view.waiting_count as f64 / gain;
    Some(if gain > 0.0 { TimeToDrain::Seconds(rounded(seconds)) } else { TimeToDrain::Never(Never::Never) })
}

fn percentiles(histogram: &Histogram) -> Percentiles {
    let within = |share| histogram.percentile(share).map(|span| rounded(span.as_secs_f64()));
    Percentiles {
        p50: within(0.5),
        p90: within(0.9),
        p99: within(0.99),
        p999: within(0.999),
        count: histogram.count(),
    }
}

fn target(view: &TargetView) -> TargetRuntime {
    TargetRuntime {
        within: show_duration(view.target.within),
        objective: f64::from(view.target.objective_ppm) / 1e6,
        good: view.good_count,
        bad: view.bad_count,
        attainment: view.attainment().map(|share| (share * 1e6).round() / 1e6),
        windows: view.windows.iter().map(|window| window_runtime(view, window)).collect(),
        alert: alert(view),
    }
}

fn window_runtime(view: &TargetView, window: &Window) -> WindowRuntime {
    WindowRuntime {
        window: show_duration(window.span),
        good: window.good_count,
        bad: window.bad_count,
        burn: view.burn(window).map(rounded),
    }
}

fn alert(view: &TargetView) -> Alert {
    let window = |span| view.windows.iter().find(move |window| window.span == span);
    let level = |(level, long, short, burn_max): (Alert, Duration, Duration, f64)| {
        let windows = [window(long)?, window(short)?];
        let is_burning = windows.iter().all(|window| view.burn(window).is_some_and(|burn| burn > burn_max));
        let is_certain = windows
            .iter()
            .all(|window| window.good_count.saturating_add(window.bad_count) >= ALERT_COUNT_MIN);
        is_burning.then_some(if is_certain { level } else { Alert::FewMessages })
    };
    ALERTS.into_iter().filter_map(level).max().unwrap_or_default()
}

fn tenant(view: &TenantView) -> TenantRuntime {
    TenantRuntime {
        tenant: view.tenant.clone(),
        class: view.class.to_string(),
        tenant_class: view.tenant_class.to_string(),
        waiting: view.waiting_count,
        in_flight: view.locked_count,
    }
}

pub(crate) fn explained(found: EngineExplained) -> ExplainedMessage {
    let name = |name: Option<ClassName>| name.map(|name| name.to_string());
    let ahead = found.ahead.iter().map(|(class, count)| Ahead { class: class.to_string(), count: *count });
    ExplainedMessage {
        sequence_number: found.sequence_number.0,
        state: found.state.to_owned(),
        class: name(found.class),
        tenant_class: name(found.tenant_class),
        tenant: found.tenant,
        why: found.why,
        ahead: ahead.collect(),
        ahead_count: found.ahead.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count)),
    }
}

/// Rounds to thousandths; smaller differences are noise.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use peeklock_types::Target;

    use super::*;

    /// Returns a target with windows of 5 min, 30 min, 1 h, 6 h and 3 d that have these good and bad messages.
    fn view(windows: [(u64, u64); 5]) -> TargetView {
        let spans = [300, 1800, 3600, 6 * 3600, 3 * 86_400].map(Duration::from_secs);
        let windows = spans.into_iter().zip(windows);
        let windows = windows.map(|(span, (good_count, bad_count))| Window { span, good_count, bad_count });
        let target = Target { within: Duration::from_secs(10), objective_ppm: 990_000 };
        TargetView { target, good_count: 0, bad_count: 0, windows: windows.collect() }
    }

    #[test]
    fn a_page_needs_both_of_its_windows() {
        assert_eq!(alert(&view([(80, 20); 5])), Alert::Page);
        let over = view([(100, 0), (100, 0), (80, 20), (80, 20), (1000, 0)]);
        assert_eq!(alert(&over), Alert::None, "the short window has recovered");
        let slow = view([(100, 0), (93, 7), (93, 7), (93, 7), (10_000, 7)]);
        assert_eq!(alert(&slow), Alert::Page, "six times the permitted rate for six hours");
    }

    #[test]
    fn a_slow_burn_is_a_ticket() {
        assert_eq!(alert(&view([(100, 0), (100, 0), (100, 0), (98, 2), (980, 20)])), Alert::Ticket);
        assert_eq!(alert(&view([(99, 1); 5])), Alert::None, "exactly the permitted share");
    }

    #[test]
    fn few_messages_are_reported_without_an_alert() {
        assert_eq!(alert(&view([(0, 19); 5])), Alert::FewMessages);
        assert_eq!(alert(&view([(0, 20); 5])), Alert::Page);
        let quiet = view([(0, 1), (0, 2), (0, 5), (0, 20), (0, 300)]);
        assert_eq!(alert(&quiet), Alert::Ticket, "the long windows have enough messages");
        assert_eq!(alert(&view([(0, 0); 5])), Alert::None);
    }

    #[test]
    fn the_time_to_drain_depends_on_the_waiting_messages() {
        let class = |waiting_count, enqueued_per_second, settled_per_second| ClassView {
            name: ClassName::only(),
            waiting_count,
            locked_count: 0,
            oldest: None,
            enqueued_count: 0,
            started_count: 0,
            settled_count: 0,
            enqueued_per_second,
            settled_per_second,
            time_in_queue: Histogram::default(),
            critical_time: Histogram::default(),
            target: None,
        };
        assert_eq!(time_to_drain(&class(0, 5.0, 1.0)), None);
        assert_eq!(time_to_drain(&class(100, 1.0, 5.0)), Some(TimeToDrain::Seconds(25.0)));
        assert_eq!(time_to_drain(&class(100, 5.0, 5.0)), Some(TimeToDrain::Never(Never::Never)));
    }
}
