//! The handler of a program's processor. It works on a message, fails, or holds the message until it is asked to end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use peeklock::handler::{Context, HandlerError};
use peeklock::processor::{ErrorContext, ErrorSource};
use peeklock_client::{Fields, LockToken, Outcome, ReceivedMessage};
use tokio::time::sleep;

use crate::client::{Party, World, seen};
use crate::log::{Answer, Event, MessageNumber, Part, ProgramEvent, Seen};
use crate::machine::WALL_START_MS;
use crate::scenario::Flaw;
use crate::scenario::programs::Processor;

/// The work of a call when all is calm.
const CALM_WORK_MS_MAX: u64 = 20;
/// The work of a call that has to be in progress when its processor stops.
const SLOW_WORK_MS: u64 = 3_000;
/// The longest work of a call that waits for the end of its processor.
const HANG_TIME_MAX: Duration = Duration::from_secs(90);
/// One completion in this many is the handler's own.
const SETTLES_ONE_IN: u32 = 4;

/// What the calls of a processor share.
pub(crate) struct Desk {
    world: Arc<World>,
    name: Arc<str>,
    spec: Processor,
    flaw: Option<Flaw>,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    /// Whether the program runs. A dead one observes nothing.
    is_alive: bool,
    is_slow: bool,
    running_count: u32,
    /// How often the handler was called under each lock.
    calls: BTreeMap<[u8; 16], u32>,
    /// The requests to complete that the SDK has not reported as failed, by sequence number and attempt.
    completing: BTreeMap<(u64, u32), u32>,
}

/// The result of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Complete,
    /// Completes the message by itself, and gets the answer.
    Settle,
    Fail,
    FailFor(Duration),
    Poison,
    /// Ends only when the processor asks for it.
    Hang,
}

impl Desk {
    pub(super) fn new(party: &mut Party, spec: &Processor) -> Self {
        let state = State {
            rng: party.rng.fork(),
            is_alive: true,
            is_slow: false,
            running_count: 0,
            calls: BTreeMap::new(),
            completing: BTreeMap::new(),
        };
        Desk {
            world: Arc::clone(&party.world),
            name: Arc::clone(&party.name),
            spec: spec.clone(),
            flaw: party.world.scenario.programs.as_ref().and_then(|programs| programs.flaw),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, event: Event) {
        if self.state().is_alive {
            self.world.log.add(&self.name, event);
        }
    }

    /// Ends the observations, as if the process had died.
    pub(super) fn kill(&self) {
        self.state().is_alive = false;
    }

    /// Makes the work long, so that the processor is stopped in the middle of it.
    pub(crate) fn slow_down(&self) {
        self.state().is_slow = true;
    }

    /// Works on one message.
    pub(super) async fn work(self: Arc<Self>, context: Context) -> Result<(), HandlerError> {
        let Some(call) = Call::begin(&self, &context) else { return Ok(()) };
        let (deed, work) = self.choose();
        if self.flaw == Some(Flaw::SettlesEarly) {
            self.settle(&context, call.token).await;
        }
        if deed == Deed::Hang {
            tokio::select! {
                biased;
                () = context.cancelled() => {}
                () = context.lock_lost() => {}
                () = sleep(HANG_TIME_MAX) => {}
            }
        } else {
            sleep(work).await;
        }
        call.end(deed).await
    }

    fn choose(&self) -> (Deed, Duration) {
        let Processor { work_ms_max, fails_one_in, hangs_one_in, delay_ms, .. } = self.spec;
        let mut state = self.state();
        let State { rng, is_slow, .. } = &mut *state;
        if self.world.is_over() {
            let work_ms = if *is_slow { SLOW_WORK_MS } else { rng.u64(0..=CALM_WORK_MS_MAX) };
            return (Deed::Complete, Duration::from_millis(work_ms));
        }
        let one_in = |rng: &mut Rng, count: u32| count > 0 && rng.u32(0..count) == 0;
        let work = Duration::from_millis(rng.u64(0..=work_ms_max));
        let deed = if one_in(rng, hangs_one_in) {
            Deed::Hang
        } else if one_in(rng, fails_one_in) {
            match rng.u32(0..6) {
                0 => Deed::Poison,
                1 | 2 => Deed::FailFor(Duration::from_millis(rng.u64(0..=delay_ms))),
                _ => Deed::Fail,
            }
        } else if one_in(rng, SETTLES_ONE_IN) {
            Deed::Settle
        } else {
            Deed::Complete
        };
        (deed, work)
    }

    /// Completes the message through the context, and logs the answer.
    async fn settle(&self, context: &Context, token: LockToken) {
        let request = self.note_settling(token, Outcome::Complete);
        let answer = match context.complete().await {
            Ok(()) => Answer::Done,
            Err(error) => answer_of(&error),
        };
        self.log(Event::Settled { request, answer });
    }

    /// Logs the start of a settlement, whose answer the program may never get.
    fn note_settling(&self, token: LockToken, outcome: Outcome) -> u32 {
        let request = self.world.log.next_request();
        self.log(Event::Settling { request, token, outcome, transaction: None });
        request
    }

    /// Notes a settlement that the SDK reports as failed.
    pub(super) fn note_error(&self, context: &ErrorContext) {
        if !matches!(context.source, ErrorSource::Settle | ErrorSource::RenewLock) {
            return;
        }
        let (Some(number), Some(attempt)) = (context.sequence_number, context.attempt) else { return };
        let request = self.state().completing.remove(&(number.0, attempt));
        if let Some(request) = request {
            self.log(Event::Settled { request, answer: answer_of(&context.error) });
        }
    }

    /// Ends the observations of a stopped processor. After an orderly end, each completion without an error was confirmed.
    pub(super) fn close(&self, is_orderly: bool) {
        let completing = std::mem::take(&mut self.state().completing);
        for request in completing.into_values().filter(|_| is_orderly) {
            self.log(Event::Settled { request, answer: Answer::Done });
        }
        self.kill();
    }

    /// Returns the log form of a message. The time of its lock shows the run of the broker that delivered it.
    fn seen(&self, message: &ReceivedMessage) -> Seen {
        let lock = self.world.lock_duration(self.spec.queue);
        let until_ms = message.locked_until().map_or(0, |until| until.as_millis());
        let locked_ms = until_ms.saturating_sub(WALL_START_MS + u64::try_from(lock.as_millis()).unwrap_or(0));
        let run = self.world.log.run_at(locked_ms);
        seen(&self.world.scenario, message, self.spec.queue, Part::Main, run)
    }
}

/// Returns the answer for an error of a settlement. Only a lost lock is certain not to have settled the message; the SDK has another code for
/// a settlement whose result is unknown.
fn answer_of(error: &peeklock::Error) -> Answer {
    match error.code() {
        // The SDK may take a lock for lost a little before its end.
        "E-LOCK-01" => Answer::Refused { lock_lost: false, why: error.to_string() },
        _ => Answer::Unknown,
    }
}

/// One call of the handler, until it ends or is dropped.
struct Call<'a> {
    desk: &'a Desk,
    context: &'a Context,
    token: LockToken,
    message: Option<MessageNumber>,
    /// The number of this call under its lock, from 1.
    number: u32,
    has_ended: bool,
}

