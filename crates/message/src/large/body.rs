//! The body sections of a message. Their values are passed on without being decoded.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use peeklock_amqp::codec::{
    BINARY8, BINARY32, DESCRIBED, LIST0, LIST8, LIST32, NULL, Width, put_descriptor, section, width,
};
use peeklock_amqp::{BodyKind, DecodeError, Decoder, Problem};

/// An upper limit for the size of a section's descriptor in any encoding.
pub(super) const DESCRIPTOR_BYTES_MAX: usize = 48;
/// The minimum size of a piece that is passed on without a copy; shorter pieces are collected.
const PIECE_BYTES_MIN: usize = 1024;

#[derive(Debug)]
pub(super) struct BodyScanner {
    kind: BodyKind,
    /// The number of bytes handled so far, including those in front of the body.
    taken: u64,
    size_bytes_max: u64,
    step: Step,
    /// The incomplete descriptor or length.
    head: BytesMut,
    /// The number of values before the section ends; a described value counts as two.
    values_left: u64,
    gathered: BytesMut,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Descriptor,
    /// A format code is next. `is_first`: it specifies the type of the section.
    Code {
        is_first: bool,
    },
    Length {
        wide: bool,
        /// The number of elements follows and is checked.
        is_list: bool,
    },
    Content {
        left: u64,
    },
}

pub(super) enum Progress {
    Body,
    /// Another section begins here, after the body.
    Behind(Bytes),
}

pub(super) fn kind_of(code: u64) -> Option<BodyKind> {
    match u8::try_from(code) {
        Ok(section::DATA) => Some(BodyKind::Data),
        Ok(section::SEQUENCE) => Some(BodyKind::Sequence),
        Ok(section::VALUE) => Some(BodyKind::Value),
        _ => None,
    }
}

impl BodyScanner {
    pub(super) fn new(taken: u64, size_bytes_max: u64) -> Self {
        Self {
            kind: BodyKind::None,
            taken,
            size_bytes_max,
            step: Step::Descriptor,
            head: BytesMut::new(),
            values_left: 0,
            gathered: BytesMut::new(),
        }
    }

