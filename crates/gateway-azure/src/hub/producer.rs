//! Producers that number their events, so that a repeated send is not stored again.

use peeklock_amqp::connection::AttachReply;
use peeklock_amqp::{Attach, Fields, RawMap, Symbol, Value, condition};
use peeklock_broker::hubs::{Error as HubError, Producer};

use crate::error::Refusal;
use crate::incoming::unreadable;

const CAPABILITY: &str = "com.microsoft:idempotent-producer";
const ID: &str = "com.microsoft:producer-id";
const EPOCH: &str = "com.microsoft:producer-epoch";
const SEQUENCE: &str = "com.microsoft:producer-sequence-number";

/// The range of producer ids. An id is never negative: .NET treats a negative id as "not assigned". JavaScript's
/// numbers are exact up to the end of the range.
const IDS: std::ops::Range<i64> = 1..1 << 53;

/// The identity that a link requests. The broker chooses the missing values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) id: Option<i64>,
    epoch: Option<i16>,
    sequence: Option<i32>,
}

/// A producer as each of its events names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

impl Wish {
    /// Decodes the requested identity. Returns `None` if the link does not request numbered events.
    pub(super) fn of(attach: &Attach) -> Result<Option<Self>, Refusal> {
        if !attach.desired_capabilities.iter().any(|capability| *capability == CAPABILITY) {
            return Ok(None);
        }
        let properties = attach.properties.as_ref();
        let wish = Wish {
            id: read(properties, ID)?,
            epoch: read(properties, EPOCH)?,
            sequence: read(properties, SEQUENCE)?,
        };
        wish.check()?;
        Ok(Some(wish))
    }

    fn check(self) -> Result<(), Refusal> {
        let (key, value) = match self {
            Wish { epoch: Some(epoch @ ..0), .. } => (EPOCH, i32::from(epoch)),
            Wish { sequence: Some(sequence @ ..0), .. } => (SEQUENCE, sequence),
            _ => return Ok(()),
        };
        let text = format!("the property {key} of the link is {value}; it must be 0 or greater");
        Err(Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text))
    }

    /// Returns the producer with the number after which it continues. A number from the client is accepted, whatever
    /// the partition has stored: the client may not have received the outcome of its last send, and repeats it under
    /// the same number. SDKs continue from the number in the reply, so a different one would give the same event a new
    /// number.
    pub(super) fn settle(self, known: Option<Producer>) -> Result<Producer, Refusal> {
        let id = self.id.unwrap_or_else(|| fastrand::i64(IDS));
        let Some(known) = known else {
            return Ok(Producer { id, epoch: self.epoch.unwrap_or(0), sequence: self.sequence.unwrap_or(0) });
        };
        let epoch = self.epoch.unwrap_or(known.epoch);
        if epoch < known.epoch {
            let error = HubError::ProducerEpoch { producer: id, current: known.epoch, found: epoch };
            return Err(Refusal::new(409, condition::PRODUCER_EPOCH_STOLEN, error.to_string()));
        }
        Ok(Producer { id, epoch, sequence: self.sequence.unwrap_or(known.sequence) })
    }
}

fn read<T: TryFrom<i64>>(properties: Option<&Fields>, key: &str) -> Result<Option<T>, Refusal> {
    let value = properties.and_then(|properties| properties.get(key)).filter(|value| !value.is_null());
    let Some(value) = value else { return Ok(None) };
    let number = value.as_i64().and_then(|number| T::try_from(number).ok());
    number.map(Some).ok_or_else(|| {
        Refusal::new(
            400,
            condition::INVALID_FIELD,
            format!("the property {key} of the link is not its number"),
        )
    })
}

/// Writes the producer's identity to the attach reply.
pub(super) fn fill(producer: Producer, reply: &mut AttachReply) {
    let properties = reply.properties.get_or_insert_default();
    properties.insert(ID, Value::Long(producer.id));
    properties.insert(EPOCH, Value::Short(producer.epoch));
    properties.insert(SEQUENCE, Value::Int(producer.sequence));
    reply.offered_capabilities.push(Symbol::from_static(CAPABILITY));
}