impl<'a> Call<'a> {
    fn begin(desk: &'a Desk, context: &'a Context) -> Option<Self> {
        let seen = desk.seen(context.message());
        let (message, token) = (seen.message, seen.token);
        let Some(token) = token else {
            desk.log(Event::Trouble { what: "a handler got a message without a lock".to_owned() });
            return None;
        };
        let (number, running_count) = {
            let mut state = desk.state();
            let number = state.calls.entry(token.to_bytes()).or_default();
            *number += 1;
            let number = *number;
            state.running_count += 1;
            (number, state.running_count)
        };
        if number == 1 {
            desk.log(Event::Received(seen));
        }
        if running_count > desk.spec.max_concurrent {
            desk.log(Event::Trouble { what: format!("{running_count} handlers run at once") });
        }
        Some(Call { desk, context, token, message, number, has_ended: false })
    }

    async fn end(mut self, deed: Deed) -> Result<(), HandlerError> {
        self.has_ended = true;
        let desk = self.desk;
        match deed {
            Deed::Complete | Deed::Hang => {
                self.note_worked();
                self.complete();
                Ok(())
            }
            Deed::Settle => {
                self.note_worked();
                if !self.context.is_settled() {
                    desk.settle(self.context, self.token).await;
                }
                Ok(())
            }
            Deed::Fail => {
                if !self.is_called_again() {
                    self.give_up(self.context.attempt() > desk.spec.delayed_count);
                }
                Err(HandlerError::retry("simulated"))
            }
            Deed::FailFor(delay) => {
                self.give_up(self.context.attempt() > desk.spec.delayed_count);
                Err(HandlerError::retry_after(delay)("simulated"))
            }
            Deed::Poison => {
                self.give_up(true);
                Err(HandlerError::poison("simulated"))
            }
        }
    }

    fn note_worked(&self) {
        if let Some(message) = self.message {
            self.desk.log(Event::Program(ProgramEvent::Worked { message }));
        }
    }

    /// Notes that the SDK completes the message now, and reports an error if it cannot.
    fn complete(&self) {
        if self.context.is_settled() {
            return;
        }
        let request = self.desk.note_settling(self.token, Outcome::Complete);
        let number = self.context.message().sequence_number().unwrap_or_default().0;
        // A message whose lock is lost is not settled.
        if !self.context.is_lock_lost() {
            self.desk.state().completing.insert((number, self.context.attempt()), request);
        }
    }

    /// Returns whether the SDK calls the handler again on the same lock after a failure.
    fn is_called_again(&self) -> bool {
        let context = self.context;
        let is_held = !context.is_settled() && !context.is_lock_lost() && !context.is_cancelled();
        is_held && self.number <= self.desk.spec.immediate_max
    }

    /// Notes that the SDK gives the message back, or dead-letters it. The program never gets the answer.
    fn give_up(&self, is_last: bool) {
        let (reason, description) = ("Simulated".to_owned(), "a failed handler".to_owned());
        let outcome = if is_last {
            Outcome::DeadLetter { reason, description }
        } else {
            Outcome::AbandonWith { properties: Fields::default(), delay: None }
        };
        self.desk.note_settling(self.token, outcome);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.desk.state().running_count -= 1;
        if !self.has_ended {
            // The processor drops a call that does not end in time, and hands its message back.
            self.desk.note_settling(self.token, Outcome::Release);
        }
    }
}
