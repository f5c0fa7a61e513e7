//! Detects the protocol of a peer by its first bytes, so that one port serves all protocols.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

const AMQP: &[u8] = b"AMQP";
/// The type of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Amqp,
    Tls,
    /// Anything else. A peer of another protocol gets an HTTP error.
    Http,
}

/// Reads the bytes that determine the protocol, and returns them with the stream. Returns `None` if the peer closed the connection without
/// sending.
pub(crate) async fn sniff<S>(mut stream: S) -> io::Result<Option<(Protocol, Rewound<S>)>>
where
    S: AsyncRead + Unpin,
{
    let mut first = [0; AMQP.len()];
    let mut len = 0;
    loop {
        let count = stream.read(first.get_mut(len..).unwrap_or_default()).await?;
        len += count;
        let seen = first.get(..len).unwrap_or_default();
        let protocol = match seen.first() {
            None => return Ok(None),
            Some(&TLS_HANDSHAKE) => Protocol::Tls,
            _ if seen == AMQP => Protocol::Amqp,
            _ if AMQP.starts_with(seen) && count > 0 => continue,
            _ => Protocol::Http,
        };
        return Ok(Some((protocol, Rewound { first, at: 0, len, stream })));
    }
}

/// A stream that returns the bytes that were read ahead.
pub(crate) struct Rewound<S> {
    first: [u8; AMQP.len()],
    at: usize,
    len: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = this.first.get(this.at..this.len).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, out);
        }
        let count = left.len().min(out.remaining());
        out.put_slice(left.get(..count).unwrap_or_default());
        this.at += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn sniff_pieces(pieces: &[&[u8]]) -> Option<(Protocol, Vec<u8>)> {
        let (mut peer, stream) = tokio::io::duplex(1);
        let pieces: Vec<u8> = pieces.concat();
        let writer = tokio::spawn(async move {
            peer.write_all(&pieces).await.unwrap();
        });
        let (protocol, mut stream) = sniff(stream).await.unwrap()?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        writer.await.unwrap();
        Some((protocol, all))
    }

    #[tokio::test]
    async fn the_first_bytes_determine_the_protocol_and_are_read_again() {
        let cases: [(&[u8], Protocol); 7] = [
            (b"AMQP\x03\x01\x00\x00rest", Protocol::Amqp),
            (b"AMQP", Protocol::Amqp),
            (b"\x16\x03\x01\x00", Protocol::Tls),
            (b"GET / HTTP/1.1\r\n\r\n", Protocol::Http),
            (b"ACL / HTTP/1.1\r\n\r\n", Protocol::Http),
            (b"AMQ", Protocol::Http),
            (b"\0", Protocol::Http),
        ];
        for (bytes, protocol) in cases {
            assert_eq!(sniff_pieces(&[bytes]).await, Some((protocol, bytes.to_vec())), "{bytes:?}");
        }
        assert_eq!(sniff_pieces(&[]).await, None);
    }
}
