use std::time::Duration;

use peeklock_filter::{RuleError, RuleName};
use peeklock_types::{
    CommitGroupNumber, EntityKind, EntityName, EntityPath, SequenceNumber, SessionId, SettingsError, ShardId,
    limits,
};

use crate::message::{EntityId, MESSAGE_ID_BYTES_MAX, ReceiverId};
use crate::patch::PATCH_SIZE_BYTES_MAX;

/// The reason why a command was rejected. A rejected command changes nothing and decides no fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the {kind} '{name}' exists already")]
    AlreadyExists { name: EntityName, kind: EntityKind, entity: EntityId },
    #[error("there is no {} '{name}'; create it first", if name.is_subscription() { "subscription" } else { "queue or topic" })]
    NoSuchQueue { name: EntityName },
    #[error("there is no topic '{name}' that could have a subscription; create it first")]
    NoSuchTopic { name: EntityName },
    #[error(
        "'{name}' is not a {kind}; a subscription has a name like topic/Subscriptions/name, a queue or a topic has not"
    )]
    OtherKind { name: EntityName, kind: EntityKind },
    #[error("'{name}' is a topic; receive from one of its subscriptions, '{name}/Subscriptions/…'")]
    IsTopic { name: EntityName },
    #[error("'{name}' is a subscription, which gets messages only from its topic; send to the topic")]
    IsSubscription { name: EntityName },
    #[error("'{name}' has no rules; only subscriptions have")]
    NoRules { name: EntityName },
    #[error("the subscription '{name}' has no rule '{rule}'")]
    NoSuchRule { name: EntityName, rule: RuleName },
    #[error("the subscription '{name}' has a rule '{rule}' already; remove it first, or give another name")]
    RuleExists { name: EntityName, rule: RuleName },
    #[error("the rule does not work: {0}")]
    Rule(#[from] RuleError),
    #[error("the topic '{name}' has {max} {what} already, and more are not allowed; delete some first")]
    TopicFull { name: EntityName, what: &'static str, max: usize },
    #[error(
        "the messages would be copied {copy_count} times or more, which is more than one send may do to the journal; send fewer at once"
    )]
    TooManyCopies { copy_count: usize },
    #[error(
        "{message_count} messages at once are too many for the {rule_count} SQL filters of the topic; send at most {max} at once"
    )]
    TooManyEvaluations { message_count: usize, rule_count: usize, max: usize },
    #[error(
        "'{name}' was changed meanwhile: it is at revision {found}, not {expected}; read it again and repeat the change"
    )]
    RevisionChanged { name: EntityName, expected: u64, found: u64 },
    #[error("{entity} does not exist (any more)")]
    NoSuchEntity { entity: EntityId },
    #[error(
        "messages that transactions have sent by way of '{name}' are still on their way to other queues; try again in a moment"
    )]
    StillSending { name: EntityName },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{what} cannot be read: {reason}")]
    OrderExpression { what: String, reason: RuleError },
    #[error(
        "'{path}' takes no more messages just now: {what} is used up; send again in {} ms",
        retry_after.as_nanos().div_ceil(1_000_000)
    )]
    Throttled { path: EntityPath, what: String, retry_after: Duration },
    #[error("this shard has given out all its entity numbers; create the queue in another shard")]
    NoEntityLeft,
    #[error("'{path}' has given out all its sequence numbers")]
    NoSequenceNumberLeft { path: EntityPath },
    #[error("nothing was named; give at least one message")]
    Nothing,
    #[error("{count} messages were named at once; at most {max} are allowed", max = limits::BATCH_COUNT_MAX)]
    TooMany { count: usize },
    #[error(
        "{size_bytes} bytes are too many at once; ask for at most {max} together, or for one message at a time",
        max = limits::ANSWER_SIZE_BYTES_MAX
    )]
    TooMuch { size_bytes: usize },
    #[error(
        "the lock on message {sequence_number} in '{path}' is not held under this token: it ran out, or the message was settled; \
         receive it again"
    )]
    LockLost { path: EntityPath, sequence_number: SequenceNumber },
    #[error(
        "message {sequence_number} is in '{path}' already and cannot be dead-lettered again; complete, abandon or defer it"
    )]
    DeadLetteredAlready { path: EntityPath, sequence_number: SequenceNumber },
    #[error("'{path}' has no messages that could be received or deleted")]
    NoAddress { path: EntityPath },
    #[error("the message id has {size_bytes} bytes; at most {max} are allowed", max = MESSAGE_ID_BYTES_MAX)]
    MessageIdTooLong { size_bytes: usize },
    #[error("there is no deferred message {sequence_number} in '{path}' that could be received now")]
    NotFound { path: EntityPath, sequence_number: SequenceNumber },
    #[error("there is no message {sequence_number} in '{path}'; it is gone, or never was")]
    NoSuchMessage { path: EntityPath, sequence_number: SequenceNumber },
    #[error(
        "the receipt for message {sequence_number} in '{path}' is not the newest one: the message was received or changed since; receive it again"
    )]
    ReceiptLost { path: EntityPath, sequence_number: SequenceNumber },
    #[error(
        "message {sequence_number} in '{path}' has {size_bytes} bytes and does not fit an answer; receive it over AMQP, which has no such limit"
    )]
    TooLargeToTake { path: EntityPath, sequence_number: SequenceNumber, size_bytes: u32 },
    #[error(
        "{given:?} is too long for a message to stay hidden; give at most {max} days",
        max = limits::HIDDEN_MAX.as_secs() / 86_400
    )]
    HiddenTooLong { given: Duration },
    #[error(
        "the metadata has {count} entries with {size_bytes} bytes; at most {} entries with {} bytes are allowed",
        limits::METADATA_COUNT_MAX,
        limits::METADATA_SIZE_BYTES_MAX
    )]
    MetadataTooLarge { size_bytes: usize, count: usize },
    #[error(
        "there is no scheduled message {sequence_number} in '{path}'; it is due already, was cancelled, or never was"
    )]
    NotScheduled { path: EntityPath, sequence_number: SequenceNumber },
    #[error(
        "'{path}' is full: {taken} of {max} {unit} are taken; receive messages, or raise the queue's {setting}"
    )]
    QueueFull { path: EntityPath, taken: u64, max: u64, unit: &'static str, setting: &'static str },
    #[error("the message has {size_bytes} bytes; '{path}' takes at most {max} for one message")]
    MessageTooLarge { path: EntityPath, size_bytes: u32, max: u32 },
    #[error(
        "the message's properties take {size_bytes} bytes as filters see them; '{path}' takes at most {max}",
        max = limits::VIEW_SIZE_BYTES_MAX
    )]
    PropertiesTooLarge { path: EntityPath, size_bytes: usize },
    #[error("the queue '{name}' is disabled for {what}; set its status to active")]
    Disabled { name: EntityName, what: &'static str },
    #[error("'{path}' forwards its messages to '{target}'; receive there")]
    Forwards { path: EntityPath, target: EntityName },
    #[error("'{path}' requires sessions; give each message a session id, and receive from a session")]
    SessionRequired { path: EntityPath },
    #[error("'{path}' does not have sessions; receive from it without a session id")]
    NoSessions { path: EntityPath },
    #[error(
        "the session '{session}' of '{path}' is locked by another receiver; try again when that one is done, or accept the next session"
    )]
    SessionLocked { path: EntityPath, session: SessionId },
    #[error(
        "the lock on the session '{session}' of '{path}' is not held: it ran out, or the receiver was closed; accept the session again"
    )]
    SessionLockLost { path: EntityPath, session: SessionId },
    #[error("message locks in '{path}' last as long as that of their session; renew the session's lock")]
    RenewSession { path: EntityPath },
    #[error("the session state has {size_bytes} bytes; at most {max} are allowed", max = limits::SESSION_STATE_BYTES_MAX)]
    StateTooLarge { size_bytes: usize },
    #[error(
        "a time to live of zero would expire the message at once; give at least one millisecond, or none"
    )]
    NoTimeToLive,
    #[error(
        "the message is scheduled more than {max} days ahead; schedule it for an earlier time",
        max = limits::SCHEDULE_AHEAD_MAX.as_secs() / 86_400
    )]
    TooFarAhead,
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
    /// The space accounting requires that bodies are in the log in the order of sequence numbers.
    #[error("a body of {group} was given to '{path}' after one of {newest}")]
    BodyOrder { path: EntityPath, group: CommitGroupNumber, newest: CommitGroupNumber },
}

