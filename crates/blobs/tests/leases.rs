//! Guards leases: every action in every state has the outcome of the service's tables, with crashes at any time, and no
//! client without the lease changes a leased blob.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock_blobs::{
    BlobName, Blobs, Condition, ContainerName, Error, Fact, LeaseAction, LeaseError, LeaseId, LeaseSpan,
    LeaseState, Metadata, NewBlob, Stamp, check_read,
};
use peeklock_types::Timestamp;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Wait {
        s: u64,
    },
    /// The clock steps forward.
    Forward {
        s: u64,
    },
    Lease {
        on_container: bool,
        action: LeaseAction,
    },
    Put {
        id: Option<LeaseId>,
    },
    SetMetadata {
        id: Option<LeaseId>,
    },
    Delete {
        id: Option<LeaseId>,
    },
    SetContainerMetadata {
        id: Option<LeaseId>,
    },
    Read {
        id: Option<LeaseId>,
    },
    Crash {
        with_snapshot: bool,
    },
}

fn id() -> impl Strategy<Value = LeaseId> {
    (1..4_u128).prop_map(|number| LeaseId(number << 100))
}

fn action() -> impl Strategy<Value = LeaseAction> {
    let span = prop_oneof![
        Just(LeaseSpan::Infinite),
        (15..=60_u64).prop_map(|s| LeaseSpan::Fixed(Duration::from_secs(s)))
    ];
    let period = prop::option::of((0..=60_u64).prop_map(Duration::from_secs));
    prop_oneof![
        4 => (id(), span).prop_map(|(id, span)| LeaseAction::Acquire { id, span }),
        2 => id().prop_map(|id| LeaseAction::Renew { id }),
        2 => (id(), id()).prop_map(|(id, proposed)| LeaseAction::Change { id, proposed }),
        1 => id().prop_map(|id| LeaseAction::Release { id }),
        2 => period.prop_map(|period| LeaseAction::Break { period }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let given = || prop::option::of(id());
    prop_oneof![
        3 => (1..40_u64).prop_map(|s| Step::Wait { s }),
        1 => (1..600_u64).prop_map(|s| Step::Forward { s }),
        8 => (prop::bool::weighted(0.3), action())
            .prop_map(|(on_container, action)| Step::Lease { on_container, action }),
        2 => given().prop_map(|id| Step::Put { id }),
        2 => given().prop_map(|id| Step::SetMetadata { id }),
        1 => given().prop_map(|id| Step::Delete { id }),
        1 => given().prop_map(|id| Step::SetContainerMetadata { id }),
        2 => given().prop_map(|id| Step::Read { id }),
        1 => any::<bool>().prop_map(|with_snapshot| Step::Crash { with_snapshot }),
    ]
}

/// A lease in the terms of the service's documents; times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Available,
    Leased { id: LeaseId, span: Option<u64>, since: u64 },
    Breaking { id: LeaseId, until: u64 },
    Broken { id: LeaseId },
    Expired { id: LeaseId, span: u64 },
}
use Model::{Available, Breaking, Broken, Expired, Leased};

impl Model {
    /// Returns the state at a time.
    fn at(self, now: u64) -> Model {
        match self {
            Leased { id, span: Some(span), since } if now >= since + span => Expired { id, span },
            Breaking { id, until } if now >= until => Broken { id },
            other => other,
        }
    }

    /// Returns the state after a step of the clock: a running lease keeps its span.
    fn after_step(self, s: u64) -> Model {
        match self {
            Leased { id, span, since } => Leased { id, span, since: since + s },
            Breaking { id, until } => Breaking { id, until: until + s },
            other => other,
        }
    }

    fn id(self) -> Option<LeaseId> {
        match self {
            Available => None,
            Leased { id, .. } | Breaking { id, .. } | Broken { id } | Expired { id, .. } => Some(id),
        }
    }

    fn is_locked(self) -> bool {
        matches!(self, Leased { .. } | Breaking { .. })
    }

    /// Follows the service's table "outcomes of lease operations by lease state".
    fn act(self, now: u64, action: LeaseAction) -> Result<Model, LeaseError> {
        use LeaseError as E;
        match (action, self) {
            (LeaseAction::Acquire { id, .. }, Leased { id: held, .. }) if id != held => {
                Err(E::AlreadyPresent)
            }
            (LeaseAction::Acquire { id, .. }, Breaking { id: held, .. }) if id != held => {
                Err(E::AlreadyPresent)
            }
            (LeaseAction::Acquire { .. }, Breaking { .. }) => Err(E::BreakingAndCannotBeAcquired),
            (LeaseAction::Acquire { id, span }, _) => {
                let span = match span {
                    LeaseSpan::Infinite => None,
                    LeaseSpan::Fixed(span) => Some(span.as_secs()),
                };
                Ok(Leased { id, span, since: now })
            }
            (LeaseAction::Renew { id }, state) if state.id() != Some(id) => {
                Err(E::IdMismatchWithLeaseOperation)
            }
            (LeaseAction::Renew { .. }, Leased { id, span, .. }) => Ok(Leased { id, span, since: now }),
            (LeaseAction::Renew { .. }, Expired { id, span }) => {
                Ok(Leased { id, span: Some(span), since: now })
            }
            (LeaseAction::Renew { .. }, _) => Err(E::BrokenAndCannotBeRenewed),
            (LeaseAction::Change { id, proposed }, Leased { id: held, span, since }) => {
                let may = held == id || held == proposed;
                if may {
                    Ok(Leased { id: proposed, span, since })
                } else {
                    Err(E::IdMismatchWithLeaseOperation)
                }
            }
            (LeaseAction::Change { id, .. }, Breaking { id: held, .. }) => Err(match id == held {
                true => E::BreakingAndCannotBeChanged,
                false => E::IdMismatchWithLeaseOperation,
            }),
            (LeaseAction::Change { .. }, _) => Err(E::NotPresentWithLeaseOperation),
            (LeaseAction::Release { id }, state) if state.id() == Some(id) => Ok(Available),
            (LeaseAction::Release { .. }, _) => Err(E::IdMismatchWithLeaseOperation),
            (LeaseAction::Break { .. }, Available) => Err(E::NotPresentWithLeaseOperation),
            (LeaseAction::Break { .. }, Broken { id } | Expired { id, .. }) => Ok(Broken { id }),
            (LeaseAction::Break { period }, Leased { id, span, since }) => {
                let rest = span.map(|span| since + span - now);
                let period = period.map(|period| period.as_secs());
                let until = now + period.or(rest).unwrap_or(0).min(rest.unwrap_or(u64::MAX));
                Ok(Breaking { id, until }.at(now))
            }
            (LeaseAction::Break { period }, Breaking { id, until }) => {
                let until = period.map_or(until, |period| until.min(now + period.as_secs()));
                Ok(Breaking { id, until }.at(now))
            }
        }
    }

    /// Follows the service's table "outcomes of use attempts by lease state".
    fn use_with(self, given: Option<LeaseId>, is_change: bool) -> Result<(), LeaseError> {
        match (given, self.is_locked()) {
            (None, true) if is_change => Err(LeaseError::IdMissing),
            (None, _) => Ok(()),
            (Some(given), true) if self.id() == Some(given) => Ok(()),
            (Some(_), true) => Err(LeaseError::IdMismatch),
            (Some(given), false) if self.id() == Some(given) => Err(LeaseError::Lost),
            (Some(_), false) => Err(LeaseError::NotPresent),
        }
    }

    /// Returns the lease after a change: a change removes an expired lease.
    fn changed(self) -> Model {
        if self.is_locked() { self } else { Available }
    }

    fn shown(self) -> LeaseState {
        match self {
            Available => LeaseState::Available,
            Leased { span, .. } => LeaseState::Leased { is_infinite: span.is_none() },
            Breaking { .. } => LeaseState::Breaking,
            Broken { .. } => LeaseState::Broken,
            Expired { .. } => LeaseState::Expired,
        }
    }
}

fn container() -> ContainerName {
    ContainerName::parse("leases").unwrap()
}

fn blob() -> BlobName {
    BlobName::parse("$Default/0").unwrap()
}

struct Rig {
    blobs: Blobs,
    now_s: u64,
    of_blob: Model,
    of_container: Model,
    log: Vec<u8>,
    snapshot: Option<Vec<u8>>,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Rig {
            blobs: Blobs::default(),
            now_s: 0,
            of_blob: Available,
            of_container: Available,
            log: Vec::new(),
            snapshot: None,
        };
        let mut facts = Vec::new();
        rig.blobs.create_container(rig.stamp(), container(), Metadata::default(), &mut facts).unwrap();
        rig.keep(&facts);
        rig.put(None);
        rig
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_s * 1000)
    }

    fn stamp(&self) -> Stamp {
        Stamp { now: self.now(), size_bytes_max: 1 << 20 }
    }

    fn keep(&mut self, facts: &[Fact]) {
        facts.iter().for_each(|fact| fact.encode(&mut self.log));
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Wait { s } => self.now_s += s,
            Step::Forward { s } => self.step_clock(*s),
            Step::Lease { on_container, action } => self.act(*on_container, *action),
            Step::Put { id } => self.put(*id),
            Step::SetMetadata { id } => self.set_metadata(*id),
            Step::Delete { id } => self.delete(*id),
            Step::SetContainerMetadata { id } => self.set_container_metadata(*id),
            Step::Read { id } => {
                let found = self.blobs.blob(&container(), &blob()).unwrap();
                let read = check_read(found.lease.as_ref(), self.now(), *id);
                assert_eq!(read, self.of_blob.at(self.now_s).use_with(*id, false));
            }
            Step::Crash { with_snapshot } => self.crash(*with_snapshot),
        }
        self.of_blob = self.of_blob.at(self.now_s);
        self.of_container = self.of_container.at(self.now_s);
        self.compare();
    }

    fn step_clock(&mut self, s: u64) {
        let (before, mut facts) = (self.now(), Vec::new());
        self.now_s += s;
        self.blobs.extend_leases(before, Duration::from_secs(s), &mut facts);
        self.keep(&facts);
        (self.of_blob, self.of_container) = (self.of_blob.after_step(s), self.of_container.after_step(s));
    }

    fn act(&mut self, on_container: bool, action: LeaseAction) {
        let model = if on_container { &mut self.of_container } else { &mut self.of_blob };
        let expected = model.at(self.now_s).act(self.now_s, action);
        if let Ok(next) = expected {
            *model = next;
        }
        let (now, blob) = (self.now(), (!on_container).then(blob));
        let mut facts = Vec::new();
        let done = self.blobs.lease(now, container(), blob, action, &Condition::default(), &mut facts);
        self.keep(&facts);
        let shown = done.map(|leased| LeaseState::of(leased.lease.as_ref(), now));
        assert_eq!(shown, expected.map(Model::shown).map_err(Error::Lease), "{action:?}");
    }

    fn put(&mut self, id: Option<LeaseId>) {
        let expected = self.of_blob.at(self.now_s).use_with(id, true);
        let mut facts = Vec::new();
        let condition = Condition { lease_id: id, ..Condition::default() };
        let stamp = self.stamp();
        let done = self.blobs.put(stamp, container(), blob(), NewBlob::default(), &condition, &mut facts);
        self.keep(&facts);
        assert_eq!(done.map(|_| ()), expected.map_err(Error::Lease));
        if expected.is_ok() {
            self.of_blob = self.of_blob.at(self.now_s).changed();
        }
    }

    fn set_metadata(&mut self, id: Option<LeaseId>) {
        let expected = self.of_blob.at(self.now_s).use_with(id, true);
        let mut facts = Vec::new();
        let condition = Condition { lease_id: id, ..Condition::default() };
        let (stamp, metadata) = (self.stamp(), Metadata::default());
        let done = self.blobs.set_metadata(stamp, container(), blob(), metadata, &condition, &mut facts);
        self.keep(&facts);
        assert_eq!(done.map(|_| ()), expected.map_err(Error::Lease));
        if expected.is_ok() {
            self.of_blob = self.of_blob.at(self.now_s).changed();
        }
    }

    /// Deletes the blob. A new blob without a lease replaces it.
    fn delete(&mut self, id: Option<LeaseId>) {
        let expected = self.of_blob.at(self.now_s).use_with(id, true);
        let mut facts = Vec::new();
        let condition = Condition { lease_id: id, ..Condition::default() };
        let done = self.blobs.delete(self.now(), container(), blob(), &condition, &mut facts);
        self.keep(&facts);
        assert_eq!(done, expected.map_err(Error::Lease));
        if expected.is_ok() {
            self.of_blob = Available;
            self.put(None);
        }
    }

    /// Sets metadata. A container's lease protects only against its deletion, so no lease id is required.
    fn set_container_metadata(&mut self, id: Option<LeaseId>) {
        let expected = self.of_container.at(self.now_s).use_with(id, false);
        let mut facts = Vec::new();
        let condition = Condition { lease_id: id, ..Condition::default() };
        let (stamp, metadata) = (self.stamp(), Metadata::default());
        let done = self.blobs.set_container_metadata(stamp, container(), metadata, &condition, &mut facts);
        self.keep(&facts);
        assert_eq!(done.map(|_| ()), expected.map_err(Error::ContainerLease));
    }

    fn crash(&mut self, with_snapshot: bool) {
        let mut restored = match &self.snapshot {
            Some(snapshot) => Blobs::restore(snapshot).unwrap(),
            None => Blobs::default(),
        };
        let mut log = self.log.as_slice();
        while !log.is_empty() {
            restored.apply(&Fact::decode(&mut log).unwrap()).unwrap();
        }
        assert_eq!(restored, self.blobs);
        self.blobs = restored;
        if with_snapshot {
            let snapshot = self.blobs.snapshot().concat();
            self.snapshot = Some(snapshot);
            self.log.clear();
        }
    }

    fn compare(&mut self) {
        let now = self.now();
        let found = self.blobs.blob(&container(), &blob()).unwrap();
        assert_eq!(LeaseState::of(found.lease.as_ref(), now), self.of_blob.shown());
        let found = self.blobs.container(&container()).unwrap();
        assert_eq!(LeaseState::of(found.lease.as_ref(), now), self.of_container.shown());
        // A leased container is deleted only with its lease.
        if self.of_container.is_locked() {
            let refused =
                self.blobs.delete_container(now, container(), &Condition::default(), &mut Vec::new());
            assert_eq!(refused, Err(Error::ContainerLease(LeaseError::IdMissing)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn leases_have_the_outcomes_of_the_service(steps in prop::collection::vec(step(), 1..80)) {
        let mut rig = Rig::new();
        steps.iter().for_each(|step| rig.run(step));
        rig.crash(true);
        rig.crash(false);
        rig.compare();
    }
}

#[test]
fn a_container_is_deleted_with_its_lease() {
    let mut rig = Rig::new();
    let id = LeaseId(7);
    rig.act(true, LeaseAction::Acquire { id, span: LeaseSpan::Infinite });
    let of = |lease_id| Condition { lease_id: Some(lease_id), ..Condition::default() };
    let refused = rig.blobs.delete_container(rig.now(), container(), &of(LeaseId(8)), &mut Vec::new());
    assert_eq!(refused, Err(Error::ContainerLease(LeaseError::IdMismatch)));
    rig.blobs.delete_container(rig.now(), container(), &of(id), &mut Vec::new()).unwrap();
}
