//! Measures the whole broker as a ratio to the bare machine in the same run.
//!
//! `cargo run --release -p peeklock-bench` runs everything five times and writes `bench/RESULTS.md`. The broker runs as a process of its
//! own: the binary that `PEEKLOCK_BIN` names, or the one beside this program.

mod backlog;
mod broker;
mod cold;
mod disk;
mod empty;
mod end_to_end;
mod features;
mod growth;
mod hubs;
mod journal;
mod latency;
mod load;
mod machine;
mod namespace;
mod order;
mod peers;
mod process;
mod protocol;
mod protocol_fe2o3;
mod report;
mod sdk;
mod sdks;
mod spread;
mod svg;
mod topics;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use machine::Activity;
use report::{Report, Row};

/// Measure the broker against the bare machine.
#[derive(Parser)]
pub(crate) struct Arguments {
    /// A short run for a first impression; its numbers are not for publication
    #[arg(long)]
    quick: bool,
    /// Compare with RabbitMQ, Redis and NATS, and write bench/PEERS.md instead of the results
    #[arg(long)]
    peers: bool,
    /// Only this server of the comparison, with --peers: peeklock, rabbitmq, redis, nats or nats-no-sync; can be repeated
    #[arg(long, value_name = "SERVER", requires = "peers")]
    peer: Vec<String>,
    /// Add repetitions to those of an earlier run with the same version on the same machine, with --peers
    #[arg(long, requires = "peers")]
    add: bool,
    /// Only this part: empty, protocol, load, cpu, queues, latency, end-to-end, backlog, cold, features, order, topics, hubs, namespace,
    /// sdk (the Rust SDK), sdks (of other languages) or journal; or a part that a whole run leaves out: growth, or one piece of it (growth-backlog, growth-queues,
    /// growth-connections, growth-body-size, growth-subscriptions). With --peers: 1k, 256, queues, send, end-to-end or
    /// waiting
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// The folder for the data of the broker and the bare files; must be on the disk to measure
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    data: PathBuf,
    /// The file for the results; a run of some parts writes none. With --peers, the default is bench/PEERS.md, and a run of some parts
    /// replaces their values in it
    #[arg(long, value_name = "FILE", default_value = "bench/RESULTS.md")]
    #[arg(default_value_if("peers", "true", "bench/PEERS.md"))]
    results: PathBuf,
    /// The number of repetitions of each part
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "2"))]
    repetitions: usize,
}

type Part = (&'static str, fn(&Arguments) -> Result<Vec<Row>>);

const PARTS: [Part; 16] = [
    ("empty", empty::run),
    ("protocol", protocol::run),
    ("load", load::run),
    ("cpu", load::run_cpu),
    ("queues", spread::run),
    ("latency", latency::run),
    ("end-to-end", end_to_end::run),
    ("backlog", backlog::run),
    ("cold", cold::run),
    ("features", features::run),
    ("order", order::run),
    ("topics", topics::run),
    ("hubs", hubs::run),
    ("namespace", namespace::run),
    ("sdk", sdk::run),
    ("sdks", sdks::run),
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.data)
        .with_context(|| format!("cannot create {}", arguments.data.display()))?;
    raise_file_limit()?;
    if let Some(only) = arguments.only.as_deref().filter(|only| growth::is_wanted(only)) {
        return growth::run(&arguments, only);
    }
    if arguments.peers {
        return peers::run(&arguments);
    }
    let wants = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);
    let mut report = Report::new(&arguments);
    for (name, run) in PARTS.into_iter().filter(|(name, _)| wants(name)) {
        eprintln!("measuring {name} …");
        let before = Activity::now()?;
        let rows = run(&arguments).with_context(|| format!("cannot measure {name}"))?;
        report.add(rows, Activity::now()?.others_share_since(before));
    }
    if wants("journal") {
        eprintln!("measuring journal …");
        report.journal = journal::run(&arguments)?;
    }
    print!("{}", report.to_markdown());
    if arguments.only.is_none() {
        std::fs::write(&arguments.results, report.to_markdown())
            .with_context(|| format!("cannot write {}", arguments.results.display()))?;
    }
    Ok(())
}

/// Allows as many open files as the system permits, for many connections. The broker inherits the limit.
fn raise_file_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("cannot raise the file limit")
}
