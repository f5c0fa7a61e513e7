//! A connection with buffers, and the loops of senders and receivers that the small clients of the peers share.
//!
//! A client has one task and no queue: it writes everything that it may write at once, and then handles everything that has arrived.

use std::io::ErrorKind;
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::peer::{Deliveries, Receiver, Sender, UNCONFIRMED_MAX};

const READ_BYTES: usize = 256 * 1024;

pub(crate) struct Wire {
    stream: TcpStream,
    pub(crate) input: BytesMut,
    pub(crate) output: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Wire { stream, input: BytesMut::new(), output: Vec::new() })
    }

    /// Waits for more input.
    pub(crate) async fn fill(&mut self) -> Result<()> {
        self.input.reserve(READ_BYTES);
        if self.stream.read_buf(&mut self.input).await? == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }

    /// Adds the input that has arrived. Returns whether there was any.
    fn try_fill(&mut self) -> Result<bool> {
        self.input.reserve(READ_BYTES);
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn flush(&mut self) -> Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
        }
        Ok(())
    }

    /// Takes one piece of input from the front, and waits for it.
    pub(crate) async fn next<T>(&mut self, parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>>) -> Result<T> {
        loop {
            if let Some((value, consumed_bytes)) = parse(&self.input)? {
                self.input.advance(consumed_bytes);
                return Ok(value);
            }
            self.fill().await?;
        }
    }
}

/// The form in which a protocol sends messages and reads confirmations.
pub(crate) trait Publish: Send + 'static {
    /// Appends a message for that queue.
    fn write(&mut self, queue: usize, message: &[u8], output: &mut Vec<u8>) -> Result<()>;

    /// Returns the number of messages that the complete part of the input confirms, and the size of that part.
    fn read(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(usize, usize)>;
}

/// A sender over a [`Wire`].
pub(crate) struct WireSender<P> {
    wire: Wire,
    protocol: P,
    queues: Vec<usize>,
    next: usize,
    unconfirmed_count: usize,
}

impl<P: Publish> WireSender<P> {
    pub(crate) fn new(wire: Wire, protocol: P, queues: Vec<usize>) -> Self {
        WireSender { wire, protocol, queues, next: 0, unconfirmed_count: 0 }
    }

    fn write(&mut self, message: &[u8]) -> Result<()> {
        self.protocol.write(self.queues[self.next], message, &mut self.wire.output)?;
        self.next = (self.next + 1) % self.queues.len();
        self.unconfirmed_count += 1;
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let (confirmed_count, consumed_bytes) =
            self.protocol.read(&self.wire.input, &mut self.wire.output)?;
        self.wire.input.advance(consumed_bytes);
        self.unconfirmed_count = self.unconfirmed_count.saturating_sub(confirmed_count);
        Ok(())
    }
}

impl<P: Publish> Sender for WireSender<P> {
    async fn send(&mut self, message: &Bytes, mut count: usize) -> Result<()> {
        while count > 0 {
            while self.unconfirmed_count == UNCONFIRMED_MAX {
                self.wire.fill().await?;
                self.read()?;
            }
            let now = count.min(UNCONFIRMED_MAX - self.unconfirmed_count);
            (0..now).try_for_each(|_| self.write(message))?;
            count -= now;
            self.wire.flush().await?;
            if self.wire.try_fill()? {
                self.read()?;
            }
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        while self.unconfirmed_count > 0 {
            self.wire.fill().await?;
            self.read()?;
        }
        self.wire.flush().await
    }
}

/// The form in which a protocol delivers messages and acknowledges them.
pub(crate) trait Consume: Send + 'static {
    /// Handles the complete part of the input and returns its size. Appends acknowledgements and requests for more.
    fn read(&mut self, input: &[u8], output: &mut Vec<u8>, deliveries: &Deliveries) -> Result<usize>;
}

/// A receiver over a [`Wire`].
pub(crate) struct WireReceiver<P> {
    pub(crate) wire: Wire,
    pub(crate) protocol: P,
}

impl<P: Consume> Receiver for WireReceiver<P> {
    async fn run(mut self, deliveries: Arc<Deliveries>) -> Result<()> {
        loop {
            let consumed_bytes = self.protocol.read(&self.wire.input, &mut self.wire.output, &deliveries)?;
            self.wire.input.advance(consumed_bytes);
            self.wire.flush().await?;
            self.wire.fill().await?;
        }
    }
}