impl Numbered {
    /// Returns the number of an event. Rejects an event of another producer.
    pub(super) fn number_of(self, annotations: &RawMap<'_>) -> Result<i32, Refusal> {
        let number = |key| -> Result<i64, Refusal> {
            let value = annotations.get(key).map_err(unreadable)?.and_then(|value| value.as_i64());
            value.ok_or_else(|| {
                Refusal::bad_request(format!(
                    "the event has no annotation {key} that is a number, but its link was attached to number events"
                ))
            })
        };
        let (id, epoch, sequence) = (number(ID)?, number(EPOCH)?, number(SEQUENCE)?);
        if id != self.id || epoch != i64::from(self.epoch) {
            let text = format!(
                "the event is from producer {id} with epoch {epoch}, but its link belongs to {} with epoch {}",
                self.id, self.epoch
            );
            return Err(Refusal::bad_request(text));
        }
        i32::try_from(sequence).ok().filter(|sequence| *sequence >= 0).ok_or_else(|| {
            let text = format!("{sequence} is no number of an event; use 0 to {}", i32::MAX);
            Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::Role;

    use super::*;

    fn wish(properties: Option<Fields>) -> Option<Wish> {
        let desired_capabilities = vec![Symbol::from_static(CAPABILITY)];
        Wish::of(&Attach { desired_capabilities, properties, ..Attach::new("link", 0, Role::Sender) })
            .unwrap()
    }

    #[test]
    fn a_producer_without_an_identity_is_assigned_one() {
        let link = Attach::new("link", 0, Role::Sender);
        assert_eq!(Wish::of(&link).unwrap(), None);
        let nulls = Fields::new().with(ID, Value::Null).with(EPOCH, Value::Null).with(SEQUENCE, Value::Null);
        for properties in [None, Some(Fields::new()), Some(nulls)] {
            let given = wish(properties).unwrap().settle(None).unwrap();
            assert!(given.id > 0);
            assert_eq!((given.epoch, given.sequence), (0, 0));
        }
    }

    #[test]
    fn a_returning_producer_receives_its_own_number_or_the_last_stored_one() {
        let named = Fields::new().with(ID, 7_i64).with(EPOCH, 2_i16).with(SEQUENCE, 40_i32);
        let wish = wish(Some(named)).unwrap();
        assert_eq!(wish.settle(None).unwrap(), Producer { id: 7, epoch: 2, sequence: 40 });
        let known = |epoch| Some(Producer { id: 7, epoch, sequence: 55 });
        assert_eq!(wish.settle(known(2)).unwrap(), Producer { id: 7, epoch: 2, sequence: 40 });
        assert_eq!(wish.settle(known(1)).unwrap(), Producer { id: 7, epoch: 2, sequence: 40 });
        let refused = wish.settle(known(3)).unwrap_err();
        assert_eq!(refused.condition, condition::PRODUCER_EPOCH_STOLEN);
        assert!(refused.description.contains("Received: 2, Current: 3"), "{refused:?}");
        let modest = Wish { id: Some(7), ..Wish::default() };
        assert_eq!(modest.settle(known(3)).unwrap(), Producer { id: 7, epoch: 3, sequence: 55 });
    }

    #[test]
    fn the_reply_has_the_types_that_sdks_require() {
        let mut reply = AttachReply::default();
        fill(Producer { id: 7, epoch: 2, sequence: 40 }, &mut reply);
        let properties = reply.properties.unwrap();
        assert_eq!(properties.get(ID), Some(&Value::Long(7)));
        assert_eq!(properties.get(EPOCH), Some(&Value::Short(2)));
        assert_eq!(properties.get(SEQUENCE), Some(&Value::Int(40)));
        assert_eq!(reply.offered_capabilities, [CAPABILITY]);
    }
}
