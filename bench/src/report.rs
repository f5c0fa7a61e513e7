//! Rows of results with their spread.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// One value that was measured several times.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: Cow<'static, str>,
    pub(crate) values: Vec<f64>,
    pub(crate) target: Option<Target>,
}

/// The largest share of other programs with which a measurement is reliable.
const OTHERS_SHARE_MAX: f64 = 0.1;
const MISSED: &str = "**missed**";

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Row { what: what.into(), unit: unit.into(), values, target: None }
    }

    pub(crate) fn target(mut self, target: Target) -> Self {
        self.target = Some(target);
        self
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.values)
    }

    /// Compares the median with the target, if other programs left the machine to the measurement.
    pub(crate) fn verdict(&self, others_share: f64) -> &'static str {
        // A thread whose sync ends while all cores are busy waits for a core. The bare disk then seems slower than the broker.
        if self.target.is_some() && others_share > OTHERS_SHARE_MAX {
            return "disturbed";
        }
        let median = self.median();
        match self.target {
            None => "",
            Some(Target::AtLeast(bound)) if median >= bound => "reached",
            Some(Target::AtMost(bound)) if median <= bound => "reached",
            Some(_) => MISSED,
        }
    }

    pub(crate) fn spread(&self) -> String {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        format!("{} … {}", number(least), number(greatest))
    }

    pub(crate) fn target_text(&self) -> String {
        match self.target {
            None => String::new(),
            Some(Target::AtLeast(bound)) => format!("≥ {}", number(bound)),
            Some(Target::AtMost(bound)) => format!("≤ {}", number(bound)),
        }
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
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
        assert_eq!(row.verdict(0.0), "reached");
        assert_eq!(Row::new("x", "", vec![3.0]).target(Target::AtMost(2.5)).verdict(0.0), MISSED);
        assert_eq!(row.verdict(0.2), "disturbed");
    }
}
