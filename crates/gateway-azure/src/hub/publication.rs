//! A publication: an event, or a batch of events for one partition.

use peeklock_amqp::{BodyKind, RawMap, Sections, condition, is_batch};
use peeklock_broker::hubs::block::Block;
use peeklock_message::StoredEvent;
use peeklock_types::limits;

use super::producer::Numbered;
use crate::error::Refusal;
use crate::incoming::unreadable;

const PARTITION_KEY: &str = "x-opt-partition-key";
/// The limit on the stored form of a publication. It is larger than the received form by a few bytes per event and by
/// the shared key. No partition accepts more in one request.
const STORED_BYTES_MAX: usize = 2 * limits::PUBLICATION_SIZE_BYTES_MAX;

/// The role of the events' keys on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys<'k> {
    /// The key selects the partition of the whole publication, so all events have the same key or none.
    Route,
    /// The publisher's name is the key of all events.
    Publisher(&'k str),
    /// The link specifies the partition: keys are stored for readers and do not affect routing. Producers that choose
    /// the partition by themselves send them.
    Keep,
}

pub(super) struct Publication<'a> {
    sections: Sections<'a>,
    /// The received bytes.
    len: usize,
    is_batch: bool,
    /// The key of all events, or of those without a key.
    key: Option<&'a str>,
    keys: Keys<'a>,
}

/// The encoded events.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) block: Block,
    /// The number of the first event, on the link of a producer that numbers them.
    pub(super) first: Option<i32>,
}

impl<'a> Publication<'a> {
    pub(super) fn read(message_format: u32, payload: &'a [u8], keys: Keys<'a>) -> Result<Self, Refusal> {
        let sections = Sections::scan(payload).map_err(unreadable)?;
        let is_batch = is_batch(message_format);
        let publication = Publication { sections, len: payload.len(), is_batch, key: None, keys };
        if is_batch && sections.body_kind() != BodyKind::Data {
            let text = "the batch holds no events; put each encoded event into a data section of its own";
            return Err(Refusal::bad_request(text));
        }
        let own_key = partition_key(&sections)?;
        let key = match keys {
            Keys::Publisher(name) => Some(name),
            Keys::Keep => own_key,
            Keys::Route if own_key.is_some() || !is_batch => own_key,
            // If the envelope has no key, the events may have one.
            Keys::Route => match sections.data().next() {
                Some(event) => partition_key(&Sections::scan(event).map_err(unreadable)?)?,
                None => None,
            },
        };
        let publication = Publication { key, ..publication };
        match keys {
            Keys::Publisher(_) => publication.check_key(own_key)?,
            Keys::Route | Keys::Keep => {}
        }
        Ok(publication)
    }

    /// Returns the key that selects the partition.
    pub(super) fn key(&self) -> Option<&'a str> {
        self.key
    }

    /// Writes all events as one block.
    pub(super) fn write(&self, numbered: Option<Numbered>) -> Result<Written, Refusal> {
        let mut numbers = numbered.map(Numbers::new);
        // Sufficient for all but small events with long keys, so that the block is not reallocated.
        let mut block = Block::with_capacity(self.len + self.len / 8);
        let mut write = |sections: &Sections<'_>| {
            // Checked before the whole block is in memory: a million empty events with a long key take a hundred times
            // the received size.
            if block.size_bytes() > STORED_BYTES_MAX {
                return Err(too_many_events(block.count()));
            }
            if let Some(numbers) = &mut numbers {
                numbers.check(&sections.message_annotations().map_err(unreadable)?)?;
            }
            let key = self.key_of(sections)?;
            block.add(|out| StoredEvent::encode(out, sections, key).map_err(unreadable))
        };
        if self.is_batch {
            for event in self.sections.data() {
                write(&Sections::scan(event).map_err(unreadable)?)?;
            }
        } else {
            write(&self.sections)?;
        }
        Ok(Written { block, first: numbers.and_then(|numbers| numbers.first) })
    }

    /// Returns the key to store with an event.
    fn key_of<'s>(&self, event: &Sections<'s>) -> Result<Option<&'s str>, Refusal>
    where
        'a: 's,
    {
        if !self.is_batch {
            return Ok(self.key);
        }
        let own = partition_key(event)?;
        match self.keys {
            Keys::Keep => Ok(own.or(self.key)),
            Keys::Route | Keys::Publisher(_) => {
                self.check_key(own)?;
                Ok(self.key)
            }
        }
    }

    /// Checks the key of an event. In a batch with a key, an event without one is permitted.
    fn check_key(&self, own: Option<&str>) -> Result<(), Refusal> {
        let Some(own) = own.filter(|own| self.key != Some(own)) else { return Ok(()) };
        let text = match (self.keys, self.key) {
            (Keys::Publisher(name), _) => format!(
                "the event has the partition key '{own}', but what is sent to a publisher's address has the publisher's name, '{name}', \
                 for its key; leave the key out, or send to the hub"
            ),
            (_, Some(key)) => format!(
                "the batch has events for two partition keys, '{key}' and '{own}', which may belong to different partitions; send a batch \
                 for each key"
            ),
            (_, None) => format!(
                "the batch has events without a partition key and others with the key '{own}'; send a batch for each"
            ),
        };
        Err(Refusal::bad_request(text))
    }
}

