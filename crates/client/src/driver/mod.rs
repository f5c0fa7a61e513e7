//! The task that owns a connection. Each round reads the available input, handles all of it, and writes once.
//!
//! Only this task uses the AMQP machine. Handles send commands over one bounded channel, and replies go to the channels in those commands.
//! The task never waits for a handle.

mod attach;
pub(crate) mod command;
pub(crate) mod coordinator;
mod events;
mod receiving;
mod requests;
mod sending;
mod sessions;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::connection::{self, Connection, LinkId, Millis};
use peeklock_amqp::{DeliveryState, SaslCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::error::{Ending, Error};
use crate::spares::Spares;
use attach::attach_for;
use command::{Command, LinkRequest, Opened, Reply};
use coordinator::Coordinator;
use receiving::ReceivingLink;
use requests::Node;
use sending::SendingLink;
use sessions::Sessions;

/// The size of one read, large enough that a busy broker causes few system calls.
const READ_BYTES: usize = 64 * 1024;
/// The limit of bytes that wait to be written. Above it, the driver takes no commands and adds no messages.
const OUTPUT_BYTES_MAX: usize = 512 * 1024;
/// The number of commands that are handled in one round.
const COMMANDS_PER_ROUND: usize = 256;
/// The time limit for sending the close frame; the broker may be gone already.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// The reason why a connection did not open.
#[derive(Debug)]
pub(crate) enum OpenFailure {
    Credentials,
    Other(String),
}

pub(crate) struct Driver {
    address: Arc<str>,
    connection: Connection,
    commands: mpsc::Receiver<Command>,
    /// The links, ordered like the nodes, so that the order of notifications is deterministic.
    links: BTreeMap<LinkId, Link>,
    sessions: Sessions,
    nodes: BTreeMap<Arc<str>, Node>,
    coordinator: Option<Coordinator>,
    spares: Arc<Spares>,
    /// The error for handles whose driver has ended.
    ending: Ending,
    opening: Option<oneshot::Sender<Result<(), OpenFailure>>>,
    closing: Vec<oneshot::Sender<()>>,
    handles_are_gone: bool,
    /// A counter that makes link names unique.
    serial: u64,
    /// Links that may have messages to send or permits to return at the end of the round.
    touched: Vec<LinkId>,
}

enum Link {
    Opening(Box<LinkRequest>, Reply<Opened>),
    Sending(SendingLink),
    Receiving(ReceivingLink),
    /// One of the two links of a node.
    Request(Arc<str>),
    Coordinator,
    /// The client has detached the link and waits for the broker's detach.
    Closing(Option<Reply<()>>),
}

impl Driver {
    pub(crate) fn new(
        address: Arc<str>,
        connection: Connection,
        commands: mpsc::Receiver<Command>,
        spares: Arc<Spares>,
        ending: Ending,
        opening: oneshot::Sender<Result<(), OpenFailure>>,
    ) -> Self {
        Self {
            address,
            connection,
            commands,
            links: BTreeMap::new(),
            sessions: Sessions::default(),
            nodes: BTreeMap::new(),
            coordinator: None,
            spares,
            ending,
            opening: Some(opening),
            closing: Vec::new(),
            handles_are_gone: false,
            serial: 0,
            touched: Vec::new(),
        }
    }

    pub(crate) async fn run<S: AsyncRead + AsyncWrite + Send>(mut self, stream: S) {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let error = self.converse(&mut reader, &mut writer).await;
        // A reason in the broker's close frame takes precedence.
        let error = self.ending.get().cloned().unwrap_or(error);
        // The rest of the output contains the reason of the close for the broker. Its loss has no effect.
        let farewell = async {
            while self.connection.has_output() {
                if writer.write_buf(self.connection.output()).await.is_err() {
                    return;
                }
            }
            let _ = writer.shutdown().await;
        };
        let _ = tokio::time::timeout(FAREWELL_TIME_MAX, farewell).await;
        self.end(&error);
    }

    async fn converse<R, W>(&mut self, reader: &mut R, writer: &mut W) -> Error
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let start = Instant::now();
        let now = || Millis(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut input = BytesMut::new();
        let mut commands = Vec::with_capacity(COMMANDS_PER_ROUND);
        let mut is_unflushed = false;
        loop {
            let output_len = self.connection.output().len();
            if output_len == 0 && !is_unflushed && self.connection.is_closed() {
                return self.lost("the broker closed it");
            }
            let has_room = output_len < OUTPUT_BYTES_MAX;
            let timeout = self.connection.poll_timeout().map(|at| start + Duration::from_millis(at.0));
            input.reserve(READ_BYTES);
            tokio::select! {
                biased;
                written = write(writer, self.connection.output(), &mut is_unflushed), if output_len > 0 || is_unflushed => {
                    if let Err(error) = written {
                        return self.lost(&error.to_string());
                    }
                }
                count = reader.read_buf(&mut input) => match count {
                    Ok(0) => return self.lost("the broker closed it"),
                    Ok(_) => {
                        if let Err(error) = self.connection.handle_input(now(), &mut input) {
                            self.handle_events();
                            return self.failed(&error);
                        }
                        // Output of commands that arrive in the meantime leaves with the same write.
                        if has_room {
                            self.handle_waiting_commands();
                        }
                    }
                    Err(error) => return self.lost(&error.to_string()),
                },
                count = self.commands.recv_many(&mut commands, COMMANDS_PER_ROUND), if has_room && !self.handles_are_gone => {
                    if count == 0 {
                        self.handles_are_gone = true;
                        self.connection.close(None);
                    }
                    commands.drain(..).for_each(|command| self.handle_command(command));
                    if self.links.len() > 1 {
                        // Tasks that use other links may be ready. They run first, so that one write contains their
                        // commands as well.
                        tokio::task::yield_now().await;
                        self.handle_waiting_commands();
                    }
                }
                () = sleep_until(timeout) => if let Err(error) = self.connection.handle_timeout(now()) {
                    return self.failed(&error);
                },
            }
            self.handle_events();
            self.finish_round();
        }
    }

    fn lost(&self, reason: &str) -> Error {
        if self.handles_are_gone || !self.closing.is_empty() {
            return Error::Closed;
        }
        Error::ConnectionLost { address: Arc::clone(&self.address), reason: reason.into() }
    }

    fn failed(&mut self, error: &connection::Error) -> Error {
        if matches!(error, connection::Error::Sasl { code: SaslCode::Auth }) {
            self.refuse_opening(OpenFailure::Credentials);
        }
        self.lost(&error.to_string())
    }

    fn refuse_opening(&mut self, failure: OpenFailure) {
        if let Some(opening) = self.opening.take() {
            let _ = opening.send(Err(failure));
        }
    }

    fn end(mut self, error: &Error) {
        // The reason is set before pending calls are woken.
        let _ = self.ending.set(error.clone());
        self.refuse_opening(OpenFailure::Other(error.to_string()));
        for (_, link) in std::mem::take(&mut self.links) {
            link.end(error);
        }
        for (_, node) in std::mem::take(&mut self.nodes) {
            node.end(error);
        }
        if let Some(coordinator) = self.coordinator.take() {
            coordinator.end(error);
        }
        for reply in self.closing.drain(..) {
            let _ = reply.send(());
        }
    }

    fn handle_waiting_commands(&mut self) {
        for _ in 0..COMMANDS_PER_ROUND {
            match self.commands.try_recv() {
                Ok(command) => self.handle_command(command),
                Err(_) => return,
            }
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Open { request, reply } => self.open(request, reply),
            Command::Send { link, payload, message_format, transaction, reply } => {
                if let Some(Link::Sending(sending)) = self.links.get_mut(&link) {
                    sending.push(payload, message_format, transaction, reply);
                    self.touch(link);
                }
            }
            Command::SendMany { link, message_format, payloads, failures } => {
                if let Some(Link::Sending(sending)) = self.links.get_mut(&link) {
                    for payload in payloads {
                        sending.push_counted(payload, message_format, &failures);
                    }
                    self.touch(link);
                }
            }
            Command::Detach { link, unseen, reply } => self.detach(link, unseen, reply),
            Command::Request { node, message, transaction, reply } => {
                self.request(&node, *message, transaction, reply);
            }
            Command::SendStep { link, payload, message_format, transaction, unsent } => {
                if let Some(Link::Sending(sending)) = self.links.get_mut(&link) {
                    sending.push_step(payload, message_format, transaction, unsent);
                    self.touch(link);
                }
            }
            Command::Declare { reply } => match self.coordinator() {
                Some(coordinator) => coordinator.declare(reply),
                None => drop(reply.send(Err(Error::TooManyLinks))),
            },
            Command::Discharge(discharge) => match self.coordinator() {
                Some(coordinator) => coordinator.discharge(discharge),
                None => drop(discharge.reply.send(Err(Error::TooManyLinks))),
            },
            Command::Close { reply } => {
                self.closing.push(reply);
                self.connection.close(None);
            }
            Command::Receiver { link, command } => {
                // If the link has ended, dropping the command makes the caller read the reason of the end.
                if let Some(Link::Receiving(receiving)) = self.links.get_mut(&link) {
                    receiving.handle_command(link, command, &mut self.connection);
                }
            }
        }
    }

    fn open(&mut self, request: Box<LinkRequest>, reply: Reply<Opened>) {
        self.serial += 1;
        let attach = attach_for(&request, self.serial);
        let session = self.sessions.pick(&mut self.connection);
        match session.and_then(|session| self.sessions.attach(session, attach, &mut self.connection)) {
            Some(link) => drop(self.links.insert(link, Link::Opening(request, reply))),
            None => drop(reply.send(Err(Error::TooManyLinks))),
        }
    }

    fn detach(&mut self, link: LinkId, unseen: Vec<connection::DeliveryId>, reply: Option<Reply<()>>) {
        let Some(open) = self.links.remove(&link) else { return };
        for id in unseen {
            self.connection.settle(link, id, DeliveryState::Released);
        }
        self.connection.detach(link, None);
        open.end(&Error::Closed);
        self.links.insert(link, Link::Closing(reply));
        self.sessions.leave(link, &mut self.connection);
    }

    fn request(
        &mut self,
        address: &Arc<str>,
        message: peeklock_amqp::Message,
        transaction: Option<Bytes>,
        reply: Reply<peeklock_amqp::Message>,
    ) {
        if !self.nodes.contains_key(address) {
            self.serial += 1;
            let Some(node) =
                Node::attach(Arc::clone(address), self.serial, &mut self.sessions, &mut self.connection)
            else {
                let _ = reply.send(Err(Error::TooManyLinks));
                return;
            };
            for link in [node.sender, node.receiver] {
                self.links.insert(link, Link::Request(Arc::clone(address)));
            }
            self.nodes.insert(Arc::clone(address), node);
        }
        if let Some(node) = self.nodes.get_mut(address) {
            node.forget_abandoned();
            node.push(message, transaction, reply);
            self.touched.push(node.sender);
        }
    }

    /// Returns the link to the coordinator for a request. Attaches it if there is none.
    fn coordinator(&mut self) -> Option<&mut Coordinator> {
        if self.coordinator.is_none() {
            self.serial += 1;
            let spares = Arc::clone(&self.spares);
            let coordinator =
                Coordinator::attach(self.serial, spares, &mut self.sessions, &mut self.connection)?;
            self.links.insert(coordinator.link, Link::Coordinator);
            self.coordinator = Some(coordinator);
        }
        self.coordinator.as_mut()
    }

    fn touch(&mut self, link: LinkId) {
        if self.touched.last() != Some(&link) {
            self.touched.push(link);
        }
    }

    fn touch_all(&mut self) {
        self.touched.extend(self.links.keys());
    }

    /// Sends pending messages and returns permits, once per link and round.
    fn finish_round(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        let mut stalled = Vec::new();
        for link in touched.drain(..) {
            match self.links.get_mut(&link) {
                Some(Link::Sending(sending)) => {
                    sending.pump(link, &mut self.connection);
                    if sending.has_waiting() && self.connection.output_len() >= OUTPUT_BYTES_MAX {
                        stalled.push(link);
                    }
                    sending.finish_round();
                }
                Some(Link::Request(address)) => {
                    if let Some(node) = self.nodes.get_mut(address)
                        && node.has_waiting()
                    {
                        node.pump(&mut self.connection);
                    }
                }
                _ => {}
            }
        }
        // A discharge follows the steps that have left in this round.
        if let Some(coordinator) = &mut self.coordinator
            && coordinator.has_waiting()
        {
            coordinator.pump(&mut self.connection);
        }
        // Keeps the capacity for the next round.
        self.touched = touched;
        self.touched.append(&mut stalled);
    }
}

impl Link {
    fn entity(&self) -> Option<Arc<str>> {
        match self {
            Link::Opening(request, _) => Some(Arc::clone(&request.entity)),
            Link::Sending(sending) => Some(sending.entity()),
            Link::Receiving(receiving) => Some(receiving.entity()),
            Link::Request(address) => Some(Arc::clone(address)),
            Link::Coordinator | Link::Closing(_) => None,
        }
    }

    fn end(self, error: &Error) {
        match self {
            Link::Opening(_, reply) => drop(reply.send(Err(error.clone()))),
            Link::Sending(sending) => sending.end(error),
            Link::Receiving(receiving) => receiving.end(error),
            Link::Closing(Some(reply)) => drop(reply.send(Ok(()))),
            Link::Request(_) | Link::Coordinator | Link::Closing(None) => {}
        }
    }
}

/// Writes the output. Without output, flushes bytes that a TLS layer may hold back. The future can be dropped at any time.
async fn write<W: AsyncWrite + Unpin>(
    writer: &mut W,
    output: &mut BytesMut,
    is_unflushed: &mut bool,
) -> io::Result<()> {
    if output.is_empty() {
        writer.flush().await?;
        *is_unflushed = false;
    } else if writer.write_buf(output).await? == 0 {
        return Err(io::ErrorKind::WriteZero.into());
    } else {
        *is_unflushed = true;
    }
    Ok(())
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
