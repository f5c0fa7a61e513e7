//! Readers: events from partitions to links.
//!
//! What a shard has read for a reader waits in its link, and is written as the peer's credit, its session window and the output allow. So a peer that
//! takes nothing holds up no other link, and nothing of its own beyond the window that it was given.

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

/// Bytes of events that may be under way from a shard to one link.
pub(super) const READER_WINDOW_BYTES: i64 = 1024 * 1024;
/// While so much waits to be written, no more events are added to it.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// What one link may add before others have their turn.
const TURN_BYTES: usize = 64 * 1024;

/// The peer reads events of a partition.
pub(crate) struct ReaderLink {
    address: HubAddress,
    pub(crate) shard: usize,
    receiver: ReceiverId,
    fence: Fence,
    wants_metrics: bool,
    runs: VecDeque<Run>,
    /// Events of runs that are done with.
    passed_count: u64,
    /// How far the shard may count.
    limit: u64,
    /// What of the window is free again, and the shard has not been told.
    free_bytes: i64,
    /// Of the event that was written last.
    last_tag: u32,
    /// The shard has handed out what there was, and the peer waits to hear it.
    is_drained: bool,
    /// It is in the line of those that have something to write.
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

    /// How many events the shard may have named in all: those that have gone, and those that the peer has credit for. Runs that wait here have to
    /// do with the same credit. That it may be without bound is the peer's affair: the window bounds what is under way.
    fn limit_with(&self, credit: u32) -> u64 {
        let waiting = self.runs.front().map_or(0, Run::passed_count);
        self.passed_count + waiting + u64::from(credit)
    }

    /// What has become free of the window, once it is worth telling.
    fn take_free(&mut self) -> Option<i64> {
        (self.free_bytes >= READER_WINDOW_BYTES / 4).then(|| std::mem::take(&mut self.free_bytes))
    }
}

/// How a turn of a link has ended.
enum Turn {
    /// It has more to write, and room for it.
    More,
    /// It has written everything, or must wait for the peer.
    Done,
    /// What was stored cannot be read.
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

    /// There may be something to write for the link.
    pub(crate) fn line_up(&mut self, context: &mut Context<'_>, number: LinkNumber) {
        if let Some(LinkKind::Reader(reader)) = context.links.get_mut(number).map(|link| &mut link.kind)
            && !std::mem::replace(&mut reader.is_in_line, true)
        {
            self.line.push_back(number);
        }
    }

    /// Writes events, link by link, until enough waits to be written.
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
        // Events that were left out have used no credit, but the shard has counted them.
        let is_short = reader.limit_with(credit) > reader.limit;
        if reader.is_drained && is_empty {
            reader.is_drained = false;
            if is_short {
                // It has come to its limit, not to the end.
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
        // Somebody else has the partition: what is here is not this reader's any more.
        if reader.fence.is_closed() {
            reader.runs.clear();
        }
        if let Some(turn) = turn {
            return turn;
        }
    }
}

/// Writes events of one run. `None`: it is done with, or not this reader's any more.
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
        // A link that is going needs no more events.
        Ok(()) | Err(SendError::NotAttached) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
