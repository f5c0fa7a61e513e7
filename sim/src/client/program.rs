//! Programs with the Rust SDK. Unlike the other clients, they reconnect, repeat their calls and renew their locks by themselves; the
//! simulator only starts, stops and kills them.

mod desk;
mod line;
mod processing;
mod sending;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Party, World};
use crate::scenario::Programs;
pub(crate) use processing::Employee;
pub(crate) use sending::Mailer;

/// The interval at which a waiting program notices the end of the storm.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The running programs. They live on after the storm, because they have to recover from it.
pub(crate) struct Staff {
    pub(crate) senders: Vec<JoinHandle<()>>,
    pub(crate) processors: Vec<JoinHandle<Employee>>,
}

/// Starts all programs.
pub(crate) fn hire(world: &Arc<World>, programs: &Programs, rng: &mut Rng) -> Staff {
    let mut party = |name: String| Party::new(world, name, rng.fork());
    let senders = programs.senders.iter().enumerate();
    let senders =
        senders.map(|(n, spec)| tokio::spawn(sending::send(party(format!("sender-{n}")), spec.clone())));
    let senders = senders.collect();
    let processors = programs.processors.iter().enumerate();
    let processors = processors
        .map(|(n, spec)| tokio::spawn(processing::employ(party(format!("processor-{n}")), spec.clone())));
    Staff { senders, processors: processors.collect() }
}

/// Waits. Returns false when the storm is over.
async fn live(world: &World, span: Duration) -> bool {
    let end = Instant::now() + span;
    while Instant::now() < end && !world.is_over() {
        tokio::time::sleep(LOOK_EVERY.min(end - Instant::now())).await;
    }
    !world.is_over()
}
