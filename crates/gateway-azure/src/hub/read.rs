//! Readers: events from partitions to links.
//!
//! Events that a shard has read for a reader wait in its link, and are written as the peer's credit, its session window
//! and the output limit permit. So a peer that does not read delays no other link, and has no more events in memory
//! than its window.

use std::collections::VecDeque;

use peeklock_amqp::connection::{Connection, LinkId, Outgoing, SendError};
use peeklock_amqp::{DeliveryTag, condition};
use peeklock_broker::hubs::ReaderEnd;
use peeklock_broker::hubs::block::EventPlace;
use peeklock_broker::request::receiving::{Credit, Window};
use peeklock_broker::{Drain, Events, Fence, PeerId};
use peeklock_message::{EventStamp, StoredEvent, timestamp};
use peeklock_types::ReceiverId;

use super::address::HubAddress;
use super::error::end_refusal;
use super::run::Run;
use crate::connection::context::Context;
use crate::connection::link::{LinkKind, LinkNumber};
use crate::error::Refusal;
use crate::hub::Hubs;

/// The limit on bytes of events in flight from a shard to one link.
pub(super) const READER_WINDOW_BYTES: i64 = 1024 * 1024;
/// The limit on unwritten output above which no more events are added.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// The bytes that one link may add before the next link has its turn.
const TURN_BYTES: usize = 64 * 1024;

/// A link on which the peer reads events of a partition.
pub(crate) struct ReaderLink {
    address: HubAddress,
    pub(crate) shard: usize,
    receiver: ReceiverId,
    fence: Fence,
    wants_metrics: bool,
    runs: VecDeque<Run>,
    /// Events of completed runs.
    passed_count: u64,
    /// The number of events up to which the shard may send.
    limit: u64,
    /// Bytes of the window that are free again and not yet reported to the shard.
    free_bytes: i64,
    /// The delivery tag of the last written event.
    last_tag: u32,
    /// The shard has sent all available events; the peer waits for the drain to be confirmed.
    is_drained: bool,
    /// Whether the link is in the line of links with events to write.
    is_in_line: bool,
}

/// Links with events to write, each once.
pub(crate) type ReaderLine = VecDeque<LinkNumber>;

impl ReaderLink {
    pub(super) fn new(
        address: HubAddress,
        shard: usize,
        receiver: ReceiverId,
        fence: Fence,
        wants_metrics: bool,
    ) -> Self {
        ReaderLink {
            address,
            shard,
            receiver,
            fence,
            wants_metrics,
            runs: VecDeque::new(),
            passed_count: 0,
            limit: 0,
            free_bytes: 0,
            last_tag: 0,
            is_drained: false,
            is_in_line: false,
        }
    }

    /// Returns the total number of events that the shard may send: those that were sent to the peer, and those that the
    /// peer has credit for. Runs that wait here count against the same credit. The credit may be unlimited; the window
    /// limits the bytes in flight.
    fn limit_with(&self, credit: u32) -> u64 {
        let waiting = self.runs.front().map_or(0, Run::passed_count);
        self.passed_count + waiting + u64::from(credit)
    }

    /// Returns the free bytes of the window, once there are enough to report.
    fn take_free(&mut self) -> Option<i64> {
        (self.free_bytes >= READER_WINDOW_BYTES / 4).then(|| std::mem::take(&mut self.free_bytes))
    }
}

/// The end of a link's turn.
enum Turn {
    /// The link has more to write, and room for it.
    More,
    /// The link has written everything, or must wait for the peer.
    Done,
    /// The stored events cannot be decoded.
    Broken(String),
}

impl Hubs {
    pub(crate) fn on_read(&mut self, context: &mut Context<'_>, events: Events) {
        let number = LinkNumber(PeerId::local(events.receiver));
        let Some(LinkKind::Reader(reader)) = context.links.get_mut(number).map(|link| &mut link.kind) else {
            return;
        };
        if !reader.fence.is_closed() {
            reader.runs.push_back(Run::new(events, reader.wants_metrics));
            self.line_up(context, number);
        }
    }

    /// Adds a link that may have events to write to the line.
    pub(crate) fn line_up(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        if let Some(LinkKind::Reader(reader)) = context.links.get_mut(number).map(|link| &mut link.kind)
            && !std::mem::replace(&mut reader.is_in_line, true)
        {
            self.line.push_back(number);
        }
    }

    /// Writes events, link by link, up to the output limit.
    pub(crate) fn pump_readers(&mut self, context: &mut Context<'_>) {
        while context.connection.output_len() < OUTPUT_BYTES_MAX
            && let Some(number) = self.line.pop_front()
        {
            self.take_turn(context, number);
        }
    }

    fn take_turn(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        let Some(link) = context.links.get_mut(number) else { return };
        let id = link.id;
        let LinkKind::Reader(reader) = &mut link.kind else { return };
        reader.is_in_line = false;
        let turn = write_events(&mut context.connection, id, reader, &mut context.scratch);
        let (shard, receiver, free) = (reader.shard, reader.receiver, reader.take_free());
        if let Some(size_bytes) = free {
            context.push(shard, Window { receiver, size_bytes });
        }
        match turn {
            Turn::More => self.line_up(context, number),
            Turn::Done => self.finish_turn(context, number),
            Turn::Broken(why) => self.break_off(context, number, &why),
        }
    }

