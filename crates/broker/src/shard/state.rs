//! The state of a shard: several machines whose facts share the commit groups of one log and whose states share one
//! snapshot.

use bytes::Bytes;
use peeklock_blobs::Blobs;
use peeklock_engine::{Engine, record};
use peeklock_hubs::Hubs;
use peeklock_journal::{Payload, StoredBody};
use peeklock_types::wire::tags::{record as kinds, shard_part};
use peeklock_types::wire::{DecodeError, Decoder, Fields, put_large_field, put_number, take_record};
use peeklock_types::{CommitGroupNumber, Placement, ProgramVersion};

use super::commit_group;

/// The first bytes of a snapshot. The version of the program that wrote it follows (4 bytes), then the parts.
const MAGIC: &[u8; 8] = b"PLshard2";

pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) hubs: Hubs,
    pub(crate) blobs: Blobs,
}

impl State {
    pub(crate) fn new(placement: Placement) -> Self {
        State { engine: Engine::new(placement), hubs: Hubs::default(), blobs: Blobs::default() }
    }

    /// Returns the state as consecutive parts. Large blob contents are not copied.
    pub(crate) fn snapshot(&self) -> Payload {
        let mut out = MAGIC.to_vec();
        out.extend(ProgramVersion::THIS.to_bits().to_le_bytes());
        put_large_field(shard_part::QUEUES, &mut out, |out| self.engine.put_snapshot(out));
        put_large_field(shard_part::HUBS, &mut out, |out| self.hubs.snapshot(out));
        let mut parts = Vec::new();
        if self.blobs != Blobs::default() {
            parts = self.blobs.snapshot();
            let length: usize = parts.iter().map(Bytes::len).sum();
            put_number(shard_part::BLOBS, &mut out);
            put_number(length as u64, &mut out);
        }
        std::iter::once(Bytes::from(out)).chain(parts).collect()
    }

    pub(crate) fn restore(bytes: &[u8], placement: Placement) -> Result<State, String> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("this is no snapshot of a shard")?;
        let (version, parts) = rest.split_first_chunk().ok_or("the snapshot ends too early")?;
        let version = ProgramVersion::from_bits(u32::from_le_bytes(*version));
        restore_parts(parts, placement).map_err(|error| explain(&error, version))
    }

    pub(crate) fn replay(&mut self, number: CommitGroupNumber, payload: &Bytes) -> Result<(), String> {
        let (version, facts) = commit_group::facts_of(payload).ok_or("the group has no place for facts")?;
        let mut facts = Decoder::new(&facts);
        while !facts.is_empty() {
            let taken = take_record(&mut facts).map_err(|error| explain(&error, version))?;
            self.replay_record(number, taken.0, taken.1, version)?;
        }
        Ok(())
    }

    /// Applies a record to the machine that defines its kind.
    fn replay_record(
        &mut self,
        number: CommitGroupNumber,
        kind: u64,
        fields: Decoder<'_>,
        version: ProgramVersion,
    ) -> Result<(), String> {
        let explained = |error| explain(&error, version);
        if let Some(fact) = record::of_fields(kind, fields, number).map_err(explained)? {
            return self.engine.apply(&fact).map_err(|error| error.to_string());
        }
        if let Some(fact) = peeklock_hubs::Fact::of_record(kind, fields, number).map_err(explained)? {
            return self.hubs.apply(&fact).map_err(|error| error.to_string());
        }
        if let Some(fact) = peeklock_blobs::Fact::of_record(kind, fields).map_err(explained)? {
            return self.blobs.apply(&fact).map_err(|error| error.to_string());
        }
        Err(explained(DecodeError::Unknown { of: kinds::LIST, tag: kind }))
    }

    /// Returns the newest group for which neither it nor any earlier group contains a body that is still needed.
    pub(crate) fn bodies_upto(&mut self, appended: CommitGroupNumber) -> CommitGroupNumber {
        let oldest = [self.engine.oldest_log_body(), self.hubs.oldest_log_body()].into_iter().flatten().min();
        oldest.map_or(appended, |oldest| CommitGroupNumber(oldest.0.saturating_sub(1)))
    }

    /// Returns every standalone body once.
    pub(crate) fn standalone_bodies(&self) -> Vec<StoredBody> {
        let messages = self.engine.standalone_bodies().map(|body| (body.place, body.size_bytes));
        let all = messages.chain(self.hubs.standalone_bodies());
        all.map(|(place, size_bytes)| StoredBody { place, size_bytes }).collect()
    }
}

