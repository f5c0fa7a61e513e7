//! A peer that sends any frame at any time, and a driver that makes any call at any time: nothing panics, and our
//! frames stay in order.

use std::collections::{HashMap, HashSet};

use bytes::BytesMut;
use peeklock_amqp::connection::{AttachReply, Config, Connection, DeliveryId, Event, LinkId, SessionId};
use peeklock_amqp::{
    AmqpError, Begin, Close, DeliveryState, Detach, Disposition, End, Flow, Open, Performative, Protocol,
    ProtocolHeader, Role, Transfer, condition, encode_frame,
};
use proptest::prelude::*;

use super::support::{Sent, T0, attach, frames, outgoing};

/// Small numbers, so that frames refer to the sessions, handles and deliveries of other frames.
#[derive(Debug, Clone)]
enum Act {
    Peer { channel: u16, frame: Frame },
    Accept,
    Refuse,
    Send { pick: usize, len: usize, settled: bool },
    Settle { pick: usize },
    Credit { pick: usize, credit: u32 },
    Drained { pick: usize },
    Detach { pick: usize },
    End { pick: usize },
    Flush,
}

#[derive(Debug, Clone)]
enum Frame {
    Begin { window: u32 },
    Attach { name: u8, handle: u32, is_sender: bool },
    Flow { handle: Option<u32>, window: u32, credit: u32, drain: bool, echo: bool },
    Transfer { handle: u32, id: Option<u32>, more: bool, aborted: bool, settled: bool },
    Disposition { is_receiver: bool, first: u32, span: u32, settled: bool },
    Detach { handle: u32 },
    End,
    Close,
}

