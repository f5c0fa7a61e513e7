//! Frames and protocol headers: the form of performatives in the byte stream.

use bytes::{BufMut, BytesMut};

use crate::codec::{Decode, DecodeError, Decoder, Encode};
use crate::error::condition;
use crate::performative::Performative;
use crate::sasl::SaslFrame;

/// Length of a protocol header and of the fixed part of a frame header.
const HEADER_LEN: usize = 8;
/// AMQP 1.0 §2.3.1: the data offset counts words of four bytes.
const WORD_LEN: usize = 4;
const TYPE_AMQP: u8 = 0;
const TYPE_SASL: u8 = 1;

/// AMQP 1.0 §2.7.1: every peer accepts frames of this size, and no limit may be lower.
pub const FRAME_SIZE_BYTES_MIN: u32 = 512;
/// A frame without content, which keeps an idle connection alive.
pub const EMPTY_FRAME: [u8; 8] = [0, 0, 0, 8, 2, TYPE_AMQP, 0, 0];

/// The layer that a protocol header requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Amqp,
    Tls,
    Sasl,
}

/// The eight bytes before the frames of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolHeader {
    pub protocol: Protocol,
}

/// The peer does not use AMQP 1.0.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an AMQP 1.0 protocol header, the peer sent {found:02x?}")]
pub struct NotAmqp {
    pub found: [u8; 8],
}

impl ProtocolHeader {
    pub const LEN: usize = HEADER_LEN;

    /// Decodes a header. Returns None when fewer than eight bytes are present and they may still become a header.
    pub fn decode(input: &[u8]) -> Result<Option<Self>, NotAmqp> {
        match input.first_chunk() {
            Some(found) => Self::parse(*found).map(Some),
            None if b"AMQP".starts_with(input) || input.starts_with(b"AMQP") => Ok(None),
            None => Err(NotAmqp { found: padded(input) }),
        }
    }

    fn parse(found: [u8; 8]) -> Result<Self, NotAmqp> {
        let protocol = match found {
            [b'A', b'M', b'Q', b'P', 0, 1, 0, 0] => Protocol::Amqp,
            [b'A', b'M', b'Q', b'P', 2, 1, 0, 0] => Protocol::Tls,
            [b'A', b'M', b'Q', b'P', 3, 1, 0, 0] => Protocol::Sasl,
            _ => return Err(NotAmqp { found }),
        };
        Ok(Self { protocol })
    }

    pub fn to_bytes(self) -> [u8; 8] {
        let id = match self.protocol {
            Protocol::Amqp => 0,
            Protocol::Tls => 2,
            Protocol::Sasl => 3,
        };
        [b'A', b'M', b'Q', b'P', id, 1, 0, 0]
    }
}

fn padded(input: &[u8]) -> [u8; 8] {
    let mut found = [0; 8];
    found.iter_mut().zip(input).for_each(|(place, byte)| *place = *byte);
    found
}

/// One frame. The payload of a transfer is borrowed from the input.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<'a> {
    Empty,
    Amqp { channel: u16, performative: Performative, payload: &'a [u8] },
    Sasl(SaslFrame),
}

/// The bytes are no frame, or the frame exceeds the negotiated size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {size} bytes is larger than the agreed {size_max}")]
    TooLarge { size: u32, size_max: u32 },
    #[error("a frame of {size} bytes is smaller than its header")]
    TooSmall { size: u32 },
    #[error(
        "a data offset of {doff} words does not lie between the header and the end of a frame of {size} bytes"
    )]
    BadOffset { doff: u8, size: u32 },
    #[error("frame type {kind} is neither AMQP nor SASL")]
    UnknownType { kind: u8 },
    #[error("a SASL frame without content")]
    EmptySasl,
    #[error("a {performative} frame has {len} bytes behind its performative")]
    StrayPayload { performative: &'static str, len: usize },
    #[error("undecodable frame: {0}")]
    Undecodable(#[from] DecodeError),
}

impl FrameError {
    /// Returns the condition for closing the connection.
    pub fn condition(&self) -> &'static str {
        match self {
            Self::Undecodable(_) => condition::DECODE_ERROR,
            _ => condition::FRAMING_ERROR,
        }
    }
}

