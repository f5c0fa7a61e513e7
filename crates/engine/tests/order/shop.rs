//! Workers in virtual time: a number of slots, and jobs with an arrival time and a processing time.

use std::collections::{BTreeMap, HashMap};

use peeklock_engine::{ReceiveMode, ReceiverId, Settlement};
use peeklock_types::{LockToken, Timestamp};

use crate::world::{Handed, Job, JobId, World};

/// A job with its arrival and its processing time.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) at_ms: u64,
    pub(crate) job: Job,
    pub(crate) service_ms: u64,
}

/// A started job. Times are since the shop was opened.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) id: JobId,
    pub(crate) job: Job,
    pub(crate) arrived_ms: u64,
    pub(crate) at_ms: u64,
    pub(crate) end_ms: u64,
}

pub(crate) struct Shop {
    pub(crate) world: World,
    opened: Timestamp,
    worker: ReceiverId,
    slots: usize,
    arrivals: Vec<Arrival>,
    arrived_count: usize,
    /// The arrival and the processing time of each job.
    known: HashMap<JobId, (u64, u64)>,
    /// Running jobs, by their end and their nonce.
    running: BTreeMap<(u64, u64), LockToken>,
    pub(crate) starts: Vec<Start>,
    /// Each of these jobs is sent again as soon as a job of its tenant or class is started, so that some always wait.
    endless: Vec<(Job, u64)>,
}

impl Shop {
    pub(crate) fn open(mut world: World, slots: usize, arrivals: Vec<Arrival>) -> Shop {
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.at_ms));
        let worker = world.attach(ReceiveMode::PeekLock, 0);
        Shop {
            opened: world.now,
            world,
            worker,
            slots,
            arrivals,
            arrived_count: 0,
            known: HashMap::new(),
            running: BTreeMap::new(),
            starts: Vec::new(),
            endless: Vec::new(),
        }
    }

    /// Keeps `count` jobs like this one waiting for ever.
    pub(crate) fn keep_waiting(&mut self, job: &Job, service_ms: u64, count: usize) {
        (0..count).for_each(|_| self.send(job.clone(), service_ms));
        self.endless.push((job.clone(), service_ms));
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.world.now.since(self.opened).as_millis() as u64
    }

    fn send(&mut self, job: Job, service_ms: u64) {
        let id = self.world.send(job);
        self.known.insert(id, (self.now_ms(), service_ms));
    }

    /// Runs until a time, and returns whether any event is left for later.
    pub(crate) fn run_until(&mut self, end_ms: u64) -> bool {
        self.work();
        while let Some(next_ms) = self.next_event_ms() {
            if next_ms > end_ms {
                self.advance_to(end_ms);
                return true;
            }
            self.advance_to(next_ms);
            self.work();
        }
        false
    }

    fn next_event_ms(&self) -> Option<u64> {
        let arrival = self.arrivals.get(self.arrived_count).map(|arrival| arrival.at_ms);
        let end = self.running.first_key_value().map(|((end, _), _)| *end);
        let due = self.world.engine.next_deadline().map(|at| at.since(self.opened).as_millis() as u64);
        // A deadline that is not later than now was already handled.
        let due = due.map(|due| due.max(self.now_ms() + 1));
        arrival.into_iter().chain(end).chain(due).min()
    }

    fn advance_to(&mut self, at_ms: u64) {
        self.world.wait_until(self.opened + std::time::Duration::from_millis(at_ms));
    }

    /// Completes finished jobs, sends those that have arrived, and starts jobs in the free slots.
    fn work(&mut self) {
        let now_ms = self.now_ms();
        while let Some(first) = self.running.first_entry()
            && first.key().0 <= now_ms
        {
            let token = first.remove();
            self.world.settle(token, Settlement::Complete);
        }
        while let Some(arrival) = self.arrivals.get(self.arrived_count)
            && arrival.at_ms <= now_ms
        {
            let Arrival { job, service_ms, .. } = arrival.clone();
            self.arrived_count += 1;
            self.send(job, service_ms);
        }
        let free = self.slots - self.running.len();
        self.world.engine.set_credit(self.worker, u32::try_from(free).unwrap());
        let handed = self.world.deliver();
        assert!(handed.len() <= free);
        handed.into_iter().for_each(|handed| self.begin(&handed));
    }

    fn begin(&mut self, handed: &Handed) {
        let at_ms = self.now_ms();
        let (arrived_ms, service_ms) = self.known[&handed.id];
        let job = self.world.jobs[&handed.id].clone();
        let end_ms = at_ms + service_ms.max(1);
        self.running.insert((end_ms, handed.token.nonce()), handed.token);
        if let Some((again, service_ms)) = self.endless.iter().find(|(endless, _)| *endless == job) {
            self.send(again.clone(), *service_ms);
        }
        self.starts.push(Start { id: handed.id, job, arrived_ms, at_ms, end_ms });
    }

    pub(crate) fn free_slots(&self) -> usize {
        self.slots - self.running.len()
    }

    /// Returns the worker time that those jobs got between two times.
    pub(crate) fn worked_ms(&self, is_meant: impl Fn(&Job) -> bool, from_ms: u64, to_ms: u64) -> u64 {
        let meant = self.starts.iter().filter(|start| is_meant(&start.job));
        meant.map(|start| start.end_ms.min(to_ms).saturating_sub(start.at_ms.max(from_ms))).sum()
    }
}
