//! Batches: messages that are sent as one delivery, with a check of their size.

use peeklock_amqp::Encode;

use crate::message::Message;

/// The bytes of the empty message that contains a batch, with room for larger lengths.
const ENVELOPE_BYTES: u64 = 64;
/// The bytes in front of each message: the data section's descriptor and the length.
const SECTION_BYTES: u64 = 8;

/// Messages to send as one delivery with [`Sender::send_batch`](crate::Sender::send_batch), up to the size limit of their queue.
///
/// ```no_run
/// # async fn example(orders: peeklock::Sender, waiting: Vec<peeklock::Message>) -> Result<(), peeklock::Error> {
/// let mut batch = orders.batch().await?;
/// for message in waiting {
///     if let Err(message) = batch.try_add(message) {
///         orders.send_batch(std::mem::replace(&mut batch, orders.batch().await?)).await?;
///         batch.try_add(message).map_err(|_| "larger than a batch").ok();
///     }
/// }
/// orders.send_batch(batch).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    messages: Vec<Message>,
    size: SizeCount,
}

/// The size of a batch and its limit.
#[derive(Clone, Debug)]
pub(crate) struct SizeCount {
    bytes: u64,
    max: u64,
}

impl SizeCount {
    pub(crate) fn new(max: Option<u64>) -> Self {
        SizeCount { bytes: ENVELOPE_BYTES, max: max.filter(|max| *max > 0).unwrap_or(u64::MAX) }
    }

    /// Adds a message of this size, or returns `false` if it does not fit.
    fn add(&mut self, message_bytes: usize) -> bool {
        let bytes = self.bytes.saturating_add(SECTION_BYTES).saturating_add(message_bytes as u64);
        let fits = bytes <= self.max;
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl Batch {
    pub(crate) fn new(size: SizeCount) -> Self {
        Batch { messages: Vec::new(), size }
    }

    /// Adds a message, or returns it if it does not fit. A message that does not fit into an empty batch is too large to be sent at all.
    #[expect(clippy::result_large_err, reason = "the message is returned to its owner")]
    pub fn try_add(&mut self, message: impl Into<Message>) -> Result<(), Message> {
        let message = message.into().with_id();
        if !self.size.add(message.amqp.to_bytes().len()) {
            return Err(message);
        }
        self.messages.push(message);
        Ok(())
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether the batch has no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the encoded size, rounded up.
    pub fn size_bytes(&self) -> u64 {
        self.size.bytes
    }
}

impl IntoIterator for Batch {
    type Item = Message;
    type IntoIter = std::vec::IntoIter<Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.messages.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_batch_returns_the_message() {
        let mut batch = Batch::new(SizeCount::new(Some(10_000)));
        while batch.try_add(Message::new(vec![7; 900])).is_ok() {}
        assert!((9..=11).contains(&batch.len()), "{}", batch.len());
        assert!(batch.size_bytes() <= 10_000);
        let returned = batch.try_add(Message::text("x".repeat(2000))).unwrap_err();
        assert_eq!(returned.amqp.properties.content_type.unwrap(), "text/plain; charset=utf-8");
        assert!(batch.try_add(Message::text("small")).is_ok() || batch.size_bytes() > 9_000);
    }
}
