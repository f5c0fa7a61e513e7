//! A message that is too large for memory: its stored form is written while the message is being received.
//!
//! The result equals the result of [`StoredMessage::encode`](crate::StoredMessage::encode) for the whole message, with
//! one difference: the sections that the stored form has in front of the body must precede the body in the message.
//! After the body, only a footer and the delivery annotations that pyamqp writes last are accepted; these annotations
//! are not stored. Decimals in the body are not converted.

mod body;

use bytes::{Bytes, BytesMut};

use peeklock_amqp::codec::section;
use peeklock_amqp::{DecodeError, Decoder, Problem, Sections};

use self::body::{BodyScanner, Progress};
use crate::stored::{encode_front, put_delivery_annotations, put_raw};

/// Turns the bytes of one message into its stored form, part by part.
///
/// ```
/// use bytes::{Bytes, BytesMut};
/// use peeklock_amqp::{Encode, Message};
/// use peeklock_message::{LargeMessage, StoredMessage};
///
/// let mut message = BytesMut::new();
/// Message::data("a body of many megabytes").encode(&mut message);
/// let mut large = LargeMessage::new(100 << 20, None);
/// let mut stored = Vec::new();
/// for part in message.chunks(7) {
///     large.push(Bytes::copy_from_slice(part), &mut stored)?;
/// }
/// large.finish(&mut stored)?;
/// assert!(StoredMessage::parse(&stored.concat()).is_ok());
/// # Ok::<(), peeklock_amqp::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct LargeMessage {
    size_bytes_max: u64,
    message_id: Option<String>,
    /// Bytes of incomplete sections. Limited by [`LargeMessage::FRONT_BYTES_MAX`] and [`LargeMessage::TAIL_BYTES_MAX`].
    held: BytesMut,
    stage: Stage,
    /// The sections in front of the body, as received.
    front: Bytes,
    has_delivery_annotations: bool,
    /// The encoded footer. It is stored after the body, wherever the sender wrote it.
    footer: Option<Bytes>,
}

#[derive(Debug)]
enum Stage {
    /// All sections before this offset are complete and precede the body.
    Front {
        scanned: usize,
    },
    Body(BodyScanner),
    Tail,
}

impl LargeMessage {
    /// The maximum size of the sections in front of the body.
    pub const FRONT_BYTES_MAX: usize = 256 * 1024;
    /// The maximum size of the sections after the body.
    pub const TAIL_BYTES_MAX: usize = 64 * 1024;
    /// The maximum size of the sections in front of the body in the stored form, which adds the prefix and an id.
    pub const STORED_FRONT_BYTES_MAX: usize = Self::FRONT_BYTES_MAX + 512;

    /// Creates the state for a message of at most `size_bytes_max` bytes. `message_id` is assigned to a message that
    /// has none, as in [`StoredMessage::encode`](crate::StoredMessage::encode).
    pub fn new(size_bytes_max: u64, message_id: Option<String>) -> Self {
        Self {
            size_bytes_max,
            message_id,
            held: BytesMut::new(),
            stage: Stage::Front { scanned: 0 },
            front: Bytes::new(),
            has_delivery_annotations: false,
            footer: None,
        }
    }

    /// Handles the next bytes of the message and appends the next bytes of the stored form to `stored`. A body whose
    /// declared size exceeds the limit is rejected before its content is received. After an error, the value must not
    /// be used.
    pub fn push(&mut self, part: Bytes, stored: &mut Vec<Bytes>) -> Result<(), DecodeError> {
        match self.stage {
            Stage::Front { .. } => self.push_front(&part, stored),
            Stage::Body(_) => self.push_body(part, stored),
            Stage::Tail => self.push_tail(&part),
        }
    }

    /// Returns the sections in front of the body, as received, once the body has begun. [`Sections::scan`] decodes
    /// them.
    pub fn front(&self) -> Option<&[u8]> {
        (!matches!(self.stage, Stage::Front { .. })).then_some(&self.front)
    }

    /// Ends the message and appends the sections after the body. Fails if the message ends inside a section.
    pub fn finish(mut self, stored: &mut Vec<Bytes>) -> Result<(), DecodeError> {
        match &self.stage {
            Stage::Front { .. } => {
                self.front = std::mem::take(&mut self.held).freeze();
                self.store_front(stored)?;
            }
            Stage::Body(scanner) => scanner.finish()?,
            Stage::Tail => self.read_tail()?,
        }
        stored.extend(self.footer.filter(|footer| !footer.is_empty()));
        Ok(())
    }

