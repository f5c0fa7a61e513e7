//! What a management request asks for, read out of its properties and body.

use bytes::Bytes;
use peeklock_access::Right;
use peeklock_amqp::Value;
use peeklock_broker::engine::{EntityId, ReceiveMode, Settlement};
use peeklock_broker::{Listing, Request, SessionHold, Ticket};
use peeklock_filter::{Rule, RuleName};
use peeklock_types::{
    EntityKind, EntityName, EntityPath, LockToken, QueueSettings, SequenceNumber, SessionId, Timestamp,
    limits,
};

use super::answer::AnswerKind;
use super::body::{Body, missing};
use super::{rules, settings};
use crate::error::Refusal;
use crate::message::{RequestMessage, encode_patch};
use crate::outcome::abandon;

pub(super) enum Operation {
    Entity(EntityOperation),
    Namespace(NamespaceOperation),
}

pub(super) enum EntityOperation {
    Renew {
        tokens: Vec<LockToken>,
    },
    Peek {
        from: SequenceNumber,
        count_max: usize,
        session: Option<SessionId>,
        omit_body: bool,
    },
    ReceiveDeferred {
        numbers: Vec<SequenceNumber>,
        mode: ReceiveMode,
        session: Option<SessionId>,
    },
    Settle {
        tokens: Vec<LockToken>,
        settlement: Settlement,
        session: Option<SessionId>,
    },
    Schedule {
        messages: Vec<Bytes>,
    },
    CancelScheduled {
        numbers: Vec<SequenceNumber>,
    },
    RenewSession {
        session: SessionId,
    },
    SessionState {
        session: SessionId,
    },
    SetSessionState {
        session: SessionId,
        state: Option<Bytes>,
    },
    ListSessions {
        updated_since: Option<Timestamp>,
        skip: usize,
        top: usize,
    },
    /// Deletes at most so many messages, as the SDKs ask for it.
    BatchDelete {
        before: Option<Timestamp>,
        count_max: u64,
    },
    Purge {
        before: Option<Timestamp>,
        count_max: Option<u64>,
    },
    AddRule(Box<Rule>),
    RemoveRule(RuleName),
    ListRules {
        skip: usize,
        top: usize,
    },
}

pub(super) enum NamespaceOperation {
    CreateQueue { name: EntityName, settings: Box<QueueSettings> },
    UpdateQueue { name: EntityName, changes: Value },
    DeleteQueue { name: EntityName },
    ShowQueue { name: EntityName },
    ListQueues,
}

impl Operation {
    pub(super) fn parse(request: &RequestMessage, of_entity: bool) -> Result<Self, Refusal> {
        let name = request.property("operation").and_then(Value::as_str);
        let name = name.ok_or_else(|| Refusal::bad_request("the request has no 'operation'"))?;
        let body = Body(&request.body);
        let operation = if of_entity {
            EntityOperation::parse(name, body)?.map(Operation::Entity)
        } else {
            NamespaceOperation::parse(name, body)?.map(Operation::Namespace)
        };
        let unknown =
            || Refusal::not_implemented(format!("the operation '{name}' is not supported here (yet)"));
        operation.ok_or_else(unknown)
    }

    pub(super) fn right(&self) -> Right {
        match self {
            Operation::Entity(EntityOperation::Schedule { .. } | EntityOperation::CancelScheduled { .. }) => {
                Right::Send
            }
            Operation::Entity(EntityOperation::AddRule(_) | EntityOperation::RemoveRule(_)) => Right::Manage,
            Operation::Entity(_) => Right::Listen,
            Operation::Namespace(_) => Right::Manage,
        }
    }

    pub(super) fn is_settlement(&self) -> bool {
        matches!(self, Operation::Entity(EntityOperation::Settle { .. }))
    }

    pub(super) fn answer_kind(&self) -> AnswerKind {
        match self {
            Operation::Entity(operation) => operation.answer_kind(),
            Operation::Namespace(NamespaceOperation::CreateQueue { .. }) => AnswerKind::Created,
            Operation::Namespace(
                NamespaceOperation::DeleteQueue { .. } | NamespaceOperation::UpdateQueue { .. },
            ) => AnswerKind::Done,
            Operation::Namespace(NamespaceOperation::ShowQueue { .. } | NamespaceOperation::ListQueues) => {
                AnswerKind::Queues
            }
        }
    }
}

