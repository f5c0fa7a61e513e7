//! The order of a queue as text: its settings, and the figures of its classes and tenants.

use std::io::{self, Write};

use peeklock::low_level::{Alert, ClassRuntime, OrderRuntime, Percentiles, TargetRuntime};
use peeklock::low_level::{OrderPolicy, OrderSettings, Rate, TenantSettings};
use peeklock_spec::{show_duration, show_millionths, show_order_policy, show_priorities, show_thousandths};

use crate::describe::Page;
use crate::table::Table;

/// The text of an absent value.
const NOTHING: &str = "-";

/// Summarizes the order: `classes high, normal, low; aged`.
pub(crate) fn summary(order: &OrderSettings) -> String {
    let policy = show_order_policy(order.policy);
    let mut parts = Vec::new();
    if !order.classes.is_empty() {
        parts.push(format!("classes {}", super::names(order.classes.iter().map(|class| &class.name))));
    }
    parts.push(policy.to_owned());
    if let Some(tenants) = &order.tenants {
        parts.push(format!("tenants by {}", tenants.key));
    }
    parts.join("; ")
}

/// Writes the settings, then the figures.
pub(crate) fn show(
    out: &mut Vec<u8>,
    order: &OrderSettings,
    runtime: Option<&OrderRuntime>,
) -> io::Result<()> {
    show_settings(out, order)?;
    show_classes(out, order)?;
    if let Some(tenants) = order.tenants.as_ref().filter(|tenants| !tenants.classes.is_empty()) {
        show_tenant_classes(out, tenants)?;
    }
    runtime.map_or(Ok(()), |runtime| show_runtime(out, runtime))
}

fn show_settings(out: &mut Vec<u8>, order: &OrderSettings) -> io::Result<()> {
    let mut page = Page(out);
    page.line("Order", &show_order_policy(order.policy))?;
    if let Some(class) = order.classes.get(order.default_class_index()) {
        page.line("  default-class", &class.name)?;
    }
    for rule in &order.rules {
        page.line("  class-rule", &format!("{}: {}", rule.class, rule.when))?;
    }
    if let Some(tenants) = &order.tenants {
        page.line("  tenant-key", &tenants.key)?;
        if let Some(class) = tenants.classes.get(tenants.default_class_index()) {
            page.line("  default-tenant-class", &class.name)?;
        }
    }
    for (key, rate) in [("  rate", order.rate), ("  send-rate", order.send_rate)] {
        rate.map_or(Ok(()), |rate| page.line(key, &rate))?;
    }
    page.line("  max-outstanding", &order.max_outstanding)
}

/// Writes the table of classes, with only the columns that have values.
fn show_classes(out: &mut Vec<u8>, order: &OrderSettings) -> io::Result<()> {
    if order.classes.is_empty() {
        return Ok(());
    }
    let (is_aged, is_weighted) = (order.policy == OrderPolicy::Aged, order.policy == OrderPolicy::Weighted);
    let has_offset = is_aged || order.classes.iter().any(|class| class.offset.is_some());
    let has_weight = is_weighted || order.classes.iter().any(|class| class.weight.is_some());
    let has_target = order.classes.iter().any(|class| class.target.is_some());
    let has_rate = order.classes.iter().any(|class| class.rate.is_some());
    let has_send_rate = order.classes.iter().any(|class| class.send_rate.is_some());
    let mut columns = Columns::new("CLASS");
    columns.number("PRIORITIES", true);
    columns.number("OFFSET", has_offset);
    columns.number("WEIGHT", has_weight);
    columns.text("TARGET", has_target);
    columns.text("RATE", has_rate);
    columns.text("SEND RATE", has_send_rate);
    for (at, class) in order.classes.iter().enumerate() {
        let target = class.target.map(|target| {
            let (within, objective) = (show_duration(target.within), show_millionths(target.objective_ppm));
            format!("{within} for {objective}")
        });
        columns.row([
            class.name.to_string(),
            show_priorities(class.priorities),
            show_duration(order.offset(at)),
            order.weight(at).to_string(),
            target.unwrap_or_else(nothing),
            rate(class.rate),
            rate(class.send_rate),
        ]);
    }
    columns.write(out)
}

fn show_tenant_classes(out: &mut Vec<u8>, tenants: &TenantSettings) -> io::Result<()> {
    let classes = &tenants.classes;
    let mut columns = Columns::new("TENANT CLASS");
    columns.number("WEIGHT", true);
    columns.text("MAX SHARE", classes.iter().any(|class| class.max_share_milli.is_some()));
    columns.text("RATE EACH", classes.iter().any(|class| class.rate.is_some()));
    columns.text("SEND RATE EACH", classes.iter().any(|class| class.send_rate.is_some()));
    columns.text("WHEN", classes.iter().any(|class| class.when.is_some()));
    for class in classes {
        let hard = if class.is_share_hard { " (hard)" } else { "" };
        let share = class.max_share_milli.map(|share| format!("{}{hard}", show_thousandths(share)));
        columns.row([
            class.name.to_string(),
            show_thousandths(class.weight_milli),
            share.unwrap_or_else(nothing),
            rate(class.rate),
            rate(class.send_rate),
            class.when.clone().unwrap_or_else(nothing),
        ]);
    }
    columns.write(out)
}

