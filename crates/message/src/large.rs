//! A message that is too large to be held: its stored form is written while its bytes still come in.
//!
//! The result is what [`StoredMessage::encode`](crate::StoredMessage::encode) makes of the whole message, with one difference: what the stored form
//! has in front of the body must stand in front of it already. Behind the body may come a footer, and the delivery
//! annotations that pyamqp writes last, which are not stored. Decimals in the body stay as they are.

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
    /// Bytes of sections that are not complete. Bounded by [`LargeMessage::FRONT_BYTES_MAX`] and
    /// [`LargeMessage::TAIL_BYTES_MAX`].
    held: BytesMut,
    stage: Stage,
    /// What came in front of the body.
    front: Bytes,
    has_delivery_annotations: bool,
    /// A footer, encoded: it goes behind the body wherever it came.
    footer: Option<Bytes>,
}

#[derive(Debug)]
enum Stage {
    /// All sections up to here stand in front of the body and are whole.
    Front {
        scanned: usize,
    },
    Body(BodyScanner),
    Tail,
}

impl LargeMessage {
    /// The most that may stand in front of the body.
    pub const FRONT_BYTES_MAX: usize = 256 * 1024;
    /// The most that may stand behind it.
    pub const TAIL_BYTES_MAX: usize = 64 * 1024;
    /// So many bytes of the stored form hold all that a delivery has in front of the body: the prefix and an id are added.
    pub const STORED_FRONT_BYTES_MAX: usize = Self::FRONT_BYTES_MAX + 512;

    /// `size_bytes_max` is what the whole message may have. `message_id` is given to a message that has none, as in
    /// [`StoredMessage::encode`](crate::StoredMessage::encode).
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

    /// Takes the next bytes of the message and appends to `stored` what is to be stored next. A body that is announced
    /// larger than the limit is refused before it comes. After an error nothing more is to be expected.
    pub fn push(&mut self, part: Bytes, stored: &mut Vec<Bytes>) -> Result<(), DecodeError> {
        match self.stage {
            Stage::Front { .. } => self.push_front(&part, stored),
            Stage::Body(_) => self.push_body(part, stored),
            Stage::Tail => self.push_tail(&part),
        }
    }

    /// The sections in front of the body, as they came, once the body has begun: [`Sections::scan`] reads them.
    pub fn front(&self) -> Option<&[u8]> {
        (!matches!(self.stage, Stage::Front { .. })).then_some(&self.front)
    }

    /// Ends the message: appends what stands behind the body. An error if its bytes end inside of a section.
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
        // The descriptor of a body section may be there in part: the same message is refused however it was cut.
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
        // Too late to be stored, but refused for the same reasons wherever they stand.
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

/// Steps over whole sections from `scanned` on; true when it stands before one of the body.
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
