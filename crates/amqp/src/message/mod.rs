//! Messages: an index of their sections, and accessors that decode only the requested parts.

mod entries;
mod owned;
mod properties;
mod sections;

pub use entries::{Entries, Pair, RawMap, RawValue};
pub use owned::{Body, Message};
pub use properties::{Header, MessageId, MessageIdRef, Properties, PropertiesRef};
pub use sections::{BodyKind, Sections};

pub(crate) use sections::SectionReader;
