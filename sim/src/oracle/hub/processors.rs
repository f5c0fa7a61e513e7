//! Checks the sharing of partitions without faults: all are owned, evenly, soon, and none moves without need.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Violation;
use super::chronicle::{Chronicle, Moment};
use crate::log::{Answer, Fate, Stage};
use crate::scenario::Processors;

/// The extra intervals for a claim: two instances may claim the same partition, and one of them retries.
const SPARE_INTERVALS: u32 = 4;
/// The longest time from a claim to the first event: a connection, a read of the checkpoint, and one event.
const FIRST_EVENT_MS: u64 = 4_000;

/// The owners of partitions at one time.
#[derive(Clone, Default)]
struct Owners {
    by_partition: BTreeMap<u32, String>,
}

/// One stage with all of its events.
struct Act<'a> {
    stage: Stage,
    from: Moment,
    upto: Moment,
    before: Owners,
    after: Owners,
    /// Each change of a partition's owner: time, partition, owners before and after.
    moves: Vec<(Moment, u32, String, String)>,
    alive: BTreeSet<&'a str>,
    gone: Option<(Moment, &'a str)>,
}

impl Owners {
    fn count(&self, owner: &str) -> usize {
        self.by_partition.values().filter(|other| *other == owner).count()
    }
}

fn acts<'a>(chronicle: &'a Chronicle<'_>) -> Vec<Act<'a>> {
    let mut owners = Owners::default();
    let done = chronicle.claims.iter().filter(|claim| claim.answer == Answer::Done);
    let mut done: Vec<_> =
        done.filter_map(|claim| Some((claim.answered?, claim.partition, &claim.owner))).collect();
    done.sort_unstable();
    let mut done = done.into_iter().peekable();
    let mut acts = Vec::new();
    for (stage, from, upto) in chronicle.staged() {
        while let Some((_, partition, owner)) = done.next_if(|(at, ..)| *at < from) {
            owners.by_partition.insert(partition, owner.clone());
        }
        let (before, mut moves) = (owners.clone(), Vec::new());
        while let Some((at, partition, owner)) = done.next_if(|(at, ..)| *at < upto) {
            let old = owners.by_partition.insert(partition, owner.clone()).unwrap_or_default();
            if old != *owner {
                moves.push((at, partition, old, owner.clone()));
            }
        }
        let mut alive = BTreeSet::new();
        for (_, name, fate) in
            chronicle.fates.iter().filter(|(at, name, _)| *at < upto && name.starts_with("worker"))
        {
            match fate {
                Fate::Started => alive.insert(name.as_str()),
                Fate::Crashed | Fate::Stopping | Fate::Stopped => alive.remove(name.as_str()),
                Fate::Paused | Fate::Resumed => false,
            };
        }
        let ends = [Fate::Crashed, Fate::Stopped];
        let gone =
            chronicle.fates.iter().find(|(at, _, fate)| (from..upto).contains(at) && ends.contains(fate));
        let gone = gone.map(|(at, name, _)| (*at, name.as_str()));
        acts.push(Act { stage, from, upto, before, after: owners.clone(), moves, alive, gone });
    }
    acts
}

impl Act<'_> {
    fn partition_count(&self) -> usize {
        self.after.by_partition.len()
    }

    /// Returns the time in which this many free partitions must be claimed.
    fn patience_ms(&self, spec: &Processors, free: usize) -> u64 {
        let each = u32::try_from(free.div_ceil(self.alive.len().max(1))).unwrap_or(u32::MAX);
        let expiry = match self.stage {
            Stage::Start { .. } | Stage::Crash => spec.expiry,
            _ => Duration::ZERO,
        };
        let span = expiry + spec.interval * each.saturating_mul(2).saturating_add(SPARE_INTERVALS);
        u64::try_from(span.as_millis() * 103 / 100).unwrap_or(u64::MAX)
    }

    /// Returns the partitions without an owner, or with one that has left.
    fn orphans(&self) -> BTreeSet<u32> {
        let is_alive = |owner: &String| self.alive.contains(owner.as_str());
        let mut orphans: BTreeSet<_> = self
            .after
            .by_partition
            .keys()
            .filter(|p| !self.before.by_partition.contains_key(p))
            .copied()
            .collect();
        orphans
            .extend(self.before.by_partition.iter().filter(|(_, owner)| !is_alive(owner)).map(|(p, _)| *p));
        orphans
    }

    /// Returns when the final owners had claimed the last orphan.
    fn adopted(&self) -> Option<Moment> {
        let orphans = self.orphans();
        let adopted = self.moves.iter().filter(|(_, partition, old, new)| {
            orphans.contains(partition)
                && !self.alive.contains(old.as_str())
                && self.alive.contains(new.as_str())
        });
        adopted.map(|(at, ..)| *at).max()
    }

    fn spread(&self) -> usize {
        let counts = || self.alive.iter().map(|owner| self.after.count(owner));
        counts().max().unwrap_or(0) - counts().min().unwrap_or(0)
    }
}

