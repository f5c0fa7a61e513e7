//! One session: transfer numbering, windows, and the settlements that wait to be merged.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};

use super::ring::Ring;
use super::table::Table;
use super::{Config, DeliveryId, Limits, LinkId, Outgoing, wire};
use crate::{Begin, DeliveryState, Disposition, Flow, Role};

/// The number of transfers that we announce as ready to send. We have no limit of our own, so the number is never
/// reached.
const OUTGOING_WINDOW: u32 = i32::MAX.unsigned_abs();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// We sent begin, the peer has not answered.
    BeginSent,
    Mapped,
    /// We sent end. `announce`: the driver still expects its `SessionEnded`.
    EndSent {
        announce: bool,
    },
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: State,
    /// The channel of frames we send.
    pub(super) channel: u16,
    /// The channel of frames the peer sends; none before its begin.
    pub(super) remote_channel: Option<u16>,
    /// Links by the handle in frames we send.
    pub(super) handles: Table<LinkId>,
    /// Links by the handle in frames the peer sends.
    pub(super) remote_handles: Table<LinkId>,
    /// The highest handle we may use.
    pub(super) remote_handle_max: u32,

    pub(super) outgoing: Ring,
    /// Transfer-id of the next frame we send; counts frames, not deliveries.
    next_outgoing_id: u32,
    first_outgoing_id: u32,
    /// Transfer frames the peer has room for.
    peer_window: u32,
    /// Sends that found no room, in order. The first may have begun.
    pub(super) waiting: VecDeque<Waiting>,

    pub(super) incoming: Ring,
    /// The expected transfer-id of the peer's next frame, by our own count.
    // SDK quirk: pyamqp counts deliveries, not frames, so the ids that a peer announces are never compared.
    next_incoming_id: u32,
    /// Transfer frames that the peer may still send in the window that we last announced.
    window_left: u32,

    run: Option<Run>,
    /// Listed among the sessions with pending output.
    pub(super) is_dirty: bool,
}

/// A delivery, or the rest of one, that waits for the peer's window.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) link: LinkId,
    pub(super) delivery: Outgoing,
    pub(super) has_begun: bool,
    pub(super) payload: Bytes,
    pub(super) end: End,
}

/// The end of the delivery, relative to the bytes of a queued send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The delivery ends with these bytes.
    Whole,
    /// More parts of the delivery follow.
    Open,
    /// The sender aborts the delivery: there are no bytes.
    Aborted,
}

impl Waiting {
    /// Returns the bytes held. An empty payload has a cost too, so that the limit bounds the queue.
    pub(super) fn cost(&self) -> usize {
        size_of::<Self>() + self.payload.len()
    }
}

/// Neighbouring deliveries with the same disposition.
#[derive(Debug)]
struct Run {
    role: Role,
    first: DeliveryId,
    last: DeliveryId,
    settled: bool,
    state: DeliveryState,
}

impl Session {
    pub(super) fn new(state: State, channel: u16, config: &Config) -> Self {
        Self {
            state,
            channel,
            remote_channel: None,
            handles: Table::new(),
            remote_handles: Table::new(),
            remote_handle_max: u32::MAX,
            outgoing: Ring::outgoing(config.first_delivery_id),
            next_outgoing_id: config.next_outgoing_id,
            first_outgoing_id: config.next_outgoing_id,
            peer_window: 0,
            waiting: VecDeque::new(),
            incoming: Ring::incoming(),
            next_incoming_id: 0,
            window_left: config.incoming_window,
            run: None,
            is_dirty: false,
        }
    }

    pub(super) fn begin(&self, config: &Config) -> Begin {
        let mut begin = Begin::new(self.next_outgoing_id, config.incoming_window, OUTGOING_WINDOW);
        begin.remote_channel = self.remote_channel;
        begin.handle_max = config.handle_max;
        begin
    }

    /// Stores the terms from the peer's begin.
    pub(super) fn learn(&mut self, channel: u16, begin: &Begin) {
        self.remote_channel = Some(channel);
        self.remote_handle_max = begin.handle_max;
        self.next_incoming_id = begin.next_outgoing_id;
        self.peer_window = begin.incoming_window;
    }

    pub(super) fn has_window(&self) -> bool {
        self.peer_window > 0
    }

    /// Returns the number of small sends that would leave at once: limited by the frames that the peer has room for and
    /// by our limit on unsettled deliveries.
    pub(super) fn room(&self, limits: &Limits) -> u32 {
        if !self.waiting.is_empty() {
            return 0;
        }
        self.peer_window.min(limits.unsettled_outgoing_max.saturating_sub(self.outgoing.unsettled()))
    }

