//! Checks blobs with several writers: of the changes that name the current etag exactly one succeeds, confirmed changes
//! stay, and a lease rejects all other writers.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::log::{Answer, BlobChange, BlobEvent, Event, FoundBlob, LeaseWish, LogLine};

/// A position in the log.
type Moment = usize;

#[derive(Debug)]
struct Change {
    blob: u32,
    change: BlobChange,
    asked: Moment,
    /// The moment of the answer; `None` if there is none, so that the change may happen at any time after the request.
    answered: Option<Moment>,
    answer: Answer,
    etag: Option<u64>,
    lease: Option<u64>,
}

#[derive(Debug)]
struct Leasing {
    blob: u32,
    wish: LeaseWish,
    asked: Moment,
    answered: Option<Moment>,
    answer: Answer,
}

#[derive(Debug)]
struct Look {
    blob: u32,
    asked: Moment,
    answered: Moment,
    found: Option<FoundBlob>,
}

#[derive(Default)]
struct Chronicle {
    changes: Vec<Change>,
    leasings: Vec<Leasing>,
    looks: Vec<Look>,
    /// The change that wrote a value to a blob: each value is written by one change only.
    authors: BTreeMap<(u32, u64), usize>,
    /// The changes that certainly happened, by blob, with the moment when that was known.
    happened: BTreeMap<u32, Vec<(usize, Moment)>>,
}

impl Change {
    fn is_refused(&self) -> bool {
        matches!(self.answer, Answer::Refused { .. })
    }

    fn value(&self) -> Option<u64> {
        value_of(self.change)
    }

    fn expected(&self) -> Option<u64> {
        match self.change {
            BlobChange::Set { expected, .. } | BlobChange::Delete { expected } => Some(expected),
            BlobChange::Create { .. } => None,
        }
    }

    /// Returns whether the change ended before this moment, with any outcome.
    fn is_before(&self, moment: Moment) -> bool {
        self.answered.is_some_and(|answered| answered < moment)
    }
}

impl Chronicle {
    fn new(entries: &[LogLine]) -> Chronicle {
        let mut chronicle = Chronicle::default();
        let (mut changes, mut leasings, mut looks) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (at, entry) in entries.iter().enumerate() {
            let Event::Blob(event) = &entry.event else { continue };
            match event.clone() {
                BlobEvent::Changing { request, blob, change, lease } => {
                    let number = chronicle.changes.len();
                    changes.insert(request, number);
                    chronicle.authors.extend(value_of(change).map(|value| ((blob, value), number)));
                    let (answered, answer, etag) = (None, Answer::Unknown, None);
                    chronicle.changes.push(Change { blob, change, asked: at, answered, answer, etag, lease });
                }
                BlobEvent::Changed { request, answer, etag } => {
                    let number = changes.get(&request);
                    if let Some(change) = number.and_then(|number| chronicle.changes.get_mut(*number)) {
                        change.answered = (answer != Answer::Unknown).then_some(at);
                        (change.answer, change.etag) = (answer, etag);
                    }
                }
                BlobEvent::Leasing { request, blob, wish } => {
                    leasings.insert(request, chronicle.leasings.len());
                    let (answered, answer) = (None, Answer::Unknown);
                    chronicle.leasings.push(Leasing { blob, wish, asked: at, answered, answer });
                }
                BlobEvent::Leased { request, answer } => {
                    let number = leasings.get(&request);
                    if let Some(leasing) = number.and_then(|number| chronicle.leasings.get_mut(*number)) {
                        leasing.answered = (answer != Answer::Unknown).then_some(at);
                        leasing.answer = answer;
                    }
                }
                BlobEvent::Looking { request, blob } => drop(looks.insert(request, (at, blob))),
                BlobEvent::Looked { request, found } => {
                    if let Some((asked, blob)) = looks.remove(&request) {
                        chronicle.looks.push(Look { blob, asked, answered: at, found });
                    }
                }
            }
        }
        chronicle.note_happened();
        chronicle
    }

    fn note_happened(&mut self) {
        let done = self.changes.iter().enumerate().filter(|(_, change)| change.answer == Answer::Done);
        for (number, change) in done {
            let known = change.answered.map(|answered| (number, answered));
            self.happened.entry(change.blob).or_default().extend(known);
        }
        for look in &self.looks {
            let value = look.found.and_then(|found| found.value);
            let author = value.and_then(|value| self.authors.get(&(look.blob, value)));
            self.happened.entry(look.blob).or_default().extend(author.map(|author| (*author, look.answered)));
        }
    }

