//! `peeklock-sim`: runs seeds and prints those that break a promise.
//!
//! ```text
//! peeklock-sim --seed 7 [--log]      one seed; with its log
//! peeklock-sim --seeds 100 [--from 1] [--known sim/seeds.txt] [--seconds 60]
//! peeklock-sim --seeds 100 --flaw stalls     programs with the SDK make a mistake, which the oracle must find
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use peeklock_sim::{Flaw, Report, Scenario};

/// The options of the command line.
#[derive(Default)]
struct Options {
    seed: Option<u64>,
    seed_count: u64,
    from: u64,
    known: Option<String>,
    seconds_max: Option<u64>,
    prints_log: bool,
    flaw: Option<Flaw>,
}

fn main() -> Result<()> {
    if std::env::var_os("RUST_LOG").is_some() {
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .init();
    }
    let options = parse(std::env::args().skip(1))?;
    if let Some(flaw) = options.flaw {
        return hunt(&options, flaw);
    }
    if let Some(seed) = options.seed {
        return one(seed, options.prints_log);
    }
    many(&options)
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options { from: 1, ..Options::default() };
    while let Some(flag) = arguments.next() {
        let mut number = || -> Result<u64> {
            let value = arguments.next().with_context(|| format!("{flag} needs a number"))?;
            value.parse().with_context(|| format!("'{value}' is not a number"))
        };
        match flag.as_str() {
            "--seed" => options.seed = Some(number()?),
            "--seeds" => options.seed_count = number()?,
            "--from" => options.from = number()?,
            "--seconds" => options.seconds_max = Some(number()?),
            "--known" => options.known = Some(arguments.next().context("--known needs a file")?),
            "--log" => options.prints_log = true,
            "--flaw" => options.flaw = Some(flaw_named(&arguments.next().unwrap_or_default())?),
            other => {
                bail!(
                    "'{other}': use --seed N [--log], or --seeds M [--from N] [--known FILE] [--seconds S] [--flaw NAME]"
                )
            }
        }
    }
    Ok(options)
}

fn flaw_named(name: &str) -> Result<Flaw> {
    let found = Flaw::ALL.into_iter().find(|(known, _)| *known == name);
    let known = Flaw::ALL.map(|(known, _)| known).join(", ");
    found.map(|(_, flaw)| flaw).with_context(|| format!("'{name}' is no flaw: use one of {known}"))
}

/// Runs seeds whose programs make a mistake until the oracle finds it.
fn hunt(options: &Options, flaw: Flaw) -> Result<()> {
    let seeds = options.from..options.from.saturating_add(options.seed_count);
    for seed in options.seed.map_or(seeds, |seed| seed..seed + 1) {
        let Some(report) = peeklock_sim::run_with_flaw(seed, flaw) else { continue };
        if options.prints_log {
            print!("{}", report.log_text());
        }
        if !print_violations(&report) {
            println!("found at seed {seed}");
            return Ok(());
        }
    }
    bail!("no checker has found {flaw:?}")
}

fn one(seed: u64, prints_log: bool) -> Result<()> {
    let report = peeklock_sim::run(seed);
    if prints_log {
        println!("{:#?}", Scenario::draw(seed));
        print!("{}", report.log_text());
    }
    println!("{}", describe(&report));
    println!("judged by order: {}", peeklock_sim::oracle::judged(&Scenario::draw(seed), &report.entries));
    if let Some(summary) = peeklock_sim::oracle::hub_summary(&Scenario::draw(seed), &report.entries) {
        println!("hub: {summary}");
    }
    if let Some(summary) = peeklock_sim::oracle::program_summary(&Scenario::draw(seed), &report.entries) {
        println!("programs: {summary}");
    }
    if !print_violations(&report) {
        bail!("seed {seed} breaks a promise");
    }
    Ok(())
}

fn many(options: &Options) -> Result<()> {
    let started = Instant::now();
    let known = options.known.as_deref().map(read_known).transpose()?.unwrap_or_default();
    let fresh = options.from..options.from.saturating_add(options.seed_count);
    // The time limit applies to fresh seeds; known seeds always run.
    let has_time = || options.seconds_max.is_none_or(|max| started.elapsed().as_secs() < max);
    let (mut run_count, mut lasted, mut failed) = (0_u64, Duration::ZERO, Vec::new());
    for seed in known.into_iter().chain(fresh.take_while(|_| has_time())) {
        let report = peeklock_sim::run(seed);
        run_count += 1;
        lasted += report.lasted;
        if !print_violations(&report) {
            failed.push(seed);
        }
    }
    let (hours, seconds) = (lasted.as_secs_f64() / 3600.0, started.elapsed().as_secs_f64());
    println!("{run_count} seeds, {hours:.1} simulated hours in {seconds:.1} s, {} failed", failed.len());
    if !failed.is_empty() {
        bail!("these seeds break a promise: {failed:?}");
    }
    Ok(())
}

/// Reads one seed per line; a `#` starts a comment.
fn read_known(path: &str) -> Result<Vec<u64>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let seeds = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    seeds
        .filter(|seed| !seed.is_empty())
        .map(|seed| seed.parse().with_context(|| format!("'{seed}' in {path} is no seed")))
        .collect()
}

fn describe(report: &Report) -> String {
    let summary = peeklock_sim::oracle::summary(&report.entries);
    format!("seed {}: {:.0} s simulated; {summary}", report.seed, report.lasted.as_secs_f64())
}

/// Prints the violations. Returns true if there are none.
fn print_violations(report: &Report) -> bool {
    for violation in &report.violations {
        println!("seed {}: {violation}", report.seed);
    }
    if !report.violations.is_empty() {
        println!("run it again with: cargo xtask sim --seed {}\n", report.seed);
    }
    report.violations.is_empty()
}