fn too_many_events(count: u32) -> Refusal {
    let text = format!(
        "{count} events of the batch take {STORED_BYTES_MAX} bytes with their annotations already, and there are more; send smaller batches"
    );
    Refusal::new(400, condition::MESSAGE_SIZE_EXCEEDED, text)
}

fn partition_key<'a>(sections: &Sections<'a>) -> Result<Option<&'a str>, Refusal> {
    let annotations = sections.message_annotations().map_err(unreadable)?;
    let value = annotations.get(PARTITION_KEY).map_err(unreadable)?;
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let key = value.as_str().ok_or_else(|| {
        Refusal::new(400, condition::INVALID_FIELD, format!("the annotation {PARTITION_KEY} is not a text"))
    })?;
    check_length(key)?;
    Ok(Some(key))
}

pub(super) fn check_length(key: &str) -> Result<(), Refusal> {
    let count = key.chars().count();
    let max = limits::PARTITION_KEY_CHARS_MAX;
    if count > max {
        let text = format!("the partition key has {count} characters; at most {max} are allowed");
        return Err(Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text));
    }
    Ok(())
}

/// The numbers that a producer has assigned to its events: consecutive, without a gap.
struct Numbers {
    of: Numbered,
    first: Option<i32>,
    next: Option<i32>,
}

impl Numbers {
    fn new(of: Numbered) -> Self {
        Numbers { of, first: None, next: None }
    }

