//! The `peeklock` command: the broker, and tools to use one. One file per command.

mod checkpoint;
mod command;
mod config;
mod configuration;
mod connect;
mod describe;
mod events;
mod explain;
mod filter;
mod hub;
mod init;
mod key;
mod options;
mod order;
mod peek;
mod property;
mod queue;
mod queue_group;
mod receive;
mod report;
mod rule;
mod send;
mod serve;
mod session;
mod settings;
mod show;
mod subscription;
mod table;
mod text;
mod time;
mod topic;
mod trust;

use std::io;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use tikv_jemallocator::Jemalloc;
use tracing_subscriber::EnvFilter;

/// Replaces the allocator of glibc, which takes a lock for memory that another thread has allocated. Batches and replies
/// change threads, so with many queues the threads would wait for each other.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The Service Bus and Event Hubs that you can own: a broker for Azure SDKs, and tools to use one.
#[derive(Parser)]
#[command(name = "peeklock", version, propagate_version = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  peeklock serve --queue orders               start a broker with a queue, on this machine only
  peeklock send orders 'hello'                send one message
  seq 1000 | peeklock send orders -           send one message per line
  peeklock receive orders --count 10          receive, print and complete up to ten
  peeklock peek orders                        look without receiving
  peeklock queue list                         all queues with their counts
  peeklock queue create jobs --sessions       a queue whose messages are worked on in order, session by session
  peeklock hub create telemetry               an event hub; `peeklock events telemetry --follow` shows what comes
  peeklock init shop                          a small Rust project that sends and works on messages, without a server
  peeklock topic create news                  a topic; `peeklock subscription create news all` gives it a first subscription

The commands other than serve talk to amqp://127.0.0.1:5672 unless --connect or PEEKLOCK_CONNECT says otherwise.
Exit codes: 0 done, 1 failed, 2 wrong usage.";

#[derive(Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Config(config::Arguments),
    Init(init::Arguments),
    Queue(queue::Arguments),
    Topic(topic::Arguments),
    Subscription(subscription::Arguments),
    Rule(rule::Arguments),
    Group(queue_group::Arguments),
    Hub(hub::Arguments),
    Checkpoint(checkpoint::Arguments),
    Events(events::Arguments),
    Key(key::Arguments),
    Trust(trust::Arguments),
    Session(session::Arguments),
    Send(Box<send::Arguments>),
    Receive(receive::Arguments),
    Peek(peek::Arguments),
}

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(arguments.command, innermost(&matches)) {
        Ok(()) => ExitCode::SUCCESS,
        // `peeklock peek orders | head` has printed what was requested.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", report::causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the arguments of the innermost command.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

fn run(command: Command, matches: &ArgMatches) -> Result<()> {
    log_to_stderr();
    let runtime = match &command {
        // The builder's default is one worker per core.
        Command::Serve(_) => tokio::runtime::Builder::new_multi_thread().enable_all().build(),
        _ => tokio::runtime::Builder::new_current_thread().enable_all().build(),
    };
    runtime.context("cannot start the runtime")?.block_on(async {
        match command {
            Command::Serve(arguments) => Box::pin(serve::run(arguments)).await,
            Command::Config(arguments) => config::run(arguments, matches),
            Command::Init(arguments) => init::run(&arguments),
            Command::Queue(arguments) => queue::run(arguments).await,
            Command::Topic(arguments) => topic::run(arguments).await,
            Command::Subscription(arguments) => subscription::run(arguments).await,
            Command::Rule(arguments) => rule::run(arguments).await,
            Command::Group(arguments) => queue_group::run(arguments).await,
            Command::Hub(arguments) => hub::run(arguments).await,
            Command::Checkpoint(arguments) => checkpoint::run(arguments).await,
            Command::Events(arguments) => events::run(arguments).await,
            Command::Key(arguments) => key::run(arguments).await,
            Command::Trust(arguments) => trust::run(&arguments),
            Command::Session(arguments) => session::run(arguments).await,
            Command::Send(arguments) => send::run(*arguments).await,
            Command::Receive(arguments) => receive::run(arguments).await,
            Command::Peek(arguments) => peek::run(arguments).await,
        }
    })
}

/// Logs to standard error at the level of `RUST_LOG`; standard output is for results.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
