//! Calls of the handler: their start, their tasks, and their end.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinError};
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::{Held, Pump};
use crate::error::{Error, Kind};
use crate::handler::{Call, HandlerError, JobService, Work};
use crate::processor::errors::ErrorSource;
use crate::processor::runner::{Conclusion, Ended};

/// A call in a task of its own.
pub(super) struct Running {
    pub(super) held: Vec<Held>,
    pub(super) abort: AbortHandle,
    /// The steps of its cancellation, if it is cancelled.
    pub(super) cancel: Option<Cancel>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cancel {
    pub(super) next: Instant,
    pub(super) is_aborted: bool,
}

/// The result of a call's task.
pub(super) struct Done {
    number: u64,
    ends: Ends,
}

enum Ends {
    /// The message is to be settled. The call has kept its thread busy for this time before it waited.
    One(Conclusion, Duration),
    /// The messages of a batch are settled.
    Batch(Vec<Ended>),
}

impl Pump {
    /// Returns the number of messages of one call.
    pub(super) fn call_size(&self) -> u32 {
        self.settings.batching.as_ref().map_or(1, |batching| batching.count_max)
    }

    /// Starts calls for buffered messages while slots are free and the layers of the handler take them.
    pub(super) async fn start_ready(&mut self) {
        self.measure();
        if self.settings.batching.is_some() {
            self.start_batches();
        } else {
            while self.slots.can_start()
                && !self.buffer.is_empty()
                && self.is_service_ready().await
                && let Some(held) = self.take_buffered()
            {
                self.gate.start();
                self.start(held).await;
            }
        }
        self.guard_buffered();
    }

    /// Takes the oldest buffered message whose lock has not passed.
    fn take_buffered(&mut self) -> Option<Held> {
        loop {
            let held = self.buffer.pop_front()?;
            self.slots.buffered -= 1;
            if held.work.deadline().is_none_or(|deadline| self.now < deadline) {
                return Some(held);
            }
            self.drop_passed(&held);
        }
    }

    /// Returns whether layers may hold calls back. Batches have no layers.
    pub(super) fn is_gated(&self) -> bool {
        self.runner.is_gated && self.settings.batching.is_none()
    }

    /// Returns whether the service takes a call now.
    pub(super) async fn is_service_ready(&mut self) -> bool {
        if !self.is_gated() {
            return true;
        }
        let service = &mut self.service;
        match poll_fn(|cx| Poll::Ready(poll_ready(service, cx))).await {
            Poll::Ready(result) => self.judge_service(result),
            Poll::Pending => self.gate.pending(),
        }
        self.gate.is_ready()
    }

    /// Handles the readiness of the service, or its failure.
    pub(super) fn judge_service(&mut self, result: Result<(), BoxError>) {
        let Err(error) = result else { return self.gate.ready() };
        self.gate.fail();
        let (entity, error) = (&self.runner.entity, HandlerError::from_box(error));
        let text = format!(
            "A layer of the handler of \"{entity}\" has failed: {error}. It takes no more calls, so the processor stops. Correct the cause, and start the processor again."
        );
        let error = Error::new(Kind::Handler, "E-PROC-09", text).caused_by(error.into_failure());
        self.report(ErrorSource::Handler, error);
        self.fail();
    }

    /// Starts a call. A quick handler begins in this task: most of its calls end at once and need none of their own.
    async fn start(&mut self, held: Held) {
        self.slots.running += 1;
        self.session.count += 1;
        let mut call = self.runner.call(&mut self.service, &held.work);
        if !self.pace.is_quick() {
            return self.start_task(held, call);
        }
        let first = poll_once(&mut call).await;
        let now = Instant::now();
        self.pace.count(now.saturating_duration_since(self.now));
        self.now = now;
        match first {
            Poll::Ready(Ok(outcome)) => {
                let conclusion = self.runner.succeed(&held.work, outcome);
                self.conclude(held, conclusion);
            }
            // A failed call may be repeated, and may have to wait before.
            Poll::Ready(Err(error)) => self.start_task(held, Call::failed(error)),
            Poll::Pending => self.start_task(held, call),
        }
    }

    fn start_task(&mut self, mut held: Held, call: Call) {
        self.guard(&mut held);
        self.schedule.start(held.key, self.now, self.settings.renew);
        let (runner, work, number) = (Arc::clone(&self.runner), Arc::clone(&held.work), held.key);
        let abort = self.tasks.spawn(async move {
            let (call, busy) = begin(call).await;
            let conclusion = runner.run(&work, call).await;
            Done { number, ends: Ends::One(conclusion, busy) }
        });
        self.running.insert(number, Running { held: vec![held], abort, cancel: None });
    }

    /// Starts calls with full batches, and with incomplete ones that have waited.
    fn start_batches(&mut self) {
        while self.can_start_batch() {
            let held: Vec<_> = (0..self.call_size()).map_while(|_| self.take_buffered()).collect();
            if !held.is_empty() {
                self.start_batch(held);
            }
        }
    }

