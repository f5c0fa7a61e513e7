//! The AMQP 1.0 connection machine, for both roles.
//!
//! Bytes and calls go in, bytes and events come out. The machine owns sessions, links, credit, windows, delivery
//! numbering, settlement and heartbeats of one connection. It has no clock, socket, task or random source, and never
//! interprets a message.
//!
//! A driver's loop, for either role:
//!
//! ```text
//! read → handle_input → poll_event until None (calls: accept, send, settle, …) → write output → sleep until poll_timeout
//! ```
//!
//! Rules that always hold:
//!
//! * Frames leave in the order of calls. Settlements may be merged into ranges, but leave before a later send, detach,
//!   end or close. A send may have to wait for the peer's window; later sends of its session wait behind it.
//! * One detach per handle, one end per session, one close: never a reply to a reply.
//! * The memory that a peer can make us use is limited by [`Config`] and [`Limits`], as long as the driver stops
//!   reading while [`Connection::output_len`] exceeds a limit of its own.

mod config;
mod credit;
mod ended;
mod error;
mod event;
mod handshake;
mod hold;
mod id;
mod input;
mod link;
mod links;
mod receive;
mod ring;
mod send;
mod session;
mod sessions;
mod settle;
mod table;
mod time;
mod timers;
mod wire;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

pub use config::{Config, Limits, SaslClient};
pub use ended::{Ended, Endings, LinkName, Scope};
pub use error::{Error, SendError};
pub use event::{AttachReply, Delivery, Event, Outgoing, Part};
pub use id::{DeliveryId, LinkId, SessionId};
pub use time::Millis;

use handshake::Phase;
use hold::Holding;
use id::Arena;
use link::Link;
use session::Session;
use table::Table;
use timers::Timers;

use crate::{
    AmqpError, Attach, DeliveryState, EMPTY_FRAME, FRAME_SIZE_BYTES_MIN, Protocol, ProtocolHeader,
    ReceiverSettleMode, Role, SaslCode, SenderSettleMode, Text, condition,
};

/// One AMQP connection, on either side.
#[derive(Debug)]
pub struct Connection {
    config: Config,
    is_client: bool,
    phase: Phase,
    now: Millis,
    timers: Timers,
    events: VecDeque<Event>,

    /// Frames to write.
    out: BytesMut,
    /// Client: SASL frames to write, before any of `out`.
    sasl_out: BytesMut,
    /// Client: SASL is not complete, so `out` has to wait.
    is_held: bool,
    sasl_client: Option<SaslClient>,
    has_sasl: bool,
    is_open_sent: bool,
    /// The largest frame we send.
    frame_size_out_max: usize,
    remote_channel_max: u16,

    sessions: Arena<SessionId, Session>,
    links: Arena<LinkId, Link>,
    /// Sessions by the channel of frames we send.
    channels: Table<SessionId>,
    /// Sessions by the channel of frames the peer sends.
    remote_channels: Table<SessionId>,
    /// Sessions with something to flush before the output is written.
    dirty: Vec<SessionId>,
    /// Bytes of incomplete deliveries.
    incomplete_bytes: usize,
    /// Bytes of sends that wait for a window.
    blocked_bytes: usize,
    holding: Holding,
    endings: Endings,
}

/// The negotiated terms of a link.
#[derive(Debug, Clone)]
pub struct LinkInfo {
    pub session: SessionId,
    pub name: Text,
    /// Our role on the link.
    pub role: Role,
    pub snd_settle_mode: SenderSettleMode,
    pub rcv_settle_mode: ReceiverSettleMode,
    /// The largest message that the peer accepts, if it named a limit other than 0. `send` does not enforce it.
    pub remote_max_message_size: Option<u64>,
}

impl Connection {
    /// Creates a server, which waits for the peer's header. A peer may start with or without SASL; [`Event::Opened`]
    /// states which.
    pub fn server(config: Config, now: Millis) -> Self {
        Self::new(config, now, false, Phase::FirstHeader)
    }

    /// Creates a client, which starts at once: header, SASL if configured, open. Sessions and links may be requested
    /// right away; their frames wait for the end of the handshake.
    pub fn client(config: Config, sasl: Option<SaslClient>, now: Millis) -> Self {
        let phase = if sasl.is_some() { Phase::FirstHeader } else { Phase::AmqpHeader };
        let mut connection = Self::new(config, now, true, phase);
        if sasl.is_some() {
            connection.has_sasl = true;
            connection.is_held = true;
            connection.put_header(Protocol::Sasl);
        }
        connection.sasl_client = sasl;
        connection.out.extend_from_slice(&ProtocolHeader { protocol: Protocol::Amqp }.to_bytes());
        connection.put_open();
        connection
    }

