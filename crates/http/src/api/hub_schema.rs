//! What the API's description says of hubs.

use serde_json::{Map, Value, json};

use super::openapi::{Field, IDENTITIES, closed, object, reference};
use super::route::HubOperation;

const HUB: [Field; 6] = [
    ("partitionCount", "integer"),
    ("retentionHours", "number?"),
    ("retentionBytes", "string?"),
    ("expiredPosition", "string"),
    ("status", "string"),
    ("userMetadata", "string?"),
];
const PARTITION: [Field; 10] = [
    ("partition", "integer"),
    ("beginSequenceNumber", "integer"),
    ("lastSequenceNumber", "integer"),
    ("eventCount", "integer"),
    ("sizeBytes", "integer"),
    ("receivedBytes", "integer"),
    ("readBytes", "integer"),
    ("readEventCount", "integer"),
    ("firstEnqueuedAt", "string"),
    ("lastEnqueuedAt", "string"),
];
const READER: [Field; 4] = [
    ("consumerGroup", "string"),
    ("name", "string"),
    ("ownerLevel", "integer"),
    ("nextSequenceNumber", "integer"),
];
const GROUP: [Field; 4] =
    [("name", "string"), ("createdAt", "string"), ("updatedAt", "string"), ("userMetadata", "string?")];
const CHECKPOINT: [Field; 10] = [
    ("partition", "integer"),
    ("sequenceNumber", "integer"),
    ("at", "string"),
    ("owner", "string"),
    ("epoch", "integer"),
    ("source", "string"),
    ("beginSequenceNumber", "integer"),
    ("lastSequenceNumber", "integer"),
    ("lagEvents", "integer"),
    ("lagSeconds", "number"),
];
const MOVED: [Field; 8] = [
    ("partition", "integer"),
    ("source", "string"),
    ("container", "string"),
    ("before", "integer"),
    ("after", "integer"),
    ("repeatedEvents", "integer"),
    ("skippedEvents", "integer"),
    ("owner", "string"),
];
const OWNERSHIP: [Field; 5] = [
    ("partition", "integer"),
    ("owner", "string"),
    ("epoch", "integer"),
    ("etag", "string"),
    ("modifiedAt", "string"),
];
const EVENT: [Field; 6] = [
    ("partition", "integer"),
    ("sequenceNumber", "integer"),
    ("offset", "string"),
    ("enqueuedAt", "string"),
    ("partitionKey", "string"),
    ("sizeBytes", "integer"),
];

pub(super) fn summary(operation: HubOperation) -> &'static str {
    match operation {
        HubOperation::List => "All event hubs, by name",
        HubOperation::Show => "One hub, with what happens in it",
        HubOperation::Put => {
            "Creates a hub, or changes one: what is left out keeps its value, partitions can only become more, and consumer groups are added. May be repeated"
        }
        HubOperation::Delete => "Deletes a hub with all its events",
        HubOperation::Send => "Stores events in one piece, in a partition, by a key, or in any",
        HubOperation::Partitions => "The partitions of a hub, with their readers",
        HubOperation::ShowPartition => "One partition",
        HubOperation::Events => "Looks at events without being a reader",
        HubOperation::ListGroups => "The consumer groups of a hub, by name",
        HubOperation::ShowGroup => "One consumer group",
        HubOperation::PutGroup => "Creates a consumer group, or changes one. May be repeated",
        HubOperation::DeleteGroup => "Deletes a consumer group with its ownerships and checkpoints",
        HubOperation::Checkpoints => {
            "How far a consumer group has come in each partition, and how far it is behind"
        }
        HubOperation::ShowCheckpoint => "The same for one partition",
        HubOperation::PutCheckpoint => "Moves a checkpoint forward; refused from a former owner",
        HubOperation::ResetCheckpoints => {
            "Moves checkpoints anywhere: to earliest, latest, none, a sequence number or a time"
        }
        HubOperation::Ownerships => "Who owns which partition for a consumer group",
        HubOperation::ShowOwnership => "The same for one partition; its etag is for If-Match",
        HubOperation::PutOwnership => {
            "Claims, renews or (with an empty owner) gives up a partition: with If-Match and the etag that was read, or If-None-Match: *"
        }
    }
}

