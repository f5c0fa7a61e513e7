//! Feeds bytes in pieces to a connection of either role while a driver calls its methods.
//!
//! The first eight bytes choose the role, the pieces and the calls; the rest is the input from the peer.

use bytes::BytesMut;
use fastrand::Rng;
use peeklock_amqp::connection::{
    AttachReply, Config, Connection, DeliveryId, Event, LinkId, Millis, Outgoing, SaslClient, SessionId,
};
use peeklock_amqp::{
    AmqpError, Attach, DeliveryState, DeliveryTag, Role, SaslCode, Source, Target, condition,
};

const PREFIX_LEN: usize = 8;
/// The most bytes of output without any input: the handshake and the frames of one call.
const OUTPUT_FIXED_MAX: usize = 16 << 10;
/// The most bytes of output per byte of input. The answer to an attach repeats it and adds fields; no other answer is much longer than its
/// frame.
const OUTPUT_PER_INPUT_MAX: usize = 64;
const REMEMBERED_MAX: usize = 64;

pub fn fuzz_connection(input: &[u8]) {
    let Some((prefix, stream)) = input.split_first_chunk::<PREFIX_LEN>() else { return };
    let mut driver = Driver::new(*prefix);
    let mut rest = stream;
    while !rest.is_empty() {
        let len = driver.piece_len().min(rest.len());
        let (piece, behind) = rest.split_at(len);
        rest = behind;
        driver.feed(piece);
    }
    driver.finish();
}

/// A driver that makes the calls of a gateway or a client at random.
struct Driver {
    connection: Connection,
    random: Rng,
    now: Millis,
    input: BytesMut,
    sessions: Vec<SessionId>,
    links: Vec<LinkId>,
    deliveries: Vec<(LinkId, DeliveryId)>,
    /// Whether pieces are as small as on a slow network.
    is_trickle: bool,
    input_total: usize,
    call_total: usize,
    event_total: usize,
    sent_bytes: usize,
}

impl Driver {
    fn new(prefix: [u8; PREFIX_LEN]) -> Self {
        let mut random = Rng::with_seed(u64::from_be_bytes(prefix));
        let [flags, ..] = prefix;
        let now = Millis(1_000);
        let connection = if flags & 1 == 0 {
            Connection::server(Config::server("fuzz"), now)
        } else {
            let sasl = (flags & 2 != 0).then(SaslClient::anonymous);
            Connection::client(Config::client("fuzz", "localhost"), sasl, now)
        };
        let is_trickle = random.u8(..) < 64;
        let mut driver = Self {
            connection,
            random,
            now,
            input: BytesMut::new(),
            sessions: Vec::new(),
            links: Vec::new(),
            deliveries: Vec::new(),
            is_trickle,
            input_total: 0,
            call_total: 0,
            event_total: 0,
            sent_bytes: 0,
        };
        if flags & 1 != 0 {
            driver.begin();
            driver.attach();
            driver.attach();
        }
        driver
    }

    fn piece_len(&mut self) -> usize {
        if self.is_trickle { self.random.usize(1..=16) } else { self.random.usize(1..=4096) }
    }

