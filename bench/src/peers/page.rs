//! The results as raw values in JSON, as a page and as the values of the picture.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::workloads::{Measured, Quantity, Workload};
use super::{COLUMNS, Column};
use crate::report::{median, number};

/// The raw values of one or several runs on the same machine with the same version.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) machine: String,
    pub(crate) is_quick: bool,
    versions: BTreeMap<String, String>,
    /// The cells by workload and by server.
    cells: BTreeMap<String, BTreeMap<String, Cell>>,
}

/// The measurements of one workload with one server.
#[derive(Default, Serialize, Deserialize)]
struct Cell {
    /// The values of each repetition, one for each quantity.
    repetitions: Vec<Vec<f64>>,
    given_up: Option<String>,
    /// The largest share of the cores that other programs used during a repetition.
    others_share: f64,
}

impl Results {
    pub(crate) fn new(machine: String, is_quick: bool) -> Self {
        Results { machine, is_quick, versions: BTreeMap::new(), cells: BTreeMap::new() }
    }

    /// Reads the results of an earlier run if this run can add to them: the same machine, version and extent.
    pub(crate) fn continued(self, file: &Path) -> Result<Self> {
        let Ok(text) = std::fs::read_to_string(file) else { return Ok(self) };
        let earlier: Results =
            serde_json::from_str(&text).with_context(|| format!("cannot read {}", file.display()))?;
        let undated =
            |text: &str| text.lines().filter(|line| !line.starts_with("- Date")).collect::<String>();
        if earlier.is_quick == self.is_quick && undated(&earlier.machine) == undated(&self.machine) {
            return Ok(Results { machine: self.machine, ..earlier });
        }
        eprintln!("{} is from another machine or version; its values are dropped", file.display());
        Ok(self)
    }

    pub(crate) fn clear(&mut self, workload: Workload, column: &Column) {
        self.cells.entry(workload.name().to_owned()).or_default().remove(column.name);
    }

    pub(crate) fn add(&mut self, workload: Workload, column: &Column, measured: Measured, others_share: f64) {
        let cells = self.cells.entry(workload.name().to_owned()).or_default();
        let cell = cells.entry(column.name.to_owned()).or_default();
        cell.others_share = cell.others_share.max(others_share);
        match measured {
            Measured::Values(values) => cell.repetitions.push(values),
            Measured::GivenUp(reason) => cell.given_up = Some(reason),
        }
    }

    pub(crate) fn set_version(&mut self, column: &Column, version: String) {
        if !version.is_empty() {
            self.versions.insert(column.name.to_owned(), version);
        }
    }

    /// Returns whether the server could not run the workload in reasonable time.
    pub(crate) fn is_given_up(&self, workload: Workload, column: &Column) -> bool {
        self.cell(workload, column).is_some_and(|cell| cell.given_up.is_some())
    }

    fn cell(&self, workload: Workload, column: &Column) -> Option<&Cell> {
        self.cells.get(workload.name())?.get(column.name)
    }

    fn values(&self, workload: Workload, column: &Column, index: usize) -> Vec<f64> {
        let Some(cell) = self.cell(workload, column) else { return Vec::new() };
        cell.repetitions.iter().filter_map(|values| values.get(index).copied()).collect()
    }

    /// Returns the median of a quantity, if it was measured.
    pub(crate) fn median(&self, workload: Workload, column: &Column, index: usize) -> Option<f64> {
        let values = self.values(workload, column, index);
        (!values.is_empty()).then(|| median(&values))
    }

