//! The flags of every command that uses a broker, and the output of its result.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use peeklock::admin::Admin;
use peeklock::low_level::{self, Options, Target};
use peeklock::{Backoff, Client, ClientBuilder};
use serde::Serialize;

use crate::describe::json_lines;
use crate::report::report;

/// The time limit for a broker's confirmation.
pub(crate) const CONFIRM_TIME_MAX: Duration = Duration::from_secs(60);

// In the help, these flags follow those of the command itself.
#[derive(clap::Args)]
pub(crate) struct Connect {
    /// A connection string, or amqp://NAME:SECRET@HOST:PORT (amqps:// for TLS)
    #[arg(
        long,
        value_name = "STRING",
        env = "PEEKLOCK_CONNECT",
        hide_env_values = true,
        default_value = "amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672",
        display_order = 900
    )]
    connect: String,
    /// A file with the connection string, so that its secret is not in the list of processes
    #[arg(long, value_name = "FILE", env = "PEEKLOCK_CONNECT_FILE", conflicts_with = "connect", value_parser = ConnectFile::read, display_order = 900)]
    connect_file: Option<ConnectFile>,
    /// Certificates to trust beside those the machine trusts, in PEM form
    #[arg(long, value_name = "FILE", env = "PEEKLOCK_CA", display_order = 901)]
    ca: Option<PathBuf>,
    /// One JSON object per line
    #[arg(long, display_order = 902)]
    pub(crate) json: bool,
}

impl Connect {
    /// Connects, to receive and to look.
    pub(crate) async fn open(&self) -> Result<Client> {
        Ok(self.builder().connect().await?)
    }

    /// Returns the administration. It connects with the first request.
    pub(crate) async fn admin(&self) -> Result<Admin> {
        Ok(self.builder().admin().await?)
    }

    /// Connects with the client below the SDK, for pipelines of sends and for readers of hubs.
    pub(crate) async fn open_low_level(&self) -> Result<low_level::Client> {
        let mut options = Options::default();
        options.certificates.clone_from(&self.ca);
        Ok(low_level::Client::connect_with(&self.target()?, &options).await?)
    }

    /// Returns a client that does not retry, because the user is there to decide.
    fn builder(&self) -> ClientBuilder {
        let once = Backoff::exponential(Duration::ZERO, Duration::ZERO).attempts(1);
        let builder = Client::builder(self.connection()).retry(once);
        match &self.ca {
            Some(file) => builder.certificates(file),
            None => builder,
        }
    }

    pub(crate) fn target(&self) -> Result<Target> {
        Ok(Target::parse(self.connection())?)
    }

    fn connection(&self) -> &str {
        self.connect_file.as_ref().map_or(&self.connect, |file| &file.0)
    }

    /// Prints items as lines of JSON, or as text.
    pub(crate) fn print<T: Serialize>(
        &self,
        items: &[T],
        text: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Result<()> {
        let mut out = Vec::new();
        if self.json { json_lines(&mut out, items) } else { text(&mut out) }?;
        io::stdout().lock().write_all(&out)?;
        Ok(())
    }

    /// Prints the report of a command.
    pub(crate) fn report(&self, done: &str, kind: &str, name: &str, summary: &str) -> Result<()> {
        let mut out = Vec::new();
        report(&mut out, self.json, done, kind, name, summary)?;
        io::stdout().lock().write_all(&out)?;
        Ok(())
    }
}

/// The connection string in a file.
#[derive(Clone)]
struct ConnectFile(String);

impl ConnectFile {
    fn read(path: &str) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        Ok(ConnectFile(text.trim().to_owned()))
    }
}

/// Returns whether standard input is a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Asks a question on the terminal, and returns whether the answer is yes.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
