//! The events of a connection, and the arguments of its calls.

use bytes::Bytes;

use super::{DeliveryId, LinkId, SessionId};
use crate::{
    AmqpError, Attach, Begin, DeliveryState, DeliveryTag, Fields, Open, ReceiverSettleMode, SaslCode,
    SenderSettleMode, Source, Symbol, Target, Text,
};

/// An action of the peer. Events are in the order of the frames that caused them.
#[derive(Debug)]
pub enum Event {
    /// Server: the peer sent credentials. Answer with [`Connection::sasl_outcome`](super::Connection::sasl_outcome).
    SaslInit { mechanism: Symbol, initial_response: Option<Bytes>, hostname: Option<Text> },
    /// Client: the server's decision. Unless it is `Ok`, the connection is over.
    SaslOutcome { code: SaslCode, additional_data: Option<Bytes> },
    /// The peer's open arrived; ours is sent. `sasl` states whether a SASL exchange preceded it.
    Opened { open: Box<Open>, sasl: bool },
    /// A session exists on both sides: the peer began it (our begin is sent), or answered ours.
    SessionBegun { session: SessionId, begin: Box<Begin> },
    /// A session is over: the peer ended it, answered our end, or violated a rule (then `error` is ours). Each
    /// of its links had its `Detached` before.
    SessionEnded { session: SessionId, error: Option<AmqpError> },
    /// The peer requests a link. Answer with `accept` or `refuse`, now or later. No event of this link precedes the
    /// answer, except `Detached`.
    Attach { session: SessionId, link: LinkId, attach: Box<Attach> },
    /// The peer accepted a link that we requested. A refusal appears only as `Detached`.
    Attached { link: LinkId, attach: Box<Attach> },
    /// A link is over. Emitted exactly once for each link that was announced by `Attach` or made by `attach`, except
    /// for refused ones and when the whole connection closes. The causes: the peer detached it (we have answered),
    /// answered our detach, or violated a rule (then `error` is ours), or its session ended.
    Detached { link: LinkId, closed: bool, error: Option<AmqpError> },
    /// A whole delivery arrived. No event is emitted for a delivery that was rejected because it exceeds the link's
    /// size limit, or that its sender aborted. Neither costs credit.
    Delivery { link: LinkId, delivery: Delivery },
    /// A piece of a delivery larger than [`Limits::whole_size_bytes_max`](super::Limits::whole_size_bytes_max), as its
    /// frames arrive. A link has one such delivery at a time. The connection keeps no part, so a driver limits memory
    /// by not reading while it cannot take more. `Detached` and the end of the connection also end a delivery in parts.
    ///
    /// A driver that needs no more of it settles it early: its remaining frames are dropped without further parts, and
    /// the outcome is sent after its last frame.
    Part { link: LinkId, id: DeliveryId, part: Part },
    /// The peer sent the state of one delivery. For a delivery that we sent and that is not `settled`, answer with
    /// [`Connection::settle`](super::Connection::settle) or
    /// [`Connection::set_outcome`](super::Connection::set_outcome); until then no other unsettled outcome of it is
    /// reported.
    Disposition {
        link: LinkId,
        id: DeliveryId,
        tag: DeliveryTag,
        state: Option<DeliveryState>,
        settled: bool,
    },
    /// A delivery exceeded the link's size limit and has been rejected. Emitted only when its sender had sent a state
    /// with it, such as the transaction it belongs to.
    Oversized { link: LinkId, state: Box<DeliveryState> },
    /// On a link we send on: `credit` more deliveries may be sent. With `drain`, send the available messages and then
    /// call [`Connection::drained`](super::Connection::drained), also when credit is 0.
    /// On a link we receive on: `drain` means that a drain is complete.
    Flow { link: LinkId, credit: u32, drain: bool, available: Option<u32> },
    /// This session had no room for sends and has room again: the peer opened its window and the waiting sends have
    /// left, or unsettled deliveries were settled or forgotten. See
    /// [`Connection::sendable`](super::Connection::sendable).
    ///
    /// Also emitted when waiting sends were dropped with their link or with the session itself. Then the room is in
    /// [`Connection::blocked_len`](super::Connection::blocked_len), which all sessions share.
    Unblocked { session: SessionId },
    /// The connection is over: the peer closed it or answered our close. No `Detached` or `SessionEnded` follow for its
    /// links and sessions.
    Closed { error: Option<AmqpError> },
}

/// One received message.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: DeliveryId,
    pub tag: DeliveryTag,
    pub message_format: u32,
    /// The sender has already settled it: settling it again has no effect.
    pub settled: bool,
    /// The state that the sender sent with it, such as the transaction it belongs to.
    pub state: Option<Box<DeliveryState>>,
    /// The encoded message. A single-frame payload shares the driver's read buffer, so copy data that is kept for long.
    pub payload: Bytes,
}

/// One step of a delivery that arrives in parts.
#[derive(Debug, Clone)]
pub enum Part {
    /// The bytes that arrived before the delivery was known to be large. `settled` and `state` are the sender's values
    /// so far.
    First(Box<Delivery>),
    /// The bytes that follow. They share the driver's read buffer.
    More(Bytes),
    /// The delivery is complete; `settled` and `state` are the sender's last values.
    Last { settled: bool, state: Option<Box<DeliveryState>> },
    /// The delivery ended early: its sender aborted it, or it exceeds the link's size limit and has been rejected. It
    /// costs no credit.
    Dropped,
}

/// The parameters of an outgoing delivery; the payload is passed separately.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub tag: DeliveryTag,
    pub message_format: u32,
    pub settled: bool,
    pub state: Option<DeliveryState>,
}

/// The answer to an [`Event::Attach`]. A `None` echoes the peer's request.
#[derive(Debug, Clone, Default)]
pub struct AttachReply {
    pub source: Option<Source>,
    pub target: Option<Target>,
    pub snd_settle_mode: Option<SenderSettleMode>,
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// The largest message we accept on this link, also announced to the peer. A larger one is rejected. `None`: the
    /// connection's limit, which is then announced too (some clients read 0 or nothing as "nothing fits").
    pub max_message_size: Option<u64>,
    /// Hands up every delivery of the link whole, also above
    /// [`Limits::whole_size_bytes_max`](super::Limits::whole_size_bytes_max).
    pub takes_whole: bool,
    pub properties: Option<Fields>,
    pub offered_capabilities: Vec<Symbol>,
}
