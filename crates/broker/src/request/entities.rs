//! Requests about queues, topics and subscriptions themselves.

use std::time::Duration;

use peeklock_engine::{EntityId, ExplainedMessage, OrderView};
use peeklock_filter::Rule;
use peeklock_hubs::HubView;
use peeklock_types::{EntityKind, EntityName, QueueSettings, SequenceNumber};

use super::requests;
use crate::measure::Measure;
use crate::reply::EntityInfo;

/// The entity with a given name.
#[derive(Clone, Debug)]
pub enum Named {
    Entity(Found),
    Hub(HubView),
}

/// An entity, with the properties that its senders and receivers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub entity: EntityId,
    pub kind: EntityKind,
    /// Whether messages belong to sessions, which receivers lock.
    pub requires_session: bool,
    pub lock_duration: Duration,
    pub max_message_size_bytes: u32,
    /// Whether messages must have a message id: the queue detects duplicates, or forwards to a queue that may.
    pub needs_message_id: bool,
    /// Whether messages should have a view: the entity is a topic, or a queue with an order. The shard adds the view of
    /// a message without one.
    pub needs_view: bool,
}

/// A selection of entities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    All,
    Queues,
    Topics,
    Subscriptions { topic: EntityName },
}

requests! {
    EntityRequest, EntityAnswer;

    Find {
        name: EntityName,
    } -> Named;

    /// Creates an entity. `rule` is the first rule of a subscription; without it, the subscription receives every
    /// message.
    Create {
        name: EntityName,
        kind: EntityKind,
        settings: Box<QueueSettings>,
        rule: Option<Box<Rule>>,
    } -> EntityInfo;

    /// Changes the settings of an entity. `expected` is the revision that the caller has read.
    Update {
        name: EntityName,
        settings: Box<QueueSettings>,
        expected: Option<u64>,
    } -> EntityInfo;

    Delete {
        name: EntityName,
        expected: Option<u64>,
    } -> ();

    Show {
        name: EntityName,
    } -> EntityInfo;

    /// Lists entities by name, after `after`, at most `top`.
    List {
        what: Listing,
        after: Option<EntityName>,
        top: usize,
    } -> Vec<EntityInfo>;

    /// Lists the names of all entities.
    Names {
        what: Listing,
    } -> Vec<EntityName>;

    /// Shows the order of a queue. `None`: the queue has no order.
    ShowOrder {
        name: EntityName,
    } -> Option<Box<OrderView>>;

    /// Explains why a message has not been received yet.
    ExplainMessage {
        name: EntityName,
        number: SequenceNumber,
    } -> ExplainedMessage;

    /// Lists entities of all kinds with their measurements, by name, after `after`, at most `top`.
    MeasureEntities {
        after: Option<EntityName>,
        top: usize,
    } -> Vec<Measure>;
}
