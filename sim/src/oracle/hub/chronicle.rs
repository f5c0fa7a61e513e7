//! The log of a hub, sorted by subject.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peeklock_broker::hubs::StartAt;

use crate::log::{
    Answer, Event, EventNumber, Fate, HubEvent, LogLine, Numbered, Owned, ReadEnd, ReadEvent, Refusal, Stage,
};
use crate::scenario::{GroupIndex, Hub, Scenario};

/// A moment: its position in the log, and the world time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) index: usize,
    pub(super) ms: u64,
}

#[derive(Debug)]
pub(super) struct Publication {
    pub(super) partition: u32,
    pub(super) events: Vec<EventNumber>,
    pub(super) numbered: Option<Numbered>,
    pub(super) size_bytes: u64,
    pub(super) run: u32,
    pub(super) asked: Moment,
    pub(super) answered: Option<Moment>,
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u32,
    pub(super) party: Arc<str>,
    pub(super) group: GroupIndex,
    pub(super) partition: u32,
    pub(super) start: StartAt,
    pub(super) level: Option<i64>,
    pub(super) run: u32,
    pub(super) is_wired: bool,
    pub(super) asked: Moment,
    pub(super) opened: Option<Moment>,
    pub(super) refused: Option<(Moment, Refusal)>,
    pub(super) events: Vec<(Moment, ReadEvent)>,
    pub(super) ended: Option<(Moment, ReadEnd)>,
}

#[derive(Debug)]
pub(super) struct Look {
    pub(super) partition: u32,
    pub(super) asked: Moment,
    pub(super) answered: Moment,
    pub(super) begin: u64,
    pub(super) next: u64,
    pub(super) readers: Vec<(String, Option<i64>)>,
}

#[derive(Debug)]
pub(super) struct Claim {
    pub(super) partition: u32,
    pub(super) owner: String,
    pub(super) expected: Option<u64>,
    pub(super) asked: Moment,
    pub(super) answered: Option<Moment>,
    pub(super) answer: Answer,
    pub(super) owned: Option<Owned>,
}

#[derive(Debug)]
pub(super) struct List {
    pub(super) asked: Moment,
    pub(super) answered: Moment,
    pub(super) owned: Vec<Owned>,
    pub(super) checkpoints: BTreeMap<u32, u64>,
}

#[derive(Debug)]
pub(super) struct Note {
    pub(super) partition: u32,
    pub(super) sequence: Option<u64>,
    /// The owner and its epoch; `None` for a reset.
    pub(super) owner: Option<(String, u64)>,
    pub(super) asked: Moment,
    pub(super) answered: Option<Moment>,
    pub(super) answer: Answer,
}

#[derive(Debug)]
pub(super) struct Handled {
    pub(super) at: Moment,
    pub(super) instance: String,
    pub(super) partition: u32,
    pub(super) first: u64,
    pub(super) last: u64,
}

/// One run of the broker.
#[derive(Debug)]
struct Run {
    start_ms: u64,
    end_ms: u64,
    wall_ms: u64,
    /// The steps of the machine's clock: the time of each, and what the clock showed then.
    steps: Vec<(u64, u64)>,
}

impl Run {
    /// Returns the broker's clock at a world time, after the steps that count. It follows the machine's clock forward only.
    fn wall(&self, ms: u64, counts: impl Fn(u64) -> bool) -> u64 {
        let own = self.wall_ms + ms.saturating_sub(self.start_ms);
        let steps = self.steps.iter().filter(|(at_ms, _)| counts(*at_ms));
        steps.map(|(at_ms, wall_ms)| wall_ms + ms.saturating_sub(*at_ms)).fold(own, u64::max)
    }
}

pub(super) struct Chronicle<'a> {
    pub(super) hub: &'a Hub,
    /// The longest delay of events for a reader over the network.
    pub(super) under_way_ms_max: u64,
    /// Whether the disk fails or loses power, so that events on it cannot be read for a while.
    pub(super) does_disk_fail: bool,
    pub(super) publications: Vec<Publication>,
    /// The publications that contain an event.
    pub(super) attempts: BTreeMap<EventNumber, Vec<usize>>,
    pub(super) links: Vec<Link>,
    /// The first observation at each place of each partition.
    pub(super) places: BTreeMap<(u32, u64), ReadEvent>,
    /// The places at which each event was seen.
    pub(super) found: BTreeMap<EventNumber, BTreeSet<(u32, u64)>>,
    pub(super) looks: Vec<Look>,
    pub(super) claims: Vec<Claim>,
    pub(super) lists: Vec<List>,
    pub(super) notes: Vec<Note>,
    pub(super) handled: Vec<Handled>,
    pub(super) fates: Vec<(Moment, String, Fate)>,
    pub(super) stages: Vec<(Moment, Stage)>,
    runs: BTreeMap<u32, Run>,
}