    pub(super) fn push(&mut self, mut part: Bytes, stored: &mut Vec<Bytes>) -> Result<Progress, DecodeError> {
        while !part.is_empty() {
            if let Step::Content { left } = self.step {
                self.pass(left, &mut part, stored);
                continue;
            }
            let byte = part.get_u8();
            self.taken += 1;
            if !self.take(byte)? {
                self.flush(stored);
                let rest = [&self.head[..], &part[..]].concat();
                return Ok(Progress::Behind(rest.into()));
            }
        }
        self.flush(stored);
        Ok(Progress::Body)
    }

    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        if matches!(self.step, Step::Descriptor) && self.head.is_empty() {
            return Ok(());
        }
        Err(self.error(Problem::Truncated { needed: 1, found: 0 }))
    }

    fn error(&self, problem: Problem) -> DecodeError {
        DecodeError::new(usize::try_from(self.taken).unwrap_or(usize::MAX), problem)
    }

    /// Handles one byte that is not content. Returns false if a section begins that is not a body section.
    fn take(&mut self, byte: u8) -> Result<bool, DecodeError> {
        match self.step {
            Step::Descriptor => return self.take_descriptor(byte),
            Step::Code { is_first } => self.take_code(byte, is_first)?,
            Step::Length { wide, is_list } => self.take_length(byte, wide, is_list)?,
            Step::Content { .. } => {}
        }
        Ok(true)
    }

    fn take_descriptor(&mut self, byte: u8) -> Result<bool, DecodeError> {
        self.head.put_u8(byte);
        let code = match Decoder::new(&self.head).descriptor_code("a message section") {
            Err(error) if super::is_truncated(&error) && self.head.len() < DESCRIPTOR_BYTES_MAX => {
                return Ok(true);
            }
            other => other.map_err(|error| self.error(error.problem()))?,
        };
        let Some(kind) = kind_of(code) else { return Ok(false) };
        match self.kind {
            BodyKind::None => self.kind = kind,
            BodyKind::Value if kind == BodyKind::Value => {
                return Err(self.error(Problem::DuplicateSection { section: "amqp-value" }));
            }
            before if before != kind => return Err(self.error(Problem::MixedBody)),
            _ => {}
        }
        // SDK quirk: pyamqp identifies sections by the third byte, so descriptors in another encoding are rewritten.
        put_descriptor(&mut self.gathered, u8::try_from(code).unwrap_or_default());
        self.head.clear();
        self.values_left = 1;
        self.step = Step::Code { is_first: true };
        Ok(true)
    }

    fn take_code(&mut self, code: u8, is_first: bool) -> Result<(), DecodeError> {
        if is_first {
            self.check_type(code)?;
        }
        self.gathered.put_u8(code);
        if code == DESCRIBED {
            self.values_left += 1;
            self.step = Step::Code { is_first: false };
            return Ok(());
        }
        let is_list = is_first && self.kind == BodyKind::Sequence;
        self.values_left = self.values_left.saturating_sub(1);
        match width(code) {
            Some(Width::Fixed(len)) => self.expect(len as u64)?,
            Some(Width::Counted8) => self.step = Step::Length { wide: false, is_list },
            Some(Width::Counted32) => self.step = Step::Length { wide: true, is_list },
            None => return Err(self.error(Problem::UnknownConstructor { code })),
        }
        Ok(())
    }

    fn check_type(&self, code: u8) -> Result<(), DecodeError> {
        let (fits, expected) = match self.kind {
            BodyKind::Data => (matches!(code, NULL | BINARY8 | BINARY32), "a binary in a data section"),
            BodyKind::Sequence => {
                (matches!(code, NULL | LIST0 | LIST8 | LIST32), "a list in an amqp-sequence section")
            }
            BodyKind::Value | BodyKind::None => (true, ""),
        };
        if fits { Ok(()) } else { Err(self.error(Problem::Unexpected { expected, code })) }
    }

    fn take_length(&mut self, byte: u8, wide: bool, is_list: bool) -> Result<(), DecodeError> {
        self.head.put_u8(byte);
        let number_len = if wide { 4 } else { 1 };
        let wanted = if is_list { number_len * 2 } else { number_len };
        if self.head.len() < wanted {
            return Ok(());
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (length, count) = self.head.split_at(number_len);
        let (length, count) = (number(length), number(count));
        // The count is part of the length, and each element takes at least one byte.
        let Some(rest) = length.checked_sub(if is_list { number_len as u64 } else { 0 }) else {
            return Err(self.error(Problem::Truncated { needed: number_len, found: 0 }));
        };
        if count > rest {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let limit = usize::try_from(rest).unwrap_or(usize::MAX);
            return Err(self.error(Problem::TooMany { count, limit }));
        }
        self.gathered.extend_from_slice(&self.head);
        self.head.clear();
        self.expect(rest)
    }

    /// Prepares for content of a known length. Rejects it if it makes the message exceed the limit, before it is
    /// received.
    fn expect(&mut self, left: u64) -> Result<(), DecodeError> {
        let size = self.taken.saturating_add(left);
        if size > self.size_bytes_max {
            return Err(self.error(Problem::Oversized { size, limit: self.size_bytes_max }));
        }
        self.step = if left > 0 { Step::Content { left } } else { self.after_value() };
        Ok(())
    }

    fn after_value(&self) -> Step {
        if self.values_left > 0 { Step::Code { is_first: false } } else { Step::Descriptor }
    }

    /// Passes content on. Only short content is copied.
    fn pass(&mut self, left: u64, part: &mut Bytes, stored: &mut Vec<Bytes>) {
        let len = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let piece = part.split_to(len);
        self.taken += len as u64;
        if len >= PIECE_BYTES_MIN {
            self.flush(stored);
            stored.push(piece);
        } else {
            self.gathered.extend_from_slice(&piece);
        }
        let left = left - len as u64;
        self.step = if left > 0 { Step::Content { left } } else { self.after_value() };
    }

    fn flush(&mut self, stored: &mut Vec<Bytes>) {
        if !self.gathered.is_empty() {
            stored.push(self.gathered.split().freeze());
        }
    }
}
