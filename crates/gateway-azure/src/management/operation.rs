//! What a management request asks for, read out of its properties and body.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::Value;
use peeklock_broker::engine::{EntityId, ReceiveMode, Settlement};
use peeklock_broker::{Request, Ticket};
use peeklock_types::{EntityName, LockToken, QueueSettings, SequenceNumber, SubQueue, limits};

use super::ResponseKind;
use crate::error::Refusal;
use crate::message::{RequestMessage, encode_patch};
use crate::sas::Right;

pub(super) enum Operation {
    Entity(EntityOperation),
    Namespace(NamespaceOperation),
}

pub(super) enum EntityOperation {
    Renew { tokens: Vec<LockToken> },
    Peek { from: SequenceNumber, count_max: usize },
    ReceiveDeferred { numbers: Vec<SequenceNumber>, mode: ReceiveMode },
    Settle { tokens: Vec<LockToken>, settlement: Settlement },
}

pub(super) enum NamespaceOperation {
    CreateQueue { name: EntityName, settings: QueueSettings },
    DeleteQueue { name: EntityName },
    ShowQueue { name: EntityName },
    ListQueues,
}

impl Operation {
    pub(super) fn parse(request: &RequestMessage, of_entity: bool) -> Result<Self, Refusal> {
        let name = request.property("operation").and_then(Value::as_str);
        let name = name.ok_or_else(|| Refusal::bad_request("the request has no 'operation'"))?;
        let body = &request.body;
        match (name, of_entity) {
            ("com.microsoft:renew-lock", true) => renew(body),
            ("com.microsoft:peek-message", true) => peek(body),
            ("com.microsoft:receive-by-sequence-number", true) => receive_deferred(body),
            ("com.microsoft:update-disposition", true) => update_disposition(body),
            ("peeklock:create-queue", false) => create_queue(body),
            ("peeklock:delete-queue", false) => {
                Ok(Operation::Namespace(NamespaceOperation::DeleteQueue { name: entity_name(body)? }))
            }
            ("peeklock:show-queue", false) => {
                Ok(Operation::Namespace(NamespaceOperation::ShowQueue { name: entity_name(body)? }))
            }
            ("peeklock:list-queues", false) => Ok(Operation::Namespace(NamespaceOperation::ListQueues)),
            _ => Err(Refusal::not_implemented(format!("the operation '{name}' is not supported here (yet)"))),
        }
    }

    pub(super) fn right(&self) -> Right {
        match self {
            Operation::Entity(_) => Right::Listen,
            Operation::Namespace(_) => Right::Manage,
        }
    }

    pub(super) fn response_kind(&self) -> ResponseKind {
        match self {
            Operation::Entity(EntityOperation::Renew { .. }) => ResponseKind::Expirations,
            Operation::Entity(EntityOperation::Peek { .. }) => ResponseKind::Peeked,
            Operation::Entity(EntityOperation::ReceiveDeferred { .. }) => ResponseKind::Received,
            Operation::Entity(EntityOperation::Settle { .. }) => ResponseKind::Done,
            Operation::Namespace(NamespaceOperation::CreateQueue { .. }) => ResponseKind::Created,
            Operation::Namespace(NamespaceOperation::DeleteQueue { .. }) => ResponseKind::Done,
            Operation::Namespace(NamespaceOperation::ShowQueue { .. } | NamespaceOperation::ListQueues) => {
                ResponseKind::Queues
            }
        }
    }
}

impl EntityOperation {
    /// At least one request.
    pub(super) fn requests(self, ticket: Ticket, entity: EntityId, sub_queue: SubQueue) -> Vec<Request> {
        match self {
            EntityOperation::Renew { tokens } => vec![Request::Renew { ticket, entity, sub_queue, tokens }],
            EntityOperation::Peek { from, count_max } => {
                vec![Request::Peek { ticket, entity, sub_queue, from, count_max }]
            }
            EntityOperation::ReceiveDeferred { numbers, mode } => {
                vec![Request::ReceiveDeferred { ticket, entity, sub_queue, numbers, mode }]
            }
            EntityOperation::Settle { tokens, settlement } => {
                let settle = |token| Request::Settle {
                    ticket,
                    entity,
                    sub_queue,
                    token,
                    settlement: settlement.clone(),
                };
                tokens.into_iter().map(settle).collect()
            }
        }
    }
}

impl NamespaceOperation {
    /// The one entity it is about, if it is about one.
    pub(super) fn name(&self) -> Option<&EntityName> {
        match self {
            NamespaceOperation::CreateQueue { name, .. }
            | NamespaceOperation::DeleteQueue { name }
            | NamespaceOperation::ShowQueue { name } => Some(name),
            NamespaceOperation::ListQueues => None,
        }
    }

    pub(super) fn request(&self, ticket: Ticket) -> Request {
        match self {
            NamespaceOperation::CreateQueue { name, settings } => {
                Request::CreateQueue { ticket, name: name.clone(), settings: settings.clone() }
            }
            NamespaceOperation::DeleteQueue { name } => Request::DeleteQueue { ticket, name: name.clone() },
            NamespaceOperation::ShowQueue { name } => Request::ShowQueue { ticket, name: name.clone() },
            NamespaceOperation::ListQueues => Request::ListQueues { ticket },
        }
    }
}

