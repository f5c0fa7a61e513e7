//! Messages: put, get, peek, update, delete and clear.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::HeaderName;
use http::{Method, StatusCode};
use peeklock_amqp::DecodeError;
use peeklock_broker::engine::{self, Attributes};
use peeklock_broker::{AdminError, Message};
use peeklock_types::{EntityName, EntityPath, LockToken, SequenceNumber, SubQueue, Timestamp, limits};
use peeklock_web::shown;
use peeklock_web::xml::{Writer, read};

use super::message::{self, Guid, is_xml};
use super::receipt::PopReceipt;
use super::{Request, refusal};
use crate::answer::{empty, put_header, xml};
use crate::auth::Resource;
use crate::problem::Problem;
use crate::time::http_date;

const POP_RECEIPT: HeaderName = HeaderName::from_static("x-ms-popreceipt");
const NEXT_VISIBLE: HeaderName = HeaderName::from_static("x-ms-time-next-visible");

const TEXT_SIZE_BYTES_MAX: usize = 64 * 1024;
/// The maximum size of a text in which every character is escaped, with its document.
const BODY_SIZE_BYTES_MAX: usize = TEXT_SIZE_BYTES_MAX * 6 + 4096;
const HIDDEN_FOR_USUAL: Duration = Duration::from_secs(30);
const TIME_TO_LIVE_USUAL: Duration = Duration::from_secs(7 * 24 * 3600);
const COUNT_MAX: u64 = limits::TAKE_COUNT_MAX as u64;
const HIDDEN_SECONDS_MAX: u64 = limits::HIDDEN_MAX.as_secs();

impl Request<'_, '_> {
    pub(super) async fn messages(self, name: &EntityName, body: Body) -> Result<Response, Problem> {
        let is_peek = self.call.query("peekonly").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        match (self.method(), is_peek) {
            (&Method::POST, _) => self.put(name, body).await,
            (&Method::GET, false) => self.take(name).await,
            (&Method::GET, true) => self.peek(name).await,
            (&Method::DELETE, _) => self.clear(name).await,
            (method, _) => Err(Problem::method(method, "POST, GET or DELETE")),
        }
    }

    pub(super) async fn message(self, name: &EntityName, id: &str, body: Body) -> Result<Response, Problem> {
        match *self.method() {
            Method::PUT => self.change(name, id, body).await,
            Method::DELETE => self.remove(name, id).await,
            ref method => Err(Problem::method(method, "PUT or DELETE")),
        }
    }

    async fn put(self, name: &EntityName, body: Body) -> Result<Response, Problem> {
        self.may(Resource::Object, "a", "a")?;
        let hidden_for = self.hidden_for(0)?.unwrap_or(Duration::ZERO);
        let time_to_live = self.time_to_live()?;
        if time_to_live.is_some_and(|span| hidden_for >= span) {
            let text = "is not less than the message's time to live; nobody would ever get it";
            return Err(Problem::out_of_range("visibilitytimeout", text));
        }
        let call = self.call;
        let body = call.read_body(body, BODY_SIZE_BYTES_MAX).await?;
        let text = text_of(&body)?;
        let id = Guid::new();
        let put = call.account.broker.put_message(name.clone(), hidden_for, |out| {
            message::store(id, text, out).map_err(Failure::Unreadable)?;
            let attributes = Attributes { time_to_live, ..Attributes::default() };
            Ok((!attributes.is_empty()).then(|| Box::new(attributes)))
        });
        let put = put.await.map_err(Failure::into_problem)?;
        let mut writer = Writer::document();
        writer.begin("QueueMessagesList", &[]);
        writer.begin("QueueMessage", &[]);
        write_head(&mut writer, id, &put.message);
        write_receipt(&mut writer, PopReceipt { token: put.token, id }, next_visible(&put.message));
        writer.end();
        writer.end();
        Ok(xml(StatusCode::CREATED, writer))
    }

