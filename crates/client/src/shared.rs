//! The state that all handles of one connection share: the command queue of the driver, and the reason of its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::Message;
use peeklock_amqp::connection::LinkId;
use tokio::sync::{mpsc, oneshot};

use crate::cbs::TokenKeeper;
use crate::driver::command::{Command, LinkRequest, Opened, Reply};
use crate::error::{Ending, Error};
use crate::spares::Spares;

/// The time limit for the response to an attach or a request.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Shared {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) ending: Ending,
    pub(crate) tokens: Option<TokenKeeper>,
    pub(crate) spares: Arc<Spares>,
}

impl Shared {
    /// Returns the reason why the driver has ended.
    pub(crate) fn lost(&self) -> Error {
        self.ending.get().cloned().unwrap_or(Error::Closed)
    }

    pub(crate) async fn tell(&self, command: Command) -> Result<(), Error> {
        self.commands.send(command).await.map_err(|_| self.lost())
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply)).await?;
        answer.await.unwrap_or_else(|_| Err(self.lost()))
    }

    async fn ask_in_time<T>(
        &self,
        operation: &str,
        entity: &Arc<str>,
        after: Duration,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        let answer = tokio::time::timeout(after, self.ask(command)).await;
        answer.unwrap_or_else(|_| {
            let (operation, entity) = (operation.into(), Arc::clone(entity));
            Err(Error::NoAnswer { operation, entity, after })
        })
    }

    /// Sends a token for the entity if the connection uses tokens, and attaches a link.
    pub(crate) async fn open(&self, request: LinkRequest) -> Result<Opened, Error> {
        let entity = Arc::clone(&request.entity);
        self.authorize(&entity).await?;
        let time_max = ANSWER_TIME_MAX.saturating_add(request.kind.wait());
        let request = Box::new(request);
        self.ask_in_time("open", &entity, time_max, |reply| Command::Open { request, reply }).await
    }

    pub(crate) async fn authorize(&self, entity: &Arc<str>) -> Result<(), Error> {
        match &self.tokens {
            Some(tokens) => tokens.authorize(entity).await.unwrap_or_else(|| Err(self.lost())),
            None => Ok(()),
        }
    }

    /// Sends a request to a node such as `orders/$management` and returns its response.
    pub(crate) async fn request(
        &self,
        node: &Arc<str>,
        operation: &str,
        message: Message,
        transaction: Option<Bytes>,
    ) -> Result<Message, Error> {
        let message = Box::new(message);
        let command = |reply| Command::Request { node: Arc::clone(node), message, transaction, reply };
        self.ask_in_time(operation, node, ANSWER_TIME_MAX, command).await
    }

    /// Sends a request to the transaction coordinator.
    pub(crate) async fn control<T>(
        &self,
        operation: &str,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        self.ask_in_time(operation, &"$coordinator".into(), ANSWER_TIME_MAX, command).await
    }

    /// Detaches without waiting, for handles that are dropped. If the command queue is full, the link stays until the connection ends,
    /// which costs the broker a little memory and loses no message.
    pub(crate) fn let_go(&self, link: LinkId) {
        let _ = self.commands.try_send(Command::Detach { link, unseen: Vec::new(), reply: None });
    }
}