    fn finish_turn(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        let Some(link) = context.links.get_mut(number) else { return };
        let LinkKind::Reader(reader) = &mut link.kind else { return };
        let credit = context.connection.credit(link.id);
        let is_empty = reader.runs.is_empty() || credit == 0;
        // Omitted events have used no credit, but the shard has counted them.
        let is_short = reader.limit_with(credit) > reader.limit;
        if reader.is_drained && is_empty {
            reader.is_drained = false;
            if is_short {
                // The reader has reached its limit, not the end of the partition.
                self.grant_reader(context, number, Drain::Start);
            } else {
                context.connection.drained(link.id);
            }
            return;
        }
        if is_short {
            self.grant_reader(context, number, Drain::Keep);
        }
    }

    fn break_off(&mut self, context: &mut Context<'_>, number: LinkNumber, why: &str) {
        let Some(link) = context.links.get_mut(number) else { return };
        let LinkKind::Reader(reader) = &mut link.kind else { return };
        reader.runs.clear();
        let text = format!("the events of '{}' cannot be read back: {why}", reader.address);
        tracing::error!("{text}");
        let id = link.id;
        context.connection.detach(id, Some(Refusal::new(500, condition::INTERNAL_ERROR, text).into()));
    }

    pub(crate) fn on_reader_flow(&mut self, context: &mut Context<'_>, number: LinkNumber, drain: bool) {
        if let Some(LinkKind::Reader(reader)) = context.links.get_mut(number).map(|link| &mut link.kind) {
            reader.is_drained = false;
        }
        self.grant_reader(context, number, if drain { Drain::Start } else { Drain::Cancel });
        self.line_up(context, number);
    }

    pub(crate) fn grant_reader(&mut self, context: &mut Context<'_>, number: LinkNumber, drain: Drain) {
        let Some(link) = context.links.get_mut(number) else { return };
        let LinkKind::Reader(reader) = &mut link.kind else { return };
        reader.limit = reader.limit_with(context.connection.credit(link.id));
        let (shard, receiver, limit) = (reader.shard, reader.receiver, reader.limit);
        context.push(shard, Credit { receiver, limit, drain });
    }

    pub(crate) fn on_reader_drained(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        if let Some(LinkKind::Reader(reader)) = context.links.get_mut(number).map(|link| &mut link.kind) {
            reader.is_drained = true;
            self.line_up(context, number);
        }
    }

    pub(crate) fn on_reader_ended(
        &mut self,
        context: &mut Context<'_>,
        number: LinkNumber,
        reason: &ReaderEnd,
    ) {
        let Some(link) = context.links.get_mut(number) else { return };
        let id = link.id;
        match &mut link.kind {
            LinkKind::Reader(reader) => {
                reader.runs.clear();
                let refusal = end_refusal(reason, &reader.address);
                context.connection.detach(id, Some(refusal.at(&context.host).into()));
            }
            LinkKind::PendingHub(pending) => {
                let refusal = end_refusal(reason, &pending.address);
                context.links.remove(number);
                context.connection.refuse(id, refusal.at(&context.host).into());
            }
            _ => {}
        }
    }
}

fn write_events(
    connection: &mut Connection,
    id: LinkId,
    reader: &mut ReaderLink,
    scratch: &mut bytes::BytesMut,
) -> Turn {
    let enough = connection.output_len() + TURN_BYTES;
    loop {
        let Some(run) = reader.runs.front_mut() else { return Turn::Done };
        let turn = write_run(connection, id, run, (&reader.fence, &mut reader.last_tag), enough, scratch);
        reader.free_bytes += run.take_window();
        if run.is_done() {
            reader.passed_count += run.passed_count();
            reader.runs.pop_front();
        }
        // Another reader owns the partition, so these events must not be written any more.
        if reader.fence.is_closed() {
            reader.runs.clear();
        }
        if let Some(turn) = turn {
            return turn;
        }
    }
}

/// Writes events of one run. Returns `None` if the run is complete or the reader's fence is closed.
fn write_run(
    connection: &mut Connection,
    id: LinkId,
    run: &mut Run,
    (fence, last_tag): (&Fence, &mut u32),
    enough: usize,
    scratch: &mut bytes::BytesMut,
) -> Option<Turn> {
    while !run.is_done() && !fence.is_closed() {
        if connection.output_len() >= enough {
            return Some(Turn::More);
        }
        if connection.sendable(id) == 0 {
            return Some(Turn::Done);
        }
        let sent = match run.next_event() {
            Ok(Some(event)) => {
                *last_tag = last_tag.wrapping_add(1);
                write_event(connection, id, *last_tag, run, &event, scratch)
            }
            Ok(None) => Ok(()),
            Err(damage) => Err(damage.to_string()),
        };
        if let Err(why) = sent {
            return Some(Turn::Broken(why));
        }
    }
    None
}

fn write_event(
    connection: &mut Connection,
    id: LinkId,
    tag: u32,
    run: &Run,
    event: &EventPlace,
    scratch: &mut bytes::BytesMut,
) -> Result<(), String> {
    let stored = StoredEvent::parse(run.bytes_of(event)).map_err(|error| error.to_string())?;
    let enqueued_at_ms = timestamp(event.enqueued_at);
    let outgoing = Outgoing { tag: DeliveryTag::from(tag), message_format: 0, settled: true, state: None };
    scratch.clear();
    let delivery_annotations = run.annotations();
    let stamp = EventStamp { sequence: event.sequence, enqueued_at_ms, delivery_annotations };
    let rest = stored.write_front(scratch, &stamp);
    match connection.send(id, &outgoing, &[scratch, rest]) {
        // A link that is being detached needs no more events.
        Ok(()) | Err(SendError::NotAttached) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
