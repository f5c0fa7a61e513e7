//! Claims-based security: sends a token for each entity before its links are attached, and renews the tokens while the connection lives.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::{Message, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::driver::command::Command;
use crate::error::Error;
use crate::sas::{self, Signer};
use crate::shared::ANSWER_TIME_MAX;
use crate::target::Credentials;

/// Renews a token well before its expiry: a broker detaches links whose token has expired.
const RENEW_AFTER: Duration = Duration::from_secs(sas::TOKEN_LIFE.as_secs() / 4 * 3);
/// The pause after a renewal that failed for a reason that may pass.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(30);
const NODE: &str = "$cbs";
const REQUESTS_MAX: usize = 64;

/// A handle to the task that renews the tokens of one connection.
#[derive(Clone)]
pub(crate) struct TokenKeeper {
    requests: mpsc::Sender<Request>,
}

struct Request {
    entity: Arc<str>,
    reply: oneshot::Sender<Result<(), Error>>,
}

impl TokenKeeper {
    /// Starts the task. Returns `None` if the connection needs no tokens.
    pub(crate) fn start(credentials: &Credentials, commands: &mpsc::Sender<Command>) -> Option<Self> {
        let signer = Signer::of(credentials)?;
        let (requests, incoming) = mpsc::channel(REQUESTS_MAX);
        // The handle is weak, so that this task does not keep the connection open.
        tokio::spawn(keep(signer, incoming, commands.downgrade()));
        Some(Self { requests })
    }

    /// Sends a token for the entity, unless it has one. Returns `None` if the connection is lost.
    pub(crate) async fn authorize(&self, entity: &Arc<str>) -> Option<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { entity: Arc::clone(entity), reply }).await.ok()?;
        answer.await.ok()
    }
}

async fn keep(signer: Signer, mut incoming: mpsc::Receiver<Request>, commands: mpsc::WeakSender<Command>) {
    let mut renewals: HashMap<Arc<str>, Instant> = HashMap::new();
    loop {
        let next = renewals.iter().min_by_key(|(_, at)| **at).map(|(entity, at)| (Arc::clone(entity), *at));
        let due = async {
            match next {
                Some((entity, at)) => {
                    sleep_until(at).await;
                    entity
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            request = incoming.recv() => {
                let Some(Request { entity, reply }) = request else { return };
                let is_fresh = renewals.contains_key(&entity);
                let result = if is_fresh { Ok(()) } else { put_token(&signer, &entity, &commands).await };
                if result.is_ok() && !is_fresh {
                    renewals.insert(entity, Instant::now() + RENEW_AFTER);
                }
                let _ = reply.send(result);
            }
            entity = due => {
                match put_token(&signer, &entity, &commands).await {
                    Ok(()) => drop(renewals.insert(entity, Instant::now() + RENEW_AFTER)),
                    // The broker detaches the links with an error, and the next link requests a token again.
                    Err(Error::Unauthorized { .. } | Error::NotFound { .. } | Error::Closed) => drop(renewals.remove(&entity)),
                    // The former token is still valid for a while.
                    Err(_) => drop(renewals.insert(entity, Instant::now() + RENEW_AGAIN_AFTER)),
                }
            }
        }
    }
}

async fn put_token(
    signer: &Signer,
    entity: &Arc<str>,
    commands: &mpsc::WeakSender<Command>,
) -> Result<(), Error> {
    let (reply, answer) = oneshot::channel();
    let message = Box::new(request(signer, entity));
    let command = Command::Request { node: NODE.into(), message, transaction: None, reply };
    match commands.upgrade() {
        Some(commands) if commands.send(command).await.is_ok() => {}
        _ => return Err(Error::Closed),
    }
    let no_answer = || Error::NoAnswer {
        operation: "put-token".into(),
        entity: Arc::clone(entity),
        after: ANSWER_TIME_MAX,
    };
    let answer = tokio::time::timeout(ANSWER_TIME_MAX, answer).await.map_err(|_| no_answer())?;
    check(entity, &answer.unwrap_or(Err(Error::Closed))?)
}

fn request(signer: &Signer, entity: &str) -> Message {
    Message::value(signer.token(entity))
        .with_property("operation", "put-token")
        .with_property("type", "servicebus.windows.net:sastoken")
        .with_property("name", signer.audience(entity))
}

fn check(entity: &Arc<str>, response: &Message) -> Result<(), Error> {
    let status = response.property("status-code").and_then(Value::as_i32).unwrap_or_default();
    if (200..300).contains(&status) {
        return Ok(());
    }
    if status == 404 {
        return Err(Error::not_found(entity));
    }
    let description = response.property("status-description").and_then(Value::as_str);
    let reason = description.map_or_else(|| format!("status {status}").into(), Arc::from);
    Err(Error::Unauthorized { entity: Arc::clone(entity), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    #[test]
    fn a_put_token_request_names_the_entity_and_carries_a_signature_for_it() {
        let target = Target::parse("Endpoint=sb://h:7/;SharedAccessKeyName=k;SharedAccessKey=s").unwrap();
        let request = request(&Signer::of(&target.credentials).unwrap(), "orders");
        assert_eq!(request.property("name").and_then(Value::as_str), Some("sb://h:7/orders"));
        let peeklock_amqp::Body::Value(token) = request.body else { panic!("no token") };
        assert!(
            token.as_str().unwrap().starts_with("SharedAccessSignature sr=sb%3A%2F%2Fh%3A7%2Forders&sig=")
        );
    }

    #[test]
    fn a_rejected_token_is_an_error_with_the_description_of_the_broker() {
        let entity: Arc<str> = "orders".into();
        let response = |status: i32| Message::value(Value::Null).with_property("status-code", status);
        assert_eq!(check(&entity, &response(202)), Ok(()));
        let refused = response(401).with_property("status-description", "wrong signature");
        let error = check(&entity, &refused).unwrap_err();
        assert_eq!(error.to_string(), "access to 'orders' is refused: wrong signature");
        assert_eq!(check(&entity, &response(404)), Err(Error::not_found("orders")));
    }
}
