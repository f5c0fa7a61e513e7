//! Several queues or subscriptions that one pool of receivers processes as one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::order::offset_at;
use crate::{EntityName, OrderPolicy, OrderSettings, limits};

/// The queue groups of a namespace.
pub type QueueGroups = BTreeMap<EntityName, Arc<QueueGroupSettings>>;

/// The settings of a queue group: its members, and whose message goes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueGroupSettings {
    pub policy: OrderPolicy,
    /// The members of the group, the most urgent first.
    pub members: Vec<MemberSettings>,
    /// The limit of messages that one receiver may hold unsettled, however much credit it grants. The rest of the
    /// credit stays until the receiver settles messages; the policy then selects the next ones.
    pub max_outstanding: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberSettings {
    /// A queue or a subscription.
    pub name: EntityName,
    /// The head start of a message without an offset over this member, if the policy is [`OrderPolicy::Aged`]. `None`:
    /// by its place, see [`QueueGroupSettings::offset`].
    pub offset: Option<Duration>,
    /// The share of the member if the policy is [`OrderPolicy::Weighted`]. `None` is 1.
    pub weight: Option<u32>,
}

/// The reason why a queue group is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueGroupError {
    #[error("the group has no members; name at least one queue or subscription")]
    NoMembers,
    #[error("the group has {count} members; at most {max} are allowed", max = limits::QUEUE_GROUP_MEMBERS_MAX)]
    TooManyMembers { count: usize },
    #[error("the member '{name}' is named twice; name it once")]
    NamedTwice { name: EntityName },
    #[error("the group cannot be a member of itself")]
    OwnMember,
    #[error("the weight of '{name}' is {given}; a weight is from 1 to {max}", max = limits::WEIGHT_MAX)]
    Weight { name: EntityName, given: u32 },
    #[error(
        "the order is strict, but the member '{name}' has a weight: either the first member always goes first, whatever it weighs \
         (order strict; leave the weights out), or the members share by their weights (order weighted); say which"
    )]
    StrictWithWeights { name: EntityName },
    #[error("the offset of '{name}' is {given:?}; at most {max:?} are allowed", max = limits::SCHEDULE_AHEAD_MAX)]
    Offset { name: EntityName, given: Duration },
    #[error("a max outstanding of {given} is outside of 1 to {max}", max = limits::OUTSTANDING_MAX)]
    Outstanding { given: u32 },
}

impl MemberSettings {
    pub fn new(name: EntityName) -> Self {
        MemberSettings { name, offset: None, weight: None }
    }
}

impl QueueGroupSettings {
    pub fn new(policy: OrderPolicy, members: impl IntoIterator<Item = EntityName>) -> Self {
        let members = members.into_iter().map(MemberSettings::new).collect();
        QueueGroupSettings { policy, members, max_outstanding: OrderSettings::MAX_OUTSTANDING }
    }

    /// Returns the offset of a member. The default is that of a class in the same place.
    pub fn offset(&self, member: usize) -> Duration {
        offset_at(member, self.members.iter().map(|member| member.offset))
    }

    pub fn weight(&self, member: usize) -> u32 {
        self.members.get(member).and_then(|member| member.weight).unwrap_or(OrderSettings::WEIGHT)
    }

    /// Checks the settings of the queue group `name`. Whether its members exist is not checked here.
    pub fn check(&self, name: &EntityName) -> Result<(), QueueGroupError> {
        let count = self.members.len();
        if count == 0 {
            return Err(QueueGroupError::NoMembers);
        }
        if count > limits::QUEUE_GROUP_MEMBERS_MAX {
            return Err(QueueGroupError::TooManyMembers { count });
        }
        if !(1..=limits::OUTSTANDING_MAX).contains(&self.max_outstanding) {
            return Err(QueueGroupError::Outstanding { given: self.max_outstanding });
        }
        for (place, member) in self.members.iter().enumerate() {
            self.check_member(name, member)?;
            if self.members.iter().take(place).any(|other| other.name == member.name) {
                return Err(QueueGroupError::NamedTwice { name: member.name.clone() });
            }
        }
        Ok(())
    }

    fn check_member(&self, group: &EntityName, member: &MemberSettings) -> Result<(), QueueGroupError> {
        let name = || member.name.clone();
        if member.name == *group {
            return Err(QueueGroupError::OwnMember);
        }
        if let Some(given) = member.weight {
            if !(1..=limits::WEIGHT_MAX).contains(&given) {
                return Err(QueueGroupError::Weight { name: name(), given });
            }
            if self.policy == OrderPolicy::Strict {
                return Err(QueueGroupError::StrictWithWeights { name: name() });
            }
        }
        match member.offset {
            Some(given) if given > limits::SCHEDULE_AHEAD_MAX => {
                Err(QueueGroupError::Offset { name: name(), given })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> EntityName {
        EntityName::parse(text).unwrap()
    }

    fn group(policy: OrderPolicy, members: &[&str]) -> QueueGroupSettings {
        QueueGroupSettings::new(policy, members.iter().map(|member| name(member)))
    }

    #[test]
    fn an_invalid_group_is_rejected() {
        let check = |group: &QueueGroupSettings| group.check(&name("work"));
        assert_eq!(check(&group(OrderPolicy::Strict, &["high", "low"])), Ok(()));
        assert_eq!(check(&group(OrderPolicy::Strict, &[])), Err(QueueGroupError::NoMembers));
        assert_eq!(check(&group(OrderPolicy::Fifo, &["a", "WORK"])), Err(QueueGroupError::OwnMember));
        let twice = QueueGroupError::NamedTwice { name: name("A") };
        assert_eq!(check(&group(OrderPolicy::Fifo, &["a", "b", "A"])), Err(twice));
        let mut many = group(OrderPolicy::Fifo, &[]);
        many.members = (0..33).map(|n| MemberSettings::new(name(&format!("q{n}")))).collect();
        assert_eq!(check(&many), Err(QueueGroupError::TooManyMembers { count: 33 }));
        let mut weighted = group(OrderPolicy::Weighted, &["a"]);
        weighted.members[0].weight = Some(0);
        assert_eq!(check(&weighted), Err(QueueGroupError::Weight { name: name("a"), given: 0 }));
        weighted.members[0].weight = Some(2);
        assert_eq!(check(&weighted), Ok(()));
        weighted.policy = OrderPolicy::Strict;
        let told = check(&weighted).unwrap_err().to_string();
        assert!(told.contains("order strict") && told.contains("order weighted"), "{told}");
        weighted.max_outstanding = 0;
        assert_eq!(check(&weighted), Err(QueueGroupError::Outstanding { given: 0 }));
    }

    #[test]
    fn offsets_increase_with_the_place() {
        let mut group = group(OrderPolicy::Aged, &["a", "b", "c", "d"]);
        let offsets = |group: &QueueGroupSettings| [0, 1, 2, 3].map(|place| group.offset(place).as_secs());
        assert_eq!(offsets(&group), [0, 30, 300, 600]);
        group.members[1].offset = Some(Duration::from_secs(400));
        assert_eq!(offsets(&group), [0, 400, 400, 600]);
        assert_eq!(group.weight(0), 1);
    }
}
