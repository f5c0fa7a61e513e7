//! Requests about ownership and checkpoints. They take time, and some answers are lost although the request was
//! executed.

use std::time::Duration;

use peeklock_broker::hubs::{CheckpointBy, Error as HubError, Ownership};
use peeklock_broker::{AdminError, Broker, Error};
use tokio::time::timeout;

use super::{Party, group_name, hub_name};
use crate::log::{Answer, HubEvent, Owned};
use crate::scenario::GroupIndex;
use peeklock_types::Etag;

/// The time after which the caller gives up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The state of a consumer group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) partition_count: u32,
    pub(crate) owned: Vec<Owned>,
    pub(crate) checkpoints: Vec<(u32, u64)>,
}

/// The reason why a request failed.
pub(crate) enum Failed {
    Refused(Box<Error>),
    Unknown,
}

fn owned(ownership: &Ownership) -> Owned {
    let Ownership { partition, owner, epoch, etag, .. } = ownership.clone();
    Owned { partition, owner, epoch, etag: etag.0 }
}

impl Party {
    /// Sends a request to the running broker. The answer may be lost.
    async fn call<T, F>(&mut self, ask: impl FnOnce(Broker) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, AdminError>>,
    {
        let is_stormy = !self.is_over();
        let hub = self.hub();
        let call_ms_max = if is_stormy { hub.call_ms_max } else { 2 };
        let fails_one_in = hub.processors.as_ref().map_or(0, |processors| processors.fails_one_in);
        let goes_wrong = is_stormy && fails_one_in > 0 && self.rng.u32(0..fails_one_in) == 0;
        let is_unheard = self.rng.bool();
        self.pause_up_to(call_ms_max).await;
        if goes_wrong && is_unheard {
            return Err(Failed::Unknown);
        }
        let mut visit = self.world.office.visit().ok_or(Failed::Unknown)?;
        let result = tokio::select! {
            biased;
            _ = &mut visit.ended => return Err(Failed::Unknown),
            result = timeout(PATIENCE, ask(visit.broker.clone())) => result,
        };
        self.pause_up_to(call_ms_max).await;
        match result {
            _ if goes_wrong => Err(Failed::Unknown),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(AdminError::Refused(why))) => Err(Failed::Refused(Box::new(why))),
            Ok(Err(AdminError::Stopped(_))) | Err(_) => Err(Failed::Unknown),
        }
    }

    /// Returns whether requests go over AMQP.
    fn is_wired(&self) -> bool {
        let processors = self.hub().processors.as_ref();
        processors.is_some_and(|processors| processors.is_wired) && !self.is_over()
    }

    pub(crate) async fn list(&mut self, group: GroupIndex) -> Option<Listed> {
        let request = self.world.log.next_request();
        self.log_hub(HubEvent::Listing { request, group });
        let listed =
            if self.is_wired() { self.list_over_wire(group).await } else { self.list_directly(group).await };
        let listed = listed?;
        let (owned, checkpoints) = (listed.owned.clone(), listed.checkpoints.clone());
        self.log_hub(HubEvent::Listed { request, owned, checkpoints });
        Some(listed)
    }

    async fn list_directly(&mut self, group: GroupIndex) -> Option<Listed> {
        let (name, of) = (hub_name(&self.hub().clone(), &mut self.rng), group_name(group, &mut self.rng));
        let asked = self.call(|broker| async move {
            let partition_count = broker.hub(name.clone()).await?.settings.partition_count;
            let owned: Vec<_> =
                broker.ownerships(name.clone(), of.clone()).await?.iter().map(owned).collect();
            let checkpoints = broker.checkpoints(name, of).await?;
            let checkpoints = checkpoints.into_iter().map(|(partition, found)| (partition, found.sequence));
            Ok(Listed { partition_count, owned, checkpoints: checkpoints.collect() })
        });
        asked.await.ok()
    }

    /// Claims, renews or gives up a partition. A refusal contains the current record, if it is known.
    pub(crate) async fn claim(
        &mut self,
        group: GroupIndex,
        partition: u32,
        owner: &str,
        expected: Option<u64>,
    ) -> (Answer, Option<Owned>) {
        let request = self.world.log.next_request();
        self.log_hub(HubEvent::Claiming { request, group, partition, owner: owner.to_owned(), expected });
        let (answer, found) = if self.is_wired() {
            self.claim_over_wire(group, partition, owner, expected).await
        } else {
            self.claim_directly(group, partition, owner, expected).await
        };
        self.log_hub(HubEvent::Claimed { request, answer: answer.clone(), owned: found.clone() });
        (answer, found)
    }

    async fn claim_directly(
        &mut self,
        group: GroupIndex,
        partition: u32,
        owner: &str,
        expected: Option<u64>,
    ) -> (Answer, Option<Owned>) {
        let (name, of) = (hub_name(&self.hub().clone(), &mut self.rng), group_name(group, &mut self.rng));
        let owner = owner.to_owned();
        let asked = self
            .call(|broker| async move { broker.claim(name, of, partition, owner, expected.map(Etag)).await });
        match asked.await {
            Ok(ownership) => (Answer::Done, Some(owned(&ownership))),
            Err(Failed::Refused(why)) => {
                let answer = Answer::Refused { lock_lost: false, why: why.to_string() };
                (answer, stale(&why).as_ref().map(owned))
            }
            Err(Failed::Unknown) => (Answer::Unknown, None),
        }
    }

    /// Writes a checkpoint. `owner` has its epoch; `None` requests a reset.
    pub(crate) async fn checkpoint(
        &mut self,
        group: GroupIndex,
        partition: u32,
        sequence: Option<u64>,
        owner: Option<(String, u64)>,
    ) -> Answer {
        let request = self.world.log.next_request();
        self.log_hub(HubEvent::Checkpointing { request, group, partition, sequence, owner: owner.clone() });
        let answer = match (&owner, sequence) {
            (Some(owner), Some(sequence)) if self.is_wired() => {
                self.checkpoint_over_wire(group, partition, sequence, owner).await
            }
            _ => self.checkpoint_directly(group, partition, sequence, owner).await,
        };
        self.log_hub(HubEvent::Checkpointed { request, answer: answer.clone() });
        answer
    }

    async fn checkpoint_directly(
        &mut self,
        group: GroupIndex,
        partition: u32,
        sequence: Option<u64>,
        owner: Option<(String, u64)>,
    ) -> Answer {
        let (name, of) = (hub_name(&self.hub().clone(), &mut self.rng), group_name(group, &mut self.rng));
        let by = match owner {
            Some((owner, epoch)) => CheckpointBy::Owner { owner, epoch },
            None => CheckpointBy::Reset,
        };
        let asked =
            self.call(|broker| async move { broker.checkpoint(name, of, partition, sequence, by).await });
        match asked.await {
            Ok(_) => Answer::Done,
            Err(Failed::Refused(why)) => {
                Answer::Refused { lock_lost: is_not_owner(&why), why: why.to_string() }
            }
            Err(Failed::Unknown) => Answer::Unknown,
        }
    }
}

fn stale(why: &Error) -> Option<Ownership> {
    match why {
        Error::Hub(hub) => match &**hub {
            HubError::StaleEtag { current } => Some((**current).clone()),
            _ => None,
        },
        _ => None,
    }
}

fn is_not_owner(why: &Error) -> bool {
    matches!(why, Error::Hub(hub) if matches!(**hub, HubError::NotOwner { .. }))
}
