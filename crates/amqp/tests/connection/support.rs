//! A machine under test with a scripted peer, and two machines wired back to back.

use bytes::{Buf, BytesMut};
use peeklock_amqp::connection::{
    AttachReply, Config, Connection, Delivery, Error, Event, LinkId, Millis, Outgoing, SessionId,
};
use peeklock_amqp::{
    Attach, Begin, DeliveryTag, Flow, Frame, Open, Performative, Protocol, ProtocolHeader, Role, Source,
    Target, Transfer, decode_frame, encode_frame,
};

pub(crate) const T0: Millis = Millis(1_000_000);

/// A machine whose peer is written frame by frame.
pub(crate) struct Script {
    pub(crate) machine: Connection,
    pub(crate) now: Millis,
}

/// A frame the machine sent.
#[derive(Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) channel: u16,
    pub(crate) performative: Performative,
    pub(crate) payload: Vec<u8>,
}

impl Script {
    pub(crate) fn new(machine: Connection) -> Self {
        Self { machine, now: T0 }
    }

    /// Returns a server whose peer has opened without SASL and begun a session on channel 1, like pyamqp.
    pub(crate) fn server() -> (Self, SessionId) {
        Self::server_with(Config::server("server"))
    }

    pub(crate) fn server_with(config: Config) -> (Self, SessionId) {
        let mut script = Self::new(Connection::server(config, T0));
        script.header(Protocol::Amqp).expect("a header");
        script.send(0, Open::new("peer"));
        script.send(1, Begin::new(0, 65_536, 65_536));
        script.take_header();
        let [Event::Opened { .. }, Event::SessionBegun { session, .. }] = script.events()[..] else {
            panic!("opened and begun")
        };
        assert_eq!(script.sent().len(), 2, "open and begin");
        (script, session)
    }

    /// Returns an open client without SASL, with a session whose peer uses channel 5.
    pub(crate) fn client() -> (Self, SessionId) {
        let mut script = Self::new(Connection::client(Config::client("client", "host"), None, T0));
        let session = script.machine.begin().expect("a session");
        script.header(Protocol::Amqp).expect("a header");
        script.send(0, Open::new("peer"));
        script.send(5, Begin { remote_channel: Some(0), ..Begin::new(0, 100, 100) });
        script.take_header();
        assert_eq!(script.sent().len(), 2, "open and begin");
        assert_eq!(script.events().len(), 2, "opened and begun");
        (script, session)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut input = BytesMut::from(bytes);
        let result = self.machine.handle_input(self.now, &mut input);
        assert!(input.is_empty(), "{} bytes left", input.len());
        result
    }

    pub(crate) fn header(&mut self, protocol: Protocol) -> Result<(), Error> {
        self.bytes(&ProtocolHeader { protocol }.to_bytes())
    }

    pub(crate) fn try_send(
        &mut self,
        channel: u16,
        performative: impl Into<Performative>,
        payload: &[u8],
    ) -> Result<(), Error> {
        let mut frame = BytesMut::new();
        encode_frame(&mut frame, channel, &performative.into(), payload);
        self.bytes(&frame)
    }

    pub(crate) fn send(&mut self, channel: u16, performative: impl Into<Performative>) {
        self.try_send(channel, performative, &[]).expect("a frame in order");
    }

    pub(crate) fn transfer(&mut self, transfer: Transfer, payload: &[u8]) {
        self.try_send(1, transfer, payload).expect("a transfer in order");
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.machine.poll_event()).collect()
    }

    pub(crate) fn take_header(&mut self) -> ProtocolHeader {
        let out = self.machine.output();
        let header = ProtocolHeader::decode(out).expect("a header").expect("all of it");
        out.advance(ProtocolHeader::LEN);
        header
    }

    /// Returns and removes all frames in the output of the machine.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let out = self.machine.output().split();
        frames(&out)
    }

    pub(crate) fn sent_performatives(&mut self) -> Vec<Performative> {
        self.sent().into_iter().map(|sent| sent.performative).collect()
    }

    /// Attaches a link of the peer; `role` is the peer's.
    pub(crate) fn peer_attach(&mut self, handle: u32, role: Role) -> LinkId {
        self.send(1, attach(&format!("link-{handle}"), handle, role));
        let events = self.events();
        let [Event::Attach { link, .. }] = events[..] else { panic!("{events:?}") };
        link
    }

    /// Attaches and accepts a link on which the peer receives. Removes the reply from the output.
    pub(crate) fn sending_link(&mut self, handle: u32) -> LinkId {
        let link = self.peer_attach(handle, Role::Receiver);
        self.machine.accept(link, AttachReply::default());
        assert_eq!(self.sent().len(), 1, "the attach reply");
        link
    }

    /// Attaches and accepts a link on which the peer sends, and grants it credit. Removes both frames from the output.
    pub(crate) fn receiving_link(&mut self, handle: u32, credit: u32) -> LinkId {
        let link = self.peer_attach(handle, Role::Sender);
        self.machine.accept(link, AttachReply::default());
        self.machine.set_credit(link, credit);
        assert_eq!(self.sent().len(), 2, "the attach reply and the credit");
        link
    }

    /// Grants credit from the peer, on a link on which it receives.
    pub(crate) fn grant(&mut self, handle: u32, credit: u32) {
        self.send(1, link_flow(handle, 0, credit));
        let events = self.events();
        assert!(matches!(events[..], [Event::Flow { .. }]), "{events:?}");
    }
}

pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Sent> {
    let mut sent = Vec::new();
    while let Some((frame, len)) = decode_frame(bytes, u32::MAX).expect("a frame of ours") {
        if let Frame::Amqp { channel, performative, payload } = frame {
            sent.push(Sent { channel, performative, payload: payload.to_vec() });
        }
        bytes = &bytes[len..];
    }
    assert!(bytes.is_empty());
    sent
}

pub(crate) fn attach(name: &str, handle: u32, role: Role) -> Attach {
    Attach {
        source: Some(Source::with_address("queue")),
        target: Some(Target::with_address("queue")),
        initial_delivery_count: (role == Role::Sender).then_some(0),
        ..Attach::new(name.to_owned(), handle, role)
    }
}

pub(crate) fn link_flow(handle: u32, delivery_count: u32, credit: u32) -> Flow {
    Flow {
        next_incoming_id: Some(1),
        incoming_window: 65_536,
        outgoing_window: 65_536,
        handle: Some(handle),
        delivery_count: Some(delivery_count),
        link_credit: Some(credit),
        ..Flow::default()
    }
}

pub(crate) fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from(id)),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::default()
    }
}

pub(crate) fn outgoing(tag: u32) -> Outgoing {
    Outgoing { tag: DeliveryTag::from(tag), message_format: 0, settled: false, state: None }
}

pub(crate) fn deliveries(events: Vec<Event>) -> Vec<Delivery> {
    events
        .into_iter()
        .map(|event| match event {
            Event::Delivery { delivery, .. } => delivery,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// A client and a server back to back.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    to_server: BytesMut,
    to_client: BytesMut,
}

impl Pair {
    pub(crate) fn new(client: Connection, server: Connection) -> Self {
        Self { client, server, to_server: BytesMut::new(), to_client: BytesMut::new() }
    }

    /// Moves up to `max` bytes each way; false when nothing moved.
    pub(crate) fn step(&mut self, max: usize) -> bool {
        let moved_up = carry(&mut self.client, &mut self.server, &mut self.to_server, max);
        let moved_down = carry(&mut self.server, &mut self.client, &mut self.to_client, max);
        moved_up || moved_down
    }

    pub(crate) fn run(&mut self) {
        while self.step(usize::MAX) {}
    }

    pub(crate) fn client_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    pub(crate) fn server_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.server.poll_event()).collect()
    }

    /// Returns an open pair with one session and one link on which the client has `role`. Ids are the client's and the
    /// server's.
    pub(crate) fn linked(client: Config, server: Config, role: Role) -> (Self, LinkId, LinkId) {
        let mut pair = Self::new(Connection::client(client, None, T0), Connection::server(server, T0));
        let session = pair.client.begin().expect("a session");
        let near = pair.client.attach(session, attach("x", 0, role)).expect("a link");
        pair.run();
        let far = pair.server_events().into_iter().find_map(|event| match event {
            Event::Attach { link, .. } => Some(link),
            _ => None,
        });
        let far = far.expect("the client's attach");
        pair.server.accept(far, AttachReply::default());
        pair.run();
        let is_attached = pair.client_events().iter().any(|event| matches!(event, Event::Attached { .. }));
        assert!(is_attached);
        (pair, near, far)
    }
}

fn carry(from: &mut Connection, to: &mut Connection, wire: &mut BytesMut, max: usize) -> bool {
    let out = from.output();
    let len = out.len().min(max);
    wire.extend_from_slice(&out.split_to(len));
    to.handle_input(T0, wire).expect("our own frames");
    len > 0
}
