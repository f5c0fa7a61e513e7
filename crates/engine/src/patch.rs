use bytes::Bytes;

/// The limit for all changes that settlements make to the properties of one message.
pub const PATCH_SIZE_BYTES_MAX: usize = 64 * 1024;

/// The bytes that count for each part beside its content, so that the number of tiny parts is limited too.
const PART_OVERHEAD_BYTES: usize = 16;

/// The changes that settlements made to a message's properties. The stored bytes never change, so the code that
/// delivers the message merges the parts into its properties, in order: a later part wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    pub parts: Vec<PatchPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchPart {
    /// An encoded map, opaque to the engine.
    Properties(Bytes),
    /// The changes that the action of a rule made; see `peeklock_filter::Change`.
    Changes(Bytes),
    /// The reason for dead-lettering. A patch contains at most one such part.
    DeadLetter { reason: Option<String>, description: Option<String> },
}

impl Patch {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub fn size_bytes(&self) -> usize {
        self.parts.iter().map(PatchPart::size_bytes).sum()
    }

    /// Returns the size without the changes of rules: they have a limit of their own, and a client that settles the
    /// message cannot see them.
    pub(crate) fn settled_size_bytes(&self) -> usize {
        let is_settled = |part: &&PatchPart| !matches!(part, PatchPart::Changes(_));
        self.parts.iter().filter(is_settled).map(PatchPart::size_bytes).sum()
    }

    /// Appends a part. A new dead-letter reason replaces the old one and inherits the fields that it omits: a message
    /// can be dead-lettered again and again without growing.
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
