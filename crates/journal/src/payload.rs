//! The bytes of a commit group.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// The payload of a commit group or snapshot, in parts. Concatenated, the parts are the payload. A part that the owner
/// has in a buffer of its own needs no copy.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    parts: Vec<Bytes>,
    len: usize,
}

impl Payload {
    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the parts in order. No part is empty.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Returns a range of the payload and the size of the buffer that the range keeps in memory. Copies the range only
    /// if it spans several parts. Returns `None` if the payload ends before the range does.
    pub fn slice(&self, range: Range<usize>) -> Option<(Bytes, usize)> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let mut start = 0;
        for part in &self.parts {
            let end = start + part.len();
            if range.end <= end {
                return Some((part.slice(range.start - start..range.end - start), part.len()));
            }
            if range.start < end {
                return Some((self.copy(&range), range.len()));
            }
            start = end;
        }
        Some((Bytes::new(), 0))
    }

    fn copy(&self, range: &Range<usize>) -> Bytes {
        let mut out = BytesMut::with_capacity(range.len());
        let mut start = 0;
        for part in &self.parts {
            let from = range.start.clamp(start, start + part.len()) - start;
            let to = range.end.clamp(start, start + part.len()) - start;
            out.extend_from_slice(part.get(from..to).unwrap_or_default());
            start += part.len();
        }
        out.freeze()
    }

    /// Returns the payload in one buffer. Copies it if it has several parts.
    pub fn into_bytes(mut self) -> Bytes {
        match self.parts.pop() {
            Some(only) if self.parts.is_empty() => only,
            Some(last) => {
                self.parts.push(last);
                self.copy(&(0..self.len))
            }
            None => Bytes::new(),
        }
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let len = parts.iter().map(Bytes::len).sum();
        Payload { parts, len }
    }
}

impl From<Bytes> for Payload {
    fn from(only: Bytes) -> Self {
        [only].into_iter().collect()
    }
}

impl From<Vec<u8>> for Payload {
    fn from(only: Vec<u8>) -> Self {
        Bytes::from(only).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_independent_of_the_parts() {
        let whole = b"abcdefgh";
        for cuts in [vec![], vec![3], vec![1, 1, 5], vec![0, 8], vec![2, 4, 6]] {
            let ends = cuts.iter().copied().chain([whole.len()]);
            let mut start = 0;
            let payload: Payload =
                ends.map(|end| Bytes::from_static(&whole[std::mem::replace(&mut start, end)..end])).collect();
            assert_eq!((payload.len(), payload.clone().into_bytes()), (8, Bytes::from_static(whole)));
            for from in 0..=8 {
                for to in from..=8 {
                    let (bytes, kept) = payload.slice(from..to).unwrap();
                    assert_eq!(bytes, whole[from..to], "{cuts:?} {from} {to}");
                    assert!(kept >= bytes.len());
                }
            }
            assert!(payload.slice(3..9).is_none());
        }
        assert!(Payload::default().is_empty());
    }
}
