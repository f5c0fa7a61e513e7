//! Identifiers of transactions.

use peeklock_amqp::condition;

use crate::error::Refusal;

/// A transaction's number within its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TransactionNumber(pub(crate) u32);

/// Identifies a transaction on the wire: its number, then random bits.
///
/// The random bits make it unique in the broker. A client may by mistake use the id of another connection's
/// transaction; a bare number could then match one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransactionId(pub(super) [u8; 16]);

impl TransactionId {
    pub(super) fn new(number: u32, nonce: u128) -> Self {
        let mut bytes = nonce.to_be_bytes();
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        TransactionId(bytes)
    }

    pub(super) fn of(id: &[u8]) -> Result<Self, Refusal> {
        <[u8; 16]>::try_from(id).map(TransactionId).map_err(|_| unknown())
    }

    pub(super) fn number(self) -> TransactionNumber {
        let [a, b, c, d, ..] = self.0;
        TransactionNumber(u32::from_be_bytes([a, b, c, d]))
    }
}

pub(super) fn unknown() -> Refusal {
    let text = "there is no open transaction with this id on this connection; it ended, or it never was";
    Refusal::new(400, condition::TRANSACTION_UNKNOWN_ID, text)
}
