//! What a sender publishes at once: an event, or a batch of them for one partition.

use peeklock_amqp::{BodyKind, RawMap, Sections, condition, is_batch};
use peeklock_broker::hubs::block::Block;
use peeklock_message::StoredEvent;
use peeklock_types::limits;

use super::producer::Numbered;
use crate::error::Refusal;
use crate::incoming::unreadable;

const PARTITION_KEY: &str = "x-opt-partition-key";
/// What is stored of a publication is more than what was sent, by a few bytes for each event and the key that the others share. No partition
/// takes more than this at once.
const STORED_BYTES_MAX: usize = 2 * limits::PUBLICATION_SIZE_BYTES_MAX;

/// What the keys of events are good for on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys<'k> {
    /// They decide where all of it goes, so there is one for all or none.
    Route,
    /// The publisher's name is the key of everything.
    Publisher(&'k str),
    /// The link has said where everything goes: keys are kept for readers, and decide nothing. Producers that choose the partition by
    /// themselves send them.
    Keep,
}

pub(super) struct Publication<'a> {
    sections: Sections<'a>,
    /// Bytes that were sent.
    len: usize,
    is_batch: bool,
    /// Of all events, or of those that have none of their own.
    key: Option<&'a str>,
    keys: Keys<'a>,
}

/// What was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) block: Block,
    /// Number of the first event, on the link of a producer that numbers them.
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
            // An envelope without a key says nothing; the events may.
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

    /// By which its partition is chosen.
    pub(super) fn key(&self) -> Option<&'a str> {
        self.key
    }

    /// Writes all events as one block.
    pub(super) fn write(&self, numbered: Option<Numbered>) -> Result<Written, Refusal> {
        let mut numbers = numbered.map(Numbers::new);
        // Enough for all but small events with long keys, so that what is written is not moved.
        let mut block = Block::with_capacity(self.len + self.len / 8);
        let mut write = |sections: &Sections<'_>| {
            // Before all of it is in memory: a million empty events with a long key are a hundred times what was sent.
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

    /// The key to store with an event.
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

    /// An event without a key in a batch that has one goes with the others.
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

/// The numbers that a producer has given its events: one after the other, without a gap.
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
        // After the largest number comes zero.
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

    /// The key by which it is routed, and those that are stored.
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
    fn a_batch_for_two_keys_is_refused() {
        let many = |envelope, keys: &[_]| {
            keys_of(BATCH_FORMAT, &batch(envelope, keys), Keys::Route).unwrap_err().description
        };
        assert!(many(None, &[Some("a"), Some("b")]).contains("two partition keys, 'a' and 'b'"));
        assert!(many(Some("a"), &[Some("a"), Some("b")]).contains("two partition keys, 'a' and 'b'"));
        assert!(many(None, &[None, Some("b")]).contains("without a partition key"));
    }

    #[test]
    fn a_link_to_a_partition_keeps_keys_and_a_publisher_has_one() {
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
    fn keys_have_a_length_and_a_type() {
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
    fn what_is_no_batch_is_refused() {
        for payload in
            [&b""[..], b"nonsense", &Message::value("x").to_bytes(), &Message::data("x").to_bytes()]
        {
            assert!(keys_of(BATCH_FORMAT, payload, Keys::Route).is_err());
        }
    }

    #[test]
    fn a_batch_that_grows_out_of_bounds_is_refused_on_the_way() {
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
    fn numbers_follow_each_other_also_round_the_end() {
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