    async fn take(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Object, "p", "p")?;
        let hidden_for = self.hidden_for(1)?.unwrap_or(HIDDEN_FOR_USUAL);
        let taken = self.call.account.broker.take_messages(name.clone(), self.count()?, hidden_for).await;
        show_all(&taken.map_err(|error| refusal::of(&error))?)
    }

    async fn peek(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Object, "r", "r")?;
        let found = self.call.account.broker.peek_waiting(name.clone(), self.count()?).await;
        show_all(&found.map_err(|error| refusal::of(&error))?)
    }

    async fn clear(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Object, "d", "p")?;
        let cleared = self.call.account.broker.clear_messages(name.clone()).await;
        cleared.map_err(|error| refusal::of(&error))?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn change(self, name: &EntityName, id: &str, body: Body) -> Result<Response, Problem> {
        self.may(Resource::Object, "u", "u")?;
        let receipt = self.receipt(name, id)?;
        let hidden_for = self.hidden_for(0)?.ok_or_else(|| missing("visibilitytimeout"))?;
        let (broker, call) = (&self.call.account.broker, self.call);
        let body = call.read_body(body, BODY_SIZE_BYTES_MAX).await?;
        let stored = match body.is_empty() {
            true => None,
            false => Some(replaced(call, name, receipt.token, text_of(&body)?).await?),
        };
        let changed = broker.change_message(name.clone(), receipt.token, hidden_for, stored.as_deref()).await;
        let changed = changed.map_err(|error| refusal::of(&error))?;
        let mut response = empty(StatusCode::NO_CONTENT);
        // A message with too many deliveries is now dead-lettered, and its receipt is invalid.
        let (token, visible) = match changed {
            Some(changed) => (changed.token, visible_from(call.now(), &changed.message)),
            None => (receipt.token, call.now()),
        };
        put_header(&mut response, &POP_RECEIPT, &PopReceipt { token, ..receipt }.write());
        put_header(&mut response, &NEXT_VISIBLE, &http_date(visible));
        Ok(response)
    }

    async fn remove(self, name: &EntityName, id: &str) -> Result<Response, Problem> {
        self.may(Resource::Object, "pd", "p")?;
        let receipt = self.receipt(name, id)?;
        let deleted = self.call.account.broker.delete_message(name.clone(), receipt.token).await;
        deleted.map_err(|error| refusal::of(&error))?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    fn receipt(&self, name: &EntityName, id: &str) -> Result<PopReceipt, Problem> {
        let text = self.call.query("popreceipt").ok_or_else(|| missing("popreceipt"))?;
        let receipt = PopReceipt::parse(text).ok_or_else(|| {
            let text = "the pop receipt is none that was given out here; use that of the last get or update";
            Problem::bad("PopReceiptMismatch", text)
        })?;
        if Guid::parse(id) == Some(receipt.id) {
            return Ok(receipt);
        }
        let text = format!("there is no message '{}' in '{name}' with this pop receipt", shown(id));
        Err(Problem::not_found("MessageNotFound", text))
    }

    fn count(&self) -> Result<usize, Problem> {
        let given = self.call.query_number("numofmessages", 1, COUNT_MAX)?.unwrap_or(1);
        Ok(usize::try_from(given).unwrap_or(1))
    }

    fn hidden_for(&self, min: u64) -> Result<Option<Duration>, Problem> {
        let seconds = self.call.query_number("visibilitytimeout", min, HIDDEN_SECONDS_MAX)?;
        Ok(seconds.map(Duration::from_secs))
    }

    /// Returns the time to live; `None` if the message never expires.
    fn time_to_live(&self) -> Result<Option<Duration>, Problem> {
        match self.call.query("messagettl") {
            None => Ok(Some(TIME_TO_LIVE_USUAL)),
            Some("-1") => Ok(None),
            Some(_) => {
                let max = limits::DURATION_MAX.as_secs();
                Ok(self.call.query_number("messagettl", 1, max)?.map(Duration::from_secs))
            }
        }
    }
}

