//! The Python tests, with pytest in a virtual environment with pinned packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::counts::Counts;
use crate::test::number_before;
use crate::{debian, process, stamp, workspace};

/// The tests of a quick run: a few of each subject, with the synchronous client only.
const SMOKE: [&str; 5] =
    ["test_send.py", "test_settle.py", "test_sessions.py", "test_eventhub_send.py", "-k=not asyncio"];

pub(crate) fn python(broker: &Path, only: Option<&str>) -> Result<Counts> {
    debian::install(&[debian::CHROMIUM])?;
    // The tests mostly wait for timers and sockets, so more of them than cores run at once.
    pytest(broker, &["--numprocesses", "16"], only)
}

pub(crate) fn python_smoke(broker: &Path) -> Result<Counts> {
    let arguments: Vec<_> = ["--numprocesses", "8"].into_iter().chain(SMOKE).collect();
    pytest(broker, &arguments, None)
}

pub(crate) fn proton(broker: &Path, only: Option<&str>) -> Result<Counts> {
    pytest(broker, &["test_proton.py"], only)
}

fn pytest(broker: &Path, arguments: &[&str], only: Option<&str>) -> Result<Counts> {
    pytest_in("interop/python", "interop-venv", broker, arguments, only)
}

/// Runs the tests of one folder in an environment of its own below the target folder.
pub(crate) fn pytest_in(
    folder: &str,
    environment_name: &str,
    broker: &Path,
    arguments: &[&str],
    only: Option<&str>,
) -> Result<Counts> {
    let folder = workspace::root()?.join(folder);
    let environment = environment(&folder.join("requirements.txt"), environment_name)?;
    let mut command = Command::new(environment.join("bin/python"));
    command.current_dir(folder).env(workspace::BROKER_VARIABLE, broker);
    command.args(["-m", "pytest", "--color=no", "-p", "no:cacheprovider"]).args(arguments);
    command.args(only.map(|name| ["-k", name]).into_iter().flatten());
    process::counted(&mut command, pytest_counts)
}

/// Returns the environment with the committed requirements. Changed requirements lead to a new environment.
pub(crate) fn environment(requirements: &Path, name: &str) -> Result<PathBuf> {
    let folder = workspace::target()?.join(name);
    if stamp::is_current(&folder, requirements)? {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    process::must_succeed(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--requirement"]).arg(requirements);
    process::must_succeed(&mut install)?;
    process::must_succeed(Command::new(folder.join("bin/python")).args(["-m", "pip", "check"]))?;
    stamp::write(&folder, requirements)?;
    Ok(folder)
}

/// Reads `== 2 failed, 40 passed, 1 skipped, 1 error in 61.2s ==`; a skipped test counts as failed.
fn pytest_counts(lines: &[String]) -> Counts {
    let is_summary = |line: &&String| line.starts_with("==") && line.contains(" in ") && line.ends_with("==");
    let Some(line) = lines.iter().rev().find(is_summary) else { return Counts::default() };
    let bad = ["failed", "error", "skipped", "xfailed", "xpassed"]
        .iter()
        .map(|word| number_before(line, word))
        .sum();
    Counts { passed: number_before(line, "passed"), failed: bad }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_summary_of_pytest() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let mixed = "=== short test summary info ===\n=== 2 failed, 40 passed, 1 skipped, 3 errors in 61.20s (0:01:01) ===";
        assert_eq!(pytest_counts(&lines(mixed)), Counts { passed: 40, failed: 6 });
        assert_eq!(
            pytest_counts(&lines("======= 5 passed in 0.20s =======")),
            Counts { passed: 5, failed: 0 }
        );
        assert_eq!(pytest_counts(&lines("Traceback")), Counts::default());
    }
}