    fn start_batch(&mut self, mut held: Vec<Held>) {
        let (Some(batching), Some(number)) =
            (self.settings.batching.clone(), held.first().map(|held| held.key))
        else {
            return;
        };
        self.slots.running += count(held.len());
        self.session.count += u64::from(count(held.len()));
        for held in &mut held {
            self.guard(held);
            self.schedule.start(held.key, self.now, self.settings.renew);
        }
        let works: Vec<Arc<Work>> = held.iter().map(|held| Arc::clone(&held.work)).collect();
        let runner = Arc::clone(&self.runner);
        let abort = self
            .tasks
            .spawn(async move { Done { number, ends: Ends::Batch(batching.run(runner, works).await) } });
        self.running.insert(number, Running { held, abort, cancel: None });
    }

    fn can_start_batch(&self) -> bool {
        let is_due = self.batch_due().is_some_and(|due| due <= self.now);
        self.has_batch_slot()
            && !self.buffer.is_empty()
            && (self.slots.buffered >= self.call_size() || is_due)
    }

    fn has_batch_slot(&self) -> bool {
        let calls_max = self.slots.target / self.call_size().max(1);
        self.slots.is_open && self.running.len() < usize::try_from(calls_max).unwrap_or(usize::MAX)
    }

    /// Returns the moment at which an incomplete batch starts.
    pub(super) fn batch_due(&self) -> Option<Instant> {
        let batching = self.settings.batching.as_ref()?;
        let due = self.buffer.front()?.since.checked_add(batching.wait)?;
        self.has_batch_slot().then_some(due)
    }

    /// Handles the end of a task.
    pub(super) fn finish(&mut self, done: Result<Done, JoinError>) {
        let (number, ends) = match done {
            Ok(done) => (Some(done.number), Some(done.ends)),
            Err(error) => (self.number_of(&error), None),
        };
        // A stuck call was removed before.
        let Some(running) = number.and_then(|number| self.running.remove(&number)) else { return };
        self.cancelled_count -= usize::from(running.cancel.is_some());
        match ends {
            Some(Ends::One(conclusion, busy)) => {
                self.pace.count(busy);
                if let Some(held) = running.held.into_iter().next() {
                    self.conclude(held, conclusion);
                }
            }
            Some(Ends::Batch(ends)) => {
                running.held.iter().for_each(|held| self.forget_lock(held.key));
                ends.into_iter().for_each(|end| self.record(end));
            }
            None => {
                self.report.cancelled += running.held.len() as u64;
                for held in running.held {
                    self.free_slot();
                    self.interrupt(held);
                }
            }
        }
    }

    /// Returns the number of a call whose task was aborted.
    fn number_of(&self, error: &JoinError) -> Option<u64> {
        self.running.iter().find(|(_, running)| running.abort.id() == error.id()).map(|(number, _)| *number)
    }

    /// Handles the end of a message's call after its settlement.
    pub(super) fn record(&mut self, end: Ended) {
        self.free_slot();
        match end {
            Ended::Completed => self.counts.0 += 1,
            Ended::Failed => self.counts.1 += 1,
            Ended::Released => return self.count_released(),
            Ended::Fatal => {
                self.counts.1 += 1;
                self.fail();
            }
        }
        let has_failed = !matches!(end, Ended::Completed);
        if let Some(switch) = &mut self.switch
            && switch.record(self.now, has_failed)
        {
            self.tell_tripped();
        }
    }

    fn free_slot(&mut self) {
        self.slots.running -= 1;
        self.session.idle_since = self.now;
    }

    fn tell_tripped(&self) {
        let text = format!(
            "Too many handlers of \"{}\" fail, so the kill switch has paused the processor. Find the reason in the errors before this one; the processor tries again by itself.",
            self.runner.entity
        );
        self.report(ErrorSource::Handler, Error::new(Kind::Handler, "E-PROC-08", text));
    }
}

/// Polls the readiness of a service. A panic in it is a failure.
pub(super) fn poll_ready(service: &mut JobService, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
    // A service that has panicked is not used again.
    catch_unwind(AssertUnwindSafe(|| service.poll_ready(cx)))
        .unwrap_or_else(|panic| Poll::Ready(Err(HandlerError::of_panic(&*panic).into())))
}

async fn poll_once(call: &mut Call) -> Poll<<Call as Future>::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *call).poll(cx))).await
}

/// Begins a call in its task. Returns the call, and the time for which it has kept the thread busy.
async fn begin(mut call: Call) -> (Call, Duration) {
    let started = Instant::now();
    let first = poll_once(&mut call).await;
    let busy = started.elapsed();
    let call = match first {
        Poll::Ready(result) => Call::ended(result),
        Poll::Pending => call,
    };
    (call, busy)
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