    fn feed(&mut self, piece: &[u8]) {
        self.input_total += piece.len();
        self.input.extend_from_slice(piece);
        let _ = self.connection.handle_input(self.now, &mut self.input);
        self.take_events();
        if self.random.u8(..) < 96 {
            self.call();
            self.take_events();
        }
        self.take_output();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.event_total += 1;
            // Each frame has eight bytes or more, and each call concerns one delivery or link.
            let bound = self.input_total + 4 * self.call_total + REMEMBERED_MAX;
            assert!(self.event_total <= bound, "{} events from {} bytes", self.event_total, self.input_total);
            self.handle(event);
        }
    }

    fn take_output(&mut self) {
        let len = self.connection.output().len();
        let bound = OUTPUT_FIXED_MAX * (1 + self.call_total)
            + OUTPUT_PER_INPUT_MAX * self.input_total
            + self.sent_bytes * 2;
        assert!(len <= bound, "{len} bytes of output from {} bytes of input", self.input_total);
        // Sometimes the peer reads nothing.
        if self.random.u8(..) < 224 {
            self.connection.output().clear();
        }
    }

    fn handle(&mut self, event: Event) {
        self.call_total += 1;
        match event {
            Event::SaslInit { .. } => {
                let code = if self.random.u8(..) < 240 { SaslCode::Ok } else { SaslCode::Auth };
                self.connection.sasl_outcome(code, None);
                let _ = self.connection.handle_input(self.now, &mut self.input);
            }
            Event::SessionBegun { session, .. } => remember(&mut self.sessions, session),
            Event::Attach { link, .. } => self.answer_attach(link),
            Event::Attached { link, .. } => {
                remember(&mut self.links, link);
                self.connection.set_credit(link, 100);
            }
            Event::Delivery { link, delivery } => {
                remember(&mut self.deliveries, (link, delivery.id));
                if self.random.bool() {
                    self.connection.settle(link, delivery.id, DeliveryState::Accepted);
                }
            }
            Event::Disposition { link, id, settled: false, state, .. } => {
                self.connection.settle(link, id, state.unwrap_or(DeliveryState::Accepted));
            }
            Event::Flow { link, credit, drain, .. } => {
                for _ in 0..credit.min(4) {
                    self.send(link);
                }
                if drain {
                    self.connection.drained(link);
                }
            }
            _ => {}
        }
    }

    fn answer_attach(&mut self, link: LinkId) {
        match self.random.u8(..) {
            0..=19 => self.connection.refuse(link, AmqpError::new(condition::NOT_FOUND, "no such entity")),
            // The answer is sent later or never.
            20..=29 => remember(&mut self.links, link),
            _ => {
                self.connection.accept(link, AttachReply::default());
                self.connection.set_credit(link, 10);
                remember(&mut self.links, link);
            }
        }
    }

    /// Makes a call that is allowed at any time, for links and deliveries that may be gone.
    fn call(&mut self) {
        self.call_total += 1;
        let link = choose(&mut self.random, &self.links);
        let session = choose(&mut self.random, &self.sessions);
        match (self.random.u8(..16), link, session) {
            (0..=4, Some(link), _) => self.send(link),
            (5, Some(link), _) => self.connection.detach(link, None),
            (6, Some(link), _) => self.connection.drain(link),
            (7, Some(link), _) => self.connection.drained(link),
            (8, Some(link), _) => {
                let credit = self.random.u32(..);
                self.connection.set_credit(link, credit);
            }
            (9, Some(link), _) => self.connection.accept(link, AttachReply::default()),
            (10, Some(link), _) => {
                self.connection.refuse(link, AmqpError::new(condition::NOT_ALLOWED, "late"))
            }
            (11, _, Some(session)) => self.connection.end(session, None),
            (12, _, _) => self.settle(),
            (13, _, _) => self.pass_time(),
            (14, _, _) => self.attach(),
            (15, _, _) if self.random.u8(..) < 16 => self.connection.close(None),
            _ => self.begin(),
        }
    }

    fn begin(&mut self) {
        if let Some(session) = self.connection.begin() {
            remember(&mut self.sessions, session);
        }
    }

    fn attach(&mut self) {
        let Some(session) = choose(&mut self.random, &self.sessions) else { return };
        let role = if self.random.bool() { Role::Sender } else { Role::Receiver };
        let mut attach = Attach::new(format!("link-{}", self.random.u8(..8)), 0, role);
        attach.source = Some(Source::with_address("orders"));
        attach.target = Some(Target::with_address("orders"));
        if let Some(link) = self.connection.attach(session, attach) {
            remember(&mut self.links, link);
        }
    }

    fn send(&mut self, link: LinkId) {
        self.call_total += 1;
        let tag = DeliveryTag::from(self.random.u32(..));
        let settled = self.random.u8(..) < 64;
        let outgoing = Outgoing { tag, message_format: 0, settled, state: None };
        let body = vec![0x75; self.random.usize(0..2048)];
        self.sent_bytes += body.len() + 64;
        let _ = self.connection.send(link, &outgoing, &[b"\x00\x53\x75\xb0", &body]);
    }

    fn settle(&mut self) {
        let Some((link, id)) = choose(&mut self.random, &self.deliveries) else { return };
        match self.random.u8(..3) {
            0 => self.connection.settle(link, id, DeliveryState::Accepted),
            1 => self.connection.settle(link, id, DeliveryState::Released),
            _ => self.connection.set_outcome(link, id, DeliveryState::Accepted),
        }
    }

    fn pass_time(&mut self) {
        self.now = Millis(self.now.0 + self.random.u64(..40_000));
        let _ = self.connection.handle_timeout(self.now);
    }

    /// Closes the connection, or lets enough time pass, and checks that it ends.
    fn finish(&mut self) {
        self.connection.close(None);
        for _ in 0..8 {
            let Some(at) = self.connection.poll_timeout() else { break };
            self.now = Millis(self.now.0.max(at.0));
            let _ = self.connection.handle_timeout(self.now);
        }
        assert!(self.connection.is_closed(), "a closed connection does not end");
        self.take_events();
        self.take_output();
    }
}

fn remember<T>(known: &mut Vec<T>, item: T) {
    if known.len() >= REMEMBERED_MAX {
        known.remove(0);
    }
    known.push(item);
}

fn choose<T: Copy>(random: &mut Rng, known: &[T]) -> Option<T> {
    random.choice(known).copied()
}
