//! Selects the next member of a queue group. Compares the heads of members as a queue compares those of its classes
//! ([`Ranking`]). Uses no link and no shard.

use peeklock_broker::engine::{Head, Rank, Ranking};
use peeklock_types::{OrderPolicy, QueueGroupSettings, Timestamp};

/// The limit on messages of one run, so that the urgencies are compared again.
const RUN_COUNT_MAX: u32 = 256;
/// The number of unused head reports after which members are not watched until there is credit again.
const UNUSED_WORDS_MAX: u32 = 64;

pub(crate) struct Arbiter {
    ranking: Ranking,
    members: Vec<Member>,
    unused_words: u32,
}

#[derive(Default)]
struct Member {
    is_present: bool,
    is_watched: bool,
    /// The serial of the last watch request: reports with other serials are outdated.
    serial: u32,
    /// The next message of the member, if it is known.
    head: Option<Option<Head>>,
    /// The member has delivered nothing although it has a head. It gets no run until its head or the locks that this
    /// link holds of it change.
    is_stalled: bool,
    run: Option<Run>,
}

struct Run {
    count: u32,
    head: Option<Head>,
}

/// A run to request from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) member: usize,
    pub(crate) count: u32,
    pub(crate) not_after: Option<Timestamp>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Runs or head reports are in flight.
    Wait,
    /// Request the heads of these members, with these serials.
    Watch(Vec<(usize, u32)>),
    Runs(Vec<Grant>),
    /// No member has a message.
    Nothing,
}

impl Arbiter {
    pub(crate) fn new(settings: &QueueGroupSettings) -> Self {
        let places = 0..settings.members.len();
        let sources = places.clone().map(|place| (settings.offset(place), settings.weight(place)));
        let ranking = Ranking::new(settings.policy, sources);
        Arbiter { ranking, members: places.map(|_| Member::default()).collect(), unused_words: 0 }
    }

    pub(crate) fn join(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.is_present = true;
        }
    }

    /// Removes a member together with its run.
    pub(crate) fn leave(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.forget_head();
            (member.is_present, member.is_stalled, member.run) = (false, false, None);
        }
    }

    /// Marks all heads as unknown, because they may be outdated.
    pub(crate) fn doubt(&mut self) {
        self.members.iter_mut().for_each(Member::forget_head);
    }

    /// Handles a head report of a member.
    pub(crate) fn hear(&mut self, member: usize, serial: u32, head: Option<Head>) {
        self.unused_words = self.unused_words.saturating_add(1);
        if let Some(member) = self.members.get_mut(member)
            && member.is_watched
            && member.serial == serial
        {
            member.head = Some(head);
            member.is_stalled = false;
        }
    }

    /// Permits runs again after a message of the member was settled.
    pub(crate) fn revive(&mut self, member: usize) {
        if let Some(member) = self.members.get_mut(member) {
            member.is_stalled = false;
        }
    }

    /// Ends a run after this many deliveries.
    pub(crate) fn end_run(&mut self, place: usize, used_count: u32) {
        let Some(member) = self.members.get_mut(place) else { return };
        let Some(run) = member.run.take() else { return };
        member.is_stalled = used_count == 0 && member.head == Some(run.head) && run.head.is_some();
        self.ranking.take_back(place, run.count.saturating_sub(used_count));
    }

    /// Returns the members to stop watching, because the peer has requested no message for a while.
    pub(crate) fn stop_watching(&mut self) -> Vec<usize> {
        if self.unused_words < UNUSED_WORDS_MAX {
            return Vec::new();
        }
        self.unused_words = 0;
        let watched = self.members.iter_mut().enumerate().filter(|(_, member)| member.is_watched);
        watched
            .map(|(place, member)| {
                member.forget_head();
                place
            })
            .collect()
    }

    /// Returns the next step for a link with this credit.
    pub(crate) fn turn(&mut self, credit: u32) -> Turn {
        if self.members.iter().any(|member| member.run.is_some()) {
            return Turn::Wait;
        }
        if credit == 0 {
            return Turn::Nothing;
        }
        let unheard = self.watch_unheard();
        if !unheard.is_empty() {
            return Turn::Watch(unheard);
        }
        if self.members.iter().any(|member| member.is_present && member.head.is_none()) {
            return Turn::Wait;
        }
        let grants = self.grants(credit.min(RUN_COUNT_MAX));
        if grants.is_empty() {
            return Turn::Nothing;
        }
        self.unused_words = 0;
        for grant in &grants {
            if let Some(member) = self.members.get_mut(grant.member) {
                member.run = Some(Run { count: grant.count, head: member.head.flatten() });
            }
        }
        Turn::Runs(grants)
    }

    fn watch_unheard(&mut self) -> Vec<(usize, u32)> {
        let unheard = self.members.iter_mut().enumerate();
        let unheard = unheard.filter(|(_, member)| member.is_present && !member.is_watched);
        unheard
            .map(|(place, member)| {
                member.is_watched = true;
                member.serial = member.serial.wrapping_add(1);
                (place, member.serial)
            })
            .collect()
    }

    /// Returns the members that could deliver a message now, with the rank of that message. Sequence numbers of
    /// different queues are not comparable, so the arrival time replaces them.
    fn candidates(&self) -> impl Iterator<Item = (usize, Rank)> {
        self.members.iter().enumerate().filter_map(|(place, member)| {
            let head = member.head.flatten().filter(|_| member.is_present && !member.is_stalled)?;
            Some((place, self.ranking.rank(place, head.urgency.as_millis(), || head.urgency)))
        })
    }

    fn grants(&mut self, credit: u32) -> Vec<Grant> {
        match self.ranking.policy() {
            OrderPolicy::Weighted => self.shares(credit),
            OrderPolicy::Fifo | OrderPolicy::Strict | OrderPolicy::Aged => {
                self.run_of_first(credit).into_iter().collect()
            }
        }
    }

    /// Returns a run from the first member, up to the point where the next member would be first.
    fn run_of_first(&self, credit: u32) -> Option<Grant> {
        let (member, _) = self.candidates().min_by_key(|(_, rank)| *rank)?;
        let others = self.candidates().filter(|(place, _)| *place != member);
        let next = others.map(|(_, rank)| rank).min();
        let not_after = next.and_then(|next| self.ranking.not_after(member, next));
        Some(Grant { member, count: credit, not_after })
    }

    /// Returns one run for each member whose turn comes before the credit is used up.
    fn shares(&mut self, credit: u32) -> Vec<Grant> {
        let places: Vec<usize> = self.candidates().map(|(place, _)| place).collect();
        let mut counts = vec![0; self.members.len()];
        // A member that was empty, or whose starts were returned, does not accumulate a share.
        places.iter().for_each(|place| self.ranking.activate(*place));
        for _ in 0..credit {
            let next = self.candidates().min_by_key(|(_, rank)| *rank);
            let Some((next, _)) = next else { break };
            self.ranking.start(next);
            if let Some(count) = counts.get_mut(next) {
                *count += 1;
            }
        }
        let granted = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        granted.map(|(member, count)| Grant { member, count, not_after: None }).collect()
    }
}

