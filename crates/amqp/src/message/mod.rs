//! Messages: an index of their sections, readers that decode only what is asked for, and the form the broker stores.

mod decimal;
mod delivery;
mod entries;
mod event;
mod large;
mod lifetime;
mod owned;
mod properties;
mod sections;
mod stored;

pub use delivery::{Rewritten, Stamp};
pub use entries::{Entries, Entry, RawMap, RawValue};
pub use event::{EventStamp, StoredEvent};
pub use large::LargeMessage;
pub use lifetime::{Lifetime, time_to_live_ms};
pub use owned::{Body, Message};
pub use properties::{Header, MessageId, MessageIdRef, Properties, PropertiesRef};
pub use sections::{BodyKind, Sections};
pub use stored::StoredMessage;

pub(crate) use sections::SectionReader;
