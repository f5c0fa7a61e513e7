//! Those who publish to the hub, read from it, share its partitions and change it.

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
    /// Parties of a hub only come where there is one.
    pub(crate) fn hub(&self) -> &Hub {
        self.world.scenario.hub.as_ref().expect("only worlds with a hub have parties for it")
    }

    pub(crate) fn log_hub(&self, event: HubEvent) {
        self.log(Event::Hub(event));
    }
}

/// The name in any case: all of them mean the same hub.
pub(crate) fn hub_name(hub: &Hub, rng: &mut Rng) -> EntityName {
    EntityName::parse(&any_case(&hub.name, rng)).expect("the hub has a good name")
}

pub(crate) fn group_name(group: GroupIndex, rng: &mut Rng) -> ConsumerGroup {
    let name = GROUPS.get(group).copied().unwrap_or(ConsumerGroup::DEFAULT);
    ConsumerGroup::parse(&any_case(name, rng)).expect("groups have good names")
}

pub(crate) fn any_case(name: &str, rng: &mut Rng) -> String {
    match rng.u32(0..4) {
        0 => name.to_lowercase(),
        1 => name.to_uppercase(),
        _ => name.to_owned(),
    }
}

/// Any of the partitions that there were at first.
pub(crate) fn some_partition(party: &mut Party, fixed: Option<u32>) -> u32 {
    let count = party.hub().settings.partition_count;
    fixed.unwrap_or_else(|| party.rng.u32(0..count))
}
