//! Decides which of several sources of messages goes first: the classes of a queue, or the members of a queue group.
//!
//! A source is compared by its head, the message that it would deliver next. The policy gives each head a [`Rank`]; the
//! smallest rank goes first.
//!
//! Sources that share by weight use start-time fair queueing. Each has a *tag*, the virtual time at which its next
//! message starts. A start adds the cost of a message, divided by the weight. A source that was idle starts at the
//! virtual time of the others, so idleness earns nothing.

use std::time::Duration;

use peeklock_types::{OrderPolicy, Timestamp};

/// The cost of one message of a source of weight 1. A multiple of all small weights, so that the division leaves no
/// remainder.
const COST: u64 = 720_720 << 20;
/// The limit at which tags restart.
const TAG_MAX: u64 = 1 << 62;

/// Compares the heads of sources. The most urgent source has place 0.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    policy: OrderPolicy,
    pub(super) sources: Vec<Source>,
    /// The virtual time of sources that share by weight.
    pub(super) virtual_time: u64,
}

/// A class of a queue, or a member of a queue group.
#[derive(Clone, Debug)]
pub(super) struct Source {
    offset: Duration,
    weight: u32,
    /// The virtual time at which the next message of the source starts.
    pub(super) tag: u64,
}

/// The position of a head among the heads of all sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u64, u64);

impl Ranking {
    /// Creates a ranking from the offset and the weight of each source, the most urgent first.
    pub fn new(policy: OrderPolicy, sources: impl IntoIterator<Item = (Duration, u32)>) -> Self {
        let source = |(offset, weight): (Duration, u32)| Source { offset, weight: weight.max(1), tag: 0 };
        Ranking { policy, sources: sources.into_iter().map(source).collect(), virtual_time: 0 }
    }

    pub fn policy(&self) -> OrderPolicy {
        self.policy
    }

    /// Ranks the head of a source. `number` is its position in the order of arrival.
    #[inline]
    pub fn rank(&self, place: usize, number: u64, arrived_at: impl FnOnce() -> Timestamp) -> Rank {
        self.rank_under(self.policy, place, number, arrived_at)
    }

    /// Ranks the head of a source by another policy.
    pub(super) fn rank_under(
        &self,
        policy: OrderPolicy,
        place: usize,
        number: u64,
        arrived_at: impl FnOnce() -> Timestamp,
    ) -> Rank {
        match policy {
            OrderPolicy::Fifo => Rank(number, 0),
            OrderPolicy::Strict => Rank(place as u64, number),
            OrderPolicy::Aged => Rank((arrived_at() + self.offset(place)).as_millis(), number),
            // Among sources with the same tag the lighter one goes first: it waits longer for its next turn.
            OrderPolicy::Weighted => {
                let source = self.sources.get(place);
                source.map_or(Rank(u64::MAX, u64::MAX), |source| Rank(source.tag, source.weight.into()))
            }
        }
    }

    /// Returns the offset that is added to the arrival of the source's messages.
    pub fn offset(&self, place: usize) -> Duration {
        let source = self.sources.get(place).filter(|_| self.policy == OrderPolicy::Aged);
        source.map_or(Duration::ZERO, |source| source.offset)
    }

    /// Returns the latest arrival with which a message of the source goes before another source's head, where arrival
    /// decides. The number of that head must be its time of arrival in milliseconds.
    pub fn not_after(&self, place: usize, other: Rank) -> Option<Timestamp> {
        match self.policy {
            OrderPolicy::Fifo | OrderPolicy::Aged => {
                Some(Timestamp::from_millis(other.0) - self.offset(place))
            }
            OrderPolicy::Strict | OrderPolicy::Weighted => None,
        }
    }

    /// Moves the tag of an idle source to the virtual time. The caller calls it before a message begins to wait at a
    /// source without messages.
    pub fn activate(&mut self, place: usize) {
        if let Some(source) = self.sources.get_mut(place) {
            source.tag = source.tag.max(self.virtual_time);
        }
    }

