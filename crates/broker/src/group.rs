//! One group as it grows: bodies first, then the facts that speak of them.
//!
//! ```text
//! u32  where the facts start
//! u32  zero
//! …    bodies, each on a multiple of eight bytes
//! …    facts, one record behind the other
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use peeklock_engine::{Fact, record};
use peeklock_types::{BodyRef, GroupNumber};

use crate::state::{BLOB_RECORD, HUB_RECORD};

const HEADER_BYTES: usize = 8;

#[derive(Debug)]
pub(crate) struct GroupBuilder {
    number: GroupNumber,
    bodies: BytesMut,
    facts: Vec<u8>,
    fact_count: usize,
}

/// The group has no room for another body; append it and go on in the next one.
#[derive(Debug)]
pub(crate) struct Full;

impl GroupBuilder {
    pub(crate) fn new(number: GroupNumber) -> Self {
        let mut builder = GroupBuilder { number, bodies: BytesMut::new(), facts: Vec::new(), fact_count: 0 };
        builder.start(number);
        builder
    }

    fn start(&mut self, number: GroupNumber) {
        self.number = number;
        self.fact_count = 0;
        self.facts.clear();
        self.bodies.put_bytes(0, HEADER_BYTES);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fact_count == 0
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bodies.len() + self.facts.len()
    }

    /// Where the bodies end now, to go back to with [`GroupBuilder::truncate`].
    pub(crate) fn mark(&self) -> usize {
        self.bodies.len()
    }

    pub(crate) fn truncate(&mut self, mark: usize) {
        self.bodies.truncate(mark);
    }

    pub(crate) fn put_body(&mut self, body: &[u8]) -> Result<BodyRef, Full> {
        let padding = self.bodies.len().next_multiple_of(BodyRef::ALIGNMENT) - self.bodies.len();
        self.bodies.put_bytes(0, padding);
        let offset = u32::try_from(self.bodies.len()).map_err(|_| Full)?;
        let place = BodyRef::in_log(self.number, offset).ok_or(Full)?;
        self.bodies.put_slice(body);
        Ok(place)
    }

    /// A body that lies in several pieces.
    pub(crate) fn put_body_in_parts(&mut self, parts: [&[u8]; 2]) -> Result<BodyRef, Full> {
        let [first, rest] = parts;
        let place = self.put_body(first)?;
        self.bodies.put_slice(rest);
        Ok(place)
    }

    pub(crate) fn put_hub_fact(&mut self, fact: &peeklock_hubs::Fact) {
        self.facts.push(HUB_RECORD);
        fact.encode(self.number, &mut self.facts);
        self.fact_count += 1;
    }

    pub(crate) fn put_blob_fact(&mut self, fact: &peeklock_blobs::Fact) {
        self.facts.push(BLOB_RECORD);
        fact.encode(&mut self.facts);
        self.fact_count += 1;
    }

    pub(crate) fn put_fact(&mut self, fact: &Fact) {
        record::encode(fact, self.number, &mut self.facts);
        self.fact_count += 1;
    }

    /// The newest group that holds a fact: this one, or the one before it.
    pub(crate) fn newest_with_facts(&self) -> GroupNumber {
        if self.is_empty() { GroupNumber(self.number.0 - 1) } else { self.number }
    }

    /// The group's bytes; the builder starts over with the next group.
    pub(crate) fn finish(&mut self) -> Bytes {
        let facts_start = u32::try_from(self.bodies.len()).unwrap_or(u32::MAX);
        if let Some(header) = self.bodies.first_chunk_mut::<4>() {
            *header = facts_start.to_le_bytes();
        }
        self.bodies.put_slice(&self.facts);
        let group = self.bodies.split().freeze();
        self.start(self.number.next());
        group
    }
}

/// The part of a group's payload that holds its facts; `None` if the payload is not a group.
pub(crate) fn facts_of(payload: &Bytes) -> Option<Bytes> {
    let start = u32::from_le_bytes(*payload.first_chunk::<4>()?);
    let start = usize::try_from(start).ok()?;
    (start >= HEADER_BYTES && start <= payload.len()).then(|| payload.slice(start..))
}
