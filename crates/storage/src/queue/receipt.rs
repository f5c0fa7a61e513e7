//! Pop receipts: opaque to clients, with everything that is needed to find the message.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use peeklock_types::LockToken;
use uuid::Uuid;

use super::message::Guid;

/// The content of a receipt: the message, its lock token, and the id that the client received. With the id, the id in
/// an address can be checked without reading the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PopReceipt {
    pub(super) token: LockToken,
    pub(super) id: Guid,
}

impl PopReceipt {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; 32] = BASE64.decode(text).ok()?.try_into().ok()?;
        let (token, id) = bytes.split_first_chunk::<16>()?;
        Some(PopReceipt {
            token: LockToken::from_bytes(*token),
            id: Guid(Uuid::from_bytes(*id.first_chunk()?)),
        })
    }

    pub(super) fn write(self) -> String {
        BASE64.encode([self.token.to_bytes(), self.id.0.into_bytes()].concat())
    }
}

#[cfg(test)]
mod tests {
    use peeklock_types::SequenceNumber;

    use super::*;

    #[test]
    fn receipts_are_decoded_and_need_no_escapes() {
        let receipt = PopReceipt {
            token: LockToken::new(SequenceNumber(7), u64::MAX),
            id: Guid(Uuid::from_bytes([251; 16])),
        };
        let text = receipt.write();
        assert_eq!(PopReceipt::parse(&text), Some(receipt));
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
        for wrong in ["", "x", "AgAAAAMAAAAAAAAA", &text[1..], &format!("{text}A")] {
            assert_eq!(PopReceipt::parse(wrong), None);
        }
    }
}
