//! Programs that process messages. They are stopped, dropped and killed in the storm; the last ones live on after it.

use std::sync::Arc;
use std::time::Duration;

use peeklock::handler::Context;
use peeklock::processor::{Renew, StopReport};
use peeklock::{Backoff, Client, Delayed, Retry};
use tokio::time::timeout;

use super::desk::Desk;
use super::line::Line;
use crate::client::Party;
use crate::log::Event;
use crate::scenario::programs::{Holding, Processor};

/// The time after which a call to a processor has to end, whatever the faults: a silent connection is noticed after two minutes, and a
/// settlement is then repeated for one more.
const CALL_TIME_MAX: Duration = Duration::from_secs(600);
const LIFE_MS_MAX: u64 = 60_000;
const STOP_MS_MAX: u64 = 10_000;
const GRACE: Duration = Duration::from_secs(2);

/// Runs one program after the other, and returns the one that lives at the end of the storm.
pub(super) async fn employ(mut party: Party, spec: Processor) -> Employee {
    loop {
        let Some(employee) = Employee::start(&mut party, &spec).await else {
            party.pause().await;
            continue;
        };
        if !employee.work(&mut party).await {
            return employee;
        }
        employee.leave(&mut party).await;
        party.pause().await;
    }
}

/// Sets what processors with and without sessions have in common.
macro_rules! configured {
    ($builder:expr, $party:expr, $spec:expr, $desk:expr) => {{
        let (at_work, at_errors) = (Arc::clone(&$desk), Arc::clone(&$desk));
        $builder
            .handler(move |context: Context| Arc::clone(&at_work).work(context))
            .on_error(move |context| {
                at_errors.note_error(&context);
                std::future::ready(())
            })
            .name(&*$party.name)
            .retry(retry($spec))
            .auto_renew(Renew::UntilDone)
            .cancel_grace(GRACE)
    }};
}

fn retry(spec: &Processor) -> Retry {
    let delay = Duration::from_millis(spec.delay_ms);
    let delayed = Delayed::exp(delay, delay * 4, spec.delayed_count).full_jitter();
    Retry::immediate(spec.immediate_max).then(delayed)
}

/// A program with one processor.
pub(crate) struct Employee {
    pub(crate) name: Arc<str>,
    pub(crate) queue: usize,
    pub(crate) desk: Arc<Desk>,
    processor: peeklock::processor::Processor,
    client: Client,
    line: Arc<Line>,
    max_concurrent: u32,
}

impl Employee {
    /// Connects and starts a processor. Returns `None` if the broker could not be reached.
    async fn start(party: &mut Party, spec: &Processor) -> Option<Self> {
        let line = Line::new(party);
        let client = line.connect(Backoff::default()).await?;
        let desk = Arc::new(Desk::new(party, spec));
        let queue = party.world.queue_name(spec.queue);
        let started = match spec.sessions {
            None => {
                let builder = configured!(client.processor(queue), party, spec, desk);
                builder.max_concurrent(spec.max_concurrent).prefetch(spec.prefetch).start().await
            }
            Some(Holding { idle_ms, count_max, time_ms_max }) => {
                configured!(client.session_processor(queue), party, spec, desk)
                    .max_sessions(spec.max_concurrent)
                    .idle(Duration::from_millis(idle_ms))
                    .max_hold_count(count_max)
                    .max_hold_time(Duration::from_millis(time_ms_max))
                    .start()
                    .await
            }
        };
        let processor = started.ok()?;
        let (name, queue, max_concurrent) = (Arc::clone(&party.name), spec.queue, spec.max_concurrent);
        Some(Employee { name, queue, desk, processor, client, line, max_concurrent })
    }

    /// Lets the program run for a while. Returns false when the storm is over.
    async fn work(&self, party: &mut Party) -> bool {
        for _ in 0..party.rng.u32(1..=3) {
            let span = Duration::from_millis(party.rng.u64(100..=LIFE_MS_MAX / 2));
            if !super::live(&party.world, span).await {
                return false;
            }
            match party.rng.u32(0..4) {
                0 => {
                    self.pause(party).await;
                    party.pause().await;
                    self.resume(party).await;
                }
                1 => {
                    let fewer = party.rng.u32(1..=self.max_concurrent);
                    self.set_max(party, fewer).await;
                    party.pause().await;
                    self.set_max(party, self.max_concurrent).await;
                }
                _ => {}
            }
        }
        !party.is_over()
    }

    /// Ends the program: in order, without waiting, or suddenly.
    async fn leave(self, party: &mut Party) {
        match party.rng.u32(0..4) {
            0 => self.kill(),
            1 => self.drop_processor(party).await,
            _ => {
                let deadline = Duration::from_millis(party.rng.u64(0..=STOP_MS_MAX));
                self.stop(party, deadline).await;
            }
        }
    }

    fn kill(self) {
        self.desk.kill();
        self.line.kill();
    }

    async fn drop_processor(self, party: &Party) {
        let Employee { desk, processor, client, .. } = self;
        let mut status = processor.status();
        drop(processor);
        in_time(party, "a dropped processor", async {
            let ended = status.wait_for(|status| status.state.has_ended()).await;
            ended.map(|_| ()).map_err(|error| error.to_string())
        })
        .await;
        desk.close(false);
        client.close().await;
    }

    /// Stops the processor and closes the client.
    pub(crate) async fn stop(self, party: &Party, deadline: Duration) {
        let stopping = async { self.processor.stop(deadline).await.map_err(|error| error.to_string()) };
        let report = in_time(party, "a stop", stopping).await;
        // A call that was dropped may have been about to settle its message.
        let is_orderly =
            report.is_some_and(|StopReport { cancelled, stuck, .. }| (cancelled, stuck) == (0, 0));
        self.desk.close(is_orderly);
        self.client.close().await;
    }

    /// Leaves without waiting for the end of the processor.
    pub(crate) fn walk_out(self) {
        drop(self.processor);
    }

    pub(crate) async fn pause(&self, party: &Party) {
        let pausing = async { self.processor.pause().await.map_err(|error| error.to_string()) };
        in_time(party, "a pause", pausing).await;
    }

    pub(crate) async fn resume(&self, party: &Party) {
        let resuming = async { self.processor.resume().await.map_err(|error| error.to_string()) };
        in_time(party, "a resume", resuming).await;
    }

    async fn set_max(&self, party: &Party, max: u32) {
        let setting =
            async { self.processor.set_max_concurrent(max).await.map_err(|error| error.to_string()) };
        in_time(party, "a change of the number of calls", setting).await;
    }
}

/// Waits for a call to a processor, which has to succeed whatever the faults.
async fn in_time<T>(party: &Party, name: &str, call: impl Future<Output = Result<T, String>>) -> Option<T> {
    match timeout(CALL_TIME_MAX, call).await {
        Ok(Ok(value)) => Some(value),
        Ok(Err(why)) => {
            party.log(Event::Trouble { what: format!("{name} failed: {why}") });
            None
        }
        Err(_) => {
            party.log(Event::Trouble { what: format!("{name} did not end in time") });
            None
        }
    }
}
