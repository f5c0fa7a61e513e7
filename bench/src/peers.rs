//! Measures Peeklock beside other message brokers: the same workloads, equal promises, small clients.
//!
//! This file has the columns of the comparison and the loop over them. A server is one file that implements [`peer::Peer`].

mod nats;
mod page;
mod peeklock;
mod peer;
mod picture;
mod rabbitmq;
mod redis;
mod wire;
mod workloads;

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::Arguments;
use crate::machine::{self, Activity};
use page::Results;
use workloads::{Extent, Measured, Workload};

/// A server with its settings.
struct Column {
    name: &'static str,
    title: &'static str,
    settings: &'static str,
    /// Whether a confirmed message is on disk.
    is_synced: bool,
    run: fn(Workload, &Extent) -> Result<(Measured, String)>,
}

const COLUMNS: [Column; 5] = [
    Column {
        name: "peeklock",
        title: "Peeklock",
        settings: "queues with their defaults; peek-lock; completions are confirmed after they are on disk.",
        is_synced: true,
        run: Workload::run::<peeklock::Peeklock>,
    },
    Column {
        name: "rabbitmq",
        title: "RabbitMQ",
        settings: "quorum queues on one node, persistent messages, publisher confirms, consumer acknowledgements.",
        is_synced: true,
        run: Workload::run::<rabbitmq::RabbitMq>,
    },
    Column {
        name: "redis",
        title: "Redis streams",
        settings: "`appendonly yes`, `appendfsync always`, no snapshots; `XADD`, `XREADGROUP`, `XACK`. Acknowledged messages stay in the stream.",
        is_synced: true,
        run: Workload::run::<redis::Redis>,
    },
    Column {
        name: "nats",
        title: "NATS JetStream",
        settings: "file storage, `sync_interval: always`; work-queue streams, a durable pull consumer each, explicit acknowledgements.",
        is_synced: true,
        run: Workload::run::<nats::Nats<true>>,
    },
    Column {
        name: "nats-no-sync",
        title: "NATS, *no sync*",
        settings: "the same with the default `sync_interval` of two minutes: **a weaker promise**.",
        is_synced: false,
        run: Workload::run::<nats::Nats<false>>,
    },
];

/// Measures and writes the page, the picture and the raw values. A run of some workloads or servers replaces only
/// their values, or adds to them.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let workloads = chosen(&Workload::ALL, &arguments.only, |workload| workload.name())?;
    let columns = chosen(&COLUMNS, &arguments.peer, |column| column.name)?;
    let raw_file = arguments.results.with_extension("json");
    let mut results = Results::new(machine::describe(&arguments.data), arguments.quick);
    if arguments.add || !arguments.only.is_empty() || !arguments.peer.is_empty() {
        results = results.continued(&raw_file)?;
    }
    let extent = Extent::new(arguments.data.clone(), arguments.quick);
    for &workload in workloads {
        if !arguments.add {
            columns.iter().for_each(|column| results.clear(workload, column));
        }
        for repetition in 1..=arguments.repetitions {
            for column in &columns {
                if !results.is_given_up(workload, column) {
                    eprint!("{} {repetition}: {} …", workload.name(), column.name);
                    measure(&mut results, workload, column, &extent)?;
                }
            }
        }
    }
    write(&results, &arguments.results, &raw_file)
}

/// Returns the items with these names, or all of them.
fn chosen<'a, T>(all: &'a [T], names: &[String], name: impl Fn(&T) -> &'static str) -> Result<Vec<&'a T>> {
    let known: Vec<&str> = all.iter().map(&name).collect();
    for wanted in names {
        ensure!(known.contains(&wanted.as_str()), "{wanted:?} is not known; use one of {}", known.join(", "));
    }
    Ok(all
        .iter()
        .filter(|item| names.is_empty() || names.iter().any(|wanted| wanted == name(item)))
        .collect())
}

fn measure(results: &mut Results, workload: Workload, column: &Column, extent: &Extent) -> Result<()> {
    let before = Activity::now()?;
    let measured = (column.run)(workload, extent);
    let (measured, version) =
        measured.with_context(|| format!("cannot measure {} with {}", workload.name(), column.title))?;
    match &measured {
        Measured::Values(values) => eprintln!(" {values:.3?}"),
        Measured::GivenUp(reason) => eprintln!(" given up: {reason}"),
    }
    results.set_version(column, version);
    results.add(workload, column, measured, Activity::now()?.others_share_since(before));
    Ok(())
}

fn write(results: &Results, page_file: &Path, raw_file: &Path) -> Result<()> {
    let picture_file = page_file.with_extension("svg");
    let picture_name = picture_file.file_name().unwrap_or_default().to_string_lossy();
    let page = results.to_markdown(&picture_name);
    print!("{page}");
    let store = |file: &Path, text: String| {
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    store(raw_file, serde_json::to_string_pretty(results)? + "\n")?;
    store(&picture_file, picture::draw(results))?;
    store(page_file, page)
}