fn show_runtime(out: &mut Vec<u8>, runtime: &OrderRuntime) -> io::Result<()> {
    show_class_runtime(out, "CLASS", &runtime.classes)?;
    show_class_runtime(out, "TENANT CLASS", &runtime.tenant_classes)?;
    if !runtime.tenants.is_empty() {
        let mut columns = Columns::new("TENANT");
        columns.text("CLASS", true);
        columns.text("TENANT CLASS", true);
        columns.number("WAITING", true);
        columns.number("IN FLIGHT", true);
        let nobody = if runtime.crowded_count > 0 { "(none, or shared)" } else { "(none)" };
        for tenant in &runtime.tenants {
            columns.row([
                tenant.tenant.clone().unwrap_or_else(|| nobody.to_owned()),
                tenant.class.clone(),
                tenant.tenant_class.clone(),
                tenant.waiting.to_string(),
                tenant.in_flight.to_string(),
            ]);
        }
        columns.write(out)?;
    }
    writeln!(out)?;
    let mut page = Page(out);
    page.line("Lanes", &runtime.lane_count)?;
    page.line("Fitted no class", &runtime.misfit_count)?;
    page.line("Shared a lane", &runtime.crowded_count)?;
    page.line("Over a send rate", &runtime.throttled_count)?;
    runtime.limited_until.as_ref().map_or(Ok(()), |until| page.line("All over a rate until", until))
}

fn show_class_runtime(out: &mut Vec<u8>, heading: &'static str, classes: &[ClassRuntime]) -> io::Result<()> {
    if classes.is_empty() {
        return Ok(());
    }
    let has_target = classes.iter().any(|class| class.target.is_some());
    let mut columns = Columns::new(heading);
    for name in
        ["WAITING", "IN FLIGHT", "OLDEST", "IN/S", "OUT/S", "WAIT P50", "WAIT P99", "DONE P50", "DONE P99"]
    {
        columns.number(name, true);
    }
    for name in ["ON TIME", "BURN 5m", "BURN 1h", "BURN 3d"] {
        columns.number(name, has_target);
    }
    columns.text("ALERT", has_target);
    for class in classes {
        columns.row(class_cells(class));
    }
    columns.write(out)
}

fn class_cells(class: &ClassRuntime) -> [String; 15] {
    let seconds = |value: Option<f64>| value.map_or_else(nothing, span);
    let [p50, p99] = halves(&class.time_in_queue).map(seconds);
    let [done_p50, done_p99] = halves(&class.critical_time).map(seconds);
    let target = class.target.as_ref();
    let burn = |window| target.and_then(|target| burn(target, window)).unwrap_or_else(nothing);
    let attained = target.and_then(|target| target.attainment).map(percent);
    [
        class.name.clone(),
        class.waiting.to_string(),
        class.in_flight.to_string(),
        seconds(class.oldest_age_seconds),
        per_second(class.enqueued_per_second),
        per_second(class.settled_per_second),
        p50,
        p99,
        done_p50,
        done_p99,
        attained.unwrap_or_else(nothing),
        burn("5m"),
        burn("1h"),
        burn("3d"),
        target.map_or_else(nothing, |target| alert(target.alert).to_owned()),
    ]
}

fn halves(percentiles: &Percentiles) -> [Option<f64>; 2] {
    [percentiles.p50, percentiles.p99]
}

fn burn(target: &TargetRuntime, window: &str) -> Option<String> {
    let window = target.windows.iter().find(|known| known.window == window)?;
    window.burn.map(|burn| format!("{burn:.1}"))
}

fn alert(alert: Alert) -> &'static str {
    match alert {
        Alert::None => "none",
        Alert::FewMessages => "few messages",
        Alert::Ticket => "ticket",
        Alert::Page => "page",
    }
}

/// Writes a share in percent. It is rounded down, so that 100 % means all.
fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).floor() / 10.0)
}

fn per_second(rate: f64) -> String {
    if rate >= 100.0 { format!("{rate:.0}") } else { format!("{rate:.1}") }
}

/// Writes a duration with the significant digits.
fn span(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 0.0095 => format!("{:.1}ms", seconds * 1000.0),
        seconds if seconds < 0.995 => format!("{:.0}ms", seconds * 1000.0),
        seconds if seconds < 99.5 => format!("{seconds:.1}s"),
        seconds if seconds < 5970.0 => format!("{:.0}m", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0}h", seconds / 3600.0),
        seconds => format!("{:.0}d", seconds / 86_400.0),
    }
}

fn rate(rate: Option<Rate>) -> String {
    rate.map_or_else(nothing, |rate| rate.to_string())
}

