//! Messages from queues and subscriptions to receivers, and their settlement.

mod delay;
pub(crate) mod deliver;
pub(crate) mod outcome;
pub(crate) mod selection;
pub(crate) mod sessions;
mod settle;
pub(crate) mod stream;

pub(crate) use settle::Disposition;
use stream::Streams;

/// The receivers of a connection. The links contain the rest of the state.
#[derive(Default)]
pub(crate) struct Receiving {
    /// Large messages that are being sent to receivers.
    streams: Streams,
}
