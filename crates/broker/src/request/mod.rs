//! Requests to a shard, one file for each subject.
//!
//! A request is a struct with its parameters, and [`Ask::Answer`] is the type of its answer. A [`Ticket`] travels with
//! the request and returns with the answer. The ticket names the type of its request, so code that pairs it with
//! another answer does not compile. Requests and answers are plain data, so that a peer on another node can send them,
//! too.

pub mod blobs;
pub mod entities;
pub mod events;
pub mod hubs;
pub mod outbox;
pub mod receipts;
pub mod receiving;
pub mod rules;
pub mod sending;
pub mod sessions;
pub mod settling;
pub mod transactions;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use crate::reply::Error;
use blobs::{BlobAnswer, BlobRequest};
use entities::{EntityAnswer, EntityRequest};
use events::{EventAnswer, EventRequest};
use hubs::{HubAnswer, HubRequest};
use outbox::{OutboxAnswer, OutboxRequest};
use receipts::{ReceiptAnswer, ReceiptRequest};
use receiving::{ReceivingAnswer, ReceivingRequest};
use rules::{RuleAnswer, RuleRequest};
use sending::{SendMessages, SendRun, SendingAnswer, SendingRequest};
use sessions::{SessionAnswer, SessionRequest};
use settling::{Settle, SettleRun, SettlingAnswer, SettlingRequest};
use transactions::{TransactionAnswer, TransactionRequest};

/// A request that the shard answers.
pub trait Ask: fmt::Debug + Sized {
    type Answer: fmt::Debug;

    /// Wraps the request in the enum of its subject.
    fn asked(self, ticket: Ticket<Self>) -> Request;

    /// Wraps the answer in the enum of its subject.
    fn answer(answered: Answered<Self>) -> Answer;

    /// Returns the answer if it belongs to a request of this type.
    fn answered(answer: Answer) -> Option<Answered<Self>>;
}

/// A peer's own number for a request. The shard returns it with the answer.
pub struct Ticket<R> {
    number: u64,
    request: PhantomData<fn() -> R>,
}

impl<R> Ticket<R> {
    pub const fn new(number: u64) -> Self {
        Ticket { number, request: PhantomData }
    }

    pub const fn number(self) -> u64 {
        self.number
    }
}

impl<R> Clone for Ticket<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Ticket<R> {}

impl<R> PartialEq for Ticket<R> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<R> Eq for Ticket<R> {}

impl<R> Hash for Ticket<R> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<R> fmt::Debug for Ticket<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ticket({})", self.number)
    }
}

/// A request with its ticket.
#[derive(Debug)]
pub struct Asked<R> {
    pub ticket: Ticket<R>,
    pub request: R,
}

/// The answer to a request, with the ticket of that request.
#[derive(Debug)]
pub struct Answered<R: Ask> {
    pub ticket: Ticket<R>,
    pub result: Result<R::Answer, Error>,
}

/// A request in a batch.
#[derive(Debug)]
pub enum Request {
    /// The hot path: consecutive sends to one entity.
    Send(SendRun),
    /// The hot path: consecutive settlements in one entity.
    Settle(SettleRun),
    Sending(SendingRequest),
    Settling(SettlingRequest),
    Receiving(ReceivingRequest),
    Sessions(SessionRequest),
    Transactions(Box<TransactionRequest>),
    Entities(Box<EntityRequest>),
    Rules(Box<RuleRequest>),
    Events(EventRequest),
    Hubs(Box<HubRequest>),
    Blobs(Box<BlobRequest>),
    Receipts(Box<ReceiptRequest>),
    Outbox(OutboxRequest),
    /// The peer has closed. The shard detaches its receivers.
    Gone,
}

/// An answer of any type, by subject.
#[derive(Debug)]
pub enum Answer {
    Sent(Vec<Answered<SendMessages>>),
    Settled(Vec<Answered<Settle>>),
    Sending(SendingAnswer),
    Settling(SettlingAnswer),
    Receiving(ReceivingAnswer),
    Sessions(SessionAnswer),
    Transactions(Box<TransactionAnswer>),
    Entities(Box<EntityAnswer>),
    Rules(Box<RuleAnswer>),
    Events(EventAnswer),
    Hubs(Box<HubAnswer>),
    Blobs(Box<BlobAnswer>),
    Receipts(Box<ReceiptAnswer>),
    Outbox(OutboxAnswer),
}

impl Request {
    /// Returns the number of answers to this request.
    pub(crate) fn answer_count(&self) -> usize {
        match self {
            Request::Send(run) => run.sends.len(),
            Request::Settle(run) => run.settles.len(),
            Request::Sending(request) => request.answer_count(),
            Request::Settling(request) => request.answer_count(),
            Request::Receiving(request) => request.answer_count(),
            Request::Sessions(request) => request.answer_count(),
            Request::Transactions(request) => request.answer_count(),
            Request::Entities(request) => request.answer_count(),
            Request::Rules(request) => request.answer_count(),
            Request::Events(request) => request.answer_count(),
            Request::Hubs(request) => request.answer_count(),
            Request::Blobs(request) => request.answer_count(),
            Request::Receipts(request) => request.answer_count(),
            Request::Outbox(request) => request.answer_count(),
            Request::Gone => 0,
        }
    }
}

