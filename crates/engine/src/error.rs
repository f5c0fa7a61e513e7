use peeklock_types::{EntityName, EntityPath, GroupNumber, SequenceNumber, SettingsError, limits};

use crate::message::{EntityId, ReceiverId};
use crate::patch::PATCH_SIZE_BYTES_MAX;

/// Why a command was refused. A refused command changes nothing and decides no fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the queue '{name}' exists already")]
    AlreadyExists { name: EntityName, entity: EntityId },
    #[error("there is no queue '{name}'; create it first")]
    NoSuchQueue { name: EntityName },
    #[error("{entity} does not exist (any more)")]
    NoSuchEntity { entity: EntityId },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("this shard has given out all its entity numbers; create the queue in another shard")]
    NoEntityLeft,
    #[error("'{path}' has given out all its sequence numbers")]
    NoSequenceNumberLeft { path: EntityPath },
    #[error("nothing was named; give at least one message")]
    Nothing,
    #[error("{count} messages were named at once; at most {max} are allowed", max = limits::BATCH_COUNT_MAX)]
    TooMany { count: usize },
    #[error(
        "the messages have {size_bytes} bytes together; ask for at most {max} at once, or for one message at a time",
        max = limits::ANSWER_SIZE_BYTES_MAX
    )]
    TooMuch { size_bytes: usize },
    #[error(
        "the lock on message {sequence_number} in '{path}' is not held under this token: it ran out, or the message was settled; \
         receive it again"
    )]
    LockLost { path: EntityPath, sequence_number: SequenceNumber },
    #[error("there is no deferred message {sequence_number} in '{path}' that could be received now")]
    NotFound { path: EntityPath, sequence_number: SequenceNumber },
    #[error("message {sequence_number} is named twice; name it once")]
    Repeated { sequence_number: SequenceNumber },
    #[error(
        "message {sequence_number} in '{path}' would carry {size_bytes} bytes of changed properties; at most {max} are allowed",
        max = PATCH_SIZE_BYTES_MAX
    )]
    PatchTooLarge { path: EntityPath, sequence_number: SequenceNumber, size_bytes: usize },
    #[error(
        "the dead-letter reason or description has {count} characters; at most {max} are allowed",
        max = limits::DEAD_LETTER_TEXT_CHARS_MAX
    )]
    TextTooLong { count: usize },
    #[error("receiver {} is attached already", receiver.0)]
    ReceiverExists { receiver: ReceiverId },
    /// Bodies lie in the log in the order of sequence numbers; the space accounting rests on it.
    #[error("a body of {group} was given to '{path}' after one of {newest}")]
    BodyOrder { path: EntityPath, group: GroupNumber, newest: GroupNumber },
}

/// A journaled fact does not fit the state: the journal is damaged, or one of the two has a bug. The state is not to be used further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("{entity} was to be created, but the next one is {expected}")]
    EntityOrder { entity: EntityId, expected: EntityId },
    #[error("{entity} has the name '{name}', which another one has already")]
    NameTaken { entity: EntityId, name: EntityName },
    #[error("{entity} does not exist")]
    NoSuchEntity { entity: EntityId },
    #[error("{entity} has impossible settings: {reason}")]
    Settings { entity: EntityId, reason: SettingsError },
    #[error("message {found} was enqueued in {entity}, but the next one is {expected}")]
    SequenceOrder { entity: EntityId, found: SequenceNumber, expected: SequenceNumber },
    #[error("message {sequence_number} of {entity} lies in {group}, before its elder in {newest}")]
    BodyOrder { entity: EntityId, sequence_number: SequenceNumber, group: GroupNumber, newest: GroupNumber },
    #[error("message {sequence_number} of {entity} is not there")]
    NoSuchMessage { entity: EntityId, sequence_number: SequenceNumber },
    #[error("message {sequence_number} of {entity} is there already")]
    TwiceThere { entity: EntityId, sequence_number: SequenceNumber },
    #[error("message {sequence_number} of {entity} is locked twice")]
    LockedTwice { entity: EntityId, sequence_number: SequenceNumber },
    #[error("message {sequence_number} of {entity} is not locked")]
    NotLocked { entity: EntityId, sequence_number: SequenceNumber },
    #[error(
        "the body of message {sequence_number} of {entity} does not lie where it was moved from, or does not move to a cold segment"
    )]
    BodyMoved { entity: EntityId, sequence_number: SequenceNumber },
}