impl EntityOperation {
    fn parse(name: &str, body: Body<'_>) -> Result<Option<Self>, Refusal> {
        Ok(Some(match name {
            "com.microsoft:renew-lock" => EntityOperation::Renew { tokens: body.lock_tokens()? },
            "com.microsoft:peek-message" => peek(body)?,
            "com.microsoft:receive-by-sequence-number" => receive_deferred(body)?,
            "com.microsoft:update-disposition" => update_disposition(body)?,
            "com.microsoft:schedule-message" => schedule(body)?,
            "com.microsoft:cancel-scheduled-message" => {
                EntityOperation::CancelScheduled { numbers: body.sequence_numbers()? }
            }
            "com.microsoft:renew-session-lock" => {
                EntityOperation::RenewSession { session: body.required_session()? }
            }
            "com.microsoft:get-session-state" => {
                EntityOperation::SessionState { session: body.required_session()? }
            }
            "com.microsoft:set-session-state" => EntityOperation::SetSessionState {
                session: body.required_session()?,
                state: body.bytes("session-state")?,
            },
            "com.microsoft:get-message-sessions" => list_sessions(body)?,
            "com.microsoft:batch-delete-messages" => batch_delete(body)?,
            "com.microsoft:add-rule" => EntityOperation::AddRule(Box::new(rules::parse(body)?)),
            "com.microsoft:remove-rule" => EntityOperation::RemoveRule(rules::parse_name(body)?),
            "com.microsoft:enumerate-rules" => rules::list(body)?,
            "peeklock:purge" => EntityOperation::Purge {
                before: body.time("before")?,
                count_max: body.count("message-count")?,
            },
            _ => return Ok(None),
        }))
    }

    fn answer_kind(&self) -> AnswerKind {
        match self {
            EntityOperation::Renew { .. } => AnswerKind::Expirations,
            EntityOperation::Peek { omit_body, .. } => AnswerKind::Peeked { omit_body: *omit_body },
            EntityOperation::ReceiveDeferred { .. } => AnswerKind::Received,
            EntityOperation::Schedule { .. } => AnswerKind::Scheduled,
            EntityOperation::RenewSession { .. } => AnswerKind::SessionExpiration,
            EntityOperation::SessionState { .. } => AnswerKind::SessionState,
            EntityOperation::ListSessions { skip, .. } => AnswerKind::Sessions { skip: *skip },
            EntityOperation::BatchDelete { .. } => AnswerKind::Deleted,
            EntityOperation::Purge { .. } => AnswerKind::Purged,
            EntityOperation::ListRules { .. } => AnswerKind::Rules,
            EntityOperation::Settle { .. }
            | EntityOperation::CancelScheduled { .. }
            | EntityOperation::SetSessionState { .. }
            | EntityOperation::AddRule(_)
            | EntityOperation::RemoveRule(_) => AnswerKind::Done,
        }
    }

    /// The session that the peer must hold for it, if it needs one.
    pub(super) fn held_session(&self) -> Option<&SessionId> {
        match self {
            EntityOperation::ReceiveDeferred { session, .. } | EntityOperation::Settle { session, .. } => {
                session.as_ref()
            }
            EntityOperation::RenewSession { session }
            | EntityOperation::SessionState { session }
            | EntityOperation::SetSessionState { session, .. } => Some(session),
            _ => None,
        }
    }

    /// The request to the shard; `None` for what is no single request.
    pub(super) fn request(
        self,
        ticket: Ticket,
        entity: EntityId,
        path: &EntityPath,
        hold: Option<SessionHold>,
    ) -> Option<Request> {
        let (sub_queue, name) = (path.sub_queue, path.name.clone());
        Some(match self {
            EntityOperation::AddRule(rule) => Request::AddRule { ticket, name, rule: *rule },
            EntityOperation::RemoveRule(rule) => Request::RemoveRule { ticket, name, rule },
            EntityOperation::ListRules { skip, top } => Request::ListRules { ticket, name, skip, top },
            EntityOperation::Renew { tokens } => Request::Renew { ticket, entity, sub_queue, tokens },
            EntityOperation::Peek { from, count_max, session, .. } => {
                Request::Peek { ticket, entity, sub_queue, from, count_max, session }
            }
            EntityOperation::ReceiveDeferred { numbers, mode, .. } => {
                Request::ReceiveDeferred { ticket, entity, sub_queue, numbers, mode, hold }
            }
            EntityOperation::Settle { tokens, settlement, session } => {
                Request::SettleAll { ticket, entity, sub_queue, tokens, settlement, session }
            }
            EntityOperation::CancelScheduled { numbers } => {
                Request::CancelScheduled { ticket, entity, numbers }
            }
            EntityOperation::RenewSession { .. } => Request::RenewSession { ticket, entity, hold: hold? },
            EntityOperation::SessionState { .. } => Request::SessionState { ticket, entity, hold: hold? },
            EntityOperation::SetSessionState { state, .. } => {
                Request::SetSessionState { ticket, entity, hold: hold?, state }
            }
            EntityOperation::ListSessions { updated_since, skip, top } => {
                Request::ListSessions { ticket, entity, updated_since, skip, top }
            }
            EntityOperation::BatchDelete { before, count_max } => {
                Request::Purge { ticket, entity, sub_queue, before, count_max: Some(count_max) }
            }
            EntityOperation::Purge { before, count_max } => {
                Request::Purge { ticket, entity, sub_queue, before, count_max }
            }
            EntityOperation::Schedule { .. } => return None,
        })
    }
}

