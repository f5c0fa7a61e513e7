//! Effects that wait until the facts behind them are durable, and space that can be released after that.

use std::collections::VecDeque;

use peeklock_journal::StoredBody;
use peeklock_types::CommitGroupNumber;

use crate::shard::housekeeping::Trim;
use crate::shard::outgoing::Effect;

#[derive(Default)]
pub(crate) struct HeldEffects {
    /// Effects of the round, and bodies that it has freed.
    effects: Vec<Effect>,
    freed: Vec<StoredBody>,
    held: VecDeque<Held>,
    /// Cleanups, each with the number of reads that must finish before it.
    cleanups: VecDeque<(u64, Cleanup)>,
    /// Bodies of removed messages that a peer still reads.
    lingering: Vec<StoredBody>,
}

/// Effects that wait for a commit group, and the space that can be released then.
pub(crate) struct Held {
    after: CommitGroupNumber,
    pub(crate) effects: Vec<Effect>,
    pub(crate) cleanup: Option<Cleanup>,
}

/// Space that can be released once certain reads are done.
pub(crate) enum Cleanup {
    Trim(Trim),
    Forget(Vec<StoredBody>),
}

impl HeldEffects {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn extend(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.effects.extend(effects);
    }

    pub(crate) fn free(&mut self, bodies: impl IntoIterator<Item = StoredBody>) {
        self.freed.extend(bodies);
    }

    /// Returns whether the round has effects that are not held yet.
    pub(crate) fn has_new(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Holds the effects of the round until the commit group `after` is durable.
    pub(crate) fn hold(&mut self, after: CommitGroupNumber) {
        if self.effects.is_empty() && self.freed.is_empty() {
            return;
        }
        let effects = std::mem::take(&mut self.effects);
        let freed = std::mem::take(&mut self.freed);
        let cleanup = (!freed.is_empty()).then_some(Cleanup::Forget(freed));
        self.held.push_back(Held { after, effects, cleanup });
    }

    pub(crate) fn hold_cleanup(&mut self, after: CommitGroupNumber, cleanup: Cleanup) {
        self.held.push_back(Held { after, effects: Vec::new(), cleanup: Some(cleanup) });
    }

    pub(crate) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the oldest held effects, if their commit group is durable.
    pub(crate) fn next_durable(&mut self, durable: CommitGroupNumber) -> Option<Held> {
        self.held.pop_front_if(|held| held.after <= durable)
    }

    /// Postpones a cleanup until `reads` reads have finished: they were started while the bodies were needed.
    pub(crate) fn clean_up_after(&mut self, reads: u64, cleanup: Cleanup) {
        self.cleanups.push_back((reads, cleanup));
    }

    pub(crate) fn next_cleanup(&mut self, finished_reads: u64) -> Option<Cleanup> {
        self.cleanups.pop_front_if(|(reads, _)| *reads <= finished_reads).map(|(_, cleanup)| cleanup)
    }

    pub(crate) fn linger(&mut self, bodies: Vec<StoredBody>) {
        self.lingering.extend(bodies);
    }

    pub(crate) fn take_lingering(&mut self) -> Vec<StoredBody> {
        std::mem::take(&mut self.lingering)
    }
}
