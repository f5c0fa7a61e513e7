//! Owners of partitions, and checkpoints.

use std::collections::BTreeMap;

use super::Violation;
use super::chronicle::{Chronicle, Claim, Moment, Note};
use crate::log::{Answer, Owned};

/// The longest time in which a reset without an answer may take effect.
const UNSURE_MS: u64 = 60_000;

impl Chronicle<'_> {
    /// Returns every record of an owner, and the moment when it was known.
    fn sayings(&self) -> impl Iterator<Item = (Moment, &Owned)> {
        let claimed = self.claims.iter().filter_map(|claim| Some((claim.answered?, claim.owned.as_ref()?)));
        let listed = self.lists.iter().flat_map(|list| list.owned.iter().map(|owned| (list.answered, owned)));
        claimed.chain(listed)
    }

    fn won(&self) -> impl Iterator<Item = (&Claim, &Owned)> {
        let done = self.claims.iter().filter(|claim| claim.answer == Answer::Done);
        done.filter_map(|claim| Some((claim, claim.owned.as_ref()?)))
    }
}

/// Checks that of all claims with the same etag one succeeds, and that no two records have the same etag.
pub(super) fn one_claim_wins(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("one claim wins, and etags are unique", None, what);
    let mut violations = Vec::new();
    let mut winners: BTreeMap<_, &Claim> = BTreeMap::new();
    let mut etags: BTreeMap<_, &Claim> = BTreeMap::new();
    for (claim, owned) in chronicle.won() {
        if let Some(other) = winners.insert((claim.partition, claim.expected), claim) {
            violations.push(broken(format!("both won: {claim:?} and {other:?}")));
        }
        if let Some(other) = etags.insert((claim.partition, owned.etag), claim) {
            violations.push(broken(format!("both have one etag: {claim:?} and {other:?}")));
        }
    }
    let mut records: BTreeMap<(u32, u64), &Owned> = BTreeMap::new();
    for (_, owned) in chronicle.sayings() {
        let known = *records.entry((owned.partition, owned.etag)).or_insert(owned);
        if known != owned {
            violations.push(broken(format!("one etag, two records: {known:?} and {owned:?}")));
        }
    }
    violations
}

/// Checks that an epoch grows when another owner takes over, and only then, and that no known record reverts.
pub(super) fn epochs_grow(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("epochs grow with each new owner", None, what);
    let records: BTreeMap<_, _> =
        chronicle.sayings().map(|(_, owned)| ((owned.partition, owned.etag), owned)).collect();
    let mut violations = Vec::new();
    for (claim, owned) in chronicle.won() {
        let before = claim.expected.and_then(|etag| records.get(&(claim.partition, etag)));
        let (owner, epoch) = before.map_or(("", 0), |before| (before.owner.as_str(), before.epoch));
        let is_known = before.is_some() || claim.expected.is_none();
        let takes_over = !claim.owner.is_empty() && claim.owner != owner;
        let is_right = if takes_over { owned.epoch > epoch } else { owned.epoch == epoch };
        if is_known && (!is_right || owned.owner != claim.owner) {
            violations.push(broken(format!("{claim:?} after {before:?}")));
        }
    }
    let mut sayings: Vec<_> = chronicle.sayings().collect();
    sayings.sort_by_key(|(at, _)| *at);
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut sayings = sayings.into_iter().peekable();
    let mut lists: Vec<_> = chronicle.lists.iter().collect();
    lists.sort_by_key(|list| list.asked);
    for list in lists {
        while let Some((_, owned)) = sayings.next_if(|(at, _)| *at < list.asked) {
            let newest = newest.entry(owned.partition).or_default();
            *newest = (*newest).max(owned.epoch);
        }
        for (partition, newest) in &newest {
            let now =
                list.owned.iter().find(|owned| owned.partition == *partition).map_or(0, |owned| owned.epoch);
            if now < *newest {
                violations
                    .push(broken(format!("partition {partition}: epoch {now} after {newest}: {list:?}")));
            }
        }
    }
    violations
}