fn frame() -> impl Strategy<Value = Frame> {
    let handle = 0_u32..4;
    prop_oneof![
        3 => (0_u32..20).prop_map(|window| Frame::Begin { window }),
        6 => (0_u8..4, handle.clone(), any::<bool>())
            .prop_map(|(name, handle, is_sender)| Frame::Attach { name, handle, is_sender }),
        6 => (prop::option::of(handle.clone()), 0_u32..10, 0_u32..10, any::<bool>(), any::<bool>())
            .prop_map(|(handle, window, credit, drain, echo)| Frame::Flow { handle, window, credit, drain, echo }),
        8 => (handle.clone(), prop::option::of(0_u32..12), any::<bool>(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(handle, id, more, aborted, settled)| Frame::Transfer { handle, id, more, aborted, settled }),
        5 => (any::<bool>(), prop_oneof![0_u32..12, 65_536_u32..65_550], any::<u32>(), any::<bool>())
            .prop_map(|(is_receiver, first, span, settled)| Frame::Disposition { is_receiver, first, span, settled }),
        3 => handle.prop_map(|handle| Frame::Detach { handle }),
        1 => Just(Frame::End),
        1 => prop::bool::weighted(0.1).prop_map(|close| if close { Frame::Close } else { Frame::End }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let pick = 0_usize..8;
    prop_oneof![
        12 => (0_u16..3, frame()).prop_map(|(channel, frame)| Act::Peer { channel, frame }),
        6 => Just(Act::Accept),
        1 => Just(Act::Refuse),
        6 => (pick.clone(), 0_usize..1_500, any::<bool>())
            .prop_map(|(pick, len, settled)| Act::Send { pick, len, settled }),
        3 => pick.clone().prop_map(|pick| Act::Settle { pick }),
        3 => (pick.clone(), 0_u32..5).prop_map(|(pick, credit)| Act::Credit { pick, credit }),
        2 => pick.clone().prop_map(|pick| Act::Drained { pick }),
        1 => pick.clone().prop_map(|pick| Act::Detach { pick }),
        1 => pick.prop_map(|pick| Act::End { pick }),
        2 => Just(Act::Flush),
    ]
}

fn performative(frame: &Frame) -> Performative {
    let role = |is_sender: bool| if is_sender { Role::Sender } else { Role::Receiver };
    match *frame {
        Frame::Begin { window } => Begin::new(0, window, 10).into(),
        Frame::Attach { name, handle, is_sender } => {
            attach(&format!("link-{name}"), handle, role(is_sender)).into()
        }
        Frame::Flow { handle, window, credit, drain, echo } => Flow {
            next_incoming_id: Some(1 + credit),
            incoming_window: window,
            handle,
            delivery_count: Some(window),
            link_credit: Some(credit),
            drain,
            echo,
            ..Flow::default()
        }
        .into(),
        Frame::Transfer { handle, id, more, aborted, settled } => Transfer {
            handle,
            delivery_id: id,
            delivery_tag: id.map(Into::into),
            settled: Some(settled),
            more,
            aborted,
            ..Transfer::default()
        }
        .into(),
        Frame::Disposition { is_receiver, first, span, settled } => Disposition {
            role: role(!is_receiver),
            first,
            last: Some(first.wrapping_add(span)),
            settled,
            state: Some(DeliveryState::Accepted),
            batchable: false,
        }
        .into(),
        Frame::Detach { handle } => Detach { handle, closed: true, error: None }.into(),
        Frame::End => End::default().into(),
        Frame::Close => Close::default().into(),
    }
}

/// A server and every id that its driver ever got, stale or not.
struct World {
    server: Connection,
    sessions: Vec<SessionId>,
    requested: Vec<LinkId>,
    links: Vec<LinkId>,
    deliveries: Vec<(LinkId, DeliveryId)>,
    checker: Checker,
    announced: HashSet<LinkId>,
}

impl World {
    fn new() -> Self {
        let mut config = Config { max_frame_size_bytes: 512, incoming_window: 6, ..Config::server("s") };
        config.limits.unsettled_outgoing_max = 3;
        let mut world = Self {
            server: Connection::server(config, T0),
            sessions: Vec::new(),
            requested: Vec::new(),
            links: Vec::new(),
            deliveries: Vec::new(),
            checker: Checker::default(),
            announced: HashSet::new(),
        };
        let mut input = BytesMut::from(&ProtocolHeader { protocol: Protocol::Amqp }.to_bytes()[..]);
        world.server.handle_input(T0, &mut input).unwrap();
        let _ = world.server.output().split_to(ProtocolHeader::LEN);
        world.peer(0, Open::new("peer").into());
        world
    }

    fn peer(&mut self, channel: u16, performative: Performative) {
        let mut input = BytesMut::new();
        encode_frame(&mut input, channel, &performative, payload(&performative));
        let result = self.server.handle_input(T0, &mut input);
        assert!(input.is_empty());
        assert!(result.is_ok() || self.server.is_closed());
    }

    fn run(&mut self, act: &Act) {
        let (held_up, blocked_len) = (self.held_up(), self.server.blocked_len());
        self.act(act);
        let mut unblocked = HashSet::new();
        while let Some(event) = self.server.poll_event() {
            if let Event::Unblocked { session } = event {
                unblocked.insert(session);
            }
            self.take(event);
        }
        for (link, session) in held_up {
            assert!(self.server.sendable(link) == 0 || unblocked.contains(&session), "no event for {link:?}");
        }
        // A flow releases as much as it has room for, and emits an event only when nothing waits any more.
        let is_flow = matches!(act, Act::Peer { frame: Frame::Flow { .. }, .. });
        let is_less = self.server.blocked_len() < blocked_len && !self.server.is_closed();
        assert!(
            !is_less || is_flow || !unblocked.is_empty(),
            "{blocked_len} bytes are fewer, without an event"
        );
    }

    /// Returns the links that have credit and cannot use it.
    fn held_up(&self) -> Vec<(LinkId, SessionId)> {
        let is_held_up = |link: &LinkId| self.server.credit(*link) > 0 && self.server.sendable(*link) == 0;
        let links = self.links.iter().copied().filter(is_held_up);
        links.filter_map(|link| Some((link, self.server.link(link)?.session))).collect()
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::SessionBegun { session, .. } => self.sessions.push(session),
            Event::Attach { link, .. } => {
                assert!(self.announced.insert(link), "each link has an id of its own");
                self.requested.push(link);
            }
            Event::Detached { link, .. } => assert!(self.announced.remove(&link), "detached once"),
            Event::Delivery { link, delivery } => {
                assert!(delivery.payload.len() as u64 <= MESSAGE_SIZE_MAX);
                self.deliveries.push((link, delivery.id));
            }
            Event::Disposition { link, id, .. } => self.deliveries.push((link, id)),
            _ => {}
        }
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Peer { channel, ref frame } => self.peer(channel, performative(frame)),
            Act::Accept => {
                if let Some(link) = self.requested.pop() {
                    let max_message_size = Some(MESSAGE_SIZE_MAX);
                    self.server.accept(link, AttachReply { max_message_size, ..AttachReply::default() });
                    self.links.push(link);
                }
            }
            Act::Refuse => {
                if let Some(link) = self.requested.pop() {
                    self.server.refuse(link, AmqpError::new(condition::NOT_FOUND, "no"));
                    self.announced.remove(&link);
                }
            }
            Act::Send { pick, len, settled } => {
                if let Some(link) = choose(&self.links, pick) {
                    let delivery = peeklock_amqp::connection::Outgoing { settled, ..outgoing(1) };
                    let is_sendable = self.server.sendable(link) > 0;
                    let result = self.server.send(link, &delivery, &[&vec![7; len]]);
                    assert!(result.is_ok() || !is_sendable, "{result:?}");
                }
            }
            Act::Settle { pick } => {
                if let Some((link, id)) = choose(&self.deliveries, pick) {
                    self.server.settle(link, id, DeliveryState::Accepted);
                }
            }
            Act::Credit { pick, credit } => {
                if let Some(link) = choose(&self.links, pick) {
                    self.server.set_credit(link, credit);
                }
            }
            Act::Drained { pick } => {
                if let Some(link) = choose(&self.links, pick) {
                    self.server.drained(link);
                }
            }
            Act::Detach { pick } => {
                if let Some(link) = choose(&self.links, pick) {
                    self.server.detach(link, None);
                }
            }
            Act::End { pick } => {
                if let Some(session) = choose(&self.sessions, pick) {
                    self.server.end(session, None);
                }
            }
            Act::Flush => self.flush(),
        }
    }

    fn flush(&mut self) {
        for sent in frames(&self.server.output().split()) {
            self.checker.check(&sent);
        }
    }
}

fn choose<T: Copy>(from: &[T], pick: usize) -> Option<T> {
    // The newest are chosen first, because they most likely still exist.
    from.len().checked_sub(1 + pick % from.len().max(1)).and_then(|index| from.get(index)).copied()
}

/// Two transfers fit into a message, three do not.
const MESSAGE_SIZE_MAX: u64 = 15;

fn payload(performative: &Performative) -> &'static [u8] {
    if matches!(performative, Performative::Transfer(_)) { b"payload" } else { b"" }
}

