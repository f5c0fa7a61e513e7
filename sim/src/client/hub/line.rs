//! A connection for events to one run of the broker. Answers take time, and connections are lost.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use peeklock_broker::hubs::block::Block;
use peeklock_broker::hubs::{Error as HubError, HubView, Producer, ReaderEnd, ReaderSpec, block};
use peeklock_broker::request::events::{Append, AttachReader};
use peeklock_broker::request::hubs::ShowProducer;
use peeklock_broker::request::receiving::{Credit, Detach, Window};
use peeklock_broker::{
    Ask, Batch, Broker, Drain, Error, Events, Fence, Partition, Peer, ReaderReply, Reply, Request, Ticket,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::{Party, body, hub_name};
use crate::log::{Answer, EventNumber, Numbered, ReadEnd, ReadEvent, Refusal};
use crate::machine::Visit;

/// The longest life of a connection that will be lost.
const LIFE_MS_MAX: u64 = 40_000;
/// The longest time before the broker notices a lost connection.
const SILENCE_MS_MAX: u64 = 30_000;
/// The time without an answer after which a client treats the connection as lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of the only reader of a connection.
const LOCAL: u32 = 1;

pub(crate) struct Line {
    broker: Broker,
    peer: Peer,
    replies: mpsc::UnboundedReceiver<Vec<Reply>>,
    ended: oneshot::Receiver<()>,
    /// Whether the run has ended.
    is_over: bool,
    pub(crate) run: u32,
    pub(crate) view: HubView,
    rng: Rng,
    lost_at: Option<Instant>,
    call_ms_max: u64,
    ticket: u64,
    /// Replies that arrived while the client waited for an answer.
    early: VecDeque<Reply>,
    shards: BTreeSet<usize>,
    fence: Fence,
    /// The total number of events that the reader accepts.
    limit: u64,
    /// Whether the broker notices at once when the connection is lost.
    is_loud: bool,
}

/// The error of a lost connection.
pub(crate) struct Lost;

/// The next thing that a reader receives.
pub(crate) enum Got {
    /// Events, with the credit and the window that they used.
    Events {
        events: Vec<ReadEvent>,
        count: u64,
        window_bytes: i64,
    },
    Ended(ReadEnd),
    /// Nothing arrived for a while.
    Silence,
}

impl Line {
    /// Connects, with as many attempts as needed.
    pub(crate) async fn open(party: &mut Party) -> Line {
        loop {
            party.pause_up_to(party.hub().call_ms_max).await;
            if let Some(visit) = party.world.office.visit()
                && let Some(line) = Line::try_open(party, visit).await
            {
                return line;
            }
            party.pause().await;
        }
    }

    async fn try_open(party: &mut Party, visit: Visit) -> Option<Line> {
        let Visit { broker, run, mut ended } = visit;
        let hub = party.hub();
        let (call_ms_max, lost_one_in) = (hub.call_ms_max, hub.lost_one_in);
        let name = hub_name(&hub.clone(), &mut party.rng);
        let view = tokio::select! {
            biased;
            _ = &mut ended => return None,
            view = tokio::time::timeout(PATIENCE, broker.hub(name)) => view.ok()?.ok()?,
        };
        let (peer, replies) = broker.peer();
        let mut rng = party.rng.fork();
        let is_lost = lost_one_in > 0 && rng.u32(0..lost_one_in) == 0 && !party.is_over();
        let lost_at = is_lost.then(|| Instant::now() + Duration::from_millis(rng.u64(0..LIFE_MS_MAX)));
        Some(Line {
            broker,
            peer,
            replies,
            ended,
            is_over: false,
            run,
            view,
            lost_at,
            call_ms_max: if party.is_over() { 2 } else { call_ms_max },
            ticket: 0,
            early: VecDeque::new(),
            shards: BTreeSet::new(),
            fence: Fence::default(),
            limit: 0,
            is_loud: party.is_over() || rng.bool(),
            rng,
        })
    }

    pub(crate) fn partition_count(&self) -> u32 {
        self.view.settings.partition_count
    }

    fn partition(&self, number: u32) -> Partition {
        Partition { hub: self.view.id, number }
    }

    async fn dawdle(&mut self) {
        let span = Duration::from_millis(self.rng.u64(0..=self.call_ms_max));
        tokio::time::sleep(span).await;
    }

    async fn tell(&mut self, partition: u32, batch: Batch) -> Result<(), Lost> {
        let shard = self.broker.place_partition(&self.view.name, partition);
        self.shards.insert(shard);
        let handle = self.broker.shard(shard).ok_or(Lost)?;
        handle.send(self.peer.clone(), batch).await.map_err(|_| Lost)
    }

    /// Returns the next reply of the broker, unless the connection is lost or `until` has passed.
    async fn hear(&mut self, until: Instant) -> Result<Option<Reply>, Lost> {
        loop {
            if self.is_over {
                return Err(Lost);
            }
            if let Some(reply) = self.early.pop_front() {
                return Ok(Some(reply));
            }
            let lost_at = self.lost_at.unwrap_or(until + PATIENCE);
            let replies = tokio::select! {
                biased;
                _ = &mut self.ended => {
                    self.is_over = true;
                    return Err(Lost);
                }
                () = tokio::time::sleep_until(lost_at) => return Err(Lost),
                replies = self.replies.recv() => replies.ok_or(Lost)?,
                () = tokio::time::sleep_until(until) => return Ok(None),
            };
            self.dawdle().await;
            self.early.extend(replies);
        }
    }

    /// Waits for an answer. Other replies are kept for later.
    async fn ask<R: Ask>(&mut self, partition: u32, request: R) -> Result<Result<R::Answer, Error>, Lost> {
        self.dawdle().await;
        self.ticket += 1;
        let mut batch = Batch::default();
        batch.ask(Ticket::new(self.ticket), request);
        self.tell(partition, batch).await?;
        let until = Instant::now() + PATIENCE;
        let mut others = VecDeque::new();
        let answer = loop {
            match self.hear(until).await? {
                // A line has one request at a time.
                Some(Reply::Answer(answer)) => {
                    if let Some(answered) = R::answered(answer) {
                        break answered.result;
                    }
                }
                Some(Reply::Stopped { .. }) | None => return Err(Lost),
                Some(other) => others.push_back(other),
            }
        };
        others.append(&mut self.early);
        self.early = others;
        Ok(answer)
    }

    pub(crate) async fn publish(
        &mut self,
        partition: u32,
        events: &[(EventNumber, usize)],
        numbered: Option<Numbered>,
    ) -> Answer {
        let of = self.partition(partition);
        let producer = numbered.map(|n| Producer { id: n.id, epoch: n.epoch, sequence: n.first });
        let mut block = Block::with_capacity(0);
        for (number, size) in events {
            let written = block.add(|out| {
                body::put_stored(out, *number, *size);
                Ok::<_, std::convert::Infallible>(())
            });
            written.unwrap_or_else(|never| match never {});
        }
        match self.ask(partition, Append { partition: of, block, producer }).await {
            Ok(Ok(())) => Answer::Done,
            Ok(Err(why)) => Answer::Refused { lock_lost: false, why: why.to_string() },
            Err(Lost) => Answer::Unknown,
        }
    }

    /// Returns the number of the producer's last event in the broker.
    pub(crate) async fn last_number(&mut self, partition: u32, id: i64) -> Option<Option<(i16, i32)>> {
        match self.ask(partition, ShowProducer { partition: self.partition(partition), id }).await {
            Ok(Ok(known)) => Some(known.map(|known| (known.epoch, known.sequence))),
            _ => None,
        }
    }

    /// Attaches a reader. `Err(None)` means that there was no answer.
    pub(crate) async fn attach(
        &mut self,
        partition: u32,
        spec: ReaderSpec,
        credit: u32,
        window_bytes: i64,
    ) -> Result<(), Option<Refusal>> {
        let (of, receiver, fence) =
            (self.partition(partition), self.peer.id.receiver(LOCAL), self.fence.clone());
        let request = AttachReader { partition: of, receiver, spec: Box::new(spec), fence };
        match self.ask(partition, request).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(Some(refusal(why))),
            Err(Lost) => return Err(None),
        }
        self.allow(partition, credit.into(), window_bytes).await.map_err(|Lost| None)
    }

    /// Gives the reader more credit and window.
    pub(crate) async fn allow(&mut self, partition: u32, count: u64, window_bytes: i64) -> Result<(), Lost> {
        self.limit += count;
        let receiver = self.peer.id.receiver(LOCAL);
        let mut batch = Batch::default();
        batch.push(Credit { receiver, limit: self.limit, drain: Drain::Keep });
        batch.push(Window { receiver, size_bytes: window_bytes });
        self.tell(partition, batch).await
    }

    /// Returns the next event for the reader.
    pub(crate) async fn next(&mut self, wait: Duration) -> Got {
        let until = Instant::now() + wait;
        loop {
            match self.hear(until).await {
                Ok(Some(Reply::Reader(ReaderReply::Events(events)))) if !self.fence.is_closed() => {
                    return got(*events);
                }
                Ok(Some(Reply::Reader(ReaderReply::Ended { reason, .. }))) => {
                    return Got::Ended(read_end(*reason));
                }
                Ok(Some(Reply::Stopped { .. })) | Err(Lost) => return Got::Ended(ReadEnd::Lost),
                Ok(Some(_)) => {}
                Ok(None) => return Got::Silence,
            }
        }
    }

    /// Ends the reader in an orderly way.
    pub(crate) async fn detach(&mut self, partition: u32) {
        let receiver = self.peer.id.receiver(LOCAL);
        let _ = self.ask(partition, Detach { receiver }).await;
    }
}