#[derive(Default)]
struct Open {
    publications: BTreeMap<u32, usize>,
    links: BTreeMap<u32, usize>,
    claims: BTreeMap<u32, usize>,
    lists: BTreeMap<u32, Moment>,
    notes: BTreeMap<u32, usize>,
    looks: BTreeMap<u32, (Moment, u32)>,
}

impl<'a> Chronicle<'a> {
    pub(super) fn new(scenario: &'a Scenario, entries: &[LogLine]) -> Option<Self> {
        let hub = scenario.hub.as_ref()?;
        let weather = &scenario.weather;
        let storm_ms = if weather.storm_one_in > 0 { weather.storm_ms_max } else { 0 };
        let work_ms = hub.readers.iter().map(|reader| reader.work_ms_max).max().unwrap_or(0);
        let mut chronicle = Chronicle {
            hub,
            does_disk_fail: scenario.machine.disk_errors
                || scenario.machine.power_cuts
                || scenario.machine.failing_reads_max > 0,
            under_way_ms_max: weather.delay_ms_max.max(storm_ms) + work_ms + 1_000,
            publications: Vec::new(),
            attempts: BTreeMap::new(),
            links: Vec::new(),
            places: BTreeMap::new(),
            found: BTreeMap::new(),
            looks: Vec::new(),
            claims: Vec::new(),
            lists: Vec::new(),
            notes: Vec::new(),
            handled: Vec::new(),
            fates: Vec::new(),
            stages: Vec::new(),
            runs: BTreeMap::new(),
        };
        let mut open = Open::default();
        for (index, entry) in entries.iter().enumerate() {
            let at = Moment { index, ms: entry.at_ms };
            match &entry.event {
                Event::Started { run, wall_ms } => {
                    let run_of =
                        Run { start_ms: entry.at_ms, end_ms: u64::MAX, wall_ms: *wall_ms, steps: Vec::new() };
                    chronicle.runs.insert(*run, run_of);
                }
                Event::Stepped { run, wall_ms } => {
                    if let Some(run) = chronicle.runs.get_mut(run) {
                        run.steps.push((entry.at_ms, *wall_ms));
                    }
                }
                Event::Ended { run, .. } => {
                    if let Some(run) = chronicle.runs.get_mut(run) {
                        run.end_ms = entry.at_ms;
                    }
                }
                Event::Hub(event) => {
                    chronicle.note_events(&mut open, at, entry, event);
                    chronicle.note_owners(&mut open, at, event);
                }
                _ => {}
            }
        }
        Some(chronicle)
    }

    fn note_events(&mut self, open: &mut Open, at: Moment, entry: &LogLine, event: &HubEvent) {
        match event.clone() {
            HubEvent::Publishing { request, partition, events, numbered, size_bytes, run } => {
                let number = self.publications.len();
                open.publications.insert(request, number);
                for event in &events {
                    self.attempts.entry(*event).or_default().push(number);
                }
                let (answered, answer) = (None, Answer::Unknown);
                let asked = at;
                self.publications.push(Publication {
                    partition,
                    events,
                    numbered,
                    size_bytes,
                    run,
                    asked,
                    answered,
                    answer,
                });
            }
            HubEvent::Published { request, answer } => {
                let number = open.publications.get(&request);
                if let Some(publication) = number.and_then(|number| self.publications.get_mut(*number)) {
                    (publication.answer, publication.answered) = (answer, Some(at));
                }
            }
            HubEvent::Opening { link: number, group, partition, start, level, run, is_wired } => {
                open.links.insert(number, self.links.len());
                let party = Arc::clone(&entry.party);
                let (opened, refused, events, ended) = (None, None, Vec::new(), None);
                let asked = at;
                self.links.push(Link {
                    number,
                    party,
                    group,
                    partition,
                    start,
                    level,
                    run,
                    is_wired,
                    asked,
                    opened,
                    refused,
                    events,
                    ended,
                });
            }
            HubEvent::Opened { link } => self.change(open, link, |link| link.opened = Some(at)),
            HubEvent::NotOpened { link, refusal } => {
                self.change(open, link, |link| link.refused = refusal.map(|refusal| (at, refusal)));
            }
            HubEvent::Read { link, events } => self.note_read(open, at, link, events),
            HubEvent::ReadEnded { link, how } => self.change(open, link, |link| link.ended = Some((at, how))),
            HubEvent::Looking { request, partition, .. } => {
                open.looks.insert(request, (at, partition));
            }
            HubEvent::Looked { request, begin, next, readers } => {
                if let Some((asked, partition)) = open.looks.remove(&request) {
                    self.looks.push(Look { partition, asked, answered: at, begin, next, readers });
                }
            }
            _ => {}
        }
    }

    fn change(&mut self, open: &Open, link: u32, change: impl FnOnce(&mut Link)) {
        if let Some(link) = open.links.get(&link).and_then(|number| self.links.get_mut(*number)) {
            change(link);
        }
    }

