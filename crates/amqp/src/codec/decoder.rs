//! The cursor that reads AMQP bytes, and the limits that it enforces.

use super::constructor::{self as c, Width};
use super::descriptor::Descriptor;
use super::error::{DecodeError, Problem};

/// The limit on nesting levels of lists, maps, arrays and descriptors.
pub const DEPTH_MAX: u8 = 64;
/// The limit on values in one decoded value, over all levels: an owned value is many times larger than its encoding.
pub const VALUES_MAX: usize = 65_536;
/// The limit on elements of an array whose encoding takes no bytes (null, true, the empty list), because the input
/// length does not limit them.
pub const ZERO_WIDTH_ELEMENTS_MAX: usize = 256;

/// Reads values from a slice. Every read is checked; an error contains the offset in that slice.
#[derive(Debug)]
pub struct Decoder<'a> {
    /// Ends where the innermost compound value ends.
    input: &'a [u8],
    at: usize,
    depth: u8,
    values_left: usize,
}

/// A compound value that is being read: its announced size and count, and the state of the enclosing value.
#[derive(Debug)]
pub struct Compound<'a> {
    outer: &'a [u8],
    pub count: u32,
}

impl<'a> Decoder<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0, depth: 0, values_left: VALUES_MAX }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at >= self.input.len()
    }

    pub fn remaining(&self) -> &'a [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    pub fn error(&self, problem: Problem) -> DecodeError {
        DecodeError::new(self.at, problem)
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        self.error(Problem::Truncated { needed, found: self.remaining().len() })
    }

    /// Builds an error at the offset of the code that was just read.
    #[cold]
    pub(crate) fn unexpected(&self, expected: &'static str, code: u8) -> DecodeError {
        DecodeError::new(self.at.saturating_sub(1), Problem::Unexpected { expected, code })
    }

    #[cold]
    pub(super) fn unknown_constructor(&self, code: u8) -> DecodeError {
        DecodeError::new(self.at.saturating_sub(1), Problem::UnknownConstructor { code })
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = self.peek().ok_or_else(|| self.truncated(1))?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let bytes = self.remaining().get(..len).ok_or_else(|| self.truncated(len))?;
        self.at += len;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = *self.remaining().first_chunk::<N>().ok_or_else(|| self.truncated(N))?;
        self.at += N;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn be_u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a length of one or four bytes, then that many bytes.
    #[inline]
    pub(crate) fn counted(&mut self, wide: bool) -> Result<&'a [u8], DecodeError> {
        let len = self.length(wide)?;
        self.take(len)
    }

    fn length(&mut self, wide: bool) -> Result<usize, DecodeError> {
        if wide {
            self.be_u32().map(|len| usize::try_from(len).unwrap_or(usize::MAX))
        } else {
            self.byte().map(usize::from)
        }
    }

    /// Consumes a null if it is next.
    #[inline]
    pub fn take_null(&mut self) -> bool {
        let null = self.peek() == Some(c::NULL);
        self.at += usize::from(null);
        null
    }

    /// Skips one value without decoding it.
    pub fn skip(&mut self) -> Result<(), DecodeError> {
        // A described value is two values in place of one. Counting them avoids recursion, so no depth limit is needed.
        let mut pending: usize = 1;
        while pending > 0 {
            match self.byte()? {
                c::DESCRIBED => pending += 1,
                code => {
                    self.skip_body(code)?;
                    pending -= 1;
                }
            }
        }
        Ok(())
    }

    fn skip_body(&mut self, code: u8) -> Result<(), DecodeError> {
        let len = match c::width(code) {
            Some(Width::Fixed(len)) => len,
            Some(Width::Counted8) => self.length(false)?,
            Some(Width::Counted32) => self.length(true)?,
            None => return Err(self.unknown_constructor(code)),
        };
        self.take(len).map(drop)
    }

    /// Reads one value as its encoded bytes.
    pub fn raw(&mut self) -> Result<&'a [u8], DecodeError> {
        let rest = self.remaining();
        let start = self.at;
        self.skip()?;
        Ok(rest.get(..self.at - start).unwrap_or_default())
    }

    pub(crate) fn descend(&mut self) -> Result<(), DecodeError> {
        if self.depth >= DEPTH_MAX {
            return Err(self.error(Problem::TooDeep));
        }
        self.depth += 1;
        Ok(())
    }

    pub(crate) fn ascend(&mut self) {
        self.depth -= 1;
    }

    /// Counts values against the limit before memory is reserved for them.
    pub(crate) fn charge(&mut self, count: u32) -> Result<usize, DecodeError> {
        let wanted = usize::try_from(count).unwrap_or(usize::MAX);
        match self.values_left.checked_sub(wanted) {
            Some(left) => {
                self.values_left = left;
                Ok(wanted)
            }
            None => Err(self.error(Problem::TooMany { count, limit: self.values_left })),
        }
    }

    /// Reads size and count, and narrows the input to the compound's own bytes. Call `leave` at its end.
    #[inline]
    pub(crate) fn enter(&mut self, wide: bool) -> Result<Compound<'a>, DecodeError> {
        let size = self.length(wide)?;
        let end = self.at.saturating_add(size);
        let inner = self.input.get(..end).ok_or_else(|| self.truncated(size))?;
        let outer = std::mem::replace(&mut self.input, inner);
        let count = if wide { self.be_u32()? } else { self.byte()?.into() };
        Ok(Compound { outer, count })
    }

    /// Continues after the compound, whatever was read of it: unknown trailing fields are ignored.
    #[inline]
    pub(crate) fn leave(&mut self, compound: &Compound<'a>) {
        self.at = self.input.len();
        self.input = compound.outer;
    }

    /// Does the same for a value whose elements must fill the announced size.
    pub(crate) fn leave_exact(&mut self, compound: &Compound<'a>) -> Result<(), DecodeError> {
        let excess = self.remaining().len();
        if excess != 0 {
            return Err(self.error(Problem::Excess { excess }));
        }
        self.leave(compound);
        Ok(())
    }

    /// Enters a list in any of its three encodings. Each element takes at least one byte, which bounds the count.
    #[inline]
    pub fn enter_list(&mut self, expected: &'static str) -> Result<Compound<'a>, DecodeError> {
        let list = match self.byte()? {
            c::LIST0 => return Ok(self.enter_nothing()),
            c::LIST8 => self.enter(false)?,
            c::LIST32 => self.enter(true)?,
            code => return Err(self.unexpected(expected, code)),
        };
        self.check_count(list.count)?;
        Ok(list)
    }

    /// Enters a map. The count covers keys and values together and is even.
    pub(crate) fn enter_map(&mut self, expected: &'static str) -> Result<Compound<'a>, DecodeError> {
        let map = match self.byte()? {
            c::MAP8 => self.enter(false)?,
            c::MAP32 => self.enter(true)?,
            code => return Err(self.unexpected(expected, code)),
        };
        self.check_map_count(map.count)?;
        Ok(map)
    }

    fn enter_nothing(&mut self) -> Compound<'a> {
        let inner = self.input.get(..self.at).unwrap_or_default();
        Compound { outer: std::mem::replace(&mut self.input, inner), count: 0 }
    }

    pub(crate) fn check_count(&self, count: u32) -> Result<(), DecodeError> {
        let limit = self.remaining().len();
        if usize::try_from(count).is_ok_and(|count| count <= limit) {
            Ok(())
        } else {
            Err(self.error(Problem::TooMany { count, limit }))
        }
    }

    pub(crate) fn check_map_count(&self, count: u32) -> Result<(), DecodeError> {
        if !count.is_multiple_of(2) {
            return Err(self.error(Problem::OddMap { count }));
        }
        self.check_count(count)
    }

    /// Reads a described type's descriptor, in any encoding.
    pub(crate) fn descriptor(&mut self, expected: &'static str) -> Result<Descriptor<'a>, DecodeError> {
        match self.byte()? {
            c::DESCRIBED => Descriptor::read(self),
            code => Err(self.unexpected(expected, code)),
        }
    }

    /// Reads a descriptor and returns the code of the type it names.
    #[inline]
    pub fn descriptor_code(&mut self, expected: &'static str) -> Result<u64, DecodeError> {
        // Every known client uses this form for the types of the standard.
        if let Some([c::DESCRIBED, c::SMALL_ULONG, code]) = self.remaining().first_chunk() {
            self.at += 3;
            return Ok((*code).into());
        }
        let offset = self.at;
        let descriptor = self.descriptor(expected)?;
        descriptor.code().ok_or_else(|| DecodeError::new(offset, Problem::UnknownSymbol { expected }))
    }
}

impl Compound<'_> {
    /// Returns whether the next field is present and not null. A null is consumed.
    #[inline]
    pub(crate) fn next_is_set(&mut self, decoder: &mut Decoder<'_>) -> bool {
        if self.count == 0 {
            return false;
        }
        self.count -= 1;
        !decoder.take_null()
    }

    /// Reads the format code of the next field. Returns `None` if the field is missing or null.
    #[inline]
    pub(crate) fn next_code(&mut self, decoder: &mut Decoder<'_>) -> Result<Option<u8>, DecodeError> {
        if self.count == 0 {
            return Ok(None);
        }
        self.count -= 1;
        Ok(Some(decoder.byte()?).filter(|code| *code != c::NULL))
    }
}
