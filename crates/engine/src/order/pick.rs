//! Which message is next.

use peeklock_types::{OrderPolicy, Rate, Timestamp};

use super::lane::Listed;
use super::{LaneSlot, Order, Rank};
use crate::queue::SessionSlot;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// This message, from this lane.
    Message(u64, LaneSlot),
    /// Something waits, but is held up.
    HeldUp,
    Nothing,
}

/// Which limits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    All,
    /// Nobody else waits.
    Hard,
}

impl Order {
    /// Where the lane stands now, after something about it has changed.
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

    /// The message that goes first now. `came` tells when a message came.
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

    /// The same whatever the rates and shares are: for what leaves the queue without being worked on.
    pub(crate) fn pick_any(&self, came: impl Fn(u64) -> Timestamp) -> Option<u64> {
        let ready = self.classes.iter().flat_map(|class| &class.listed).filter_map(|lanes| lanes.first());
        let limited = self.classes.iter().filter_map(|class| class.limited.first());
        let first = ready.map(|&(.., slot)| slot).chain(limited.map(|&(_, slot)| slot));
        let heads =
            first.filter_map(|slot| self.lane(slot)).filter_map(|lane| Some((lane.key.class, lane.head()?)));
        // What is not worked on uses up no share.
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
                // Classes are in order: no later one goes first.
                break;
            }
        }
        best.map(|(_, head, slot)| (head, slot))
    }

    /// The lane of the class from which the next message is to come.
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

    /// Whether tenants of this class may have one more message in flight.
    fn has_share(&self, rank: usize, shares: Shares) -> bool {
        let Some(tenants) = &self.settings.tenants else { return true };
        let Some(class) = tenants.classes.get(rank) else { return true };
        let Some(share) = class.max_share_milli else { return true };
        if !class.is_share_hard && shares == Shares::Hard {
            return true;
        }
        let all: u64 = self.tenant_classes.iter().map(|rank| rank.locked_count).sum();
        let own = self.tenant_classes.get(rank).map_or(0, |rank| rank.locked_count);
        // One message is never too many, or nothing would ever start.
        own == 0 || (own + 1) * 1000 <= (all + 1) * u64::from(share)
    }

    /// Nothing can be handed out: says so until when, and why.
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
        // Before the queue itself may go on, nothing can.
        let next = queue_next.or(next);
        self.blocked = Some(next.map(|at| at.max(now + std::time::Duration::from_millis(1))));
        Pick::HeldUp
    }

    /// A message of the lane was handed out.
    pub(crate) fn take(&mut self, now: Timestamp, slot: LaneSlot) {
        let tenant_rate = self.tenant_rate(slot);
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        lane.starts.take(now, tenant_rate);
        let place = usize::from(lane.key.class);
        let rate = self.settings.classes.get(place).and_then(|class| class.rate);
        self.classes[place].starts.take(now, rate);
        self.starts.take(now, self.settings.rate);
    }

    /// When a message of the lane may be handed out, if not now.
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

    /// The session's holder waits for a rate until then.
    pub(crate) fn hold_session_up(&mut self, session: SessionSlot, until: Timestamp) {
        let turn = *self.turns.entry(session).or_insert_with(|| {
            self.next_turn += 1;
            self.next_turn
        });
        self.held_up.insert((until, turn, session));
    }

    /// The session's holder got a message: it is behind those that still wait for one.
    pub(crate) fn end_turn(&mut self, session: SessionSlot) {
        self.turns.remove(&session);
    }

    /// The session that has waited longest in the lane.
    pub(crate) fn first_session(&self, slot: LaneSlot) -> Option<SessionSlot> {
        self.lane(slot)?.sessions.as_ref()?.first().map(|&(_, session)| session)
    }
}