    fn of(&self, blob: u32) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| change.blob == blob)
    }

    fn author(&self, blob: u32, value: Option<u64>) -> Option<&Change> {
        self.changes.get(*self.authors.get(&(blob, value?))?)
    }

    /// Returns the change that made the state with this etag, if it is known.
    fn maker(&self, blob: u32, etag: u64) -> Option<&Change> {
        let found = self.looks.iter().filter(|look| look.blob == blob).filter_map(|look| look.found);
        let value = found.filter(|found| found.etag == etag).find_map(|found| found.value);
        self.of(blob).find(|change| change.etag == Some(etag)).or_else(|| self.author(blob, value))
    }

    fn happened(&self, blob: u32) -> impl Iterator<Item = (&Change, Moment)> {
        let happened = self.happened.get(&blob).into_iter().flatten();
        happened.filter_map(|(number, known)| Some((self.changes.get(*number)?, *known)))
    }
}

fn value_of(change: BlobChange) -> Option<u64> {
    match change {
        BlobChange::Create { value } | BlobChange::Set { value, .. } => Some(value),
        BlobChange::Delete { .. } => None,
    }
}

pub(super) fn judge(entries: &[LogLine]) -> Vec<Violation> {
    let chronicle = Chronicle::new(entries);
    let checkers = [
        one_change_wins,
        etags_are_unique,
        what_was_confirmed_stays,
        refusals_have_reasons,
        leases_lock_others_out,
        lockouts_have_reasons,
    ];
    checkers.iter().flat_map(|check| check(&chronicle)).collect()
}

/// Checks that exactly one of all changes that name an etag succeeds.
fn one_change_wins(chronicle: &Chronicle) -> Vec<Violation> {
    let mut winners: BTreeMap<(u32, u64), BTreeSet<Moment>> = BTreeMap::new();
    for blob in chronicle.happened.keys() {
        for (change, _) in chronicle.happened(*blob) {
            let Some(expected) = change.expected() else { continue };
            winners.entry((*blob, expected)).or_default().insert(change.asked);
        }
    }
    let several = winners.into_iter().filter(|(_, winners)| winners.len() > 1);
    several
        .map(|((blob, etag), winners)| {
            let what = format!("blob {blob}, etag {etag}: asked for at {winners:?}");
            Violation::new("one change of a blob wins", None, what)
        })
        .collect()
}

/// Checks that an etag identifies one state of one blob, and that every value was written by some client.
fn etags_are_unique(chronicle: &Chronicle) -> Vec<Violation> {
    let broken = |what| Violation::new("etags of blobs are unique", None, what);
    let mut violations = Vec::new();
    let done =
        chronicle.changes.iter().filter_map(|change| Some((change.etag?, change.blob, change.value())));
    let found = chronicle.looks.iter().filter_map(|look| Some((look.found?, look.blob)));
    let found = found.map(|(found, blob)| (found.etag, blob, found.value));
    let mut states: BTreeMap<u64, (u32, Option<u64>)> = BTreeMap::new();
    for (etag, blob, value) in done.chain(found) {
        let first = *states.entry(etag).or_insert((blob, value));
        if first != (blob, value) {
            violations.push(broken(format!("{etag} is {first:?} and {:?}", (blob, value))));
        }
        if chronicle.author(blob, value).is_none_or(Change::is_refused) {
            violations
                .push(broken(format!("nobody has written {value:?} to blob {blob}, or it was refused")));
        }
    }
    violations
}

/// Checks that a later read finds the confirmed value, or a newer one.
fn what_was_confirmed_stays(chronicle: &Chronicle) -> Vec<Violation> {
    let mut violations = Vec::new();
    for look in &chronicle.looks {
        let known = chronicle.happened(look.blob).filter(|(_, known)| *known < look.asked);
        let known: Vec<_> = known.collect();
        let why = match look.found {
            Some(found) => stale(chronicle, look, found, &known),
            None => missing(chronicle, look, &known),
        };
        if let Some(why) = why {
            violations.push(Violation::new(
                "what was confirmed of a blob stays",
                None,
                format!("{look:?}: {why}"),
            ));
        }
    }
    violations
}

