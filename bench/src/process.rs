//! Runs a server as a child process and reads its CPU time and memory from the kernel.

use std::process::{Child, ChildStdout, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A child process that ends when this is dropped.
pub(crate) struct Process {
    child: Child,
    name: &'static str,
}

impl Process {
    pub(crate) fn spawn(name: &'static str, command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Process { child, name })
    }

    pub(crate) fn take_stdout(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().with_context(|| format!("{} has no stdout", self.name))
    }

    /// Sends SIGTERM, as an operator would, and waits for the end.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns an error if the process has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended with {status}", self.name),
            None => Ok(()),
        }
    }

    /// Returns the CPU time so far of the process and its ended children, in user and kernel mode.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        let text = self.read("stat")?;
        // The name may contain spaces and brackets; only numbers follow its last bracket.
        let (_, rest) = text.rsplit_once(')').context("/proc/…/stat has another form")?;
        let fields: Vec<u64> =
            rest.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
        if fields.len() < 4 {
            bail!("/proc/…/stat has another form");
        }
        let ticks: u64 = fields.iter().sum();
        Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Returns the memory in use.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// Returns the most memory in use since [`Process::forget_peak`].
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        self.status_bytes("VmHWM:")
    }

    pub(crate) fn forget_peak(&self) -> Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    fn status_bytes(&self, label: &str) -> Result<u64> {
        let text = self.read("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix(label)).context("no such line")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("no number")?;
        Ok(kib * 1024)
    }

    fn read(&self, file: &str) -> Result<String> {
        Ok(std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("{} could not be ended: {error}", self.name);
        }
    }
}