/// A journaled fact does not fit the state: the journal is damaged, or there is a bug. The state must not be used
/// further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("{entity} was to be created, but the next one is {expected}")]
    EntityOrder { entity: EntityId, expected: EntityId },
    #[error("{entity} has the name '{name}', which another one has already")]
    NameTaken { entity: EntityId, name: EntityName },
    #[error("{entity} does not exist")]
    NoSuchEntity { entity: EntityId },
    #[error("{entity} is of another kind than its name or its facts say")]
    OtherKind { entity: EntityId },
    #[error("a rule of {entity} does not work: {reason}")]
    Rule { entity: EntityId, reason: RuleError },
    #[error("{entity} has impossible settings: {reason}")]
    Settings { entity: EntityId, reason: SettingsError },
    #[error("{entity} has an order that does not work: {reason}")]
    Order { entity: EntityId, reason: String },
    #[error("message {found} was enqueued in {entity}, but the next one is {expected}")]
    SequenceOrder { entity: EntityId, found: SequenceNumber, expected: SequenceNumber },
    #[error("message {sequence_number} of {entity} lies in {group}, before its elder in {newest}")]
    BodyOrder {
        entity: EntityId,
        sequence_number: SequenceNumber,
        group: CommitGroupNumber,
        newest: CommitGroupNumber,
    },
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
    #[error("message {sequence_number} of {entity} is not in the state that the journal says")]
    OtherState { entity: EntityId, sequence_number: SequenceNumber },
    #[error("message {number} from or to {shard} comes out of order")]
    TransferOrder { shard: ShardId, number: u64 },
}
