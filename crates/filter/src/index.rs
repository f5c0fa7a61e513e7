//! Finds correlation filters by hash. All filters on the same properties cost one lookup.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::action::Script;
use crate::compare::{as_whole, relate};
use crate::guid;
use crate::rule::{CorrelationFilter, RuleName};
use crate::slots::{Message, Slots};
use crate::system::SystemProperty;
use crate::value::{Value, ValueRef};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Field {
    System(SystemProperty),
    User { slot: usize },
}

/// A correlation filter of one subscription, with its action.
#[derive(Clone, Debug)]
pub(crate) struct Correlation<K> {
    pub(crate) key: K,
    pub(crate) name: RuleName,
    /// The conditions, sorted by field, so that equal sets of fields are equal lists.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) script: Option<Script>,
}

#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) field: Field,
    pub(crate) value: Value,
    /// The name of the property in explanations.
    pub(crate) label: String,
}

impl Condition {
    pub(crate) fn all_of(filter: &CorrelationFilter, slots: &mut Slots) -> Vec<Condition> {
        let fields = filter.fields().into_iter().filter_map(|(property, value)| {
            let value = Value::text(value?);
            Some(Condition { field: Field::System(property), value, label: property.to_string() })
        });
        let mut conditions: Vec<Condition> = fields.collect();
        for (name, value) in &filter.properties {
            let field = Field::User { slot: slots.take(name) };
            conditions.push(Condition { field, value: value.value().clone(), label: format!("user.{name}") });
        }
        conditions.sort_by_key(|condition| condition.field);
        conditions
    }

    pub(crate) fn is_met_by(&self, message: &Message<'_>) -> bool {
        value_of(self.field, message).is_some_and(|value| is_same(&self.value.borrow(), value))
    }
}

/// Returns `None` if the message does not have the property, or has null.
pub(crate) fn value_of<'m, 'v>(field: Field, message: &'m Message<'v>) -> Option<&'m ValueRef<'v>> {
    let value = match field {
        Field::System(property) => message.system(property),
        Field::User { slot } => message.user(slot)?.1,
    };
    (!value.is_null()).then_some(value)
}

/// Compares like `=` in a filter, except that a text never equals a time or a duration: a correlation filter can contain a time or a duration
/// itself.
fn is_same(left: &ValueRef<'_>, right: &ValueRef<'_>) -> bool {
    let has_time = |value: &ValueRef<'_>| matches!(value, ValueRef::Time(_) | ValueRef::Span(_));
    let has_text = |value: &ValueRef<'_>| matches!(value, ValueRef::Text(_));
    if has_time(left) && has_text(right) || has_text(left) && has_time(right) {
        return false;
    }
    relate(left, right).is_equal()
}

/// Hashes a value. Equal values have equal hashes, also `1` and `1.0`, or a GUID and its text.
pub(crate) fn hash_value(value: &ValueRef<'_>, hasher: &mut FxHasher) {
    match value {
        ValueRef::Null => 0_u8.hash(hasher),
        ValueRef::Bool(value) => (1_u8, value).hash(hasher),
        ValueRef::Long(number) => (2_u8, number).hash(hasher),
        ValueRef::Double(number) => match as_whole(*number) {
            Some(number) => (2_u8, number).hash(hasher),
            None => (3_u8, number.to_bits()).hash(hasher),
        },
        ValueRef::Text(text) => match guid::parse(text) {
            Some(uuid) => (4_u8, uuid).hash(hasher),
            None => (5_u8, &**text).hash(hasher),
        },
        ValueRef::Uuid(uuid) => (4_u8, uuid).hash(hasher),
        ValueRef::Binary(bytes) => (6_u8, bytes).hash(hasher),
        ValueRef::Time(ms) => (7_u8, ms).hash(hasher),
        ValueRef::Span(ticks) => (8_u8, ticks).hash(hasher),
    }
}

/// Filters on the same fields, by the hash of their values.
type Table<K> = FxHashMap<u64, SmallVec<[Arc<Correlation<K>>; 1]>>;

#[derive(Clone, Debug)]
pub(crate) struct Index<K> {
    tables: FxHashMap<Box<[Field]>, Table<K>>,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self { tables: FxHashMap::default() }
    }
}

impl<K> Index<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn insert(&mut self, rule: Arc<Correlation<K>>) {
        let (fields, hash) = place(&rule);
        self.tables.entry(fields).or_default().entry(hash).or_default().push(rule);
    }

    pub(crate) fn remove(&mut self, rule: &Arc<Correlation<K>>) {
        let (fields, hash) = place(rule);
        let Some(table) = self.tables.get_mut(&fields) else { return };
        if let Some(rules) = table.get_mut(&hash) {
            rules.retain(|other| !Arc::ptr_eq(other, rule));
            if rules.is_empty() {
                table.remove(&hash);
            }
        }
        if table.is_empty() {
            self.tables.remove(&fields);
        }
    }

    /// Finds every filter that the message meets, in no order.
    pub(crate) fn find<'i>(&'i self, message: &Message<'_>, found: &mut Vec<&'i Correlation<K>>) {
        for (fields, table) in &self.tables {
            let Some(hash) = hash_of(message, fields) else { continue };
            let rules = table.get(&hash).into_iter().flatten().map(|rule| &**rule);
            found.extend(rules.filter(|rule| rule.conditions.iter().all(|one| one.is_met_by(message))));
        }
    }
}

fn place<K>(rule: &Correlation<K>) -> (Box<[Field]>, u64) {
    let mut hasher = FxHasher::default();
    rule.conditions.iter().for_each(|condition| hash_value(&condition.value.borrow(), &mut hasher));
    (rule.conditions.iter().map(|condition| condition.field).collect(), hasher.finish())
}

fn hash_of(message: &Message<'_>, fields: &[Field]) -> Option<u64> {
    let mut hasher = FxHasher::default();
    for field in fields {
        hash_value(value_of(*field, message)?, &mut hasher);
    }
    Some(hasher.finish())
}
