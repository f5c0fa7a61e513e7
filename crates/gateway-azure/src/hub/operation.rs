//! The operations on a hub through `$management`: properties of the hub and of its partitions as in Event Hubs, and
//! ownership and checkpoints, which are specific to this broker.

use peeklock_access::Right;
use peeklock_amqp::Value;
use peeklock_broker::hubs::CheckpointBy;
use peeklock_types::{ConsumerGroup, EntityName, EntityPath, Etag, limits};

use super::attach::parse_partition;
use crate::error::Refusal;
use crate::message::RequestMessage;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HubOperation {
    ReadHub,
    /// The partition as in the request.
    ReadPartition(String),
    Claim {
        group: ConsumerGroup,
        partition: u32,
        owner: String,
        expected: Option<Etag>,
    },
    Ownerships {
        group: ConsumerGroup,
    },
    Checkpoint {
        group: ConsumerGroup,
        partition: u32,
        sequence: u64,
        by: CheckpointBy,
    },
    Checkpoints {
        group: ConsumerGroup,
    },
}

const READ: &str = "READ";
const CLAIM: &str = "peeklock:claim-ownership";
const OWNERSHIPS: &str = "peeklock:list-ownerships";
const CHECKPOINT: &str = "peeklock:update-checkpoint";
const CHECKPOINTS: &str = "peeklock:list-checkpoints";

/// Returns whether the request can only be for a hub.
pub(super) fn is_for_hub(request: &RequestMessage) -> bool {
    let operation = request.property("operation").and_then(Value::as_str);
    matches!(operation, Some(READ | CLAIM | OWNERSHIPS | CHECKPOINT | CHECKPOINTS))
}

/// Returns the hub of a request: the one in its properties, or the one whose `$management` received it.
pub(super) fn hub_of(request: &RequestMessage, path: Option<&EntityPath>) -> Result<EntityName, Refusal> {
    match (request.property("name").and_then(Value::as_str), path) {
        (Some(name), _) => Ok(EntityName::parse(name)?),
        (None, Some(path)) => Ok(path.name.clone()),
        (None, None) => {
            Err(Refusal::bad_request("the request has no property 'name' that says which hub is meant"))
        }
    }
}

impl HubOperation {
    pub(super) fn read(request: &RequestMessage) -> Result<Self, Refusal> {
        let fields = Fields(request);
        Ok(match request.property("operation").and_then(Value::as_str).unwrap_or_default() {
            READ => read_of(request)?,
            CLAIM => HubOperation::Claim {
                group: fields.group()?,
                partition: fields.partition()?,
                owner: fields.required_text("owner")?,
                expected: fields.etag()?,
            },
            OWNERSHIPS => HubOperation::Ownerships { group: fields.group()? },
            CHECKPOINT => HubOperation::Checkpoint {
                group: fields.group()?,
                partition: fields.partition()?,
                sequence: fields.sequence()?,
                by: fields.checkpoint_by()?,
            },
            CHECKPOINTS => HubOperation::Checkpoints { group: fields.group()? },
            other => return Err(Refusal::not_implemented(format!("a hub has no operation '{other}'"))),
        })
    }

    /// Returns the rights of which one is sufficient.
    pub(super) fn rights(&self) -> &'static [Right] {
        match self {
            // Senders request partitions, too: a buffered producer needs their ids.
            HubOperation::ReadHub | HubOperation::ReadPartition(_) => &[Right::Listen, Right::Send],
            _ => &[Right::Listen],
        }
    }
}

fn read_of(request: &RequestMessage) -> Result<HubOperation, Refusal> {
    match request.property("type").and_then(Value::as_str) {
        Some("com.microsoft:eventhub") => Ok(HubOperation::ReadHub),
        Some("com.microsoft:partition") => {
            let partition = request.property("partition").and_then(Value::as_str);
            let missing = || Refusal::bad_request("the request has no property 'partition' that is a text");
            Ok(HubOperation::ReadPartition(partition.ok_or_else(missing)?.to_owned()))
        }
        _ => Err(Refusal::bad_request(
            "the request's property 'type' is neither com.microsoft:eventhub nor com.microsoft:partition",
        )),
    }
}

/// The values of a request's body, which is a map with text keys.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a RequestMessage);

