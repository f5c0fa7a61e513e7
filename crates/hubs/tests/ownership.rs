//! Ownership and checkpoints against a naive model.
//!
//! Guards these rules under random claims, releases, checkpoints, deletions and crashes: of all claims with the same
//! etag one succeeds; no etag is reused; an epoch belongs to one owner and never falls; only the current owner moves a
//! checkpoint, forward, or a reset does.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::collections::{BTreeMap, BTreeSet};

use peeklock_hubs::{Checkpoint, CheckpointBy, Error, Fact, Hubs, Output, Ownership};
use peeklock_types::{CommitGroupNumber, ConsumerGroup, EntityName, Etag, HubId, HubSettings, Timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

const PARTITION_COUNT: u32 = 2;
const CLAIMANTS: usize = 3;
const HERE: CommitGroupNumber = CommitGroupNumber(1);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Reads the records, as a claimant does before it claims.
    Read {
        claimant: usize,
    },
    Claim {
        claimant: usize,
        partition: u32,
        release: bool,
    },
    /// All claimants claim at once, each with its last read.
    Race {
        partition: u32,
    },
    /// Writes a checkpoint; if `stale` is set, with the previous epoch.
    Checkpoint {
        claimant: usize,
        partition: u32,
        sequence: u64,
        stale: bool,
    },
    CheckpointByAnyone {
        partition: u32,
        sequence: u64,
    },
    Reset {
        partition: u32,
        sequence: Option<u64>,
    },
    RecreateGroup,
    RecreateHub,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let claimant = || 0..CLAIMANTS;
    let partition = || 0..PARTITION_COUNT;
    let sequence = || 0..9_u64;
    prop_oneof![
        6 => claimant().prop_map(|claimant| Step::Read { claimant }),
        8 => (claimant(), partition(), prop::bool::weighted(0.2))
            .prop_map(|(claimant, partition, release)| Step::Claim { claimant, partition, release }),
        2 => partition().prop_map(|partition| Step::Race { partition }),
        6 => (claimant(), partition(), sequence(), prop::bool::weighted(0.1)).prop_map(
            |(claimant, partition, sequence, stale)| Step::Checkpoint { claimant, partition, sequence, stale }
        ),
        2 => (partition(), sequence())
            .prop_map(|(partition, sequence)| Step::CheckpointByAnyone { partition, sequence }),
        1 => (partition(), prop::option::of(sequence()))
            .prop_map(|(partition, sequence)| Step::Reset { partition, sequence }),
        1 => Just(Step::RecreateGroup),
        1 => Just(Step::RecreateHub),
        2 => Just(Step::Crash),
    ]
}

/// The last read records, by partition.
type Seen = BTreeMap<u32, Ownership>;

