//! Replays a corpus, then mutates it for a bounded time. Stops at the first input that panics, hangs or takes too much memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use fastrand::Rng;
use peeklock_fuzz::bounds::{Counting, INPUT_TIME_MAX, MEMORY_BYTES_MAX, Watchdog, peak_bytes_of};
use peeklock_fuzz::coverage::Coverage;
use peeklock_fuzz::{Target, mutate};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Feed mutated bytes to one of the fuzz targets.
#[derive(Debug, Parser)]
struct Options {
    #[arg(long, value_enum, default_value = "codec")]
    target: TargetName,
    /// How long to mutate after the replay of the corpus.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Folder of the first inputs; by default the committed corpus of the target.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Repeats a run: the same seed and corpus give the same inputs. Random by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for inputs that fail.
    #[arg(long, default_value = "target/fuzz-crashes")]
    crashes: PathBuf,
    /// Runs this input only.
    #[arg(long)]
    replay: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TargetName {
    Codec,
    Connection,
    Filter,
    Json,
    Xml,
}

impl From<TargetName> for Target {
    fn from(name: TargetName) -> Self {
        match name {
            TargetName::Codec => Self::Codec,
            TargetName::Connection => Self::Connection,
            TargetName::Filter => Self::Filter,
            TargetName::Json => Self::Json,
            TargetName::Xml => Self::Xml,
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let session = Session::start(&options, seed);
    if let Some(path) = &options.replay {
        let input = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        session.target.run(&input);
        println!("{}: no fault", path.display());
        return Ok(());
    }
    session.run(&options)
}

/// One run of the fuzzer.
struct Session {
    target: Target,
    seed: u64,
    crashes: PathBuf,
    watchdog: Watchdog,
}

impl Session {
    fn start(options: &Options, seed: u64) -> Self {
        let (target, crashes) = (Target::from(options.target), options.crashes.clone());
        let watchdog = Watchdog::start({
            let crashes = crashes.clone();
            move |input| {
                let place = write_crash(&crashes, target, input);
                eprintln!("an input runs longer than {INPUT_TIME_MAX:?} (seed {seed}): {place}");
                std::process::exit(1);
            }
        });
        Self { target, seed, crashes, watchdog }
    }

    fn run(&self, options: &Options) -> anyhow::Result<()> {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.target.name());
        let mut corpus = read_corpus(options.corpus.as_deref().unwrap_or(&committed))?;
        let mut coverage = Coverage::default();
        for input in &corpus {
            self.feed(input)?;
            coverage.is_new();
        }
        println!("{} inputs of the corpus without a fault; seed {}", corpus.len(), self.seed);
        let input_count = self.mutate(&mut corpus, &mut coverage, Duration::from_secs(options.seconds))?;
        let reached = if Coverage::is_available() {
            format!("{} counters reached, {} inputs kept", coverage.reached_count(), corpus.len())
        } else {
            "blind, without coverage".to_owned()
        };
        println!("{input_count} inputs, no fault ({reached})");
        Ok(())
    }

    fn mutate(
        &self,
        corpus: &mut Vec<Vec<u8>>,
        coverage: &mut Coverage,
        span: Duration,
    ) -> anyhow::Result<u64> {
        let mut random = Rng::with_seed(self.seed);
        let (begin, mut input_count) = (Instant::now(), 0);
        while begin.elapsed() < span {
            let input = mutate::mutate(&mut random, self.target, corpus);
            self.feed(&input)?;
            input_count += 1;
            if coverage.is_new() {
                corpus.push(input);
            }
        }
        Ok(input_count)
    }

    fn feed(&self, input: &[u8]) -> anyhow::Result<()> {
        self.watchdog.begin(input);
        Coverage::reset();
        let mut outcome = Ok(());
        let peak = peak_bytes_of(|| outcome = catch_unwind(AssertUnwindSafe(|| self.target.run(input))));
        self.watchdog.end();
        if outcome.is_err() {
            bail!("an input panics (seed {}): {}", self.seed, write_crash(&self.crashes, self.target, input));
        }
        if peak > MEMORY_BYTES_MAX {
            let place = write_crash(&self.crashes, self.target, input);
            bail!("an input of {} bytes takes {peak} bytes (seed {}): {place}", input.len(), self.seed);
        }
        Ok(())
    }
}

fn read_corpus(folder: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("open the corpus {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    // The same order each time, so that a seed repeats a run.
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).with_context(|| format!("read {}", path.display()))).collect()
}

/// Writes a failing input to a file. Returns the path, or the reason why the file could not be written: the fault itself is reported in any
/// case.
fn write_crash(folder: &Path, target: Target, input: &[u8]) -> String {
    let name = format!("{}-{:016x}.bin", target.name(), fingerprint(input));
    let path = folder.join(name);
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, input));
    match written {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("{} could not be written: {error}; the input is {input:02x?}", path.display()),
    }
}

/// Hashes with FNV-1a, so that the same input has the same name.
fn fingerprint(input: &[u8]) -> u64 {
    input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
