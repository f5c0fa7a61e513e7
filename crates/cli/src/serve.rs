//! `peeklock serve`: the broker.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use peeklock_server::{
    Addresses, Served, Server, StorageDoors, WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET,
    WELL_KNOWN_STORAGE_KEY,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::configuration::{Configuration, Told};

/// Start a broker and print how to connect to it.
///
/// On this machine only it needs no key: it takes the one that Azure's emulators use. To be reached from other machines it
/// needs real keys. What a sender is told to be stored is on disk before it is told.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    told: Box<Told>,

    /// Let a test move the clock.
    #[cfg(feature = "test-clock")]
    #[arg(long, hide = true)]
    test_clock: bool,
}

const EXAMPLES: &str = "\
Examples:
  peeklock serve
  peeklock serve --queue orders --queue invoices,sessions,lock-duration=5m,max-delivery-count=3
  peeklock serve --config peeklock.toml
  peeklock serve --config Config.json                 the file of the official emulator
  peeklock serve --listen 0.0.0.0:5672 --listen-tls 0.0.0.0:5671 --key app=$(openssl rand -base64 32):Send,Listen";

/// The number of names that the first screen shows. More names would make it hard to read.
const NAMES_SHOWN_MAX: usize = 10;
/// The conventional exit code after Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    // The handlers are installed before anything starts, so that no signal is missed.
    let mut signals = Signals::listen()?;
    let has_terminal = io::stdout().is_terminal();
    #[cfg(feature = "test-clock")]
    if arguments.test_clock {
        let address = peeklock_server::test_clock::listen().await?;
        print(&format!("Test clock  {address}\n"))?;
    }
    let configuration = Configuration::load(*arguments.told)?;
    let story = Story::of(&configuration);
    let mut server = Server::start(configuration.into_options()?).await?;
    // The broker runs even if its output cannot be written.
    let _ = first_screen(&server, &story).and_then(|screen| print(&screen));
    loop {
        let asked = tokio::select! {
            reason = server.failed() => bail!("the broker has stopped: {reason}"),
            asked = signals.next() => asked,
        };
        let is_seen = asked == Asked::Reload && reload(&server).is_ok();
        // A terminal that was closed sends the same signal, and nobody could stop the broker from there any more.
        if asked == Asked::Stop || (has_terminal && !is_seen) {
            break;
        }
    }
    let _ = print("Stopping…\n");
    tokio::select! {
        stopped = server.stop() => stopped.context("the broker did not stop in order")?,
        () = signals.stop() => std::process::exit(EXIT_INTERRUPTED),
    }
    let _ = print("Stopped, everything is on disk\n");
    Ok(())
}

/// Loads what can be replaced while the broker runs, and prints what was done.
fn reload(server: &Server) -> io::Result<()> {
    let done = match (server.reload(), &server.certificate) {
        (Ok(()), Some(certificate)) => format!("Reloaded the certificate {}\n", certificate.display()),
        (Ok(()), None) => "Nothing to reload: no address uses TLS\n".to_owned(),
        (Err(error), _) => {
            format!("The certificate could not be reloaded, and the old one stays: {error:#}\n")
        }
    };
    print(&done)
}

/// The part of the configuration that the first screen shows.
struct Story {
    files: Vec<String>,
    key_name: Option<String>,
}

