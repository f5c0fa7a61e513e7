//! The bytes of a group.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// What a group holds, in parts that follow each other: a part that its maker has in a buffer of its own is handed over as it is.
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

    /// Whether the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One behind the other they are the payload. None is empty.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Some of the bytes, and the size of the part that is kept in memory for them. Copied only if they do not lie in one part. `None`: the
    /// payload ends before.
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

    /// All of it in one piece; copied if there are several parts.
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
    fn any_range_is_found_whatever_the_parts() {
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
