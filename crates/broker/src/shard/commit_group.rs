//! A commit group under construction: bodies first, then the facts that refer to them.
//!
//! ```text
//! u32  start of the facts
//! u32  version of the program that wrote the group
//! …    bodies, each on a multiple of eight bytes
//! …    facts, one record after another
//! ```

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use peeklock_engine::{Fact, record};
use peeklock_journal::Payload;
use peeklock_types::{BodyRef, CommitGroupNumber, ProgramVersion};

use crate::body_buffer::BodyBuffer;

const HEADER_BYTES: usize = 8;

/// The smallest body in a buffer of its own that becomes a part. A smaller one is copied to the other bodies: many
/// small parts cost more than the copy.
const PART_BYTES_MIN: usize = 4096;

/// The capacity for facts that is kept between groups. Only blobs need more.
const FACTS_BYTES_KEPT: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct CommitGroupBuilder {
    number: CommitGroupNumber,
    /// The buffers in front of `bodies`, and their total length.
    parts: Vec<BytesMut>,
    parts_bytes: usize,
    bodies: BytesMut,
    /// The bodies of the batch that the shard executes, and the range of them that follows `bodies` in the group.
    batch: BodyBuffer,
    taken: Range<usize>,
    facts: Vec<u8>,
    fact_count: usize,
}

/// The error that the group has no room for another body. The caller appends the group and continues in the next one.
#[derive(Debug)]
pub(crate) struct Full;

impl CommitGroupBuilder {
    pub(crate) fn new(number: CommitGroupNumber) -> Self {
        let mut builder = CommitGroupBuilder {
            number,
            parts: Vec::new(),
            parts_bytes: 0,
            bodies: BytesMut::new(),
            batch: BodyBuffer::default(),
            taken: 0..0,
            facts: Vec::new(),
            fact_count: 0,
        };
        builder.start(number);
        builder
    }

    fn start(&mut self, number: CommitGroupNumber) {
        self.number = number;
        self.fact_count = 0;
        self.facts.clear();
        self.facts.shrink_to(FACTS_BYTES_KEPT);
        self.bodies.put_bytes(0, HEADER_BYTES);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fact_count == 0
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.mark() + self.facts.len()
    }

    /// Returns the end of the bodies, as an argument for [`CommitGroupBuilder::truncate`].
    pub(crate) fn mark(&self) -> usize {
        self.own_bytes() + self.taken.len()
    }

    /// Returns the size of the bodies that are no longer in the batch's buffer.
    fn own_bytes(&self) -> usize {
        self.parts_bytes + self.bodies.len()
    }

    pub(crate) fn truncate(&mut self, mark: usize) {
        let kept_bytes = mark.saturating_sub(self.own_bytes()).min(self.taken.len());
        self.taken.end = self.taken.start + kept_bytes;
        while mark < self.parts_bytes
            && let Some(last) = self.parts.pop()
        {
            self.parts_bytes -= last.len();
            self.bodies = last;
        }
        self.bodies.truncate(mark - self.parts_bytes);
    }

    /// Starts a batch: its bodies are in `buffer`.
    pub(crate) fn start_batch(&mut self, buffer: BodyBuffer) {
        self.batch = buffer;
    }

    pub(crate) fn end_batch(&mut self) {
        self.close_taken();
        self.batch = BodyBuffer::default();
    }

    /// Returns a body of the batch that was not added yet.
    pub(crate) fn batch_body(&self, range: &Range<usize>) -> &[u8] {
        self.batch.get(range).unwrap_or_default()
    }

    /// Adds a body of the batch. Consecutive bodies stay together in the batch's buffer.
    ///
    /// # Panics
    ///
    /// Panics if a body is added twice, or after a later one: its bytes may have left the buffer, and a message without
    /// its body must not be stored.
    pub(crate) fn put_batch_body(&mut self, range: &Range<usize>) -> Result<BodyRef, Full> {
        let is_next =
            !self.taken.is_empty() && range.start == self.taken.end.next_multiple_of(BodyRef::ALIGNMENT);
        if is_next {
            let place = self.place_at(self.own_bytes() + range.start - self.taken.start)?;
            self.taken.end = range.end;
            return Ok(place);
        }
        assert!(range.start >= self.taken.end, "a body of a batch is added once and in order");
        let place = self.next_place()?;
        assert!(self.batch.get(range).is_some(), "a body of a batch is added once and in order");
        self.taken = range.clone();
        Ok(place)
    }

    /// Moves the taken bodies from the batch's buffer to the group. The buffer becomes a part of the group, unless most
    /// of its memory would be wasted: a part keeps the whole buffer in memory.
    fn close_taken(&mut self) {
        let taken = std::mem::replace(&mut self.taken, 0..0);
        if taken.is_empty() {
            return;
        }
        if taken.len() < PART_BYTES_MIN || taken.len() < self.batch.allocated_bytes() / 2 {
            self.bodies.put_slice(self.batch.get(&taken).expect("taken ranges are in the buffer"));
        } else {
            let part = self.batch.take(&taken).expect("taken ranges are in the buffer");
            self.push_part(part);
        }
    }

