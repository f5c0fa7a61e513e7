//! The states of a delivery, and the two requests to a transaction coordinator.

use bytes::Bytes;

use crate::codec::composite;
use crate::error::AmqpError;
use crate::value::{Fields, Value};

/// The state of a delivery at one of its ends.
#[derive(Debug, Clone, PartialEq)]
pub enum DeliveryState {
    Received {
        section_number: u32,
        section_offset: u64,
    },
    Accepted,
    Rejected {
        error: Option<Box<AmqpError>>,
    },
    Released,
    Modified {
        delivery_failed: Option<bool>,
        undeliverable_here: Option<bool>,
        message_annotations: Option<Fields>,
    },
    Declared {
        txn_id: Bytes,
    },
    Transactional {
        txn_id: Bytes,
        outcome: Option<Box<DeliveryState>>,
    },
}

impl DeliveryState {
    pub fn rejected(error: AmqpError) -> Self {
        Self::Rejected { error: Some(Box::new(error)) }
    }

    /// Returns whether the state ends the delivery, as opposed to a report of progress.
    pub fn is_outcome(&self) -> bool {
        !matches!(self, Self::Received { .. } | Self::Transactional { outcome: None, .. })
    }
}

composite! {
    /// Requests a new transaction from the coordinator.
    #[derive(Default)]
    pub struct Declare: 0x31 {
        pub global_id: Option<Value>,
    }
}

composite! {
    /// Requests the end of a transaction: a commit, or a rollback when `fail` is set.
    pub struct Discharge: 0x32 {
        pub txn_id: Bytes,
        pub fail: Option<bool>,
    }
}
