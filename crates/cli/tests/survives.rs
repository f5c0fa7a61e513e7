//! A program with the SDK sends and works while the broker is killed and restarted again and again. It has no code for that, and loses nothing.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use peeklock::{Client, Error, Message};
use tempfile::TempDir;
use tokio::sync::watch;

const KILLS: u32 = 50;
/// Messages that were locked on a broken connection come back after it.
const QUEUE: &str = "jobs,lock=20s,max-delivery=1000,duplicate-window=1h";
const KEY: &str = "app=secret:Manage";

/// The broker's process, which always serves the same folder on the same port.
struct Broker {
    folder: TempDir,
    port: u16,
    process: Child,
}

impl Broker {
    fn start() -> Self {
        let (folder, port) = (TempDir::new().unwrap(), free_port());
        let process = spawn(&folder, port);
        Broker { folder, port, process }
    }

    fn kill_and_restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = spawn(&self.folder, self.port);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(folder: &TempDir, port: u16) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PEEKLOCK_") || name == "RUST_LOG")
    {
        command.env_remove(name);
    }
    command.arg("serve").arg("--data").arg(folder.path().join("data"));
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--http", "off"]);
    command.args(["--blob-port", "off", "--queue-port", "off", "--queue", QUEUE, "--key", KEY]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Returns a port below the range for outgoing connections: a client that dials a port of that range while no broker listens can connect to
/// itself.
fn free_port() -> u16 {
    (20_000..32_000)
        .map(|port| port + u16::try_from(std::process::id() % 1000).unwrap())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

/// Sends numbered messages until it is told to stop. Returns their number.
async fn send(client: Client, is_stopping: Arc<AtomicBool>) -> Result<u32, Error> {
    let jobs = client.sender("jobs").await?;
    let mut count = 0;
    while !is_stopping.load(Ordering::Relaxed) {
        jobs.send(Message::text(count.to_string())).await?;
        count += 1;
    }
    Ok(count)
}

/// Receives messages and completes them.
async fn work(
    client: Client,
    completed: Arc<Mutex<BTreeSet<u32>>>,
    count: watch::Sender<u32>,
) -> Result<(), Error> {
    let mut jobs = client.receiver("jobs").prefetch(20).open().await?;
    while let Some(delivery) = jobs.next().await? {
        let number = delivery.message().body_text().parse().unwrap();
        assert!(!completed.lock().unwrap().contains(&number), "message {number} came back");
        delivery.complete().await?;
        completed.lock().unwrap().insert(number);
        count.send_modify(|count| *count += 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_survives_fifty_kills_without_code_for_it() {
    let mut broker = Broker::start();
    // Nothing listens at the first address of the target.
    let url = format!("amqp://app:secret@127.0.0.1:1,127.0.0.1:{}", broker.port);
    // The first connection is tried only briefly, so the broker must be up.
    let client = loop {
        match Client::connect(&url).await {
            Ok(client) => break client,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    };
    let (is_stopping, completed) = (Arc::<AtomicBool>::default(), Arc::<Mutex<BTreeSet<u32>>>::default());
    let (count, mut progress) = watch::channel(0);
    let sending = tokio::spawn(send(client.clone(), Arc::clone(&is_stopping)));
    let working = tokio::spawn(work(client.clone(), Arc::clone(&completed), count));
    for number in 0..KILLS {
        // Each kill follows some work, and a few come while the broker starts.
        let more = if number % 7 == 6 { 0 } else { fastrand::u32(1..150) };
        let enough = *progress.borrow() + more;
        progress.wait_for(|count| *count >= enough).await.expect("the worker runs");
        broker.kill_and_restart();
    }
    is_stopping.store(true, Ordering::Relaxed);
    let sent = sending.await.unwrap().unwrap();
    progress.wait_for(|count| *count >= sent).await.expect("the worker runs");
    assert_eq!(*completed.lock().unwrap(), (0..sent).collect());
    assert!(client.peek("jobs", Default::default(), 10).await.unwrap().is_empty());
    assert!(client.peek("jobs/$DeadLetterQueue", Default::default(), 10).await.unwrap().is_empty());
    client.close().await;
    assert!(working.await.unwrap().is_err(), "a closed client ends its receivers");
    println!("{sent} messages were sent and completed over {KILLS} kills");
}
