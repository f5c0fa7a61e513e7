//! For every order of sends, credits, settlements and drains, every size of frames and windows, and every chunking of
//! bytes: each message arrives exactly once, in order, and no state is left.

use std::collections::VecDeque;

use peeklock_amqp::connection::{
    AttachReply, Config, Connection, Delivery, DeliveryId, Event, LinkId, Outgoing, SendError,
};
use peeklock_amqp::{DeliveryState, DeliveryTag, Role};
use proptest::prelude::*;

use super::support::{Pair, T0, attach, outgoing};

#[derive(Debug, Clone)]
enum Op {
    Send { up: bool, len: usize, settled: bool },
    Grant { up: bool, credit: u32 },
    Settle { up: bool, count: usize, from_back: bool },
    Drain,
    Step { bytes: usize },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<bool>(), 0_usize..3_000, prop::bool::weighted(0.2))
            .prop_map(|(up, len, settled)| Op::Send { up, len, settled }),
        2 => (any::<bool>(), 0_u32..20).prop_map(|(up, credit)| Op::Grant { up, credit }),
        2 => (any::<bool>(), 1_usize..6, any::<bool>())
            .prop_map(|(up, count, from_back)| Op::Settle { up, count, from_back }),
        1 => Just(Op::Drain),
        4 => (1_usize..4_000).prop_map(|bytes| Op::Step { bytes }),
    ]
}

fn config(base: Config, frame_size: u32, window: u32, first: u32) -> Config {
    let mut config = Config {
        max_frame_size_bytes: frame_size,
        incoming_window: window,
        next_outgoing_id: first.wrapping_sub(5),
        first_delivery_id: first,
        ..base
    };
    config.limits.unsettled_incoming_max = 40;
    config
}

/// One direction: a sender and a receiver, and the messages that each has seen.
struct Way {
    sending: LinkId,
    receiving: LinkId,
    next_tag: u32,
    next_received: u32,
    lens: Vec<usize>,
    unsettled: VecDeque<DeliveryId>,
    unsettled_sent: u32,
    settled_told: u32,
}

struct World {
    pair: Pair,
    /// Client to server, and server to client.
    up: Way,
    down: Way,
    is_draining: bool,
}

impl World {
    fn new(client: Config, server: Config) -> Self {
        let mut pair = Pair::new(Connection::client(client, None, T0), Connection::server(server, T0));
        let session = pair.client.begin().expect("a session");
        let up = pair.client.attach(session, attach("up", 0, Role::Sender)).expect("a link");
        let down = pair.client.attach(session, attach("down", 0, Role::Receiver)).expect("a link");
        pair.run();
        let mut far = Vec::new();
        for event in pair.server_events() {
            if let Event::Attach { link, .. } = event {
                pair.server.accept(link, AttachReply::default());
                far.push(link);
            }
        }
        pair.run();
        pair.client_events();
        let [up_far, down_far] = far[..] else { panic!("two links") };
        Self { pair, up: Way::new(up, up_far), down: Way::new(down_far, down), is_draining: false }
    }

    fn parts(&mut self, up: bool) -> (&mut Connection, &mut Connection, &mut Way) {
        if up {
            (&mut self.pair.client, &mut self.pair.server, &mut self.up)
        } else {
            (&mut self.pair.server, &mut self.pair.client, &mut self.down)
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Send { up, len, settled } => self.send(up, len, settled),
            Op::Grant { up, credit } => {
                let (_, receiver, lane) = self.parts(up);
                receiver.set_credit(lane.receiving, credit);
            }
            Op::Settle { up, count, from_back } => self.settle(up, count, from_back),
            Op::Drain => {
                self.is_draining = true;
                self.pair.client.drain(self.down.receiving);
            }
            Op::Step { bytes } => {
                self.pair.step(bytes);
                self.take_events();
            }
        }
    }

    fn send(&mut self, up: bool, len: usize, settled: bool) {
        let (sender, _, lane) = self.parts(up);
        let credit = sender.credit(lane.sending);
        let tag = lane.next_tag;
        let payload = body(tag, len);
        let (head, tail) = payload.split_at(len / 3);
        let delivery = Outgoing { settled, ..outgoing(tag) };
        let result = sender.send(lane.sending, &delivery, &[head, tail]);
        if credit == 0 {
            assert_eq!(result, Err(SendError::NoCredit));
            return;
        }
        result.expect("there was credit");
        lane.next_tag += 1;
        lane.lens.push(len);
        lane.unsettled_sent += u32::from(!settled);
    }

