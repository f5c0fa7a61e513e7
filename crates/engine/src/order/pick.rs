//! Selects the next message.

use peeklock_types::{OrderPolicy, Rate, Timestamp};

use super::lane::Listed;
use super::{LaneSlot, Order, Rank};
use crate::queue::SessionSlot;

/// The result of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// This message, from this lane.
    Message(u64, LaneSlot),
    /// Messages wait, but a rate or share holds them up.
    HeldUp,
    Nothing,
}

/// The shares that are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    All,
    /// Only hard shares, because no other tenant has a message.
    Hard,
}

impl Order {
    /// Updates the position of a lane after a change.
    pub(super) fn list(&mut self, slot: LaneSlot) {
        let by_tag = self.charges();
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        let tag = if by_tag { lane.tag } else { 0 };
        let wanted = match (lane.head(), lane.listed) {
            (None, _) => None,
            (Some(_), Some(Listed::Limited(until))) => Some(Listed::Limited(until)),
            (Some(head), _) => Some(Listed::Ready(tag, head)),
        };
        if wanted == lane.listed {
            return;
        }
        let old = std::mem::replace(&mut lane.listed, wanted);
        let class = &mut self.classes[usize::from(lane.key.class)];
        let ready = &mut class.listed[usize::from(lane.key.tenant_class)];
        match old {
            Some(Listed::Ready(tag, head)) => {
                class.listed_count -= usize::from(ready.remove(&(tag, head, slot)));
            }
            Some(Listed::Limited(until)) => _ = class.limited.remove(&(until, slot)),
            None => {}
        }
        match wanted {
            Some(Listed::Ready(tag, head)) => {
                class.listed_count += usize::from(ready.insert((tag, head, slot)));
            }
            Some(Listed::Limited(until)) => _ = class.limited.insert((until, slot)),
            None => {}
        }
    }

    fn limit(&mut self, slot: LaneSlot, until: Option<Timestamp>) {
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        let class = &mut self.classes[usize::from(lane.key.class)];
        match (lane.listed, until) {
            (Some(Listed::Ready(tag, head)), Some(until)) => {
                let ready = &mut class.listed[usize::from(lane.key.tenant_class)];
                class.listed_count -= usize::from(ready.remove(&(tag, head, slot)));
                class.limited.insert((until, slot));
                lane.listed = Some(Listed::Limited(until));
            }
            (Some(Listed::Limited(old)), None) => {
                class.limited.remove(&(old, slot));
                lane.listed = None;
                self.list(slot);
            }
            _ => {}
        }
    }

    /// Returns the message that goes first now. `came` returns the time at which a message was enqueued.
    pub(crate) fn pick(&mut self, now: Timestamp, came: impl Fn(u64) -> Timestamp) -> Pick {
        if self.starts.ready_at(now, self.settings.rate).is_some() {
            return self.hold_up(now);
        }
        for shares in [Shares::All, Shares::Hard] {
            if let Some((number, slot)) = self.best(now, shares, &came) {
                return Pick::Message(number, slot);
            }
            if self.settings.tenants.is_none() {
                break;
            }
        }
        self.hold_up(now)
    }

    /// Like `pick`, regardless of rates and shares, for messages that leave the queue unprocessed.
    pub(crate) fn pick_any(&self, came: impl Fn(u64) -> Timestamp) -> Option<u64> {
        let ready = self.classes.iter().flat_map(|class| &class.listed).filter_map(|lanes| lanes.first());
        let limited = self.classes.iter().filter_map(|class| class.limited.first());
        let first = ready.map(|&(.., slot)| slot).chain(limited.map(|&(_, slot)| slot));
        let heads =
            first.filter_map(|slot| self.lane(slot)).filter_map(|lane| Some((lane.key.class, lane.head()?)));
        // A message that is not processed uses no share.
        let policy = match self.ranking.policy() {
            OrderPolicy::Weighted => OrderPolicy::Strict,
            policy => policy,
        };
        let rank =
            |&(class, head): &(u8, u64)| self.ranking.rank_under(policy, class.into(), head, || came(head));
        heads.min_by_key(rank).map(|(_, head)| head)
    }

