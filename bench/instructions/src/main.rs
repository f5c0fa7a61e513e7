//! `peeklock-instructions`: scripted runs, for `cargo xtask instructions`, which counts their instructions with callgrind.
//!
//! ```text
//! peeklock-instructions          prints the names of the runs
//! peeklock-instructions RUN      executes one run and prints its number of counted messages
//! ```
//!
//! A run uses one thread, virtual time and fixed seeds, so each execution performs the same work. Each run handles [`WARM_UP`] messages
//! first, so that buffers have grown and nothing that happens only once is counted.

mod client;
mod codec;
mod counting;
mod engine;
mod gateway;

use anyhow::{Context, Result, bail};

/// The number of messages that a run handles before it is counted.
const WARM_UP: u32 = 2_000;
/// The number of messages that are counted.
const COUNTED: u32 = 2_000;
const SEED: u64 = 18;

/// A scripted run. It returns the number of messages that it handled while it was counted.
type Run = fn() -> Result<u32>;

const RUNS: [(&str, Run); 5] = [
    ("codec", codec::run),
    ("engine", engine::run),
    ("gateway-queue", gateway::queue),
    ("gateway-publish", gateway::publish),
    ("gateway-read", gateway::read),
];

fn main() -> Result<()> {
    // Nonces and ids come from these generators, which would otherwise have random seeds.
    fastrand::seed(SEED);
    peeklock_broker::random::repeat(SEED);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => RUNS.iter().for_each(|(name, _)| println!("{name}")),
        [wanted] => println!("{} messages", run_named(wanted)?()?),
        _ => bail!("usage: peeklock-instructions [RUN]"),
    }
    Ok(())
}

fn run_named(wanted: &str) -> Result<Run> {
    let found = RUNS.iter().find(|(name, _)| *name == wanted);
    found.map(|(_, run)| *run).with_context(|| format!("'{wanted}' is not a run"))
}
