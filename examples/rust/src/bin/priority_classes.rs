//! Priority Queue with one queue: the broker has classes of messages and gives each free worker the most urgent one. Orders that arrive while
//! a backlog waits overtake it, and need no pool of their own.

use peeklock::admin::{OrderPolicy, Queue};
use peeklock::handler::{HandlerError, Json, State};
use peeklock::{Client, Error, Message, Priority};
use peeklock_examples::{STOP, connect, new_queue};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

const QUEUE: &str = "tasks";
const EACH_COUNT: usize = 10;
const CLASSES: [&str; 3] = ["high", "normal", "low"];

#[derive(Serialize, Deserialize)]
struct Task {
    class: String,
}

type Started = mpsc::UnboundedSender<String>;

async fn work(Json(task): Json<Task>, State(started): State<Started>) -> Result<(), HandlerError> {
    started.send(task.class).map_err(HandlerError::fatal)
}

/// Sends the least urgent tasks first.
async fn send_backlog(client: &Client) -> Result<(), Error> {
    let tasks = client.sender(QUEUE).await?;
    for class in CLASSES.into_iter().rev() {
        for _ in 0..EACH_COUNT {
            let message = Message::json(&Task { class: class.to_owned() })?;
            tasks.send(message.priority(Priority::Class(class.into()))).await?;
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = connect().await?;
    new_queue(&client, QUEUE, Queue::new().classes(CLASSES).order(OrderPolicy::Strict)).await?;
    send_backlog(&client).await?;

    let (started, mut order) = mpsc::unbounded_channel();
    let worker = client.processor(QUEUE).handler(work).state::<Started>(started).start().await?;
    for _ in 0..CLASSES.len() {
        let mut run = Vec::new();
        while run.len() < EACH_COUNT {
            run.extend(order.recv().await);
        }
        println!("{}", run.join(" "));
    }
    println!("{}", worker.stop(STOP).await?);
    client.close().await;
    Ok(())
}
