//! The operation of a management request, decoded from its properties and body.

use bytes::Bytes;
use peeklock_access::Right;
use peeklock_amqp::Value;
use peeklock_broker::engine::{EntityId, ReceiveMode, Settlement};
use peeklock_broker::request::receiving::{Peek, ReceiveDeferred};
use peeklock_broker::request::rules::{AddRule, ListRules, RemoveRule};
use peeklock_broker::request::sending::CancelScheduled;
use peeklock_broker::request::sessions::{ListSessions, RenewSession, SetState, ShowState};
use peeklock_broker::request::settling::{Purge, PurgeSession, RenewLocks, SettleAll};
use peeklock_broker::{Ask, Request, SessionHold};
use peeklock_filter::{Rule, RuleName};
use peeklock_message::encode_patch;
use peeklock_types::{EntityPath, LockToken, SequenceNumber, SessionId, Timestamp, limits};

use super::answer::Form;
use super::body::{Body, missing};
use super::rules;
use crate::connection::request::numbered;
use crate::error::Refusal;
use crate::message::RequestMessage;
use crate::receiving::outcome::abandon;

pub(super) enum Operation {
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
    /// Deletes at most this many messages, as requested by the SDKs.
    BatchDelete {
        before: Option<Timestamp>,
        count_max: u64,
        session: Option<SessionId>,
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

impl Operation {
    pub(super) fn read(request: &RequestMessage) -> Result<Self, Refusal> {
        let name = request.property("operation").and_then(Value::as_str);
        let name = name.ok_or_else(|| Refusal::bad_request("the request has no 'operation'"))?;
        let unknown =
            || Refusal::not_implemented(format!("the operation '{name}' is not supported here (yet)"));
        Self::parse(name, Body(&request.body))?.ok_or_else(unknown)
    }

    pub(super) fn right(&self) -> Right {
        match self {
            Operation::Schedule { .. } | Operation::CancelScheduled { .. } => Right::Send,
            // Changes of rules need no other right: the rule managers of the SDKs are documented to need only this one,
            // unlike management over HTTP.
            _ => Right::Listen,
        }
    }

    fn parse(name: &str, body: Body<'_>) -> Result<Option<Self>, Refusal> {
        Ok(Some(match name {
            "com.microsoft:renew-lock" => Operation::Renew { tokens: body.lock_tokens()? },
            "com.microsoft:peek-message" => peek(body)?,
            "com.microsoft:receive-by-sequence-number" => receive_deferred(body)?,
            "com.microsoft:update-disposition" => update_disposition(body)?,
            "com.microsoft:schedule-message" => schedule(body)?,
            "com.microsoft:cancel-scheduled-message" => {
                Operation::CancelScheduled { numbers: body.sequence_numbers()? }
            }
            "com.microsoft:renew-session-lock" => {
                Operation::RenewSession { session: body.required_session()? }
            }
            "com.microsoft:get-session-state" => {
                Operation::SessionState { session: body.required_session()? }
            }
            "com.microsoft:set-session-state" => Operation::SetSessionState {
                session: body.required_session()?,
                state: body.bytes("session-state")?,
            },
            "com.microsoft:get-message-sessions" => list_sessions(body)?,
            "com.microsoft:batch-delete-messages" => batch_delete(body)?,
            "com.microsoft:add-rule" => Operation::AddRule(Box::new(rules::parse(body)?)),
            "com.microsoft:remove-rule" => Operation::RemoveRule(rules::parse_name(body)?),
            "com.microsoft:enumerate-rules" => rules::list(body)?,
            "peeklock:purge" => {
                Operation::Purge { before: body.time("before")?, count_max: body.count("message-count")? }
            }
            _ => return Ok(None),
        }))
    }

    pub(super) fn form(&self) -> Form {
        match self {
            Operation::Peek { omit_body, .. } => Form { omit_body: *omit_body, ..Form::default() },
            Operation::ListSessions { skip, .. } => Form { skip: *skip, ..Form::default() },
            Operation::Purge { .. } => Form { is_purge: true, ..Form::default() },
            _ => Form::default(),
        }
    }

    /// Adopts the session of the link that the request names, unless the request names a session.
    ///
    /// SDK quirk: for deferred messages Go names no session, only the link that holds it.
    pub(super) fn take_session(&mut self, of_link: &SessionId) {
        if let Operation::ReceiveDeferred { session, .. } | Operation::Settle { session, .. } = self {
            session.get_or_insert_with(|| of_link.clone());
        }
    }

    /// Returns the session that the peer must hold for the operation, if it requires one.
    pub(super) fn held_session(&self, has_sessions: bool) -> Option<&SessionId> {
        match self {
            // SDK quirk: JavaScript names the session of every deferred message that has one, even in entities without
            // sessions.
            Operation::ReceiveDeferred { session, .. } | Operation::Settle { session, .. } => {
                session.as_ref().filter(|_| has_sessions)
            }
            Operation::BatchDelete { session, .. } => session.as_ref(),
            Operation::RenewSession { session }
            | Operation::SessionState { session }
            | Operation::SetSessionState { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Returns the request to the shard, or `None` for an operation that is not a single request.
    pub(super) fn request(
        self,
        number: u32,
        entity: EntityId,
        path: &EntityPath,
        hold: Option<SessionHold>,
    ) -> Option<Request> {
        fn ask<R: Ask>(number: u32, request: R) -> Request {
            request.asked(numbered(number))
        }
        let (sub_queue, name) = (path.sub_queue, path.name.clone());
        Some(match self {
            Operation::AddRule(rule) => ask(number, AddRule { name, rule }),
            Operation::RemoveRule(rule) => ask(number, RemoveRule { name, rule }),
            Operation::ListRules { skip, top } => ask(number, ListRules { name, skip, top }),
            Operation::Renew { tokens } => ask(number, RenewLocks { entity, sub_queue, tokens }),
            Operation::Peek { from, count_max, session, .. } => {
                ask(number, Peek { entity, sub_queue, from, count_max, session })
            }
            Operation::ReceiveDeferred { numbers, mode, .. } => {
                ask(number, ReceiveDeferred { entity, sub_queue, numbers, mode, hold })
            }
            Operation::Settle { tokens, settlement, .. } => {
                ask(number, SettleAll { entity, sub_queue, tokens, settlement, hold })
            }
            Operation::CancelScheduled { numbers } => ask(number, CancelScheduled { entity, numbers }),
            Operation::RenewSession { .. } => ask(number, RenewSession { entity, hold: hold? }),
            Operation::SessionState { .. } => ask(number, ShowState { entity, hold: hold? }),
            Operation::SetSessionState { state, .. } => ask(number, SetState { entity, hold: hold?, state }),
            Operation::ListSessions { updated_since, skip, top } => {
                ask(number, ListSessions { entity, updated_since, skip, top })
            }
            Operation::BatchDelete { before, count_max, .. } => match hold {
                Some(hold) => ask(number, PurgeSession { entity, hold, before, count_max }),
                None => ask(number, Purge { entity, sub_queue, before, count_max: Some(count_max) }),
            },
            Operation::Purge { before, count_max } => {
                ask(number, Purge { entity, sub_queue, before, count_max })
            }
            Operation::Schedule { .. } => return None,
        })
    }
}

/// Returns whether a request that names a transaction is a step of it.
///
/// The SDKs put the transaction of the program on nearly all their requests. The broker executes those that only read
/// or renew at once, outside the transaction, and a refusal of one does not doom it. An unknown request counts as a
/// step.
pub(super) fn is_step(request: &RequestMessage) -> bool {
    let name = request.property("operation").and_then(Value::as_str).unwrap_or_default();
    !matches!(
        name,
        "com.microsoft:renew-lock"
            | "com.microsoft:peek-message"
            | "com.microsoft:receive-by-sequence-number"
            | "com.microsoft:renew-session-lock"
            | "com.microsoft:get-session-state"
            | "com.microsoft:get-message-sessions"
            | "com.microsoft:batch-delete-messages"
            | "com.microsoft:add-rule"
            | "com.microsoft:remove-rule"
            | "com.microsoft:enumerate-rules"
            | "peeklock:purge"
    )
}

fn peek(body: Body<'_>) -> Result<Operation, Refusal> {
    let from = SequenceNumber(u64::try_from(body.number("from-sequence-number")?).unwrap_or_default());
    Ok(Operation::Peek {
        from,
        count_max: body.message_count()?,
        session: body.session()?,
        omit_body: body.boolean("omit-message-body")?.unwrap_or(false),
    })
}

fn receive_deferred(body: Body<'_>) -> Result<Operation, Refusal> {
    let mode = match body.count("receiver-settle-mode")? {
        Some(0) => ReceiveMode::ReceiveAndDelete,
        _ => ReceiveMode::PeekLock,
    };
    Ok(Operation::ReceiveDeferred { numbers: body.sequence_numbers()?, mode, session: body.session()? })
}

fn update_disposition(body: Body<'_>) -> Result<Operation, Refusal> {
    let settlement = match body.text("disposition-status")?.as_deref() {
        Some("completed") => Settlement::Complete,
        Some("abandoned") => abandon(body.properties()?)?,
        // The service's spelling.
        Some("defered" | "deferred") => Settlement::Defer { patch: encode_patch(body.properties()?)? },
        Some("suspended") => Settlement::DeadLetter {
            reason: body.text("deadletter-reason")?,
            description: body.text("deadletter-description")?,
            patch: encode_patch(body.properties()?)?,
        },
        _ => return Err(missing("disposition-status", "completed, abandoned, defered or suspended")),
    };
    Ok(Operation::Settle { tokens: body.lock_tokens()?, settlement, session: body.session()? })
}

fn schedule(body: Body<'_>) -> Result<Operation, Refusal> {
    // The other fields next to the message are also in the message.
    let message = |entry: &Value| entry.lookup("message").and_then(Value::as_bytes).cloned();
    Ok(Operation::Schedule {
        messages: body.all_elements("messages", "a list of encoded messages", message)?,
    })
}

fn list_sessions(body: Body<'_>) -> Result<Operation, Refusal> {
    /// The first moment of the year 10000: SDKs send it for "all sessions that have messages".
    const EVERY_SESSION: Timestamp = Timestamp::from_millis(253_402_300_800_000);
    let count = |key| Ok::<_, Refusal>(usize::try_from(body.count(key)?.unwrap_or(0)).unwrap_or(usize::MAX));
    let updated_since = body.time("last-updated-time")?.filter(|time| *time < EVERY_SESSION);
    let top = count("top")?.min(limits::BATCH_COUNT_MAX);
    if top == 0 {
        return Err(Refusal::bad_request("'top' must be above zero"));
    }
    Ok(Operation::ListSessions { updated_since, skip: count("skip")?, top })
}

fn batch_delete(body: Body<'_>) -> Result<Operation, Refusal> {
    Ok(Operation::BatchDelete {
        before: body.time("enqueued-time-utc")?,
        count_max: body.message_count()? as u64,
        session: body.session()?,
    })
}
