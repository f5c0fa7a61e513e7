//! A stream on which the broker recognises none of Peeklock's capabilities, so that it behaves like another broker.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the names of all capabilities of Peeklock begin with.
const OURS: &[u8] = b"peeklock:";

/// Renames the capabilities that the client desires.
pub(crate) struct Stranger<S>(pub(crate) S);

fn renamed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    while let Some(at) = bytes.windows(OURS.len()).position(|part| part == OURS) {
        bytes[at..at + 8].copy_from_slice(b"stranger");
    }
    bytes
}

impl<S: AsyncRead + Unpin> AsyncRead for Stranger<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stranger<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, &renamed(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}
