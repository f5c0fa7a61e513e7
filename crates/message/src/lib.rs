//! The stored message: the form in which the broker stores messages and events, and everything that reads or writes it.
//!
//! - [`store`] turns a message of a sender into its stored form and the attributes that the engine needs;
//!   [`LargeMessage`] does the same part by part.
//! - [`StoredMessage`] and [`StoredEvent`] read the stored form. A [`Stamp`] or [`EventStamp`] holds the values that the
//!   broker adds to a delivery.
//! - [`describe`] derives the view that filters and queue orders evaluate.
//! - [`Content`] holds the decoded values of a stored message, for readers that need no delivery.
//! - A patch holds the changes of settlements and rule actions since the message was stored; [`write_front`] applies it
//!   to a delivery.
//!
//! The crate uses the AMQP codec for sections and values. It contains no connection, socket, task, clock or random
//! source.

mod changes;
mod content;
mod delivery;
mod error;
mod event;
mod incoming;
mod large;
mod lifetime;
mod outgoing;
mod stored;
mod values;
mod view;

pub use changes::{DEAD_LETTER_DESCRIPTION, DEAD_LETTER_REASON, PATCH_PROPERTIES_MAX, encode_patch};
pub use content::Content;
pub use delivery::{Rewritten, Stamp};
pub use error::{PatchError, StoreError};
pub use event::{EventStamp, StoredEvent};
pub use incoming::{Needs, describe_front, store};
pub use large::LargeMessage;
pub use lifetime::{Lifetime, time_to_live_ms};
pub use outgoing::{encode_front_of_large, encode_whole, timestamp, write_front};
pub use stored::StoredMessage;
pub use values::{from_given, to_given};
pub use view::{describe, with_size};
