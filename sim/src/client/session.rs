//! Consumers that accept a session, named or the next, work in it, keep its state, and release it.

use std::sync::Arc;
use std::time::Duration;

use peeklock_client::Receiver;
use tokio::task::JoinSet;

use super::consumer::{leave, work};
use super::producer::session_for;
use super::worker::{Hold, Worker};
use super::{Connected, Party, ask, session_id, session_number};
use crate::log::{Event, Part};
use crate::scenario::{Consumer, Target};

pub(crate) async fn consume_sessions(mut party: Party, spec: Consumer) {
    while !party.is_over() {
        let connected = party.connect().await;
        for _ in 0..party.rng.u32(1..6) {
            if !hold_one(&mut party, &spec, &connected).await {
                break;
            }
        }
        drop(connected);
        party.pause().await;
    }
}

/// Holds one session for a while. Returns false if no session was available or the link broke.
async fn hold_one(party: &mut Party, spec: &Consumer, connected: &Connected) -> bool {
    let link = party.attach(connected, spec.queue, Part::Main);
    let Some(mut receiver) = accept(party, spec, connected).await else { return false };
    let Some(worker) = note_hold(party, spec, connected, &receiver, link) else { return false };
    use_state(party, &worker).await;
    let mut working = JoinSet::new();
    let is_well = work(party, spec, &worker, &mut receiver, &mut working).await;
    use_state(party, &worker).await;
    if let Some(hold) = &worker.hold {
        party.log(Event::HoldEnding { hold: hold.hold });
    }
    leave(party, receiver, working).await;
    is_well
}

async fn accept(party: &mut Party, spec: &Consumer, connected: &Connected) -> Option<Receiver> {
    let builder = connected.client.receiver(party.world.queue_name(spec.queue)).credit(spec.credit);
    let builder = if party.rng.bool() {
        builder.session(session_id(session_for(party, Target::Queue(spec.queue))?))
    } else {
        builder.next_session(Duration::from_secs(party.rng.u64(1..20)))
    };
    ask(builder.open()).await.0
}

fn note_hold(
    party: &Party,
    spec: &Consumer,
    connected: &Connected,
    receiver: &Receiver,
    link: u32,
) -> Option<Worker> {
    let session = receiver.session()?.clone();
    let number = session_number(session.id())?;
    let hold = party.world.log.next_request();
    party.log(Event::Holding {
        hold,
        queue: spec.queue,
        session: number,
        until_ms: session.locked_until().as_millis(),
        run: connected.run,
        connection: connected.connection,
    });
    Some(Worker {
        world: Arc::clone(&party.world),
        name: Arc::clone(&party.name),
        client: connected.client.clone(),
        run: connected.run,
        queue: spec.queue,
        part: Part::Main,
        hold: Some(Hold { hold, number, session }),
        link,
        target: spec.target,
    })
}

/// Reads or changes the session's state.
async fn use_state(party: &mut Party, worker: &Worker) {
    let Some(Hold { hold, session, .. }) = &worker.hold else { return };
    match party.rng.u32(0..4) {
        0 => {
            let request = party.world.log.next_request();
            let value = u64::from(request);
            party.log(Event::StateSetting { request, hold: *hold, value });
            let (_, answer) = ask(session.set_state(Some(value.to_be_bytes().to_vec().into()))).await;
            party.log(Event::StateSet { request, answer });
        }
        1 | 2 => {
            let request = party.world.log.next_request();
            party.log(Event::StateReading { request, hold: *hold });
            if let Some(state) = ask(session.state()).await.0 {
                let value = state.map(|bytes| bytes[..].try_into().map_or(u64::MAX, u64::from_be_bytes));
                party.log(Event::StateRead { request, value });
            }
        }
        _ => {}
    }
}