fn stale(
    chronicle: &Chronicle,
    look: &Look,
    found: FoundBlob,
    known: &[(&Change, Moment)],
) -> Option<String> {
    let replaced = known.iter().find(|(change, _)| change.expected() == Some(found.etag));
    if let Some((by, _)) = replaced {
        return Some(format!("that was replaced by {by:?}"));
    }
    let author = chronicle.author(look.blob, found.value)?;
    let newer = known.iter().find(|(change, _)| author.is_before(change.asked));
    newer.map(|(newer, _)| format!("{newer:?} came later"))
}

/// Returns a violation if a blob is missing that no client can have deleted.
fn missing(chronicle: &Chronicle, look: &Look, known: &[(&Change, Moment)]) -> Option<String> {
    let is_delete =
        |change: &&Change| change.value().is_none() && !change.is_refused() && change.asked < look.answered;
    let deletes: Vec<_> = chronicle.of(look.blob).filter(is_delete).collect();
    let written = known.iter().filter(|(change, _)| change.value().is_some());
    let mut lost = written.filter(|(change, _)| deletes.iter().all(|delete| delete.is_before(change.asked)));
    lost.next().map(|(change, _)| format!("nobody has deleted it since {change:?}"))
}

/// Checks that a rejection for a stale etag, or for an existing blob, follows a change by another client.
fn refusals_have_reasons(chronicle: &Chronicle) -> Vec<Violation> {
    let is_stale = |change: &&Change| matches!(change.answer, Answer::Refused { lock_lost: true, .. });
    let mut violations = Vec::new();
    for refused in chronicle.changes.iter().filter(is_stale) {
        let Some(answered) = refused.answered else { continue };
        let maker = refused.expected().and_then(|etag| chronicle.maker(refused.blob, etag));
        let forestalls = |other: &Change| {
            let is_made_before =
                maker.is_some_and(|maker| maker.asked == other.asked || other.is_before(maker.asked));
            !other.is_refused() && other.asked < answered && other.asked != refused.asked && !is_made_before
        };
        if !chronicle.of(refused.blob).any(forestalls) {
            let what = format!("{refused:?}, made by {maker:?}");
            violations.push(Violation::new("changes of blobs are refused for good reasons", None, what));
        }
    }
    violations
}

impl Chronicle {
    /// Returns the leases that may have existed: number, request, and earliest possible end.
    fn leases(&self) -> impl Iterator<Item = (u64, &Leasing, Option<Moment>)> {
        self.leasings.iter().filter_map(|leasing| {
            let LeaseWish::Acquire { lease } = leasing.wish else { return None };
            let is_refused = matches!(leasing.answer, Answer::Refused { .. });
            (!is_refused).then(|| (lease, leasing, self.first_end(lease, leasing)))
        })
    }

    /// Returns the first moment at which a client requested something that ends a lease.
    fn first_end(&self, lease: u64, acquired: &Leasing) -> Option<Moment> {
        let ends = |other: &&Leasing| {
            other.blob == acquired.blob
                && (other.wish == LeaseWish::Break || other.wish == LeaseWish::Release { lease })
                && !matches!(other.answer, Answer::Refused { .. })
                && other.answered.is_none_or(|answered| answered > acquired.asked)
        };
        let of_leases = self.leasings.iter().filter(ends).map(|other| other.asked);
        let deletes = self.of(acquired.blob).filter(|change| change.lease == Some(lease));
        let deletes = deletes.filter(|change| change.value().is_none() && !change.is_refused());
        of_leases.chain(deletes.map(|change| change.asked)).min()
    }
}

/// Checks that from the confirmation of a lease on, no other client changes the blob.
fn leases_lock_others_out(chronicle: &Chronicle) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (lease, leasing, end) in chronicle.leases() {
        let Some(since) = leasing.answered else { continue };
        let is_inside = |change: &&Change| {
            change.lease != Some(lease)
                && change.asked > since
                && change.answered.is_some_and(|answered| end.is_none_or(|end| answered < end))
        };
        let others = chronicle.of(leasing.blob).filter(|change| change.answer == Answer::Done);
        for change in others.filter(is_inside) {
            let what = format!("{change:?} under {leasing:?}");
            violations.push(Violation::new("nobody changes what another has leased", None, what));
        }
    }
    violations
}

