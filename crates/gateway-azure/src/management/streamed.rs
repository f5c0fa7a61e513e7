//! Encodes a response with messages that are too large for memory: all lengths are determined before the bodies are
//! read.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use peeklock_amqp::{Encode, MessageId, Value};
use peeklock_broker::{Message, StoredBody};
use peeklock_message::{encode_front_of_large, encode_whole};

use crate::management::response::{Piece, Streamed};
use crate::message::response_head;

// Encodings of AMQP 1.0 §1.6, in their wide forms.
const VALUE_SECTION: &[u8] = &[0x00, 0x53, 0x77];
const MAP32: u8 = 0xd1;
const LIST32: u8 = 0xd0;
const BINARY32: u8 = 0xb0;
const UUID: u8 = 0x98;
/// The bytes of a length and a count.
const COMPOUND_HEAD_LEN: usize = 8;

const MESSAGES: &[u8] = b"\xa1\x08messages";
const MESSAGE: &[u8] = b"\xa1\x07message";
const LOCK_TOKEN: &[u8] = b"\xa1\x0alock-token";

/// One message of the response: bytes in memory, and the range of the stored body that follows them.
struct ListedMessage<'a> {
    found: &'a Message,
    front: Bytes,
    rest: std::ops::Range<u32>,
}

impl<'a> ListedMessage<'a> {
    fn of(found: &'a Message) -> Option<Self> {
        let encoded = match found.rest {
            Some(_) => encode_front_of_large(&found.message, found.token, &found.body),
            None => encode_whole(&found.message, found.token, &found.body, false).map(|whole| (whole, 0..0)),
        };
        match encoded {
            Ok((front, rest)) => Some(ListedMessage { found, front, rest }),
            Err(error) => {
                tracing::error!("message {} cannot be read back: {error}", found.message.sequence_number);
                None
            }
        }
    }

    fn message_len(&self) -> usize {
        self.front.len() + self.rest.len()
    }

    /// Returns the number of bytes after the constructor of the message's map.
    fn len(&self) -> usize {
        let token_len = if self.found.token.is_some() { LOCK_TOKEN.len() + 1 + 16 } else { 0 };
        COMPOUND_HEAD_LEN + MESSAGE.len() + 1 + 4 + self.message_len() + token_len
    }
}

/// Encodes the response to a request for messages.
pub(super) fn encode(
    correlation: Option<MessageId>,
    properties: Vec<(&'static str, Value)>,
    found: &[&Message],
) -> Streamed {
    let entries: Vec<_> = found.iter().filter_map(|found| ListedMessage::of(found)).collect();
    let list_len = COMPOUND_HEAD_LEN + entries.iter().map(|entry| 1 + entry.len()).sum::<usize>();
    let mut out = Writer { pieces: VecDeque::new(), bytes: BytesMut::new() };
    response_head(correlation, properties).encode(&mut out.bytes);
    out.bytes.put_slice(VALUE_SECTION);
    out.put_compound(MAP32, COMPOUND_HEAD_LEN + MESSAGES.len() + 1 + list_len, 2);
    out.bytes.put_slice(MESSAGES);
    out.put_compound(LIST32, list_len, entries.len());
    for entry in entries {
        out.put_message(entry);
    }
    out.finish()
}

struct Writer {
    pieces: VecDeque<Piece>,
    bytes: BytesMut,
}

impl Writer {
    /// Writes the start of a compound value. `len` is the number of bytes after the constructor, including the four of
    /// the length.
    fn put_compound(&mut self, code: u8, len: usize, count: usize) {
        self.bytes.put_u8(code);
        self.put_number(len - 4);
        self.put_number(count);
    }

    /// Writes a length. The parts of one response are far below the largest length.
    fn put_number(&mut self, number: usize) {
        self.bytes.put_u32(u32::try_from(number).unwrap_or(u32::MAX));
    }

    fn put_message(&mut self, entry: ListedMessage<'_>) {
        let token = entry.found.token;
        self.put_compound(MAP32, entry.len(), if token.is_some() { 4 } else { 2 });
        self.bytes.put_slice(MESSAGE);
        self.bytes.put_u8(BINARY32);
        self.put_number(entry.message_len());
        self.bytes.put_slice(&entry.front);
        if let Some(rest) = entry.found.rest.clone().filter(|_| !entry.rest.is_empty()) {
            let message = &entry.found.message;
            let body = StoredBody { place: message.body, size_bytes: message.size_bytes };
            self.pieces.push_back(Piece::Bytes(self.bytes.split().freeze()));
            self.pieces.push_back(Piece::Stored { rest, body, range: entry.rest });
        }
        if let Some(token) = token {
            self.bytes.put_slice(LOCK_TOKEN);
            self.bytes.put_u8(UUID);
            self.bytes.put_slice(&token.to_bytes());
        }
    }

    fn finish(mut self) -> Streamed {
        if !self.bytes.is_empty() {
            self.pieces.push_back(Piece::Bytes(self.bytes.freeze()));
        }
        Streamed::new(self.pieces)
    }
}
