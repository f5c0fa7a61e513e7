//! The order in which a queue delivers its messages.
//!
//! Messages wait in *lanes*, one for each class and tenant, and only the heads of lanes are compared: the cost of a
//! delivery does not depend on the backlog. The policy decides which class goes first ([`ranking`]); inside a class,
//! tenants share by start-time fair queueing ([`fair`]).
//!
//! Lanes, tags and estimates follow from facts alone, so a replay gives the same order. Rates, meters and the number of
//! messages that each receiver holds are kept only in memory.

mod attain;
mod bucket;
mod bytes;
mod classify;
mod explain;
mod fair;
mod lane;
mod lanes;
mod pick;
mod ranking;
mod stats;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use peeklock_types::{ClassName, OrderSettings, Timestamp};

use self::bucket::Bucket;
pub(crate) use self::classify::Classifier;
pub(crate) use self::explain::Candidate;
use self::fair::Work;
use self::lane::Lane;
pub use self::lane::LaneKey;
pub(crate) use self::lane::LaneSlot;
pub(crate) use self::pick::Pick;
pub use self::ranking::{Rank, Ranking};
use self::stats::{Attainment, Stats};
pub use self::stats::{HISTOGRAM_BOUNDS_MS, Histogram};
pub use self::view::{
    ClassView, ExplainedMessage, OrderView, TENANTS_SHOWN_MAX, TargetView, TenantView, Window,
};
use crate::error::Error;
use crate::message::ReceiverId;
use crate::number_map::NumberMap;
use crate::queue::{SessionSlot, Turn};

/// The lanes of one queue, and the state that decides which message is next.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) settings: OrderSettings,
    classifier: Classifier,
    class_names: Vec<ClassName>,
    rank_names: Vec<ClassName>,
    /// The classes in the order of the settings. There is at least one.
    classes: Vec<Class>,
    tenant_classes: Vec<TenantRank>,
    lanes: Vec<Option<Lane>>,
    free: BTreeSet<u16>,
    by_key: BTreeMap<LaneKey, LaneSlot>,
    /// The number of lanes without messages.
    empty_count: usize,
    /// The number of lanes at which idle lanes are removed.
    sweep_at: usize,
    /// Compares the heads of classes.
    ranking: Ranking,
    /// The estimated processing time for tenants without a measurement.
    estimate_ms: u32,
    /// Messages in processing, by sequence number.
    works: NumberMap<u64, Work>,
    has_sessions: bool,
    // All fields below are kept only in memory and follow from no fact.
    /// The used rates of tenants whose lanes were removed: a short absence does not reset a limit.
    rested: BTreeMap<LaneKey, Limits>,
    starts: Bucket,
    sends: Bucket,
    /// Rates permit no delivery before this time, or, if there is no time, before a change.
    blocked: Option<Option<Timestamp>>,
    /// Sessions whose holder waits for a rate.
    held_up: BTreeSet<(Timestamp, u64, SessionSlot)>,
    /// The turn number since which each of these sessions waits: a session that was served goes behind those that were
    /// not.
    turns: BTreeMap<SessionSlot, u64>,
    next_turn: u64,
    /// Receivers that hold one message less than before, and whether that message was returned unsettled. A receiver is
    /// listed once for each message.
    pub(crate) freed: Vec<(ReceiverId, bool)>,
    misfit_count: u64,
    crowded_count: u64,
    throttled_count: u64,
}

/// The used rates of starts and of sends of a lane.
type Limits = (Bucket, Bucket);

/// One class of messages.
#[derive(Debug, Default)]
struct Class {
    waiting_count: u64,
    locked_count: u64,
    /// Lanes with available messages for each tenant class, sorted by tag and head.
    listed: Vec<BTreeSet<(u64, u64, LaneSlot)>>,
    listed_count: usize,
    /// Lanes over their rate, by the time at which they may continue.
    limited: BTreeSet<(Timestamp, LaneSlot)>,
    /// The virtual time of the tenants of the class.
    virtual_time: u64,
    starts: Bucket,
    sends: Bucket,
    stats: Stats,
    attainment: Attainment,
}

/// One class of tenants.
#[derive(Debug, Default)]
struct TenantRank {
    waiting_count: u64,
    locked_count: u64,
    stats: Stats,
}

const SWEEP_MIN: usize = 64;
const ESTIMATE_MS: u32 = 100;