    fn best(
        &mut self,
        now: Timestamp,
        shares: Shares,
        came: &impl Fn(u64) -> Timestamp,
    ) -> Option<(u64, LaneSlot)> {
        let mut best: Option<(Rank, u64, LaneSlot)> = None;
        for place in 0..self.classes.len() {
            let Some(slot) = self.first_of_class(now, place, shares) else { continue };
            let Some(head) = self.lane(slot).and_then(|lane| lane.head()) else { continue };
            let rank = self.ranking.rank(place, head, || came(head));
            if best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                best = Some((rank, head, slot));
            }
            if self.ranking.policy() == OrderPolicy::Strict {
                // Classes are in order: no later one can be first.
                break;
            }
        }
        best.map(|(_, head, slot)| (head, slot))
    }

    /// Returns the lane of the class that has the next message.
    fn first_of_class(&mut self, now: Timestamp, place: usize, shares: Shares) -> Option<LaneSlot> {
        while let Some(&(_, slot)) = self.classes[place].limited.first().filter(|(until, _)| *until <= now) {
            self.limit(slot, None);
        }
        let class = &self.classes[place];
        let rate = self.settings.classes.get(place).and_then(|class| class.rate);
        if class.listed_count == 0 || class.starts.ready_at(now, rate).is_some() {
            return None;
        }
        loop {
            let ranks = self.classes[place].listed.iter().enumerate();
            let open = ranks.filter(|(rank, _)| self.has_share(*rank, shares));
            let &(.., slot) = open.filter_map(|(_, lanes)| lanes.first()).min()?;
            match self.lane(slot)?.starts.ready_at(now, self.tenant_rate(slot)) {
                Some(until) => self.limit(slot, Some(until)),
                None => return Some(slot),
            }
        }
    }

    fn tenant_rate(&self, slot: LaneSlot) -> Option<Rate> {
        let tenants = self.settings.tenants.as_ref()?;
        tenants.classes.get(usize::from(self.lane(slot)?.key.tenant_class))?.rate
    }

    /// Returns whether tenants of this class may have one more message in flight.
    fn has_share(&self, rank: usize, shares: Shares) -> bool {
        let Some(tenants) = &self.settings.tenants else { return true };
        let Some(class) = tenants.classes.get(rank) else { return true };
        let Some(share) = class.max_share_milli else { return true };
        if !class.is_share_hard && shares == Shares::Hard {
            return true;
        }
        let all: u64 = self.tenant_classes.iter().map(|rank| rank.locked_count).sum();
        let own = self.tenant_classes.get(rank).map_or(0, |rank| rank.locked_count);
        // One message is always permitted, or nothing would ever start.
        own == 0 || (own + 1) * 1000 <= (all + 1) * u64::from(share)
    }

    /// Records that no message can be delivered, and until when.
    fn hold_up(&mut self, now: Timestamp) -> Pick {
        if self.classes.iter().all(|class| class.listed_count + class.limited.len() == 0) {
            return Pick::Nothing;
        }
        let queue_next = self.starts.ready_at(now, self.settings.rate);
        let mut next = None;
        for place in 0..self.classes.len() {
            let class = &self.classes[place];
            let rate = self.settings.classes.get(place).and_then(|class| class.rate);
            let lanes = class.limited.first().map(|&(until, _)| until);
            let ready = (class.listed_count > 0).then(|| class.starts.ready_at(now, rate)).flatten();
            let class_next = lanes.into_iter().chain(ready).min();
            next = next.into_iter().chain(class_next).min();
        }
        // The rate of the queue itself applies to all classes.
        let next = queue_next.or(next);
        self.blocked = Some(next.map(|at| at.max(now + std::time::Duration::from_millis(1))));
        Pick::HeldUp
    }

    /// Records the delivery of a message of the lane.
    pub(crate) fn take(&mut self, now: Timestamp, slot: LaneSlot) {
        let tenant_rate = self.tenant_rate(slot);
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        lane.starts.take(now, tenant_rate);
        let place = usize::from(lane.key.class);
        let rate = self.settings.classes.get(place).and_then(|class| class.rate);
        self.classes[place].starts.take(now, rate);
        self.starts.take(now, self.settings.rate);
    }

    /// Returns the time at which a message of the lane may be delivered, if not now.
    pub(crate) fn start_at(&self, now: Timestamp, slot: LaneSlot) -> Option<Timestamp> {
        let lane = self.lane(slot)?;
        let place = usize::from(lane.key.class);
        let rate = self.settings.classes.get(place).and_then(|class| class.rate);
        let all = [
            self.starts.ready_at(now, self.settings.rate),
            self.classes[place].starts.ready_at(now, rate),
            lane.starts.ready_at(now, self.tenant_rate(slot)),
        ];
        all.into_iter().flatten().max()
    }

    /// Makes the session's holder wait for a rate until a time.
    pub(crate) fn hold_session_up(&mut self, session: SessionSlot, until: Timestamp) {
        let turn = *self.turns.entry(session).or_insert_with(|| {
            self.next_turn += 1;
            self.next_turn
        });
        self.held_up.insert((until, turn, session));
    }

    /// Records that the session's holder got a message: the session goes behind those that still wait for one.
    pub(crate) fn end_turn(&mut self, session: SessionSlot) {
        self.turns.remove(&session);
    }

    /// Returns the session that has waited longest in the lane.
    pub(crate) fn first_session(&self, slot: LaneSlot) -> Option<SessionSlot> {
        self.lane(slot)?.sessions.as_ref()?.first().map(|&(_, session)| session)
    }
}
