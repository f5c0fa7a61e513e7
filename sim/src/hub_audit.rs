//! Creates the hub, and at the end reads all of its events.

use std::time::Duration;

use peeklock_broker::hubs::{ReaderSpec, StartAt};
use peeklock_types::{ConsumerGroup, EntityName};

use crate::client::Party;
use crate::client::hub::{self, Got, Line};
use crate::log::{Event, HubEvent, ReadEnd};
use crate::scenario::hub::{GROUPS, PLAIN};

const CREDIT: u32 = 1000;
const WINDOW_BYTES: i64 = 4 << 20;
/// The time without an event after which a reader is at the end of a partition.
const SILENCE: Duration = Duration::from_secs(5);
const TRIES_MAX: u32 = 200;

pub(crate) async fn create(
    broker: &peeklock_broker::Broker,
    hub: &crate::scenario::Hub,
) -> Result<(), String> {
    let name = EntityName::parse(&hub.name).map_err(|why| why.to_string())?;
    let groups = GROUPS.iter().skip(1).map(|name| ConsumerGroup::parse(name).map_err(|why| why.to_string()));
    let groups = groups.collect::<Result<_, _>>()?;
    let created = broker.create_hub(name, hub.settings.clone(), groups).await;
    created.map(|_| ()).map_err(|why| format!("{}: {why}", hub.name))
}

/// Shares the partitions in calm conditions after the storm, then reads them to the end.
pub(crate) async fn settle(mut party: Party) {
    if let Some(processors) = party.hub().processors.clone() {
        let manager = Party::new(&party.world, "manager", party.rng.fork());
        hub::perform(manager, processors).await;
    }
    let mut partition = 0;
    while let Some(count) = look(&mut party, partition).await
        && partition < count
    {
        if !read_out(&mut party, partition).await {
            let what = format!("partition {partition} could not be read to its end");
            party.log(Event::Trouble { what });
        }
        look(&mut party, partition).await;
        partition += 1;
        if partition >= count {
            return;
        }
    }
    party.log(Event::Trouble { what: format!("partition {partition} could not be looked at") });
}

async fn look(party: &mut Party, partition: u32) -> Option<u32> {
    for _ in 0..TRIES_MAX {
        if let Some(count) = hub::look(party, partition).await {
            return Some(count);
        }
        party.pause().await;
    }
    None
}

/// Reads a partition from the first event to the last. Returns false if that fails. Uses an owner level, so that no
/// forgotten reader blocks it.
async fn read_out(party: &mut Party, partition: u32) -> bool {
    let mut line = Line::open(party).await;
    let (link, run, level) = (party.world.log.next_request(), line.run, Some(i64::MAX));
    let start = StartAt::Earliest;
    party.log_hub(HubEvent::Opening { link, group: PLAIN, partition, start, level, run, is_wired: false });
    let group = ConsumerGroup::default_group();
    let hub_revision = line.view.revision;
    let spec =
        ReaderSpec { group, start, owner_level: level, hub_revision, name: Some("auditor".to_owned()) };
    if line.attach(partition, spec, CREDIT, WINDOW_BYTES).await.is_err() {
        return false;
    }
    party.log_hub(HubEvent::Opened { link });
    loop {
        match line.next(SILENCE).await {
            Got::Events { events, count, window_bytes } => {
                party.log_hub(HubEvent::Read { link, events });
                if line.allow(partition, count, window_bytes).await.is_err() {
                    return false;
                }
            }
            Got::Ended(how) => {
                party.log_hub(HubEvent::ReadEnded { link, how });
                return false;
            }
            Got::Silence => {
                line.detach(partition).await;
                party.log_hub(HubEvent::ReadEnded { link, how: ReadEnd::Left });
                return true;
            }
        }
    }
}
