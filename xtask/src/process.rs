//! Runs programs. Each command is printed before it starts, and its output is passed on while it is searched for counts.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::counts::Counts;

/// The lines that a program printed, and whether it succeeded.
pub(crate) struct Output {
    pub(crate) lines: Vec<String>,
    pub(crate) success: bool,
}

/// Runs a program with the stdout and stderr of this process.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    announce(command);
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    Ok(status.success())
}

/// Runs a program like `succeeds`, but returns an error if it fails. For steps that all later steps need.
pub(crate) fn must_succeed(command: &mut Command) -> Result<()> {
    if !succeeds(command)? {
        bail!("{} failed", name(command));
    }
    Ok(())
}

/// Runs a program, passes on its output, and returns the output as well.
pub(crate) fn watch(command: &mut Command) -> Result<Output> {
    announce(command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", name(command)))?;
    let stdout = child.stdout.take().context("the child has no stdout")?;
    let stderr = child.stderr.take().context("the child has no stderr")?;
    let errors = thread::spawn(move || pass_on(stderr));
    let mut lines = pass_on(stdout);
    lines.extend(errors.join().unwrap_or_default());
    let status = child.wait().with_context(|| format!("cannot wait for {}", name(command)))?;
    Ok(Output { lines, success: status.success() })
}

/// Runs a program and counts its tests with `count`. The counts and the exit status must agree.
pub(crate) fn counted(command: &mut Command, count: impl Fn(&[String]) -> Counts) -> Result<Counts> {
    let output = watch(command)?;
    let mut counts = count(&output.lines);
    if !output.success && counts.failed == 0 {
        eprintln!("{} ended with an error that no test accounts for", name(command));
        counts.failed = 1;
    }
    Ok(counts)
}

fn pass_on(stream: impl Read) -> Vec<String> {
    let mut lines = Vec::new();
    let mut reader = BufReader::new(stream);
    let mut bytes = Vec::new();
    // Bytes, not `lines()`: output that is not UTF-8 must not end the loop.
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        println!("{line}");
        lines.push(line);
        bytes.clear();
    }
    lines
}

fn announce(command: &Command) {
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    eprintln!("$ {} {}", name(command), arguments.join(" "));
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