    fn settle(&mut self, up: bool, count: usize, from_back: bool) {
        let (_, receiver, lane) = self.parts(up);
        for _ in 0..count {
            let id = if from_back { lane.unsettled.pop_back() } else { lane.unsettled.pop_front() };
            if let Some(id) = id {
                receiver.settle(lane.receiving, id, DeliveryState::Accepted);
            }
        }
    }

    fn take_events(&mut self) {
        for event in self.pair.client_events() {
            match event {
                Event::Delivery { delivery, .. } => self.down.receive(&delivery),
                Event::Disposition { settled: true, .. } => self.up.settled_told += 1,
                Event::Flow { drain: true, .. } => self.is_draining = false,
                Event::Flow { .. } | Event::Unblocked { .. } => {}
                other => panic!("client: {other:?}"),
            }
        }
        for event in self.pair.server_events() {
            match event {
                Event::Delivery { delivery, .. } => self.up.receive(&delivery),
                Event::Disposition { settled: true, .. } => self.down.settled_told += 1,
                Event::Flow { drain: true, .. } => self.pair.server.drained(self.down.sending),
                Event::Flow { .. } | Event::Unblocked { .. } => {}
                other => panic!("server: {other:?}"),
            }
        }
    }

    /// Delivers and settles everything.
    fn finish(&mut self) {
        loop {
            self.take_events();
            let before = self.progress();
            while self.pair.step(usize::MAX) {
                self.take_events();
            }
            self.settle(true, 1_000, false);
            self.settle(false, 1_000, false);
            while self.pair.step(usize::MAX) {
                self.take_events();
            }
            if self.progress() == before {
                return;
            }
        }
    }

    fn progress(&self) -> [u32; 4] {
        [self.up.next_received, self.down.next_received, self.up.settled_told, self.down.settled_told]
    }

    fn check(&self) {
        for lane in [&self.up, &self.down] {
            assert_eq!(lane.next_received, lane.next_tag, "every send arrived");
            assert_eq!(lane.settled_told, lane.unsettled_sent, "every settlement was reported once");
        }
        assert!(!self.is_draining, "every drain is answered");
        let (client, server) = (&self.pair.client, &self.pair.server);
        let unsettled = [
            client.unsettled(self.up.sending),
            client.unsettled(self.down.receiving),
            server.unsettled(self.up.receiving),
            server.unsettled(self.down.sending),
        ];
        assert_eq!(unsettled, [0; 4]);
        assert_eq!((client.blocked_len(), server.blocked_len()), (0, 0));
    }
}

impl Way {
    fn new(sending: LinkId, receiving: LinkId) -> Self {
        Self {
            sending,
            receiving,
            next_tag: 0,
            next_received: 0,
            lens: Vec::new(),
            unsettled: VecDeque::new(),
            unsettled_sent: 0,
            settled_told: 0,
        }
    }

    fn receive(&mut self, delivery: &Delivery) {
        let tag = self.next_received;
        assert_eq!(delivery.tag, DeliveryTag::from(tag), "in order, none twice");
        assert_eq!(delivery.payload, body(tag, self.lens[tag as usize]));
        self.next_received += 1;
        if !delivery.settled {
            self.unsettled.push_back(delivery.id);
        }
    }
}

fn body(tag: u32, len: usize) -> Vec<u8> {
    tag.to_be_bytes().into_iter().cycle().take(len).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_message_arrives_once_in_order_and_no_state_is_left(
        ops in prop::collection::vec(op(), 1..150),
        frame_sizes in (512_u32..2_000, 512_u32..2_000),
        windows in (1_u32..30, 1_u32..30),
        firsts in (any::<u32>(), (u32::MAX - 30)..=u32::MAX),
    ) {
        let mut world = World::new(
            config(Config::client("c", "h"), frame_sizes.0, windows.0, firsts.0),
            config(Config::server("s"), frame_sizes.1, windows.1, firsts.1),
        );
        for op in &ops {
            world.apply(op);
        }
        world.finish();
        world.check();
    }
}
