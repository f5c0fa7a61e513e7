//! Starts a broker for a test, reads its address from its output, and stops it with the test.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

const START_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Broker {
    process: Child,
    pub(crate) address: String,
    _data: TempDir,
}

impl Broker {
    pub(crate) fn start(queues: &[&str]) -> Result<Self> {
        let binary = std::env::var_os("PEEKLOCK_BIN")
            .context("PEEKLOCK_BIN does not name the broker to test; run `cargo xtask test --only fe2o3`")?;
        let data = TempDir::new()?;
        let mut command = Command::new(binary);
        command.arg("serve").arg("--data").arg(data.path());
        command.args(["--listen", "127.0.0.1:0", "--listen-tls", "off", "--http", "off"]);
        command.args(["--blob-port", "off", "--queue-port", "off"]);
        command.args(queues.iter().flat_map(|queue| ["--queue", queue]));
        let mut process = command.stdout(Stdio::piped()).spawn().context("cannot start the broker")?;
        let stdout = process.stdout.take().context("the broker has no stdout")?;
        // This value stops the broker when it is dropped, so it exists before any error can occur.
        let mut broker = Broker { process, address: String::new(), _data: data };
        broker.address = address_when_ready(stdout)?;
        Ok(broker)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("the broker could not be ended: {error}");
        }
    }
}

fn address_when_ready(stdout: ChildStdout) -> Result<String> {
    let (sender, lines) = mpsc::channel();
    // Reads to the end even after the receiver is gone: a full pipe would block the broker.
    thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)))
    });
    let mut address = None;
    loop {
        let line = lines.recv_timeout(START_TIMEOUT).context("the broker is not ready")?;
        match line.split_once("  ") {
            Some(("AMQP", value)) => address = Some(value.trim().to_owned()),
            Some(("Ready", _)) => break,
            _ => {}
        }
    }
    match address {
        Some(address) => Ok(address),
        None => bail!("the broker is ready but printed no AMQP address"),
    }
}
