//! Measures the whole broker as a ratio to the bare machine in the same run.
//!
//! `cargo run --release -p peeklock-bench` runs everything five times and writes `bench/RESULTS.md`; a run of some parts replaces their values in it. The broker runs as a process of its
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
mod results;
mod sdk;
mod sdks;
mod spread;
mod svg;
mod topics;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;

use machine::Activity;
use report::Row;
use results::{Part, Results};

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
    /// waiting. Several are separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// The folder for the data of the broker and the bare files; must be on the disk to measure
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    data: PathBuf,
    /// The file for the results, beside which the raw values are written as JSON. A run of some parts replaces their values, and a quick run
    /// writes nothing. With --peers, the default is bench/PEERS.md
    #[arg(long, value_name = "FILE", default_value = "bench/RESULTS.md")]
    #[arg(default_value_if("peers", "true", "bench/PEERS.md"))]
    results: PathBuf,
    /// The number of repetitions of each part
    #[arg(long, default_value_t = 5, default_value_if("quick", "true", "2"))]
    repetitions: usize,
}

/// Measures a part. The journal's benchmark makes a table of its own, the others return rows.
type Measure = fn(&Arguments) -> Result<(Vec<Row>, String)>;

/// The parts in the order of the page.
const PARTS: [(&str, Measure); 17] = [
    ("empty", |arguments| in_rows(empty::run(arguments))),
    ("protocol", |arguments| in_rows(protocol::run(arguments))),
    ("load", |arguments| in_rows(load::run(arguments))),
    ("cpu", |arguments| in_rows(load::run_cpu(arguments))),
    ("queues", |arguments| in_rows(spread::run(arguments))),
    ("latency", |arguments| in_rows(latency::run(arguments))),
    ("end-to-end", |arguments| in_rows(end_to_end::run(arguments))),
    ("backlog", |arguments| in_rows(backlog::run(arguments))),
    ("cold", |arguments| in_rows(cold::run(arguments))),
    ("features", |arguments| in_rows(features::run(arguments))),
    ("order", |arguments| in_rows(order::run(arguments))),
    ("topics", |arguments| in_rows(topics::run(arguments))),
    ("hubs", |arguments| in_rows(hubs::run(arguments))),
    ("namespace", |arguments| in_rows(namespace::run(arguments))),
    ("sdk", |arguments| in_rows(sdk::run(arguments))),
    ("sdks", |arguments| in_rows(sdks::run(arguments))),
    ("journal", |arguments| Ok((Vec::new(), journal::run(arguments)?))),
];

fn in_rows(rows: Result<Vec<Row>>) -> Result<(Vec<Row>, String)> {
    Ok((rows?, String::new()))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.data)
        .with_context(|| format!("cannot create {}", arguments.data.display()))?;
    raise_file_limit()?;
    if arguments.peers {
        return peers::run(&arguments);
    }
    let known = |name: &String| growth::is_wanted(name) || PARTS.iter().any(|(part, _)| part == name);
    if let Some(name) = arguments.only.iter().find(|name| !known(name)) {
        bail!("there is no part {name:?}; see --help");
    }
    for name in arguments.only.iter().filter(|name| growth::is_wanted(name)) {
        growth::run(&arguments, name)?;
    }
    let wants = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    PARTS.into_iter().filter(|(name, _)| wants(name)).try_for_each(|(name, measure)| {
        run_part(&arguments, name, measure).with_context(|| format!("cannot measure {name}"))
    })
}

/// Measures a part and writes it at once, so that a run that ends early keeps what it has measured.
fn run_part(arguments: &Arguments, name: &str, measure: Measure) -> Result<()> {
    eprintln!("measuring {name} …");
    let mut part = Part::begin(arguments);
    let before = Activity::now()?;
    let (rows, text) = measure(arguments)?;
    part.finish(rows, text, Activity::now()?.others_share_since(before))?;
    print!("{}", part.table(name));
    if arguments.quick {
        return Ok(());
    }
    let raw_file = arguments.results.with_extension("json");
    let mut results = Results::read(&raw_file)?;
    results.set(name, part);
    results.write(&arguments.results, &raw_file, &PARTS.map(|(name, _)| name))
}

/// Allows as many open files as the system permits, for many connections. The broker inherits the limit.
fn raise_file_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("cannot raise the file limit")
}
