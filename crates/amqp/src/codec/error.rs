//! Errors in the bytes of a peer.

/// The bytes violate AMQP at this place.
///
/// Boxed, because every read returns a result: a pointer keeps the good results in registers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} (at byte {})", .0.problem, .0.offset)]
pub struct DecodeError(Box<Found>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    offset: usize,
    problem: Problem,
}

impl DecodeError {
    #[cold]
    pub fn new(offset: usize, problem: Problem) -> Self {
        Self(Box::new(Found { offset, problem }))
    }

    /// Returns the offset of the error in the decoded slice.
    pub fn offset(&self) -> usize {
        self.0.offset
    }

    pub fn problem(&self) -> Problem {
        self.0.problem
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the bytes end early: {needed} more were announced, {found} are there")]
    Truncated { needed: usize, found: usize },
    #[error("0x{code:02x} is no AMQP type")]
    UnknownConstructor { code: u8 },
    #[error("expected {expected}, found a value of type 0x{code:02x}")]
    Unexpected { expected: &'static str, code: u8 },
    #[error("a string is not UTF-8")]
    NotUtf8,
    #[error("a symbol is not ASCII")]
    NotAscii,
    #[error("0x{value:08x} is no Unicode character")]
    NotChar { value: u32 },
    #[error("{value} is no {what}")]
    OutOfRange { what: &'static str, value: u64 },
    #[error("values are nested deeper than {DEPTH_MAX}", DEPTH_MAX = super::DEPTH_MAX)]
    TooDeep,
    #[error("{count} elements are announced, at most {limit} fit here")]
    TooMany { count: u32, limit: usize },
    #[error("a map holds {count} values, but keys and values come in pairs")]
    OddMap { count: u32 },
    #[error("a compound value ends {excess} bytes before its announced size")]
    Excess { excess: usize },
    #[error("{composite} has no {field}, which is mandatory")]
    MissingField { composite: &'static str, field: &'static str },
    #[error("descriptor 0x{code:x} does not name {expected}")]
    UnknownDescriptor { expected: &'static str, code: u64 },
    #[error("a symbolic descriptor does not name {expected}")]
    UnknownSymbol { expected: &'static str },
    #[error("a delivery tag of {len} bytes is longer than 32")]
    TagTooLong { len: usize },
    #[error("the message has a second {section} section")]
    DuplicateSection { section: &'static str },
    #[error("the message has body sections of different kinds")]
    MixedBody,
    #[error("another section stands between two body sections")]
    SplitBody,
    #[error("a {section} section stands behind the body, where a large message has none")]
    LateSection { section: &'static str },
    #[error("the sections {part} the body have more than {limit} bytes together")]
    LongSections { part: &'static str, limit: usize },
    #[error("the message has {size} bytes at least, but no more than {limit} are taken")]
    Oversized { size: u64, limit: u64 },
    #[error("the stored message is not in a form this version wrote")]
    BadStoredForm,
}
