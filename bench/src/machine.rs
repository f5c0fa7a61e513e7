//! What was measured on: without it a number means nothing.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

pub(crate) fn describe(data: &Path) -> String {
    let mut text = String::new();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(
        text,
        "- Version: {} ({})",
        env!("CARGO_PKG_VERSION"),
        said("git", &["describe", "--always", "--dirty"])
    );
    let _ = writeln!(text, "- Date: {}", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
    let _ = writeln!(
        text,
        "- Machine: {}, {cores} cores, {} of memory, Linux {}",
        field("/proc/cpuinfo", "model name"),
        field("/proc/meminfo", "MemTotal"),
        kernel()
    );
    let _ = writeln!(text, "- Disk: {} on {}", file_system(data), device(data));
    let _ = writeln!(text, "- Busy with other things (load average when the run ended): {}", load_average());
    text.push('\n');
    text
}

/// On a quiet machine this is the run itself, about the number of cores; more means that others took part of the time.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(", ")
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
}

fn said(program: &str, arguments: &[&str]) -> String {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".to_owned(),
    }
}

fn field(file: &str, name: &str) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
}

fn file_system(data: &Path) -> String {
    said("stat", &["-f", "-c", "%T", &data.display().to_string()])
}

fn device(data: &Path) -> String {
    said("df", &["--output=source", &data.display().to_string()]).lines().last().unwrap_or("?").to_owned()
}
