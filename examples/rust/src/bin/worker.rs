//! A worker as a program of its own: prints each message that it works on, and each that it has completed, with the time in nanoseconds. It
//! stops at the end of its input. The interop tests run it beside workers with other SDKs while the broker is killed.
//!
//! ```text
//! cargo run -p peeklock-examples --bin worker amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672 jobs
//! ```

use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock::handler::{Context, HandlerError, Text};
use peeklock::{Client, Error};
use peeklock_examples::STOP;

/// The time that the work on one message takes.
const WORK: Duration = Duration::from_millis(20);

async fn work(Text(job): Text, context: Context) -> Result<(), HandlerError> {
    report("worked", &job);
    tokio::time::sleep(WORK).await;
    context.complete().await?;
    report("completed", &job);
    Ok(())
}

fn report(what: &str, job: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    println!("{what} {job} {now}");
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let (Some(target), Some(queue)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: worker CONNECTION QUEUE");
        std::process::exit(2);
    };
    let client = Client::connect(&target).await?;
    let worker =
        client.processor(&queue).handler(work).auto_complete(false).max_concurrent(4).start().await?;
    let end = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = end.await;
    println!("stopped {}", worker.stop(STOP).await?);
    client.close().await;
    Ok(())
}
