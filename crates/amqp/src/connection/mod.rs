//! The AMQP 1.0 connection machine, for both roles.
//!
//! Bytes and calls go in, bytes and events come out. It owns sessions, links, credit, windows, delivery numbering,
//! settlement and heartbeats of one connection. It has no clock, socket, task or random source, and never decides
//! what a message means.
//!
//! A driver's loop, for either role:
//!
//! ```text
//! read → handle_input → poll_event until None (calls: accept, send, settle, …) → write output → sleep until poll_timeout
//! ```
//!
//! Rules that hold everywhere:
//!
//! * Frames leave in the order of calls. Settlements may be merged into ranges, but leave before a later send,
//!   detach, end or close. A send may have to wait for the peer's window; later sends of its session wait behind it.
//! * One detach per handle, one end per session, one close: never a reply to a reply.
//! * Memory a peer can make us hold is bounded by [`Config`] and [`Limits`], as long as the driver stops reading
//!   while [`Connection::output_len`] is above a bound of its own.

mod config;
mod error;
mod event;
mod id;
mod time;

use bytes::{Bytes, BytesMut};

pub use config::{Config, Limits, SaslClient};
pub use error::{Error, SendError};
pub use event::{AttachReply, Delivery, Event, Outgoing};
pub use id::{DeliveryId, LinkId, SessionId};
pub use time::Millis;

use crate::{AmqpError, Attach, DeliveryState, ReceiverSettleMode, Role, SaslCode, SenderSettleMode, Text};

/// One AMQP connection, either side of it.
pub struct Connection {}

/// What is agreed about a link.
#[derive(Debug, Clone)]
pub struct LinkInfo {
    pub session: SessionId,
    pub name: Text,
    /// Our role on it.
    pub role: Role,
    pub snd_settle_mode: SenderSettleMode,
    pub rcv_settle_mode: ReceiverSettleMode,
    /// The largest message the peer takes, when it named one that is not 0. Not enforced by `send`.
    pub remote_max_message_size: Option<u64>,
}

impl Connection {
    /// Waits for the peer's header. A peer may start with SASL or without; [`Event::Opened`] tells.
    pub fn server(_config: Config, _now: Millis) -> Self {
        unimplemented!()
    }

    /// Starts at once: header, SASL if wanted, open. Sessions and links may be asked for right away; their frames
    /// wait until the handshake lets them go.
    pub fn client(_config: Config, _sasl: Option<SaslClient>, _now: Millis) -> Self {
        unimplemented!()
    }

    /// Consumes all whole frames. What is left in `input` belongs to a frame that is not complete, or waits for
    /// [`Connection::sasl_outcome`].
    ///
    /// After an error the peer has been told what it did (in the output), and later input is ignored.
    pub fn handle_input(&mut self, _now: Millis, _input: &mut BytesMut) -> Result<(), Error> {
        unimplemented!()
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        unimplemented!()
    }

    /// Completes what waits to be merged (settlements, window updates) and gives the bytes to write. The driver
    /// takes from the front what it has written.
    pub fn output(&mut self) -> &mut BytesMut {
        unimplemented!()
    }

    /// Whether [`Connection::output`] would give anything.
    pub fn has_output(&self) -> bool {
        unimplemented!()
    }

    /// Bytes ready to be written. Stop reading from a peer while this grows.
    pub fn output_len(&self) -> usize {
        unimplemented!()
    }

    /// Bytes of sends that wait for the peer to open its session windows.
    pub fn blocked_len(&self) -> usize {
        unimplemented!()
    }

    /// Call [`Connection::handle_timeout`] at this time or soon after. Changes with every other call.
    pub fn poll_timeout(&self) -> Option<Millis> {
        unimplemented!()
    }

    /// Sends heartbeats; gives up on a peer that is silent or does not finish its handshake or close.
    pub fn handle_timeout(&mut self, _now: Millis) -> Result<(), Error> {
        unimplemented!()
    }

