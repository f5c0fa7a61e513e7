//! Messages from senders to queues and topics.

pub(crate) mod upload;
