//! Messages from senders to queues and topics.

pub(crate) mod send;
mod upload;

use upload::Uploads;

/// The senders of a connection. Their links have the rest of their state.
#[derive(Default)]
pub(crate) struct Publishing {
    /// Large messages that are being received.
    uploads: Uploads,
}
