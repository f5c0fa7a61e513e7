use bytes::Bytes;

/// All that settlements may change in the properties of one message.
pub const PATCH_SIZE_BYTES_MAX: usize = 64 * 1024;

/// What each part counts beside its bytes, so that a great many tiny parts are bounded too.
const PART_OVERHEAD_BYTES: usize = 16;

/// What settlements have changed in a message's properties. The stored bytes never change, so whoever delivers the message merges the
/// parts into its properties, in order: a later part wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    pub parts: Vec<PatchPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchPart {
    /// An encoded map, opaque to the engine.
    Properties(Bytes),
    /// What the action of a rule has changed; see `peeklock_filter::Change`.
    Changes(Bytes),
    /// Why the message was dead-lettered. A patch holds at most one such part.
    DeadLetter { reason: Option<String>, description: Option<String> },
}

impl Patch {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(PatchPart::size_bytes).sum()
    }

    /// Without what rules have changed: that is bounded elsewhere, and whoever settles the message knows nothing of it.
    pub(crate) fn settled_size_bytes(&self) -> usize {
        let is_settled = |part: &&PatchPart| !matches!(part, PatchPart::Changes(_));
        self.parts.iter().filter(is_settled).map(PatchPart::size_bytes).sum()
    }

    /// Adds a part at the end. A new dead-letter reason takes the place of the old one, and keeps of it what it does not say itself: a
    /// message can be dead-lettered again and again without growing.
    pub(crate) fn add(&mut self, part: PatchPart) {
        match part {
            PatchPart::Properties(_) | PatchPart::Changes(_) => self.parts.push(part),
            PatchPart::DeadLetter { reason, description } => {
                let (old_reason, old_description) = self.take_dead_letter();
                let (reason, description) = (reason.or(old_reason), description.or(old_description));
                self.parts.push(PatchPart::DeadLetter { reason, description });
            }
        }
    }

    fn take_dead_letter(&mut self) -> (Option<String>, Option<String>) {
        let found = self.parts.iter().position(|part| matches!(part, PatchPart::DeadLetter { .. }));
        match found.map(|at| self.parts.remove(at)) {
            Some(PatchPart::DeadLetter { reason, description }) => (reason, description),
            _ => (None, None),
        }
    }
}

impl PatchPart {
    pub(crate) fn size_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        PART_OVERHEAD_BYTES
            + match self {
                PatchPart::Properties(map) | PatchPart::Changes(map) => map.len(),
                PatchPart::DeadLetter { reason, description } => text(reason) + text(description),
            }
    }
}
