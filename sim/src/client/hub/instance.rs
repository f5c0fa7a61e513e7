//! One of several processes that share the partitions of a hub. It claims by the balanced rule, renews, and gives up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Party;
use super::call::Listed;
use super::pump::Pump;
use super::staff::{Pulse, Task};
use crate::log::{Answer, Owned};
use crate::scenario::Processors;
use crate::scenario::hub::WORKERS;

/// The time that a pump has to end after a request.
const END_TIME_MAX: Duration = Duration::from_secs(15);

pub(super) struct Instance {
    party: Party,
    name: String,
    spec: Processors,
    pulse: Arc<Pulse>,
    held: BTreeMap<u32, Held>,
    /// The time since which each record is unchanged, by the instance's own clock. A record that is not renewed for
    /// long is free, whatever other clocks show.
    unchanged: BTreeMap<u32, (u64, Instant)>,
}

struct Held {
    owned: Owned,
    pump: Task,
}

impl Instance {
    pub(super) fn new(party: Party, spec: Processors, pulse: Arc<Pulse>) -> Self {
        let name = party.name.to_string();
        Instance { party, name, spec, pulse, held: BTreeMap::new(), unchanged: BTreeMap::new() }
    }

    pub(super) async fn work(mut self) {
        loop {
            self.pulse.beat().await;
            if self.pulse.is_stopping() {
                return self.leave().await;
            }
            self.cycle().await;
            self.pulse.sleep(self.spec.interval).await;
        }
    }

    async fn cycle(&mut self) {
        let Some(listed) = self.party.list(WORKERS).await else { return };
        self.pulse.beat().await;
        self.compare(&listed);
        self.renew().await;
        if let Some((partition, expected)) = self.choose(&listed) {
            // A lost claim is no error: another instance was faster.
            if let (Answer::Done, Some(owned)) =
                self.party.claim(WORKERS, partition, &self.name, expected).await
            {
                self.hold(owned);
            }
        }
    }

    /// Adopts the broker's list of ownerships.
    fn compare(&mut self, listed: &Listed) {
        let now = Instant::now();
        for owned in &listed.owned {
            let known = self.unchanged.entry(owned.partition).or_insert((owned.etag, now));
            if known.0 != owned.etag {
                *known = (owned.etag, now);
            }
            if owned.owner == self.name {
                self.hold(owned.clone());
            } else {
                self.held.remove(&owned.partition);
            }
        }
    }

    /// Starts a pump for an owned partition, unless one runs.
    fn hold(&mut self, owned: Owned) {
        let partition = owned.partition;
        self.unchanged.insert(partition, (owned.etag, Instant::now()));
        match self.held.get_mut(&partition) {
            Some(held) if held.owned.epoch == owned.epoch && !held.pump.0.is_finished() => held.owned = owned,
            _ => {
                let name = format!("{}.{partition}", self.name);
                let party = Party::new(&self.party.world, name, self.party.rng.fork());
                let every = self.spec.checkpoint_every;
                let pump = Pump::new(party, &self.name, owned.clone(), Arc::clone(&self.pulse), every);
                self.held.insert(partition, Held { owned, pump: Task(tokio::spawn(pump.work())) });
            }
        }
    }

    async fn renew(&mut self) {
        let mine: Vec<_> = self.held.values().map(|held| (held.owned.partition, held.owned.etag)).collect();
        for (partition, etag) in mine {
            let (answer, found) = self.party.claim(WORKERS, partition, &self.name, Some(etag)).await;
            self.pulse.beat().await;
            match (answer, found) {
                (Answer::Done, Some(owned)) => self.hold(owned),
                (Answer::Refused { .. }, _) => {
                    self.held.remove(&partition);
                }
                _ => {}
            }
        }
    }

    fn is_free(&self, owned: &Owned) -> bool {
        let since = self.unchanged.get(&owned.partition).map(|(_, since)| *since);
        owned.owner.is_empty() || since.is_some_and(|since| since.elapsed() > self.spec.expiry)
    }

    /// Applies the balanced rule: at most one new partition, free ones first, and from other owners only if that
    /// reduces the imbalance.
    fn choose(&mut self, listed: &Listed) -> Option<(u32, Option<u64>)> {
        let mut active: BTreeMap<&str, Vec<&Owned>> = BTreeMap::from([(self.name.as_str(), Vec::new())]);
        let mut free: BTreeMap<u32, Option<u64>> = (0..listed.partition_count).map(|n| (n, None)).collect();
        for owned in &listed.owned {
            let is_mine = owned.owner == self.name;
            if is_mine || !self.is_free(owned) {
                active.entry(&owned.owner).or_default().push(owned);
                free.remove(&owned.partition);
            } else {
                free.insert(owned.partition, Some(owned.etag));
            }
        }
        let count = usize::try_from(listed.partition_count).unwrap_or(0);
        let least = count / active.len();
        let mine = active.get(self.name.as_str()).map_or(0, Vec::len);
        let somebody_has_less = active.values().any(|owned| owned.len() < least);
        if mine > least || (mine == least && somebody_has_less) {
            return None;
        }
        if !free.is_empty() {
            let free: Vec<_> = free.into_iter().collect();
            return self.party.rng.choice(&free).copied();
        }
        let of_those_with = |enough: &dyn Fn(usize) -> bool| -> Vec<_> {
            let rich = active.iter().filter(|(owner, owned)| **owner != self.name && enough(owned.len()));
            rich.flat_map(|(_, owned)| owned.iter().map(|owned| (owned.partition, Some(owned.etag))))
                .collect()
        };
        let mut victims = of_those_with(&|count| count > least + 1);
        if victims.is_empty() && mine < least {
            victims = of_those_with(&|count| count == least + 1);
        }
        self.party.rng.choice(&victims).copied()
    }

    /// Ends the instance. Its pumps write their checkpoints before the partitions are given up.
    async fn leave(mut self) {
        for (partition, mut held) in std::mem::take(&mut self.held) {
            let _ = tokio::time::timeout(END_TIME_MAX, &mut held.pump.0).await;
            drop(held.pump);
            self.party.claim(WORKERS, partition, "", Some(held.owned.etag)).await;
        }
    }
}
