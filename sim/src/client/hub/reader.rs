//! Reads events from any position, slowly or fast, alone or against other readers, and resumes at its last event.

use std::time::Duration;

use peeklock_broker::hubs::{ReaderSpec, StartAt};
use peeklock_types::Timestamp;

use super::{Got, Line, Party, group_name, some_partition};
use crate::log::{HubEvent, ReadEnd, Refusal};
use crate::machine::WALL_START_MS;
use crate::scenario::HubReader;

const LOOKS_MAX: u32 = 60;
const SILENCE: Duration = Duration::from_secs(5);
/// The longest time that a reader goes back.
const BACK_MS_MAX: u64 = 60_000;

pub(crate) async fn read(mut party: Party, spec: HubReader) {
    let mut last = None;
    let mut partition = some_partition(&mut party, spec.partition);
    while !party.is_over() {
        let mut line = Line::open(&mut party).await;
        if party.rng.u32(0..4) == 0 {
            (partition, last) = (some_partition(&mut party, spec.partition), None);
        }
        let start = start(&mut party, last);
        let link = Link { spec: &spec, partition, link: party.world.log.next_request() };
        if link.open(&mut party, &mut line, start).await {
            link.follow(&mut party, &mut line, &mut last).await;
        } else {
            last = None;
        }
        drop(line);
        party.pause().await;
    }
}

/// Returns a start position: mostly the last event.
pub(super) fn start(party: &mut Party, last: Option<u64>) -> StartAt {
    let inclusive = party.rng.bool();
    match (party.rng.u32(0..8), last) {
        (0, _) => StartAt::Latest,
        (1, _) => {
            let back_ms = party.rng.u64(0..BACK_MS_MAX);
            let at = (WALL_START_MS + party.world.log.now_ms()).saturating_sub(back_ms);
            StartAt::Time { at: Timestamp::from_millis(at), inclusive }
        }
        (2, Some(last)) => StartAt::Sequence { sequence: party.rng.u64(0..=last), inclusive },
        (3.., Some(last)) => StartAt::Sequence { sequence: last, inclusive: false },
        (2.., None) => StartAt::Earliest,
    }
}

struct Link<'a> {
    spec: &'a HubReader,
    partition: u32,
    link: u32,
}

impl Link<'_> {
    async fn open(&self, party: &mut Party, line: &mut Line, start: StartAt) -> bool {
        let HubReader { group, level, credit, window_bytes, .. } = *self.spec;
        let (link, partition, run) = (self.link, self.partition, line.run);
        party.log_hub(HubEvent::Opening { link, group, partition, start, level, run, is_wired: false });
        let group = group_name(group, &mut party.rng);
        // Like the gateway: a partition has no list of consumer groups.
        if !line.view.groups.iter().any(|known| known.name == group) {
            party.log_hub(HubEvent::NotOpened { link, refusal: Some(Refusal::Missing) });
            return false;
        }
        let hub_revision = line.view.revision;
        let spec =
            ReaderSpec { group, start, owner_level: level, hub_revision, name: Some(party.name.to_string()) };
        let attached = line.attach(partition, spec, credit, window_bytes).await;
        match &attached {
            Ok(()) => party.log_hub(HubEvent::Opened { link }),
            Err(refusal) => party.log_hub(HubEvent::NotOpened { link, refusal: refusal.clone() }),
        }
        attached.is_ok()
    }

    async fn follow(&self, party: &mut Party, line: &mut Line, last: &mut Option<u64>) {
        let link = self.link;
        let mut withheld = 0;
        for _ in 0..party.rng.u32(1..=LOOKS_MAX) {
            match line.next(SILENCE).await {
                Got::Events { events, count, window_bytes } => {
                    *last = events.last().map(|event| event.sequence).or(*last);
                    party.log_hub(HubEvent::Read { link, events });
                    party.pause_up_to(self.spec.work_ms_max).await;
                    // Sometimes it gives no credit for a while, and then more at once.
                    withheld += count;
                    let gives = party.rng.u32(0..5) > 0;
                    let credit = if gives { std::mem::take(&mut withheld) } else { 0 };
                    let _ = line.allow(self.partition, credit, window_bytes).await;
                }
                Got::Ended(how) => return party.log_hub(HubEvent::ReadEnded { link, how }),
                Got::Silence => {
                    let _ = line.allow(self.partition, std::mem::take(&mut withheld), 0).await;
                }
            }
        }
        if party.rng.bool() {
            line.detach(self.partition).await;
        }
        party.log_hub(HubEvent::ReadEnded { link, how: ReadEnd::Left });
    }
}
