//! The commands for developers and for CI, in plain Rust.
//!
//! Every command installs the packages that it needs, prints the programs that it runs, and ends with counts. A command that cannot do
//! its work fails; no command skips work.

mod architecture;
mod bench;
mod check;
mod counts;
mod debian;
mod deny;
mod features;
mod fuzz;
mod instructions;
mod interop;
mod package;
mod process;
mod sim;
mod stamp;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::counts::{Counts, Part};

const HELP: &str = "\
cargo xtask <command>

  check                    format, clippy, rustdoc, and the checks of ARCHITECTURE.md, deny.toml, the packages to publish
                           and the features of `peeklock`
  package                  compiles the packages to publish as a user gets them; before each release
  test                     all parts below; at most 30 minutes on two cores
  test --quick             before each commit: check, most cargo tests, a few seeds, a few tests of the Python and
                           JavaScript SDKs; less than 3 minutes on two cores once everything is built
  test --only PARTS [-k NAME]
                           some parts, separated by commas; NAME chooses tests, as the test program of the part
                           understands it: `cargo xtask test --only python -k sessions`
      check                  as the command, without rustdoc
      cargo                  all Rust tests
      rustdoc                the documentation builds without warnings
      doctest                the examples in the documentation
      fuzz                   8 seconds of each fuzz target
      sim                    as the command `sim`
      instructions           as the command `instructions`
      python                 azure-servicebus, azure-eventhub, azure-storage-queue and qpid-proton
      js                     @azure/service-bus, @azure/event-hubs, @azure/storage-queue and rhea
      go                     azservicebus and azeventhubs
      java                   azure-messaging-servicebus and azure-messaging-eventhubs
      frameworks             Celery, Qpid JMS, Spring Cloud Azure, Apache Camel
      kill                   kill -9 under load, 100 times, then an audit of the clients' logs
      proton                 qpid-proton alone; contained in python
      fe2o3                  the Rust AMQP client; contained in cargo
  fuzz [--seconds N]       hostile bytes for every fuzz target, N seconds each (default 60)
  sim                      every seed that has failed once, and a hundred that the commit determines
      --seed N [--log]       one seed, with its log
      --seeds M [--from N]   M seeds, starting at N (default 1)
      --flaw NAME --seeds M  the programs with the SDK make a mistake, which one of M seeds must find
  bench [arguments]        the benchmarks; the arguments are passed to the benchmark program
      --peers                the same workloads with RabbitMQ, Redis and NATS, as bench/PEERS.md
  instructions             instructions per message of scripted runs; a difference of more than 3 % to the numbers in
                           bench/instructions/expected.toml is a failure
      --record               replaces the numbers in that file
  help                     this text

The commands need cargo, python3 with venv, node with npm, go, and Java 17 with Maven. They install Python packages in
target/*-venv, JavaScript packages in interop/js/node_modules, make, valgrind, chromium, and the servers of `bench --peers` with
apt-get, and all others in the caches of the tools.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(counts) if counts.is_success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<Counts> {
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", arguments),
    };
    match command {
        "check" => Ok(counts::report(&check::parts())),
        "package" => Ok(counts::report(&[Part::of("package", package::verify)])),
        "test" => test::run(rest),
        "fuzz" => fuzz::run(rest),
        "sim" => sim::run(rest),
        "bench" => bench::run(rest),
        "instructions" => instructions::run(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(Counts::default())
        }
        unknown => bail!("'{unknown}' is not a command; `cargo xtask help` lists them"),
    }
}