    /// Charges the source for a delivery.
    pub fn start(&mut self, place: usize) {
        let Some(source) = self.sources.get_mut(place).filter(|_| self.policy == OrderPolicy::Weighted)
        else {
            return;
        };
        self.virtual_time = self.virtual_time.max(source.tag);
        source.tag += source.cost();
        if source.tag > TAG_MAX {
            let base = std::mem::take(&mut self.virtual_time);
            self.sources.iter_mut().for_each(|source| source.tag = source.tag.saturating_sub(base));
        }
    }

    /// Undoes starts without a delivery.
    pub fn take_back(&mut self, place: usize, count: u32) {
        if let Some(source) = self.sources.get_mut(place).filter(|_| self.policy == OrderPolicy::Weighted) {
            source.tag = source.tag.saturating_sub(source.cost().saturating_mul(count.into()));
        }
    }

    /// Takes over the tags of the sources of an earlier ranking, unless its policy was different.
    pub(super) fn carry_over(&mut self, old: &Ranking, old_place: impl Fn(usize) -> Option<usize>) {
        if self.policy != old.policy {
            return;
        }
        self.virtual_time = old.virtual_time;
        for (place, source) in self.sources.iter_mut().enumerate() {
            if let Some(old) = old_place(place).and_then(|place| old.sources.get(place)) {
                source.tag = old.tag;
            }
        }
    }
}

impl Source {
    fn cost(&self) -> u64 {
        COST.div_ceil(self.weight.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn ranking(policy: OrderPolicy) -> Ranking {
        Ranking::new(policy, [(0, 4), (30, 2), (300, 1)].map(|(s, weight)| (Duration::from_secs(s), weight)))
    }

    /// Returns the place whose head goes first, with heads that arrived at these seconds.
    fn first(ranking: &Ranking, heads: [u64; 3]) -> usize {
        let rank = |place: &usize| ranking.rank(*place, heads[*place] * 1000, || at(heads[*place]));
        (0..3).min_by_key(rank).unwrap()
    }

    #[test]
    fn each_policy_compares_heads_in_its_own_way() {
        let heads = [1000, 980, 690];
        assert_eq!(first(&ranking(OrderPolicy::Strict), heads), 0);
        assert_eq!(first(&ranking(OrderPolicy::Fifo), heads), 2);
        assert_eq!(first(&ranking(OrderPolicy::Aged), heads), 2, "990 is before 1000 and 1010");
        assert_eq!(first(&ranking(OrderPolicy::Aged), [1000, 980, 701]), 0);
        assert_eq!(
            first(&ranking(OrderPolicy::Weighted), heads),
            2,
            "the lightest source goes first among those with the same tag"
        );
    }

    #[test]
    fn a_run_ends_where_another_source_goes_first() {
        let aged = ranking(OrderPolicy::Aged);
        let other = aged.rank(0, 1_000_000, || at(1000));
        assert_eq!(aged.not_after(2, other), Some(at(700)));
        let fifo = ranking(OrderPolicy::Fifo);
        assert_eq!(fifo.not_after(2, fifo.rank(0, 1_000_000, || at(1000))), Some(at(1000)));
        let strict = ranking(OrderPolicy::Strict);
        assert_eq!(strict.not_after(0, strict.rank(1, 1_000_000, || at(1000))), None);
    }

    #[test]
    fn weights_hold_when_tags_restart_and_starts_can_be_undone() {
        let mut ranking = ranking(OrderPolicy::Weighted);
        ranking.sources.iter_mut().for_each(|source| source.tag = TAG_MAX - COST);
        ranking.virtual_time = TAG_MAX - COST;
        let mut counts = [0; 3];
        for _ in 0..70 {
            let place = first(&ranking, [0; 3]);
            ranking.start(place);
            counts[place] += 1;
        }
        assert_eq!(counts, [40, 20, 10]);
        assert!(ranking.virtual_time < TAG_MAX / 2);
        let tag = ranking.sources[1].tag;
        (0..3).for_each(|_| ranking.start(1));
        ranking.take_back(1, 3);
        assert_eq!(ranking.sources[1].tag, tag);
    }
}