impl Story {
    fn of(configuration: &Configuration) -> Self {
        Story {
            files: configuration.files.iter().map(|file| file.display().to_string()).collect(),
            key_name: configuration.keys.iter().find(|key| key.scope.is_none()).map(|key| key.name.clone()),
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Returns the first screen. Tests and scripts read its labels: each is at the start of its line, two or more spaces before its value.
fn first_screen(server: &Server, story: &Story) -> io::Result<String> {
    let mut screen = Screen(Vec::new());
    let Addresses { amqp, amqp_tls, http, https } = server.addresses;
    let addresses = [("AMQP", amqp), ("AMQP over TLS", amqp_tls), ("HTTP", http), ("HTTPS", https)];
    for (label, address) in addresses {
        if let Some(address) = address {
            screen.line(label, &address)?;
        }
    }
    if let Some(certificate) = &server.certificate {
        screen.line("Certificate", &certificate.display())?;
    }
    // Any address with plain AMQP is suitable.
    if let Some(address) = amqp.or(http) {
        screen.line("Connection string", &connection_string(address, story.key_name.as_deref()))?;
    }
    storage_lines(&mut screen, &server.storage)?;
    if !story.files.is_empty() {
        screen.line("Configuration", &story.files.join(", "))?;
    }
    screen.line("Data directory", &server.data.display())?;
    let recovered = server.recovered;
    let messages = plural(recovered.message_count, "message");
    let hubs = match recovered.hub_count {
        0 => String::new(),
        count => format!(", and {}", plural(count, "event hub")),
    };
    screen.line("Recovered", &format!("{messages} in {}{hubs}", plural(recovered.queue_count, "queue")))?;
    screen.line("Queues", &names(&server.queue_names, "queue"))?;
    if !server.topic_names.is_empty() {
        screen.line("Topics", &names(&server.topic_names, "topic"))?;
    }
    if !server.hub_names.is_empty() {
        screen.line("Hubs", &names(&server.hub_names, "hub"))?;
    }
    if !server.group_names.is_empty() {
        screen.line("Groups", &names(&server.group_names, "group"))?;
    }
    if !server.namespace_names.is_empty() {
        screen.line("Namespaces", &server.namespace_names.join(", "))?;
    }
    for warning in &server.warnings {
        screen.line("Warning", warning)?;
    }
    screen.line("Ready", &format!("in {} ms", server.ready_after.as_millis()))?;
    screen.0.extend_from_slice(b"Press Ctrl-C to stop\n");
    Ok(String::from_utf8_lossy(&screen.0).into_owned())
}

/// Writes the addresses of the storage services and their connection string.
fn storage_lines(screen: &mut Screen, storage: &StorageDoors) -> io::Result<()> {
    for (label, served) in [("Blob Storage", &storage.blobs), ("Queue Storage", &storage.queues)] {
        match served {
            Served::At(address) => screen.line(label, address)?,
            Served::Without(reason) => screen.line(label, &format!("off: {reason}"))?,
            Served::Off => {}
        }
    }
    match storage_connection_string(storage) {
        Some(text) => screen.line("Storage string", &text),
        None => Ok(()),
    }
}

fn storage_connection_string(storage: &StorageDoors) -> Option<String> {
    let account = &storage.account;
    // A configured secret is not printed, because it would end up in a log.
    let key = if storage.uses_well_known_key { WELL_KNOWN_STORAGE_KEY } else { "***" };
    let mut text = format!("DefaultEndpointsProtocol=http;AccountName={account};AccountKey={key};");
    let before = text.len();
    for (name, served) in [("Blob", &storage.blobs), ("Queue", &storage.queues)] {
        if let Served::At(address) = served {
            let _ = write!(text, "{name}Endpoint=http://{address}/{account};");
        }
    }
    (text.len() > before).then_some(text)
}

struct Screen(Vec<u8>);

impl Screen {
    fn line(&mut self, label: &str, value: &dyn std::fmt::Display) -> io::Result<()> {
        writeln!(self.0, "{label:<19}{value}")
    }
}

fn connection_string(address: SocketAddr, key_name: Option<&str>) -> String {
    // A configured secret is not printed, because it would end up in a log.
    let (name, secret) = match key_name {
        Some(name) => (name, "***"),
        None => (WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET),
    };
    format!(
        "Endpoint=sb://{address};SharedAccessKeyName={name};SharedAccessKey={secret};UseDevelopmentEmulator=true;"
    )
}

fn names(names: &[String], kind: &str) -> String {
    match names.len() {
        0 => format!("none; create one with `peeklock {kind} create NAME`"),
        1..=NAMES_SHOWN_MAX => names.join(", "),
        count => format!("{count}; see them with `peeklock {kind} list`"),
    }
}

pub(crate) fn plural(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The signals that stop the broker, Ctrl-C and SIGTERM, and SIGHUP.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
}

impl Signals {
    fn listen() -> Result<Self> {
        let signal = |kind| signal(kind).context("cannot listen for signals");
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }

    async fn stop(&mut self) {
        while self.next().await != Asked::Stop {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_secret_is_not_printed() {
        let address: SocketAddr = "127.0.0.1:5672".parse().unwrap();
        assert_eq!(
            connection_string(address, None),
            "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
             UseDevelopmentEmulator=true;"
        );
        assert!(
            connection_string(address, Some("app")).contains("SharedAccessKeyName=app;SharedAccessKey=***;")
        );
    }

    #[test]
    fn storage_services_are_named_only_where_they_run() {
        let mut storage = StorageDoors {
            account: "devstoreaccount1".to_owned(),
            uses_well_known_key: true,
            blobs: Served::At("127.0.0.1:10000".parse().unwrap()),
            queues: Served::Without("taken".to_owned()),
        };
        let text = storage_connection_string(&storage).unwrap();
        assert!(text.contains("BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;"), "{text}");
        assert!(text.contains("AccountKey=Eby8") && !text.contains("QueueEndpoint"), "{text}");
        storage.uses_well_known_key = false;
        assert!(storage_connection_string(&storage).unwrap().contains("AccountKey=***;"));
        storage.blobs = Served::Off;
        assert_eq!(storage_connection_string(&storage), None);
    }

    #[test]
    fn many_queues_are_counted_instead_of_listed() {
        let queues = |count: usize| (0..count).map(|n| format!("q{n}")).collect::<Vec<_>>();
        assert!(names(&[], "queue").starts_with("none"));
        assert_eq!(names(&queues(2), "queue"), "q0, q1");
        assert!(names(&queues(500), "queue").starts_with("500;"));
    }
}
