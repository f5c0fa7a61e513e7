//! Messages: an index of their sections, readers that decode only what is asked for, and the form the broker stores.

mod delivery;
mod entries;
mod event;
mod large;
mod owned;
mod properties;
mod sections;
mod stored;

pub use delivery::{Rewritten, Stamp};
pub use entries::{Entries, Entry, RawMap, RawValue};
pub use event::{EventStamp, StoredEvent, encode_delivery_annotations};
pub use large::LargeMessage;
pub use owned::{Body, Message};
pub use properties::{Header, MessageId, MessageIdRef, Properties, PropertiesRef};
pub use sections::{BodyKind, Sections};
pub use stored::StoredMessage;

pub(crate) use sections::SectionReader;
