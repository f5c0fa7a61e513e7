//! One connection of the simulated network: two directions of bytes that are delayed, arrive in pieces, fall silent or
//! break.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use fastrand::Rng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::scenario::Weather;

/// The bytes that one side may have in flight before it has to wait, like the buffers of two kernels.
const LANE_BYTES_MAX: usize = 256 * 1024;

/// Both ends of a connection, and the network's faults on it.
pub(crate) struct Wire {
    state: Mutex<State>,
}

struct State {
    directions: [Direction; 2],
    rng: Rng,
    weather: Weather,
    is_cut: bool,
    /// The number of bytes after which the connection is cut.
    bytes_left: Option<usize>,
}

/// The bytes that one side has written and the other has not read yet.
struct Direction {
    chunks: VecDeque<Chunk>,
    held_bytes: usize,
    /// The arrival time of the last bytes. Later bytes do not arrive earlier.
    last_arrival: Instant,
    is_closed: bool,
    /// Whether nothing arrives any more, without an error on either side.
    is_silent: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Chunk {
    at: Instant,
    bytes: Bytes,
}

/// The end of one side.
pub(crate) struct Endpoint {
    wire: Arc<Wire>,
    side: usize,
    arrival: Pin<Box<Sleep>>,
}

impl Direction {
    fn new() -> Self {
        Direction {
            chunks: VecDeque::new(),
            held_bytes: 0,
            last_arrival: Instant::now(),
            is_closed: false,
            is_silent: false,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

impl Wire {
    /// Creates a connection and returns the ends of the dialling and the listening side.
    pub(crate) fn new(weather: Weather, rng: Rng) -> (Arc<Wire>, Endpoint, Endpoint) {
        let directions = [Direction::new(), Direction::new()];
        let state = State { directions, rng, weather, is_cut: false, bytes_left: None };
        let wire = Arc::new(Wire { state: Mutex::new(state) });
        let end = |side| Endpoint {
            wire: Arc::clone(&wire),
            side,
            arrival: Box::pin(tokio::time::sleep(Duration::ZERO)),
        };
        let (near, far) = (end(0), end(1));
        (wire, near, far)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts the connection: both sides get an error at once, and bytes in flight are lost.
    pub(crate) fn cut(&self) {
        self.state().cut();
    }

    /// Cuts the connection when this many more bytes have arrived, in both directions together.
    pub(crate) fn cut_after(&self, bytes: usize) {
        self.state().bytes_left = Some(bytes);
    }

    /// Drops everything that a side writes from now on, without an error.
    pub(crate) fn silence(&self, side: usize) {
        if let Some(direction) = self.state().directions.get_mut(side) {
            direction.is_silent = true;
        }
    }

    pub(crate) fn calm(&self) {
        self.state().weather = Weather::CALM;
    }
}

impl State {
    fn cut(&mut self) {
        self.is_cut = true;
        self.directions.iter_mut().for_each(Direction::wake);
    }

    fn delay(&mut self) -> Duration {
        let weather = self.weather;
        if weather.storm_one_in > 0 && self.rng.u32(0..weather.storm_one_in) == 0 {
            return Duration::from_millis(self.rng.u64(0..=weather.storm_ms_max));
        }
        Duration::from_millis(self.rng.u64(1..=weather.delay_ms_max.max(1)))
    }

    /// Returns how much of `available` one read gets: often all, sometimes a random piece.
    fn piece(&mut self, available: usize) -> usize {
        if self.rng.u32(0..8) == 0 { self.rng.usize(1..=available.max(1)) } else { available }
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for Endpoint {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let mut state = this.wire.state();
        if state.is_cut {
            return Poll::Ready(Err(reset()));
        }
        let room = into.remaining();
        let piece = state.piece(room).min(state.bytes_left.unwrap_or(usize::MAX));
        let [first, second] = &mut state.directions;
        let direction = if this.side == 0 { second } else { first };
        direction.reader = Some(cx.waker().clone());
        if direction.is_silent {
            return Poll::Pending;
        }
        let Some(chunk) = direction.chunks.front_mut() else {
            return if direction.is_closed { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        if chunk.at > Instant::now() {
            this.arrival.as_mut().reset(chunk.at);
            // The timer wakes this task; the next poll then finds the chunk.
            let _ = this.arrival.as_mut().poll(cx);
            return Poll::Pending;
        }
        let count = piece.min(chunk.bytes.len());
        into.put_slice(&chunk.bytes.split_to(count));
        if !chunk.bytes.has_remaining() {
            direction.chunks.pop_front();
        }
        direction.held_bytes -= count;
        if let Some(writer) = direction.writer.take() {
            writer.wake();
        }
        if let Some(left) = &mut state.bytes_left {
            *left -= count;
            if *left == 0 {
                state.cut();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endpoint {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.wire.state();
        if state.is_cut {
            return Poll::Ready(Err(reset()));
        }
        let delay = state.delay();
        let Some(direction) = state.directions.get_mut(self.side) else { return Poll::Ready(Err(reset())) };
        let count = bytes.len().min(LANE_BYTES_MAX - direction.held_bytes);
        if count == 0 && !bytes.is_empty() {
            direction.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let at = direction.last_arrival.max(Instant::now() + delay);
        direction.last_arrival = at;
        direction.held_bytes += count;
        direction
            .chunks
            .push_back(Chunk { at, bytes: Bytes::copy_from_slice(bytes.get(..count).unwrap_or(bytes)) });
        if let Some(reader) = direction.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(if self.wire.state().is_cut { Err(reset()) } else { Ok(()) })
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl Endpoint {
    fn close(&self) {
        if let Some(direction) = self.wire.state().directions.get_mut(self.side) {
            direction.is_closed = true;
            if let Some(reader) = direction.reader.take() {
                reader.wake();
            }
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SLOW: Weather = Weather { delay_ms_max: 40, storm_one_in: 5, storm_ms_max: 900 };

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_in_order_delayed_and_complete() {
        let (_, mut near, mut far) = Wire::new(SLOW, Rng::with_seed(1));
        let sent: Vec<u8> = (0..20_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let start = Instant::now();
        for part in sent.chunks(700) {
            near.write_all(part).await.unwrap();
        }
        drop(near);
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, sent);
        assert!(start.elapsed() >= Duration::from_millis(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_is_an_error_and_silence_is_not() {
        let (wire, mut near, mut far) = Wire::new(SLOW, Rng::with_seed(2));
        wire.silence(0);
        near.write_all(b"lost").await.unwrap();
        let mut into = [0; 4];
        let heard = tokio::time::timeout(Duration::from_secs(3600), far.read(&mut into)).await;
        assert!(heard.is_err(), "silence must not be an error");
        wire.cut();
        assert_eq!(far.read(&mut into).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(near.write(b"x").await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_cut_after_a_number_of_bytes_in_both_directions() {
        let (wire, mut near, mut far) = Wire::new(Weather::CALM, Rng::with_seed(4));
        wire.cut_after(7);
        near.write_all(b"hello").await.unwrap();
        far.write_all(b"world").await.unwrap();
        let mut into = [0; 5];
        far.read_exact(&mut into).await.unwrap();
        assert_eq!(&into, b"hello");
        near.read_exact(&mut into[..2]).await.unwrap();
        assert_eq!(&into[..2], b"wo");
        for end in [&mut near, &mut far] {
            assert_eq!(end.read(&mut into).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_waits_for_a_reader() {
        let (_, mut near, mut far) = Wire::new(Weather::CALM, Rng::with_seed(3));
        let bytes = vec![7; LANE_BYTES_MAX + 1];
        let stuck = tokio::time::timeout(Duration::from_secs(1), near.write_all(&bytes)).await;
        assert!(stuck.is_err());
        let mut into = vec![0; 4096];
        assert!(far.read(&mut into).await.unwrap() > 0);
        assert!(near.write(b"more").await.unwrap() > 0);
    }
}
