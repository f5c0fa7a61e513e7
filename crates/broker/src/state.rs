//! What a shard knows: its machines side by side. Their facts share the groups of one log, and their states one snapshot.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_blobs::Blobs;
use peeklock_engine::{Engine, record};
use peeklock_hubs::Hubs;
use peeklock_journal::{Payload, StoredBody};
use peeklock_types::CommitGroupNumber;

use crate::group;

/// A record with this first byte is a fact about hubs. The queue engine's kinds are below it; see [`peeklock_engine::record`].
pub(crate) const HUB_RECORD: u8 = 40;
/// The same for blobs.
pub(crate) const BLOB_RECORD: u8 = 41;

/// What a snapshot begins with. One that does not is of the time when there were only queues.
const MAGIC: &[u8; 8] = b"PLshard1";
const ENGINE: u8 = 1;
const HUBS: u8 = 2;
/// Missing where there are none.
const BLOBS: u8 = 3;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) hubs: Hubs,
    pub(crate) blobs: Blobs,
}

impl State {
    /// Returns the state in parts that follow each other. Large contents of blobs are not copied.
    pub(crate) fn snapshot(&self) -> Payload {
        let mut out = MAGIC.to_vec();
        put_part(ENGINE, &mut out, |out| out.extend(self.engine.snapshot()));
        put_part(HUBS, &mut out, |out| self.hubs.snapshot(out));
        let mut parts = Vec::new();
        if self.blobs != Blobs::default() {
            parts = self.blobs.snapshot();
            let length: usize = parts.iter().map(Bytes::len).sum();
            out.push(BLOBS);
            out.extend((length as u64).to_le_bytes());
        }
        std::iter::once(Bytes::from(out)).chain(parts).collect()
    }

    pub(crate) fn restore(bytes: &[u8]) -> Result<State, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let Some(parts) = bytes.strip_prefix(MAGIC) else {
            let engine = Engine::restore(bytes).map_err(|error| text(&error))?;
            return Ok(State { engine, ..State::default() });
        };
        let parts = take_parts(parts).ok_or("the parts of the snapshot do not fit its size")?;
        if !(parts.contains_key(&ENGINE) && parts.contains_key(&HUBS)) {
            return Err("the snapshot lacks a part".to_owned());
        }
        let mut state = State::default();
        for (kind, part) in parts {
            match kind {
                ENGINE => state.engine = Engine::restore(part).map_err(|error| text(&error))?,
                HUBS => state.hubs = Hubs::restore(part).map_err(|error| text(&error))?,
                BLOBS => state.blobs = Blobs::restore(part).map_err(|error| text(&error))?,
                _ => {
                    return Err(format!(
                        "the snapshot has a part {kind}; use a newer version of the program"
                    ));
                }
            }
        }
        Ok(state)
    }

    pub(crate) fn replay(&mut self, number: CommitGroupNumber, payload: &Bytes) -> Result<(), String> {
        let facts = group::facts_of(payload).ok_or("the group has no place for facts")?;
        let mut facts = &facts[..];
        while let Some((&kind, rest)) = facts.split_first() {
            if kind == HUB_RECORD {
                facts = rest;
                let fact =
                    peeklock_hubs::Fact::decode(&mut facts, number).map_err(|error| error.to_string())?;
                self.hubs.apply(&fact).map_err(|error| error.to_string())?;
            } else if kind == BLOB_RECORD {
                facts = rest;
                let fact = peeklock_blobs::Fact::decode(&mut facts).map_err(|error| error.to_string())?;
                self.blobs.apply(&fact).map_err(|error| error.to_string())?;
            } else {
                let fact = record::decode(&mut facts, number).map_err(|error| error.to_string())?;
                self.engine.apply(&fact).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// The newest group that holds no body which is still needed, nor any group before it.
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

/// One byte of kind, eight of length, then the part.
fn put_part(kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let length_at = out.len();
    out.extend([0; 8]);
    write(out);
    let length = (out.len() - length_at - 8) as u64;
    if let Some(place) = out.get_mut(length_at..length_at + 8) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

fn take_parts(mut bytes: &[u8]) -> Option<BTreeMap<u8, &[u8]>> {
    let mut parts = BTreeMap::new();
    while let Some((&kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (part, rest) = rest.split_at_checked(length)?;
        parts.insert(kind, part);
        bytes = rest;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_comes_back_whole_and_an_old_one_too() {
        let state = State::default();
        let bytes = state.snapshot().into_bytes();
        assert_eq!(State::restore(&bytes).unwrap().snapshot().into_bytes(), bytes);
        assert_eq!(State::restore(&state.engine.snapshot()).unwrap().snapshot().into_bytes(), bytes);
        for cut in 0..bytes.len() {
            assert!(
                State::restore(&bytes[..cut]).is_err() || cut == MAGIC.len() || cut == bytes.len(),
                "{cut}"
            );
        }
    }
}
