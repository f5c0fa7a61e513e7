//! One queue with an order, and short functions to use it.

use std::collections::HashMap;
use std::time::Duration;

use peeklock_engine::{
    Attributes, Delivery, Engine, EntityId, Error, Fact, Message, NewMessage, OrderView, Output, ReceiveMode,
    ReceiverId, SessionWish, Settlement, record,
};
use peeklock_filter::{Value, ViewBuilder};
use peeklock_types::{
    BodyPlace, BodyRef, ClassName, ClassSettings, CommitGroupNumber, EntityName, LockToken, OrderPolicy,
    OrderSettings, Placement, QueueSettings, SequenceNumber, SessionId, SubQueue, TenantClass,
    TenantSettings, Timestamp,
};

pub(crate) const MAIN: SubQueue = SubQueue::Main;
pub(crate) const ABANDON: Settlement = Settlement::Abandon { patch: None, delay: None };

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn class_name(text: &str) -> ClassName {
    ClassName::parse(text).unwrap()
}

pub(crate) fn queue_name() -> EntityName {
    EntityName::parse("jobs").unwrap()
}

/// Returns a class for one priority; its name is `c` and the priority.
pub(crate) fn class(priority: u8) -> ClassSettings {
    ClassSettings::new(class_name(&format!("c{priority}")), (priority, priority))
}

/// Returns classes `c0` to `c{count - 1}`; the last is the most urgent one.
pub(crate) fn classes(policy: OrderPolicy, count: u8) -> OrderSettings {
    let mut order =
        OrderSettings { policy, classes: (0..count).map(class).collect(), ..OrderSettings::default() };
    order.sort();
    order
}

/// Returns one class of messages, with tenants by the property `tenant`; those of `tier` n have the weight
/// `weights[n]`.
pub(crate) fn fair(weights: &[u32]) -> OrderSettings {
    let tier = |(n, &weight): (usize, &u32)| TenantClass {
        when: Some(format!("tier = {n}")),
        weight_milli: weight * 1000,
        ..TenantClass::new(class_name(&format!("tier{n}")))
    };
    let classes = weights.iter().enumerate().map(tier).collect();
    let tenants = TenantSettings { key: "tenant".to_owned(), classes, default_class: None };
    OrderSettings { tenants: Some(tenants), ..OrderSettings::default() }
}

/// A message to send. `..Job::default()` sets no property.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    /// Selects the class `c{priority}`.
    pub(crate) priority: Option<u8>,
    pub(crate) tenant: Option<u32>,
    pub(crate) tier: Option<u32>,
    pub(crate) session: Option<u32>,
    pub(crate) ahead: Option<Duration>,
}

impl Job {
    pub(crate) fn of(priority: u8) -> Job {
        Job { priority: Some(priority), ..Job::default() }
    }

    pub(crate) fn by(tenant: u32, tier: u32) -> Job {
        Job { tenant: Some(tenant), tier: Some(tier), ..Job::default() }
    }

    fn attributes(&self, now: Timestamp) -> Attributes {
        let mut view = ViewBuilder::new();
        if let Some(priority) = self.priority {
            view.user("Priority", &Value::Long(priority.into()));
        }
        if let Some(tenant) = self.tenant {
            view.user("tenant", &Value::text(format!("t{tenant}")));
        }
        if let Some(tier) = self.tier {
            view.user("tier", &Value::Long(tier.into()));
        }
        Attributes {
            view: Some(view.finish()),
            session: self.session.map(|n| SessionId::parse(&format!("s{n}")).unwrap()),
            scheduled_for: self.ahead.map(|ahead| now + ahead),
            ..Attributes::default()
        }
    }
}

/// Identifies a message by the commit group of its body, which contains no other: a scheduled message changes its
/// number when it is due.
pub(crate) type JobId = u64;

pub(crate) fn id_of(message: &Message) -> JobId {
    match message.body.place() {
        BodyPlace::InGroup { group, .. } => group.0,
        BodyPlace::Standalone { .. } => unreachable!("all bodies are in the log"),
    }
}

