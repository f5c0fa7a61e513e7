//! A stream that holds settlements back on their way to the broker.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::embedded::Wrapped;

/// The header of an AMQP frame, and the descriptor of its performative in the short form, which our client uses.
const FRAME_HEADER_BYTES: usize = 8;
const PROTOCOL_HEADER: &[u8] = b"AMQP";
const DISPOSITION: [u8; 3] = [0x00, 0x53, 0x15];

/// Holds back each disposition that the client writes, and what follows it.
pub(super) struct Delayed {
    stream: Wrapped,
    delay_ms: Arc<AtomicU64>,
    frames: Frames,
    held: BytesMut,
    /// The end of the delay, while bytes are held.
    until: Option<Pin<Box<Sleep>>>,
}

impl Delayed {
    pub(super) fn new(stream: Wrapped, delay_ms: Arc<AtomicU64>) -> Self {
        Delayed { stream, delay_ms, frames: Frames::default(), held: BytesMut::new(), until: None }
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms.load(Ordering::Relaxed))
    }

    /// Writes the held bytes once their time has come.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(until) = &mut self.until {
            ready!(until.as_mut().poll(cx));
        }
        while !self.held.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.held))?;
            self.held.advance(count);
        }
        self.until = None;
        Poll::Ready(Ok(()))
    }

    fn hold(&mut self, bytes: &[u8]) -> usize {
        self.frames.pass(bytes, bytes.len());
        self.held.extend_from_slice(bytes);
        bytes.len()
    }
}

impl AsyncRead for Delayed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Delayed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.until.is_some() && this.poll_release(cx)?.is_pending() {
            return Poll::Ready(Ok(this.hold(bytes)));
        }
        let delay = this.delay();
        let count = if delay.is_zero() { bytes.len() } else { this.frames.before_disposition(bytes) };
        if count == 0 && !bytes.is_empty() {
            this.until = Some(Box::pin(tokio::time::sleep(delay)));
            return Poll::Ready(Ok(this.hold(bytes)));
        }
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes.get(..count).unwrap_or(bytes)))?;
        this.frames.pass(bytes, written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_release(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_release(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

/// The position in the sequence of frames that a client writes. Each write starts with the rest of a frame or a whole one.
#[derive(Default)]
struct Frames {
    /// The bytes of the current frame that are still to come.
    rest: usize,
}

impl Frames {
    /// Returns the number of bytes before the first frame that is a disposition.
    fn before_disposition(&self, bytes: &[u8]) -> usize {
        let mut at = self.rest;
        while let Some(frame) = bytes.get(at..).filter(|frame| !frame.is_empty()) {
            if is_disposition(frame) {
                return at;
            }
            at += frame_len(frame);
        }
        bytes.len()
    }

    /// Records that the first `count` of these bytes were passed on.
    fn pass(&mut self, bytes: &[u8], count: usize) {
        let mut at = self.rest;
        while at < count {
            at += frame_len(bytes.get(at..).unwrap_or_default());
        }
        self.rest = at - count;
    }
}

fn frame_len(frame: &[u8]) -> usize {
    match frame.first_chunk::<4>() {
        Some(first) if first == PROTOCOL_HEADER => FRAME_HEADER_BYTES,
        Some(size) => {
            usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX).max(FRAME_HEADER_BYTES)
        }
        None => frame.len().max(1),
    }
}

fn is_disposition(frame: &[u8]) -> bool {
    frame.get(FRAME_HEADER_BYTES..).is_some_and(|body| body.starts_with(&DISPOSITION))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(code: u8, extra_len: usize) -> Vec<u8> {
        let len = u8::try_from(11 + extra_len).unwrap();
        let mut bytes = vec![0, 0, 0, len, 2, 0, 0, 0, 0x00, 0x53, code];
        bytes.resize(len.into(), 0x15);
        bytes
    }

    #[test]
    fn a_disposition_is_found_after_other_frames_and_after_a_part_of_a_frame() {
        let mut frames = Frames::default();
        let bytes = [b"AMQP\x00\x01\x00\x00".to_vec(), frame(0x14, 30), frame(0x15, 5)].concat();
        assert_eq!(frames.before_disposition(&bytes), 8 + 41);
        frames.pass(&bytes, 20);
        assert_eq!(frames.before_disposition(&bytes[20..]), 8 + 41 - 20);
        frames.pass(&bytes[20..], bytes.len() - 20);
        assert_eq!(frames.rest, 0);
        assert_eq!(frames.before_disposition(&frame(0x15, 0)), 0);
        let empty = [0, 0, 0, 8, 2, 0, 0, 0];
        assert_eq!(frames.before_disposition(&empty), 8);
    }
}