    /// Server: answers [`Event::SaslInit`]. Call `handle_input` again afterwards if input is left: a client may have
    /// sent more without waiting. With a code other than `Ok` the connection is over once the output is written.
    pub fn sasl_outcome(&mut self, _code: SaslCode, _additional_data: Option<Bytes>) {
        unimplemented!()
    }

    /// Closes the connection. Frames the peer still sends are ignored; [`Event::Closed`] comes with its close.
    pub fn close(&mut self, _error: Option<AmqpError>) {
        unimplemented!()
    }

    /// Nothing more will come or go, once the output is written.
    pub fn is_closed(&self) -> bool {
        unimplemented!()
    }

    /// Begins a session. `None` when the peer allows no more, or the connection is closing.
    pub fn begin(&mut self) -> Option<SessionId> {
        unimplemented!()
    }

    /// Ends a session and its links. [`Event::SessionEnded`] comes with the peer's end.
    pub fn end(&mut self, _session: SessionId, _error: Option<AmqpError>) {
        unimplemented!()
    }

    /// Asks for a link, in the role that `attach` names. Handle and `unsettled` of `attach` are ours to fill.
    /// `None` when the session is gone or the peer allows no more handles.
    pub fn attach(&mut self, _session: SessionId, _attach: Attach) -> Option<LinkId> {
        unimplemented!()
    }

    /// Agrees to a link the peer asked for. Give a receiving link credit with [`Connection::set_credit`] afterwards.
    pub fn accept(&mut self, _link: LinkId, _reply: AttachReply) {
        unimplemented!()
    }

    /// Refuses a link the peer asked for: an attach without termini, then a detach with the error.
    pub fn refuse(&mut self, _link: LinkId, _error: AmqpError) {
        unimplemented!()
    }

    /// Closes a link. Sends of it that still wait for the peer's window are dropped.
    /// [`Event::Detached`] comes with the peer's detach.
    pub fn detach(&mut self, _link: LinkId, _error: Option<AmqpError>) {
        unimplemented!()
    }

    /// Receiving link: from now on `credit` more deliveries may come.
    pub fn set_credit(&mut self, _link: LinkId, _credit: u32) {
        unimplemented!()
    }

    /// Receiving link: asks the sender to use its credit now or give it back. [`Event::Flow`] with `drain` answers.
    pub fn drain(&mut self, _link: LinkId) {
        unimplemented!()
    }

    /// Sending link: answers a drain. The credit that is left is given back, after sends that still wait.
    pub fn drained(&mut self, _link: LinkId) {
        unimplemented!()
    }

    /// Sending link: how many messages wait behind it, as told in the next flow.
    pub fn set_available(&mut self, _link: LinkId, _available: u32) {
        unimplemented!()
    }

    /// Sending link: how many more sends it takes now. Receiving link: how many more deliveries may come.
    pub fn credit(&self, _link: LinkId) -> u32 {
        unimplemented!()
    }

    /// Sends one delivery whose payload is the parts one after the other.
    ///
    /// It is split into frames of the peer's size. While the peer's session window is closed it is copied and waits,
    /// in order. A delivery has no id before its first frame leaves (ids on the wire have no gaps, and a waiting
    /// delivery may be dropped by a detach), so outcomes are told apart by `tag`.
    pub fn send(&mut self, _link: LinkId, _delivery: &Outgoing, _parts: &[&[u8]]) -> Result<(), SendError> {
        unimplemented!()
    }

    /// Either role: settles a delivery with a final state and forgets it. Does nothing for one that is settled.
    pub fn settle(&mut self, _link: LinkId, _id: DeliveryId, _state: DeliveryState) {
        unimplemented!()
    }

    /// Receiving link: proposes an outcome and leaves the delivery unsettled; the sender answers with a
    /// [`Event::Disposition`] that settles it. This is how a peek-lock client completes a message.
    pub fn set_outcome(&mut self, _link: LinkId, _id: DeliveryId, _state: DeliveryState) {
        unimplemented!()
    }

    pub fn link(&self, _link: LinkId) -> Option<LinkInfo> {
        unimplemented!()
    }
}