/// Checks that checkpoints never fall between two resets.
pub(super) fn checkpoints_never_fall(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("checkpoints never fall without a reset", None, what);
    let mut violations = Vec::new();
    let floors = Floors::new(chronicle);
    let mut asked: Vec<(Moment, u32, Option<u64>, Option<Moment>)> = Vec::new();
    let is_own = |note: &&Note| note.answer == Answer::Done && note.owner.is_some();
    for note in chronicle.notes.iter().filter(is_own) {
        asked.push((note.asked, note.partition, note.sequence, note.answered));
    }
    for list in &chronicle.lists {
        let partitions = chronicle.notes.iter().map(|note| note.partition);
        let partitions: std::collections::BTreeSet<_> = partitions.collect();
        asked.extend(partitions.into_iter().map(|partition| {
            (list.asked, partition, list.checkpoints.get(&partition).copied(), Some(list.answered))
        }));
    }
    asked.sort_unstable();
    for (asked, partition, value, answered) in asked {
        let Some(floor) = floors.at(partition, asked) else { continue };
        let is_reset = answered.is_some_and(|answered| floors.is_reset(partition, asked, answered));
        if value.is_none_or(|value| value < floor) && !is_reset {
            violations.push(broken(format!("partition {partition}: {value:?} after {floor}, at {asked:?}")));
        }
    }
    violations
}

/// The known lower bound of checkpoints: at least the last confirmed or read value, unless a reset was in between.
struct Floors {
    /// The values, by partition, with the time at which each was known.
    known: BTreeMap<u32, Vec<(Moment, Moment, u64)>>,
    /// The times in which a reset may have happened, by partition.
    resets: BTreeMap<u32, Vec<(Moment, Moment)>>,
}

impl Floors {
    fn new(chronicle: &Chronicle<'_>) -> Floors {
        let mut floors = Floors { known: BTreeMap::new(), resets: BTreeMap::new() };
        for note in &chronicle.notes {
            let end = note.answered.unwrap_or(note.asked);
            match (&note.owner, &note.answer, note.sequence) {
                (None, Answer::Refused { .. }, _) => {}
                (None, answer, _) => {
                    let more_ms = if *answer == Answer::Done { 0 } else { UNSURE_MS };
                    let end = Moment { ms: end.ms + more_ms, ..end };
                    floors.resets.entry(note.partition).or_default().push((note.asked, end));
                }
                (Some(_), Answer::Done, Some(sequence)) => {
                    floors.known.entry(note.partition).or_default().push((note.asked, end, sequence));
                }
                _ => {}
            }
        }
        for list in &chronicle.lists {
            for (partition, sequence) in &list.checkpoints {
                floors.known.entry(*partition).or_default().push((list.asked, list.answered, *sequence));
            }
        }
        floors
    }

    fn is_reset(&self, partition: u32, from: Moment, upto: Moment) -> bool {
        let resets = self.resets.get(&partition).into_iter().flatten();
        resets.into_iter().any(|(start, end)| start.index < upto.index && end.ms >= from.ms)
    }

    fn at(&self, partition: u32, at: Moment) -> Option<u64> {
        let known = self.known.get(&partition)?.iter().filter(|(_, known, _)| *known < at);
        known.filter(|(asked, ..)| !self.is_reset(partition, *asked, at)).map(|(.., value)| *value).max()
    }
}

/// Checks that only the owner writes checkpoints: a former owner is rejected, and only a former owner.
pub(super) fn former_owners_note_nothing(chronicle: &Chronicle<'_>) -> Vec<Violation> {
    let broken = |what| Violation::new("former owners note nothing", None, what);
    let mut violations = Vec::new();
    for note in &chronicle.notes {
        let (Some((owner, epoch)), Some(answered)) = (&note.owner, note.answered) else { continue };
        let here = |(at, owned): (Moment, &Owned)| {
            let is_over = owned.epoch > *epoch || (owned.epoch == *epoch && owned.owner.is_empty());
            owned.partition == note.partition && is_over && at < note.asked
        };
        if note.answer == Answer::Done && chronicle.sayings().any(here) {
            violations.push(broken(format!("it was noted: {note:?}")));
        }
        let takes_away = |claim: &Claim| {
            let is_possible = !matches!(claim.answer, Answer::Refused { .. });
            claim.partition == note.partition
                && claim.owner != *owner
                && is_possible
                && claim.asked < answered
        };
        let is_refused = matches!(note.answer, Answer::Refused { lock_lost: true, .. });
        if is_refused && !chronicle.claims.iter().any(takes_away) {
            violations.push(broken(format!("nobody else wanted the partition: {note:?}")));
        }
    }
    violations
}