impl<'a> Fields<'a> {
    fn value(self, key: &str) -> Option<&'a Value> {
        self.0.body.lookup(key).filter(|value| !value.is_null())
    }

    fn text(self, key: &str) -> Result<Option<&'a str>, Refusal> {
        self.value(key).map(|value| value.as_str().ok_or_else(|| missing(key, "a text"))).transpose()
    }

    /// Returns a text, at most as long as the name of an owner may be; no field here permits longer texts.
    fn required_text(self, key: &str) -> Result<String, Refusal> {
        let text = self.text(key)?.ok_or_else(|| missing(key, "a text"))?;
        if text.chars().count() > limits::OWNER_CHARS_MAX {
            let max = limits::OWNER_CHARS_MAX;
            return Err(Refusal::bad_request(format!("'{key}' has more than {max} characters")));
        }
        Ok(text.to_owned())
    }

    fn group(self) -> Result<ConsumerGroup, Refusal> {
        let name = self.text("consumer-group")?.unwrap_or(ConsumerGroup::DEFAULT);
        ConsumerGroup::parse(name).map_err(|error| Refusal::bad_request(error.to_string()))
    }

    fn partition(self) -> Result<u32, Refusal> {
        let found = match self.value("partition") {
            Some(Value::String(text)) => parse_partition(text.as_str()),
            Some(value) => value.as_u32(),
            None => None,
        };
        found.ok_or_else(|| missing("partition", "the number of a partition"))
    }

    fn etag(self) -> Result<Option<Etag>, Refusal> {
        let Some(text) = self.text("etag")? else { return Ok(None) };
        let etag = text.parse().map(Etag).map(Some);
        etag.map_err(|_| Refusal::bad_request(format!("'{text}' is no etag of this broker")))
    }

    /// Returns the sequence number, or the offset, which is the same number as text.
    fn sequence(self) -> Result<u64, Refusal> {
        let number = match self.value("sequence-number") {
            Some(value) => value.as_u64(),
            None => self.text("offset")?.and_then(|offset| offset.parse().ok()),
        };
        number.ok_or_else(|| missing("sequence-number", "a number (or an 'offset')"))
    }

    fn checkpoint_by(self) -> Result<CheckpointBy, Refusal> {
        match (self.value("owner").is_some(), self.value("epoch").map(Value::as_u64)) {
            (true, Some(Some(epoch))) => {
                Ok(CheckpointBy::Owner { owner: self.required_text("owner")?, epoch })
            }
            (false, None) => Ok(CheckpointBy::Anyone),
            _ => Err(Refusal::bad_request(
                "a checkpoint of an owner has both 'owner' and 'epoch', as the claim was answered; without an owner it has neither",
            )),
        }
    }
}

fn missing(key: &str, what: &str) -> Refusal {
    Refusal::bad_request(format!("the request's body has no '{key}' that is {what}"))
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::{Encode, Message};

    use super::*;

    fn request(
        properties: &[(&'static str, &'static str)],
        body: Vec<(&'static str, Value)>,
    ) -> RequestMessage {
        let body: Vec<_> = body.into_iter().map(|(key, value)| (Value::from(key), value)).collect();
        let mut message = Message::value(body);
        for (key, value) in properties {
            message = message.with_property(*key, *value);
        }
        RequestMessage::decode(&message.to_bytes()).unwrap()
    }

    fn read(operation: &'static str, body: Vec<(&'static str, Value)>) -> Result<HubOperation, Refusal> {
        let request = request(&[("operation", operation)], body);
        assert!(is_for_hub(&request));
        HubOperation::read(&request)
    }

    #[test]
    fn reads_of_hubs_and_partitions_by_sdks_are_decoded() {
        let hub = request(
            &[("operation", READ), ("type", "com.microsoft:eventhub"), ("name", "clicks")],
            Vec::new(),
        );
        assert_eq!(HubOperation::read(&hub).unwrap(), HubOperation::ReadHub);
        assert_eq!(hub_of(&hub, None).unwrap().as_str(), "clicks");
        let partition = request(
            &[("operation", READ), ("type", "com.microsoft:partition"), ("partition", "3")],
            Vec::new(),
        );
        assert_eq!(HubOperation::read(&partition).unwrap(), HubOperation::ReadPartition("3".into()));
        assert!(hub_of(&partition, None).is_err());
        assert!(HubOperation::read(&request(&[("operation", READ)], Vec::new())).is_err());
        assert!(!is_for_hub(&request(&[("operation", "com.microsoft:peek-message")], Vec::new())));
    }

    #[test]
    fn ownership_and_checkpoints_are_decoded_from_maps() {
        let group = ConsumerGroup::default_group();
        let claim =
            read(CLAIM, vec![("partition", "2".into()), ("owner", "me".into()), ("etag", "7".into())]);
        let expected = Some(Etag(7));
        let wanted = HubOperation::Claim { group: group.clone(), partition: 2, owner: "me".into(), expected };
        assert_eq!(claim.unwrap(), wanted);
        let body = |more: Vec<(&'static str, Value)>| {
            [vec![("partition", 2.into()), ("consumer-group", "$default".into())], more].concat()
        };
        let by = |more| match read(CHECKPOINT, body(more)) {
            Ok(HubOperation::Checkpoint { sequence, by, .. }) => Some((sequence, by)),
            _ => None,
        };
        assert_eq!(by(vec![("sequence-number", 5_i64.into())]), Some((5, CheckpointBy::Anyone)));
        let owner = CheckpointBy::Owner { owner: "me".into(), epoch: 1 };
        let owned = vec![("offset", "5".into()), ("owner", "me".into()), ("epoch", 1_i64.into())];
        assert_eq!(by(owned), Some((5, owner)));
        assert_eq!(
            by(vec![("offset", "5".into()), ("owner", "me".into())]),
            None,
            "an owner requires an epoch"
        );
        assert_eq!(by(Vec::new()), None);
        assert_eq!(read(OWNERSHIPS, Vec::new()).unwrap(), HubOperation::Ownerships { group: group.clone() });
        assert_eq!(read(CHECKPOINTS, Vec::new()).unwrap(), HubOperation::Checkpoints { group });
        assert!(read(CLAIM, vec![("partition", "x".into()), ("owner", "me".into())]).is_err());
        assert!(read(CLAIM, vec![("partition", "1".into())]).is_err());
    }
}
