//! Finds SQL filters that begin with an equality by hash, so that `tenant = 'a' AND …` does not run for the messages of other tenants.
//!
//! `AND` stops at its first false condition, so a filter whose first condition is false is false. The filters are indexed by the value in
//! that condition. If the message has a value of another kind, or none, the filter has to run: on a value of another kind it fails, and a
//! missing value makes only the first condition unknown.

use std::hash::Hasher;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::index::{Field, hash_value, value_of};
use crate::slots::Message;
use crate::sql::{Comparison, Kind, Node, Property};
use crate::value::ValueRef;

/// Kinds of values that have a plain equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    Truth,
    Number,
    Text,
}

impl Class {
    fn of(value: &ValueRef<'_>) -> Option<Self> {
        match value {
            ValueRef::Bool(_) => Some(Class::Truth),
            ValueRef::Long(_) | ValueRef::Double(_) => Some(Class::Number),
            ValueRef::Text(_) => Some(Class::Text),
            _ => None,
        }
    }
}

/// The common part of all filters in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    field: Field,
    class: Class,
    /// Whether the equality is the whole filter. If so, a message without a value does not match.
    is_whole: bool,
}

/// Filters of one shape, by the hash of the value in their condition.
type Table<T> = FxHashMap<u64, SmallVec<[Arc<T>; 1]>>;

#[derive(Clone, Debug)]
pub(crate) struct Guards<T> {
    tables: FxHashMap<Shape, Table<T>>,
}

impl<T> Default for Guards<T> {
    fn default() -> Self {
        Self { tables: FxHashMap::default() }
    }
}

/// The place of a filter in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    shape: Shape,
    hash: u64,
}

impl Guard {
    /// Returns `None` if the filter does not begin with an equality.
    pub(crate) fn of(condition: &Node) -> Option<Self> {
        let (first, is_whole) = match &condition.kind {
            Kind::And(list) => (list.first()?, false),
            _ => (condition, true),
        };
        let Kind::Compare { left, comparison: Comparison::Equal, right } = &first.kind else { return None };
        let (property, value) = match (&left.kind, &right.kind) {
            (Kind::Property(property), Kind::Literal(value))
            | (Kind::Literal(value), Kind::Property(property)) => (property, value.borrow()),
            _ => return None,
        };
        let field = match property {
            Property::System(property) => Field::System(*property),
            Property::User { slot, .. } => Field::User { slot: *slot },
        };
        let shape = Shape { field, class: Class::of(&value)?, is_whole };
        Some(Self { shape, hash: hash(&value) })
    }
}

fn hash(value: &ValueRef<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    hash_value(value, &mut hasher);
    hasher.finish()
}

impl<T> Guards<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn insert(&mut self, guard: Guard, filter: Arc<T>) {
        self.tables.entry(guard.shape).or_default().entry(guard.hash).or_default().push(filter);
    }

    pub(crate) fn remove(&mut self, guard: Guard, filter: &Arc<T>) {
        let Some(table) = self.tables.get_mut(&guard.shape) else { return };
        if let Some(filters) = table.get_mut(&guard.hash) {
            filters.retain(|other| !Arc::ptr_eq(other, filter));
            if filters.is_empty() {
                table.remove(&guard.hash);
            }
        }
        if table.is_empty() {
            self.tables.remove(&guard.shape);
        }
    }

    /// Finds every filter that may match the message or fail on it, in no order.
    pub(crate) fn find<'g>(&'g self, message: &Message<'_>, found: &mut Vec<&'g T>) {
        for (shape, table) in &self.tables {
            match value_of(shape.field, message) {
                None if shape.is_whole => (),
                Some(value) if Class::of(value) == Some(shape.class) => {
                    found.extend(table.get(&hash(value)).into_iter().flatten().map(|filter| &**filter));
                }
                _ => found.extend(table.values().flatten().map(|filter| &**filter)),
            }
        }
    }
}