    pub(crate) fn put_body(&mut self, body: &[u8]) -> Result<BodyRef, Full> {
        let place = self.next_place()?;
        self.bodies.put_slice(body);
        Ok(place)
    }

    /// Adds a body that has its own buffer, without a copy if it is large.
    pub(crate) fn put_part(&mut self, body: BytesMut) -> Result<BodyRef, Full> {
        if body.len() < PART_BYTES_MIN {
            return self.put_body(&body);
        }
        let place = self.next_place()?;
        self.push_part(body);
        Ok(place)
    }

    fn push_part(&mut self, part: BytesMut) {
        let before = self.bodies.split();
        for part in [before, part].into_iter().filter(|part| !part.is_empty()) {
            self.parts_bytes += part.len();
            self.parts.push(part);
        }
    }

    /// Returns the place of the next body, which the caller adds behind all others.
    fn next_place(&mut self) -> Result<BodyRef, Full> {
        self.close_taken();
        let end = self.own_bytes();
        self.bodies.put_bytes(0, end.next_multiple_of(BodyRef::ALIGNMENT) - end);
        self.place_at(self.own_bytes())
    }

    fn place_at(&self, offset: usize) -> Result<BodyRef, Full> {
        let offset = u32::try_from(offset).map_err(|_| Full)?;
        BodyRef::in_group(self.number, offset).ok_or(Full)
    }

    pub(crate) fn put_hub_fact(&mut self, fact: &peeklock_hubs::Fact) {
        fact.encode(self.number, &mut self.facts);
        self.fact_count += 1;
    }

    pub(crate) fn put_blob_fact(&mut self, fact: &peeklock_blobs::Fact) {
        fact.encode(&mut self.facts);
        self.fact_count += 1;
    }

    pub(crate) fn put_fact(&mut self, fact: &Fact) {
        record::encode(fact, self.number, &mut self.facts);
        self.fact_count += 1;
    }

    /// Returns the newest group that contains a fact: this one, or the previous one.
    pub(crate) fn newest_with_facts(&self) -> CommitGroupNumber {
        if self.is_empty() { CommitGroupNumber(self.number.0 - 1) } else { self.number }
    }

    /// Returns the bytes of the group and starts the next group.
    pub(crate) fn finish(&mut self) -> Payload {
        self.close_taken();
        let facts_start = u32::try_from(self.mark()).unwrap_or(u32::MAX);
        self.bodies.put_slice(&self.facts);
        self.parts.push(self.bodies.split());
        if let Some(header) = self.parts.first_mut().and_then(|first| first.first_chunk_mut::<HEADER_BYTES>())
        {
            let (start, version) = header.split_at_mut(4);
            start.copy_from_slice(&facts_start.to_le_bytes());
            version.copy_from_slice(&ProgramVersion::THIS.to_bits().to_le_bytes());
        }
        self.parts_bytes = 0;
        let group = self.parts.drain(..).map(BytesMut::freeze).collect();
        self.start(self.number.next());
        group
    }
}

/// Returns the version that wrote a group, and the part of its payload with the facts; `None` if the payload is not a
/// group.
pub(crate) fn facts_of(payload: &Bytes) -> Option<(ProgramVersion, Bytes)> {
    let (start, rest) = payload.split_first_chunk::<4>()?;
    let version = ProgramVersion::from_bits(u32::from_le_bytes(*rest.first_chunk::<4>()?));
    let start = usize::try_from(u32::from_le_bytes(*start)).ok()?;
    let is_inside = start >= HEADER_BYTES && start <= payload.len();
    is_inside.then(|| (version, payload.slice(start..)))
}

#[cfg(test)]
mod tests {
    use peeklock_types::BodyPlace;

    use super::*;

    /// Bodies with their places, and the payloads of the groups that contain them.
    #[derive(Default)]
    struct Written {
        bodies: Vec<(BodyRef, Vec<u8>)>,
        groups: Vec<Bytes>,
    }

    impl Written {
        fn finish(&mut self, group: &mut CommitGroupBuilder) {
            self.groups.push(group.finish().into_bytes());
        }

        fn check(&self, seed: u64) {
            for (place, body) in &self.bodies {
                let BodyPlace::InGroup { group, offset_bytes } = place.place() else {
                    panic!("the body is not in a group")
                };
                let payload = &self.groups[usize::try_from(group.0).unwrap() - 1];
                let start = usize::try_from(offset_bytes).unwrap();
                assert_eq!(payload[start..start + body.len()], body[..], "seed {seed}, {place:?}");
            }
        }
    }

