//! The commands of the workshop: what a person or a CI machine runs, in plain Rust and with nothing to install first.
//!
//! Every command sets up what it needs, prints what it runs, and ends with counts. A command that cannot do its
//! work fails; none is skipped.

mod architecture;
mod bench;
mod check;
mod counts;
mod fuzz;
mod interop;
mod process;
mod sim;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::counts::Counts;

const HELP: &str = "\
cargo xtask <command>

  check                    formatting, clippy, rustdoc, and names in ARCHITECTURE.md that must exist
  test                     everything: check, cargo tests, short fuzz and simulation runs, all of interop, the kill loop
  interop [part [-k NAME]] foreign clients against a running broker; without a part, all of them;
                           NAME chooses tests of the part, as its own test program understands it
      python                 azure-servicebus (sync and asyncio) and qpid-proton
      proton                 qpid-proton alone
      js                     @azure/service-bus and rhea
      fe2o3                  the Rust AMQP client
      go                     azservicebus and azeventhubs
      java                   azure-messaging-servicebus and azure-messaging-eventhubs
      frameworks             Celery, Qpid JMS, Spring Cloud Azure, Apache Camel
      kill                   100 times kill -9 under load, then an audit of the clients' logs
  fuzz [--seconds N]       hostile bytes into codec and connection, N seconds each (default 60)
  sim                      every seed that ever failed, and a hundred that belong to the commit
      --seed N [--log]       one seed, with its log
      --seeds M [--from N]   M seeds from N on (default 1)
  bench [arguments]        the benchmarks; arguments go to the benchmark program
  help                     this text

The programs need nothing but cargo, python3 with venv, node with npm, go, and Java 17 with Maven. Python packages go
to target/*-venv, JavaScript packages to interop/js/node_modules, the others to the tools' own caches.";

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
        "test" => test::run(rest),
        "interop" => interop::run(rest),
        "fuzz" => fuzz::run(rest),
        "sim" => sim::run(rest),
        "bench" => bench::run(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(Counts::default())
        }
        unknown => bail!("'{unknown}' is not a command; `cargo xtask help` lists them"),
    }
}
