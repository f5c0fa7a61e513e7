//! Responses that wait on a link, and large ones that are read from the disk while they are sent.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use peeklock_broker::{BodyRest, StoredBody};
use peeklock_types::LockToken;

use crate::receiving::stream::RANGE_BYTES;

/// The responses of one link in the order of their requests, regardless of the order in which they become ready.
// SDK quirk: azservicebus for Rust ignores correlation ids; it treats the next response as the answer to its oldest
// request.
#[derive(Default)]
pub(crate) struct ResponseLine {
    /// One place for each request without a response, or with one that waits for credit.
    places: VecDeque<Option<Response>>,
    /// The number of the first place.
    first: u64,
    ready_bytes: usize,
}

/// A place in a [`ResponseLine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

pub(crate) enum Response {
    Whole(Bytes),
    Streamed(Streamed),
}

impl From<Bytes> for Response {
    fn from(bytes: Bytes) -> Self {
        Response::Whole(bytes)
    }
}

impl Response {
    /// Returns the memory that the response uses until it is sent.
    fn cost(&self) -> usize {
        match self {
            Response::Whole(bytes) => bytes.len(),
            Response::Streamed(streamed) => streamed.cost,
        }
    }
}

impl ResponseLine {
    /// Appends a place for the response to a new request.
    pub(crate) fn take_place(&mut self) -> Place {
        self.places.push_back(None);
        Place(self.first + self.places.len() as u64 - 1)
    }

    pub(crate) fn fill(&mut self, place: Place, response: Response) {
        let at = place.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| self.places.get_mut(at)) {
            self.ready_bytes += response.cost();
            *slot = Some(response);
        }
    }

    /// Returns the first response, if it is ready.
    pub(crate) fn front(&mut self) -> Option<&mut Response> {
        self.places.front_mut().and_then(Option::as_mut)
    }

    /// Returns the token of a read for the first response. It is unique among the responses of the link.
    pub(crate) fn read_token(&self) -> LockToken {
        LockToken::from_bytes(u128::from(self.first).to_be_bytes())
    }

    pub(crate) fn pop(&mut self) {
        if let Some(place) = self.places.pop_front() {
            self.first += 1;
            self.ready_bytes -= place.map_or(0, |response| response.cost());
        }
    }

    /// Returns the bytes of responses that are ready and not sent.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }
}

/// A response with large messages, of which at most one range is in memory.
pub(crate) struct Streamed {
    pieces: VecDeque<Piece>,
    is_reading: bool,
    /// The bytes to send next.
    loaded: Option<Bytes>,
    cost: usize,
}

pub(crate) enum Piece {
    Bytes(Bytes),
    /// A range of a stored body.
    Stored {
        rest: BodyRest,
        body: StoredBody,
        range: Range<u32>,
    },
}

/// The next step of a response.
pub(crate) enum Step {
    Send {
        bytes: Bytes,
        has_more: bool,
    },
    Read {
        shard: usize,
        body: StoredBody,
        range: Range<u32>,
    },
    /// A read is in flight.
    Wait,
}

impl Streamed {
    pub(crate) fn new(pieces: VecDeque<Piece>) -> Self {
        let cost = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Stored { .. } => RANGE_BYTES as usize,
        };
        let cost = pieces.iter().map(cost).sum();
        Streamed { pieces, is_reading: false, loaded: None, cost }
    }

    pub(crate) fn step(&mut self) -> Step {
        if self.is_reading {
            return Step::Wait;
        }
        if self.loaded.is_none() {
            match self.pieces.front_mut() {
                Some(Piece::Stored { rest, body, range }) => {
                    let shard = rest.shard.0.into();
                    return Step::Read { shard, body: *body, range: next_range(range) };
                }
                Some(Piece::Bytes(bytes)) => {
                    self.loaded = Some(std::mem::take(bytes));
                    self.pieces.pop_front();
                }
                None => {}
            }
        }
        Step::Send { bytes: self.loaded.clone().unwrap_or_default(), has_more: !self.pieces.is_empty() }
    }

    pub(crate) fn start_read(&mut self) {
        self.is_reading = true;
    }

    /// Stores the bytes that were read.
    pub(crate) fn take_read(&mut self, bytes: Bytes) {
        self.is_reading = false;
        self.loaded = Some(bytes);
        if let Some(Piece::Stored { range, .. }) = self.pieces.front_mut() {
            range.start = next_range(range).end;
            if range.start >= range.end {
                self.pieces.pop_front();
            }
        }
    }

    pub(crate) fn note_sent(&mut self) {
        self.loaded = None;
    }
}

fn next_range(range: &Range<u32>) -> Range<u32> {
    range.start..range.start.saturating_add(RANGE_BYTES).min(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &mut ResponseLine) -> Option<Bytes> {
        match line.front() {
            Some(Response::Whole(bytes)) => Some(bytes.clone()),
            _ => None,
        }
    }

    #[test]
    fn responses_are_sent_in_the_order_of_their_requests() {
        let mut line = ResponseLine::default();
        let places = [line.take_place(), line.take_place(), line.take_place()];
        line.fill(places[1], Bytes::from_static(b"second").into());
        assert_eq!(text(&mut line), None, "the first is not ready");
        line.fill(places[0], Bytes::from_static(b"first").into());
        assert_eq!(line.ready_bytes(), 11);
        let mut sent = Vec::new();
        while let Some(response) = text(&mut line) {
            sent.push(response);
            line.pop();
        }
        assert_eq!(sent, ["first", "second"]);
        line.fill(places[0], Bytes::from_static(b"again").into());
        line.fill(places[2], Bytes::from_static(b"third").into());
        assert_eq!(text(&mut line), Some(Bytes::from_static(b"third")));
        line.pop();
        assert_eq!((text(&mut line), line.ready_bytes()), (None, 0));
    }
}
