//! Several clients that change the same blobs. Each names the etag that it saw last, which others may have made stale,
//! and some hold a lease.

use std::collections::BTreeMap;

use peeklock_broker::blob::{
    BlobName, Condition, ContainerName, Error as BlobError, LeaseAction, LeaseId, LeaseSpan, Metadata,
    NewBlob, Tag,
};
use peeklock_broker::{AdminError, Broker, Error};
use tokio::time::timeout;

use super::{PATIENCE, Party};
use crate::log::{Answer, BlobChange, BlobEvent, Event, FoundBlob, LeaseWish};
use crate::scenario::blobs::CONTAINER;
use peeklock_types::Etag;

const VALUE: &str = "value";

fn container() -> ContainerName {
    ContainerName::parse(CONTAINER).expect("the container name is valid")
}

fn name_of(blob: u32) -> BlobName {
    BlobName::parse(&format!("hub/group/ownership/{blob}")).expect("the blob names are valid")
}

fn said(value: u64) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.add(VALUE, &value.to_string()).expect("a number is valid metadata");
    metadata
}

/// Changes, leases and reads blobs until the storm is over.
pub(crate) async fn claim(mut party: Party, number: u64) {
    let Some(spec) = party.world.scenario.blobs.clone() else { return };
    let mut claims = Claims::default();
    // Each client writes values that no other client writes.
    let mut value = number << 32;
    while !party.is_over() {
        party.pause_up_to(spec.pause_ms_max).await;
        let blob = party.rng.u32(0..spec.count);
        if party.rng.u32(0..3) == 0 {
            match look(&mut party, blob).await {
                Some(Some(found)) => drop(claims.known.insert(blob, found.etag)),
                Some(None) => drop(claims.known.remove(&blob)),
                None => {}
            }
            continue;
        }
        value += 1;
        if spec.lease_one_in > 0 && party.rng.u32(0..spec.lease_one_in) == 0 {
            claims.lease(&mut party, blob, value).await;
        } else {
            claims.change(&mut party, blob, value).await;
        }
    }
}

/// The etags and leases that a claimant believes to be current.
#[derive(Default)]
struct Claims {
    /// The etag that the client saw last, by blob.
    known: BTreeMap<u32, u64>,
    /// The lease that the client requested, by blob.
    held: BTreeMap<u32, u64>,
    /// The blob on which another client's lease rejected a change.
    locked_out: Option<u32>,
}

impl Claims {
    async fn change(&mut self, party: &mut Party, blob: u32, value: u64) {
        let change = match self.known.get(&blob).copied() {
            None => BlobChange::Create { value },
            Some(expected) if party.rng.u32(0..8) == 0 => BlobChange::Delete { expected },
            Some(expected) => BlobChange::Set { expected, value },
        };
        let lease = self.held.get(&blob).copied();
        let (answer, etag) = ask_for(party, blob, change, lease).await;
        if answer.is_about_lease() {
            self.locked_out = Some(blob);
            self.held.remove(&blob);
            return;
        }
        // Sometimes it continues with an etag that it should know to be stale.
        match (answer, etag) {
            (Answer::Done, Some(etag)) => drop(self.known.insert(blob, etag)),
            _ if party.rng.u32(0..4) > 0 => drop(self.known.remove(&blob)),
            _ => {}
        }
    }

    async fn lease(&mut self, party: &mut Party, blob: u32, fresh: u64) {
        let wish = match self.held.remove(&blob) {
            Some(lease) => LeaseWish::Release { lease },
            None if self.locked_out.take() == Some(blob) => LeaseWish::Break,
            None => LeaseWish::Acquire { lease: fresh },
        };
        let answer = ask_for_lease(party, blob, wish).await;
        // A lease request without an answer counts as held.
        if let (LeaseWish::Acquire { lease }, Answer::Done | Answer::Unknown) = (wish, answer) {
            self.held.insert(blob, lease);
        }
    }
}

async fn ask_for_lease(party: &mut Party, blob: u32, wish: LeaseWish) -> Answer {
    let request = party.world.log.next_request();
    party.log(Event::Blob(BlobEvent::Leasing { request, blob, wish }));
    let action = match wish {
        LeaseWish::Acquire { lease } => {
            LeaseAction::Acquire { id: LeaseId(lease.into()), span: LeaseSpan::Infinite }
        }
        LeaseWish::Release { lease } => LeaseAction::Release { id: LeaseId(lease.into()) },
        LeaseWish::Break => LeaseAction::Break { period: None },
    };
    let always = Condition::default();
    let leased =
        call(party, async |broker| broker.lease_blob(container(), Some(name_of(blob)), action, always).await);
    let answer = match leased.await {
        Ok(_) => Answer::Done,
        Err(Some(why)) => Answer::Refused { lock_lost: false, why: why.to_string() },
        Err(None) => Answer::Unknown,
    };
    party.log(Event::Blob(BlobEvent::Leased { request, answer: answer.clone() }));
    answer
}

