//! Messages from senders to queues and topics.

pub(crate) mod send;
mod upload;

use upload::Uploads;

/// The senders of a connection. The links contain the rest of the state.
#[derive(Default)]
pub(crate) struct Publishing {
    /// Large messages that are being received.
    uploads: Uploads,
}