/// Returns the stored form of a message with another text. The message is read first, because its other values are
/// retained; its receipt is checked by the update.
async fn replaced(
    call: &crate::call::Call<'_>,
    name: &EntityName,
    token: LockToken,
    text: String,
) -> Result<Vec<u8>, Problem> {
    let path = EntityPath { name: name.clone(), sub_queue: SubQueue::Main };
    let found = call.account.broker.peek(path, token.sequence_number(), 1).await;
    let found = found.map_err(|error| refusal::of(&error))?;
    let found = found.into_iter().find(|found| found.message.sequence_number == token.sequence_number());
    let found = found.ok_or_else(|| {
        Problem::not_found("MessageNotFound", format!("the message is not in '{name}' any more"))
    })?;
    message::replace(&found.body, text).map_err(|error| unreadable(found.message.sequence_number, &error))
}

/// The reason why a message was not stored.
enum Failure {
    Unreadable(DecodeError),
    Refused(AdminError),
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        Failure::Refused(error)
    }
}

impl Failure {
    fn into_problem(self) -> Problem {
        match self {
            Failure::Unreadable(error) => Problem::bad("InvalidInput", error.to_string()),
            Failure::Refused(error) => refusal::of(&error),
        }
    }
}

fn missing(name: &str) -> Problem {
    Problem::bad("MissingRequiredQueryParameter", format!("the query has no '{name}'; give it one"))
}

fn unreadable(number: SequenceNumber, error: &DecodeError) -> Problem {
    let text = format!("message {number} cannot be read: {error}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", text)
}

/// Returns the text of a received message.
fn text_of(body: &[u8]) -> Result<String, Problem> {
    let document = read(body)?;
    let text = document.child("MessageText").filter(|_| document.name == "QueueMessage");
    let text = text.ok_or_else(|| {
        let text = "the body is no <QueueMessage> with a <MessageText>; send one";
        Problem::bad("MissingRequiredXmlNode", text)
    })?;
    if text.text.len() > TEXT_SIZE_BYTES_MAX {
        let text =
            format!("the text has {} bytes; at most {TEXT_SIZE_BYTES_MAX} are allowed", text.text.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", text));
    }
    if !text.text.chars().all(is_xml) || !text.children.is_empty() {
        let text = "the text has something in it that XML cannot carry in a text; send it in base64";
        return Err(Problem::bad("InvalidXmlNodeValue", text));
    }
    Ok(text.text.clone())
}

/// Writes messages that were received or peeked.
fn show_all(messages: &[Message]) -> Result<Response, Problem> {
    let mut writer = Writer::document();
    writer.begin("QueueMessagesList", &[]);
    for Message { token, message, body, .. } in messages {
        let shown = message::show(message.sequence_number, body)
            .map_err(|error| unreadable(message.sequence_number, &error))?;
        writer.begin("QueueMessage", &[]);
        write_head(&mut writer, shown.id, message);
        if let Some(token) = *token {
            write_receipt(&mut writer, PopReceipt { token, id: shown.id }, next_visible(message));
        }
        // The broker counts failed deliveries; the service also counts the current one.
        writer.number("DequeueCount", message.delivery_count.saturating_add(token.is_some().into()));
        writer.text("MessageText", &shown.text);
        writer.end();
    }
    writer.end();
    Ok(xml(StatusCode::OK, writer))
}

fn write_head(writer: &mut Writer, id: Guid, message: &engine::Message) {
    let time_to_live = message.details.as_ref().and_then(|details| details.time_to_live);
    // A message that never expires has an expiry time at the end of the year 9999.
    let expires = time_to_live.map_or(Timestamp::MAX, |span| message.enqueued_at + span);
    writer.text("MessageId", &id.to_string());
    writer.text("InsertionTime", &http_date(message.enqueued_at));
    writer.text("ExpirationTime", &http_date(expires));
}

fn write_receipt(writer: &mut Writer, receipt: PopReceipt, visible: Timestamp) {
    writer.text("PopReceipt", &receipt.write());
    writer.text("TimeNextVisible", &http_date(visible));
}

fn next_visible(message: &engine::Message) -> Timestamp {
    visible_from(message.enqueued_at, message)
}

/// Returns the time at which other receivers can get the message; `now` if it is available.
fn visible_from(now: Timestamp, message: &engine::Message) -> Timestamp {
    let due = message.details.as_ref().and_then(|details| details.due);
    message.locked_until.or(due).unwrap_or(now)
}
