//! A stream on which the links of an entity can be detached, as if the broker did it.
//!
//! The client gets a detach with an error. Its answer reaches the broker as the end of the link by the client, and the broker's own answer, like
//! everything else on that link, is dropped: to the client the link is gone already.

use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use peeklock_amqp::{
    AmqpError, Attach, Detach, Frame, Performative, ProtocolHeader, Role, condition, decode_frame,
    encode_frame,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::embedded::Wrapped;

/// The number of bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// The links of one connection.
#[derive(Default)]
pub(super) struct Links {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: Vec<Link>,
    /// The links that are gone to the client, and not yet to the broker, by the channel and the handle of the broker.
    gone: HashSet<(u16, u32)>,
    /// The frames for the client that the broker has not sent.
    forged: BytesMut,
    reader: Option<Waker>,
}

struct Link {
    name: String,
    /// The role of the client.
    role: Role,
    entity: String,
    /// The channel and the handle of the broker, once it has attached its end.
    place: Option<(u16, u32)>,
}

impl Links {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Detaches all links to an entity.
    pub(super) fn drop_of(&self, entity: &str) {
        let mut state = self.state();
        let State { links, gone, forged, reader } = &mut *state;
        links.retain(|link| {
            let Some((channel, handle)) = link.place.filter(|_| link.entity.eq_ignore_ascii_case(entity))
            else {
                return true;
            };
            let error = AmqpError::new(condition::DETACH_FORCED, "the test has dropped the link");
            encode_frame(forged, channel, &Detach { handle, closed: true, error: Some(error) }, &[]);
            gone.insert((channel, handle));
            false
        });
        if let Some(reader) = reader.take() {
            reader.wake();
        }
    }
}

impl State {
    /// Notes a link that the client attaches.
    fn note_sent(&mut self, attach: &Attach) {
        let address = match attach.role {
            Role::Receiver => {
                attach.source.as_ref().and_then(|source| source.address.as_ref()).map(|at| at.as_str())
            }
            Role::Sender => attach.target.as_ref().and_then(|target| target.address()),
        };
        let (name, entity) = (attach.name.as_str().to_owned(), address.unwrap_or_default().to_owned());
        self.links.push(Link { name, role: attach.role, entity, place: None });
    }

    /// Notes a frame of the broker. Returns whether the client gets it.
    fn admit(&mut self, channel: u16, performative: &Performative) -> bool {
        match performative {
            Performative::Attach(attach) => {
                let is_it = |link: &&mut Link| {
                    link.name == attach.name.as_str()
                        && link.role == attach.role.opposite()
                        && link.place.is_none()
                };
                if let Some(link) = self.links.iter_mut().find(is_it) {
                    link.place = Some((channel, attach.handle));
                }
                true
            }
            Performative::Detach(detach) => {
                let place = (channel, detach.handle);
                self.links.retain(|link| link.place != Some(place));
                !self.gone.remove(&place)
            }
            Performative::Transfer(transfer) => !self.gone.contains(&(channel, transfer.handle)),
            Performative::Flow(flow) => {
                flow.handle.is_none_or(|handle| !self.gone.contains(&(channel, handle)))
            }
            _ => true,
        }
    }
}

/// The end of the client.
pub(super) struct Detachable {
    stream: Wrapped,
    links: Arc<Links>,
    /// Bytes of the client that may still become a frame.
    written: BytesMut,
    /// Bytes of the broker that may still become a frame.
    arrived: BytesMut,
    /// Whole frames for the client.
    ready: BytesMut,
    is_at_end: bool,
}

impl Detachable {
    pub(super) fn new(stream: Wrapped, links: Arc<Links>) -> Self {
        let (written, arrived, ready) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
        Detachable { stream, links, written, arrived, ready, is_at_end: false }
    }

    /// Moves the whole frames of the broker to the client.
    fn sort_arrived(&mut self) {
        while let Some(len) = whole_len(&self.arrived) {
            let is_admitted = match decode_frame(&self.arrived, u32::MAX) {
                Ok(Some((Frame::Amqp { channel, performative, .. }, _))) => {
                    self.links.state().admit(channel, &performative)
                }
                // Protocol headers and SASL have no links.
                _ => true,
            };
            let frame = self.arrived.split_to(len);
            if is_admitted {
                self.ready.extend_from_slice(&frame);
            }
        }
    }

    fn note_written(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        while let Some(len) = whole_len(&self.written) {
            if let Ok(Some((Frame::Amqp { performative: Performative::Attach(attach), .. }, _))) =
                decode_frame(&self.written, u32::MAX)
            {
                self.links.state().note_sent(&attach);
            }
            self.written.advance(len);
        }
    }
}

/// Returns the length of the first frame or protocol header, if it is complete.
fn whole_len(bytes: &[u8]) -> Option<usize> {
    let len = match ProtocolHeader::decode(bytes) {
        Ok(Some(_)) => ProtocolHeader::LEN,
        Ok(None) => return None,
        Err(_) => usize::try_from(u32::from_be_bytes(*bytes.first_chunk()?)).ok()?.max(ProtocolHeader::LEN),
    };
    (bytes.len() >= len).then_some(len)
}

impl AsyncRead for Detachable {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            {
                let mut state = this.links.state();
                this.ready.extend_from_slice(&state.forged.split());
                state.reader = Some(cx.waker().clone());
            }
            if !this.ready.is_empty() || this.is_at_end {
                let count = this.ready.len().min(into.remaining());
                into.put_slice(&this.ready.split_to(count));
                return Poll::Ready(Ok(()));
            }
            let mut bytes = vec![0; READ_BYTES];
            let mut part = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
            this.is_at_end = part.filled().is_empty();
            this.arrived.extend_from_slice(part.filled());
            this.sort_arrived();
        }
    }
}

impl AsyncWrite for Detachable {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.note_written(bytes.get(..count).unwrap_or(bytes));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
