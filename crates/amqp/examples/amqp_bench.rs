//! Measures the connection machine alone: a client sends, a server receives and settles each message, both in memory
//! and on one thread. Prints nanoseconds per message and side: the median over batches of one read each, so that other
//! load on the machine has little effect.
//!
//! `cargo run --release -p peeklock-amqp --example amqp_bench [messages]`

#![allow(clippy::disallowed_methods)] // Measuring needs a clock.

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use peeklock_amqp::connection::{AttachReply, Config, Connection, Event, LinkId, Millis, Outgoing};
use peeklock_amqp::{Attach, DeliveryState, DeliveryTag, Role, Source, Target};

const PAYLOAD_LEN: usize = 256;
const CREDIT: u32 = 1_000;
/// The size of one read from a socket.
const READ_LEN: usize = 64 * 1024;

/// One end of the connection, its unread input, and the time that it has used.
struct End {
    connection: Connection,
    input: BytesMut,
    busy: Duration,
    /// Nanoseconds per message, one value per batch.
    costs: Vec<f64>,
}

impl End {
    fn end_batch(&mut self, message_count: u32) {
        let busy = std::mem::take(&mut self.busy);
        if message_count > 0 {
            self.costs.push(busy.as_nanos() as f64 / f64::from(message_count));
        }
    }

    fn median(&mut self) -> f64 {
        self.costs.sort_by(f64::total_cmp);
        self.costs.get(self.costs.len() / 2).copied().unwrap_or_default()
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            input: BytesMut::with_capacity(2 * READ_LEN),
            busy: Duration::ZERO,
            costs: Vec::new(),
        }
    }
}

fn main() {
    let count: u32 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(3_000_000);
    for settle_range in [1, 100] {
        run(count / 10, settle_range, false);
        run(count, settle_range, true);
    }
}

fn run(count: u32, settle_range: usize, report: bool) {
    let mut sender = End::new(Connection::client(Config::client("sender", "host"), None, Millis(0)));
    let mut receiver = End::new(Connection::server(Config::server("receiver"), Millis(0)));
    let (near, far) = link(&mut sender, &mut receiver);
    let (mut sent, mut settled) = (0, 0);
    let payload = vec![7; PAYLOAD_LEN];
    while settled < count {
        let sent_before = sent;
        let start = Instant::now();
        settled += take_outcomes(&mut sender);
        while sent < count && sender.connection.credit(near) > 0 {
            let tag = DeliveryTag::from([sent.to_le_bytes()[0]; 16]);
            let delivery = Outgoing { tag, message_format: 0, settled: false, state: None };
            sender.connection.send(near, &delivery, &[&payload]).expect("there is credit");
            sent += 1;
        }
        sender.busy += start.elapsed();
        carry(&mut sender, &mut receiver);
        let start = Instant::now();
        take_deliveries(&mut receiver, far, settle_range);
        receiver.busy += start.elapsed();
        carry(&mut receiver, &mut sender);
        sender.end_batch(sent - sent_before);
        receiver.end_batch(sent - sent_before);
    }
    if report {
        println!(
            "{count} messages of {PAYLOAD_LEN} B, credit {CREDIT}, dispositions of {settle_range}: sender {:.0} ns, receiver {:.0} ns",
            sender.median(),
            receiver.median(),
        );
    }
}

fn take_outcomes(sender: &mut End) -> u32 {
    sender.connection.handle_input(Millis(0), &mut sender.input).expect("our own frames");
    let mut settled = 0;
    while let Some(event) = sender.connection.poll_event() {
        settled += u32::from(matches!(event, Event::Disposition { settled: true, .. }));
    }
    settled
}

/// Settles the messages with one disposition for each `settle_range` of them.
fn take_deliveries(receiver: &mut End, link: LinkId, settle_range: usize) {
    receiver.connection.handle_input(Millis(0), &mut receiver.input).expect("our own frames");
    let mut in_range = 0;
    while let Some(event) = receiver.connection.poll_event() {
        if let Event::Delivery { link, delivery } = event {
            black_box(&delivery.payload);
            receiver.connection.settle(link, delivery.id, DeliveryState::Accepted);
            in_range += 1;
            if in_range == settle_range {
                in_range = 0;
                black_box(receiver.connection.output().len());
            }
        }
    }
    if receiver.connection.credit(link) <= CREDIT / 2 {
        receiver.connection.set_credit(link, CREDIT);
    }
}

/// Copies the output to the input of the other end, like a socket. The copy is not measured.
fn carry(from: &mut End, to: &mut End) {
    let start = Instant::now();
    let out = from.connection.output();
    from.busy += start.elapsed();
    to.input.reserve(out.len());
    to.input.extend_from_slice(out);
    out.clear();
}

fn link(client: &mut End, server: &mut End) -> (LinkId, LinkId) {
    let session = client.connection.begin().expect("a session");
    let attach = Attach {
        source: Some(Source::with_address("bench")),
        target: Some(Target::with_address("bench")),
        ..Attach::new("bench", 0, Role::Sender)
    };
    let near = client.connection.attach(session, attach).expect("a link");
    carry(client, server);
    server.connection.handle_input(Millis(0), &mut server.input).expect("our own frames");
    let far = std::iter::from_fn(|| server.connection.poll_event()).find_map(|event| match event {
        Event::Attach { link, .. } => Some(link),
        _ => None,
    });
    let far = far.expect("the attach");
    server.connection.accept(far, AttachReply::default());
    server.connection.set_credit(far, CREDIT);
    carry(server, client);
    take_outcomes(client);
    (near, far)
}
