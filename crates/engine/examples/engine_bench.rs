//! Measures the engine's time and memory per message: `cargo run --release -p peeklock-engine --example engine_bench`.
//!
//! There is no journal and no socket, so the result is the cost of the decisions. Each line is the best and the median
//! of several rounds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use peeklock_engine::{
    Engine, EntityId, NewMessage, Output, ReceiveMode, ReceiverId, SessionWish, Settlement, record,
};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityName, LockToken, Placement, QueueSettings, SubQueue, Timestamp,
};

/// The system's allocator with a count of the bytes in use.
struct Counting;

static IN_USE_BYTES: AtomicUsize = AtomicUsize::new(0);

#[expect(
    unsafe_code,
    reason = "an allocator is unsafe by its signature; it forwards all calls to the system's allocator"
)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const RECEIVER: ReceiverId = ReceiverId(1);
const ROUNDS: usize = 9;

struct Bench {
    engine: Engine,
    queue: EntityId,
    out: Output,
    now: Timestamp,
    group: CommitGroupNumber,
    nonce: u64,
}

impl Bench {
    fn new() -> Bench {
        let (mut engine, mut out) = (Engine::default(), Output::default());
        let name = EntityName::parse("orders").expect("the name is valid");
        let now = Timestamp::from_millis(1_700_000_000_000);
        let queue =
            engine.create_queue(now, name, QueueSettings::default(), &mut out).expect("the name is new");
        engine
            .attach_receiver(now, queue, SubQueue::Main, RECEIVER, ReceiveMode::PeekLock, SessionWish::None)
            .expect("the receiver is new");
        engine.add_window(RECEIVER, i64::MAX);
        Bench { engine, queue, out, now, group: CommitGroupNumber(1), nonce: 0 }
    }

    fn send(&mut self, count: u32) {
        self.group = self.group.next();
        let place = |n| BodyRef::in_group(self.group, n * 1024).expect("the offset is small");
        let batch: Vec<_> =
            (0..count).map(|n| NewMessage { body: place(n), size_bytes: 1024, attributes: None }).collect();
        self.engine.send(self.now, self.queue, batch, &mut self.out).expect("the batch is valid");
    }

    fn deliver(&mut self, tokens: &mut Vec<LockToken>) {
        let nonce = &mut self.nonce;
        let mut nonces = || {
            *nonce = nonce.wrapping_add(0x9e37_79b9_7f4a_7c15);
            *nonce
        };
        black_box(self.engine.deliver(self.now, &mut nonces, &mut self.out));
        tokens.extend(self.out.deliveries.iter().map(|delivery| delivery.token));
    }

    fn complete(&mut self, tokens: &mut Vec<LockToken>) {
        for token in tokens.drain(..) {
            let (queue, out) = (self.queue, &mut self.out);
            let done = self.engine.settle(self.now, queue, SubQueue::Main, token, Settlement::Complete, out);
            done.expect("the lock is held");
        }
    }

    fn end_of_batch(&mut self) {
        black_box(&self.out);
        self.out.clear();
        self.now = self.now + Duration::from_millis(1);
    }
}

/// Sends, delivers and completes batches of `batch` messages. Returns nanoseconds per message.
fn pipeline(batch: u32, message_count: u32, facts_too: bool) -> f64 {
    let mut bench = Bench::new();
    let (mut tokens, mut bytes) = (Vec::new(), Vec::new());
    let started = now();
    for _ in 0..message_count / batch {
        bench.send(batch);
        bench.engine.set_credit(RECEIVER, batch);
        bench.deliver(&mut tokens);
        bench.complete(&mut tokens);
        if facts_too {
            bytes.clear();
            bench.out.facts.iter().for_each(|fact| record::encode(fact, bench.group, &mut bytes));
            black_box(&bytes);
        }
        bench.end_of_batch();
    }
    per_message(started, message_count)
}

/// Like `pipeline`, with a million messages waiting and a thousand locked.
fn backlog(message_count: u32) -> f64 {
    let mut bench = Bench::new();
    let mut tokens = Vec::new();
    for _ in 0..1000 {
        bench.send(1000);
        bench.end_of_batch();
    }
    bench.engine.set_credit(RECEIVER, 1000);
    bench.deliver(&mut tokens);
    bench.end_of_batch();
    let mut held = std::mem::take(&mut tokens);
    let started = now();
    for _ in 0..message_count / 100 {
        bench.send(100);
        bench.engine.set_credit(RECEIVER, 100);
        bench.deliver(&mut tokens);
        held.append(&mut tokens);
        let mut oldest: Vec<_> = held.drain(..100).collect();
        bench.complete(&mut oldest);
        bench.end_of_batch();
    }
    per_message(started, message_count)
}

fn memory() {
    let before = IN_USE_BYTES.load(Ordering::Relaxed);
    let mut bench = Bench::new();
    for _ in 0..1000 {
        bench.send(1000);
        bench.end_of_batch();
    }
    bench.out = Output::default();
    let used = IN_USE_BYTES.load(Ordering::Relaxed) - before;
    println!("1,000,000 waiting messages            {:6.1} bytes each", used as f64 / 1e6);
    let started = now();
    let snapshot = bench.engine.snapshot();
    let taken = started.elapsed();
    let started = now();
    black_box(Engine::restore(&snapshot, Placement::default()).expect("the snapshot is valid"));
    let size = snapshot.len() as f64 / 1e6;
    println!("snapshot of them: {taken:.1?}, {size:.1} bytes each; restore: {:.1?}", started.elapsed());
}

#[expect(clippy::disallowed_methods, reason = "a benchmark needs a clock")]
fn now() -> Instant {
    Instant::now()
}

fn per_message(started: Instant, message_count: u32) -> f64 {
    started.elapsed().as_nanos() as f64 / f64::from(message_count)
}

fn report(what: &str, run: impl Fn() -> f64) {
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    times.sort_by(f64::total_cmp);
    println!("{what:37} {:6.1} ns best, {:6.1} ns median per message", times[0], times[ROUNDS / 2]);
}

fn main() {
    report("send + deliver + complete, batch 1", || pipeline(1, 500_000, false));
    report("send + deliver + complete, batch 100", || pipeline(100, 1_000_000, false));
    report("the same, with records encoded", || pipeline(100, 1_000_000, true));
    report("the same with 1,000,000 waiting", || backlog(1_000_000));
    memory();
}