/// Decodes the frame at the start of the input, and returns its length.
///
/// Returns None when the frame is incomplete. Its size is checked as soon as it is known, so that no caller waits for,
/// or reserves room for, a frame that is too large.
pub fn decode_frame(input: &[u8], size_max: u32) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(size) = input.first_chunk().map(|size| u32::from_be_bytes(*size)) else {
        return Ok(None);
    };
    let len = check_size(size, size_max)?;
    let Some(frame) = input.get(..len) else {
        return Ok(None);
    };
    // `check_size` has checked that eight bytes are present.
    let Some([_, _, _, _, doff, kind, channel @ ..]) = frame.first_chunk::<HEADER_LEN>() else {
        return Err(FrameError::TooSmall { size });
    };
    let body = body(frame, *doff, size)?;
    let frame = match *kind {
        TYPE_AMQP => decode_amqp(body, u16::from_be_bytes(*channel))?,
        TYPE_SASL => decode_sasl(body)?,
        kind => return Err(FrameError::UnknownType { kind }),
    };
    Ok(Some((frame, len)))
}

fn check_size(size: u32, size_max: u32) -> Result<usize, FrameError> {
    if size > size_max {
        return Err(FrameError::TooLarge { size, size_max });
    }
    match usize::try_from(size) {
        Ok(len) if len >= HEADER_LEN => Ok(len),
        _ => Err(FrameError::TooSmall { size }),
    }
}

/// Returns the bytes after the header and its extension, which is ignored.
fn body(frame: &[u8], doff: u8, size: u32) -> Result<&[u8], FrameError> {
    let start = usize::from(doff) * WORD_LEN;
    match frame.get(start..) {
        Some(body) if start >= HEADER_LEN => Ok(body),
        _ => Err(FrameError::BadOffset { doff, size }),
    }
}

fn decode_amqp(body: &[u8], channel: u16) -> Result<Frame<'_>, FrameError> {
    if body.is_empty() {
        return Ok(Frame::Empty);
    }
    let mut decoder = Decoder::new(body);
    let performative = Performative::decode(&mut decoder)?;
    let payload = decoder.remaining();
    if !payload.is_empty() && !matches!(performative, Performative::Transfer(_)) {
        return Err(FrameError::StrayPayload { performative: performative.name(), len: payload.len() });
    }
    Ok(Frame::Amqp { channel, performative, payload })
}

fn decode_sasl(body: &[u8]) -> Result<Frame<'_>, FrameError> {
    if body.is_empty() { Err(FrameError::EmptySasl) } else { Ok(Frame::Sasl(SaslFrame::decode_all(body)?)) }
}

/// Writes one frame at the end of a buffer; the size is filled in by `finish`.
///
/// ```
/// use bytes::{BufMut, BytesMut};
/// use peeklock_amqp::{FrameWriter, Transfer};
///
/// let mut out = BytesMut::new();
/// let mut frame = FrameWriter::amqp(&mut out, 1, &Transfer { handle: 7, ..Transfer::default() });
/// frame.payload().put_slice(b"encoded message");
/// assert_eq!(frame.finish(), out.len());
/// ```
#[derive(Debug)]
pub struct FrameWriter<'a> {
    out: &'a mut BytesMut,
    start: usize,
}

impl<'a> FrameWriter<'a> {
    pub fn amqp(out: &'a mut BytesMut, channel: u16, performative: &impl Encode) -> Self {
        Self::begin(out, TYPE_AMQP, channel, performative)
    }

    pub fn sasl(out: &'a mut BytesMut, frame: &SaslFrame) -> Self {
        Self::begin(out, TYPE_SASL, 0, frame)
    }

    fn begin(out: &'a mut BytesMut, kind: u8, channel: u16, performative: &impl Encode) -> Self {
        let start = out.len();
        let [high, low] = channel.to_be_bytes();
        out.put_slice(&[0, 0, 0, 0, 2, kind, high, low]);
        performative.encode(out);
        Self { out, start }
    }

    /// Returns the buffer for the payload of a transfer.
    pub fn payload(&mut self) -> &mut BytesMut {
        self.out
    }

    /// Returns the bytes of this frame so far.
    pub fn frame_len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Fills in the size and returns it.
    pub fn finish(self) -> usize {
        let len = self.frame_len();
        let size = crate::codec::length_u32(len);
        self.out[self.start..self.start + 4].copy_from_slice(&size.to_be_bytes());
        len
    }
}

/// Writes a whole frame: performative and payload.
pub fn encode_frame(out: &mut BytesMut, channel: u16, performative: &impl Encode, payload: &[u8]) {
    let mut frame = FrameWriter::amqp(out, channel, performative);
    frame.payload().put_slice(payload);
    frame.finish();
}
