//! Runs the broker as a process of its own with a data directory of its own.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use peeklock_client::{Admin, Client, Options, Target};
use tempfile::TempDir;

use crate::process::Process;

/// The queue of every scenario.
pub(crate) const QUEUE: &str = "work";

pub(crate) struct Broker {
    process: Process,
    labels: HashMap<String, String>,
    pub(crate) started: Instant,
    /// The time from the start of the process to its line `Ready`.
    pub(crate) ready_after: Duration,
    pub(crate) folder: TempDir,
}

impl Broker {
    pub(crate) fn start(data: &Path) -> Result<Self> {
        Self::start_with(data, &["--queue", "work,lock=5m"])
    }

    pub(crate) fn start_with(data: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_in(TempDir::with_prefix_in("peeklock-bench-", data)?, arguments)
    }

    /// Starts the broker again with its data directory.
    pub(crate) fn restart(self, arguments: &[&str]) -> Result<Self> {
        let Broker { mut process, folder, .. } = self;
        process.stop()?;
        Self::start_in(folder, arguments)
    }

    /// Kills the broker and starts it again with its data directory.
    pub(crate) fn restart_after_kill(self, arguments: &[&str]) -> Result<Self> {
        let Broker { process, folder, .. } = self;
        drop(process);
        Self::start_in(folder, arguments)
    }

    fn start_in(folder: TempDir, arguments: &[&str]) -> Result<Self> {
        let started = Instant::now();
        let mut command = Command::new(binary()?);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--listen-tls", "off", "--http", "off", "--data"])
            .arg(folder.path().join("data"))
            .args(arguments)
            .stdout(Stdio::piped());
        let mut process = Process::spawn("the broker", &mut command)?;
        let stdout = process.take_stdout()?;
        let mut broker =
            Broker { process, labels: HashMap::new(), started, ready_after: Duration::ZERO, folder };
        let mut lines = BufReader::new(stdout).lines();
        while !broker.labels.contains_key("Ready") {
            let line = lines.next().context("the broker ended before it was ready")??;
            let (label, value) = line.split_once("  ").unwrap_or((&line, ""));
            broker.labels.insert(label.to_owned(), value.trim().to_owned());
        }
        broker.ready_after = started.elapsed();
        // The broker prints nothing more before it ends, so the pipe cannot fill.
        Ok(broker)
    }

    pub(crate) async fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.target()?).await?)
    }

    pub(crate) fn admin(&self) -> Result<Admin> {
        Ok(Admin::new(&Target::parse(&self.target()?)?, &Options::default()))
    }

    pub(crate) fn target(&self) -> Result<String> {
        Ok(format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{}", self.address()?))
    }

    /// Returns the connection string for the SDKs.
    pub(crate) fn connection_string(&self) -> Result<String> {
        Ok(format!(
            "Endpoint=sb://{};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;",
            self.address()?
        ))
    }

    fn address(&self) -> Result<&str> {
        Ok(self.labels.get("AMQP").context("the broker printed no address")?)
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        self.process.cpu_time()
    }

    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.process.resident_bytes()
    }

    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        self.process.peak_bytes()
    }

    pub(crate) fn forget_peak(&self) -> Result<()> {
        self.process.forget_peak()
    }

    /// Returns the disk space of the data directory.
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        disk_bytes(self.folder.path())
    }
}

/// Returns the disk space of a folder.
pub(crate) fn disk_bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // The broker removes files while it runs.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        sum += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(sum)
}

pub(crate) fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("PEEKLOCK_BIN") {
        return Ok(path.into());
    }
    let beside = std::env::current_exe()?.with_file_name("peeklock");
    if beside.exists() {
        return Ok(beside);
    }
    bail!(
        "there is no broker at {}; build it with `cargo build --release -p peeklock-cli`, or name it in PEEKLOCK_BIN",
        beside.display()
    )
}