/// A delivered message.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    pub(crate) id: JobId,
    pub(crate) token: LockToken,
    pub(crate) receiver: ReceiverId,
    pub(crate) message: Message,
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) queue: EntityId,
    pub(crate) now: Timestamp,
    pub(crate) jobs: HashMap<JobId, Job>,
    pub(crate) out: Output,
    pub(crate) nonce: u64,
    /// All facts decided so far.
    pub(crate) journal: Vec<Fact>,
    next_id: JobId,
    next_receiver: u64,
}

/// Returns settings whose lock duration is longer than most tests.
pub(crate) fn settings(order: Option<OrderSettings>) -> QueueSettings {
    QueueSettings {
        lock_duration: secs(300),
        max_delivery_count: 1000,
        order: order.map(Box::new),
        ..QueueSettings::default()
    }
}

impl World {
    pub(crate) fn new(order: OrderSettings) -> World {
        World::with(settings(Some(order)))
    }

    pub(crate) fn with(settings: QueueSettings) -> World {
        let (mut engine, mut out) = (Engine::default(), Output::default());
        let now = Timestamp::from_millis(1_000_000_000);
        let queue = engine.create_queue(now, queue_name(), settings, &mut out).unwrap();
        let mut world = World {
            engine,
            queue,
            now,
            jobs: HashMap::new(),
            out,
            nonce: 0,
            journal: Vec::new(),
            next_id: 1,
            next_receiver: 1,
        };
        world.settle_down();
        world
    }

    pub(crate) fn send(&mut self, job: Job) -> JobId {
        self.try_send(job).unwrap()
    }

    /// Sends `count` messages, each created from its number.
    pub(crate) fn send_many(&mut self, count: u32, mut job: impl FnMut(u32) -> Job) {
        for n in 0..count {
            self.send(job(n));
        }
    }

    pub(crate) fn try_send(&mut self, job: Job) -> Result<JobId, Error> {
        let attributes = job.attributes(self.now);
        let id = self.try_send_with(attributes)?;
        self.jobs.insert(id, job);
        Ok(id)
    }

    /// Sends a message with exactly these properties.
    pub(crate) fn send_view(&mut self, view: bytes::Bytes) {
        self.try_send_with(Attributes { view: Some(view), ..Attributes::default() }).unwrap();
    }

    fn try_send_with(&mut self, attributes: Attributes) -> Result<JobId, Error> {
        let id = self.next_id;
        self.next_id += 1;
        let body = BodyRef::in_group(CommitGroupNumber(id), 8).unwrap();
        let message = NewMessage { body, size_bytes: 1, attributes: Some(Box::new(attributes)) };
        self.engine.send(self.now, self.queue, [message], &mut self.out)?;
        self.settle_down();
        Ok(id)
    }

    pub(crate) fn set_order(&mut self, order: Option<OrderSettings>) {
        let mut settings = self.engine.queue(self.queue).unwrap().settings.clone();
        settings.order = order.map(Box::new);
        self.engine.update_queue(self.now, &queue_name(), settings, &mut self.out).unwrap();
        self.settle_down();
    }

    pub(crate) fn change_order(&mut self, change: impl FnOnce(&mut OrderSettings)) {
        let mut order = self.engine.queue(self.queue).unwrap().settings.order.clone().unwrap();
        change(&mut order);
        self.set_order(Some(*order));
    }

    pub(crate) fn attach(&mut self, mode: ReceiveMode, credit: u32) -> ReceiverId {
        self.attach_with(mode, SessionWish::None, credit)
    }

    pub(crate) fn attach_with(&mut self, mode: ReceiveMode, wish: SessionWish, credit: u32) -> ReceiverId {
        let receiver = ReceiverId(self.next_receiver);
        self.next_receiver += 1;
        self.engine.attach_receiver(self.now, self.queue, MAIN, receiver, mode, wish).unwrap();
        self.engine.add_window(receiver, i64::MAX);
        self.engine.set_credit(receiver, credit);
        receiver
    }

