//! The nine performatives of AMQP 1.0 §2.7.

use std::fmt;

use crate::codec::composite;
use crate::error::AmqpError;
use crate::state::DeliveryState;
use crate::terminus::{Source, Target};
use crate::text::{Symbol, Text};
use crate::value::{Fields, Value};

/// The two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Sender,
    Receiver,
}

impl Role {
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SenderSettleMode {
    Unsettled,
    Settled,
    #[default]
    Mixed,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReceiverSettleMode {
    #[default]
    First,
    Second,
}

impl ReceiverSettleMode {
    /// Returns the number of the mode on the wire.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// A delivery tag, kept inline: AMQP 1.0 §2.8.7 allows 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryTag {
    len: u8,
    /// Zero beyond `len`, so that derived equality and hash are right.
    bytes: [u8; DeliveryTag::LEN_MAX],
}

/// The tag is longer than [`DeliveryTag::LEN_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a delivery tag of {len} bytes is longer than the 32 that AMQP allows")]
pub struct TagTooLong {
    pub len: usize,
}

impl DeliveryTag {
    pub const LEN_MAX: usize = 32;

    pub fn new(tag: &[u8]) -> Result<Self, TagTooLong> {
        let mut bytes = [0; Self::LEN_MAX];
        let (Some(place), Ok(len)) = (bytes.get_mut(..tag.len()), u8::try_from(tag.len())) else {
            return Err(TagTooLong { len: tag.len() });
        };
        place.copy_from_slice(tag);
        Ok(Self { len, bytes })
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Returns the bytes, followed by zeros, and their number.
    pub(crate) fn padded(&self) -> ([u8; Self::LEN_MAX], usize) {
        (self.bytes, self.len.into())
    }
}

impl From<[u8; 16]> for DeliveryTag {
    fn from(tag: [u8; 16]) -> Self {
        let mut bytes = [0; Self::LEN_MAX];
        bytes[..16].copy_from_slice(&tag);
        Self { len: 16, bytes }
    }
}

impl From<u32> for DeliveryTag {
    fn from(tag: u32) -> Self {
        let mut bytes = [0; Self::LEN_MAX];
        bytes[..4].copy_from_slice(&tag.to_be_bytes());
        Self { len: 4, bytes }
    }
}

impl AsRef<[u8]> for DeliveryTag {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

composite! {
    pub struct Open: 0x10 {
        pub container_id: Text,
        pub hostname: Option<Text>,
        pub max_frame_size: u32 = u32::MAX,
        pub channel_max: u16 = u16::MAX,
        /// Milliseconds.
        pub idle_time_out: Option<u32>,
        pub outgoing_locales: Vec<Symbol>,
        pub incoming_locales: Vec<Symbol>,
        pub offered_capabilities: Vec<Symbol>,
        pub desired_capabilities: Vec<Symbol>,
        pub properties: Option<Fields>,
    }
}

composite! {
    pub struct Begin: 0x11 {
        pub remote_channel: Option<u16>,
        pub next_outgoing_id: u32,
        pub incoming_window: u32,
        pub outgoing_window: u32,
        pub handle_max: u32 = u32::MAX,
        pub offered_capabilities: Vec<Symbol>,
        pub desired_capabilities: Vec<Symbol>,
        pub properties: Option<Fields>,
    }
}

composite! {
    pub struct Attach: 0x12 {
        pub name: Text,
        pub handle: u32,
        pub role: Role,
        pub snd_settle_mode: SenderSettleMode = SenderSettleMode::Mixed,
        pub rcv_settle_mode: ReceiverSettleMode = ReceiverSettleMode::First,
        pub source: Option<Source>,
        pub target: Option<Target>,
        /// The states of the unsettled deliveries, by delivery tag.
        pub unsettled: Option<Vec<(Value, Value)>>,
        pub incomplete_unsettled: bool = false,
        pub initial_delivery_count: Option<u32>,
        pub max_message_size: Option<u64>,
        pub offered_capabilities: Vec<Symbol>,
        pub desired_capabilities: Vec<Symbol>,
        pub properties: Option<Fields>,
    }
}

impl Open {
    /// Creates an open with the values of missing fields: no limits and no properties.
    pub fn new(container_id: impl Into<Text>) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            max_frame_size: u32::MAX,
            channel_max: u16::MAX,
            idle_time_out: None,
            outgoing_locales: Vec::new(),
            incoming_locales: Vec::new(),
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: None,
        }
    }
}

impl Begin {
    pub fn new(next_outgoing_id: u32, incoming_window: u32, outgoing_window: u32) -> Self {
        Self {
            remote_channel: None,
            next_outgoing_id,
            incoming_window,
            outgoing_window,
            handle_max: u32::MAX,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: None,
        }
    }
}

impl Attach {
    /// Creates an attach without termini. In this form it is the reply that refuses a link.
    pub fn new(name: impl Into<Text>, handle: u32, role: Role) -> Self {
        Self {
            name: name.into(),
            handle,
            role,
            snd_settle_mode: SenderSettleMode::default(),
            rcv_settle_mode: ReceiverSettleMode::default(),
            source: None,
            target: None,
            unsettled: None,
            incomplete_unsettled: false,
            initial_delivery_count: None,
            max_message_size: None,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            properties: None,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Flow {
    pub next_incoming_id: Option<u32>,
    pub incoming_window: u32,
    pub next_outgoing_id: u32,
    pub outgoing_window: u32,
    pub handle: Option<u32>,
    pub delivery_count: Option<u32>,
    pub link_credit: Option<u32>,
    pub available: Option<u32>,
    pub drain: bool,
    pub echo: bool,
    pub properties: Option<Fields>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transfer {
    pub handle: u32,
    pub delivery_id: Option<u32>,
    pub delivery_tag: Option<DeliveryTag>,
    pub message_format: Option<u32>,
    pub settled: Option<bool>,
    pub more: bool,
    pub rcv_settle_mode: Option<ReceiverSettleMode>,
    pub state: Option<DeliveryState>,
    pub resume: bool,
    pub aborted: bool,
    pub batchable: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Disposition {
    pub role: Role,
    pub first: u32,
    /// The last delivery-id; `None` means only `first`.
    pub last: Option<u32>,
    pub settled: bool,
    pub state: Option<DeliveryState>,
    pub batchable: bool,
}

composite! {
    pub struct Detach: 0x16 {
        pub handle: u32,
        pub closed: bool = false,
        pub error: Option<AmqpError>,
    }
}

composite! {
    #[derive(Default)]
    pub struct End: 0x17 {
        pub error: Option<AmqpError>,
    }
}

composite! {
    #[derive(Default)]
    pub struct Close: 0x18 {
        pub error: Option<AmqpError>,
    }
}

/// One performative. The large ones are boxed so that the hot ones stay cheap to move.
#[derive(Debug, Clone, PartialEq)]
pub enum Performative {
    Open(Box<Open>),
    Begin(Box<Begin>),
    Attach(Box<Attach>),
    Flow(Flow),
    Transfer(Transfer),
    Disposition(Disposition),
    Detach(Detach),
    End(End),
    Close(Close),
}

impl Performative {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Begin(_) => "begin",
            Self::Attach(_) => "attach",
            Self::Flow(_) => "flow",
            Self::Transfer(_) => "transfer",
            Self::Disposition(_) => "disposition",
            Self::Detach(_) => "detach",
            Self::End(_) => "end",
            Self::Close(_) => "close",
        }
    }
}

macro_rules! performative_from {
    ($($name:ident => $wrap:expr),* $(,)?) => {
        $(impl From<$name> for Performative {
            fn from(performative: $name) -> Self {
                Self::$name($wrap(performative))
            }
        })*
    };
}

performative_from! {
    Open => Box::new, Begin => Box::new, Attach => Box::new, Flow => std::convert::identity,
    Transfer => std::convert::identity, Disposition => std::convert::identity, Detach => std::convert::identity,
    End => std::convert::identity, Close => std::convert::identity,
}
