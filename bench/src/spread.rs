//! Measures traffic that is spread over many queues against the same clients on one queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use peeklock_client::{Client, Encode, EntityName, Message, Outcome, Pipeline, QueueSettings, QueueSpec};

use crate::Arguments;
use crate::broker::Broker;
use crate::load::{self, Load, Measured};
use crate::report::{Row, Target};

const QUEUES: usize = 1_000;
const CONNECTIONS: usize = 8;
const BODY_BYTES: usize = 1024;
/// The number of links of a connection at most; each takes a session of the connection.
const LINKS_MAX: usize = 125;
/// The number of admin connections that create the queues.
const CREATORS: usize = 8;
const UNCONFIRMED: usize = 256;
/// The credit of one receiver over all its links.
const CREDIT: usize = 1_000;
const RECEIVED_AT_ONCE: usize = 256;

/// The clients of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) queues: usize,
    /// The number of senders, and the number of receivers.
    pub(crate) connections: usize,
    /// Whether each sender shares its connection with a receiver.
    pub(crate) is_shared: bool,
    /// The messages of one sender that may be unconfirmed over all its links.
    pub(crate) unconfirmed: usize,
    /// The links of each connection. Connection `c` has its link `l` at queue `c + l * connections`, modulo the number of queues.
    pub(crate) links: usize,
    pub(crate) body_bytes: usize,
}

impl Shape {
    /// Returns eight senders and eight receivers that together have a sender and a receiver at each queue. A connection has a limited
    /// number of links, so more queues need more connections, with as many messages in flight in all.
    pub(crate) fn over_queues(queues: usize, body_bytes: usize) -> Self {
        let connections = queues.div_ceil(LINKS_MAX).max(CONNECTIONS);
        Shape {
            queues,
            connections,
            is_shared: false,
            unconfirmed: UNCONFIRMED * CONNECTIONS / connections,
            links: queues.div_ceil(connections),
            body_bytes,
        }
    }

    fn queue_of(&self, connection: usize, link: usize) -> String {
        name((connection + link * self.connections) % self.queues)
    }

    fn unconfirmed_of_link(&self) -> usize {
        (self.unconfirmed / self.links).max(1)
    }

    fn credit_of_link(&self) -> usize {
        (CREDIT / self.links).max(1)
    }
}

fn name(queue: usize) -> String {
    format!("q{queue}")
}

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let one = Shape::over_queues(1, BODY_BYTES);
    let many = Shape::over_queues(QUEUES, BODY_BYTES);
    let links = many.links;
    let shapes = [one, many, Shape { links, ..one }];
    let mut measured: [Vec<Measured>; 3] = Default::default();
    for _ in 0..arguments.repetitions {
        for (shape, measured) in shapes.iter().zip(&mut measured) {
            measured.push(load::runtime()?.block_on(measure(arguments, *shape))?);
        }
    }
    let [one, many, linked] = measured;
    let rates = |of: &[Measured]| of.iter().map(|once| once.rate).collect::<Vec<_>>();
    let ratios = |of: &[Measured]| many.iter().zip(of).map(|(many, one)| many.rate / one.rate).collect();
    let broker_cpu = |of: &[Measured]| of.iter().map(|once| micros(once.cpu_per_message)).collect();
    let client_cpu = |of: &[Measured]| of.iter().map(|once| micros(once.client_cpu_per_message)).collect();
    Ok(vec![
        Row::new("one queue, 1 KiB, 8 senders × 256 unconfirmed, 8 receivers", "messages/s", rates(&one)),
        Row::new(
            format!("1,000 queues, the same clients, each with a link at {links} of them"),
            "messages/s",
            rates(&many),
        ),
        Row::new("1,000 queues / one queue", "", ratios(&one)).target(Target::AtLeast(0.85)),
        Row::new("one queue: broker CPU per message", "µs", broker_cpu(&one)),
        Row::new("1,000 queues: broker CPU per message", "µs", broker_cpu(&many)),
        Row::new("one queue: client CPU per message", "µs", client_cpu(&one)),
        Row::new("1,000 queues: client CPU per message", "µs", client_cpu(&many)),
        Row::new(
            format!("one queue, the same clients, each with {links} links"),
            "messages/s",
            rates(&linked),
        ),
        Row::new("1,000 queues / one queue with as many links", "", ratios(&linked)),
        Row::new("one queue with as many links: broker CPU per message", "µs", broker_cpu(&linked)),
    ])
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Measures the clients of a shape with a broker of their own.
pub(crate) async fn measure(arguments: &Arguments, shape: Shape) -> Result<Measured> {
    let seconds = |quick, full| Duration::from_secs(if arguments.quick { quick } else { full });
    let broker = Broker::start_with(&arguments.data, &[])?;
    create(&broker, shape.queues).await?;
    let load = start(&broker, shape).await?;
    tokio::time::sleep(seconds(1, 2)).await;
    let measured = load.measure(&broker, seconds(2, 6)).await?;
    load.stop().await?;
    Ok(measured)
}

