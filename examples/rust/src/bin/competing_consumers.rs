//! Competing Consumers: several workers take jobs from one queue. A worker can come, pause, fail or die at any moment; each job is worked on
//! at least once, and a completed job does not come back.
//!
//! The pump has ten concurrent calls and settles its messages itself: auto-complete is off.

use std::collections::BTreeMap;
use std::time::Duration;

use peeklock::handler::{Context, HandlerError, Json, State};
use peeklock::processor::{Processor, ProcessorBuilder};
use peeklock::{Client, Delayed, Error, Message, Retry, admin::Queue};
use peeklock_examples::{STOP, connect, new_queue};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

const QUEUE: &str = "jobs";
const JOB_COUNT: u32 = 120;

#[derive(Serialize, Deserialize)]
struct Job {
    number: u32,
}

/// A report of a worker: its name, and the job that it has worked on.
type Worked = (&'static str, u32);

/// The state of a worker.
#[derive(Clone)]
struct Worker {
    name: &'static str,
    worked: mpsc::UnboundedSender<Worked>,
}

impl Worker {
    fn report(&self, job: &Job) -> Result<(), HandlerError> {
        self.worked.send((self.name, job.number)).map_err(HandlerError::fatal)
    }
}

/// Works on a job, and completes it itself.
async fn pump(
    Json(job): Json<Job>,
    State(worker): State<Worker>,
    context: Context,
) -> Result<(), HandlerError> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    worker.report(&job)?;
    Ok(context.complete().await?)
}

/// Works on a job; the job is completed when it returns.
async fn steady(Json(job): Json<Job>, State(worker): State<Worker>) -> Result<(), HandlerError> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    worker.report(&job)
}

/// Fails. The job comes back after a delay, for any worker.
async fn failing(Json(job): Json<Job>) -> Result<(), HandlerError> {
    tokio::time::sleep(Duration::from_millis(10)).await;
    Err(HandlerError::retry(format!("job {} needs a tool that is broken here", job.number)))
}

/// Never ends. Its process dies with the job in its hands.
async fn stuck() {
    std::future::pending::<()>().await;
}

fn worker(client: &Client, name: &'static str, worked: &mpsc::UnboundedSender<Worked>) -> ProcessorBuilder {
    client.processor(QUEUE).name(name).state(Worker { name, worked: worked.clone() })
}

/// Starts a worker in a runtime of its own, as if it were another process, and kills it in the middle of a job.
async fn kill_one(client: &Client) -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let client = client.clone();
    let started = runtime.spawn(async move {
        let worker = client.processor(QUEUE).name("killed").handler(stuck).start().await?;
        let running = worker.status().wait_for(|status| status.running == 1).await.is_ok();
        Ok::<_, Error>(running)
    });
    if let Ok(running) = started.await {
        println!("killed: dies with {} job in its hands", u32::from(running?));
    }
    runtime.shutdown_background();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = connect().await?;
    // The job of a dead worker comes back when its lock ends.
    let jobs = Queue::new().lock_duration(Duration::from_secs(2)).max_delivery_count(50);
    new_queue(&client, QUEUE, jobs).await?;
    let sender = client.sender(QUEUE).await?;
    for number in 0..JOB_COUNT {
        sender.send(Message::json(&Job { number })?.message_id(format!("job-{number}"))).await?;
    }

    let (worked, mut reports) = mpsc::unbounded_channel();
    kill_one(&client).await?;
    let later = Retry::immediate(0).then(Delayed::fixed(Duration::from_millis(200), 20));
    let failing = worker(&client, "failing", &worked).handler(failing).retry(later).start().await?;
    let pausing = worker(&client, "pausing", &worked).handler(steady).start().await?;
    let pump = worker(&client, "pump", &worked).handler(pump).auto_complete(false).max_concurrent(10);
    let mut workers = vec![pump.start().await?, failing];

    let mut seen: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    while let Some((name, number)) = reports.recv().await {
        let names = seen.entry(number).or_default();
        names.push(name);
        if names.len() > 1 {
            continue;
        }
        match seen.len() {
            20 => pausing.pause().await?,
            40 => workers.push(worker(&client, "late", &worked).handler(steady).start().await?),
            60 => pausing.resume().await?,
            _ => {}
        }
        if seen.len() == JOB_COUNT as usize {
            break;
        }
    }
    workers.push(pausing);
    finish(&client, &workers, &seen).await
}

/// Stops the workers and shows that no job is left.
async fn finish(
    client: &Client,
    workers: &[Processor],
    seen: &BTreeMap<u32, Vec<&str>>,
) -> Result<(), Error> {
    for worker in workers {
        println!("{}: {}", worker.name(), worker.stop(STOP).await?);
    }
    let repeated = seen.values().filter(|names| names.len() > 1).count();
    println!("{} jobs worked on, {repeated} of them more than once", seen.len());
    let counts = client.admin().queue(QUEUE).await?.counts;
    println!("left in the queue: {}, dead-lettered: {}", counts.active_count, counts.dead_letter_count);
    client.clone().close().await;
    Ok(())
}
