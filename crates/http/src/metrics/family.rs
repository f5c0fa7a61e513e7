//! The text format of Prometheus, version 0.0.4. It is written without a library: the numbers are in the shards and are
//! read on request, so a registry with its own numbers would have to be updated for every created and deleted entity.

use std::fmt::{self, Display, Write};

use peeklock_broker::engine::{HISTOGRAM_BOUNDS_MS, Histogram};

/// All samples of one name. The format requires them together, after one help line and one type line.
pub(super) struct Family {
    name: String,
    help: &'static str,
    kind: Kind,
    samples: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The labels of a sample, as written between the braces.
#[derive(Clone, Default)]
pub(super) struct Labels(String);

impl Labels {
    pub(super) fn with(&self, name: &str, value: &str) -> Self {
        let mut text = self.0.clone();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for char in value.chars() {
            match char {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                char => text.push(char),
            }
        }
        text.push('"');
        Labels(text)
    }
}

impl Family {
    pub(super) fn new(name: impl Into<String>, kind: Kind, help: &'static str) -> Self {
        Family { name: name.into(), help, kind, samples: String::new() }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn add(&mut self, labels: &Labels, value: impl Display) {
        self.line("", labels, &value);
    }

    /// Adds a histogram of the recent period. Each bucket includes the counts of the buckets before it.
    pub(super) fn add_histogram(&mut self, labels: &Labels, histogram: &Histogram) {
        let bounds = HISTOGRAM_BOUNDS_MS.iter().map(|bound_ms| seconds(*bound_ms).to_string());
        let mut count = 0;
        for (here, bound) in histogram.counts.iter().zip(bounds.chain(["+Inf".to_owned()])) {
            count += here;
            self.line("_bucket", &labels.with("le", &bound), &count);
        }
        self.line("_sum", labels, &seconds(histogram.sum_ms));
        self.line("_count", labels, &count);
    }

    fn line(&mut self, suffix: &str, Labels(labels): &Labels, value: &impl Display) {
        let name = &self.name;
        let written = if labels.is_empty() {
            writeln!(self.samples, "{name}{suffix} {value}")
        } else {
            writeln!(self.samples, "{name}{suffix}{{{labels}}} {value}")
        };
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
}

impl Display for Family {
    /// Writes nothing if there are no samples.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Family { name, help, kind, samples } = self;
        if samples.is_empty() {
            return Ok(());
        }
        write!(f, "# HELP {name} {help}\n# TYPE {name} {}\n{samples}", kind.name())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "times of more than a hundred thousand years are not measured"
)]
pub(super) fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut family = Family::new("a_b", Kind::Gauge, "Things");
        family.add(&Labels::default().with("q", "a\\b\"c\nd{}é").with("n", ""), 7);
        family.add(&Labels::default(), 0.25);
        let expected =
            "# HELP a_b Things\n# TYPE a_b gauge\na_b{q=\"a\\\\b\\\"c\\nd{}é\",n=\"\"} 7\na_b 0.25\n";
        assert_eq!(family.to_string(), expected);
    }

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative() {
        let mut histogram = Histogram::default();
        histogram.counts[0] = 2;
        histogram.counts[2] = 3;
        histogram.counts[HISTOGRAM_BOUNDS_MS.len()] = 1;
        histogram.sum_ms = 1_234;
        let mut family = Family::new("t", Kind::Histogram, "Times");
        family.add_histogram(&Labels::default().with("q", "x"), &histogram);
        let text = family.to_string();
        for line in [
            "t_bucket{q=\"x\",le=\"0.001\"} 2",
            "t_bucket{q=\"x\",le=\"0.002\"} 2",
            "t_bucket{q=\"x\",le=\"0.005\"} 5",
            "t_bucket{q=\"x\",le=\"604800\"} 5",
            "t_bucket{q=\"x\",le=\"+Inf\"} 6",
            "t_sum{q=\"x\"} 1.234",
            "t_count{q=\"x\"} 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_family_without_samples_is_omitted() {
        assert_eq!(Family::new("a", Kind::Counter, "Things").to_string(), "");
    }
}
