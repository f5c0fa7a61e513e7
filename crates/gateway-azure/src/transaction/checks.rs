//! Settlements in transactions whose locks are being checked.

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::Retired;
use crate::connection::request::LockWaiter;

/// Settlements whose locks are being checked.
#[derive(Debug, Default)]
pub(super) struct Checks {
    waiting: FxHashMap<u32, Check>,
    next: u32,
}

#[derive(Debug)]
pub(super) struct Check {
    pub(super) txn_id: Bytes,
    pub(super) retired: Retired,
}

impl Checks {
    pub(super) fn insert(&mut self, check: Check) -> LockWaiter {
        // The number of checks is limited by the unsettled deliveries, so a number is free again when the counter wraps
        // around.
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.waiting.insert(number, check);
        LockWaiter::Settlement(number)
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Check> {
        self.waiting.remove(&number)
    }
}
