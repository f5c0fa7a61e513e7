//! Describes the machine of a measurement, without which a number means nothing.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub(crate) fn describe(data: &Path) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "- Version: {}", version());
    let _ = writeln!(text, "- Date: {}", date());
    text.push_str(&describe_machine(data));
    text.push('\n');
    text
}

/// Describes what does not change between two runs.
pub(crate) fn describe_machine(data: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "- Machine: {}, {cores} cores, {} of memory, Linux {}\n- Disk: {} on {}\n",
        field("/proc/cpuinfo", "model name"),
        field("/proc/meminfo", "MemTotal"),
        kernel(),
        file_system(data),
        device(data)
    )
}

pub(crate) fn version() -> String {
    format!("{} ({})", env!("CARGO_PKG_VERSION"), said("git", &["describe", "--always", "--dirty"]))
}

pub(crate) fn date() -> String {
    said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])
}

/// CPU time of the whole machine, and of this program with the brokers that it has ended.
#[derive(Clone, Copy)]
pub(crate) struct Activity {
    all: Duration,
    ours: Duration,
    at: Instant,
}

impl Activity {
    pub(crate) fn now() -> Result<Self> {
        Ok(Activity { all: busy_time()?, ours: own_time()?, at: Instant::now() })
    }

    /// Returns the share of the machine's cores that other programs used since then. A broker that still runs counts as another program.
    pub(crate) fn others_share_since(self, before: Activity) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let others =
            (self.all.saturating_sub(before.all)).saturating_sub(self.ours.saturating_sub(before.ours));
        others.as_secs_f64() / (self.at - before.at).as_secs_f64() / cores
    }
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// All CPU time except idle time and time in wait for a disk.
fn busy_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().context("/proc/stat is empty")?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let (Some(idle), Some(waiting)) = (fields.get(3), fields.get(4)) else {
        bail!("/proc/stat has another form")
    };
    // The first eight numbers add up; the last two are contained in the first two.
    Ok(ticks(fields.iter().take(8).sum::<u64>().saturating_sub(idle + waiting)))
}

/// CPU time of this process and its ended children, in user and kernel mode.
fn own_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = text.rsplit_once(')').context("/proc/self/stat has another form")?;
    let fields = rest.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok());
    Ok(ticks(fields.sum()))
}

/// CPU time of this process without its children, in user and kernel mode.
pub(crate) fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
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
