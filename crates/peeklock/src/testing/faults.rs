//! Faults of the connections between clients and the broker.

mod links;
mod settlements;

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use self::links::{Detachable, Links};
use self::settlements::Delayed;
use crate::embedded::{Wrap, Wrapped};

/// The faults of all connections of a test.
pub(super) struct Faults {
    /// The number of cuts so far. A stream that was opened before the last one is lost.
    cuts: watch::Sender<u64>,
    refuses: AtomicBool,
    delay_ms: Arc<AtomicU64>,
    /// The links of each connection.
    links: Mutex<Vec<Weak<Links>>>,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            cuts: watch::Sender::new(0),
            refuses: AtomicBool::new(false),
            delay_ms: Arc::default(),
            links: Mutex::default(),
        }
    }
}

impl Faults {
    pub(super) fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    /// Detaches all links to an entity, on every connection.
    pub(super) fn drop_links(&self, entity: &str) {
        let connections = self.links.lock().unwrap_or_else(PoisonError::into_inner).clone();
        connections.iter().filter_map(Weak::upgrade).for_each(|links| links.drop_of(entity));
    }

    fn new_links(&self) -> Arc<Links> {
        let links = Arc::<Links>::default();
        let mut all = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|links| links.strong_count() > 0);
        all.push(Arc::downgrade(&links));
        links
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
        let stream = Detachable::new(stream, self.new_links());
        let mut cuts = self.cuts.subscribe();
        let cut = Box::pin(async move {
            // An error means that the test is over and its broker gone.
            let _ = cuts.changed().await;
        });
        Ok(Box::new(Severable {
            stream: Delayed::new(Box::new(stream), Arc::clone(&self.delay_ms)),
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
