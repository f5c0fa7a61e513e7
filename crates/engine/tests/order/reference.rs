//! Determines the possible next messages by the simplest rule: a search of all waiting ones.

use std::collections::HashMap;

use peeklock_engine::{Message, MessageState};
use peeklock_types::{OrderPolicy, OrderSettings};

use crate::world::{Handed, Job, JobId, World, id_of};

/// Returns the waiting messages, as a peek shows them.
pub(crate) fn waiting(world: &World) -> Vec<Message> {
    let is_waiting =
        |message: &Message| message.state == MessageState::Active && message.locked_until.is_none();
    world.peek().into_iter().filter(is_waiting).collect()
}

/// Stores the class that each message had when it was sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reference {
    pub(crate) order: Option<OrderSettings>,
    names: HashMap<JobId, String>,
}

impl Reference {
    pub(crate) fn new(order: Option<OrderSettings>) -> Reference {
        Reference { order, names: HashMap::new() }
    }

    /// Sets a new order. Messages of a removed class are in the default class from now on.
    pub(crate) fn change(&mut self, world: &World, order: Option<OrderSettings>) {
        self.order = order;
        let Some(order) = &self.order else { return self.names.clear() };
        for message in world.peek() {
            let name = self.names.entry(id_of(&message)).or_default();
            if order.class_index(name).is_none() {
                *name = order.classes[order.default_class_index()].name.as_str().to_owned();
            }
        }
    }

    pub(crate) fn note_sent(&mut self, id: JobId, job: &Job) {
        let Some(order) = &self.order else { return };
        let class = job.priority.and_then(|priority| order.class_of(priority));
        let class = class.unwrap_or_else(|| order.default_class_index());
        if let Some(class) = order.classes.get(class) {
            self.names.insert(id, class.name.as_str().to_owned());
        }
    }

    /// Returns the current class of a message, by its name; 0 is the most urgent one.
    pub(crate) fn rank(&self, id: JobId) -> usize {
        let Some(order) = &self.order else { return 0 };
        let named = self.names.get(&id).and_then(|name| order.class_index(name));
        named.unwrap_or_else(|| order.default_class_index())
    }

    /// Returns the sort key; the smallest goes first.
    fn key(&self, message: &Message) -> u64 {
        let (number, rank) = (message.sequence_number.0, self.rank(id_of(message)));
        let Some(order) = &self.order else { return number };
        match order.policy {
            OrderPolicy::Fifo => number,
            OrderPolicy::Strict => rank as u64,
            OrderPolicy::Aged => (message.enqueued_at + order.offset(rank)).as_millis(),
            OrderPolicy::Weighted => 0,
        }
    }

    /// Checks that this delivery was a correct choice among the waiting messages, and removes it from them.
    pub(crate) fn check(&self, world: &World, waiting: &mut Vec<Message>, handed: &Handed) {
        let place = waiting.iter().position(|message| id_of(message) == handed.id);
        let message = waiting.remove(place.unwrap_or_else(|| panic!("{handed:?} did not wait")));
        let key = self.key(&message);
        let more_urgent = waiting.iter().find(|other| self.key(other) < key);
        assert!(more_urgent.is_none(), "{message:?} was delivered while {more_urgent:?} waits");
        let has_tenants = self.order.as_ref().is_some_and(|order| order.tenants.is_some());
        let lane = |id: JobId| (self.rank(id), world.jobs[&id].tenant.filter(|_| has_tenants));
        let mates = || waiting.iter().filter(|other| lane(id_of(other)) == lane(handed.id));
        let earlier = mates().find(|other| other.sequence_number < message.sequence_number);
        assert!(earlier.is_none(), "{message:?} overtook {earlier:?}");
        let class = self.order.as_ref().and_then(|order| order.classes.get(self.rank(handed.id)));
        if let Some(class) = class {
            assert_eq!(handed.message.class.as_ref(), Some(&class.name));
        }
    }
}