impl Order {
    /// Creates the order of a queue with these settings, which were checked.
    pub(crate) fn new(settings: OrderSettings, has_sessions: bool) -> Result<Order, Error> {
        let classifier = Classifier::new(&settings)?;
        let mut order = Order {
            settings: OrderSettings::default(),
            classifier,
            class_names: Vec::new(),
            rank_names: Vec::new(),
            classes: Vec::new(),
            tenant_classes: Vec::new(),
            lanes: Vec::new(),
            free: BTreeSet::new(),
            by_key: BTreeMap::new(),
            empty_count: 0,
            sweep_at: SWEEP_MIN,
            ranking: Ranking::default(),
            estimate_ms: ESTIMATE_MS,
            works: NumberMap::default(),
            has_sessions,
            rested: BTreeMap::new(),
            starts: Bucket::default(),
            sends: Bucket::default(),
            blocked: None,
            held_up: BTreeSet::new(),
            turns: BTreeMap::new(),
            next_turn: 0,
            freed: Vec::new(),
            misfit_count: 0,
            crowded_count: 0,
            throttled_count: 0,
        };
        order.take_on(settings);
        Ok(order)
    }

    /// Applies new settings to all waiting messages. Messages of a removed class or tenant class move to the default
    /// one.
    pub(crate) fn change(&mut self, settings: OrderSettings) -> Result<(), Error> {
        self.classifier = Classifier::new(&settings)?;
        self.take_on(settings);
        Ok(())
    }

