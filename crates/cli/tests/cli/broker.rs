//! A broker process for one test, and commands against it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The time limit for each step. It is generous, because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn peeklock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    // Variables of the user's shell must not affect a test.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PEEKLOCK_") || name == "RUST_LOG")
    {
        command.env_remove(name);
    }
    command
}

/// A running broker. It is killed when dropped, unless it was stopped.
pub(crate) struct Broker {
    process: Child,
    pub(crate) labels: HashMap<String, String>,
    lines: mpsc::Receiver<String>,
    folder: TempDir,
}

impl Broker {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(TempDir::new().unwrap(), arguments)
    }

    pub(crate) fn start_in(folder: TempDir, arguments: &[&str]) -> Self {
        let mut command = serve(&data_of(&folder));
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = read_lines(process.stdout.take().unwrap());
        let mut broker = Broker { process, labels: HashMap::new(), lines, folder };
        broker.read_labels();
        broker
    }

    fn read_labels(&mut self) {
        while !self.labels.contains_key("Ready") {
            let line = self.next_line();
            let (label, value) = line.split_once("  ").unwrap_or((&line, ""));
            self.labels.insert(label.to_owned(), value.trim().to_owned());
        }
        assert_eq!(self.next_line(), "Press Ctrl-C to stop");
    }

    pub(crate) fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the broker prints no further line")
    }

    pub(crate) fn data(&self) -> PathBuf {
        data_of(&self.folder)
    }

    pub(crate) fn address(&self) -> &str {
        &self.labels["AMQP"]
    }

    pub(crate) fn connection_string(&self) -> &str {
        &self.labels["Connection string"]
    }

    /// Runs a command with the broker's connection string and returns its output. Asserts success.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        text_of(&self.command(arguments).output().unwrap())
    }

    /// Runs a command and returns its error output. Asserts failure.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        failure_of(&self.command(arguments).output().unwrap())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = peeklock();
        command.args(arguments).args(["--connect", self.connection_string()]);
        command
    }

    /// Sends a signal and waits for the end. Returns the exit code and the folder for a restart.
    pub(crate) fn stop_with(mut self, signal: &str) -> (i32, TempDir) {
        self.signal(signal);
        assert_eq!(self.next_line(), "Stopping…");
        assert_eq!(self.next_line(), "Stopped, everything is on disk");
        let code = self.wait();
        (code, self.take_folder())
    }

    pub(crate) fn kill(mut self) -> TempDir {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.take_folder()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &process]).status().unwrap().success());
    }

    pub(crate) fn wait(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "the broker does not end");
            thread::yield_now();
        }
    }

    fn take_folder(&mut self) -> TempDir {
        std::mem::replace(&mut self.folder, TempDir::new().unwrap())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn data_of(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

/// Returns `serve` on free loopback ports, without TLS.
pub(crate) fn serve(data: &Path) -> Command {
    let mut command = peeklock();
    command.arg("serve").arg("--data").arg(data).args(["--listen", "127.0.0.1:0", "--http", "off"]);
    command.args(["--blob-port", "off", "--queue-port", "off"]);
    command
}

/// Reads to the end even without a receiver: a full pipe would block the broker.
fn read_lines(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(stdout.take(u64::MAX)).lines();
        lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    lines
}

pub(crate) fn text_of(output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the command failed: {stdout}{stderr}");
    stdout.into_owned()
}

/// Returns the error output of a command. Asserts exit code 1 and one line.
pub(crate) fn failure_of(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}
