//! The AMQP engine alone: a client sends, a server receives and settles each message. Both sides are counted, the copy between them is not.

use std::hint::black_box;

use anyhow::{Context, Result};
use bytes::BytesMut;
use peeklock_amqp::connection::{AttachReply, Config, Connection, Event, LinkId, Millis, Outgoing};
use peeklock_amqp::{Attach, DeliveryState, DeliveryTag, Role, Source, Target};

use crate::counting::{aside, counted};
use crate::{COUNTED, WARM_UP};

const PAYLOAD_LEN: usize = 256;
const CREDIT: u32 = 100;

pub(crate) fn run() -> Result<u32> {
    let mut pair = Pair::new()?;
    pair.pass(WARM_UP)?;
    counted(|| pair.pass(COUNTED))
}

/// One end of a connection with its unread input.
struct End {
    connection: Connection,
    input: BytesMut,
}

impl End {
    fn new(connection: Connection) -> Self {
        End { connection, input: BytesMut::new() }
    }

    fn handle_input(&mut self) -> Result<()> {
        Ok(self.connection.handle_input(Millis(0), &mut self.input)?)
    }

    /// Moves the output to the input of the other end, like a socket.
    fn carry_to(&mut self, other: &mut End) {
        let output = self.connection.output();
        aside(|| {
            other.input.extend_from_slice(output);
            output.clear();
        });
    }
}

/// Two ends with one link between them.
struct Pair {
    sender: End,
    receiver: End,
    link: LinkId,
}

impl Pair {
    fn new() -> Result<Self> {
        let mut sender = End::new(Connection::client(Config::client("sender", "host"), None, Millis(0)));
        let mut receiver = End::new(Connection::server(Config::server("receiver"), Millis(0)));
        let session = sender.connection.begin().context("no session")?;
        let attach = Attach {
            source: Some(Source::with_address("orders")),
            target: Some(Target::with_address("orders")),
            ..Attach::new("orders", 0, Role::Sender)
        };
        let link = sender.connection.attach(session, attach).context("no link")?;
        sender.carry_to(&mut receiver);
        receiver.handle_input()?;
        while let Some(event) = receiver.connection.poll_event() {
            if let Event::Attach { link, .. } = event {
                receiver.connection.accept(link, AttachReply::default());
                receiver.connection.set_credit(link, CREDIT);
            }
        }
        receiver.carry_to(&mut sender);
        let mut pair = Pair { sender, receiver, link };
        pair.settlements()?;
        Ok(pair)
    }

    /// Sends `count` messages and returns the number of those that were settled.
    fn pass(&mut self, count: u32) -> Result<u32> {
        let (mut sent, mut settled) = (0, 0);
        let payload = [7; PAYLOAD_LEN];
        while settled < count {
            while sent < count && self.sender.connection.credit(self.link) > 0 {
                let tag = DeliveryTag::from(sent);
                let delivery = Outgoing { tag, message_format: 0, settled: false, state: None };
                self.sender.connection.send(self.link, &delivery, &[&payload])?;
                sent += 1;
            }
            self.sender.carry_to(&mut self.receiver);
            self.settle_all()?;
            self.receiver.carry_to(&mut self.sender);
            settled += self.settlements()?;
        }
        Ok(settled)
    }

    fn settle_all(&mut self) -> Result<()> {
        self.receiver.handle_input()?;
        while let Some(event) = self.receiver.connection.poll_event() {
            if let Event::Delivery { link, delivery } = event {
                black_box(&delivery.payload);
                self.receiver.connection.settle(link, delivery.id, DeliveryState::Accepted);
                if self.receiver.connection.credit(link) == 0 {
                    self.receiver.connection.set_credit(link, CREDIT);
                }
            }
        }
        Ok(())
    }

    fn settlements(&mut self) -> Result<u32> {
        self.sender.handle_input()?;
        let mut settled = 0;
        while let Some(event) = self.sender.connection.poll_event() {
            settled += u32::from(matches!(event, Event::Disposition { settled: true, .. }));
        }
        Ok(settled)
    }
}
