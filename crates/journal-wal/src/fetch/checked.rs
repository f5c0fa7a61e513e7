//! Reads bodies in order to copy them. A copy gets a new checksum, so the old one must be verified first; otherwise a
//! copy would hide damage.

use bytes::Bytes;
use peeklock_journal::{ReadError, StoredBody};
use peeklock_types::{BodyPlace, CommitGroupNumber};

use super::{Source, bodies, hot};
use crate::frame::FRAME_HEADER_BYTES;
use crate::locked;
use crate::replay::Window;
use crate::segment::Place;
use crate::shard::Shard;
use crate::shared::Shared;

/// Returns the bodies in order. Bodies in the log are verified by the checksum of their whole group, unless the group
/// was verified recently: a group with bodies of many streams, which are copied one after the other, is read completely
/// only once.
pub(crate) fn checked_bodies(
    shared: &Shared,
    shard: &Shard,
    wanted: &[StoredBody],
) -> Result<Vec<Bytes>, ReadError> {
    let mut found: Vec<Option<Bytes>> = wanted.iter().map(|body| hot(shard, *body)).collect();
    check_groups(shared, shard, wanted, &mut found)?;
    // The rest are standalone bodies, which have their own checksums, and bodies in groups that were verified before.
    let missing: Vec<usize> =
        found.iter().enumerate().filter(|(_, b)| b.is_none()).map(|(at, _)| at).collect();
    let rest: Vec<StoredBody> = missing.iter().filter_map(|at| wanted.get(*at)).copied().collect();
    for (at, body) in missing.into_iter().zip(bodies(shared, shard, &rest)?) {
        if let Some(slot) = found.get_mut(at) {
            *slot = Some(body);
        }
    }
    let gone = |body: &StoredBody| ReadError::Gone(body.place);
    found.into_iter().zip(wanted).map(|(bytes, body)| bytes.ok_or_else(|| gone(body))).collect()
}

/// Reads the groups that were not verified recently, in the order of the log, and extracts the wanted bodies.
fn check_groups(
    shared: &Shared,
    shard: &Shard,
    wanted: &[StoredBody],
    found: &mut [Option<Bytes>],
) -> Result<(), ReadError> {
    let parts = unchecked_parts(shard, wanted, found);
    let mut groups: Vec<WantedGroup> = Vec::new();
    for part in &parts {
        if groups.last().is_none_or(|last| last.number != part.group) {
            let gone = ReadError::Gone(part.body.place);
            let place = locked(&shard.books).place(part.group).ok_or(gone)?;
            groups.push(WantedGroup { number: part.group, place });
        }
    }
    let mut window = Window::new(&shared.buffers);
    let mut parts = parts.as_slice();
    for (at, group) in groups.iter().enumerate() {
        let count = parts.iter().take_while(|part| part.group == group.number).count();
        let (now, later) = parts.split_at(count);
        parts = later;
        let next = groups.get(at + 1).map(|next| next.place);
        let gone = now.first().map(|part| ReadError::Gone(part.body.place));
        let payload = match (read_group(shared, shard, &mut window, group, next)?, gone) {
            (Some(payload), _) => payload,
            (None, Some(gone)) => return Err(gone),
            (None, None) => continue,
        };
        shard.note_checked(group.number);
        // A slice keeps the whole read in memory until the copies are written.
        let wanted_bytes: usize = now.iter().map(|part| part.range().len()).sum();
        let is_mostly_wanted = wanted_bytes > window.size_bytes() / 2;
        for part in now {
            let bytes = payload.get(part.range()).ok_or(ReadError::Gone(part.body.place))?;
            if let Some(slot) = found.get_mut(part.slot) {
                let bytes =
                    if is_mostly_wanted { payload.slice_ref(bytes) } else { Bytes::copy_from_slice(bytes) };
                *slot = Some(bytes);
            }
        }
    }
    Ok(())
}

/// A wanted body of a group.
struct Part {
    group: CommitGroupNumber,
    offset_bytes: usize,
    slot: usize,
    body: StoredBody,
}

impl Part {
    fn range(&self) -> std::ops::Range<usize> {
        self.offset_bytes..self.offset_bytes.saturating_add(self.body.size_bytes as usize)
    }
}

struct WantedGroup {
    number: CommitGroupNumber,
    place: Place,
}

fn unchecked_parts(shard: &Shard, wanted: &[StoredBody], found: &[Option<Bytes>]) -> Vec<Part> {
    let checked = locked(&shard.checked);
    let mut parts = Vec::new();
    for (slot, (body, _)) in wanted.iter().zip(found).enumerate().filter(|(_, (_, found))| found.is_none()) {
        if let BodyPlace::InGroup { group, offset_bytes } = body.place.place()
            && !checked.contains(&group)
        {
            parts.push(Part { group, offset_bytes: offset_bytes as usize, slot, body: *body });
        }
    }
    drop(checked);
    parts.sort_unstable_by_key(|part| (part.group, part.offset_bytes));
    parts
}

/// Reads and verifies the payload of a group. Returns `None` if its space was reused.
fn read_group(
    shared: &Shared,
    shard: &Shard,
    window: &mut Window,
    group: &WantedGroup,
    next: Option<Place>,
) -> Result<Option<Bytes>, ReadError> {
    let Some(segment) = locked(&shared.ring).find(group.place.segment()) else { return Ok(None) };
    let offset = group.place.offset();
    let source = Source::log(shared, segment.clone());
    let mut read = |size_bytes: usize| {
        let read = window.read(&segment, offset, size_bytes, next);
        let read = read.map_err(|error| ReadError::Io { path: source.path.clone(), source: error })?;
        read.ok_or_else(|| source.damaged(offset, "something that should be here would end behind the file"))
    };
    let header = source.header(&read(FRAME_HEADER_BYTES)?, offset, shard, group.number)?;
    let payload = read(FRAME_HEADER_BYTES + header.group.payload_bytes as usize)?.slice(FRAME_HEADER_BYTES..);
    if crc32c::crc32c(&payload) != header.group.payload_crc {
        return Err(source.damaged(offset, "the checksum of a group does not fit"));
    }
    Ok(Some(payload))
}
