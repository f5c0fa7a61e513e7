//! `peeklock serve`: the broker.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use peeklock_server::{
    Addresses, AmqpLimits, ListenLimits, Options, Server, WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::settings::QueueSpec;
use crate::text::{KeySpec, Listen};

/// Start a broker and print how to connect to it.
///
/// On this machine only it needs no key: it takes the one that Azure's emulators use. To be reached from other machines it
/// needs real keys. What a sender is told to be stored is on disk before it is told.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Where messages are kept; created if it is not there
    #[arg(long, value_name = "DIR", env = "PEEKLOCK_DATA", default_value = "./peeklock-data")]
    data: PathBuf,
    /// Address for plain AMQP, or 'off'; port 0 takes any that is free. Every address serves AMQP, HTTP and AMQP over WebSocket
    #[arg(long, value_name = "ADDRESS", env = "PEEKLOCK_LISTEN", default_value = "127.0.0.1:5672", value_parser = Listen::parse)]
    listen: Listen,
    /// Address for AMQP over TLS, or 'off'
    #[arg(long, value_name = "ADDRESS", env = "PEEKLOCK_LISTEN_TLS", default_value = "127.0.0.1:5671", value_parser = Listen::parse)]
    listen_tls: Listen,
    /// Address for management and health over HTTP, or 'off'
    #[arg(long, value_name = "ADDRESS", env = "PEEKLOCK_HTTP", default_value = "127.0.0.1:5300", value_parser = Listen::parse)]
    http: Listen,
    /// Address for HTTPS, or 'off'; Azure's administration clients look for it at port 443
    #[arg(long, value_name = "ADDRESS", env = "PEEKLOCK_HTTPS", default_value = "off", value_parser = Listen::parse)]
    https: Listen,
    /// Certificate chain in PEM form; without it one is made on first start
    #[arg(long, value_name = "FILE", env = "PEEKLOCK_TLS_CERT", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate in PEM form
    #[arg(long, value_name = "FILE", env = "PEEKLOCK_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A queue to create unless it exists: NAME, or with settings as `queue create` has them: NAME,sessions,lock-duration=30s; may be
    /// repeated, or separated by ';'
    #[arg(long = "queue", value_name = "QUEUE", env = "PEEKLOCK_QUEUES", value_delimiter = ';', value_parser = QueueSpec::parse)]
    queues: Vec<QueueSpec>,
    /// A key that clients may use, in place of the well-known one: NAME=SECRET or NAME=SECRET:Send,Listen; may be repeated, or
    /// separated by ';'
    #[arg(long = "key", value_name = "KEY", env = "PEEKLOCK_KEYS", hide_env_values = true, value_delimiter = ';', value_parser = KeySpec::parse)]
    keys: Vec<KeySpec>,
}

const EXAMPLES: &str = "\
Examples:
  peeklock serve
  peeklock serve --queue orders --queue invoices,sessions,lock-duration=5m,max-delivery-count=3
  peeklock serve --listen 0.0.0.0:5672 --listen-tls 0.0.0.0:5671 --key app=$(openssl rand -base64 32):Send,Listen";

/// More names than this make the first screen harder to read, not easier.
const QUEUE_NAMES_SHOWN_MAX: usize = 10;
/// By convention: ended by Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    // Before anything starts, so that no signal finds nobody listening.
    let mut signals = StopSignals::listen()?;
    let key_name = arguments.keys.first().map(|key| key.name.clone());
    let mut server = Server::start(arguments.into_options()).await?;
    // A broker whose output nobody reads serves all the same.
    let _ = first_screen(&server, key_name.as_deref()).and_then(|screen| print(&screen));
    tokio::select! {
        reason = server.failed() => bail!("the broker has stopped: {reason}"),
        () = signals.next() => {}
    }
    let _ = print("Stopping…\n");
    tokio::select! {
        stopped = server.stop() => stopped.context("the broker did not stop in order")?,
        () = signals.next() => std::process::exit(EXIT_INTERRUPTED),
    }
    let _ = print("Stopped, everything is on disk\n");
    Ok(())
}

impl Arguments {
    fn into_options(self) -> Options {
        Options {
            data: self.data,
            listen: Addresses {
                amqp: self.listen.0,
                amqp_tls: self.listen_tls.0,
                http: self.http.0,
                https: self.https.0,
            },
            certificate: self.tls_cert.zip(self.tls_key),
            limits: ListenLimits::default(),
            amqp_limits: AmqpLimits::default(),
            keys: self.keys.into_iter().map(KeySpec::into_policy).collect(),
            queues: self.queues.into_iter().map(|queue| (queue.name, queue.settings)).collect(),
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Tests and scripts read these labels: each stands at the start of its line, two or more spaces before its value.
fn first_screen(server: &Server, key_name: Option<&str>) -> io::Result<String> {
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
    // Any address that takes plain AMQP will do.
    if let Some(address) = amqp.or(http) {
        screen.line("Connection string", &connection_string(address, key_name))?;
    }
    screen.line("Data directory", &server.data.display())?;
    let recovered = server.recovered;
    let messages = plural(recovered.message_count, "message");
    screen.line("Recovered", &format!("{messages} in {}", plural(recovered.queue_count, "queue")))?;
    screen.line("Queues", &queue_names(&server.queue_names))?;
    screen.line("Ready", &format!("in {} ms", server.ready_after.as_millis()))?;
    screen.0.extend_from_slice(b"Press Ctrl-C to stop\n");
    Ok(String::from_utf8_lossy(&screen.0).into_owned())
}

struct Screen(Vec<u8>);

impl Screen {
    fn line(&mut self, label: &str, value: &dyn std::fmt::Display) -> io::Result<()> {
        writeln!(self.0, "{label:<19}{value}")
    }
}

fn connection_string(address: SocketAddr, key_name: Option<&str>) -> String {
    // A real secret is known to whoever gave it; here it would only end up in a log.
    let (name, secret) = match key_name {
        Some(name) => (name, "***"),
        None => (WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET),
    };
    format!(
        "Endpoint=sb://{address};SharedAccessKeyName={name};SharedAccessKey={secret};UseDevelopmentEmulator=true;"
    )
}

fn queue_names(names: &[String]) -> String {
    match names.len() {
        0 => "none; create one with `peeklock queue create NAME`".to_owned(),
        1..=QUEUE_NAMES_SHOWN_MAX => names.join(", "),
        count => format!("{count}; see them with `peeklock queue list`"),
    }
}

pub(crate) fn plural(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Ctrl-C and the polite kill.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn listen() -> Result<Self> {
        let signal = |kind| signal(kind).context("cannot listen for signals");
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
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
    fn many_queues_are_counted_instead_of_named() {
        let names = |count: usize| (0..count).map(|n| format!("q{n}")).collect::<Vec<_>>();
        assert!(queue_names(&[]).starts_with("none"));
        assert_eq!(queue_names(&names(2)), "q0, q1");
        assert!(queue_names(&names(500)).starts_with("500;"));
    }
}