fn restore_parts(bytes: &[u8], placement: Placement) -> Result<State, DecodeError> {
    let (mut engine, mut hubs, mut blobs) = (None, None, Blobs::default());
    let mut decoder = Decoder::new(bytes);
    let mut parts = Fields::new(&mut decoder);
    while let Some((tag, part)) = parts.next_field()? {
        match tag {
            shard_part::QUEUES => engine = Some(Engine::restore(part.rest, placement)?),
            shard_part::HUBS => hubs = Some(Hubs::restore(part.rest)?),
            shard_part::BLOBS => blobs = Blobs::restore(part.rest)?,
            _ => return Err(DecodeError::Unknown { of: shard_part::LIST, tag }),
        }
    }
    let engine = engine.ok_or(DecodeError::Missing("the part of queues"))?;
    let hubs = hubs.ok_or(DecodeError::Missing("the part of hubs"))?;
    Ok(State { engine, hubs, blobs })
}

/// Describes the error in bytes that `written_by` wrote, and names the version that can read them.
fn explain(error: &DecodeError, written_by: ProgramVersion) -> String {
    let this = ProgramVersion::THIS;
    match error {
        DecodeError::Unknown { .. } if written_by > this => format!(
            "{error} to this version of the program, {this}. Version {written_by} wrote it: start version {written_by} or a later one"
        ),
        DecodeError::Unknown { .. } => {
            format!(
                "{error}, although version {written_by} of the program wrote it and this is version {this}"
            )
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use peeklock_types::wire::put_field;

    use super::*;

    const NEWER: ProgramVersion = ProgramVersion::new(9, 8, 7);

    fn restore(bytes: &[u8]) -> Result<State, String> {
        State::restore(bytes, Placement::default())
    }

    #[test]
    fn a_snapshot_is_restored_completely_or_rejected() {
        let state = State::new(Placement::default());
        let bytes = state.snapshot().into_bytes();
        assert_eq!(restore(&bytes).unwrap().snapshot().into_bytes(), bytes);
        for cut in 0..bytes.len() {
            assert!(restore(&bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn an_unknown_record_names_the_version_that_wrote_it() {
        let mut group = 8_u32.to_le_bytes().to_vec();
        group.extend(NEWER.to_bits().to_le_bytes());
        put_field(4711, &1_u64, &mut group);
        let refused = State::new(Placement::default()).replay(CommitGroupNumber(1), &group.into());
        let expected = format!(
            "the record kind 4711 is unknown to this version of the program, {}. Version 9.8.7 wrote it: start version 9.8.7 or a later one",
            ProgramVersion::THIS
        );
        assert_eq!(refused, Err(expected));
    }

    #[test]
    fn an_unknown_part_of_a_snapshot_names_the_version_that_wrote_it() {
        let mut bytes = State::new(Placement::default()).snapshot().into_bytes().to_vec();
        bytes[8..12].copy_from_slice(&NEWER.to_bits().to_le_bytes());
        put_field(99, &1_u64, &mut bytes);
        let refused = restore(&bytes).map(|_| ()).unwrap_err();
        assert!(refused.starts_with("the part of a snapshot 99 is unknown to this version"), "{refused}");
        assert!(refused.ends_with("start version 9.8.7 or a later one"), "{refused}");
    }
}