async fn ask_for(
    party: &mut Party,
    blob: u32,
    change: BlobChange,
    lease: Option<u64>,
) -> (Answer, Option<u64>) {
    let request = party.world.log.next_request();
    party.log(Event::Blob(BlobEvent::Changing { request, blob, change, lease }));
    let by_put = party.rng.bool();
    let result = call(party, async |broker| perform(broker, blob, change, lease, by_put).await).await;
    let (answer, etag) = match result {
        Ok(etag) => (Answer::Done, etag),
        Err(Some(why)) => (Answer::Refused { lock_lost: is_stale(&why), why: why.to_string() }, None),
        Err(None) => (Answer::Unknown, None),
    };
    party.log(Event::Blob(BlobEvent::Changed { request, answer: answer.clone(), etag }));
    (answer, etag)
}

async fn perform(
    broker: Broker,
    blob: u32,
    change: BlobChange,
    lease: Option<u64>,
    by_put: bool,
) -> Result<Option<u64>, AdminError> {
    let (container, name) = (container(), name_of(blob));
    let under = Condition { lease_id: lease.map(|lease| LeaseId(lease.into())), ..Condition::default() };
    let is = |etag| Condition { if_match: Some(Tag::Is(Etag(etag))), ..under.clone() };
    let new = |value| NewBlob { metadata: said(value), ..NewBlob::default() };
    let changed = match change {
        BlobChange::Create { value } => {
            let none = Condition { if_none_match: Some(Tag::Any), ..under };
            let _ = broker.create_container(container.clone(), Metadata::default()).await;
            broker.put_blob(container, name, new(value), none).await?
        }
        BlobChange::Set { expected, value } if by_put => {
            broker.put_blob(container, name, new(value), is(expected)).await?
        }
        BlobChange::Set { expected, value } => {
            broker.set_blob_metadata(container, name, said(value), is(expected)).await?
        }
        BlobChange::Delete { expected } => {
            broker.delete_blob(container, name, is(expected)).await?;
            return Ok(None);
        }
    };
    Ok(Some(changed.0.0))
}

/// Reads a blob. Returns `None` without an answer, `Some(None)` if there is no blob.
pub(crate) async fn look(party: &mut Party, blob: u32) -> Option<Option<FoundBlob>> {
    let request = party.world.log.next_request();
    party.log(Event::Blob(BlobEvent::Looking { request, blob }));
    let found = match call(party, async |broker| broker.blob(container(), name_of(blob)).await).await {
        Ok(found) => {
            let value = found.metadata.get(VALUE).and_then(|value| value.parse().ok());
            Some(FoundBlob { etag: found.etag.0, value })
        }
        Err(Some(why)) if is_missing(&why) => None,
        Err(_) => return None,
    };
    party.log(Event::Blob(BlobEvent::Looked { request, found }));
    Some(found)
}

/// Sends a request. `Err(None)` means that the outcome is unknown.
async fn call<T>(
    party: &mut Party,
    ask: impl AsyncFnOnce(Broker) -> Result<T, AdminError>,
) -> Result<T, Option<Error>> {
    let is_stormy = !party.is_over();
    let spec = party.world.scenario.blobs.as_ref();
    let (call_ms_max, unheard_one_in) =
        spec.filter(|_| is_stormy).map_or((2, 0), |spec| (spec.call_ms_max, spec.unheard_one_in));
    let is_unheard = unheard_one_in > 0 && party.rng.u32(0..unheard_one_in) == 0;
    party.pause_up_to(call_ms_max).await;
    let mut visit = party.world.office.visit().ok_or(None)?;
    let result = tokio::select! {
        biased;
        _ = &mut visit.ended => return Err(None),
        result = timeout(PATIENCE, ask(visit.broker.clone())) => result,
    };
    party.pause_up_to(call_ms_max).await;
    match result {
        _ if is_unheard => Err(None),
        Ok(Ok(value)) => Ok(value),
        Ok(Err(AdminError::Refused(why))) => Err(Some(why)),
        Ok(Err(AdminError::Stopped(_))) | Err(_) => Err(None),
    }
}

fn is_stale(why: &Error) -> bool {
    let Error::Blob(why) = why else { return false };
    matches!(
        **why,
        BlobError::ConditionNotMet { .. } | BlobError::BlobExists { .. } | BlobError::NoSuchBlob { .. }
    )
}

fn is_missing(why: &Error) -> bool {
    let Error::Blob(why) = why else { return false };
    matches!(**why, BlobError::NoSuchBlob { .. } | BlobError::NoSuchContainer { .. })
}