    pub(crate) fn detach(&mut self, receiver: ReceiverId) {
        self.engine.detach_receiver(self.now, receiver, &mut self.out);
        self.settle_down();
    }

    /// Delivers messages. Leaves `drained`, `accepted` and `closed` in the output for the test.
    pub(crate) fn deliver(&mut self) -> Vec<Handed> {
        self.out.clear();
        let mut handed = Vec::new();
        loop {
            let nonce = &mut self.nonce;
            let mut nonces = || {
                *nonce += 1;
                *nonce
            };
            let more = self.engine.deliver(self.now, &mut nonces, &mut self.out);
            handed.extend(self.out.deliveries.drain(..).map(handed_of));
            self.journal.append(&mut self.out.facts);
            if !more {
                return handed;
            }
        }
    }

    /// Returns the messages that a new receiver with this credit gets, and detaches it.
    pub(crate) fn take(&mut self, mode: ReceiveMode, count: u32) -> Vec<Handed> {
        let receiver = self.attach(mode, count);
        let handed = self.deliver();
        self.detach(receiver);
        handed
    }

    pub(crate) fn settle(&mut self, token: LockToken, settlement: Settlement) {
        self.engine.settle(self.now, self.queue, MAIN, token, settlement, &mut self.out).unwrap();
        self.settle_down();
    }

    pub(crate) fn complete(&mut self, handed: &Handed) {
        self.settle(handed.token, Settlement::Complete);
    }

    pub(crate) fn wait(&mut self, span: Duration) {
        self.wait_until(self.now + span);
    }

    pub(crate) fn wait_until(&mut self, at: Timestamp) {
        self.now = at;
        self.engine.tick(at, &mut self.out);
        self.settle_down();
    }

    pub(crate) fn peek(&self) -> Vec<Message> {
        let (mut all, mut from) = (Vec::new(), SequenceNumber(0));
        loop {
            let some = self.engine.peek(self.queue, MAIN, from, 4096).unwrap();
            let Some(last) = some.last() else { return all };
            from = SequenceNumber(last.sequence_number.0 + 1);
            all.extend(some);
        }
    }

    pub(crate) fn message_count(&self) -> u64 {
        self.engine.queue(self.queue).unwrap().counts.message_count()
    }

    pub(crate) fn view(&self) -> OrderView {
        self.engine.order_view(self.now, self.queue).unwrap()
    }

    /// Stores the facts, and drops the other results of a command.
    fn settle_down(&mut self) {
        self.journal.append(&mut self.out.facts);
        self.out.clear();
    }

    /// Applies all facts so far to an engine, after encoding and decoding them.
    pub(crate) fn replay(&self, from: Option<(&[u8], usize)>) -> Engine {
        let (mut engine, done) = match from {
            Some((snapshot, done)) => (Engine::restore(snapshot, Placement::default()).unwrap(), done),
            None => (Engine::default(), 0),
        };
        let (group, mut bytes) = (CommitGroupNumber(self.next_id), Vec::new());
        self.journal.iter().skip(done).for_each(|fact| record::encode(fact, group, &mut bytes));
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            engine.apply(&record::decode(&mut rest, group).unwrap()).unwrap();
        }
        engine
    }

    /// Returns the same world with another engine.
    pub(crate) fn continued_by(&self, engine: Engine) -> World {
        World {
            engine,
            queue: self.queue,
            now: self.now,
            jobs: self.jobs.clone(),
            out: Output::default(),
            nonce: self.nonce,
            journal: Vec::new(),
            next_id: self.next_id,
            next_receiver: self.next_receiver,
        }
    }
}

fn handed_of(delivery: Delivery) -> Handed {
    let Delivery { receiver, token, message, .. } = delivery;
    Handed { id: id_of(&message), token, receiver, message }
}

/// Random numbers from a seed that a test can print (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(crate) fn chance(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Returns a value of an exponential distribution: the time between independent arrivals.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        -mean * (1.0 - unit).ln()
    }
}