    fn body(random: &mut fastrand::Rng) -> Vec<u8> {
        let len_max = [40, 400, 9000][random.usize(..3)];
        let len = random.usize(..len_max);
        std::iter::repeat_with(|| random.u8(..)).take(len).collect()
    }

    fn buffer_of(bodies: &[Vec<u8>]) -> (BodyBuffer, Vec<Range<usize>>) {
        let mut buffer = BodyBuffer::default();
        let add = |body: &Vec<u8>| {
            let written = buffer.add(|out| {
                out.put_slice(body);
                Ok::<_, Full>(())
            });
            written.unwrap().0
        };
        let ranges = bodies.iter().map(add).collect();
        (buffer, ranges)
    }

    /// Executes one batch in steps of one to four bodies. Some steps are removed again, some bodies are skipped, and some
    /// groups end within the batch.
    fn execute(
        random: &mut fastrand::Rng,
        group: &mut CommitGroupBuilder,
        written: &mut Written,
        bodies: &[Vec<u8>],
    ) {
        let (buffer, ranges) = buffer_of(bodies);
        group.start_batch(buffer);
        let mut rest: Vec<_> = bodies.iter().zip(&ranges).collect();
        while !rest.is_empty() {
            let step: Vec<_> = rest.drain(..random.usize(1..=4).min(rest.len())).collect();
            if random.u8(..8) == 0 {
                continue;
            }
            let mark = group.mark();
            let put = |(body, range): (&Vec<u8>, &Range<usize>)| {
                assert_eq!(group.batch_body(range), body);
                let place = match random.u8(..12) {
                    0 => group.put_part(BytesMut::from(&body[..])),
                    1 => group.put_body(body),
                    _ => group.put_batch_body(range),
                };
                (place.unwrap(), body.clone())
            };
            let added: Vec<_> = step.into_iter().map(put).collect();
            if random.u8(..6) == 0 {
                group.truncate(mark);
                continue;
            }
            written.bodies.extend(added);
            if random.u8(..6) == 0 {
                written.finish(group);
            }
        }
        group.end_batch();
    }

    #[test]
    fn every_body_is_at_its_place() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut group = CommitGroupBuilder::new(CommitGroupNumber(1));
            let mut written = Written::default();
            for _ in 0..random.usize(1..6) {
                let bodies: Vec<_> = std::iter::repeat_with(|| body(&mut random)).take(30).collect();
                execute(&mut random, &mut group, &mut written, &bodies);
            }
            written.finish(&mut group);
            written.check(seed);
        }
    }

    /// Makes a group of some bodies of a batch. Returns the address of the batch's buffer, and the addresses of each
    /// part of the group.
    fn parts_of(bodies: &[Vec<u8>], taken: Range<usize>) -> (usize, Vec<Range<usize>>) {
        let (buffer, ranges) = buffer_of(bodies);
        let start = buffer.get(&ranges[0]).unwrap().as_ptr().addr();
        let mut group = CommitGroupBuilder::new(CommitGroupNumber(1));
        group.start_batch(buffer);
        for range in &ranges[taken] {
            group.put_batch_body(range).unwrap();
        }
        group.end_batch();
        let payload = group.finish();
        let parts =
            payload.parts().iter().map(|part| part.as_ptr().addr()..part.as_ptr().addr() + part.len());
        (start, parts.collect())
    }

    #[test]
    fn the_bodies_of_a_batch_are_not_copied() {
        let bodies = vec![vec![7; 1000]; 100];
        let (start, parts) = parts_of(&bodies, 0..100);
        assert_eq!(parts.len(), 2, "the parts are the header and the bodies; there are no facts");
        assert_eq!(parts[1], start..start + 100_000);
    }

    #[test]
    fn a_few_bodies_do_not_keep_the_buffer_of_a_large_batch() {
        let bodies = vec![vec![7; 1000]; 100];
        let (_, parts) = parts_of(&bodies, 0..20);
        assert_eq!(parts.len(), 1, "the bodies are copied behind the header");
    }

    #[test]
    #[should_panic(expected = "once and in order")]
    fn a_body_is_not_added_twice() {
        let (buffer, ranges) = buffer_of(&[vec![1; 9000], vec![2; 9000]]);
        let mut group = CommitGroupBuilder::new(CommitGroupNumber(1));
        group.start_batch(buffer);
        for range in [&ranges[0], &ranges[1], &ranges[1]] {
            let _ = group.put_batch_body(range);
        }
    }

    #[test]
    #[should_panic(expected = "once and in order")]
    fn a_body_is_not_added_after_a_later_one() {
        let (buffer, ranges) = buffer_of(&[vec![1; 9000], vec![2; 9000]]);
        let mut group = CommitGroupBuilder::new(CommitGroupNumber(1));
        group.start_batch(buffer);
        for range in [&ranges[1], &ranges[0]] {
            let _ = group.put_batch_body(range);
        }
    }
}
