//! Faults of the connections between clients and the broker.

mod settlements;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use self::settlements::Delayed;
use crate::embedded::{Wrap, Wrapped};

/// The faults of all connections of a test.
pub(super) struct Faults {
    /// The number of cuts so far. A stream that was opened before the last one is lost.
    cuts: watch::Sender<u64>,
    refuses: AtomicBool,
    delay_ms: Arc<AtomicU64>,
}

impl Default for Faults {
    fn default() -> Self {
        Faults { cuts: watch::Sender::new(0), refuses: AtomicBool::new(false), delay_ms: Arc::default() }
    }
}

impl Faults {
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    pub(super) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    pub(super) fn delay_settlements(&self, delay: Duration) {
        self.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Wrap for Faults {
    fn wrap(&self, stream: Wrapped) -> io::Result<Wrapped> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let mut cuts = self.cuts.subscribe();
        let cut = Box::pin(async move {
            // An error means that the test is over and its broker gone.
            let _ = cuts.changed().await;
        });
        Ok(Box::new(Severable {
            stream: Delayed::new(stream, Arc::clone(&self.delay_ms)),
            cut,
            is_cut: false,
        }))
    }
}

/// A stream that a test can cut.
struct Severable<C> {
    stream: Delayed,
    cut: Pin<Box<C>>,
    is_cut: bool,
}

impl<C: Future<Output = ()>> Severable<C> {
    /// Returns an error once the stream is cut. Otherwise the task of the caller wakes up for the cut.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cut.as_mut().poll(cx).is_ready();
        if self.is_cut { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl<C: Future<Output = ()>> AsyncRead for Severable<C> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.stream).poll_read(cx, into)
    }
}

impl<C: Future<Output = ()>> AsyncWrite for Severable<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