impl NamespaceOperation {
    fn parse(name: &str, body: Body<'_>) -> Result<Option<Self>, Refusal> {
        Ok(Some(match name {
            "peeklock:create-queue" => {
                let name = body.entity_name()?;
                NamespaceOperation::CreateQueue { settings: Box::new(settings::create(&name, body.0)?), name }
            }
            "peeklock:update-queue" => {
                // What is wrong in itself is refused at once; the rest depends on what the queue has.
                settings::change(&mut QueueSettings::default(), body.0)?;
                NamespaceOperation::UpdateQueue { name: body.entity_name()?, changes: body.0.clone() }
            }
            "peeklock:delete-queue" => NamespaceOperation::DeleteQueue { name: body.entity_name()? },
            "peeklock:show-queue" => NamespaceOperation::ShowQueue { name: body.entity_name()? },
            "peeklock:list-queues" => NamespaceOperation::ListQueues,
            _ => return Ok(None),
        }))
    }

    /// The one entity it is about, if it is about one.
    pub(super) fn name(&self) -> Option<&EntityName> {
        match self {
            NamespaceOperation::CreateQueue { name, .. }
            | NamespaceOperation::UpdateQueue { name, .. }
            | NamespaceOperation::DeleteQueue { name }
            | NamespaceOperation::ShowQueue { name } => Some(name),
            NamespaceOperation::ListQueues => None,
        }
    }

    /// The first request to the shard; an update looks at the settings before it changes them.
    pub(super) fn request(&self, ticket: Ticket) -> Request {
        match self {
            NamespaceOperation::CreateQueue { name, settings } => {
                let (kind, settings) = (EntityKind::Queue, (**settings).clone());
                Request::Create { ticket, name: name.clone(), kind, settings, rule: None }
            }
            NamespaceOperation::DeleteQueue { name } => {
                Request::Delete { ticket, name: name.clone(), expected: None }
            }
            NamespaceOperation::UpdateQueue { name, .. } | NamespaceOperation::ShowQueue { name } => {
                Request::Show { ticket, name: name.clone() }
            }
            NamespaceOperation::ListQueues => {
                Request::List { ticket, what: Listing::Queues, after: None, top: usize::MAX }
            }
        }
    }
}

fn peek(body: Body<'_>) -> Result<EntityOperation, Refusal> {
    let from = SequenceNumber(u64::try_from(body.number("from-sequence-number")?).unwrap_or_default());
    Ok(EntityOperation::Peek {
        from,
        count_max: body.message_count()?,
        session: body.session()?,
        omit_body: body.boolean("omit-message-body")?.unwrap_or(false),
    })
}

fn receive_deferred(body: Body<'_>) -> Result<EntityOperation, Refusal> {
    let mode = match body.count("receiver-settle-mode")? {
        Some(0) => ReceiveMode::ReceiveAndDelete,
        _ => ReceiveMode::PeekLock,
    };
    Ok(EntityOperation::ReceiveDeferred { numbers: body.sequence_numbers()?, mode, session: body.session()? })
}

fn update_disposition(body: Body<'_>) -> Result<EntityOperation, Refusal> {
    let settlement = match body.text("disposition-status")?.as_deref() {
        Some("completed") => Settlement::Complete,
        Some("abandoned") => abandon(body.properties()?)?,
        // The service's own spelling.
        Some("defered" | "deferred") => Settlement::Defer { patch: encode_patch(body.properties()?)? },
        Some("suspended") => Settlement::DeadLetter {
            reason: body.text("deadletter-reason")?,
            description: body.text("deadletter-description")?,
            patch: encode_patch(body.properties()?)?,
        },
        _ => return Err(missing("disposition-status", "completed, abandoned, defered or suspended")),
    };
    Ok(EntityOperation::Settle { tokens: body.lock_tokens()?, settlement, session: body.session()? })
}

fn schedule(body: Body<'_>) -> Result<EntityOperation, Refusal> {
    // What else stands beside the message is in the message, too.
    let message = |entry: &Value| entry.lookup("message").and_then(Value::as_bytes).cloned();
    Ok(EntityOperation::Schedule {
        messages: body.elements("messages", "a list of encoded messages", message)?,
    })
}

fn list_sessions(body: Body<'_>) -> Result<EntityOperation, Refusal> {
    /// The first moment of the year 10000: SDKs say it for "all sessions that have messages".
    const EVERY_SESSION: Timestamp = Timestamp::from_millis(253_402_300_800_000);
    let count = |key| Ok::<_, Refusal>(usize::try_from(body.count(key)?.unwrap_or(0)).unwrap_or(usize::MAX));
    let updated_since = body.time("last-updated-time")?.filter(|time| *time < EVERY_SESSION);
    let top = count("top")?.min(limits::BATCH_COUNT_MAX);
    if top == 0 {
        return Err(Refusal::bad_request("'top' must be above zero"));
    }
    Ok(EntityOperation::ListSessions { updated_since, skip: count("skip")?, top })
}

fn batch_delete(body: Body<'_>) -> Result<EntityOperation, Refusal> {
    if body.session()?.is_some() {
        let text = "deleting the messages of one session is not supported; receive and complete them";
        return Err(Refusal::not_implemented(text));
    }
    Ok(EntityOperation::BatchDelete {
        before: body.time("enqueued-time-utc")?,
        count_max: body.message_count()? as u64,
    })
}
