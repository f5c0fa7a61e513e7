//! The clients that publish to the hub, read from it, share its partitions and change it.

mod asking;
mod body;
mod call;
mod instance;
mod keeper;
mod line;
pub(crate) mod numbered;
mod publisher;
mod pump;
mod reader;
mod staff;
mod stage;
pub(crate) mod wire;

pub(crate) use keeper::{grow, look, look_on, regroup};
pub(crate) use line::{Got, Line};
pub(crate) use publisher::publish;
pub(crate) use reader::read;
pub(crate) use staff::employ;
pub(crate) use stage::perform;

use fastrand::Rng;
use peeklock_types::{ConsumerGroup, EntityName};

use super::Party;
use crate::log::{Event, Fate, HubEvent};
use crate::scenario::{GROUPS, GroupIndex, Hub};

impl Party {
    /// Returns the hub. Hub clients exist only in worlds with a hub.
    pub(crate) fn hub(&self) -> &Hub {
        self.world.scenario.hub.as_ref().expect("only worlds with a hub have clients for it")
    }

    pub(crate) fn log_hub(&self, event: HubEvent) {
        self.log(Event::Hub(event));
    }
}

/// Returns the hub's name in random case: every spelling means the same hub.
pub(crate) fn hub_name(hub: &Hub, rng: &mut Rng) -> EntityName {
    EntityName::parse(&any_case(&hub.name, rng)).expect("the hub name is valid")
}

pub(crate) fn group_name(group: GroupIndex, rng: &mut Rng) -> ConsumerGroup {
    let name = GROUPS.get(group).copied().unwrap_or(ConsumerGroup::DEFAULT);
    ConsumerGroup::parse(&any_case(name, rng)).expect("the consumer group names are valid")
}

pub(crate) fn any_case(name: &str, rng: &mut Rng) -> String {
    match rng.u32(0..4) {
        0 => name.to_lowercase(),
        1 => name.to_uppercase(),
        _ => name.to_owned(),
    }
}

/// Returns one of the initial partitions.
pub(crate) fn some_partition(party: &mut Party, fixed: Option<u32>) -> u32 {
    let count = party.hub().settings.partition_count;
    fixed.unwrap_or_else(|| party.rng.u32(0..count))
}
