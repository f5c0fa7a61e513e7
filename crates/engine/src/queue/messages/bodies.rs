//! The places of the bodies of a sub-queue's messages.

use peeklock_types::{BodyPlace, BodyRef, CommitGroupNumber, SequenceNumber, StoredBody};

use super::super::standalone;
use super::super::table::{Marks, MessageRow, Row};
use super::{Messages, Misfit};

impl Messages {
    #[inline]
    pub(super) fn note_body(&mut self, number: SequenceNumber, entry: &MessageRow) {
        match entry.body.place() {
            BodyPlace::InGroup { group, .. } if entry.is_stray() => {
                self.strays.insert((group, number.0));
            }
            BodyPlace::InGroup { .. } => self.log_from = self.log_from.min(number.0),
            BodyPlace::Standalone { .. } => {}
        }
    }

    /// Sets the place of a body that was made standalone. Returns the old body if it was standalone, too.
    pub(crate) fn move_body(
        &mut self,
        number: SequenceNumber,
        from: BodyRef,
        to: BodyRef,
    ) -> Result<Option<StoredBody>, Misfit> {
        let entry = *self.get(number).ok_or(Misfit::Missing)?;
        // Bodies are in the log in the order of sequence numbers, and `oldest_in_log` depends on it: no body moves back
        // into the log.
        if entry.body != from || !to.is_standalone() {
            return Err(Misfit::OtherBody);
        }
        if let Some(group) = from.group() {
            self.strays.remove(&(group, number.0));
            self.tally.standalone += 1;
        }
        self.change(number, |entry| {
            entry.body = to;
            entry.marks.set(Marks::STRAY, false);
        })?;
        Ok(from.is_standalone().then_some(StoredBody { place: from, size_bytes: entry.size_bytes }))
    }

    /// Replaces the body. Returns the old body if it was standalone.
    pub(crate) fn replace_body(
        &mut self,
        number: SequenceNumber,
        body: BodyRef,
        size_bytes: u32,
    ) -> Result<Option<StoredBody>, Misfit> {
        let old = *self.get(number).ok_or(Misfit::Missing)?;
        if let Some(group) = old.body.group() {
            self.strays.remove(&(group, number.0));
        }
        let mut new = old;
        (new.body, new.size_bytes) = (body, size_bytes);
        new.marks.set(Marks::STRAY, !body.is_standalone());
        self.tally.remove(&old);
        self.tally.add(&new);
        self.change(number, |entry| *entry = new)?;
        self.note_body(number, &new);
        Ok(standalone(&old))
    }

    /// Returns the oldest commit group with a body of this sub-queue. The search visits each moved message once.
    pub(crate) fn oldest_in_log(&mut self) -> Option<CommitGroupNumber> {
        let stray = self.strays.first().map(|&(group, _)| group);
        let in_order = self.first_in_log().map(|(_, group)| group);
        stray.into_iter().chain(in_order).min()
    }

    /// Returns the first message whose body is in the log and in order, and the commit group of the body.
    fn first_in_log(&mut self) -> Option<(u64, CommitGroupNumber)> {
        loop {
            let Some((number, entry)) = self.table.next_from(self.log_from) else {
                // There is nothing left to search again; a late insertion lowers the mark.
                self.log_from = u64::MAX;
                return None;
            };
            self.log_from = number;
            match entry.body.place() {
                BodyPlace::InGroup { group, .. } if !entry.is_stray() => return Some((number, group)),
                BodyPlace::InGroup { .. } | BodyPlace::Standalone { .. } => self.log_from = number + 1,
            }
        }
    }

    /// Returns messages with bodies in commit groups at or before `upto`.
    pub(crate) fn in_log_upto(
        &mut self,
        upto: CommitGroupNumber,
    ) -> impl Iterator<Item = (SequenceNumber, Row<'_>)> {
        let first = self.first_in_log().map_or(u64::MAX, |(number, _)| number);
        let strays = self.strays.iter().take_while(move |(group, _)| *group <= upto);
        let strays = strays.filter_map(|&(_, number)| Some((number, self.table.get(number)?)));
        let in_order = self.table.iter_from(first).filter(|(_, entry)| !entry.is_stray());
        let in_order = in_order.filter_map(move |(number, entry)| match entry.body.place() {
            BodyPlace::InGroup { group, .. } => Some((number, entry, group)),
            BodyPlace::Standalone { .. } => None,
        });
        let in_order = in_order.take_while(move |(.., group)| *group <= upto);
        strays
            .chain(in_order.map(|(number, entry, _)| (number, entry)))
            .map(|(n, entry)| (SequenceNumber(n), entry))
    }
}
