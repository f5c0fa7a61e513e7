//! Runs the broker as a process of its own and reads its CPU time, memory and disk space from the kernel.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use peeklock_client::{Admin, Client, Options, Target};
use tempfile::TempDir;

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
        stop(&mut process)?;
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
        let mut process = Process(
            Command::new(binary()?)
                .args(["serve", "--listen", "127.0.0.1:0", "--listen-tls", "off", "--http", "off", "--data"])
                .arg(folder.path().join("data"))
                .args(arguments)
                .stdout(Stdio::piped())
                .spawn()
                .context("cannot start the broker")?,
        );
        let stdout = process.0.stdout.take().context("the broker has no stdout")?;
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

    fn target(&self) -> Result<String> {
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

    /// Returns the CPU time so far, in user and kernel mode.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.process.0.id()))?;
        // The name may contain spaces and brackets; only numbers follow its last bracket.
        let (_, rest) = text.rsplit_once(')').context("/proc/…/stat has another form")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok());
        let (Some(user), Some(kernel)) = (ticks(11), ticks(12)) else {
            bail!("/proc/…/stat has another form")
        };
        Ok(Duration::from_secs_f64((user + kernel) as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Returns the memory in use.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// Returns the most memory in use since [`Broker::forget_peak`].
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        self.status_bytes("VmHWM:")
    }

    pub(crate) fn forget_peak(&self) -> Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.process.0.id()), "5")?)
    }

    fn status_bytes(&self, label: &str) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix(label)).context("no such line")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("no number")?;
        Ok(kib * 1024)
    }

    /// Returns the disk space of the data directory.
    pub(crate) fn disk_bytes(&self) -> Result<u64> {
        disk_bytes(self.folder.path())
    }
}

/// A child process that ends when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("the broker could not be ended: {error}");
        }
    }
}

/// Sends SIGTERM to the broker, as an operator would.
fn stop(process: &mut Process) -> Result<()> {
    let pid = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    process.0.wait()?;
    Ok(())
}

/// Returns the disk space of a folder.
pub(crate) fn disk_bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(sum)
}

fn binary() -> Result<PathBuf> {
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
