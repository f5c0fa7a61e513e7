//! AMQP 1.0 without I/O: types, codec, frames, messages, and the connection's state machines.
//!
//! Bytes go in, typed values and events come out. The crate has no broker, clock, socket, task or random source.
//! Everything that a peer chooses (sizes, counts, depth) has a named limit, and every rejection states where and why.

mod batch;
pub mod codec;
pub mod connection;
mod decimal;
mod error;
mod frame;
mod message;
mod performative;
mod sasl;
mod state;
mod terminus;
mod text;
mod value;

pub use batch::{BATCH_FORMAT, Batch, BatchBuilder, is_batch};
pub use codec::{
    DEPTH_MAX, Decode, DecodeError, Decoder, Encode, Problem, VALUES_MAX, ZERO_WIDTH_ELEMENTS_MAX,
};
pub use decimal::{parse_decimal, show_decimal};
pub use error::{AmqpError, condition};
pub use frame::{
    EMPTY_FRAME, FRAME_SIZE_BYTES_MIN, Frame, FrameError, FrameWriter, NotAmqp, Protocol, ProtocolHeader,
    decode_frame, encode_frame,
};
pub use message::{
    Body, BodyKind, Entries, Header, Message, MessageId, MessageIdRef, Pair, Properties, PropertiesRef,
    RawMap, RawValue, Sections,
};
pub use performative::{
    Attach, Begin, Close, DeliveryTag, Detach, Disposition, End, Flow, Open, Performative,
    ReceiverSettleMode, Role, SenderSettleMode, TagTooLong, Transfer,
};
pub use sasl::{SaslChallenge, SaslCode, SaslFrame, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse};
pub use state::{Declare, DeliveryState, Discharge};
pub use terminus::{Coordinator, Source, Target, TargetNode};
pub use text::{NotAscii, Symbol, Text};
pub use value::{Array, Described, Fields, Kind, MixedArray, Value};
