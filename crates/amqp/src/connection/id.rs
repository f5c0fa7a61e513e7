//! Keys for sessions, links and deliveries, and the arena that stores sessions and links.

use std::fmt;

/// Identifies a session of one connection. Stale ids (of a session that ended) are harmless: calls with them do
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Key);

/// Identifies a link of one connection. Stale ids (of a link that detached) are harmless: calls with them do nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(Key);

/// The delivery-id on the wire: counts up per session and direction, and wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryId(pub u32);

/// An arena index with the generation of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

pub(super) trait Id: Copy {
    fn from_key(key: Key) -> Self;
    fn key(self) -> Key;
}

macro_rules! id {
    ($name:ident, $letter:literal) => {
        impl Id for $name {
            fn from_key(key: Key) -> Self {
                Self(key)
            }

            fn key(self) -> Key {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}.{}"), self.0.index, self.0.generation)
            }
        }
    };
}

id!(SessionId, "session");
id!(LinkId, "link");

/// Values under generational keys. A key of a removed value never finds its successor.
#[derive(Debug)]
pub(super) struct Arena<I, T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    id: std::marker::PhantomData<I>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<I: Id, T> Arena<I, T> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), id: std::marker::PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, value: T) -> I {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.value = Some(value);
            return I::from_key(Key { index, generation: slot.generation });
        }
        let index = u32::try_from(self.slots.len()).expect("the configured maxima are far below 2^32");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        I::from_key(Key { index, generation: 0 })
    }

    pub(super) fn remove(&mut self, id: I) -> Option<T> {
        let key = id.key();
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(super) fn get(&self, id: I) -> Option<&T> {
        let key = id.key();
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let key = id.key();
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// Removes everything. Every key that was issued before is stale from now on.
    pub(super) fn clear(&mut self) {
        for (index, slot) in (0..).zip(&mut self.slots) {
            if slot.value.take().is_some() {
                slot.generation = slot.generation.wrapping_add(1);
                self.free.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_never_finds_the_next_owner_of_its_slot() {
        let mut arena: Arena<LinkId, &str> = Arena::new();
        let first = arena.insert("first");
        assert_eq!(arena.remove(first), Some("first"));
        let second = arena.insert("second");
        assert_eq!(arena.len(), 1);
        assert_eq!(arena.get(first), None);
        assert_eq!(arena.remove(first), None);
        assert_eq!(arena.get(second), Some(&"second"));
    }
}
