//! Counts of passed and failed checks, and their report.

use std::fmt;
use std::time::{Duration, Instant};

/// The numbers of checks or tests of one part that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Counts {
    pub(crate) fn of(success: bool) -> Self {
        if success { Counts { passed: 1, failed: 0 } } else { Counts { passed: 0, failed: 1 } }
    }

    pub(crate) fn is_success(self) -> bool {
        self.failed == 0
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// One part of a run with its result. A part that ran no test has failed.
pub(crate) struct Part {
    name: &'static str,
    counts: Counts,
    took: Duration,
}

impl Part {
    /// Runs the part and prints its counts. An error counts as one failure, so that later parts still run.
    pub(crate) fn of(name: &'static str, run: impl FnOnce() -> anyhow::Result<Counts>) -> Self {
        let start = Instant::now();
        let counts = match run() {
            Ok(Counts { passed: 0, failed: 0 }) => {
                eprintln!("{name}: no test ran");
                Counts::of(false)
            }
            Ok(counts) => counts,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                Counts::of(false)
            }
        };
        println!("{name}: {counts}");
        Part { name, counts, took: start.elapsed() }
    }
}

/// Prints all parts again, then the counts of passed and failed parts on the last line.
pub(crate) fn report(parts: &[Part]) -> Counts {
    let mut total = Counts::default();
    println!();
    for part in parts {
        println!("  {:<12} {}  ({} s)", part.name, part.counts, part.took.as_secs());
        total += Counts::of(part.counts.is_success());
    }
    println!("{total}");
    total
}
