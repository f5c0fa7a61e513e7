//! Rows of results with their spread, and the page that shows them.

use std::fmt::Write as _;

use crate::{Arguments, machine};

/// One value that was measured several times.
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<f64>,
    pub(crate) target: Option<Target>,
    /// The share of the cores that other programs used during the measurement.
    pub(crate) others_share: f64,
}

/// The largest share of other programs with which a measurement is reliable.
const OTHERS_SHARE_MAX: f64 = 0.1;

#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Row { what: what.into(), unit, values, target: None, others_share: 0.0 }
    }

    pub(crate) fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    fn median(&self) -> f64 {
        median(&self.values)
    }

    fn verdict(&self) -> &'static str {
        // A thread whose sync ends while all cores are busy waits for a core. The bare disk then seems slower than the broker.
        if self.target.is_some() && self.others_share > OTHERS_SHARE_MAX {
            return "disturbed";
        }
        let median = self.median();
        match self.target {
            None => "",
            Some(Target::AtLeast(bound)) if median >= bound => "reached",
            Some(Target::AtMost(bound)) if median <= bound => "reached",
            Some(_) => "**missed**",
        }
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// All results of one run.
pub(crate) struct Report {
    rows: Vec<Row>,
    pub(crate) journal: String,
    quick: bool,
    repetitions: usize,
    /// The description of the machine. It is read at the start: the source may change during a run, the programs do not.
    machine: String,
}

impl Report {
    pub(crate) fn new(arguments: &Arguments) -> Self {
        Report {
            rows: Vec::new(),
            journal: String::new(),
            quick: arguments.quick,
            repetitions: arguments.repetitions,
            machine: machine::describe(&arguments.data),
        }
    }

    pub(crate) fn add(&mut self, mut rows: Vec<Row>, others_share: f64) {
        for row in &mut rows {
            row.others_share = others_share;
            eprintln!(
                "  {}: {} {} {:?} {}",
                row.what,
                number(row.median()),
                row.unit,
                row.values,
                row.verdict()
            );
        }
        self.rows.extend(rows);
    }

    pub(crate) fn to_markdown(&self) -> String {
        let mut page = String::from("# Results of one run\n\n");
        page.push_str(&self.machine);
        let _ = write!(
            page,
            "Durability is on: every confirmed send and every confirmed completion was on disk before it was confirmed. \
             Each row ran {} times, long ones without a target twice; the spread is the least and the greatest. Ratios have both sides measured inside the same \
             repetition. Clients and broker share the machine's cores; \"others\" is the share of them that other programs used meanwhile, and \
             with more than a tenth nothing is claimed.{}\n\n",
            self.repetitions,
            if self.quick { " **A quick run: for a look, not for a claim.**" } else { "" }
        );
        page.push_str(
            "| what | median | spread | target | | others |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for row in &self.rows {
            let _ = writeln!(
                page,
                "| {} | {} {} | {} | {} | {} | {:.0} % |",
                row.what,
                number(row.median()),
                row.unit,
                spread(row),
                target(row),
                row.verdict(),
                row.others_share * 100.0
            );
        }
        if !self.journal.is_empty() {
            let _ = write!(page, "\n## The journal alone\n\n```text\n{}\n```\n", self.journal.trim_end());
        }
        page.push_str("\nTo repeat: `cargo xtask bench`.\n");
        page
    }
}

fn spread(row: &Row) -> String {
    let least = row.values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = row.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} … {}", number(least), number(greatest))
}

fn target(row: &Row) -> String {
    match row.target {
        None => String::new(),
        Some(Target::AtLeast(bound)) => format!("≥ {}", number(bound)),
        Some(Target::AtMost(bound)) => format!("≤ {}", number(bound)),
    }
}

/// Formats a number with three significant digits and separated thousands.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else if value.abs() >= 1.0 {
        2
    } else {
        3
    };
    let text = format!("{value:.digits$}");
    if digits > 0 {
        return text;
    }
    let mut grouped = String::new();
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (text.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(number(1_234_567.8), "1,234,568");
        assert_eq!(number(123.4), "123");
        assert_eq!(number(12.34), "12.3");
        assert_eq!(number(0.1234), "0.123");
        assert_eq!(number(f64::NAN), "?");
    }

    #[test]
    fn the_median_decides_the_verdict() {
        let row = Row::new("x", "", vec![0.2, 0.5, 0.4]).target(Target::AtLeast(0.3));
        assert_eq!(row.median(), 0.4);
        assert_eq!(row.verdict(), "reached");
        assert_eq!(Row::new("x", "", vec![3.0]).target(Target::AtMost(2.5)).verdict(), "**missed**");
    }
}