/// The state that follows from the frames we sent.
#[derive(Default)]
struct Checker {
    is_open: bool,
    is_closed: bool,
    sessions: HashMap<u16, Channel>,
}

#[derive(Default)]
struct Channel {
    next_delivery: Option<u32>,
    /// Attached handles; true while a delivery on it is incomplete.
    handles: HashMap<u32, bool>,
}

impl Checker {
    fn check(&mut self, sent: &Sent) {
        assert!(!self.is_closed, "nothing after close: {sent:?}");
        match &sent.performative {
            Performative::Open(_) => assert!(!std::mem::replace(&mut self.is_open, true)),
            Performative::Close(_) => self.is_closed = true,
            Performative::Begin(_) => {
                assert!(self.sessions.insert(sent.channel, Channel::default()).is_none(), "begun once");
            }
            Performative::End(_) => {
                self.sessions.remove(&sent.channel).expect("one end per begin");
            }
            performative => {
                let channel = self.sessions.get_mut(&sent.channel);
                channel.expect("frames only between begin and end").check(performative);
            }
        }
        assert!(self.is_open, "open is first");
    }
}

impl Channel {
    fn check(&mut self, performative: &Performative) {
        match performative {
            Performative::Attach(attach) => {
                assert!(self.handles.insert(attach.handle, false).is_none(), "attached once");
            }
            Performative::Detach(detach) => {
                self.handles.remove(&detach.handle).expect("one detach per attach");
            }
            Performative::Flow(flow) => {
                assert!(flow.next_incoming_id.is_some());
                assert!(flow.handle.is_none_or(|handle| self.handles.contains_key(&handle)));
                assert_eq!(
                    flow.handle.is_some(),
                    flow.delivery_count.is_some() && flow.link_credit.is_some()
                );
            }
            Performative::Transfer(transfer) => {
                let is_incomplete = self.handles.get_mut(&transfer.handle).expect("an attached handle");
                assert_eq!(transfer.delivery_id.is_none(), *is_incomplete);
                *is_incomplete = transfer.more;
                if let Some(id) = transfer.delivery_id {
                    assert_eq!(self.next_delivery.unwrap_or(id), id, "no gaps");
                    self.next_delivery = Some(id.wrapping_add(1));
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_frames_are_in_order_whatever_a_peer_sends(acts in prop::collection::vec(act(), 1..120)) {
        let mut world = World::new();
        // Without these, most runs end at the handshake.
        world.run(&Act::Peer { channel: 0, frame: Frame::Begin { window: 5 } });
        for handle in [0, 1] {
            let frame = Frame::Attach { name: 0, handle, is_sender: handle == 0 };
            world.run(&Act::Peer { channel: 0, frame });
            world.run(&Act::Accept);
            world.run(&Act::Credit { pick: 0, credit: 4 });
        }
        let frame = Frame::Flow { handle: Some(1), window: 5, credit: 9, drain: false, echo: false };
        world.run(&Act::Peer { channel: 0, frame });
        for act in &acts {
            world.run(act);
        }
        world.flush();
        world.server.close(None);
        world.flush();
    }
}
