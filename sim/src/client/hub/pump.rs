//! Reads one partition for an instance, from the checkpoint on, and writes checkpoints.

use std::sync::Arc;
use std::time::Duration;

use peeklock_broker::hubs::{ReaderSpec, StartAt};

use super::staff::Pulse;
use super::{Got, Line, Party, group_name};
use crate::log::{Answer, HubEvent, Owned, ReadEnd, ReadEvent, Refusal};
use crate::scenario::hub::WORKERS;

const SILENCE: Duration = Duration::from_millis(300);
const CREDIT: u32 = 50;
const WINDOW_BYTES: i64 = 1 << 20;
const WORK_MS_MAX: u64 = 30;

pub(super) struct Pump {
    party: Party,
    instance: String,
    owned: Owned,
    pulse: Arc<Pulse>,
    checkpoint_every: u64,
    /// The last event that the pump has handled.
    last: Option<u64>,
    noted: Option<u64>,
    /// Whether retention removed the checkpoint's event, so that reading continues at the first remaining one.
    is_overtaken: bool,
}

/// The decision about another attempt.
enum Next {
    Again,
    Over,
}

impl Pump {
    pub(super) fn new(party: Party, instance: &str, owned: Owned, pulse: Arc<Pulse>, every: u64) -> Self {
        let instance = instance.to_owned();
        Pump {
            party,
            instance,
            owned,
            pulse,
            checkpoint_every: every,
            last: None,
            noted: None,
            is_overtaken: false,
        }
    }

    pub(super) async fn work(mut self) {
        while let Next::Again = self.turn().await {
            if self.pulse.is_stopping() {
                return;
            }
            self.party.pause_up_to(200).await;
        }
    }

    /// Opens a reader and follows it until it ends.
    async fn turn(&mut self) -> Next {
        self.pulse.beat().await;
        let partition = self.owned.partition;
        if self.last.is_none() && !self.is_overtaken {
            let Some(listed) = self.party.list(WORKERS).await else { return Next::Again };
            let checkpoint = listed.checkpoints.iter().find(|(of, _)| *of == partition);
            self.last = checkpoint.map(|(_, sequence)| *sequence);
            self.noted = self.last;
        }
        let start = match self.last {
            Some(sequence) if !self.is_overtaken => StartAt::Sequence { sequence, inclusive: false },
            _ => StartAt::Earliest,
        };
        let mut line = Line::open(&mut self.party).await;
        let (link, run) = (self.party.world.log.next_request(), line.run);
        let level = i64::try_from(self.owned.epoch).ok();
        self.party.log_hub(HubEvent::Opening {
            link,
            group: WORKERS,
            partition,
            start,
            level,
            run,
            is_wired: false,
        });
        let group = group_name(WORKERS, &mut self.party.rng);
        let hub_revision = line.view.revision;
        let name = Some(self.instance.clone());
        let spec = ReaderSpec { group, start, owner_level: level, hub_revision, name };
        if let Err(refusal) = line.attach(partition, spec, CREDIT, WINDOW_BYTES).await {
            self.party.log_hub(HubEvent::NotOpened { link, refusal: refusal.clone() });
            return match refusal {
                Some(Refusal::Expired { .. }) => {
                    self.is_overtaken = true;
                    Next::Again
                }
                Some(Refusal::OwnerLevel { .. }) => Next::Over,
                _ => Next::Again,
            };
        }
        self.party.log_hub(HubEvent::Opened { link });
        self.is_overtaken = false;
        let (how, next) = self.follow(&mut line, link).await;
        self.party.log_hub(HubEvent::ReadEnded { link, how });
        next
    }

    async fn follow(&mut self, line: &mut Line, link: u32) -> (ReadEnd, Next) {
        loop {
            let got = line.next(SILENCE).await;
            match got {
                Got::Events { events, count, window_bytes } => {
                    self.party.log_hub(HubEvent::Read { link, events: events.clone() });
                    if let Next::Over = self.handle(&events).await {
                        return (ReadEnd::Left, Next::Over);
                    }
                    let _ = line.allow(self.owned.partition, count, window_bytes).await;
                }
                Got::Ended(ReadEnd::Expired { next, first }) => {
                    self.is_overtaken = true;
                    return (ReadEnd::Expired { next, first }, Next::Again);
                }
                Got::Ended(ReadEnd::Lost) => return (ReadEnd::Lost, Next::Again),
                Got::Ended(how) => return (how, Next::Over),
                Got::Silence => self.pulse.beat().await,
            }
            if self.pulse.is_stopping() {
                self.note().await;
                line.detach(self.owned.partition).await;
                return (ReadEnd::Left, Next::Over);
            }
        }
    }

    async fn handle(&mut self, events: &[ReadEvent]) -> Next {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Next::Again };
        self.party.pause_up_to(WORK_MS_MAX).await;
        self.pulse.beat().await;
        self.last = Some(last.sequence);
        let (instance, partition) = (self.instance.clone(), self.owned.partition);
        let (first, last) = (first.sequence, last.sequence);
        self.party.log_hub(HubEvent::Handled { instance, partition, first, last });
        let is_due = self.noted.is_none_or(|noted| last - noted.min(last) >= self.checkpoint_every);
        if is_due { self.note().await } else { Next::Again }
    }

    /// Writes a checkpoint. A former owner gets a rejection and ends.
    async fn note(&mut self) -> Next {
        if self.last == self.noted {
            return Next::Again;
        }
        let owner = Some((self.instance.clone(), self.owned.epoch));
        let answer = self.party.checkpoint(WORKERS, self.owned.partition, self.last, owner).await;
        match answer {
            Answer::Done => {
                self.noted = self.last;
                Next::Again
            }
            Answer::Refused { lock_lost: true, .. } => Next::Over,
            _ => Next::Again,
        }
    }
}
