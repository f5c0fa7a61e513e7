//! Measures the journal relative to the speed of the same disk for a bare `pwrite` + `fdatasync` of the same payload
//! bytes.
//!
//! The speed of disks changes from minute to minute, so both sides run in short alternating slices, and the ratio of
//! each pair of slices counts. The bare side writes only payload, block by block, cyclically in a file that was written
//! before.
//!
//! `cargo run --release -p peeklock-journal-wal --example journal_bench [directory]`; `SLICE_MS` and `SLICES` change
//! the length.

#![allow(clippy::unwrap_used, reason = "a benchmark that meets the unexpected stops")]

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peeklock_journal::{AppendError, Journal, Log};
use peeklock_journal_wal::{WalConfig, WalJournal, WalLog};
use peeklock_types::{CommitGroupNumber, ShardId};

const RECORD_BYTES: usize = 1024;
const REPETITIONS: usize = 3;
const RAW_FILE_BYTES: u64 = 64 << 20;
/// The group sizes, and the least share of the bare disk's rate that each should reach.
const ROWS: [(usize, f64); 7] =
    [(1, 0.90), (4, 0.90), (16, 0.90), (64, 0.90), (256, 0.85), (1024, 0.70), (4096, 0.70)];
/// The least share for single records that the journal joins, relative to the bare disk with 256 records per write.
const MERGED_TARGET: f64 = 0.30;
/// The largest latency of a durable append, relative to a bare one.
const LATENCY_TARGET: f64 = 1.3;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

fn main() {
    let base = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = base.join(format!("journal-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(&directory));
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The duration of the measurement.
#[derive(Clone, Copy)]
struct Pace {
    slice: Duration,
    slices: usize,
}

async fn run(directory: &Path) {
    let slices = usize::try_from(setting("SLICES", 12)).unwrap();
    let pace = Pace { slice: Duration::from_millis(setting("SLICE_MS", 120)), slices };
    let mut raw = Raw::new(&directory.join("raw"));
    // A commit has one group, as on the bare side. The joining of groups has its own row.
    let single = WalConfig { commit_bytes_max: 1, ..WalConfig::default() };
    let journal = WalJournal::open(directory.join("single"), single).unwrap();
    let merging = WalJournal::open(directory.join("merging"), WalConfig::default()).unwrap();
    let (mut log, mut merging_log) = (Bench::new(&journal).await, Bench::new(&merging).await);
    let mut lines = Vec::new();
    println!("durable 1 KiB records, {slices} pairs of {:?} slices, {REPETITIONS} repetitions", pace.slice);
    println!("ratio: median of the repetitions, [least most]\n");
    println!(
        "{:>14} {:>11} {:>11} {:>7} {:>15} {:>7}",
        "group", "raw rec/s", "wal rec/s", "ratio", "", "target"
    );
    for warm in [&mut log, &mut merging_log] {
        let payload = Bytes::from(vec![0; 256 * RECORD_BYTES]);
        raw.rate(&payload, pace.slice);
        warm.rate(&payload, 2, pace.slice * 4).await;
    }
    for (group, target) in ROWS {
        let row = Row { name: format!("{group}"), raw_records: group, records: group, window: 2, target };
        row.measure(&mut log, &mut raw, pace, &mut lines).await;
    }
    let row = Row {
        name: "1_merged_256".to_owned(),
        raw_records: 256,
        records: 1,
        window: 256,
        target: MERGED_TARGET,
    };
    row.measure(&mut merging_log, &mut raw, pace, &mut lines).await;
    latency(&mut log, &mut raw, pace, &mut lines).await;
    println!();
    lines.iter().for_each(|line| println!("{line}"));
}

/// A row of the table.
struct Row {
    name: String,
    /// Records in one bare write, records in one group, and groups in flight.
    raw_records: usize,
    records: usize,
    window: usize,
    target: f64,
}

impl Row {
    async fn measure(&self, log: &mut Bench, raw: &mut Raw, pace: Pace, lines: &mut Vec<String>) {
        let raw_payload = Bytes::from(vec![0xa5; self.raw_records * RECORD_BYTES]);
        let payload = raw_payload.slice(..self.records * RECORD_BYTES);
        let (mut ratios, mut raw_rates, mut wal_rates) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..REPETITIONS {
            let mut pairs = Vec::new();
            for _ in 0..pace.slices {
                let raw_rate = raw.rate(&raw_payload, pace.slice) * self.raw_records as f64;
                let wal_rate = log.rate(&payload, self.window, pace.slice).await * self.records as f64;
                pairs.push(wal_rate / raw_rate);
                raw_rates.push(raw_rate);
                wal_rates.push(wal_rate);
            }
            ratios.push(median(&mut pairs));
        }
        let (low, high) = spread(&ratios);
        let (ratio, raw_rate, wal_rate) =
            (median(&mut ratios), median(&mut raw_rates), median(&mut wal_rates));
        let (name, target) = (&self.name, self.target);
        let verdict = if ratio >= target { "" } else { "   below" };
        println!(
            "{name:>14} {raw_rate:>11.0} {wal_rate:>11.0} {ratio:>7.3} [{low:>6.3} {high:>6.3}] {target:>7.2}{verdict}"
        );
        lines.push(format!("wal_ratio_group_{name} {ratio:.3}"));
        lines.push(format!("wal_records_per_s_group_{name} {wal_rate:.0}"));
    }
}

/// Measures one append at a time, from the call until the task runs again with the new watermark.
async fn latency(log: &mut Bench, raw: &mut Raw, pace: Pace, lines: &mut Vec<String>) {
    let payload = Bytes::from(vec![0x5a; RECORD_BYTES]);
    let mut ratios = Vec::new();
    let (mut raw_p50s, mut wal_p50s, mut wal_p99s) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let mut pairs = Vec::new();
        for _ in 0..pace.slices {
            let mut bare = raw.times(&payload, pace.slice);
            let mut durable = log.times(&payload, pace.slice).await;
            let (bare, p50) = (median(&mut bare), median(&mut durable));
            pairs.push(p50 / bare);
            raw_p50s.push(bare);
            wal_p50s.push(p50);
            wal_p99s.push(durable[durable.len() * 99 / 100]);
        }
        ratios.push(median(&mut pairs));
    }
    let (low, high) = spread(&ratios);
    let ratio = median(&mut ratios);
    let (raw_p50, wal_p50, wal_p99) = (median(&mut raw_p50s), median(&mut wal_p50s), median(&mut wal_p99s));
    println!(
        "\none durable append: raw p50 {raw_p50:.0} us, journal p50 {wal_p50:.0} us, p99 {wal_p99:.0} us, \
         {ratio:.3} times raw [{low:.3} {high:.3}], target at most {LATENCY_TARGET}{}",
        if ratio <= LATENCY_TARGET { "" } else { "   above" },
    );
    lines.push(format!("wal_append_p50_us {wal_p50:.1}"));
    lines.push(format!("wal_append_p50_over_raw {ratio:.3}"));
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn spread(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)))
}