    fn push_front(&mut self, part: &[u8], stored: &mut Vec<Bytes>) -> Result<(), DecodeError> {
        let Stage::Front { scanned } = &mut self.stage else { return Ok(()) };
        self.held.extend_from_slice(part);
        let is_found = find_body(&self.held, scanned)?;
        // The buffer may end with part of the descriptor of a body section. The extra room makes the limit independent
        // of how the message was split.
        let held_max = Self::FRONT_BYTES_MAX + body::DESCRIPTOR_BYTES_MAX;
        if *scanned > Self::FRONT_BYTES_MAX || (!is_found && self.held.len() > held_max) {
            let (part, limit) = ("in front of", Self::FRONT_BYTES_MAX);
            return Err(DecodeError::new(*scanned, Problem::LongSections { part, limit }));
        }
        if !is_found {
            return Ok(());
        }
        let front_len = *scanned;
        self.front = self.held.split_to(front_len).freeze();
        self.store_front(stored)?;
        self.stage = Stage::Body(BodyScanner::new(front_len as u64, self.size_bytes_max));
        let rest = std::mem::take(&mut self.held).freeze();
        self.push_body(rest, stored)
    }

    fn store_front(&mut self, stored: &mut Vec<Bytes>) -> Result<(), DecodeError> {
        let sections = Sections::scan(&self.front)?;
        self.has_delivery_annotations = sections.has_delivery_annotations();
        let mut out = BytesMut::new();
        if sections.has_footer() {
            put_raw(&mut out, section::FOOTER, sections.raw_footer());
            self.footer = Some(out.split().freeze());
        }
        let read = (sections.header()?, sections.properties()?);
        encode_front(&mut out, &sections, (&read.0, &read.1), self.message_id.as_deref())?;
        stored.push(out.freeze());
        Ok(())
    }

    fn push_body(&mut self, part: Bytes, stored: &mut Vec<Bytes>) -> Result<(), DecodeError> {
        let Stage::Body(scanner) = &mut self.stage else { return Ok(()) };
        match scanner.push(part, stored)? {
            Progress::Body => Ok(()),
            Progress::Behind(rest) => {
                self.stage = Stage::Tail;
                self.push_tail(&rest)
            }
        }
    }

    fn push_tail(&mut self, part: &[u8]) -> Result<(), DecodeError> {
        if self.held.len() + part.len() > Self::TAIL_BYTES_MAX {
            let (part, limit) = ("behind", Self::TAIL_BYTES_MAX);
            return Err(DecodeError::new(0, Problem::LongSections { part, limit }));
        }
        self.held.extend_from_slice(part);
        Ok(())
    }

    fn read_tail(&mut self) -> Result<(), DecodeError> {
        let tail = Sections::scan(&self.held)?;
        let error = |problem| Err(DecodeError::new(0, problem));
        if let Some(section) = tail.first_front_section() {
            return error(Problem::LateSection { section });
        }
        if tail.has_delivery_annotations() && self.has_delivery_annotations {
            return error(Problem::DuplicateSection { section: "delivery-annotations" });
        }
        // These annotations are too late to be stored, but the same checks apply to them at every position.
        put_delivery_annotations(&mut BytesMut::new(), tail.delivery_annotations()?, &[])?;
        if tail.has_footer() {
            if self.footer.is_some() {
                return error(Problem::DuplicateSection { section: "footer" });
            }
            let mut out = BytesMut::new();
            put_raw(&mut out, section::FOOTER, tail.raw_footer());
            self.footer = Some(out.freeze());
        }
        Ok(())
    }
}

/// Advances `scanned` past complete sections. Returns true if a body section follows.
fn find_body(held: &[u8], scanned: &mut usize) -> Result<bool, DecodeError> {
    while let Some(rest) = held.get(*scanned..).filter(|rest| !rest.is_empty()) {
        let at = *scanned;
        let moved = |error: DecodeError| DecodeError::new(at + error.offset(), error.problem());
        let mut decoder = Decoder::new(rest);
        let code = match decoder.descriptor_code("a message section") {
            Err(error) if is_truncated(&error) => return Ok(false),
            other => other.map_err(moved)?,
        };
        if body::kind_of(code).is_some() {
            return Ok(true);
        }
        match decoder.skip() {
            Err(error) if is_truncated(&error) => return Ok(false),
            other => other.map_err(moved)?,
        }
        *scanned += decoder.position();
    }
    Ok(false)
}

fn is_truncated(error: &DecodeError) -> bool {
    matches!(error.problem(), Problem::Truncated { .. })
}
