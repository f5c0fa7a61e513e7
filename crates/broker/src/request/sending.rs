//! Requests that store messages or cancel scheduled ones.

use std::ops::Range;

use peeklock_engine::EntityId;
use peeklock_types::SequenceNumber;

use super::{Answer, Answered, Ask, Request, Ticket, requests};

/// Stores the messages that were written to the batch under these numbers: all or none.
#[derive(Debug)]
pub struct SendMessages {
    pub entity: EntityId,
    pub messages: Range<usize>,
}

/// Consecutive sends to one entity, each with its own outcome.
#[derive(Debug)]
pub struct SendRun {
    pub entity: EntityId,
    pub(crate) sends: Vec<SendOfRun>,
}

/// One send of a run: all of its messages are stored, or none.
#[derive(Debug)]
pub(crate) struct SendOfRun {
    pub(crate) ticket: Ticket<SendMessages>,
    pub(crate) messages: Range<usize>,
}

impl Ask for SendMessages {
    type Answer = ();

    fn asked(self, ticket: Ticket<Self>) -> Request {
        let SendMessages { entity, messages } = self;
        Request::Send(SendRun { entity, sends: vec![SendOfRun { ticket, messages }] })
    }

    fn answer(answered: Answered<Self>) -> Answer {
        Answer::Sent(vec![answered])
    }

    fn answered(answer: Answer) -> Option<Answered<Self>> {
        match answer {
            Answer::Sent(mut run) => run.pop(),
            _ => None,
        }
    }
}

requests! {
    SendingRequest, SendingAnswer;

    /// Stores messages like [`SendMessages`] and answers with their sequence numbers, by which scheduled ones can be
    /// cancelled.
    ScheduleMessages {
        entity: EntityId,
        messages: Range<usize>,
    } -> Vec<SequenceNumber>;

    CancelScheduled {
        entity: EntityId,
        numbers: Vec<SequenceNumber>,
    } -> ();

    /// Deletes large bodies that no message will use. The batch contains their places.
    GiveUpBodies {
        messages: Range<usize>,
    } -> ();
}