    fn note_read(&mut self, open: &Open, at: Moment, link: u32, events: Vec<ReadEvent>) {
        let Some(link) = open.links.get(&link).and_then(|number| self.links.get_mut(*number)) else { return };
        for event in events {
            let place = (link.partition, event.sequence);
            self.places.entry(place).or_insert_with(|| event.clone());
            if let Some(number) = event.number {
                self.found.entry(number).or_default().insert(place);
            }
            link.events.push((at, event));
        }
    }

    fn note_owners(&mut self, open: &mut Open, at: Moment, event: &HubEvent) {
        match event.clone() {
            HubEvent::Claiming { request, partition, owner, expected, .. } => {
                open.claims.insert(request, self.claims.len());
                let (answered, answer, owned) = (None, Answer::Unknown, None);
                self.claims.push(Claim { partition, owner, expected, asked: at, answered, answer, owned });
            }
            HubEvent::Claimed { request, answer, owned } => {
                let number = open.claims.get(&request);
                if let Some(claim) = number.and_then(|number| self.claims.get_mut(*number)) {
                    (claim.answered, claim.answer, claim.owned) = (Some(at), answer, owned);
                }
            }
            HubEvent::Listing { request, .. } => {
                open.lists.insert(request, at);
            }
            HubEvent::Listed { request, owned, checkpoints } => {
                if let Some(asked) = open.lists.remove(&request) {
                    let checkpoints = checkpoints.into_iter().collect();
                    self.lists.push(List { asked, answered: at, owned, checkpoints });
                }
            }
            HubEvent::Checkpointing { request, partition, sequence, owner, .. } => {
                open.notes.insert(request, self.notes.len());
                let (answered, answer) = (None, Answer::Unknown);
                self.notes.push(Note { partition, sequence, owner, asked: at, answered, answer });
            }
            HubEvent::Checkpointed { request, answer } => {
                let number = open.notes.get(&request);
                if let Some(note) = number.and_then(|number| self.notes.get_mut(*number)) {
                    (note.answered, note.answer) = (Some(at), answer);
                }
            }
            HubEvent::Handled { instance, partition, first, last } => {
                self.handled.push(Handled { at, instance, partition, first, last });
            }
            HubEvent::Instance { instance, fate } => self.fates.push((at, instance, fate)),
            HubEvent::Staged(stage) => self.stages.push((at, stage)),
            _ => {}
        }
    }

    /// Returns a run's clock at a world time.
    pub(super) fn wall(&self, run: u32, ms: u64) -> u64 {
        self.runs.get(&run).map_or(0, |run| run.wall(ms, |step_ms| step_ms < ms))
    }

    /// Returns the latest value of any clock of the broker up to a world time.
    pub(super) fn latest_wall(&self, ms: u64) -> u64 {
        let said = |run: &Run| run.wall(ms.min(run.end_ms), |step_ms| step_ms <= ms);
        self.runs.values().filter(|run| run.start_ms <= ms).map(said).max().unwrap_or(0)
    }

    pub(super) fn attempts_of(&self, event: EventNumber) -> impl Iterator<Item = &Publication> {
        let attempts = self.attempts.get(&event).into_iter().flatten();
        attempts.filter_map(|number| self.publications.get(*number))
    }

    /// Returns the first confirmation of an event.
    pub(super) fn confirmed(&self, event: EventNumber) -> Option<Moment> {
        let done = self.attempts_of(event).filter(|publication| publication.answer == Answer::Done);
        done.filter_map(|publication| publication.answered).min()
    }

    /// Returns the stages, each with its end.
    pub(super) fn staged(&self) -> impl Iterator<Item = (Stage, Moment, Moment)> {
        let ends = self.stages.iter().skip(1);
        self.stages.iter().zip(ends).map(|((from, stage), (upto, _))| (*stage, *from, *upto))
    }

    pub(super) fn figures(&self) -> String {
        let count = |has: fn(&Link) -> bool| self.links.iter().filter(|link| has(link)).count();
        let confirmed = self.publications.iter().filter(|publication| publication.answer == Answer::Done);
        let figures = [
            ("publications", self.publications.len()),
            ("confirmed", confirmed.count()),
            ("events seen", self.places.len()),
            ("links", count(|link| link.opened.is_some())),
            ("stolen", count(|link| matches!(link.ended, Some((_, ReadEnd::Stolen))))),
            ("overtaken", count(|link| matches!(link.ended, Some((_, ReadEnd::Expired { .. }))))),
            ("not let in", count(|link| link.refused.is_some())),
            ("claims", self.claims.iter().filter(|claim| claim.answer == Answer::Done).count()),
            (
                "lost claims",
                self.claims.iter().filter(|c| matches!(c.answer, Answer::Refused { .. })).count(),
            ),
            ("checkpoints", self.notes.iter().filter(|note| note.answer == Answer::Done).count()),
            (
                "refused ones",
                self.notes.iter().filter(|n| matches!(n.answer, Answer::Refused { .. })).count(),
            ),
        ];
        figures.map(|(name, count)| format!("{name} {count}")).join(", ")
    }
}