fn nothing() -> String {
    NOTHING.to_owned()
}

/// A table after a blank line, with optional columns.
struct Columns {
    table: Table,
    is_shown: Vec<bool>,
}

impl Columns {
    fn new(first: &'static str) -> Self {
        Columns { table: Table::new().text(first), is_shown: vec![true] }
    }

    fn number(&mut self, heading: &'static str, is_shown: bool) {
        self.is_shown.push(is_shown);
        if is_shown {
            self.table = std::mem::replace(&mut self.table, Table::new()).number(heading);
        }
    }

    fn text(&mut self, heading: &'static str, is_shown: bool) {
        self.is_shown.push(is_shown);
        if is_shown {
            self.table = std::mem::replace(&mut self.table, Table::new()).text(heading);
        }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let shown = cells.into_iter().zip(&self.is_shown).filter(|(_, is_shown)| **is_shown);
        self.table.row(shown.map(|(cell, _)| cell));
    }

    fn write(&self, out: &mut Vec<u8>) -> io::Result<()> {
        writeln!(out)?;
        self.table.write(out)
    }
}

#[cfg(test)]
mod tests {
    use peeklock::low_level::{TenantRuntime, WindowRuntime};
    use peeklock_spec::{OrderSpec, from_json};

    use super::*;

    fn order(text: &str) -> OrderSettings {
        let OrderSpec(order) = from_json(text).unwrap();
        *order
    }

    fn shown(order: &OrderSettings, runtime: Option<&OrderRuntime>) -> String {
        let mut out = Vec::new();
        show(&mut out, order, runtime).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_settings_are_shown() {
        let order = order(
            r#"{ "classes": { "high": { "priorities": "7-9", "target": "10s", "objective": 0.999 }, "low": { "priorities": "0-6" } },
                "rules": [ { "when": "vip = TRUE", "class": "high" } ], "rate": "5/s",
                "tenants": { "key": "tenant", "classes": { "paying": { "when": "tier = 'p'", "weight": 2.5, "maxShare": 0.3 }, "free": {} } } }"#,
        );
        assert_eq!(
            shown(&order, None),
            "\
Order                    aged
  default-class          low
  class-rule             high: vip = TRUE
  tenant-key             tenant
  default-tenant-class   free
  rate                   5/s burst 5
  max-outstanding        16

CLASS  PRIORITIES  OFFSET  TARGET
high          7-9     10s  10s for 0.999
low           0-6     30s  -

TENANT CLASS  WEIGHT  MAX SHARE  WHEN
paying           2.5  0.3        tier = 'p'
free               1  -          -
"
        );
        assert_eq!(summary(&order), "classes high, low; aged; tenants by tenant");
        let plain = OrderSettings { policy: OrderPolicy::Fifo, ..OrderSettings::default() };
        assert_eq!(shown(&plain, None), "Order                    fifo\n  max-outstanding        16\n");
    }

    #[test]
    fn the_figures_of_classes_are_shown() {
        let window = |window: &str, burn| WindowRuntime {
            window: window.to_owned(),
            burn,
            ..WindowRuntime::default()
        };
        let target = TargetRuntime {
            attainment: Some(0.9999),
            windows: vec![window("5m", Some(14.44)), window("1h", None), window("3d", Some(0.0))],
            alert: Alert::Page,
            ..TargetRuntime::default()
        };
        let high = ClassRuntime {
            name: "high".to_owned(),
            waiting: 3,
            oldest_age_seconds: Some(1.25),
            enqueued_per_second: 120.4,
            settled_per_second: 99.96,
            time_in_queue: Percentiles { p50: Some(0.0021), p99: Some(0.25), ..Percentiles::default() },
            target: Some(target),
            ..ClassRuntime::default()
        };
        let low = ClassRuntime {
            name: "low".to_owned(),
            oldest_age_seconds: Some(7300.0),
            ..ClassRuntime::default()
        };
        let tenant = TenantRuntime {
            class: "high".to_owned(),
            tenant_class: "free".to_owned(),
            waiting: 3,
            ..TenantRuntime::default()
        };
        let runtime = OrderRuntime {
            classes: vec![high, low],
            tenants: vec![tenant],
            lane_count: 2,
            misfit_count: 1,
            ..OrderRuntime::default()
        };
        let text = shown(&OrderSettings::default(), Some(&runtime));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let high = rows.iter().find(|row| row.first() == Some(&"high")).unwrap();
        assert_eq!(
            high[1..],
            [
                "3", "0", "1.2s", "120", "100.0", "2.1ms", "250ms", "-", "-", "99.9", "%", "14.4", "-",
                "0.0", "page"
            ],
            "{text}"
        );
        assert!(text.contains("\nlow          0          0      2h"), "{text}");
        assert!(text.contains("\n(none)  high   free                3          0\n"), "{text}");
        assert!(
            text.ends_with(
                "Fitted no class          1\nShared a lane            0\nOver a send rate         0\n"
            ),
            "{text}"
        );
    }
}