fn missing(key: &str, what: &str) -> Refusal {
    Refusal::bad_request(format!("the request's body has no '{key}' that is {what}"))
}

fn renew(body: &Value) -> Result<Operation, Refusal> {
    Ok(Operation::Entity(EntityOperation::Renew { tokens: lock_tokens(body)? }))
}

fn peek(body: &Value) -> Result<Operation, Refusal> {
    let from = body.lookup("from-sequence-number").and_then(Value::as_i64);
    let from = from.ok_or_else(|| missing("from-sequence-number", "a number"))?;
    let count = body.lookup("message-count").and_then(Value::as_i64);
    let count = count.ok_or_else(|| missing("message-count", "a number"))?;
    let count_max = usize::try_from(count).ok().filter(|count| *count > 0);
    let count_max = count_max.ok_or_else(|| Refusal::bad_request("'message-count' must be above zero"))?;
    let from = SequenceNumber(u64::try_from(from).unwrap_or_default());
    Ok(Operation::Entity(EntityOperation::Peek { from, count_max: count_max.min(limits::BATCH_COUNT_MAX) }))
}

fn receive_deferred(body: &Value) -> Result<Operation, Refusal> {
    let numbers = elements(body, "sequence-numbers")?;
    let number = |value: &Value| value.as_i64().and_then(|n| u64::try_from(n).ok()).map(SequenceNumber);
    let numbers = numbers.iter().map(number).collect::<Option<Vec<_>>>();
    let numbers = numbers.ok_or_else(|| missing("sequence-numbers", "a list of numbers"))?;
    let mode = match body.lookup("receiver-settle-mode").and_then(Value::as_u64) {
        Some(0) => ReceiveMode::ReceiveAndDelete,
        _ => ReceiveMode::PeekLock,
    };
    Ok(Operation::Entity(EntityOperation::ReceiveDeferred { numbers, mode }))
}

fn update_disposition(body: &Value) -> Result<Operation, Refusal> {
    let status = body.lookup("disposition-status").and_then(Value::as_str);
    let text = |key| body.lookup(key).and_then(Value::as_str).map(str::to_owned);
    let settlement = match status {
        Some("completed") => Settlement::Complete,
        Some("abandoned") => Settlement::Abandon { patch: patch(body)? },
        // The service's own spelling.
        Some("defered" | "deferred") => Settlement::Defer { patch: patch(body)? },
        Some("suspended") => Settlement::DeadLetter {
            reason: text("deadletter-reason"),
            description: text("deadletter-description"),
            patch: patch(body)?,
        },
        _ => return Err(missing("disposition-status", "completed, abandoned, defered or suspended")),
    };
    Ok(Operation::Entity(EntityOperation::Settle { tokens: lock_tokens(body)?, settlement }))
}

fn patch(body: &Value) -> Result<Option<Bytes>, Refusal> {
    let Some(properties) = body.lookup("properties-to-modify").and_then(Value::as_map) else {
        return Ok(None);
    };
    if properties.iter().any(|(key, _)| key.as_str().is_none()) {
        return Err(missing("properties-to-modify", "a map with texts for keys"));
    }
    encode_patch(properties.to_vec())
}

fn lock_tokens(body: &Value) -> Result<Vec<LockToken>, Refusal> {
    let tokens = elements(body, "lock-tokens")?;
    let tokens =
        tokens.iter().map(|token| token.as_uuid().map(LockToken::from_bytes)).collect::<Option<Vec<_>>>();
    tokens.ok_or_else(|| missing("lock-tokens", "a list of uuids"))
}

/// The elements of an array or list; some, but not too many.
fn elements<'a>(body: &'a Value, key: &str) -> Result<&'a [Value], Refusal> {
    let elements = body.lookup(key).and_then(Value::as_elements).filter(|elements| !elements.is_empty());
    let elements = elements.ok_or_else(|| missing(key, "a list with at least one element"))?;
    if elements.len() > limits::BATCH_COUNT_MAX {
        let text = format!(
            "'{key}' has {} elements; at most {} are allowed",
            elements.len(),
            limits::BATCH_COUNT_MAX
        );
        return Err(Refusal::bad_request(text));
    }
    Ok(elements)
}

fn entity_name(body: &Value) -> Result<EntityName, Refusal> {
    let name = body.lookup("name").and_then(Value::as_str).ok_or_else(|| missing("name", "a text"))?;
    EntityName::parse(name).map_err(|error| Refusal::bad_request(error.to_string()))
}

fn create_queue(body: &Value) -> Result<Operation, Refusal> {
    let mut settings = QueueSettings::default();
    if let Some(millis) = body.lookup("lock-duration-ms").and_then(Value::as_u64) {
        settings.lock_duration = Duration::from_millis(millis);
    }
    if let Some(count) = body.lookup("max-delivery-count").and_then(Value::as_u64) {
        settings.max_delivery_count = u32::try_from(count).unwrap_or(u32::MAX);
    }
    settings.check().map_err(|error| Refusal::bad_request(error.to_string()))?;
    Ok(Operation::Namespace(NamespaceOperation::CreateQueue { name: entity_name(body)?, settings }))
}
