//! Composes a few short fields on the stack.

use super::constructor as c;
use super::encode::length_u32;

/// Up to `N` bytes on the stack, which the caller appends to a buffer in one step.
///
/// Each append to a `BytesMut` checks its capacity and calls `memcpy`, which takes several times as long as a field of
/// one to five bytes. Fields with a bound on their length, which occur once per message, are therefore composed here.
#[derive(Debug)]
pub struct Short<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Short<N> {
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Starts a composite that has `count` fields, and returns where it starts.
    /// [`finish_composite`](Self::finish_composite) fills in its size.
    #[inline]
    #[must_use]
    pub fn begin_composite(&mut self, code: u8, count: u8) -> usize {
        let start = self.len;
        self.put([c::DESCRIBED, c::SMALL_ULONG, code, c::LIST8, 0, count]);
        start
    }

    #[inline]
    pub fn finish_composite(&mut self, start: usize) {
        /// The size byte of the list is behind the descriptor and the format code of the list.
        const SIZE_AT: usize = 4;
        let size = self.len - start - SIZE_AT - 1;
        self.bytes[start + SIZE_AT] = u8::try_from(size).expect("a short composite has less than 256 bytes");
    }

    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Puts bytes whose number is known when the program is built.
    ///
    /// # Panics
    ///
    /// If more than `N` bytes are put. The fields of each use have bounds, and `N` is their sum.
    #[inline]
    pub fn put<const LEN: usize>(&mut self, bytes: [u8; LEN]) {
        self.put_padded(bytes, LEN);
    }

    /// Puts the content of another.
    #[inline]
    pub fn append<const LEN: usize>(&mut self, other: &Short<LEN>) {
        self.put_padded(other.bytes, other.len);
    }

    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Puts the first `len` bytes. All are copied, which is faster than a copy of variable length.
    #[inline]
    pub(crate) fn put_padded<const LEN: usize>(&mut self, bytes: [u8; LEN], len: usize) {
        let place = self.bytes.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut());
        *place.expect("N is the sum of the fields") = bytes;
        self.len += len.min(LEN);
    }

    #[inline]
    pub fn put_null(&mut self) {
        self.put([c::NULL]);
    }

    #[inline]
    pub fn put_bool(&mut self, value: Option<bool>) {
        self.put([match value {
            None => c::NULL,
            Some(true) => c::TRUE,
            Some(false) => c::FALSE,
        }]);
    }

    /// Puts a flag whose absence means false.
    #[inline]
    pub(crate) fn put_flag(&mut self, value: bool) {
        self.put_bool(value.then_some(true));
    }

    #[inline]
    pub fn put_ubyte(&mut self, value: Option<u8>) {
        match value {
            None => self.put_null(),
            Some(value) => self.put([c::UBYTE, value]),
        }
    }

    #[inline]
    pub fn put_uint(&mut self, value: Option<u32>) {
        let Some(value) = value else { return self.put_null() };
        match u8::try_from(value) {
            Ok(0) => self.put([c::UINT0]),
            Ok(small) => self.put([c::SMALL_UINT, small]),
            Err(_) => {
                let [b0, b1, b2, b3] = value.to_be_bytes();
                self.put([c::UINT, b0, b1, b2, b3]);
            }
        }
    }

    #[inline]
    pub fn put_int(&mut self, value: i32) {
        match i8::try_from(value) {
            Ok(small) => self.put([c::SMALL_INT, small.to_be_bytes()[0]]),
            Err(_) => {
                let [b0, b1, b2, b3] = value.to_be_bytes();
                self.put([c::INT, b0, b1, b2, b3]);
            }
        }
    }

    /// Puts the first `len` bytes as a binary.
    #[inline]
    pub(crate) fn put_binary<const LEN: usize>(&mut self, bytes: [u8; LEN], len: usize) {
        const { assert!(LEN <= 255, "the length of a short binary is one byte") };
        self.put([c::BINARY8, u8::try_from(len).unwrap_or(u8::MAX)]);
        self.put_padded(bytes, len);
    }

    /// Puts the descriptor and the header of a map.
    #[inline]
    pub fn put_map(&mut self, code: u8, content_len: usize, count: usize) {
        self.put([c::DESCRIBED, c::SMALL_ULONG, code]);
        match (u8::try_from(content_len + 1), u8::try_from(count)) {
            (Ok(size), Ok(count)) => self.put([c::MAP8, size, count]),
            _ => {
                let [s0, s1, s2, s3] = length_u32(content_len + 4).to_be_bytes();
                let [c0, c1, c2, c3] = length_u32(count).to_be_bytes();
                self.put([c::MAP32, s0, s1, s2, s3, c0, c1, c2, c3]);
            }
        }
    }
}

impl<const N: usize> Default for Short<N> {
    fn default() -> Self {
        Self::new()
    }
}