    /// Consumes all whole frames. The bytes left in `input` belong to an incomplete frame, or wait for
    /// [`Connection::sasl_outcome`].
    ///
    /// After an error, the output contains the reason for the peer, and later input is ignored.
    pub fn handle_input(&mut self, now: Millis, input: &mut BytesMut) -> Result<(), Error> {
        self.now = now;
        if !input.is_empty() {
            self.timers.heard_at = now;
        }
        self.release_due(now);
        let result = self.consume(input);
        if result.is_err() {
            input.clear();
        }
        result
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the records of links, sessions and connections that we ended with an error since the last call, for a log.
    /// Errors that [`Connection::handle_input`] or [`Connection::handle_timeout`] returned are not among them.
    pub fn take_endings(&mut self) -> Endings {
        std::mem::take(&mut self.endings)
    }

    /// Completes the pending merges (settlements, window updates) and returns the bytes to write. The driver removes
    /// written bytes from the front.
    pub fn output(&mut self) -> &mut BytesMut {
        self.flush();
        if self.is_held { &mut self.sasl_out } else { &mut self.out }
    }

    /// Returns whether [`Connection::output`] would return any bytes.
    pub fn has_output(&self) -> bool {
        self.output_len() > 0 || !self.dirty.is_empty()
    }

    /// Returns the number of bytes ready to be written. Stop reading from a peer while this grows.
    pub fn output_len(&self) -> usize {
        if self.is_held { self.sasl_out.len() } else { self.out.len() }
    }

    /// Returns the bytes of sends that wait for the peer to open its session windows. [`Event::Unblocked`] wakes a
    /// driver that waits for it to fall: when a session's sends have left, or when some were dropped.
    pub fn blocked_len(&self) -> usize {
        self.blocked_bytes
    }

    /// Returns the time for the next [`Connection::handle_timeout`]; a call soon after it is fine. Changes with every
    /// other call.
    pub fn poll_timeout(&self) -> Option<Millis> {
        match self.phase {
            Phase::Running => [self.timers.running_at(), self.holding.next_due()].into_iter().flatten().min(),
            Phase::Closing => Some(self.timers.close_at()),
            Phase::Closed => None,
            _ => Some(self.timers.handshake_at()),
        }
    }

    /// Sends heartbeats, and gives up on a peer that is silent or does not finish its handshake or close.
    pub fn handle_timeout(&mut self, now: Millis) -> Result<(), Error> {
        self.now = now;
        match self.phase {
            Phase::Closed => Ok(()),
            Phase::Running => {
                self.release_due(now);
                self.keep_alive(now)
            }
            Phase::Closing if self.timers.close_is_overdue(now) => {
                self.shut();
                Err(Error::Close)
            }
            Phase::Closing => Ok(()),
            _ if self.timers.handshake_at() <= now => {
                self.shut();
                Err(Error::Handshake { waited_ms: now.0.saturating_sub(self.timers.started_at.0) })
            }
            _ => Ok(()),
        }
    }

    /// Answers [`Event::SaslInit`] of a server. Call `handle_input` again afterwards if input is left: a client may have
    /// sent more without waiting. With a code other than `Ok`, the connection is over once the output is written.
    pub fn sasl_outcome(&mut self, code: SaslCode, additional_data: Option<Bytes>) {
        self.answer_sasl(code, additional_data);
    }

    /// Closes the connection. Later frames of the peer are ignored; [`Event::Closed`] follows with its close.
    pub fn close(&mut self, error: Option<AmqpError>) {
        self.close_with(error);
    }

    /// Returns whether the connection is over once the output is written.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Begins a session. Returns `None` when the peer permits no more, or the connection is closing.
    pub fn begin(&mut self) -> Option<SessionId> {
        self.begin_session()
    }

    /// Ends a session and its links. [`Event::SessionEnded`] follows with the peer's end.
    pub fn end(&mut self, session: SessionId, error: Option<AmqpError>) {
        self.end_session(session, error);
    }

    /// Requests a link, in the role that `attach` names. The connection fills in the handle and `unsettled` of
    /// `attach`. Returns `None` when the session is gone or the peer permits no more handles.
    pub fn attach(&mut self, session: SessionId, attach: Attach) -> Option<LinkId> {
        self.attach_link(session, attach)
    }

    /// Accepts a link that the peer requested. Give a receiving link credit with [`Connection::set_credit`] afterwards.
    pub fn accept(&mut self, link: LinkId, reply: AttachReply) {
        self.accept_link(link, reply);
    }

    /// Refuses a link that the peer requested: an attach without termini, then a detach with the error.
    pub fn refuse(&mut self, link: LinkId, error: AmqpError) {
        self.refuse_link(link, Some(error));
    }

    /// Closes a link. Sends that still wait for the peer's window are dropped. [`Event::Detached`] follows with the
    /// peer's detach.
    pub fn detach(&mut self, link: LinkId, error: Option<AmqpError>) {
        self.detach_link(link, error);
    }

    /// Permits `credit` more deliveries on a receiving link, from now on.
    pub fn set_credit(&mut self, link: LinkId, credit: u32) {
        self.give_credit(link, credit);
    }

    /// Requests that the sender of a receiving link use its credit now or return it. [`Event::Flow`] with `drain` is
    /// the answer; credit that is set before it may be returned with the rest.
    pub fn drain(&mut self, link: LinkId) {
        self.ask_drain(link);
    }

    /// Answers a drain of a sending link. The remaining credit is returned after the sends that still wait.
    pub fn drained(&mut self, link: LinkId) {
        self.answer_drain(link);
    }

    /// Sets the number of available messages of a sending link, for the next flow.
    pub fn set_available(&mut self, link: LinkId, available: u32) {
        if let Some(link) = self.links.get_mut(link) {
            link.available = available;
        }
    }

    /// Returns how many more sends a sending link accepts now, or how many more deliveries may arrive on a receiving
    /// link.
    pub fn credit(&self, link: LinkId) -> u32 {
        self.links.get(link).map_or(0, Link::free_credit)
    }

    /// Returns how many small sends on a sending link would leave at once. The number is less than
    /// [`Connection::credit`] while the peer's session window is nearly used up, or nearly
    /// [`Limits::unsettled_outgoing_max`] deliveries of the session are unsettled; after 0, [`Event::Unblocked`]
    /// announces more. The links of a session share its room: a send on one takes from all. The number is also 0 while
    /// a delivery in parts is in progress on the link.
    ///
    /// Sends beyond this number wait, which is safe but has a price: a drain is answered only after them, and rhea,
    /// whose window shrinks with every delivery its user has not settled, gives up a link that does not answer at once.
    /// So take no more messages from a queue than this.
    pub fn sendable(&self, link: LinkId) -> u32 {
        let can_send = |link: &&Link| link.is_attached(Role::Sender) && !link.is_open;
        let Some(link) = self.links.get(link).filter(can_send) else { return 0 };
        let room = self.sessions.get(link.session).map_or(0, |session| session.room(&self.config.limits));
        link.free_credit().min(room)
    }

    /// Returns the number of unsettled deliveries of the link, sent or received.
    pub fn unsettled(&self, link: LinkId) -> u32 {
        self.links.get(link).map_or(0, |link| link.unsettled)
    }

    /// Sends one delivery. Its payload is the concatenation of the parts.
    ///
    /// It is split into frames of the peer's size. While the peer's session window is closed, it is copied and waits,
    /// in order. A delivery has no id before its first frame leaves (ids on the wire have no gaps, and a detach may
    /// drop a waiting delivery), so `tag` identifies it in outcomes.
    pub fn send(&mut self, link: LinkId, delivery: &Outgoing, parts: &[&[u8]]) -> Result<(), SendError> {
        self.send_delivery(link, delivery, parts)
    }

    /// Sends the next part of a delivery, which begins with the first part and ends with the part without `more`.
    /// `delivery` is the same for all parts. Sends on other links may be interleaved, sends on this link may not.
    ///
    /// A part is written or waits like a send. To limit memory, pass no more than [`Connection::part_room`] at once,
    /// and only while little output waits. An empty part with `more` does nothing.
    pub fn send_part(
        &mut self,
        link: LinkId,
        delivery: &Outgoing,
        parts: &[&[u8]],
        more: bool,
    ) -> Result<(), SendError> {
        self.send_some(link, delivery, parts, more)
    }

    /// Returns the bytes of a part that would leave at once. After 0, [`Event::Unblocked`] announces more.
    pub fn part_room(&self, link: LinkId) -> usize {
        let Some(link) = self.links.get(link).filter(|link| link.is_attached(Role::Sender)) else { return 0 };
        let frames = self.sessions.get(link.session).map_or(0, Session::frame_room);
        let frame_bytes = self.frame_size_out_max.saturating_sub(wire::HEAD_LEN_MAX);
        usize::try_from(frames).unwrap_or(usize::MAX).saturating_mul(frame_bytes)
    }

    /// Aborts the delivery in parts that is in progress on a link, if there is one. It counts as settled.
    pub fn abort(&mut self, link: LinkId) {
        self.abort_delivery(link);
    }

    /// Settles a delivery of either role with a final state and forgets it. Does nothing for a settled delivery.
    pub fn settle(&mut self, link: LinkId, id: DeliveryId, state: DeliveryState) {
        self.settle_delivery(link, id, state);
    }

    /// Settles all deliveries from `first` to `last` of a link, as [`settle`](Self::settle) does one after the other.
    pub fn settle_run(&mut self, link: LinkId, first: DeliveryId, last: DeliveryId, state: DeliveryState) {
        self.settle_deliveries(link, first, last, state);
    }

    /// Sends an outcome and leaves the delivery unsettled.
    ///
    /// On a receiving link, this proposes the outcome, and the sender answers with an [`Event::Disposition`] that
    /// settles the delivery. This is how a peek-lock client completes a message. On a sending link, this answers a
    /// proposal whose outcome is not applied yet, such as one in a transaction. The receiver may then propose another
    /// one.
    pub fn set_outcome(&mut self, link: LinkId, id: DeliveryId, state: DeliveryState) {
        self.propose_outcome(link, id, state);
    }

    /// Delays outcomes of received deliveries other than *accepted* until `span` after the last input, for peers that
    /// lose an outcome that arrives too early. Later dispositions of the same link and its detach wait behind such an
    /// outcome; nothing else does.
    ///
    /// Time is counted in whole milliseconds, so the delay on the wire is up to one millisecond shorter.
    pub fn hold_outcomes(&mut self, span: Duration) {
        self.holding.span = Some(span);
    }

    /// Stops tracking a delivery of a receiving link without a frame to the peer. Later dispositions of the peer for it
    /// are ignored.
    pub fn forget(&mut self, link: LinkId, id: DeliveryId) {
        self.forget_incoming(link, id);
    }

    pub fn link(&self, link: LinkId) -> Option<LinkInfo> {
        self.links.get(link).map(Link::info)
    }

    fn new(mut config: Config, now: Millis, is_client: bool, phase: Phase) -> Self {
        config.max_frame_size_bytes = config.max_frame_size_bytes.max(FRAME_SIZE_BYTES_MIN);
        config.handle_max = config.handle_max.min(Config::HANDLE_MAX_LIMIT);
        Self {
            is_client,
            phase,
            now,
            timers: Timers::new(&config, now),
            config,
            events: VecDeque::new(),
            out: BytesMut::new(),
            sasl_out: BytesMut::new(),
            is_held: false,
            sasl_client: None,
            has_sasl: false,
            is_open_sent: false,
            frame_size_out_max: FRAME_SIZE_BYTES_MIN as usize,
            remote_channel_max: u16::MAX,
            sessions: Arena::new(),
            links: Arena::new(),
            channels: Table::new(),
            remote_channels: Table::new(),
            dirty: Vec::new(),
            incomplete_bytes: 0,
            blocked_bytes: 0,
            holding: Holding::default(),
            endings: Endings::default(),
        }
    }

    fn keep_alive(&mut self, now: Millis) -> Result<(), Error> {
        if self.timers.silent_at().is_some_and(|at| at <= now) {
            let silent_ms = now.0.saturating_sub(self.timers.heard_at.0);
            let text = format!("nothing came for {silent_ms} ms, longer than twice the idle time-out");
            self.fail(AmqpError::new(condition::RESOURCE_LIMIT_EXCEEDED, text));
            return Err(Error::Idle { silent_ms });
        }
        // While output waits, the peer is not reading, and a heartbeat would only add to it.
        if self.timers.take_ping(now) && self.out.is_empty() {
            self.out.extend_from_slice(&EMPTY_FRAME);
        }
        Ok(())
    }

    fn mark_dirty(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(id)
            && !session.is_dirty
        {
            session.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// Writes the pending merges.
    fn flush(&mut self) {
        for id in self.dirty.drain(..) {
            if let Some(session) = self.sessions.get_mut(id) {
                session.flush(&mut self.out, &self.config);
            }
        }
    }

    /// Forgets all sessions and links, so that calls with their ids do nothing.
    fn forget_all(&mut self) {
        self.sessions.clear();
        self.links.clear();
        self.channels = Table::new();
        self.remote_channels = Table::new();
        self.dirty.clear();
        self.incomplete_bytes = 0;
        self.blocked_bytes = 0;
        self.holding.clear();
    }
}
