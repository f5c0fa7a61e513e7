//! What a connection tells its driver, and the arguments of its calls.

use bytes::Bytes;

use super::{DeliveryId, LinkId, SessionId};
use crate::{
    AmqpError, Attach, Begin, DeliveryState, DeliveryTag, Fields, Open, ReceiverSettleMode, SaslCode,
    SenderSettleMode, Source, Symbol, Target, Text,
};

/// Something the peer did. Events come in the order of the frames that caused them.
#[derive(Debug)]
pub enum Event {
    /// Server: the peer offers credentials. Answer with [`Connection::sasl_outcome`](super::Connection::sasl_outcome).
    SaslInit { mechanism: Symbol, initial_response: Option<Bytes>, hostname: Option<Text> },
    /// Client: the server's verdict. Unless it is `Ok` the connection is over.
    SaslOutcome { code: SaslCode, additional_data: Option<Bytes> },
    /// The peer's open came; ours is sent. `sasl` tells whether a SASL dialogue came before it.
    Opened { open: Box<Open>, sasl: bool },
    /// A session exists on both sides: the peer began it (our begin is sent), or answered ours.
    SessionBegun { session: SessionId, begin: Box<Begin> },
    /// A session is over: the peer ended it, answered our end, or broke a rule (then `error` is what we told it).
    /// Each of its links had its `Detached` before.
    SessionEnded { session: SessionId, error: Option<AmqpError> },
    /// The peer wants a link. Answer with `accept` or `refuse`, now or later. No event of this link comes before
    /// the answer, except `Detached`.
    Attach { session: SessionId, link: LinkId, attach: Box<Attach> },
    /// The peer agreed to a link that we asked for. A refusal shows only as `Detached`.
    Attached { link: LinkId, attach: Box<Attach> },
    /// A link is over. Comes exactly once for each link that was announced by `Attach` or made by `attach`, except
    /// for refused ones and when the whole connection closes. The causes: the peer detached it (we have answered),
    /// or answered our detach, or broke a rule (then `error` is what we told it), or its session ended.
    Detached { link: LinkId, closed: bool, error: Option<AmqpError> },
    /// A whole delivery came in. One larger than the link takes was rejected and is not told; nor is one that its
    /// sender aborted. Neither costs credit.
    Delivery { link: LinkId, delivery: Delivery },
    /// A piece of a delivery larger than [`Limits::whole_size_bytes_max`](super::Limits::whole_size_bytes_max), as its
    /// frames come in. A link has one such delivery at a time. Nothing is kept of a part, so a driver bounds memory by
    /// not reading while it cannot take more. `Detached`, or the end of the connection, ends a delivery in parts, too.
    ///
    /// A driver that has seen enough settles it early: what still comes of it is dropped without further parts, and the
    /// outcome leaves behind its last frame.
    Part { link: LinkId, id: DeliveryId, part: Part },
    /// The peer told the state of one delivery. For a delivery that we sent and that is not `settled`, answer with
    /// [`Connection::settle`](super::Connection::settle) or
    /// [`Connection::set_outcome`](super::Connection::set_outcome); until then no other unsettled outcome of it is reported.
    Disposition {
        link: LinkId,
        id: DeliveryId,
        tag: DeliveryTag,
        state: Option<DeliveryState>,
        settled: bool,
    },
    /// The peer's view of a link's credit.
    ///
    /// A delivery was larger than the link takes and has been rejected. Told only when its sender had said something of it, such as the
    /// transaction it belongs to.
    Oversized { link: LinkId, state: Box<DeliveryState> },
    /// On a link we send on: `credit` more deliveries may be sent. With `drain`, send what there is and then call
    /// [`Connection::drained`](super::Connection::drained), also when credit is 0.
    /// On a link we receive on: `drain` tells that a drain is complete.
    Flow { link: LinkId, credit: u32, drain: bool, available: Option<u32> },
    /// This session had no room for sends and has some again: the peer opened its window and sends that waited for it
    /// have left, or unsettled deliveries were settled or forgotten.
    /// See [`Connection::sendable`](super::Connection::sendable).
    ///
    /// Comes as well when sends that waited were dropped with their link, or with the session itself. Then the room is
    /// in [`Connection::blocked_len`](super::Connection::blocked_len), which all sessions share.
    Unblocked { session: SessionId },
    /// The connection is over: the peer closed it or answered our close. No `Detached` or `SessionEnded` come for
    /// what it took along.
    Closed { error: Option<AmqpError> },
}

/// One message as it came in.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: DeliveryId,
    pub tag: DeliveryTag,
    pub message_format: u32,
    /// The sender forgot it already: settling it again has no effect.
    pub settled: bool,
    /// What the sender said of it, such as the transaction it belongs to.
    pub state: Option<Box<DeliveryState>>,
    /// The encoded message. A single-frame payload shares the driver's read buffer, so copy what is kept for long.
    pub payload: Bytes,
}

/// One step of a delivery that comes in parts.
#[derive(Debug, Clone)]
pub enum Part {
    /// What came until it was known to be large. `settled` and `state` are what the sender has said so far.
    First(Box<Delivery>),
    /// The bytes that follow. They share the driver's read buffer.
    More(Bytes),
    /// All of it has come; `settled` and `state` as the sender said last.
    Last { settled: bool, state: Option<Box<DeliveryState>> },
    /// It is over before its end: its sender aborted it, or it is larger than the link takes and has been rejected. It
    /// costs no credit.
    Dropped,
}

/// What to say about a delivery that goes out; the payload is passed beside it.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub tag: DeliveryTag,
    pub message_format: u32,
    pub settled: bool,
    pub state: Option<DeliveryState>,
}

/// The answer to an [`Event::Attach`]. What is `None` echoes the peer's wish.
#[derive(Debug, Clone, Default)]
pub struct AttachReply {
    pub source: Option<Source>,
    pub target: Option<Target>,
    pub snd_settle_mode: Option<SenderSettleMode>,
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    /// The largest message we take on this link, and what the peer is told. A larger one is rejected.
    /// `None`: the connection's limit, which is then told too (some clients read 0 or nothing as "nothing fits").
    pub max_message_size: Option<u64>,
    /// Hands up every delivery of the link whole, also above [`Limits::whole_size_bytes_max`](super::Limits::whole_size_bytes_max).
    pub takes_whole: bool,
    pub properties: Option<Fields>,
    pub offered_capabilities: Vec<Symbol>,
}