impl Answer {
    /// Returns the number of requests that this value answers.
    pub fn count(&self) -> usize {
        match self {
            Answer::Sent(run) => run.len(),
            Answer::Settled(run) => run.len(),
            _ => 1,
        }
    }
}

impl<R: Ask> From<Asked<R>> for Request {
    fn from(Asked { ticket, request }: Asked<R>) -> Self {
        request.asked(ticket)
    }
}

/// Converts between the enums of a subject and [`Request`] and [`Answer`].
macro_rules! subjects {
    (
        $($subject:ident: $request:ident, $answer:ident;)*
        @boxed;
        $($cold:ident: $cold_request:ident, $cold_answer:ident;)*
    ) => {
        $(
            impl From<$request> for Request {
                fn from(request: $request) -> Self {
                    Request::$subject(request)
                }
            }

            impl From<$answer> for Answer {
                fn from(answer: $answer) -> Self {
                    Answer::$subject(answer)
                }
            }

            impl $answer {
                fn of(answer: Answer) -> Option<Self> {
                    if let Answer::$subject(answer) = answer { Some(answer) } else { None }
                }
            }
        )*
        $(
            impl From<$cold_request> for Request {
                fn from(request: $cold_request) -> Self {
                    Request::$cold(Box::new(request))
                }
            }

            impl From<$cold_answer> for Answer {
                fn from(answer: $cold_answer) -> Self {
                    Answer::$cold(Box::new(answer))
                }
            }

            impl $cold_answer {
                fn of(answer: Answer) -> Option<Self> {
                    if let Answer::$cold(answer) = answer { Some(*answer) } else { None }
                }
            }
        )*
    };
}

subjects! {
    Sending: SendingRequest, SendingAnswer;
    Settling: SettlingRequest, SettlingAnswer;
    Receiving: ReceivingRequest, ReceivingAnswer;
    Sessions: SessionRequest, SessionAnswer;
    Events: EventRequest, EventAnswer;
    Outbox: OutboxRequest, OutboxAnswer;
    @boxed;
    Transactions: TransactionRequest, TransactionAnswer;
    Entities: EntityRequest, EntityAnswer;
    Rules: RuleRequest, RuleAnswer;
    Hubs: HubRequest, HubAnswer;
    Blobs: BlobRequest, BlobAnswer;
    Receipts: ReceiptRequest, ReceiptAnswer;
}

/// Declares the requests of one subject: a struct for each request, an enum of the requests and an enum of their
/// answers. A request after `@notices` has no answer.
macro_rules! requests {
    (
        $requests:ident, $answers:ident;
        $(
            $(#[$about:meta])*
            $name:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* } -> $answer:ty;
        )*
        $(@notices;
        $(
            $(#[$about_notice:meta])*
            $notice:ident { $($(#[$of_notice:meta])* $notice_field:ident: $notice_type:ty,)* }
        )*)?
    ) => {
        $(
            $(#[$about])*
            #[derive(Debug)]
            pub struct $name {
                $($(#[$of_field])* pub $field: $type,)*
            }

            impl $crate::request::Ask for $name {
                type Answer = $answer;

                fn asked(self, ticket: $crate::request::Ticket<Self>) -> $crate::request::Request {
                    $requests::$name($crate::request::Asked { ticket, request: self }).into()
                }

                fn answer(answered: $crate::request::Answered<Self>) -> $crate::request::Answer {
                    $answers::$name(answered).into()
                }

                fn answered(answer: $crate::request::Answer) -> Option<$crate::request::Answered<Self>> {
                    match $answers::of(answer)? {
                        $answers::$name(answered) => Some(answered),
                        #[allow(unreachable_patterns, reason = "a subject may have only one request")]
                        _ => None,
                    }
                }
            }
        )*

        $($(
            $(#[$about_notice])*
            #[derive(Debug)]
            pub struct $notice {
                $($(#[$of_notice])* pub $notice_field: $notice_type,)*
            }

            impl From<$notice> for $crate::request::Request {
                fn from(notice: $notice) -> Self {
                    $requests::$notice(notice).into()
                }
            }
        )*)?

        #[derive(Debug)]
        pub enum $requests {
            $($name($crate::request::Asked<$name>),)*
            $($($notice($notice),)*)?
        }

        // Most answers are small; a large one is moved once per request, which costs less than a box for each.
        #[allow(clippy::large_enum_variant)]
        #[derive(Debug)]
        pub enum $answers {
            $($name($crate::request::Answered<$name>),)*
        }

        impl $requests {
            pub(crate) fn answer_count(&self) -> usize {
                match self {
                    $($requests::$name(_) => 1,)*
                    $($($requests::$notice(_) => 0,)*)?
                }
            }
        }
    };
}
pub(crate) use requests;