    fn check(&mut self, annotations: &RawMap<'_>) -> Result<(), Refusal> {
        let number = self.of.number_of(annotations)?;
        if let Some(expected) = self.next.filter(|expected| *expected != number) {
            let text = format!(
                "the events of the batch are numbered {expected} and then {number}; number them one after the other"
            );
            return Err(Refusal::new(400, condition::OUT_OF_ORDER_SEQUENCE, text));
        }
        self.first.get_or_insert(number);
        // Zero follows the largest number.
        self.next = Some(number.checked_add(1).unwrap_or(0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use peeklock_amqp::{BATCH_FORMAT, BatchBuilder, Encode, Fields, Message, Text, Value};
    use peeklock_broker::hubs::block::{BlockHead, events};
    use peeklock_types::Timestamp;

    use super::*;

    fn event(key: Option<&'static str>) -> Message {
        let mut message = Message::data("x");
        if let Some(key) = key {
            message.message_annotations.insert(PARTITION_KEY, key);
        }
        message
    }

    fn batch(envelope: Option<&'static str>, keys: &[Option<&'static str>]) -> Bytes {
        let mut builder = match envelope {
            Some(key) => BatchBuilder::with_partition_key(10_000, &Text::from_static(key)),
            None => BatchBuilder::new(10_000),
        };
        for key in keys {
            assert!(builder.try_add(&event(*key).to_bytes()));
        }
        builder.finish()
    }

    /// Returns the key for routing and the stored keys.
    fn keys_of(
        format: u32,
        payload: &[u8],
        keys: Keys<'_>,
    ) -> Result<(Option<String>, Vec<Option<String>>), Refusal> {
        let publication = Publication::read(format, payload, keys)?;
        let block = publication.write(None)?.block;
        let head = BlockHead { first_sequence: 0, count: block.count(), enqueued_at: Timestamp::ZERO };
        let key_of = |event: Bytes| {
            let annotations = StoredEvent::parse(&event).unwrap().annotations();
            annotations.get_str(PARTITION_KEY).unwrap().map(str::to_owned)
        };
        let block = block.finish(&head).unwrap().freeze();
        let stored = events(block, 0).map(|event| key_of(event.unwrap().bytes)).collect();
        Ok((publication.key().map(str::to_owned), stored))
    }

    fn text(key: &str) -> Option<String> {
        Some(key.to_owned())
    }

    #[test]
    fn a_key_routes_all_events_of_a_publication() {
        let one = |key| keys_of(0, &event(key).to_bytes(), Keys::Route).unwrap();
        assert_eq!(one(None), (None, vec![None]));
        assert_eq!(one(Some("k")), (text("k"), vec![text("k")]));
        let many = |envelope, keys: &[_]| keys_of(BATCH_FORMAT, &batch(envelope, keys), Keys::Route);
        assert_eq!(many(None, &[None, None]).unwrap(), (None, vec![None, None]));
        assert_eq!(many(Some("k"), &[None, Some("k")]).unwrap(), (text("k"), vec![text("k"), text("k")]));
        assert_eq!(many(None, &[Some("k"), Some("k")]).unwrap(), (text("k"), vec![text("k"), text("k")]));
    }

    #[test]
    fn a_batch_with_two_keys_is_rejected() {
        let many = |envelope, keys: &[_]| {
            keys_of(BATCH_FORMAT, &batch(envelope, keys), Keys::Route).unwrap_err().description
        };
        assert!(many(None, &[Some("a"), Some("b")]).contains("two partition keys, 'a' and 'b'"));
        assert!(many(Some("a"), &[Some("a"), Some("b")]).contains("two partition keys, 'a' and 'b'"));
        assert!(many(None, &[None, Some("b")]).contains("without a partition key"));
    }

    #[test]
    fn a_partition_link_stores_keys_and_a_publisher_link_has_one_key() {
        let payload = batch(None, &[Some("a"), Some("b"), None]);
        let kept = keys_of(BATCH_FORMAT, &payload, Keys::Keep).unwrap();
        assert_eq!(kept, (None, vec![text("a"), text("b"), None]));
        let single = keys_of(0, &event(Some("a")).to_bytes(), Keys::Keep).unwrap();
        assert_eq!(single, (text("a"), vec![text("a")]));
        let of_batch = keys_of(BATCH_FORMAT, &batch(Some("a"), &[Some("b"), None]), Keys::Keep).unwrap();
        assert_eq!(of_batch, (text("a"), vec![text("b"), text("a")]));
        let forced = keys_of(0, &event(None).to_bytes(), Keys::Publisher("till")).unwrap();
        assert_eq!(forced, (text("till"), vec![text("till")]));
        assert!(keys_of(0, &event(Some("a")).to_bytes(), Keys::Publisher("till")).is_err());
        assert!(keys_of(BATCH_FORMAT, &payload, Keys::Publisher("till")).is_err());
    }

    #[test]
    fn keys_are_checked_for_length_and_type() {
        let of = |key: Value| {
            let message_annotations = Fields::new().with(PARTITION_KEY, key);
            keys_of(0, &Message { message_annotations, ..Message::data("x") }.to_bytes(), Keys::Route)
        };
        assert!(of("é".repeat(128).into()).is_ok());
        assert_eq!(of("é".repeat(129).into()).unwrap_err().condition, condition::ARGUMENT_OUT_OF_RANGE);
        assert_eq!(of(Value::Int(1)).unwrap_err().condition, condition::INVALID_FIELD);
        assert_eq!(of(Value::Null).unwrap().0, None);
    }

    #[test]
    fn invalid_batches_are_rejected() {
        for payload in
            [&b""[..], b"nonsense", &Message::value("x").to_bytes(), &Message::data("x").to_bytes()]
        {
            assert!(keys_of(BATCH_FORMAT, payload, Keys::Route).is_err());
        }
    }

    #[test]
    fn a_batch_above_the_stored_size_limit_is_rejected() {
        let key = "k".repeat(limits::PARTITION_KEY_CHARS_MAX);
        let mut builder =
            BatchBuilder::with_partition_key(limits::PUBLICATION_SIZE_BYTES_MAX, &Text::from(key));
        let empty = Message::data("").to_bytes();
        while builder.try_add(&empty) {}
        let payload = builder.finish();
        let publication = Publication::read(BATCH_FORMAT, &payload, Keys::Route).unwrap();
        let refused = publication.write(None).unwrap_err();
        assert_eq!(refused.condition, condition::MESSAGE_SIZE_EXCEEDED);
    }

    #[test]
    fn numbers_are_consecutive_across_the_wrap_around() {
        let numbered = Numbered { id: 7, epoch: 1 };
        let written = |numbers: &[i32]| {
            let mut builder = BatchBuilder::new(10_000);
            for number in numbers {
                let message_annotations = Fields::new()
                    .with("com.microsoft:producer-id", 7_i64)
                    .with("com.microsoft:producer-epoch", 1_i16)
                    .with("com.microsoft:producer-sequence-number", *number);
                let event = Message { message_annotations, ..Message::data("x") };
                assert!(builder.try_add(&event.to_bytes()));
            }
            let payload = builder.finish();
            let publication = Publication::read(BATCH_FORMAT, &payload, Keys::Keep).unwrap();
            publication.write(Some(numbered))
        };
        let three = written(&[5, 6, 7]).unwrap();
        assert_eq!((three.block.count(), three.first), (3, Some(5)));
        assert_eq!(written(&[i32::MAX, 0]).unwrap().first, Some(i32::MAX));
        assert_eq!(written(&[5, 7]).unwrap_err().condition, condition::OUT_OF_ORDER_SEQUENCE);
    }
}
