//! Batches: one delivery whose data sections each hold one encoded message.

use bytes::{Bytes, BytesMut};

use crate::codec::{
    BINARY8, CompoundWriter, DecodeError, Encode, Problem, SYMBOL8, put_counted, put_descriptor, section,
};
use crate::message::SectionReader;
use crate::text::Text;

/// The message format that marks a batch.
pub const BATCH_FORMAT: u32 = 0x8001_3700;

pub fn is_batch(message_format: u32) -> bool {
    message_format == BATCH_FORMAT
}

/// Iterates over the messages of a batch, as slices of its payload.
///
/// The other sections are the envelope, which clients copy from the first message. It describes none of the messages
/// and is skipped. Iteration ends after the first error.
#[derive(Debug)]
pub struct Batch<'a> {
    reader: SectionReader<'a>,
    failed: bool,
}

impl<'a> Batch<'a> {
    pub fn new(payload: &'a [u8]) -> Self {
        Self { reader: SectionReader::new(payload), failed: false }
    }

    fn next_message(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        while let Some(found) = self.reader.next()? {
            match found.code {
                section::DATA => {
                    let code = found.value.as_encoded().first().copied().unwrap_or_default();
                    let problem = Problem::Unexpected { expected: "a binary in a data section", code };
                    return found.value.as_binary().map(Some).ok_or_else(|| self.reader.error(problem));
                }
                section::SEQUENCE | section::VALUE => return Err(self.reader.error(Problem::MixedBody)),
                section::HEADER..=section::FOOTER => {}
                code => {
                    let expected = "a section of a batch";
                    return Err(self
                        .reader
                        .error(Problem::UnknownDescriptor { expected, code: code.into() }));
                }
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = Result<&'a [u8], DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        self.next_message().inspect_err(|_| self.failed = true).transpose()
    }
}

/// Collects encoded messages into the payload of one batch, up to a size.
#[derive(Debug)]
pub struct BatchBuilder {
    out: BytesMut,
    count: usize,
    size_bytes_max: usize,
}

impl BatchBuilder {
    pub fn new(size_bytes_max: usize) -> Self {
        Self { out: BytesMut::new(), count: 0, size_bytes_max }
    }

    /// Starts a batch whose envelope carries a partition key, which selects the partition of a hub.
    pub fn with_partition_key(size_bytes_max: usize, key: &Text) -> Self {
        let mut batch = Self::new(size_bytes_max);
        put_descriptor(&mut batch.out, section::MESSAGE_ANNOTATIONS);
        let map = CompoundWriter::map(&mut batch.out);
        put_counted(&mut batch.out, SYMBOL8, b"x-opt-partition-key");
        key.encode(&mut batch.out);
        map.finish(&mut batch.out, 2);
        batch
    }

    /// Adds an encoded message. Returns false and changes nothing when the message does not fit.
    #[must_use]
    pub fn try_add(&mut self, message: &[u8]) -> bool {
        let before = self.out.len();
        put_descriptor(&mut self.out, section::DATA);
        put_counted(&mut self.out, BINARY8, message);
        let fits = self.out.len() <= self.size_bytes_max;
        if fits {
            self.count += 1;
        } else {
            self.out.truncate(before);
        }
        fits
    }

    pub fn message_count(&self) -> usize {
        self.count
    }

    pub fn size_bytes(&self) -> usize {
        self.out.len()
    }

    pub fn finish(self) -> Bytes {
        self.out.freeze()
    }
}
