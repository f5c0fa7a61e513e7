//! `peeklock config`: validate configuration files, and show the effective configuration.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{ArgMatches, Subcommand};
use peeklock_spec::NamespaceSpec;

use crate::configuration::{Configuration, Told};
use crate::serve::plural;

/// Check configuration files, and show what a broker would be told.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Check configuration files: what is wrong is told with line and column
    #[command(after_help = VALIDATE_EXAMPLES)]
    Validate {
        /// The files; without any, those that `serve` would read
        files: Vec<PathBuf>,
    },
    /// Show every option with its value, as `serve` with the same flags would have it
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Tell where each value comes from
        #[arg(long)]
        origin: bool,
        #[command(flatten)]
        told: Box<Told>,
    },
}

const VALIDATE_EXAMPLES: &str = "\
Examples:
  peeklock config validate
  peeklock config validate peeklock.toml Config.json";

const SHOW_EXAMPLES: &str = "\
Examples:
  peeklock config show
  peeklock config show --origin --config peeklock.toml --listen 0.0.0.0:5672";

pub(crate) fn run(arguments: Arguments, matches: &ArgMatches) -> Result<()> {
    match arguments.action {
        Action::Validate { files } => {
            let configuration = Configuration::load(Told::of_files(files))?;
            print!("{}", verdict(&configuration));
        }
        Action::Show { origin, told } => {
            let configuration = Configuration::load(*told)?;
            print!("{}", shown(&configuration, matches, origin));
        }
    }
    Ok(())
}

fn verdict(configuration: &Configuration) -> String {
    let files: Vec<String> = configuration.files.iter().map(|file| file.display().to_string()).collect();
    if files.is_empty() {
        return "There is no configuration file; everything is as by default\n".to_owned();
    }
    let mut verdict = format!("{}: valid, with {}\n", files.join(", "), counted(&configuration.default));
    for (name, space) in &configuration.namespaces {
        let _ = writeln!(verdict, "Namespace '{name}': {}", counted(space));
    }
    verdict
}

fn counted(space: &NamespaceSpec) -> String {
    let subscriptions = space.topics.0.iter().filter_map(|(_, topic)| topic.subscriptions.as_ref());
    let subscriptions: usize = subscriptions.map(|named| named.0.len()).sum();
    let count = |count: usize, thing: &str| plural(count as u64, thing);
    let mut parts = vec![
        count(space.queues.0.len(), "queue"),
        count(space.topics.0.len(), "topic"),
        count(subscriptions, "subscription"),
    ];
    if !space.groups.0.is_empty() {
        parts.push(count(space.groups.0.len(), "group"));
    }
    if !space.hubs.0.is_empty() {
        parts.push(count(space.hubs.0.len(), "hub"));
    }
    parts.join(", ")
}

/// Writes the options in the form of `peeklock.toml`.
fn shown(configuration: &Configuration, matches: &ArgMatches, with_origin: bool) -> String {
    let (mut text, mut table) = (String::new(), String::new());
    for (key, value, origin) in configuration.origins(matches) {
        let (here, name) = key.split_once('.').unwrap_or(("", &key));
        if here != table {
            let _ = writeln!(text, "\n[{here}]");
            here.clone_into(&mut table);
        }
        let line = match value {
            Some(value) if value.bytes().all(|byte| byte.is_ascii_digit()) => format!("{name} = {value}"),
            Some(value) => format!("{name} = {value:?}"),
            None => format!("# {name} ="),
        };
        let _ = if with_origin { writeln!(text, "{line:<48} # {origin}") } else { writeln!(text, "{line}") };
    }
    text
}