    /// Returns the number of frames that would leave at once.
    pub(super) fn frame_room(&self) -> u32 {
        if self.waiting.is_empty() { self.peer_window } else { 0 }
    }

    /// Counts an outgoing transfer frame.
    pub(super) fn count_outgoing(&mut self) {
        self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
        self.peer_window = self.peer_window.saturating_sub(1);
    }

    /// Counts an incoming transfer frame. Returns true when the peer should soon get a larger window.
    // SDK quirk: pyamqp does not respect the window exactly, so a frame beyond it is accepted all the same.
    pub(super) fn count_incoming(&mut self, config: &Config) -> bool {
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
        self.window_left = self.window_left.saturating_sub(1);
        self.window_left <= config.incoming_window / 2
    }

    /// Computes the peer's window, which starts at its next id: frames that it has not seen are subtracted (AMQP 1.0
    /// §2.5.6).
    pub(super) fn handle_flow(&mut self, flow: &Flow) {
        let next = flow.next_incoming_id.unwrap_or(self.first_outgoing_id);
        let unseen = self.next_outgoing_id.wrapping_sub(next).cast_signed();
        let window = i64::from(flow.incoming_window) - i64::from(unseen);
        self.peer_window = u32::try_from(window.max(0)).unwrap_or(u32::MAX);
    }

    fn incoming_window(&self, config: &Config) -> u32 {
        let room = config.limits.unsettled_incoming_max.saturating_sub(self.incoming.unsettled());
        config.incoming_window.min(room)
    }

    /// Returns the session's part of a flow. The caller must send it, because the window counts as announced.
    pub(super) fn flow(&mut self, config: &Config) -> Flow {
        self.window_left = self.incoming_window(config);
        Flow {
            // rhea computes NaN without it; before the peer's begin there is no id to announce (AMQP 1.0 §2.7.4).
            next_incoming_id: self.remote_channel.map(|_| self.next_incoming_id),
            incoming_window: self.window_left,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            ..Flow::default()
        }
    }

    /// Adds the disposition of deliveries with consecutive ids to the run of their neighbours. A run that it does not
    /// continue is sent.
    pub(super) fn dispose(
        &mut self,
        out: &mut BytesMut,
        role: Role,
        ids: RangeInclusive<DeliveryId>,
        settled: bool,
        state: DeliveryState,
    ) {
        let (first, last) = ids.into_inner();
        if let Some(run) = &mut self.run {
            let is_next = run.last.0.wrapping_add(1) == first.0;
            if is_next && run.role == role && run.settled == settled && run.state == state {
                run.last = last;
                return;
            }
        }
        self.flush_run(out);
        self.run = Some(Run { role, first, last, settled, state });
    }

    pub(super) fn flush_run(&mut self, out: &mut BytesMut) {
        if let Some(run) = self.run.take() {
            let disposition = Disposition {
                role: run.role,
                first: run.first.0,
                last: (run.last != run.first).then_some(run.last.0),
                settled: run.settled,
                state: Some(run.state),
                batchable: false,
            };
            wire::put_frame(out, self.channel, &disposition);
        }
    }

    /// Sends the pending merges: settlements, and the window once the peer used half of it.
    pub(super) fn flush(&mut self, out: &mut BytesMut, config: &Config) {
        self.is_dirty = false;
        self.flush_run(out);
        let is_due = self.window_left <= config.incoming_window / 2;
        if self.state == State::Mapped && is_due && self.incoming_window(config) > self.window_left {
            let flow = self.flow(config);
            wire::put_frame(out, self.channel, &flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(next_outgoing_id: u32) -> Session {
        let config = Config { next_outgoing_id, ..Config::server("s") };
        let mut session = Session::new(State::Mapped, 0, &config);
        session.learn(1, &Begin::new(0, 10, 10));
        session
    }

    fn flow(next_incoming_id: Option<u32>, incoming_window: u32) -> Flow {
        Flow { next_incoming_id, incoming_window, ..Flow::default() }
    }

    #[test]
    fn the_peers_window_counts_from_the_frames_it_has_seen() {
        let mut session = session(u32::MAX - 1);
        (0..4).for_each(|_| session.count_outgoing());
        session.handle_flow(&flow(Some(u32::MAX), 5));
        assert_eq!(session.peer_window, 2, "three of four frames are in flight");
        session.handle_flow(&flow(Some(u32::MAX), 1));
        assert!(!session.has_window(), "a window may shrink below the frames in flight");
        session.handle_flow(&flow(None, 7));
        assert_eq!(session.peer_window, 3, "no id means the first");
        session.handle_flow(&flow(Some(2), u32::MAX));
        assert_eq!(session.peer_window, u32::MAX);
    }
}