/// Checks that a rejection because of a lease is explained by a lease that may have existed.
fn lockouts_have_reasons(chronicle: &Chronicle) -> Vec<Violation> {
    let is_locked_out = |change: &&Change| change.lease.is_none() && change.answer.is_about_lease();
    let mut violations = Vec::new();
    for change in chronicle.changes.iter().filter(is_locked_out) {
        let Some(answered) = change.answered else { continue };
        let locks = |(lease, leasing): (u64, &Leasing)| {
            let is_released = chronicle.leasings.iter().any(|other| {
                other.wish == LeaseWish::Release { lease }
                    && other.answer == Answer::Done
                    && other.answered.is_some_and(|released| released < change.asked)
            });
            leasing.blob == change.blob && leasing.asked < answered && !is_released
        };
        if !chronicle.leases().any(|(lease, leasing, _)| locks((lease, leasing))) {
            let what = format!("{change:?}");
            violations.push(Violation::new("leases of blobs lock out for good reasons", None, what));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Forge {
        entries: Vec<LogLine>,
        request: u32,
        /// The lease for later changes.
        lease: Option<u64>,
    }

    impl Forge {
        fn add(&mut self, event: BlobEvent) {
            let at_ms = self.entries.len() as u64;
            self.entries.push(LogLine { at_ms, party: "party".into(), event: Event::Blob(event) });
        }

        fn ask(&mut self, change: BlobChange) -> u32 {
            self.request += 1;
            self.add(BlobEvent::Changing { request: self.request, blob: 0, change, lease: self.lease });
            self.request
        }

        fn done(mut self, change: BlobChange, etag: Option<u64>) -> Self {
            let request = self.ask(change);
            self.add(BlobEvent::Changed { request, answer: Answer::Done, etag });
            self
        }

        fn refused(mut self, change: BlobChange) -> Self {
            let request = self.ask(change);
            let answer = Answer::Refused { lock_lost: true, why: String::new() };
            self.add(BlobEvent::Changed { request, answer, etag: None });
            self
        }

        fn unknown(mut self, change: BlobChange) -> Self {
            let request = self.ask(change);
            self.add(BlobEvent::Changed { request, answer: Answer::Unknown, etag: None });
            self
        }

        fn under(self, lease: Option<u64>) -> Self {
            Forge { lease, ..self }
        }

        fn leasing(mut self, wish: LeaseWish, answer: Answer) -> Self {
            self.request += 1;
            let (request, blob) = (self.request, 0);
            self.add(BlobEvent::Leasing { request, blob, wish });
            self.add(BlobEvent::Leased { request, answer });
            self
        }

        fn leased(self, lease: u64) -> Self {
            self.leasing(LeaseWish::Acquire { lease }, Answer::Done)
        }

        fn locked_out(mut self, change: BlobChange) -> Self {
            let request = self.ask(change);
            let answer = Answer::Refused { lock_lost: false, why: "there is a lease".to_owned() };
            self.add(BlobEvent::Changed { request, answer, etag: None });
            self
        }

        fn created(self, value: u64, etag: u64) -> Self {
            self.done(BlobChange::Create { value }, Some(etag))
        }

        fn set(self, expected: u64, value: u64, etag: u64) -> Self {
            self.done(set(expected, value), Some(etag))
        }

        fn finds(mut self, found: Option<(u64, u64)>) -> Self {
            self.request += 1;
            let (request, blob) = (self.request, 0);
            self.add(BlobEvent::Looking { request, blob });
            let found = found.map(|(etag, value)| FoundBlob { etag, value: Some(value) });
            self.add(BlobEvent::Looked { request, found });
            self
        }

        fn promises(&self) -> Vec<&'static str> {
            judge(&self.entries).into_iter().map(|violation| violation.promise).collect()
        }
    }

    fn set(expected: u64, value: u64) -> BlobChange {
        BlobChange::Set { expected, value }
    }

    #[test]
    fn a_sound_log_breaks_no_promise() {
        let sound = Forge::default()
            .finds(None)
            .created(1, 10)
            .set(10, 2, 11)
            .refused(set(10, 3))
            .finds(Some((11, 2)));
        let sound = sound.refused(BlobChange::Create { value: 4 }).unknown(set(11, 5)).finds(Some((12, 5)));
        let sound = sound.refused(set(11, 6)).done(BlobChange::Delete { expected: 12 }, None).finds(None);
        let sound = sound
            .created(7, 13)
            .unknown(BlobChange::Delete { expected: 13 })
            .finds(Some((13, 7)))
            .finds(None);
        assert_eq!(sound.promises(), Vec::<&str>::new());
    }

    #[test]
    fn a_second_successful_change_is_found() {
        let two = Forge::default().created(1, 10).set(10, 2, 11).set(10, 3, 12);
        assert_eq!(two.promises(), ["one change of a blob wins"]);
        let unheard = Forge::default().created(1, 10).unknown(set(10, 2)).finds(Some((11, 2))).set(10, 3, 12);
        assert_eq!(unheard.promises(), ["one change of a blob wins"]);
    }

    #[test]
    fn a_reused_etag_is_found() {
        let again = Forge::default().created(1, 10).set(10, 2, 11).set(11, 3, 10);
        assert_eq!(again.promises(), ["etags of blobs are unique"]);
    }

    #[test]
    fn an_invented_value_is_found() {
        assert_eq!(Forge::default().finds(Some((10, 1))).promises(), ["etags of blobs are unique"]);
        let refused = Forge::default().created(1, 10).set(10, 2, 11).refused(set(10, 3)).finds(Some((12, 3)));
        assert!(refused.promises().contains(&"etags of blobs are unique"));
    }

    #[test]
    fn lost_and_reverted_changes_are_found() {
        const STAYS: [&str; 1] = ["what was confirmed of a blob stays"];
        assert_eq!(Forge::default().created(1, 10).finds(None).promises(), STAYS);
        assert_eq!(Forge::default().created(1, 10).set(10, 2, 11).finds(Some((10, 1))).promises(), STAYS);
        let seen =
            Forge::default().created(1, 10).unknown(set(10, 2)).finds(Some((11, 2))).finds(Some((10, 1)));
        assert_eq!(seen.promises(), STAYS);
        let deleted = Forge::default().created(1, 10).done(BlobChange::Delete { expected: 10 }, None);
        assert_eq!(deleted.created(2, 11).finds(None).promises(), STAYS);
    }

    #[test]
    fn a_rejection_without_a_reason_is_found() {
        const REASONS: [&str; 1] = ["changes of blobs are refused for good reasons"];
        assert_eq!(Forge::default().refused(BlobChange::Create { value: 1 }).promises(), REASONS);
        assert_eq!(Forge::default().created(1, 10).refused(set(10, 2)).promises(), REASONS);
        let old = Forge::default().created(1, 10).set(10, 2, 11).refused(set(11, 3));
        assert_eq!(old.promises(), REASONS);
    }

    #[test]
    fn wrong_changes_and_rejections_under_leases_are_found() {
        const LEASED: [&str; 1] = ["nobody changes what another has leased"];
        const REASONS: [&str; 1] = ["leases of blobs lock out for good reasons"];
        let sound = || Forge::default().created(1, 10).leased(7).locked_out(set(10, 2)).under(Some(7));
        let sound = || sound().set(10, 3, 11).under(None);
        assert_eq!(sound().promises(), Vec::<&str>::new());
        assert_eq!(sound().set(11, 4, 12).promises(), LEASED);
        assert_eq!(sound().under(Some(8)).set(11, 4, 12).promises(), LEASED);
        for end in [LeaseWish::Release { lease: 7 }, LeaseWish::Break] {
            for answer in [Answer::Done, Answer::Unknown] {
                let ended = sound().leasing(end, answer).set(11, 4, 12);
                assert_eq!(ended.promises(), Vec::<&str>::new());
            }
        }
        let deleted = sound().under(Some(7)).done(BlobChange::Delete { expected: 11 }, None).under(None);
        assert_eq!(deleted.created(4, 12).promises(), Vec::<&str>::new());
        let released = sound().leasing(LeaseWish::Release { lease: 7 }, Answer::Done);
        assert_eq!(released.locked_out(set(11, 4)).promises(), REASONS);
        assert_eq!(Forge::default().created(1, 10).locked_out(set(10, 2)).promises(), REASONS);
    }
}
