//! The holders of sessions, and how long each certainly held one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{History, Hold, ms};
use crate::log::Event;

impl History<'_> {
    pub(super) fn collect_holds(&mut self) {
        let mut ends: BTreeMap<u32, (u32, i64)> = BTreeMap::new();
        for entry in self.entries {
            let at_ms = ms(entry.at_ms);
            match &entry.event {
                Event::Holding { hold, queue, session, until_ms, run, connection } => {
                    let Some(found) = self.run(*run) else { continue };
                    let accepted_ms = found.world_of(ms(*until_ms) - self.lock_ms(*queue));
                    let lock_ms = self.lock_ms(*queue);
                    let lasts_to = self.over_at(ms(*until_ms), accepted_ms, lock_ms).min(found.stopping_ms);
                    ends.insert(*hold, (*connection, found.stopping_ms));
                    let (queue, session, party) = (*queue, *session, Arc::clone(&entry.party));
                    self.holds
                        .insert(*hold, Hold { queue, session, party, accepted_ms, certain_end_ms: lasts_to });
                }
                Event::HoldRenewed { hold, until_ms } => {
                    let lock_ms = self.holds.get(hold).map_or(0, |hold| self.lock_ms(hold.queue));
                    let over = self.over_at(ms(*until_ms), at_ms, lock_ms);
                    let stopping = ends.get(hold).map_or(0, |(_, stopping)| *stopping);
                    if let Some(hold) = self.holds.get_mut(hold) {
                        hold.certain_end_ms = over.min(stopping);
                    }
                }
                Event::HoldEnding { hold } => self.end_holds(at_ms, |number, _| number == *hold, &mut ends),
                Event::Broken { connection } => {
                    self.end_holds(at_ms, |_, of| of == *connection, &mut ends);
                }
                _ => {}
            }
        }
    }

    fn end_holds(
        &mut self,
        at_ms: i64,
        is_meant: impl Fn(u32, u32) -> bool,
        ends: &mut BTreeMap<u32, (u32, i64)>,
    ) {
        for (number, (connection, stopping)) in ends.iter_mut() {
            if is_meant(*number, *connection)
                && let Some(hold) = self.holds.get_mut(number)
            {
                hold.certain_end_ms = hold.certain_end_ms.min(at_ms);
                *stopping = (*stopping).min(at_ms);
            }
        }
    }
}
