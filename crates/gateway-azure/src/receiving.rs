//! Messages from queues and subscriptions to receivers, and their settlement.

mod delay;
pub(crate) mod outcome;
pub(crate) mod selection;
pub(crate) mod sessions;
pub(crate) mod stream;
