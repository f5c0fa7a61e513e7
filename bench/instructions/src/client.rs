//! A scripted client on the other end of a pipe. Its own instructions are not counted.

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use peeklock_amqp::connection::{Config, Connection, Event, LinkId, Millis, Outgoing, SaslClient, SessionId};
use peeklock_amqp::{
    Attach, DeliveryState, DeliveryTag, ReceiverSettleMode, Role, SenderSettleMode, Source, Target,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::counting::aside;

/// The messages that arrived and were settled since the client started.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Sent deliveries that the broker settled.
    pub(crate) confirmed: u32,
    /// Received deliveries.
    pub(crate) received: u32,
    /// Received deliveries whose completion the broker settled.
    pub(crate) completed: u32,
}

pub(crate) struct Client {
    connection: Connection,
    stream: DuplexStream,
    input: BytesMut,
    session: SessionId,
    sender: Option<LinkId>,
    /// The credit of a receiver.
    credit: u32,
    tags: u32,
    progress: Progress,
}

impl Client {
    pub(crate) fn new(stream: DuplexStream, sasl: SaslClient) -> Result<Self> {
        let mut connection = Connection::client(Config::client("script", "localhost"), Some(sasl), Millis(0));
        let session = connection.begin().context("no session")?;
        Ok(Client {
            connection,
            stream,
            input: BytesMut::new(),
            session,
            sender: None,
            credit: 0,
            tags: 0,
            progress: Progress::default(),
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// Attaches a sender and waits for credit.
    pub(crate) async fn sender(&mut self, address: &'static str) -> Result<LinkId> {
        let target = Some(Target::with_address(address));
        let attach = Attach { source: Some(Source::default()), target, ..Attach::new("in", 0, Role::Sender) };
        let link = self.connection.attach(self.session, attach).context("no sender")?;
        self.sender = Some(link);
        while self.connection.credit(link) == 0 {
            self.turn().await?;
        }
        Ok(link)
    }

    /// Attaches a receiver with this credit, which is renewed when half of it is used.
    pub(crate) fn receiver(&mut self, address: &'static str, credit: u32) -> Result<()> {
        let attach = Attach {
            source: Some(Source::with_address(address)),
            target: Some(Target::with_address("script")),
            snd_settle_mode: SenderSettleMode::Mixed,
            rcv_settle_mode: ReceiverSettleMode::Second,
            ..Attach::new("out", 1, Role::Receiver)
        };
        let link = self.connection.attach(self.session, attach).context("no receiver")?;
        self.connection.set_credit(link, credit);
        self.credit = credit;
        Ok(())
    }

    /// Sends up to `count` copies of a payload, as far as there is credit. Returns the number that was sent.
    pub(crate) fn send(
        &mut self,
        link: LinkId,
        message_format: u32,
        payload: &Bytes,
        count: u32,
    ) -> Result<u32> {
        aside(|| {
            let count = count.min(self.connection.credit(link));
            for _ in 0..count {
                self.tags += 1;
                let tag = DeliveryTag::from(self.tags);
                let delivery = Outgoing { tag, message_format, settled: false, state: None };
                self.connection.send(link, &delivery, &[payload])?;
            }
            Ok(count)
        })
    }

    /// Writes the output, reads once, and completes each received delivery that is not settled.
    pub(crate) async fn turn(&mut self) -> Result<()> {
        let output = aside(|| self.connection.output().split());
        self.stream.write_all(&output).await?;
        if self.stream.read_buf(&mut self.input).await? == 0 {
            bail!("the gateway closed the connection");
        }
        aside(|| self.handle_input())
    }

    fn handle_input(&mut self) -> Result<()> {
        self.connection.handle_input(Millis(0), &mut self.input)?;
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Delivery { link, delivery } => {
                    self.progress.received += 1;
                    if !delivery.settled {
                        self.connection.set_outcome(link, delivery.id, DeliveryState::Accepted);
                    }
                    if self.connection.credit(link) <= self.credit / 2 {
                        self.connection.set_credit(link, self.credit);
                    }
                }
                Event::Disposition { link, state: Some(DeliveryState::Accepted), settled: true, .. } => {
                    if self.sender == Some(link) {
                        self.progress.confirmed += 1;
                    } else {
                        self.progress.completed += 1;
                    }
                }
                Event::Disposition { .. } | Event::Detached { .. } => bail!("unexpected: {event:?}"),
                _ => {}
            }
        }
        Ok(())
    }
}
