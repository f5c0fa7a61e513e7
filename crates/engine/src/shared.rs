//! Bodies that several messages share: the copies of one message in the subscriptions of a topic.
//!
//! A body in the log stays as long as any message needs its commit group, so it needs no count. A standalone
//! body is freed when its last message is gone.

use std::collections::BTreeMap;

use peeklock_types::wire::tags::stored_share;
use peeklock_types::wire::{put_fixed, put_number, put_sized};
use peeklock_types::{BodyRef, StoredBody};

use crate::number_map::NumberMap;
use crate::wire::{DecodeError, Decoder};

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// For each standalone body, the number of messages that share it, minus one.
    extra: BTreeMap<u64, u64>,
    /// The new place of a body that other messages may still have at the old place, and the reverse. The map need not
    /// survive a restart: without it the body is copied once more.
    copied: NumberMap<BodyRef, BodyRef>,
    copied_from: NumberMap<BodyRef, BodyRef>,
}

impl Shared {
    /// Adds `count` messages to those that share this body.
    pub(crate) fn add(&mut self, body: BodyRef, count: u64) {
        if body.is_standalone() && count > 0 {
            let extra = self.extra.entry(body.to_raw()).or_default();
            *extra = extra.saturating_add(count);
        }
    }

    /// Removes one message from each of these bodies. Keeps in the list the bodies that have no message left.
    pub(crate) fn release(&mut self, freed: &mut Vec<StoredBody>) {
        if self.extra.is_empty() && self.copied.is_empty() {
            return;
        }
        freed.retain(|body| {
            let raw = body.place.to_raw();
            if let Some(extra) = self.extra.get_mut(&raw) {
                *extra -= 1;
                if *extra == 0 {
                    self.extra.remove(&raw);
                }
                return false;
            }
            if let Some(from) = self.copied_from.remove(&body.place) {
                self.copied.remove(&from);
            }
            true
        });
    }

    pub(crate) fn is_shared(&self, body: BodyRef) -> bool {
        self.extra.contains_key(&body.to_raw())
    }

    /// Returns the place to which the body was copied for another of its messages.
    pub(crate) fn copy_of(&self, from: BodyRef) -> Option<BodyRef> {
        self.copied.get(&from).copied()
    }

    pub(crate) fn note_copy(&mut self, from: BodyRef, to: BodyRef) {
        self.copied.insert(from, to);
        self.copied_from.insert(to, from);
    }

    pub(crate) fn forget_copies(&mut self) {
        self.copied = NumberMap::default();
        self.copied_from = NumberMap::default();
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for (&body, &extra) in &self.extra {
            put_sized(out, |out| {
                put_fixed(body, out);
                put_number(extra, out);
            });
        }
    }

    pub(crate) fn restore(mut bytes: Decoder<'_>) -> Result<Shared, DecodeError> {
        let what = "a shared body";
        let mut extra = BTreeMap::new();
        while !bytes.is_empty() {
            let mut row = bytes.sized(what)?;
            let (body, count) = (row.fixed(what)?, row.number(what)?);
            row.end_row(stored_share::LIST)?;
            if !BodyRef::from_raw(body).is_standalone() || count == 0 || extra.insert(body, count).is_some() {
                return Err(DecodeError::Value(what));
            }
        }
        Ok(Shared { extra, ..Shared::default() })
    }
}
