//! Competing consumers of one queue, or of its dead letters.

use std::sync::Arc;
use std::time::Duration;

use peeklock_client::Receiver;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::worker::Worker;
use super::{Connected, PATIENCE, Party, ask};
use crate::log::Part;
use crate::scenario::Consumer;

pub(crate) async fn consume(mut party: Party, spec: Consumer) {
    let part = if spec.from_dead_letters { Part::DeadLetter } else { Part::Main };
    while !party.is_over() {
        let connected = party.connect().await;
        let worker = Worker {
            world: Arc::clone(&party.world),
            name: Arc::clone(&party.name),
            client: connected.client.clone(),
            run: connected.run,
            queue: spec.queue,
            part,
            hold: None,
            link: party.attach(&connected, spec.queue, part),
            target: spec.target,
        };
        receive_on(&mut party, &spec, &connected, &worker).await;
        drop(connected);
        party.pause().await;
    }
}

async fn receive_on(party: &mut Party, spec: &Consumer, connected: &Connected, worker: &Worker) {
    let builder = connected.client.receiver(party.world.queue_name(spec.queue)).credit(spec.credit);
    let builder = if worker.part == Part::DeadLetter { builder.dead_letter() } else { builder };
    let (Some(mut receiver), _) = ask(builder.open()).await else { return };
    let mut working = JoinSet::new();
    if work(party, spec, worker, &mut receiver, &mut working).await {
        leave(party, receiver, working).await;
    }
}

/// Handles deliveries for a while. Returns false if the link is gone.
pub(super) async fn work(
    party: &mut Party,
    spec: &Consumer,
    worker: &Worker,
    receiver: &mut Receiver,
    working: &mut JoinSet<()>,
) -> bool {
    for _ in 0..party.rng.u32(1..300) {
        match timeout(Duration::from_secs(5), receiver.next()).await {
            Ok(Ok(Some(delivery))) => {
                let Some(seen) = worker.note(&delivery) else { continue };
                let (deed, work) = (spec.habits.choose(&mut party.rng), party.rng.u64(0..=spec.work_ms_max));
                let rng = party.rng.fork();
                working.spawn(worker.clone().handle(delivery, seen, deed, Duration::from_millis(work), rng));
            }
            Ok(Ok(None) | Err(_)) => return false,
            Err(_) if spec.fetches_deferred => {
                working.spawn(worker.clone().fetch(party.rng.fork()));
            }
            // Without deliveries, a client may release its session.
            Err(_) if worker.hold.is_some() && party.rng.bool() => return true,
            Err(_) => {}
        }
        while working.try_join_next().is_some() {}
    }
    true
}

/// Leaves the receiver: some clients finish their work before, others leave at once.
pub(super) async fn leave(party: &mut Party, receiver: Receiver, mut working: JoinSet<()>) {
    if party.rng.bool() {
        let _ = timeout(PATIENCE, async { while working.join_next().await.is_some() {} }).await;
        let _ = ask(receiver.close()).await;
    }
}