struct World {
    hubs: Hubs,
    out: Output,
    name: EntityName,
    group: ConsumerGroup,
    now: u64,
    owners: Seen,
    checkpoints: BTreeMap<u32, Checkpoint>,
    seen: Vec<Seen>,
    etags: BTreeSet<Etag>,
    /// The owner of each epoch of a partition, in any life of the consumer group.
    epochs: BTreeMap<(u32, u64), String>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            hubs: Hubs::default(),
            out: Output::default(),
            name: EntityName::parse("meters").unwrap(),
            group: ConsumerGroup::parse("audit").unwrap(),
            now: 0,
            owners: Seen::new(),
            checkpoints: BTreeMap::new(),
            seen: vec![Seen::new(); CLAIMANTS],
            etags: BTreeSet::new(),
            epochs: BTreeMap::new(),
        };
        world.create();
        world
    }

    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn create(&mut self) {
        let settings = HubSettings { partition_count: PARTITION_COUNT, ..HubSettings::default() };
        let (at, name, groups) = (self.at(), self.name.clone(), [self.group.clone()]);
        self.hubs.create_hub(at, name, HubId(self.now), settings, &groups, &mut self.out).unwrap();
    }

    fn forget(&mut self) {
        self.owners.clear();
        self.checkpoints.clear();
    }

    fn claim(&mut self, claimant: usize, partition: u32, release: bool) -> bool {
        let owner = if release { String::new() } else { format!("client {claimant}") };
        let expected = self.seen[claimant].get(&partition).map(|seen| seen.etag);
        let current = self.owners.get(&partition).cloned();
        let at = self.at();
        let found = self.hubs.claim(at, &self.name, &self.group, partition, &owner, expected, &mut self.out);
        match (current, found) {
            (None, Err(Error::NeverOwned)) => assert!(expected.is_some()),
            (Some(current), Err(Error::StaleEtag { current: told })) => {
                assert_eq!(*told, current);
                assert_ne!(expected, Some(current.etag));
            }
            (current, Ok(won)) => {
                assert_eq!(expected, current.as_ref().map(|current| current.etag));
                assert!(self.etags.insert(won.etag), "an etag is used once");
                assert_eq!((&won.owner, won.partition, won.modified_at), (&owner, partition, at));
                let before = current.as_ref().map_or(0, |current| current.epoch);
                let is_same = current.is_some_and(|current| current.owner == owner);
                let takes_over = !release && !is_same;
                assert!(if takes_over { won.epoch > before } else { won.epoch == before });
                if !release {
                    let holder = self.epochs.entry((partition, won.epoch)).or_insert_with(|| owner.clone());
                    assert_eq!(*holder, owner, "an epoch has one owner");
                }
                self.seen[claimant].insert(partition, won.clone());
                self.owners.insert(partition, won);
                return true;
            }
            (current, found) => panic!("{current:?}: {found:?}"),
        }
        false
    }

    fn checkpoint(&mut self, partition: u32, sequence: Option<u64>, by: &CheckpointBy) {
        let current = self.checkpoints.get(&partition).copied();
        let holder = self.owners.get(&partition).filter(|held| !held.owner.is_empty());
        let may = match by {
            CheckpointBy::Owner { owner, epoch } => {
                holder.is_some_and(|held| (&held.owner, held.epoch) == (owner, *epoch))
            }
            CheckpointBy::Anyone => holder.is_none(),
            CheckpointBy::Reset => true,
        };
        let at = self.at();
        let found = self.hubs.checkpoint(at, &self.name, &self.group, partition, sequence, by, &mut self.out);
        let goes_back = current.is_some_and(|current| sequence.is_none_or(|new| new < current.sequence));
        match found {
            Err(Error::NotOwner { .. } | Error::Owned { .. }) => assert!(!may),
            Err(Error::Backwards { .. }) => assert!(goes_back && *by != CheckpointBy::Reset),
            Ok(checkpoint) => {
                assert!(may && (!goes_back || *by == CheckpointBy::Reset));
                assert_eq!(checkpoint.map(|new| new.sequence), sequence);
                match checkpoint {
                    Some(checkpoint) => self.checkpoints.insert(partition, checkpoint),
                    None => self.checkpoints.remove(&partition),
                };
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn take(&mut self, step: Step) {
        self.now += 1;
        match step {
            Step::Read { claimant } => self.seen[claimant] = self.owners.clone(),
            Step::Claim { claimant, partition, release } => {
                self.claim(claimant, partition, release);
            }
            Step::Race { partition } => {
                self.seen.fill(self.owners.clone());
                let wins = (0..CLAIMANTS).filter(|claimant| self.claim(*claimant, partition, false)).count();
                assert_eq!(wins, 1);
            }
            Step::Checkpoint { claimant, partition, sequence, stale } => {
                let seen = self.seen[claimant].get(&partition).map_or(0, |seen| seen.epoch);
                let (owner, epoch) = (format!("client {claimant}"), seen.saturating_sub(stale.into()));
                self.checkpoint(partition, Some(sequence), &CheckpointBy::Owner { owner, epoch });
            }
            Step::CheckpointByAnyone { partition, sequence } => {
                self.checkpoint(partition, Some(sequence), &CheckpointBy::Anyone);
            }
            Step::Reset { partition, sequence } => {
                self.checkpoint(partition, sequence, &CheckpointBy::Reset);
            }
            Step::RecreateGroup => {
                self.hubs.delete_group(&self.name, &self.group, &mut self.out).unwrap();
                let (at, group) = (self.at(), self.group.clone());
                self.hubs.create_group(at, &self.name, group, None, &mut self.out).unwrap();
                self.forget();
            }
            Step::RecreateHub => {
                self.hubs.delete_hub(&self.name, None, &mut self.out).unwrap();
                self.create();
                self.forget();
            }
            Step::Crash => self.crash(),
        }
        self.check();
    }

    /// Restores the machine from its facts, or from a snapshot.
    fn crash(&mut self) {
        let mut bytes = Vec::new();
        self.out.facts.iter().for_each(|fact| fact.encode(HERE, &mut bytes));
        let mut replayed = Hubs::default();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            replayed.apply(&Fact::decode(&mut rest, HERE).unwrap()).unwrap();
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        self.hubs.snapshot(&mut before);
        replayed.snapshot(&mut after);
        assert_eq!(before, after);
        self.hubs = Hubs::restore(&before).unwrap();
    }

    fn check(&self) {
        let found = self.hubs.ownerships(&self.name, &self.group).unwrap();
        assert!(found.iter().eq(self.owners.values()));
        let found = self.hubs.checkpoints(&self.name, &self.group).unwrap();
        assert!(found.into_iter().eq(self.checkpoints.iter().map(|(partition, at)| (*partition, *at))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn owners_and_checkpoints_match_the_model(steps in vec(step(), 1..80)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.take(step));
    }
}
