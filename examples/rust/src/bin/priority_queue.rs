//! Priority Queue with a topic: two subscriptions with a filter each, and two pools of workers of different size. Urgent orders have a pool of
//! six and never wait behind the others, which have a pool of two.

use std::time::Duration;

use peeklock::admin::{Rule, Subscription};
use peeklock::handler::{HandlerError, Json, State};
use peeklock::processor::Processor;
use peeklock::{Client, Error, Message};
use peeklock_examples::{STOP, connect, new_topic};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

const TOPIC: &str = "orders";
const ORDER_COUNT: u32 = 30;
/// Each pool with the number of its workers, and the filter of its subscription.
const POOLS: [(&str, u32, &str); 2] =
    [("high", 6, "urgency = 'high'"), ("low", 2, "urgency <> 'high' OR urgency IS NULL")];

#[derive(Serialize, Deserialize)]
struct Order {
    number: u32,
}

/// Reports the pool and the number of an order.
#[derive(Clone)]
struct Pool(&'static str, mpsc::UnboundedSender<(&'static str, u32)>);

async fn work(Json(order): Json<Order>, State(Pool(name, done)): State<Pool>) -> Result<(), HandlerError> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    done.send((name, order.number)).map_err(HandlerError::fatal)
}

async fn send_orders(client: &Client) -> Result<(), Error> {
    let orders = client.sender(TOPIC).await?;
    for number in 1..=ORDER_COUNT {
        // Every third order is urgent.
        let urgency = if number % 3 == 0 { "high" } else { "low" };
        orders.send(Message::json(&Order { number })?.property("urgency", urgency)).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = connect().await?;
    let subscriptions =
        POOLS.map(|(name, _, filter)| (name, Subscription::new().rule("urgency", Rule::sql(filter))));
    new_topic(&client, TOPIC, subscriptions).await?;
    send_orders(&client).await?;

    let (done, mut reports) = mpsc::unbounded_channel();
    let mut pools: Vec<Processor> = Vec::new();
    for (name, size, _) in POOLS {
        let pool = client.processor(&format!("{TOPIC}/subscriptions/{name}")).name(name);
        let pool = pool.handler(work).state(Pool(name, done.clone())).max_concurrent(size);
        pools.push(pool.start().await?);
    }

    let mut order = Vec::new();
    while let Some((pool, number)) = reports.recv().await {
        println!("{pool}: order {number}");
        order.push(pool);
        if order.len() == ORDER_COUNT as usize {
            break;
        }
    }
    for pool in &pools {
        println!("{}: {}", pool.name(), pool.stop(STOP).await?);
    }
    let last_urgent = order.iter().rposition(|pool| *pool == "high").map_or(0, |place| place + 1);
    println!("the last urgent order was number {last_urgent} of {}", order.len());
    client.close().await;
    Ok(())
}