    /// Returns the best server among those with equal promises.
    fn best(&self, workload: Workload, index: usize, quantity: &Quantity) -> Option<&'static str> {
        if quantity.is_of_client {
            return None;
        }
        let synced = COLUMNS.iter().filter(|column| column.is_synced);
        let medians = synced.filter_map(|column| Some((column, self.median(workload, column, index)?)));
        let sign = if quantity.is_more_better { -1.0 } else { 1.0 };
        medians.min_by(|a, b| (a.1 * sign).total_cmp(&(b.1 * sign))).map(|(column, _)| column.name)
    }

    pub(crate) fn to_markdown(&self, picture: &str) -> String {
        let mut page =
            format!("# Peeklock beside RabbitMQ, Redis and NATS\n\n![The medians as bars]({picture})\n\n");
        page.push_str(&self.table());
        page.push_str(&self.lost());
        page.push_str("\n## Machine\n\n");
        page.push_str(&self.machine);
        page.push_str(SETTINGS);
        for column in &COLUMNS {
            let version = self.versions.get(column.name).map_or("not measured", String::as_str);
            let _ = writeln!(page, "- {}, version {version}: {}", column.title, column.settings);
        }
        page.push_str(CLIENTS);
        page
    }

    fn table(&self) -> String {
        let titles: Vec<&str> = COLUMNS.iter().map(|column| column.title).collect();
        let mut table =
            format!("| | {} | others |\n|{}\n", titles.join(" | "), " --- |".repeat(COLUMNS.len() + 2));
        for workload in Workload::ALL {
            for (index, quantity) in workload.quantities().iter().enumerate() {
                let best = self.best(workload, index, quantity);
                let cells = COLUMNS.iter().map(|column| self.text(workload, column, index, best));
                let cells: Vec<String> = cells.collect();
                let others = self.others_share(workload) * 100.0;
                let _ = writeln!(
                    table,
                    "| {}, {} | {} | {others:.0} % |",
                    quantity.what,
                    quantity.unit,
                    cells.join(" | ")
                );
            }
        }
        let counts = || self.cells.values().flat_map(BTreeMap::values).map(|cell| cell.repetitions.len());
        let counts = counts().filter(|&count| count > 0).min().zip(counts().max());
        let repetitions = match counts {
            Some((least, most)) if least == most => format!("{least}"),
            Some((least, most)) => format!("{least} to {most}"),
            None => "no".to_owned(),
        };
        let quick = if self.is_quick {
            " **A quick run, with 100,000 waiting messages: for a look, not for a claim.**"
        } else {
            ""
        };
        let _ = writeln!(
            table,
            "\nEach cell has the median of {repetitions} repetitions, with the least and the greatest in brackets. Every repetition starts \
             with an empty server; the servers take turns within each repetition. The best of the columns with equal promises is \
             bold. \"Others\" is the largest share of the cores that other programs used during a repetition.{quick}"
        );
        table
    }

    fn text(&self, workload: Workload, column: &Column, index: usize, best: Option<&str>) -> String {
        let values = self.values(workload, column, index);
        if let Some(reason) = self.cell(workload, column).and_then(|cell| cell.given_up.as_deref()) {
            return format!("given up: {reason}");
        }
        if values.is_empty() {
            return "not measured".to_owned();
        }
        let mark = if best == Some(column.name) { "**" } else { "" };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{mark}{}{mark} ({} … {})", number(median(&values)), number(least), number(greatest))
    }

    fn others_share(&self, workload: Workload) -> f64 {
        let cells = self.cells.get(workload.name()).into_iter().flat_map(BTreeMap::values);
        cells.map(|cell| cell.others_share).fold(0.0, f64::max)
    }

    /// Lists the rows in which another server with an equal promise is better.
    fn lost(&self) -> String {
        let (mut rows, mut compared_count) = (Vec::new(), 0);
        for workload in Workload::ALL {
            let first = workload.quantities().first().map_or("", |quantity| quantity.what);
            for (index, quantity) in workload.quantities().iter().enumerate() {
                let is_measured = self.median(workload, &COLUMNS[0], index).is_some();
                let Some(best) = self.best(workload, index, quantity).filter(|_| is_measured) else {
                    continue;
                };
                compared_count += 1;
                if best != COLUMNS[0].name {
                    let what =
                        quantity.what.strip_prefix('…').map_or_else(String::new, |rest| format!(" …{rest}"));
                    rows.push(format!("- {first}{what}: {best}\n"));
                }
            }
        }
        if rows.is_empty() {
            return format!(
                "\nPeeklock is the best of the columns with equal promises in all {compared_count} rows that compare them.\n"
            );
        }
        format!(
            "\nRows in which Peeklock is not the best of the columns with equal promises ({} of {compared_count}):\n\n{}",
            rows.len(),
            rows.concat()
        )
    }
}

const SETTINGS: &str = "\
## Settings

Servers and clients share the cores of the machine and talk over the loopback interface. Data directories are new, on the disk above. A message is
confirmed after it is on disk, except in the column that says *no sync*, whose promise is weaker: a power failure loses confirmed messages.
Settings that are not listed have the defaults of the server.

";

const CLIENTS: &str = "
## Clients and workloads

All clients are in one process with two threads and one connection for each sender and receiver: Peeklock's own client, and small clients for AMQP 0.9.1, RESP and the
NATS protocol (`bench/src/peers`), which write everything that they may write at once and handle everything that has arrived at once. The table shows
their CPU time, because it is taken from the same cores.

- A sender has at most 256 unconfirmed messages. A receiver takes up to 1,000 messages in advance from one queue, and 32 from each of many.
- A message counts when its acknowledgement is confirmed (Peeklock, Redis) or sent (RabbitMQ, NATS: these do not confirm acknowledgements).
- RabbitMQ acknowledges everything that arrived together with one frame, Redis with one `XACK` per stream, NATS message by message.
- With 1,000 queues, each sender and each receiver has 125 of them, which the sender uses in turn.
- \"One send at a time\" waits for the confirmation of each message. \"End to end\" sends at fixed times and counts from the time when a message was due to its
  arrival at the receiver, with one sender and one receiver.
- Throughput is measured for 6 s after 2 s of warm-up, latency in the open loop for 10 s after 2 s, and 2,000 single sends after 200.
- \"Restart\" stops the server with SIGTERM and counts from the start of the process to the arrival of the first message at a new receiver.
- Server CPU includes user and kernel time of the server and of the programs that it has started and that have ended.
- The raw values are in the JSON file beside this page.

To repeat: `cargo xtask bench --peers`.
";