    fn take_on(&mut self, settings: OrderSettings) {
        let class_names = names(settings.classes.iter().map(|class| &class.name));
        let tenants = settings.tenants.iter().flat_map(|tenants| &tenants.classes);
        let tenant_names = names(tenants.map(|class| &class.name));
        let old_classes = std::mem::replace(&mut self.class_names, class_names.clone());
        let old_tenants = std::mem::replace(&mut self.rank_names, tenant_names.clone());
        let place = |names: &[ClassName], old: &[ClassName], place: u8, default: usize| {
            let name = old.get(usize::from(place));
            let found = name.and_then(|name| names.iter().position(|other| other == name));
            u8::try_from(found.unwrap_or(default)).unwrap_or_default()
        };
        let default_class = settings.default_class_index();
        let default_tenant = settings.tenants.as_ref().map_or(0, |tenants| tenants.default_class_index());
        let mut classes: Vec<Class> = class_names.iter().map(|_| Class::default()).collect();
        for class in &mut classes {
            class.listed = tenant_names.iter().map(|_| BTreeSet::new()).collect();
        }
        let mut ranks: Vec<TenantRank> = tenant_names.iter().map(|_| TenantRank::default()).collect();
        let old_times: Vec<_> = self.classes.iter().map(|class| class.virtual_time).collect();
        let mut had_turns = vec![false; classes.len()];
        // Measurements continue under the same class name.
        for (old_place, old) in std::mem::take(&mut self.classes).into_iter().enumerate() {
            let name = old_classes.get(old_place);
            if let Some(found) = class_names.iter().position(|other| Some(other) == name) {
                had_turns[found] = old.waiting_count > 0 && !self.settings.may_hold_class(old_place);
                let class = &mut classes[found];
                (class.stats, class.starts, class.sends) = (old.stats, old.starts, old.sends);
                class.virtual_time = old.virtual_time;
                class.attainment = old.attainment;
            }
        }
        for (old, name) in std::mem::take(&mut self.tenant_classes).into_iter().zip(&old_tenants) {
            if let Some(found) = tenant_names.iter().position(|other| other == name) {
                ranks[found].stats = old.stats;
            }
        }
        let sources = (0..classes.len()).map(|place| (settings.offset(place), settings.weight(place)));
        let mut ranking = Ranking::new(settings.policy, sources);
        let old_place = |place: usize| {
            let name = class_names.get(place);
            old_classes.iter().position(|old| Some(old) == name)
        };
        ranking.carry_over(&self.ranking, old_place);
        self.ranking = ranking;
        (self.classes, self.tenant_classes) = (classes, ranks);
        let old_settings = std::mem::replace(&mut self.settings, settings);
        self.by_key.clear();
        self.rested.clear();
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else { continue };
            let old_time = old_times.get(usize::from(lane.key.class)).copied().unwrap_or_default();
            let is_moved =
                !class_names.iter().any(|name| old_classes.get(usize::from(lane.key.class)) == Some(name));
            lane.key.class = place(&class_names, &old_classes, lane.key.class, default_class);
            if is_moved {
                // Each class has its own virtual time: a lane from another class is as far ahead here as it was there.
                let time = self.classes[usize::from(lane.key.class)].virtual_time;
                lane.tag = time.saturating_add(lane.tag.saturating_sub(old_time));
            }
            let class = &mut self.classes[usize::from(lane.key.class)];
            if old_settings.may_hold_tenants(lane.key.tenant_class.into()) {
                lane.tag = lane.tag.max(class.virtual_time);
            }
            lane.key.tenant_class = place(&tenant_names, &old_tenants, lane.key.tenant_class, default_tenant);
            lane.listed = None;
            let rank = &mut self.tenant_classes[usize::from(lane.key.tenant_class)];
            class.waiting_count += lane.waiting_count;
            class.locked_count += lane.locked_count;
            rank.waiting_count += lane.waiting_count;
            rank.locked_count += lane.locked_count;
            let Some(slot) = LaneSlot::of(index) else { continue };
            // Two lanes may now have the same key; new messages go to the first of them.
            self.by_key.entry(lane.key.clone()).or_insert(slot);
            self.list(slot);
        }
        // A class that had no messages or was held back by a limit starts at the current virtual time, so it gains
        // nothing when it inherits a backlog or the limit ends.
        for (place, had_turns) in had_turns.into_iter().enumerate() {
            if !had_turns {
                self.ranking.activate(place);
            }
        }
        self.blocked = None;
    }

    pub(crate) fn class_name(&self, class: usize) -> Option<ClassName> {
        self.class_names.get(class).cloned()
    }

    /// Returns the class of the messages of a lane.
    pub(crate) fn class_of(&self, slot: LaneSlot) -> Option<ClassName> {
        self.class_name(self.lane(slot)?.key.class.into())
    }

    /// Returns the offset that is added to the enqueueing time of the lane's messages, if the order is by age.
    pub(crate) fn offset_of(&self, slot: LaneSlot) -> Duration {
        self.lane(slot).map_or(Duration::ZERO, |lane| self.ranking.offset(lane.key.class.into()))
    }

    pub(crate) fn tenant_class_of(&self, slot: LaneSlot) -> Option<ClassName> {
        let names = self.settings.tenants.as_ref().map(|_| &self.rank_names)?;
        names.get(usize::from(self.lane(slot)?.key.tenant_class)).cloned()
    }

    pub(crate) fn tenant_of(&self, slot: LaneSlot) -> Option<Arc<str>> {
        self.lane(slot)?.key.tenant.clone()
    }

    pub(crate) fn lane(&self, slot: LaneSlot) -> Option<&Lane> {
        self.lanes.get(slot.index()).and_then(Option::as_ref)
    }

    /// Returns the lane of messages without a classification.
    pub(crate) fn default_key(&self) -> LaneKey {
        let tenants = self.settings.tenants.as_ref();
        let small = |place: usize| u8::try_from(place).unwrap_or_default();
        LaneKey {
            class: small(self.settings.default_class_index()),
            tenant_class: small(tenants.map_or(0, |tenants| tenants.default_class_index())),
            tenant: None,
        }
    }

    /// Determines the lane of a message by its properties. Also returns whether it specified an unknown class.
    pub(crate) fn classify(&self, view: &[u8], seed: u64) -> (LaneKey, bool) {
        let found = self.classifier.classify(&self.settings, view, seed);
        let key = LaneKey { class: found.class, tenant_class: found.tenant_class, tenant: found.tenant };
        (key, found.is_misfit)
    }

    pub(crate) fn note_new(
        &mut self,
        now: Timestamp,
        slot: Option<LaneSlot>,
        key: &LaneKey,
        is_misfit: bool,
    ) {
        self.misfit_count += u64::from(is_misfit);
        let class = usize::from(key.class);
        let is_crowded = slot.and_then(|slot| self.lane(slot)).is_some_and(|lane| lane.key != *key);
        self.crowded_count += u64::from(is_crowded);
        if let Some(class) = self.classes.get_mut(class) {
            class.stats.enqueued.add(now);
        }
        let rank = self.tenant_classes.get_mut(usize::from(key.tenant_class));
        if let Some(rank) = rank.filter(|_| self.settings.tenants.is_some()) {
            rank.stats.enqueued.add(now);
        }
    }

    fn lane_mut(&mut self, slot: LaneSlot) -> Option<&mut Lane> {
        self.lanes.get_mut(slot.index()).and_then(Option::as_mut)
    }

    /// Adds a waiting message. `is_new` is set if it was never delivered.
    pub(crate) fn add_waiting(&mut self, slot: LaneSlot, number: u64, is_new: bool) {
        self.become_active(slot);
        let Some(lane) = self.lane_mut(slot) else { return };
        lane.waiting_count += 1;
        if is_new {
            lane.row.add(number);
        } else {
            lane.row.add_returned(number);
        }
        self.count_waiting(slot, 1);
        self.list(slot);
        self.blocked = None;
    }

    pub(crate) fn remove_waiting(&mut self, slot: LaneSlot, number: u64) {
        let Some(lane) = self.lane_mut(slot) else { return };
        lane.waiting_count = lane.waiting_count.saturating_sub(1);
        lane.row.remove(number);
        self.count_waiting(slot, -1);
        self.list(slot);
    }

    fn count_waiting(&mut self, slot: LaneSlot, change: i64) {
        let Some(lane) = self.lanes.get(slot.index()).and_then(Option::as_ref) else { return };
        let class = &mut self.classes[usize::from(lane.key.class)];
        class.waiting_count = class.waiting_count.saturating_add_signed(change);
        let rank = &mut self.tenant_classes[usize::from(lane.key.tenant_class)];
        rank.waiting_count = rank.waiting_count.saturating_add_signed(change);
    }

    fn count_locked(&mut self, slot: LaneSlot, change: i64) {
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        lane.locked_count = lane.locked_count.saturating_add_signed(change);
        let class = &mut self.classes[usize::from(lane.key.class)];
        class.locked_count = class.locked_count.saturating_add_signed(change);
        let rank = &mut self.tenant_classes[usize::from(lane.key.tenant_class)];
        rank.locked_count = rank.locked_count.saturating_add_signed(change);
    }

    /// Adds an available session to the lane of its first message, or removes it.
    pub(crate) fn list_session(&mut self, slot: LaneSlot, turn: Turn, session: SessionSlot) {
        if let Some(sessions) = self.lane_mut(slot).and_then(|lane| lane.sessions.as_mut()) {
            sessions.insert((turn, session));
        }
        self.list(slot);
        self.blocked = None;
    }

    pub(crate) fn unlist_session(&mut self, slot: LaneSlot, turn: Turn, session: SessionSlot) {
        if let Some(sessions) = self.lane_mut(slot).and_then(|lane| lane.sessions.as_mut()) {
            sessions.remove(&(turn, session));
        }
        self.list(slot);
    }

    pub(crate) fn waiting_count(&self) -> u64 {
        self.classes.iter().map(|class| class.waiting_count).sum()
    }

    /// Returns whether a message can be delivered now, as far as is known.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.blocked.is_none()
            && self.classes.iter().any(|class| class.listed_count + class.limited.len() > 0)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Returns the time at which the first message that a rate holds up can be delivered.
    pub(crate) fn wakes_at(&self) -> Option<Timestamp> {
        let held_up = self.held_up.first().map(|&(at, ..)| at);
        held_up.into_iter().chain(self.blocked.flatten()).min()
    }

    /// Ends the waits for rates that are over by `now`; returns the sessions among them.
    pub(crate) fn wake(&mut self, now: Timestamp) -> Vec<SessionSlot> {
        if self.blocked.flatten().is_some_and(|at| at <= now) {
            self.blocked = None;
        }
        let mut sessions = Vec::new();
        while let Some(&(at, turn, session)) = self.held_up.first().filter(|(at, ..)| *at <= now) {
            self.held_up.remove(&(at, turn, session));
            sessions.push((turn, session));
        }
        sessions.sort_unstable();
        sessions.dedup();
        sessions.into_iter().map(|(_, session)| session).collect()
    }
}

/// Returns the names of all classes; there is always one.
fn names<'n>(names: impl Iterator<Item = &'n ClassName>) -> Vec<ClassName> {
    let names: Vec<_> = names.cloned().collect();
    if names.is_empty() { vec![ClassName::only()] } else { names }
}
