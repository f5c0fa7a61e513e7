//! Receivers: attachment, credit, and messages that are fetched without a link.

use peeklock_engine::{Attached, SessionWish};
use peeklock_journal::Log;
use peeklock_types::{SubQueue, Timestamp, limits};

use super::{first_of, received, shown};
use crate::batch::PeerId;
use crate::request::Asked;
use crate::request::receiving::{
    Attach, Credit, Detach, Drain, Peek, ReceiveDeferred, ReceivingRequest, SessionAsk, Take, Watch, Window,
};
use crate::shard::{Shard, nonce};

impl<L: Log> Shard<L> {
    pub(super) fn execute_receiving(&mut self, now: Timestamp, peer: PeerId, request: ReceivingRequest) {
        match request {
            ReceivingRequest::Attach(asked) => self.attach(now, peer, asked),
            ReceivingRequest::Detach(asked) => self.answer(peer, asked, |shard, Detach { receiver }| {
                shard.receivers.leave(receiver);
                shard.detach(now, receiver);
                Ok(())
            }),
            ReceivingRequest::Peek(asked) => self.answer_messages(peer, asked, |shard, request| {
                let Peek { entity, sub_queue, from, count_max, session } = request;
                let engine = &mut shard.state.engine;
                engine.touch(now, entity);
                let count_max = count_max.min(limits::BATCH_COUNT_MAX);
                // Only the main queue has sessions.
                let found = match session.filter(|_| sub_queue == SubQueue::Main) {
                    Some(session) => engine.peek_session(entity, &session, from, count_max)?,
                    None => engine.peek(entity, sub_queue, from, count_max)?,
                };
                Ok((entity, first_of(found).map(shown).collect()))
            }),
            ReceivingRequest::ReceiveDeferred(asked) => {
                self.answer_messages(peer, asked, |shard, request| {
                    let ReceiveDeferred { entity, sub_queue, numbers, mode, hold } = request;
                    let hold = hold.as_ref().map(|hold| (&hold.session, hold.receiver));
                    let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                    let found = engine.receive_deferred(
                        now,
                        entity,
                        sub_queue,
                        &numbers,
                        mode,
                        hold,
                        nonce(),
                        out,
                    )?;
                    Ok((entity, found.into_iter().map(received(sub_queue)).collect()))
                })
            }
            ReceivingRequest::Credit(credit) => self.set_credit(credit),
            ReceivingRequest::Take(Take { receiver, limit, not_after }) => {
                self.state.engine.take_run(receiver, self.receivers.credit_upto(receiver, limit), not_after);
            }
            ReceivingRequest::Watch(Watch { receiver, serial }) => self.state.engine.watch(receiver, serial),
            ReceivingRequest::Window(Window { receiver, size_bytes }) => {
                if self.state.hubs.has_reader(receiver) {
                    self.state.hubs.add_reader_window(receiver, size_bytes);
                } else {
                    self.state.engine.add_window(receiver, size_bytes);
                }
            }
        }
    }

    fn set_credit(&mut self, Credit { receiver, limit, drain }: Credit) {
        if self.credit_reader(receiver, limit, drain) {
            return;
        }
        self.state.engine.set_credit(receiver, self.receivers.credit_upto(receiver, limit));
        match drain {
            Drain::Keep => {}
            Drain::Start => self.state.engine.drain(receiver),
            Drain::Cancel => self.state.engine.cancel_drain(receiver),
        }
    }

    /// Attaches a receiver. A receiver that waits for a session is answered when it has one.
    fn attach(&mut self, now: Timestamp, peer: PeerId, Asked { ticket, request }: Asked<Attach>) {
        let Attach { entity, sub_queue, receiver, mode, session } = request;
        let wish = wish(now, session);
        let attached = self.state.engine.attach_receiver(now, entity, sub_queue, receiver, mode, wish);
        self.collect();
        if attached.is_ok() {
            self.receivers.attach(peer, receiver);
        }
        match attached {
            Err(error) => self.hold_answer(peer, ticket, Err(error.into())),
            Ok(Attached::Queue) => self.hold_answer(peer, ticket, Ok(None)),
            Ok(Attached::Session(held)) => self.hold_answer(peer, ticket, Ok(Some(held))),
            Ok(Attached::Waiting) => self.receivers.wait(receiver, peer, ticket),
        }
    }
}

fn wish(now: Timestamp, session: SessionAsk) -> SessionWish {
    match session {
        SessionAsk::None => SessionWish::None,
        SessionAsk::Named(session) => SessionWish::Named(session),
        SessionAsk::Next { timeout } => SessionWish::Next { give_up_at: now + timeout },
    }
}
