//! All tags of records, settings and snapshots.
//!
//! A tag is on disk: it keeps its meaning for ever, and no other field gets its number, even when the field is removed.
//! A new field or record takes the next free number of its list. `docs/design/wal-format.md` contains the rules.

/// A list of tags that are used together, so that each number has one meaning in it.
#[derive(Clone, Copy, Debug)]
pub struct TagList {
    /// The noun for its tags in errors.
    pub name: &'static str,
    pub tags: &'static [(&'static str, u64)],
}

macro_rules! registry {
    ($( $(#[$doc:meta])* $module:ident, $name:literal { $( $tag:ident = $number:literal, )* } )*) => {
        $( $(#[$doc])*
        pub mod $module {
            pub const LIST: &str = $name;
            $( pub const $tag: u64 = $number; )*
        } )*

        /// All lists, for checks and for display.
        pub const ALL: &[TagList] = &[
            $( TagList { name: $name, tags: &[ $( (stringify!($tag), $number), )* ] }, )*
        ];
    };
}

registry! {
    /// Kinds of records in commit groups, of all machines of a shard.
    record, "record kind" {
        // Queues, topics and subscriptions.
        QUEUE_CREATED = 1,
        QUEUE_UPDATED = 2,
        QUEUE_DELETED = 3,
        ENQUEUED = 4,
        LOCKED = 5,
        RENEWED = 6,
        COMPLETED = 7,
        ABANDONED = 8,
        LOCK_EXPIRED = 9,
        DELAY_ENDED = 10,
        RELEASED = 11,
        DEFERRED = 12,
        DEAD_LETTERED = 13,
        MOVED = 14,
        ACTIVATED = 15,
        PURGED = 16,
        SESSION_STATE_SET = 17,
        TRANSFER_STARTED = 18,
        TRANSFER_FAILED = 19,
        ARRIVED = 20,
        SENT_ON = 21,
        FANNED_OUT = 22,
        SEEN = 23,
        RULE_SET = 24,
        RULE_REMOVED = 25,
        CHARGED = 26,
        RECEIPTED = 27,
        REPLACED = 28,
        CLEARED = 29,
        METADATA_SET = 30,
        BODY_LOST = 31,
        NUMBERS_RESERVED = 32,
        // Hubs.
        HUB_CREATED = 64,
        HUB_UPDATED = 65,
        HUB_DELETED = 66,
        CONSUMER_GROUP_SET = 67,
        CONSUMER_GROUP_DELETED = 68,
        CLAIMED = 69,
        CHECKPOINTED = 70,
        STREAM_OPENED = 71,
        STREAM_DELETED = 72,
        APPENDED = 73,
        GATHERED = 74,
        RETIRED = 75,
        LOST = 76,
        // Blobs.
        CONTAINER_CREATED = 96,
        CONTAINER_DELETED = 97,
        CONTAINER_METADATA_SET = 98,
        BLOB_PUT = 99,
        BLOB_METADATA_SET = 100,
        BLOB_DELETED = 101,
        LEASED = 102,
        STAGED = 103,
        UNSTAGED = 104,
    }
    /// Optional fields of the records of queues.
    queue_field, "field of a record of a queue" {
        SUB_QUEUE = 1,
        ATTRIBUTES = 2,
        PATCH = 3,
        DUE = 4,
        STATE = 5,
        UNTIL = 6,
        PROPERTIES = 7,
    }
    /// Optional fields of the records of hubs.
    hub_field, "field of a record of a hub" {
        USER_METADATA = 1,
        CHECKPOINT = 2,
        PRODUCER = 3,
    }
    /// Optional fields of the records of blobs.
    blob_field, "field of a record of a blob" {
        BLOB = 1,
        LEASE = 2,
    }
    queue_setting, "queue setting" {
        LOCK_DURATION = 1,
        MAX_DELIVERY_COUNT = 2,
        REQUIRES_SESSION = 3,
        DEFAULT_TIME_TO_LIVE = 4,
        DEAD_LETTER_ON_EXPIRATION = 5,
        AUTO_DELETE_ON_IDLE = 6,
        DUPLICATE_WINDOW = 7,
        UNUSED_DUPLICATE_WINDOW = 8,
        MAX_SIZE_BYTES = 9,
        MAX_MESSAGE_SIZE_BYTES = 10,
        STATUS = 11,
        FORWARD_TO = 12,
        FORWARD_DEAD_LETTERS_TO = 13,
        RETRY = 14,
        POISON_SESSION = 15,
        ORDER = 16,
        DEAD_LETTER_ON_FILTER_ERROR = 17,
        BATCHED_OPERATIONS = 18,
        SUPPORT_ORDERING = 19,
        EXPRESS = 20,
        PARTITIONING = 21,
        USER_METADATA = 22,
        MAX_COUNT = 23,
    }
    hub_setting, "hub setting" {
        PARTITION_COUNT = 1,
        RETENTION = 2,
        RETENTION_BYTES = 3,
        EXPIRED_POSITION = 4,
        STATUS = 5,
        USER_METADATA = 6,
    }
    retry, "retry policy" {
        IMMEDIATE = 0,
        FIXED = 1,
        LINEAR = 2,
        EXPONENTIAL = 3,
    }
    retry_field, "field of a retry policy" {}
    order_setting, "setting of an order" {
        POLICY = 1,
        CLASSES = 2,
        DEFAULT_CLASS = 3,
        RULES = 4,
        TENANTS = 5,
        RATE = 6,
        SEND_RATE = 7,
        MAX_OUTSTANDING = 8,
    }
    class_settings, "setting of a class" {
        NAME = 1,
        PRIORITIES = 2,
        OFFSET = 3,
        WEIGHT = 4,
        TARGET = 5,
        RATE = 6,
        SEND_RATE = 7,
    }
    target, "field of a target" {
        WITHIN = 1,
        OBJECTIVE_PPM = 2,
    }
    class_rule, "field of a rule of a class" {
        WHEN = 1,
        CLASS = 2,
    }
    tenant_settings, "setting of tenants" {
        KEY = 1,
        CLASSES = 2,
        DEFAULT_CLASS = 3,
    }
    tenant_class, "setting of a class of tenants" {
        NAME = 1,
        WHEN = 2,
        WEIGHT_MILLI = 3,
        MAX_SHARE_MILLI = 4,
        IS_SHARE_HARD = 5,
        RATE = 6,
        SEND_RATE = 7,
    }
    rate, "field of a rate" {
        PER_SECOND_MILLI = 1,
        BURST = 2,
    }
    rule, "field of a rule" {
        NAME = 1,
        FILTER = 2,
        ACTION = 3,
    }
    filter, "filter kind" {
        TRUE = 0,
        FALSE = 1,
        SQL = 2,
        CORRELATION = 3,
    }
    expression, "field of an expression" {
        TEXT = 1,
        PARAMETERS = 2,
    }
    correlation, "condition of a correlation filter" {
        CORRELATION_ID = 1,
        MESSAGE_ID = 2,
        TO = 3,
        REPLY_TO = 4,
        LABEL = 5,
        SESSION_ID = 6,
        REPLY_TO_SESSION_ID = 7,
        CONTENT_TYPE = 8,
        PROPERTIES = 9,
    }
    /// Attributes of a message in records.
    attribute, "attribute of a message" {
        SESSION = 1,
        TIME_TO_LIVE = 2,
        SCHEDULED_FOR = 3,
        MESSAGE_ID = 4,
        ORIGIN = 5,
        PATCH = 6,
        VIEW = 7,
        LANE = 8,
        RESERVED = 9,
    }
    /// Details of a message in snapshots.
    detail, "detail of a message" {
        SESSION = 1,
        TIME_TO_LIVE = 2,
        DUE = 3,
        MESSAGE_ID = 4,
        ORIGIN = 5,
        TRANSFER = 6,
        VIEW = 7,
        RECEIPT = 8,
        DELIVERY_COUNT_HIGH = 9,
        WAS_LOCKED_UNTIL = 10,
    }
    origin, "field of an origin" {
        SEQUENCE_NUMBER = 1,
        HOP_COUNT = 2,
        DEAD_LETTER_SOURCE = 3,
    }
    transfer, "field of a transfer" {
        TARGET = 1,
        NUMBER = 2,
        WHY = 3,
        RESERVED = 4,
    }
    reserved, "field of a reserved number" {
        ENTITY = 1,
        SEQUENCE_NUMBER = 2,
    }
    lane, "field of a lane" {
        CLASS = 1,
        TENANT_CLASS = 2,
        TENANT = 3,
    }
    patch_part, "part of a patch" {
        PROPERTIES = 0,
        DEAD_LETTER = 1,
        CHANGES = 2,
    }
    dead_letter, "field of a dead-letter reason" {
        REASON = 1,
        DESCRIPTION = 2,
    }
    /// Parts of the snapshot of a shard.
    shard_part, "part of a snapshot" {
        QUEUES = 1,
        HUBS = 2,
        BLOBS = 3,
    }
    /// Parts of the snapshot of all queues of a shard.
    queues_part, "part of a snapshot of queues" {
        QUEUES = 1,
        SENT = 2,
        ARRIVED = 3,
        SHARED = 4,
        NEXT_ENTITY = 5,
    }
    /// A queue, topic or subscription in a snapshot.
    stored_queue, "part of a stored queue" {
        HEAD = 1,
        SESSIONS = 2,
        HISTORY = 3,
        LANES = 4,
        MAIN = 5,
        DEAD_LETTER = 6,
        TRANSFER = 7,
        TRANSFER_DEAD_LETTER = 8,
        PACE = 9,
    }
    queue_head, "field of a stored queue" {
        ENTITY = 1,
        NAME = 2,
        KIND = 3,
        SETTINGS = 4,
        CREATED_AT = 5,
        UPDATED_AT = 6,
        REVISION = 7,
        METADATA = 8,
        RULES = 9,
        NEXT_NUMBER = 10,
        NEWEST_GROUP = 11,
    }
    stored_rule, "field of a stored rule" {
        RULE = 1,
        CREATED_AT = 2,
    }
    stored_session, "field of a stored session" {
        ID = 1,
        STATE = 2,
        STATE_SET_AT = 3,
    }
    /// Fields after the positional values of a message id that a queue has seen.
    stored_id, "field of a stored message id" {}
    /// Fields after the positional values of a body that several messages share.
    stored_share, "field of a shared body" {}
    /// Bits beside the two of a message's state.
    message_mark, "mark of a stored message" {
        STRAY = 4,
        POISON = 8,
        STARTED = 16,
        ACTIVATED = 32,
    }
    /// Optional fields of a message in a snapshot.
    stored_message, "field of a stored message" {
        SESSION = 1,
        LOCK = 2,
        CHARGED_MS = 3,
        LANE = 4,
        PATCH = 5,
        DETAILS = 6,
    }
    stored_lane, "field of a stored lane" {
        PLACE = 1,
        KEY = 2,
        IS_OPEN = 3,
    }
    pace, "field of the pace of an order" {
        VIRTUAL_TIME = 1,
        ESTIMATE_MS = 2,
        SWEEP_AT = 3,
        CLASSES = 4,
        LANES = 5,
    }
    /// Parts of the snapshot of all hubs of a shard.
    hubs_part, "part of a snapshot of hubs" {
        NEXT_ETAG = 1,
        HUBS = 2,
        STREAMS = 3,
        NEXT_STREAM = 4,
    }
    stored_hub, "field of a stored hub" {
        NAME = 1,
        ID = 2,
        SETTINGS = 3,
        CREATED_AT = 4,
        UPDATED_AT = 5,
        REVISION = 6,
        GROUPS = 7,
    }
    stored_group, "field of a stored consumer group" {
        NAME = 1,
        CREATED_AT = 2,
        UPDATED_AT = 3,
        USER_METADATA = 4,
        PROGRESS = 5,
    }
    stored_progress, "field of a stored progress" {
        PARTITION = 1,
        OWNED = 2,
        CHECKPOINT = 3,
    }
    owned, "field of an ownership" {
        OWNER = 1,
        EPOCH = 2,
        ETAG = 3,
        MODIFIED_AT = 4,
    }
    checkpoint, "field of a checkpoint" {
        SEQUENCE = 1,
        AT = 2,
    }
    stream_spec, "field of a stream's specification" {
        HUB = 1,
        NAME = 2,
        PARTITION = 3,
        SETTINGS = 4,
    }
    stored_stream, "field of a stored stream" {
        STREAM = 1,
        SPEC = 2,
        LAST_ENQUEUED_AT = 3,
        PRODUCERS = 4,
        BEGIN = 5,
        EXTENTS = 6,
    }
    stored_producer, "field of a stored producer" {
        PRODUCER = 1,
        LAST_EVENT = 2,
        SENDS = 3,
    }
    /// Optional fields of an extent in a snapshot.
    stored_extent, "field of a stored extent" {}
    new_blob, "field of a new blob" {
        METADATA = 1,
        HEADERS = 2,
        BLOCKS = 3,
        CONTENT = 4,
    }
    blob_headers, "header of a blob" {
        CONTENT_TYPE = 1,
        CONTENT_ENCODING = 2,
        CONTENT_LANGUAGE = 3,
        CONTENT_DISPOSITION = 4,
        CACHE_CONTROL = 5,
        CONTENT_MD5 = 6,
    }
    block, "field of a block" {
        ID = 1,
        SIZE_BYTES = 2,
    }
    lease, "field of a lease" {
        ID = 1,
        TERM = 2,
    }
    lease_term, "lease term" {
        INFINITE = 1,
        FIXED = 2,
        BREAKING = 3,
    }
    lease_field, "field of a lease term" {}
    /// Records of the snapshot of all blobs of a shard. A blob follows its container, and a block follows the blob that
    /// it waits for.
    blobs_record, "part of a snapshot of blobs" {
        CONTAINER = 1,
        BLOB = 2,
        STAGED = 3,
        STAGED_BLOCK = 4,
        NEXT_ETAG = 5,
    }
    stored_container, "field of a stored container" {
        NAME = 1,
        METADATA = 2,
        ETAG = 3,
        MODIFIED_AT = 4,
        LEASE = 5,
    }
    stored_blob, "field of a stored blob" {
        NAME = 1,
        METADATA = 2,
        HEADERS = 3,
        BLOCKS = 4,
        ETAG = 5,
        CREATED_AT = 6,
        MODIFIED_AT = 7,
        LEASE = 8,
        CONTENT = 9,
    }
    stored_staged, "field of stored blocks" {
        NAME = 1,
        AT = 2,
        ID = 3,
        CONTENT = 4,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ALL;

    #[test]
    fn no_tag_is_used_twice() {
        let names: BTreeSet<_> = ALL.iter().map(|list| list.name).collect();
        assert_eq!(names.len(), ALL.len(), "two lists have the same name");
        for list in ALL {
            let numbers: BTreeSet<_> = list.tags.iter().map(|(_, number)| number).collect();
            assert_eq!(numbers.len(), list.tags.len(), "a {} is used twice", list.name);
            let names: BTreeSet<_> = list.tags.iter().map(|(name, _)| name).collect();
            assert_eq!(names.len(), list.tags.len(), "a {} is named twice", list.name);
        }
    }
}