pub(super) fn body(operation: HubOperation) -> Option<&'static str> {
    match operation {
        HubOperation::Put => Some("HubSettings"),
        HubOperation::Send => Some("EventsToSend"),
        HubOperation::PutGroup => Some("ConsumerGroupSettings"),
        HubOperation::PutCheckpoint => Some("CheckpointSettings"),
        HubOperation::ResetCheckpoints => Some("CheckpointReset"),
        HubOperation::PutOwnership => Some("Claim"),
        _ => None,
    }
}

pub(super) fn answer(operation: HubOperation) -> Option<&'static str> {
    match operation {
        HubOperation::List | HubOperation::Show | HubOperation::Put => Some("Hub"),
        HubOperation::Delete | HubOperation::DeleteGroup => None,
        HubOperation::Send => Some("EventsSent"),
        HubOperation::Partitions | HubOperation::ShowPartition => Some("Partition"),
        HubOperation::Events => Some("Event"),
        HubOperation::ListGroups | HubOperation::ShowGroup | HubOperation::PutGroup => Some("ConsumerGroup"),
        HubOperation::Checkpoints | HubOperation::ShowCheckpoint | HubOperation::PutCheckpoint => {
            Some("Checkpoint")
        }
        HubOperation::ResetCheckpoints => Some("CheckpointMoved"),
        HubOperation::Ownerships | HubOperation::ShowOwnership | HubOperation::PutOwnership => {
            Some("Ownership")
        }
    }
}

pub(super) fn is_page(operation: HubOperation) -> bool {
    matches!(
        operation,
        HubOperation::List
            | HubOperation::Partitions
            | HubOperation::Events
            | HubOperation::ListGroups
            | HubOperation::Checkpoints
            | HubOperation::ResetCheckpoints
            | HubOperation::Ownerships
    )
}

pub(super) fn schemas() -> Map<String, Value> {
    let list = |name| json!({ "type": "array", "items": reference(name) });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let with = |mut schema: Value, more: Vec<(&str, Value)>| {
        for (name, property) in more {
            schema["properties"][name] = property;
        }
        schema
    };
    let runtime = object(&[&[
        ("eventCount", "integer"),
        ("sizeBytes", "integer"),
        ("readerCount", "integer"),
        ("receivedBytes", "integer"),
        ("readBytes", "integer"),
        ("readEventCount", "integer"),
    ]]);
    let dates: &[Field] = &[("createdAt", "string"), ("updatedAt", "string"), ("revision", "integer")];
    let sent: &[Field] = &[
        ("base64", "string"),
        ("messageId", "string"),
        ("correlationId", "string"),
        ("contentType", "string"),
        ("properties", "object"),
    ];
    let to = json!({ "type": ["string", "integer"], "description": "earliest, latest, none, a time, or the number of the last event that counts as done" });
    let schemas = json!({
        "HubSettings": with(closed(&[&HUB, &[("retention", "string?")]]), vec![("consumerGroups", texts.clone())]),
        "Hub": with(
            object(&[&[("name", "string")], &HUB, dates]),
            vec![("consumerGroups", texts), ("runtime", reference("HubRuntime"))],
        ),
        "HubRuntime": with(runtime, vec![("partitions", list("Partition"))]),
        "Partition": with(object(&[&PARTITION]), vec![("readers", list("Reader"))]),
        "Reader": object(&[&READER]),
        "ConsumerGroupSettings": closed(&[&[("userMetadata", "string?")]]),
        "ConsumerGroup": object(&[&GROUP]),
        "CheckpointSettings": closed(&[&[("sequenceNumber", "integer"), ("owner", "string"), ("epoch", "integer")]]),
        "Checkpoint": object(&[&CHECKPOINT]),
        "CheckpointReset": with(closed(&[&[("partition", "integer"), ("dryRun", "boolean")]]), vec![("to", to)]),
        "CheckpointMoved": object(&[&MOVED]),
        "Claim": closed(&[&[("owner", "string")]]),
        "Ownership": object(&[&OWNERSHIP]),
        "EventsToSend": with(
            closed(&[&[("partition", "integer"), ("partitionKey", "string")]]),
            vec![("events", list("EventToSend"))],
        ),
        "EventToSend": with(closed(&[sent]), vec![("body", json!({}))]),
        "EventsSent": object(&[&[("partition", "integer"), ("count", "integer")]]),
        "Event": object(&[&EVENT, &IDENTITIES, &[("subject", "string"), ("properties", "object"), ("body", "object")]]),
    });
    match schemas {
        Value::Object(schemas) => schemas,
        _ => Map::new(),
    }
}
