//! The picture of the comparison: bars of the medians.

use super::COLUMNS;
use super::page::Results;
use super::workloads::Workload;
use crate::svg::{self, BarGroup, BarPanel};

/// The bars of one quantity: their name, the workload and the index of the quantity.
type Bars = (&'static str, Workload, usize);

const PANELS: [(&str, &[Bars]); 6] = [
    (
        "Throughput, messages/s (more is better)",
        &[
            ("1 KiB", Workload::Large, 0),
            ("256 B", Workload::Small, 0),
            ("1 KiB, 1,000 queues", Workload::Queues, 0),
        ],
    ),
    (
        "Server CPU per message, µs (less is better)",
        &[
            ("1 KiB", Workload::Large, 1),
            ("256 B", Workload::Small, 1),
            ("1 KiB, 1,000 queues", Workload::Queues, 1),
        ],
    ),
    (
        "Tail latency, ms (less is better)",
        &[
            ("one send at a time, p99", Workload::Send, 1),
            ("end to end at 5,000/s, p99", Workload::EndToEnd, 1),
        ],
    ),
    ("Tail latency, ms (less is better)", &[("end to end at 5,000/s, p99.9", Workload::EndToEnd, 2)]),
    ("Resident memory, MiB (less is better)", &[("1 M messages of 256 B waiting", Workload::Waiting, 0)]),
    (
        "Restart to first delivery, s (less is better)",
        &[("1 M messages of 256 B waiting", Workload::Waiting, 1)],
    ),
];

pub(crate) fn draw(results: &Results) -> String {
    let names: Vec<String> = COLUMNS
        .iter()
        .map(|column| {
            let note = if column.is_synced { "" } else { " (weaker promise)" };
            format!("{}{note}", column.title.replace('*', ""))
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let panels = PANELS.map(|(title, sets)| BarPanel {
        title: title.to_owned(),
        groups: sets.iter().map(|&bars| group(results, bars)).collect(),
    });
    svg::bar_charts(&names, &panels)
}

fn group(results: &Results, (name, workload, index): Bars) -> BarGroup {
    let values = COLUMNS.iter().map(|column| results.median(workload, column, index)).collect();
    BarGroup { name: name.to_owned(), values }
}
