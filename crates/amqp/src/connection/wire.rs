//! Writes frames to the output buffer, and cuts payloads into frames.

use bytes::{BufMut, BytesMut};

use super::{DeliveryId, Outgoing};
use crate::{Encode, FrameWriter, Transfer};

/// A bound on the bytes of a frame header and a transfer performative, without the delivery state.
pub(super) const HEAD_LEN_MAX: usize = 128;

pub(super) fn put_frame(out: &mut BytesMut, channel: u16, performative: &impl Encode) {
    FrameWriter::amqp(out, channel, performative).finish();
}

/// The destination of the frames of one delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Route {
    pub(super) channel: u16,
    pub(super) handle: u32,
    pub(super) frame_size_max: usize,
}

/// The rest of a payload that consists of several parts.
#[derive(Debug)]
pub(super) struct Payload<'a> {
    /// The rest of the current part.
    head: &'a [u8],
    parts: &'a [&'a [u8]],
    len: usize,
}

impl<'a> Payload<'a> {
    pub(super) fn new(parts: &'a [&'a [u8]]) -> Self {
        let len = parts.iter().map(|part| part.len()).sum();
        Self { head: &[], parts, len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves up to `max` bytes to `out`.
    pub(super) fn write(&mut self, out: &mut BytesMut, max: usize) {
        let mut room = max.min(self.len);
        self.len -= room;
        out.reserve(room);
        while room > 0 {
            if self.head.is_empty() {
                let Some((head, rest)) = self.parts.split_first() else { return };
                (self.head, self.parts) = (head, rest);
            }
            let (now, later) = self.head.split_at(room.min(self.head.len()));
            out.put_slice(now);
            room -= now.len();
            self.head = later;
        }
    }
}

/// Writes one transfer frame with as much of the payload as fits. `id` is given for the first frame of a delivery;
/// later frames omit the fields of the first one. With `is_open` the delivery continues after this payload.
pub(super) fn put_transfer(
    out: &mut BytesMut,
    route: Route,
    id: Option<DeliveryId>,
    delivery: &Outgoing,
    payload: &mut Payload<'_>,
    is_open: bool,
) {
    let mut transfer = Transfer {
        handle: route.handle,
        delivery_id: id.map(|id| id.0),
        delivery_tag: id.map(|_| delivery.tag),
        message_format: id.map(|_| delivery.message_format),
        settled: (id.is_some() || delivery.settled).then_some(delivery.settled),
        state: id.and_then(|_| delivery.state.clone()),
        more: is_open,
        ..Transfer::default()
    };
    // Whether the payload fits depends on the performative's length; near the limit it is measured.
    let fits = transfer.state.is_none() && payload.len() + HEAD_LEN_MAX <= route.frame_size_max;
    if !fits {
        transfer.more = true;
        let start = out.len();
        let head_len = FrameWriter::amqp(out, route.channel, &transfer).frame_len();
        out.truncate(start);
        transfer.more = is_open || head_len + payload.len() > route.frame_size_max;
    }
    let mut frame = FrameWriter::amqp(out, route.channel, &transfer);
    let room = route.frame_size_max.saturating_sub(frame.frame_len());
    payload.write(frame.payload(), room);
    frame.finish();
}

/// Writes the frame that aborts a delivery of which frames have left.
pub(super) fn put_abort(out: &mut BytesMut, channel: u16, handle: u32) {
    put_frame(out, channel, &Transfer { handle, aborted: true, ..Transfer::default() });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeliveryTag, Frame, Performative, decode_frame};

    fn frames(frame_size_max: usize, payload_len: usize) -> Vec<(Transfer, Vec<u8>)> {
        let bytes: Vec<u8> = (0..payload_len).map(|i| u8::try_from(i % 251).expect("below 251")).collect();
        let parts: Vec<&[u8]> = bytes.chunks(100).collect();
        let mut payload = Payload::new(&parts);
        let delivery =
            Outgoing { tag: DeliveryTag::from([7; 16]), message_format: 0, settled: false, state: None };
        let route = Route { channel: 3, handle: 9, frame_size_max };
        let mut out = BytesMut::new();
        put_transfer(&mut out, route, Some(DeliveryId(5)), &delivery, &mut payload, false);
        while !payload.is_empty() {
            put_transfer(&mut out, route, None, &delivery, &mut payload, false);
        }
        let mut frames = Vec::new();
        let mut rest: &[u8] = &out;
        while let Some((frame, len)) = decode_frame(rest, u32::MAX).expect("our own frames") {
            let Frame::Amqp { channel: 3, performative: Performative::Transfer(transfer), payload } = frame
            else {
                panic!("{frame:?}")
            };
            assert!(len <= frame_size_max, "{len} > {frame_size_max}");
            frames.push((transfer, payload.to_vec()));
            rest = &rest[len..];
        }
        let joined: Vec<u8> = frames.iter().flat_map(|(_, payload)| payload.clone()).collect();
        assert_eq!(joined, bytes);
        frames
    }

    #[test]
    fn a_payload_is_cut_at_the_frame_size_and_only_the_last_frame_ends_it() {
        for payload_len in (0..1100).chain([5000]) {
            let frames = frames(512, payload_len);
            let more: Vec<bool> = frames.iter().map(|(transfer, _)| transfer.more).collect();
            assert!(
                more.iter().rev().skip(1).all(|more| *more) && !more[more.len() - 1],
                "{payload_len}: {more:?}"
            );
            assert!(frames.iter().skip(1).all(|(_, payload)| !payload.is_empty()), "{payload_len}");
            let ids: Vec<_> = frames.iter().map(|(transfer, _)| transfer.delivery_id).collect();
            assert!(ids[0] == Some(5) && ids[1..].iter().all(Option::is_none));
        }
    }
}
