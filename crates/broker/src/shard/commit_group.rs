//! A commit group under construction: bodies first, then the facts that refer to them.
//!
//! ```text
//! u32  start of the facts
//! u32  version of the program that wrote the group
//! …    bodies, each on a multiple of eight bytes
//! …    facts, one record after another
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use peeklock_engine::{Fact, record};
use peeklock_journal::Payload;
use peeklock_types::{BodyRef, CommitGroupNumber, ProgramVersion};

const HEADER_BYTES: usize = 8;

/// A body in its own buffer is copied to the other bodies if it is smaller than this: many small parts cost more than
/// the copy.
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
    facts: Vec<u8>,
    fact_count: usize,
}

/// The group has no room for another body. Append it and continue in the next group.
#[derive(Debug)]
pub(crate) struct Full;

impl CommitGroupBuilder {
    pub(crate) fn new(number: CommitGroupNumber) -> Self {
        let mut builder = CommitGroupBuilder {
            number,
            parts: Vec::new(),
            parts_bytes: 0,
            bodies: BytesMut::new(),
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
        self.parts_bytes + self.bodies.len()
    }

    pub(crate) fn truncate(&mut self, mark: usize) {
        while mark < self.parts_bytes
            && let Some(last) = self.parts.pop()
        {
            self.parts_bytes -= last.len();
            self.bodies = last;
        }
        self.bodies.truncate(mark - self.parts_bytes);
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
        let before = self.bodies.split();
        for part in [before, body].into_iter().filter(|part| !part.is_empty()) {
            self.parts_bytes += part.len();
            self.parts.push(part);
        }
        Ok(place)
    }

    /// Returns the place of the next body.
    fn next_place(&mut self) -> Result<BodyRef, Full> {
        let end = self.mark();
        self.bodies.put_bytes(0, end.next_multiple_of(BodyRef::ALIGNMENT) - end);
        let offset = u32::try_from(self.mark()).map_err(|_| Full)?;
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
