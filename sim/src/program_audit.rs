//! What programs with the SDK do after the storm: those that lived through it work off their queues, each processor works alone for a while,
//! and all are stopped in the middle of their work.

use std::time::Duration;

use peeklock::Backoff;
use tokio::time::Instant;

use crate::audit::count;
use crate::client::Party;
use crate::client::program::{Employee, Mailer, Staff};
use crate::log::{Counted, Event, ProgramEvent, QueueIndex};
use crate::scenario::Flaw;
use crate::scenario::programs::BATCH_MAX;

/// The time to work off a queue: far more than all locks, delays and pauses before a reconnect together.
const WORK_TIME_MAX: Duration = Duration::from_secs(3600);
/// The time for a few messages when all is calm.
const PROBE_TIME_MAX: Duration = Duration::from_secs(60);
const PROBE_COUNT: usize = 3;
const BURST_COUNT: usize = 3;
/// A time after which handlers run, and shorter than their work.
const BURST_TIME: Duration = Duration::from_millis(500);
const STOP_MS_MAX: u64 = 5_000;
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn settle(mut party: Party, staff: Staff) {
    for sender in staff.senders {
        if let Err(error) = sender.await {
            party.log(Event::Trouble { what: format!("a sender has panicked: {error}") });
        }
    }
    let mut employees = Vec::new();
    for processor in staff.processors {
        match processor.await {
            Ok(employee) => employees.push(employee),
            Err(error) => {
                party.log(Event::Trouble { what: format!("a program has panicked: {error}") });
            }
        }
    }
    let queues = party.world.scenario.programs.as_ref().map(|programs| programs.queues.clone());
    for queue in queues.unwrap_or_default() {
        let (own, others) = employees.into_iter().partition(|employee| employee.queue == queue);
        employees = others;
        settle_queue(&mut party, queue, own).await;
    }
}

fn flaw(party: &Party) -> Option<Flaw> {
    party.world.scenario.programs.as_ref().and_then(|programs| programs.flaw)
}

async fn settle_queue(party: &mut Party, queue: QueueIndex, employees: Vec<Employee>) {
    if flaw(party) == Some(Flaw::Stalls) {
        for employee in &employees {
            employee.pause(party).await;
        }
    }
    let left = work_off(party, queue, WORK_TIME_MAX).await;
    party.log(Event::Program(ProgramEvent::WorkedOff { queue, left }));
    let mailer = loop {
        match Mailer::open(party, queue, Backoff::default()).await {
            Some(mailer) => break mailer,
            None => party.pause().await,
        }
    };
    if left == 0 {
        for at in 0..employees.len() {
            probe(party, &mailer, &employees, at).await;
        }
    }
    stop_all(party, &mailer, employees).await;
    mailer.close().await;
}

/// Waits until no message waits or is locked. Returns the number of those that are left at the end of the time.
async fn work_off(party: &Party, queue: QueueIndex, time_max: Duration) -> u64 {
    let end = Instant::now() + time_max;
    loop {
        let Counted { active, locked, deferred, scheduled, .. } = counts(party, queue).await;
        let left = active + locked + deferred + scheduled;
        if left == 0 || Instant::now() >= end {
            return left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn counts(party: &Party, queue: QueueIndex) -> Counted {
    loop {
        if let Some(counts) = count(party, party.world.queue_name(queue)).await {
            return counts;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Lets one processor work alone on its queue. It has lived through the storm, and must make progress without the others.
async fn probe(party: &mut Party, mailer: &Mailer, employees: &[Employee], at: usize) {
    let Some(employee) = employees.get(at) else { return };
    let others = || employees.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, other)| other);
    for other in others() {
        other.pause(party).await;
    }
    let messages = mailer.send(party, PROBE_COUNT, None).await;
    let (probe, processor) = (party.world.log.next_request(), employee.name.clone());
    party.log(Event::Program(ProgramEvent::Probing { probe, processor, messages }));
    work_off(party, employee.queue, PROBE_TIME_MAX).await;
    party.log(Event::Program(ProgramEvent::Probed { probe }));
    for other in others() {
        other.resume(party).await;
    }
}

/// Stops all processors of a queue while their handlers run and more messages wait, and then counts the locks.
async fn stop_all(party: &mut Party, mailer: &Mailer, employees: Vec<Employee>) {
    let Some(queue) = employees.first().map(|employee| employee.queue) else { return };
    employees.iter().for_each(|employee| employee.desk.slow_down());
    for _ in 0..BURST_COUNT {
        mailer.send(party, BATCH_MAX, None).await;
    }
    tokio::time::sleep(BURST_TIME).await;
    for employee in employees {
        if flaw(party) == Some(Flaw::LeavesLocks) {
            employee.walk_out();
            continue;
        }
        let deadline = Duration::from_millis(party.rng.u64(0..=STOP_MS_MAX));
        employee.stop(party, deadline).await;
    }
    let locked = counts(party, queue).await.locked;
    party.log(Event::Program(ProgramEvent::Stopped { queue, locked }));
}
