//! What has become of a delivery, and the two commands of a transaction coordinator.

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

    /// A state that ends the delivery, as opposed to one that reports progress.
    pub fn is_outcome(&self) -> bool {
        !matches!(self, Self::Received { .. } | Self::Transactional { outcome: None, .. })
    }
}

composite! {
    /// Asks the coordinator for a new transaction.
    #[derive(Default)]
    pub struct Declare: 0x31 {
        pub global_id: Option<Value>,
    }
}

composite! {
    /// Asks the coordinator to end a transaction: commit, or roll back when `fail` is set.
    pub struct Discharge: 0x32 {
        pub txn_id: Bytes,
        pub fail: Option<bool>,
    }
}