/// The bare disk: a file that was written before, so that writing changes no metadata.
struct Raw {
    file: File,
    at: u64,
}

impl Raw {
    fn new(path: &Path) -> Self {
        let mut file =
            OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap();
        let zeros = vec![0; 1 << 20];
        for _ in 0..RAW_FILE_BYTES >> 20 {
            file.write_all(&zeros).unwrap();
        }
        file.sync_all().unwrap();
        Raw { file, at: 0 }
    }

    fn write(&mut self, payload: &[u8]) {
        let size = (payload.len() as u64).next_multiple_of(4096);
        if self.at + size > RAW_FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(payload, self.at).unwrap();
        self.file.sync_data().unwrap();
        self.at += size;
    }

    /// Returns writes per second.
    fn rate(&mut self, payload: &[u8], time: Duration) -> f64 {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < time {
            self.write(payload);
            count += 1;
        }
        f64::from(count) / start.elapsed().as_secs_f64()
    }

    fn times(&mut self, payload: &[u8], time: Duration) -> Vec<f64> {
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < time {
            let before = Instant::now();
            self.write(payload);
            times.push(before.elapsed().as_secs_f64() * 1e6);
        }
        times
    }
}

/// The owner of one shard that trims regularly, so that segments are reused.
struct Bench {
    log: WalLog,
    trimmed_at_bytes: u64,
    bytes: u64,
}

impl Bench {
    async fn new(journal: &WalJournal) -> Self {
        let (log, _) = journal.open(ShardId(0)).await.unwrap();
        Bench { log, trimmed_at_bytes: 0, bytes: 0 }
    }

    fn append(&mut self, payload: &Bytes) -> Option<CommitGroupNumber> {
        match self.log.append(payload.clone().into()) {
            Ok(number) => {
                self.bytes += payload.len() as u64;
                Some(number)
            }
            Err(AppendError::Busy) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn trim(&mut self) {
        const TRIM_AFTER_BYTES: u64 = 64 << 20;
        if self.bytes - self.trimmed_at_bytes > TRIM_AFTER_BYTES {
            self.trimmed_at_bytes = self.bytes;
            let upto = self.log.watermark();
            self.log.put_snapshot(upto, Bytes::from_static(b"nothing lives").into()).await.unwrap();
            self.log.trim(upto);
        }
    }

    /// Returns groups per second. At least two are in flight: while one is synced, the next one waits.
    async fn rate(&mut self, payload: &Bytes, window: usize, time: Duration) -> f64 {
        let start = Instant::now();
        let mut waiting: VecDeque<CommitGroupNumber> = VecDeque::new();
        let mut count = 0;
        let mut seen = self.log.watermark();
        while start.elapsed() < time {
            while waiting.len() < window {
                let Some(number) = self.append(payload) else { break };
                waiting.push_back(number);
            }
            seen = self.log.durable(seen).await.unwrap();
            while waiting.front().is_some_and(|number| *number <= seen) {
                waiting.pop_front();
                count += 1;
            }
            self.trim().await;
        }
        let rate = f64::from(count) / start.elapsed().as_secs_f64();
        if let Some(last) = waiting.back() {
            while seen < *last {
                seen = self.log.durable(seen).await.unwrap();
            }
        }
        rate
    }

    async fn times(&mut self, payload: &Bytes, time: Duration) -> Vec<f64> {
        let start = Instant::now();
        let mut times = Vec::new();
        while start.elapsed() < time {
            let before = Instant::now();
            let Some(number) = self.append(payload) else { continue };
            let mut seen = self.log.watermark();
            while seen < number {
                seen = self.log.durable(seen).await.unwrap();
            }
            times.push(before.elapsed().as_secs_f64() * 1e6);
            self.trim().await;
        }
        times
    }
}
