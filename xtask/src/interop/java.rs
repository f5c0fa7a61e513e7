//! The Java tests, in a Maven project whose pom.xml pins every package and plugin.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::counts::Counts;
use crate::{process, workspace};

pub(crate) fn java(broker: &Path, only: Option<&str>) -> Result<Counts> {
    maven("interop/java", broker, only)
}

/// Runs the tests of one Maven project. Maven installs packages in its own cache.
pub(crate) fn maven(folder: &str, broker: &Path, only: Option<&str>) -> Result<Counts> {
    let mut command = Command::new("mvn");
    command.current_dir(workspace::root()?.join(folder)).env(workspace::BROKER_VARIABLE, broker);
    // With a name that no test has, the counts show that no test ran.
    command.args(["--batch-mode", "--no-transfer-progress", "-Dsurefire.failIfNoSpecifiedTests=false"]);
    command.args(only.map(chosen));
    process::counted(command.arg("test"), surefire_counts)
}

/// Selects the classes and methods whose names contain a name; `Class#method` selects exactly that method.
fn chosen(name: &str) -> String {
    if name.contains('#') { format!("-Dtest={name}") } else { format!("-Dtest=*{name}*,*#*{name}*") }
}

/// Reads the closing `[INFO] Tests run: 9, Failures: 1, Errors: 0, Skipped: 1`; a skipped test counts as failed.
/// The line of a single class also has its time and its name.
fn surefire_counts(lines: &[String]) -> Counts {
    let is_summary = |line: &&String| line.contains("Tests run: ") && !line.contains("Time elapsed");
    let Some(line) = lines.iter().rev().find(is_summary) else { return Counts::default() };
    let numbers = number_of(line, "Failures: ") + number_of(line, "Errors: ") + number_of(line, "Skipped: ");
    Counts { passed: number_of(line, "Tests run: ").saturating_sub(numbers), failed: numbers }
}

/// Returns the number after a label: `9` in `Tests run: 9, …`; zero if there is none.
fn number_of(line: &str, label: &str) -> u64 {
    let Some((_, behind)) = line.split_once(label) else { return 0 };
    behind.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_summary_of_surefire() {
        let text = "[INFO] Tests run: 4, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1.2 s -- in a.B\n[INFO] Results:\n\
                    [ERROR] Tests run: 9, Failures: 1, Errors: 2, Skipped: 1\n[INFO] BUILD FAILURE";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(surefire_counts(&lines), Counts { passed: 5, failed: 4 });
        assert_eq!(surefire_counts(&["[ERROR] COMPILATION ERROR".to_owned()]), Counts::default());
    }

    #[test]
    fn a_name_chooses_classes_and_methods() {
        assert_eq!(chosen("Peek"), "-Dtest=*Peek*,*#*Peek*");
        assert_eq!(chosen("PeekTest#one"), "-Dtest=PeekTest#one");
    }
}
