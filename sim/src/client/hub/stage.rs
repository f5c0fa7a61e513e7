//! The calm phase without faults, in which the sharing of partitions can be judged by the clock.

use std::time::Duration;

use super::keeper::grow_to;
use super::staff::{Staff, Task};
use super::{Line, Party};
use crate::log::{Answer, HubEvent, Stage};
use crate::scenario::Processors;
use crate::scenario::hub::WORKERS;

/// The number of intervals without a change after which ownership counts as stable.
pub(crate) const STAY_INTERVALS: u32 = 20;
/// The largest number of partitions for which more instances than partitions are started.
const SURPLUS_PARTITIONS_MAX: usize = 4;
const TRAFFIC_PAUSE_MS_MAX: u64 = 1500;

pub(crate) async fn perform(party: Party, spec: Processors) {
    let mut party = party;
    let traffic = Party::new(&party.world, "traffic", party.rng.fork());
    let traffic = Task(tokio::spawn(flow(traffic)));
    let Some(listed) = list(&mut party).await else { return };
    let partition_count = listed as usize;
    let (interval, expiry) = (spec.interval, spec.expiry);
    let count = spec.count;
    let mut staff = Staff::new(party, spec, "worker");
    let cycles = |partitions: usize, instances: usize| {
        u32::try_from(partitions.div_ceil(instances.max(1))).unwrap_or(u32::MAX).saturating_add(4)
    };
    begin(&staff, Stage::Start { count });
    (0..count).for_each(|_| staff.hire());
    // An ownership left from the storm is free when its record was unchanged for long enough.
    pass(expiry + interval * (cycles(partition_count, count) + cycles(partition_count, count))).await;
    begin(&staff, Stage::Stay);
    pass(interval * STAY_INTERVALS).await;
    begin(&staff, Stage::Join);
    staff.hire();
    pass(interval * (2 * cycles(partition_count, count + 1))).await;
    begin(&staff, Stage::Crash);
    staff.crash();
    pass(expiry + interval * (2 * cycles(partition_count, count))).await;
    if staff.count() > 1 {
        begin(&staff, Stage::Leave);
        staff.stop().await;
        pass(interval * (2 * cycles(partition_count, staff.count()))).await;
    }
    let added = staff.party.rng.u32(1..3);
    begin(&staff, Stage::Grow { added });
    while !grow_to(&mut staff.party, listed + added).await {
        pass(interval).await;
    }
    let partition_count = partition_count + added as usize;
    pass(interval * (2 * cycles(partition_count, staff.count()))).await;
    if partition_count <= SURPLUS_PARTITIONS_MAX {
        begin(&staff, Stage::Surplus { count: partition_count + 1 });
        while staff.count() <= partition_count {
            staff.hire();
        }
        pass(interval * 10).await;
        begin(&staff, Stage::Crash);
        staff.crash();
        pass(expiry + interval * 8).await;
    }
    begin(&staff, Stage::End);
    drop(traffic);
    pass(interval * 2).await;
    while staff.count() > 0 {
        staff.stop().await;
    }
    list(&mut staff.party).await;
}

fn begin(staff: &Staff, stage: Stage) {
    staff.party.log_hub(HubEvent::Staged(stage));
}

async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Returns the number of partitions.
async fn list(party: &mut Party) -> Option<u32> {
    for _ in 0..20 {
        if let Some(listed) = party.list(WORKERS).await {
            return Some(listed.partition_count);
        }
        party.pause().await;
    }
    None
}

/// Publishes to every partition continuously.
async fn flow(mut party: Party) {
    loop {
        let mut line = Line::open(&mut party).await;
        for partition in 0..line.partition_count() {
            let number = party.world.log.next_message(1);
            let (request, run) = (party.world.log.next_request(), line.run);
            let (events, numbered, size_bytes) = (vec![number], None, 200);
            party.log_hub(HubEvent::Publishing { request, partition, events, numbered, size_bytes, run });
            let answer = line.publish(partition, &[(number, 10)], None).await;
            let is_over = answer == Answer::Unknown;
            party.log_hub(HubEvent::Published { request, answer });
            if is_over {
                break;
            }
        }
        drop(line);
        party.pause_up_to(TRAFFIC_PAUSE_MS_MAX).await;
    }
}