impl Member {
    fn forget_head(&mut self) {
        (self.is_watched, self.head) = (false, None);
    }
}

#[cfg(test)]
mod tests {
    use peeklock_types::{EntityName, SequenceNumber};

    use super::*;

    fn settings(policy: OrderPolicy) -> QueueGroupSettings {
        let members = ["high", "normal", "low"].map(|name| EntityName::parse(name).unwrap());
        QueueGroupSettings::new(policy, members)
    }

    fn arbiter(settings: &QueueGroupSettings) -> Arbiter {
        let mut arbiter = Arbiter::new(settings);
        (0..3).for_each(|member| arbiter.join(member));
        assert_eq!(arbiter.turn(1), Turn::Watch(vec![(0, 1), (1, 1), (2, 1)]));
        arbiter
    }

    fn head(at_s: u64) -> Option<Head> {
        Some(Head { sequence_number: SequenceNumber(at_s), urgency: Timestamp::from_millis(at_s * 1000) })
    }

    fn hear(arbiter: &mut Arbiter, heads: [Option<Head>; 3]) {
        for (member, head) in heads.into_iter().enumerate() {
            arbiter.hear(member, 1, head);
        }
    }

    fn runs(turn: Turn) -> Vec<(usize, u32)> {
        match turn {
            Turn::Runs(grants) => grants.iter().map(|grant| (grant.member, grant.count)).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_run_is_granted_before_all_heads_are_known() {
        let mut arbiter = arbiter(&settings(OrderPolicy::Strict));
        arbiter.hear(2, 1, head(1));
        assert_eq!(arbiter.turn(5), Turn::Wait);
        arbiter.hear(0, 1, None);
        arbiter.hear(1, 0, head(1));
        assert_eq!(arbiter.turn(5), Turn::Wait, "the report has an outdated serial");
        arbiter.hear(1, 1, None);
        assert_eq!(arbiter.turn(0), Turn::Nothing);
        assert_eq!(runs(arbiter.turn(5)), [(2, 5)]);
        assert_eq!(arbiter.turn(5), Turn::Wait);
    }

    #[test]
    fn strict_selects_the_first_member_with_a_message() {
        let mut arbiter = arbiter(&settings(OrderPolicy::Strict));
        hear(&mut arbiter, [None, head(9), head(1)]);
        assert_eq!(runs(arbiter.turn(5)), [(1, 5)]);
        arbiter.hear(0, 1, head(10));
        arbiter.hear(1, 1, head(11));
        arbiter.end_run(1, 5);
        assert_eq!(runs(arbiter.turn(1000)), [(0, RUN_COUNT_MAX)]);
        arbiter.leave(0);
        assert_eq!(runs(arbiter.turn(1)), [(1, 1)], "a run is limited to its member");
    }

    #[test]
    fn fifo_selects_the_oldest_up_to_the_next_oldest() {
        let mut arbiter = arbiter(&settings(OrderPolicy::Fifo));
        hear(&mut arbiter, [head(9), head(3), head(5)]);
        let grant = Grant { member: 1, count: 4, not_after: Some(Timestamp::from_millis(5000)) };
        assert_eq!(arbiter.turn(4), Turn::Runs(vec![grant]));
        arbiter.hear(1, 1, None);
        arbiter.end_run(1, 1);
        arbiter.hear(2, 1, None);
        let grant = Grant { member: 0, count: 4, not_after: None };
        assert_eq!(arbiter.turn(4), Turn::Runs(vec![grant]));
    }

    #[test]
    fn aged_selects_an_old_message_before_an_urgent_one() {
        let mut arbiter = arbiter(&settings(OrderPolicy::Aged));
        // Offsets 0, 30 and 300 s.
        hear(&mut arbiter, [head(1000), head(980), head(690)]);
        let until = |s: u64| Some(Timestamp::from_millis(s * 1000));
        let grant = Grant { member: 2, count: 4, not_after: until(700) };
        assert_eq!(arbiter.turn(4), Turn::Runs(vec![grant]));
        arbiter.hear(2, 1, head(701));
        arbiter.end_run(2, 1);
        let grant = Grant { member: 0, count: 4, not_after: until(1001) };
        assert_eq!(arbiter.turn(4), Turn::Runs(vec![grant]));
    }

    #[test]
    fn weighted_members_share_and_regain_unused_starts() {
        let mut settings = settings(OrderPolicy::Weighted);
        for (member, weight) in settings.members.iter_mut().zip([4, 2, 1]) {
            member.weight = Some(weight);
        }
        let mut arbiter = arbiter(&settings);
        hear(&mut arbiter, [head(1), head(1), head(1)]);
        assert_eq!(runs(arbiter.turn(14)), [(0, 8), (1, 4), (2, 2)]);
        for (member, used) in [(0, 8), (1, 4), (2, 0)] {
            arbiter.hear(member, 1, head(2));
            arbiter.end_run(member, used);
        }
        let granted = runs(arbiter.turn(2));
        assert_eq!(granted, [(1, 1), (2, 1)], "unused starts are not charged and do not accumulate");
        granted.into_iter().for_each(|(member, count)| arbiter.end_run(member, count));
        let mut counts = [0; 3];
        for _ in 0..70 {
            let granted = runs(arbiter.turn(1));
            for (member, count) in granted {
                counts[member] += count;
                arbiter.end_run(member, count);
            }
        }
        for (count, share) in counts.into_iter().zip([40_u32, 20, 10]) {
            assert!(count.abs_diff(share) <= 1, "single messages have the same shares: {counts:?}");
        }
    }

    #[test]
    fn a_member_that_delivers_nothing_is_not_granted_a_run_repeatedly() {
        let mut arbiter = arbiter(&settings(OrderPolicy::Strict));
        hear(&mut arbiter, [head(1), head(2), None]);
        assert_eq!(runs(arbiter.turn(1)), [(0, 1)]);
        arbiter.end_run(0, 0);
        assert_eq!(runs(arbiter.turn(1)), [(1, 1)]);
        arbiter.end_run(1, 0);
        assert_eq!(arbiter.turn(1), Turn::Nothing);
        arbiter.revive(1);
        assert_eq!(runs(arbiter.turn(1)), [(1, 1)]);
        arbiter.end_run(1, 0);
        arbiter.hear(0, 1, head(3));
        assert_eq!(runs(arbiter.turn(1)), [(0, 1)]);
    }

    #[test]
    fn members_are_not_watched_without_credit() {
        let mut arbiter = arbiter(&settings(OrderPolicy::Strict));
        hear(&mut arbiter, [None, None, None]);
        assert_eq!(arbiter.stop_watching(), [0; 0]);
        for n in 0..UNUSED_WORDS_MAX.into() {
            arbiter.hear(0, 1, head(n));
        }
        assert_eq!(arbiter.stop_watching(), [0, 1, 2]);
        arbiter.hear(0, 1, head(1));
        assert_eq!(arbiter.turn(1), Turn::Watch(vec![(0, 2), (1, 2), (2, 2)]));
        arbiter.doubt();
        assert_eq!(arbiter.turn(1), Turn::Watch(vec![(0, 3), (1, 3), (2, 3)]));
    }
}
