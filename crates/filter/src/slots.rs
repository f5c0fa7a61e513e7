//! The user properties that the rules of a set use, and the values of a message for them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::fold::fold_name;
use crate::sql::Property;
use crate::system::SystemProperty;
use crate::value::ValueRef;
use crate::view::{Entries, ViewProperty};
use crate::wire::DecodeError;

/// Assigns a slot to every user property in the rules, so that one pass over a view finds all values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    by_name: FxHashMap<Arc<str>, usize>,
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Slot {
    folded: Arc<str>,
    use_count: usize,
}

impl Slots {
    /// Returns the slot of a property. The slot is freed when it was released as often as it was taken.
    pub(crate) fn take(&mut self, name: &str) -> usize {
        let folded = fold_name(name);
        if let Some(&slot) = self.by_name.get(&*folded) {
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.use_count += 1;
            }
            return slot;
        }
        let folded: Arc<str> = folded.into();
        let new = Slot { folded: Arc::clone(&folded), use_count: 1 };
        let slot = match self.free.pop() {
            Some(at) => {
                if let Some(slot) = self.slots.get_mut(at) {
                    *slot = new;
                }
                at
            }
            None => {
                self.slots.push(new);
                self.slots.len() - 1
            }
        };
        self.by_name.insert(folded, slot);
        slot
    }

    pub(crate) fn release(&mut self, at: usize) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        slot.use_count = slot.use_count.saturating_sub(1);
        if slot.use_count == 0 {
            self.by_name.remove(&slot.folded);
            self.free.push(at);
        }
    }

    pub(crate) fn take_property(&mut self, property: &mut Property) {
        if let Property::User { name, slot } = property {
            *slot = self.take(name);
        }
    }

    pub(crate) fn release_property(&mut self, property: &Property) {
        if let Property::User { slot, .. } = property {
            self.release(*slot);
        }
    }

    #[cfg(test)]
    pub(crate) fn used_count(&self) -> usize {
        self.by_name.len()
    }

    /// Reads a view. If a property occurs twice, the first one counts.
    pub(crate) fn read<'v>(&self, view: &'v [u8]) -> Result<Message<'v>, DecodeError> {
        let mut message = Message { view, user: vec![None; self.slots.len()], ..Message::empty() };
        for entry in Entries::of(view) {
            match entry? {
                ViewProperty::System(property, value) => {
                    if let Some(place) = message.system.get_mut(usize::from(property.code()))
                        && place.is_null()
                    {
                        *place = value;
                    }
                }
                ViewProperty::User(name, value) => {
                    if let Some(&slot) = self.by_name.get(&*fold_name(name))
                        && let Some(place @ None) = message.user.get_mut(slot)
                    {
                        *place = Some((name, value));
                    }
                }
            }
        }
        Ok(message)
    }
}

/// The properties of one message that the rules use.
#[derive(Clone, Debug)]
pub(crate) struct Message<'v> {
    view: &'v [u8],
    system: [ValueRef<'v>; SystemProperty::COUNT],
    /// By slot: the name in the spelling of the sender, and the value.
    user: Vec<Option<(&'v str, ValueRef<'v>)>>,
}

impl<'v> Message<'v> {
    /// Returns a message without properties.
    pub(crate) fn empty() -> Self {
        Message { view: &[], system: [const { ValueRef::Null }; SystemProperty::COUNT], user: Vec::new() }
    }

    /// Returns a system property, or null if it is not set.
    pub(crate) fn system(&self, property: SystemProperty) -> &ValueRef<'v> {
        self.system.get(usize::from(property.code())).unwrap_or(&ValueRef::Null)
    }

    pub(crate) fn user(&self, slot: usize) -> Option<(&'v str, &ValueRef<'v>)> {
        self.user.get(slot).and_then(Option::as_ref).map(|(name, value)| (*name, value))
    }

    /// Finds a property whose name is computed by the rule.
    pub(crate) fn search(&self, name: &str) -> Option<ValueRef<'v>> {
        let folded = fold_name(name);
        Entries::of(self.view).map_while(Result::ok).find_map(|entry| match entry {
            ViewProperty::User(found, value) if fold_name(found) == folded => Some(value),
            _ => None,
        })
    }

    pub(crate) fn view_size_bytes(&self) -> usize {
        self.view.len()
    }
}