impl Drop for Line {
    /// Ends the connection. The broker notices that at once, or after a random time.
    fn drop(&mut self) {
        let silence_ms = if self.is_loud { 0 } else { self.rng.u64(0..SILENCE_MS_MAX) };
        let (broker, peer, shards) =
            (self.broker.clone(), self.peer.clone(), std::mem::take(&mut self.shards));
        if self.is_over {
            return;
        }
        let ended = std::mem::replace(&mut self.ended, oneshot::channel().1);
        tokio::spawn(async move {
            // A waiting task does not delay the end of a run.
            if tokio::time::timeout(Duration::from_millis(silence_ms), ended).await.is_ok() {
                return;
            }
            for shard in shards {
                if let Some(handle) = broker.shard(shard) {
                    let _ = handle.send(peer.clone(), Request::Gone.into()).await;
                }
            }
        });
    }
}

fn got(events: Events) -> Got {
    let Events { from, upto, not_before, extents, window_bytes, .. } = events;
    let mut found = Vec::new();
    for event in extents.into_iter().flat_map(|extent| block::events(extent, from)) {
        match event {
            Ok(event) if event.sequence < upto => {
                let is_early = not_before.is_some_and(|not_before| event.enqueued_at < not_before);
                if !is_early {
                    let (number, is_intact) = body::read_stored(&event.bytes);
                    let enqueued_ms = event.enqueued_at.as_millis();
                    found.push(ReadEvent { sequence: event.sequence, enqueued_ms, number, is_intact });
                }
            }
            Ok(_) => {}
            Err(why) => return Got::Ended(ReadEnd::Other(why.to_string())),
        }
    }
    Got::Events { events: found, count: upto - from, window_bytes }
}

pub(crate) fn refusal(why: Error) -> Refusal {
    let Error::Hub(hub) = why else { return Refusal::Other(why.to_string()) };
    match *hub {
        HubError::OwnerLevel { current, .. } | HubError::NoOwnerLevel { current, .. } => {
            Refusal::OwnerLevel { current }
        }
        HubError::TooManyReaders { .. } => Refusal::TooMany,
        HubError::BeyondEnd { last, .. } => Refusal::BeyondEnd { last },
        HubError::Expired { first, .. } => Refusal::Expired { first },
        HubError::NoSuchGroup { .. } | HubError::NoSuchPartition { .. } | HubError::NoSuchStream { .. } => {
            Refusal::Missing
        }
        other => Refusal::Other(other.to_string()),
    }
}

fn read_end(reason: ReaderEnd) -> ReadEnd {
    match reason {
        ReaderEnd::Stolen { .. } => ReadEnd::Stolen,
        ReaderEnd::Expired { next, first } => ReadEnd::Expired { next, first },
        ReaderEnd::Deleted => ReadEnd::Deleted,
        other => ReadEnd::Other(format!("{other:?}")),
    }
}
