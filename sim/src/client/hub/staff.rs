//! Starts, stops, pauses and crashes the instances that share the partitions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::instance::Instance;
use super::{Fate, Party};
use crate::log::HubEvent;
use crate::scenario::Processors;

/// The largest error of an instance's clock, in thousandths, fast or slow.
const DRIFT_MAX: u32 = 20;

/// The state that an instance shares with its pumps.
#[derive(Default)]
pub(super) struct Pulse {
    paused_until: Mutex<Option<Instant>>,
    is_stopping: AtomicBool,
    stop: Notify,
}

impl Pulse {
    /// Returns at once, unless the process is paused.
    pub(super) async fn beat(&self) {
        loop {
            let until = *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return,
            }
        }
    }

    fn pause(&self, span: Duration) {
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + span);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stop.notify_one();
    }

    /// Sleeps, at most until a stop.
    pub(super) async fn sleep(&self, span: Duration) {
        if !self.is_stopping() {
            let _ = tokio::time::timeout(span, self.stop.notified()).await;
        }
    }
}

/// A task that ends with its owner.
pub(super) struct Task(pub(super) JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Member {
    name: String,
    pulse: Arc<Pulse>,
    task: Task,
}

pub(super) struct Staff {
    pub(super) party: Party,
    spec: Processors,
    prefix: &'static str,
    members: Vec<Member>,
    hired_count: usize,
}

impl Staff {
    pub(super) fn new(party: Party, spec: Processors, prefix: &'static str) -> Self {
        Staff { party, spec, prefix, members: Vec::new(), hired_count: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    fn note(&self, name: &str, fate: Fate) {
        self.party.log_hub(HubEvent::Instance { instance: name.to_owned(), fate });
    }

    pub(super) fn hire(&mut self) {
        self.hired_count += 1;
        let name = format!("{}-{}", self.prefix, self.hired_count);
        let pulse = Arc::<Pulse>::default();
        let thousandths = 1000 - DRIFT_MAX + self.party.rng.u32(0..=2 * DRIFT_MAX);
        let spec = Processors {
            interval: self.spec.interval * thousandths / 1000,
            expiry: self.spec.expiry * thousandths / 1000,
            ..self.spec.clone()
        };
        let party = Party::new(&self.party.world, name.as_str(), self.party.rng.fork());
        self.note(&name, Fate::Started);
        let task = Task(tokio::spawn(Instance::new(party, spec, Arc::clone(&pulse)).work()));
        self.members.push(Member { name, pulse, task });
    }

    fn any(&mut self) -> Option<usize> {
        (!self.members.is_empty()).then(|| self.party.rng.usize(..self.members.len()))
    }

    pub(super) fn crash(&mut self) -> Option<String> {
        let number = self.any()?;
        let Member { name, task, .. } = self.members.swap_remove(number);
        task.0.abort();
        self.note(&name, Fate::Crashed);
        Some(name)
    }

    /// Stops one instance in an orderly way.
    pub(super) async fn stop(&mut self) {
        let Some(number) = self.any() else { return };
        let Member { name, pulse, mut task } = self.members.swap_remove(number);
        self.note(&name, Fate::Stopping);
        pulse.stop();
        let _ = (&mut task.0).await;
        self.note(&name, Fate::Stopped);
    }

    fn pause(&mut self, span: Duration) {
        let Some(member) = self.any().and_then(|number| self.members.get(number)) else { return };
        member.pulse.pause(span);
        self.note(&member.name, Fate::Paused);
        let (party, name) = (Arc::clone(&self.party.world), member.name.clone());
        let log_name = Arc::clone(&self.party.name);
        tokio::spawn(async move {
            tokio::time::sleep(span).await;
            let event = HubEvent::Instance { instance: name, fate: Fate::Resumed };
            party.log.add(&log_name, crate::log::Event::Hub(event));
        });
    }
}

/// Runs the instances during the storm, in which they join and leave at any time.
pub(crate) async fn employ(party: Party, spec: Processors) {
    let (count, every_ms, expiry) = (spec.count, spec.changes_every_ms, spec.expiry);
    let mut staff = Staff::new(party, spec, "instance");
    (0..count).for_each(|_| staff.hire());
    while !staff.party.is_over() {
        staff.party.pause_up_to(2 * every_ms).await;
        match staff.party.rng.u32(0..6) {
            0 | 1 if staff.count() < count + 2 => staff.hire(),
            2 if staff.count() > 1 => {
                staff.crash();
            }
            3 if staff.count() > 1 => staff.stop().await,
            4 | 5 => {
                let span = expiry.mul_f64(staff.party.rng.f64() * 2.0);
                staff.pause(span);
            }
            _ => {}
        }
    }
}
