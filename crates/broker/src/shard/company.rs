//! Recognises a shard with one peer that sends one request at a time.

use crate::batch::PeerId;

/// The number of rounds after which a peer counts as the only one.
const ROUNDS_MIN: u32 = 8;

/// The last rounds of a shard in a row that had at most one request with an answer, all of the same peer.
#[derive(Default)]
pub(crate) struct Company {
    peer: Option<PeerId>,
    rounds: u32,
}

impl Company {
    /// Notes a round with batches of these peers, each with its number of answers.
    pub(crate) fn note(&mut self, mut batches: impl ExactSizeIterator<Item = (PeerId, usize)>) {
        let only = match (batches.len(), batches.next()) {
            (1, Some((peer, answer_count))) if answer_count <= 1 => Some(peer),
            _ => None,
        };
        self.rounds = if only.is_some() && only == self.peer { self.rounds.saturating_add(1) } else { 0 };
        self.peer = only;
    }

    /// Returns whether the shard works for one peer, which waits for its answer. No other peer waits for the thread of
    /// the shard then.
    pub(crate) fn is_one(&self) -> bool {
        self.rounds >= ROUNDS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rounds: &[&[(u64, usize)]]) -> bool {
        let mut company = Company::default();
        for round in rounds {
            company.note(round.iter().map(|(peer, answer_count)| (PeerId(*peer), *answer_count)));
        }
        company.is_one()
    }

    #[test]
    fn a_peer_is_alone_after_several_rounds_without_others() {
        let alone: &[(u64, usize)] = &[(7, 1)];
        assert!(!after(&[alone; 8]));
        assert!(after(&[alone; 9]));
    }

    #[test]
    fn another_peer_or_a_second_batch_or_request_ends_it() {
        let rounds =
            |last: &'static [(u64, usize)]| after(&[[&[(7, 1)][..]; 9].as_slice(), &[last]].concat());
        assert!(!rounds(&[(8, 1)]));
        assert!(!rounds(&[(7, 1), (7, 1)]));
        assert!(!rounds(&[(7, 1), (8, 1)]));
        assert!(!rounds(&[(7, 2)]));
        assert!(rounds(&[(7, 1)]));
        assert!(rounds(&[(7, 0)]));
    }
}