/// Checks that every partition is owned in time, and that no instance has two more than another.
pub(super) fn partitions_are_shared(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("partitions are shared, evenly and in time", None, what);
    let Some(spec) = &chronicle.hub.processors else { return Vec::new() };
    let mut violations = Vec::new();
    for act in acts(chronicle) {
        let Act { stage, from, upto, after, alive, .. } = &act;
        let lonely: Vec<_> =
            after.by_partition.iter().filter(|(_, owner)| !alive.contains(owner.as_str())).collect();
        if !lonely.is_empty()
            || act.partition_count() < usize::try_from(chronicle.hub.settings.partition_count).unwrap_or(0)
        {
            violations.push(broken(format!("{stage:?} until {upto:?}: nobody who lives has {lonely:?}")));
        }
        if act.spread() > 1 {
            violations
                .push(broken(format!("{stage:?} until {upto:?}: {:?} over {alive:?}", after.by_partition)));
        }
        let since = act.gone.map_or(*from, |(at, _)| at);
        let patience_ms = act.patience_ms(spec, act.orphans().len());
        if let Some(adopted) = act.adopted()
            && adopted.ms > since.ms + patience_ms
        {
            let took_ms = adopted.ms - since.ms;
            violations.push(broken(format!("{stage:?} at {since:?}: took {took_ms} ms, not {patience_ms}")));
        }
        violations.extend(late_events(chronicle, &act, since.ms + patience_ms + FIRST_EVENT_MS).map(broken));
    }
    violations
}

/// Returns a violation if the partitions of an instance that left are not read in time.
fn late_events(chronicle: &Chronicle<'_>, act: &Act<'_>, until_ms: u64) -> Option<String> {
    let (since, gone) = act.gone?;
    let lost = act.before.by_partition.iter().filter(|(_, owner)| *owner == gone);
    let is_read = |partition: u32| {
        let mut handled = chronicle.handled.iter();
        handled.any(|h| {
            h.partition == partition
                && h.at > since
                && h.at.ms <= until_ms
                && act.alive.contains(h.instance.as_str())
        })
    };
    let late: Vec<_> = lost.filter(|(partition, _)| !is_read(**partition)).collect();
    (!late.is_empty() && until_ms < act.upto.ms)
        .then(|| format!("{:?}: nobody reads {late:?} until {until_ms}", act.stage))
}

pub(super) fn nobody_moves_without_need(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("nobody moves without need", None, what);
    let mut violations = Vec::new();
    for act in acts(chronicle) {
        let steals = act.moves.iter().filter(|(_, _, old, _)| act.alive.contains(old.as_str())).count();
        let steals_max = match act.stage {
            // Other instances do not see an instance without partitions, and may claim its share.
            Stage::Crash | Stage::Leave if act.alive.len() >= act.partition_count() => act.orphans().len(),
            Stage::Stay | Stage::Crash | Stage::Leave => 0,
            Stage::Join => act.partition_count().div_ceil(act.alive.len()),
            Stage::Start { .. } | Stage::Grow { .. } | Stage::Surplus { .. } | Stage::End => usize::MAX,
        };
        if steals > steals_max || (act.stage == Stage::Stay && !act.moves.is_empty()) {
            violations.push(broken(format!("{:?} at {:?}: {:?}", act.stage, act.from, act.moves)));
        }
        if act.stage == Stage::Leave {
            violations.extend(replayed(chronicle, &act).map(broken));
        }
    }
    violations
}

/// Returns a violation if events are handled again after an orderly stop, for which the instance has written its
/// checkpoints. Events of partitions that were taken from it before may be handled again.
fn replayed(chronicle: &Chronicle<'_>, act: &Act<'_>) -> Option<String> {
    let (since, gone) = act.gone?;
    let was_taken = |partition: u32| {
        let mut moves = act.moves.iter().filter(|(at, moved, ..)| *at < since && *moved == partition);
        moves.any(|(.., old, new)| old == gone && !new.is_empty())
    };
    let had = |partition: u32| {
        act.before.by_partition.get(&partition).is_some_and(|owner| owner == gone) && !was_taken(partition)
    };
    let after = |at: Moment| at > since && at < act.upto;
    let mut handled = chronicle.handled.iter().filter(|h| after(h.at) && had(h.partition));
    let again = handled.find(|h| {
        let mut before =
            chronicle.handled.iter().filter(|b| b.instance == gone && b.partition == h.partition);
        before.any(|b| b.last >= h.first)
    })?;
    Some(format!("{gone} was done with it, and {again:?}"))
}

/// Checks that all events up to the checkpoint were handled, and that reading continues right after it.
pub(super) fn nothing_is_left_out(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    // Events that retention removes from a slow processor are no violation.
    let settings = &chronicle.hub.settings;
    if settings.retention.is_some() || settings.retention_bytes.is_some() {
        return Vec::new();
    }
    let Some(last) = chronicle.lists.last() else { return Vec::new() };
    let mut violations = Vec::new();
    for (partition, checkpoint) in &last.checkpoints {
        let mut ranges: Vec<_> = chronicle
            .handled
            .iter()
            .filter(|h| h.partition == *partition)
            .map(|h| (h.first, h.last))
            .collect();
        ranges.sort_unstable();
        let mut next = 0;
        for (first, last) in ranges {
            if first <= next {
                next = next.max(last + 1);
            }
        }
        if next <= *checkpoint {
            let what =
                format!("partition {partition}: {next} was not handled, and the checkpoint is {checkpoint}");
            violations.push(Violation::new("no event is left out by processors", None, what));
        }
    }
    violations
}