/// Creates the queues of a shape.
pub(crate) async fn create(broker: &Broker, queues: usize) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for creator in 0..CREATORS {
        let mut admin = broker.admin()?;
        tasks.spawn(async move {
            let lock_duration = Duration::from_secs(300);
            let spec = QueueSpec::of(&QueueSettings { lock_duration, ..QueueSettings::default() });
            for queue in (creator..queues).step_by(CREATORS) {
                admin.create_queue(&EntityName::parse(&name(queue))?, &spec).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Opens all links and starts the senders and receivers of a shape.
pub(crate) async fn start(broker: &Broker, shape: Shape) -> Result<Load> {
    let mut load = Load::new();
    let mut clients = Vec::new();
    for connection in 0..shape.connections {
        let client = broker.connect().await?;
        for link in 0..shape.links {
            let queue = shape.queue_of(connection, link);
            let credit = u32::try_from(shape.credit_of_link())?;
            let receiver = client.receiver(&queue).credit(credit).open().await?;
            load.spawn(|completed, _| receive(receiver, completed));
        }
        clients.push(client);
    }
    let mut senders = Vec::new();
    for (connection, client) in clients.into_iter().enumerate() {
        let client = if shape.is_shared { client } else { broker.connect().await? };
        senders.push(open_pipelines(&client, shape, connection).await?);
    }
    let payload = Message::data(vec![b'x'; shape.body_bytes]).to_bytes();
    for links in senders {
        let payload = payload.clone();
        load.spawn(|_, stopping| send(links, payload, shape.unconfirmed, stopping));
    }
    Ok(load)
}

async fn open_pipelines(client: &Client, shape: Shape, connection: usize) -> Result<Vec<Pipeline>> {
    let mut links = Vec::with_capacity(shape.links);
    let unconfirmed = u32::try_from(shape.unconfirmed_of_link())?;
    for link in 0..shape.links {
        links.push(client.pipeline(&shape.queue_of(connection, link), unconfirmed).await?);
    }
    Ok(links)
}

/// Sends one message over each link in turn.
async fn send(
    mut links: Vec<Pipeline>,
    payload: Bytes,
    unconfirmed: usize,
    stopping: Arc<AtomicBool>,
) -> Result<()> {
    let count = links.len();
    for link in (0..count).cycle() {
        if stopping.load(Ordering::Relaxed) {
            return Ok(());
        }
        if count > unconfirmed {
            // The message that was sent `unconfirmed` links ago is confirmed before the next is sent.
            let earlier = (link + count - unconfirmed) % count;
            links.get_mut(earlier).context("no such link")?.flush().await?;
        }
        links.get_mut(link).context("no such link")?.send_encoded(payload.clone()).await?;
    }
    Ok(())
}

async fn receive(mut receiver: peeklock_client::Receiver, completed: Arc<AtomicU64>) -> Result<()> {
    let mut deliveries = Vec::new();
    let mut counted = 0;
    loop {
        receiver.next_many(&mut deliveries, RECEIVED_AT_ONCE).await?;
        receiver.settle_many(deliveries.drain(..), Outcome::Complete).await?;
        let confirmed = receiver.confirmed_count();
        completed.fetch_add(confirmed - counted, Ordering::Relaxed);
        counted = confirmed;
    }
}
