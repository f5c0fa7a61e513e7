//! The clients that change the hub, and one that observes it.

use super::{Party, group_name, hub_name};
use crate::log::{Answer, HubEvent};
use crate::scenario::hub::{PASSING, WORKERS};
use peeklock_broker::AdminError;
use peeklock_types::HubSettings;
use tokio::time::timeout;

use crate::client::PATIENCE;

const PAUSE_MS_MAX: u64 = 30_000;
const LOOK_PAUSE_MS_MAX: u64 = 3_000;

/// Returns an answer of the running broker.
async fn answer<T>(
    party: &Party,
    asking: impl AsyncFnOnce(peeklock_broker::Broker) -> Result<T, AdminError>,
) -> (Option<T>, Answer) {
    let Some(mut visit) = party.world.office.visit() else { return (None, Answer::Unknown) };
    let asked = timeout(PATIENCE, asking(visit.broker.clone()));
    let result = tokio::select! {
        biased;
        _ = &mut visit.ended => return (None, Answer::Unknown),
        result = asked => result,
    };
    match result {
        Ok(Ok(value)) => (Some(value), Answer::Done),
        Ok(Err(AdminError::Refused(why))) => {
            (None, Answer::Refused { lock_lost: false, why: why.to_string() })
        }
        Ok(Err(AdminError::Stopped(_))) | Err(_) => (None, Answer::Unknown),
    }
}

/// Adds partitions to the hub, one by one.
pub(crate) async fn grow(mut party: Party) {
    let (from, max) = (party.hub().settings.partition_count, party.hub().partition_count_max);
    for count in from + 1..=max {
        party.pause_up_to(PAUSE_MS_MAX).await;
        while !grow_to(&mut party, count).await {
            party.pause().await;
        }
    }
}

pub(crate) async fn grow_to(party: &mut Party, partition_count: u32) -> bool {
    let request = party.world.log.next_request();
    party.log_hub(HubEvent::Growing { request, partition_count });
    let hub = party.hub().clone();
    let name = hub_name(&hub, &mut party.rng);
    let settings = HubSettings { partition_count, ..hub.settings };
    let (_, answer) = answer(party, async |broker| broker.update_hub(name, settings, None).await).await;
    let is_done = answer == Answer::Done;
    party.log_hub(HubEvent::Grown { request, answer });
    is_done
}

/// Creates and deletes a consumer group, and sometimes resets a checkpoint.
pub(crate) async fn regroup(mut party: Party) {
    while !party.is_over() {
        party.pause_up_to(PAUSE_MS_MAX).await;
        let (request, exists) = (party.world.log.next_request(), party.rng.bool());
        party.log_hub(HubEvent::GroupChanging { request, exists });
        let name = hub_name(&party.hub().clone(), &mut party.rng);
        let group = group_name(PASSING, &mut party.rng);
        let (_, answer) = answer(&party, async |broker| match exists {
            true => broker.create_group(name, group, None).await.map(|_| ()),
            false => broker.delete_group(name, group).await.map(|_| ()),
        })
        .await;
        party.log_hub(HubEvent::GroupChanged { request, answer });
        if party.rng.u32(0..3) == 0 {
            set_back(&mut party).await;
        }
    }
}

async fn set_back(party: &mut Party) {
    let Some(listed) = party.list(WORKERS).await else { return };
    let Some((partition, found)) = party.rng.choice(&listed.checkpoints).copied() else { return };
    let sequence = party.rng.bool().then(|| party.rng.u64(0..=found));
    party.checkpoint(WORKERS, partition, sequence, None).await;
}

/// Observes partitions continuously.
pub(crate) async fn look_on(mut party: Party) {
    while !party.is_over() {
        party.pause_up_to(LOOK_PAUSE_MS_MAX).await;
        let partition = super::some_partition(&mut party, None);
        look(&mut party, partition).await;
    }
}

/// Reads the state of this partition, and returns the number of partitions.
pub(crate) async fn look(party: &mut Party, partition: u32) -> Option<u32> {
    let visit = party.world.office.visit()?;
    let (request, run) = (party.world.log.next_request(), visit.run);
    party.log_hub(HubEvent::Looking { request, partition, run });
    let name = hub_name(&party.hub().clone(), &mut party.rng);
    let (found, _) = answer(party, async |broker| {
        let hub = broker.hub(name).await?;
        Ok((broker.partition(&hub, partition, None).await?.view, hub.settings.partition_count))
    })
    .await;
    let (view, count) = found?;
    let readers =
        view.readers.iter().map(|reader| (reader.group.as_str().to_lowercase(), reader.owner_level));
    let (begin, next, readers) = (view.begin_sequence, view.next_sequence, readers.collect());
    party.log_hub(HubEvent::Looked { request, begin, next, readers });
    Some(count)
}
