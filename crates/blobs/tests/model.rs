//! Guards the machine's promises: it behaves like a plain map, etags are never reused, and a crash restores the same
//! state.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use peeklock_blobs::{
    BlobHeaders, BlobName, Blobs, Condition, ContainerName, Error, Fact, Metadata, NewBlob, Page, Stamp, Tag,
};
use peeklock_types::{Etag, Timestamp};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    CreateContainer(u8),
    DeleteContainer(u8),
    Put {
        container: u8,
        blob: u8,
        size: u8,
        when: When,
    },
    SetMetadata {
        container: u8,
        blob: u8,
        value: u8,
        when: When,
    },
    Delete {
        container: u8,
        blob: u8,
        when: When,
    },
    /// Drops all volatile state, and replays the facts, or a snapshot and the facts after it.
    Crash {
        with_snapshot: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    IsNew,
    Exists,
    /// The condition requires the model's etag of the blob.
    Same,
    Stale,
}

fn step() -> impl Strategy<Value = Step> {
    let when = || {
        prop_oneof![
            Just(When::Always),
            Just(When::IsNew),
            Just(When::Exists),
            Just(When::Same),
            Just(When::Stale)
        ]
    };
    let (container, blob) = (0..3_u8, 0..4_u8);
    prop_oneof![
        1 => container.clone().prop_map(Step::CreateContainer),
        1 => container.clone().prop_map(Step::DeleteContainer),
        4 => (container.clone(), blob.clone(), 0..9_u8, when())
            .prop_map(|(container, blob, size, when)| Step::Put { container, blob, size, when }),
        4 => (container.clone(), blob.clone(), 0..9_u8, when())
            .prop_map(|(container, blob, value, when)| Step::SetMetadata { container, blob, value, when }),
        2 => (container, blob, when()).prop_map(|(container, blob, when)| Step::Delete { container, blob, when }),
        1 => any::<bool>().prop_map(|with_snapshot| Step::Crash { with_snapshot }),
    ]
}

/// The expected state: an etag, a metadata value and a size for each blob.
type Model = BTreeMap<ContainerName, BTreeMap<BlobName, (Etag, String, usize)>>;

#[derive(Default)]
struct Rig {
    blobs: Blobs,
    model: Model,
    tags: BTreeSet<Etag>,
    /// All records since the snapshot.
    log: Vec<u8>,
    snapshot: Option<Vec<u8>>,
}

fn container(number: u8) -> ContainerName {
    ContainerName::parse(&format!("container-{number}")).unwrap()
}

fn blob(number: u8) -> BlobName {
    BlobName::parse(&format!("ns/hub/$default/ownership/{number}")).unwrap()
}

fn metadata(value: &str) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.add("ownerid", value).unwrap();
    metadata
}

fn condition(when: When, current: Option<Etag>) -> Condition {
    let of = |if_match, if_none_match| Condition { if_match, if_none_match, ..Condition::default() };
    match when {
        When::Always => Condition::default(),
        When::IsNew => of(None, Some(Tag::Any)),
        When::Exists => of(Some(Tag::Any), None),
        When::Same => of(current.map(Tag::Is), None),
        When::Stale => of(Some(Tag::Is(Etag(u64::MAX))), None),
    }
}

/// A limit above the needs of these tests.
fn stamp(now: Timestamp) -> Stamp {
    Stamp { now, size_bytes_max: 64 << 20 }
}

impl Rig {
    fn run(&mut self, now: Timestamp, step: &Step) {
        let mut facts = Vec::new();
        match step {
            Step::CreateContainer(number) => {
                let name = container(*number);
                let created =
                    self.blobs.create_container(stamp(now), name.clone(), metadata("c"), &mut facts);
                assert_eq!(created.is_ok(), !self.model.contains_key(&name));
                if let Ok(view) = created {
                    assert!(self.tags.insert(view.etag));
                    self.model.insert(name, BTreeMap::new());
                }
            }
            Step::DeleteContainer(number) => {
                let name = container(*number);
                let deleted =
                    self.blobs.delete_container(now, name.clone(), &Condition::default(), &mut facts);
                assert_eq!(deleted.is_ok(), self.model.remove(&name).is_some());
            }
            Step::Put { container: c, blob: b, size, when } => {
                self.put(now, *c, *b, *size, *when, &mut facts)
            }
            Step::SetMetadata { container: c, blob: b, value, when } => {
                self.set_metadata(now, *c, *b, *value, *when, &mut facts);
            }
            Step::Delete { container: c, blob: b, when } => self.delete(now, *c, *b, *when, &mut facts),
            Step::Crash { with_snapshot } => self.crash(*with_snapshot),
        }
        facts.iter().for_each(|fact| fact.encode(&mut self.log));
        self.compare();
    }

    fn current(&self, c: u8, b: u8) -> Option<Etag> {
        self.model.get(&container(c)).and_then(|blobs| blobs.get(&blob(b))).map(|(etag, ..)| *etag)
    }

    fn put(&mut self, now: Timestamp, c: u8, b: u8, size: u8, when: When, facts: &mut Vec<Fact>) {
        let current = self.current(c, b);
        let content = Bytes::from(vec![b'x'; size.into()]);
        let headers = BlobHeaders { content_type: Some("text/plain".to_owned()), ..BlobHeaders::default() };
        let new = NewBlob { metadata: metadata("new"), headers, content, blocks: Vec::new() };
        let done = self.blobs.put(stamp(now), container(c), blob(b), new, &condition(when, current), facts);
        let Some(blobs) = self.model.get_mut(&container(c)) else {
            assert!(matches!(done, Err(Error::NoSuchContainer { .. })));
            return;
        };
        let expected = match (when, current) {
            (When::Always | When::Same, _) | (When::IsNew, None) | (When::Exists, Some(_)) => true,
            (When::IsNew, Some(_)) => {
                assert!(matches!(done, Err(Error::BlobExists { .. })));
                false
            }
            (When::Exists, None) | (When::Stale, _) => {
                assert_eq!(done, Err(Error::ConditionNotMet { current }));
                false
            }
        };
        assert_eq!(done.is_ok(), expected);
        if let Ok((etag, _)) = done {
            assert!(self.tags.insert(etag), "an etag was reused");
            blobs.insert(blob(b), (etag, "new".to_owned(), size.into()));
        }
    }

    fn set_metadata(&mut self, now: Timestamp, c: u8, b: u8, value: u8, when: When, facts: &mut Vec<Fact>) {
        let current = self.current(c, b);
        let value = format!("owner {value} ü");
        let condition = condition(when, current);
        let done =
            self.blobs.set_metadata(stamp(now), container(c), blob(b), metadata(&value), &condition, facts);
        let known = self.model.get_mut(&container(c)).and_then(|blobs| blobs.get_mut(&blob(b)));
        let Some(known) = known else {
            let is_missing = matches!(done, Err(Error::NoSuchBlob { .. } | Error::NoSuchContainer { .. }));
            let names_a_state = matches!(when, When::Exists | When::Stale);
            let is_not_met = done == Err(Error::ConditionNotMet { current: None });
            assert!(if names_a_state && self.model.contains_key(&container(c)) {
                is_not_met
            } else {
                is_missing
            });
            return;
        };
        assert_eq!(done.is_ok(), !matches!(when, When::IsNew | When::Stale));
        if let Ok((etag, _)) = done {
            assert!(self.tags.insert(etag), "an etag was reused");
            (known.0, known.1) = (etag, value);
        }
    }

    fn delete(&mut self, now: Timestamp, c: u8, b: u8, when: When, facts: &mut Vec<Fact>) {
        let current = self.current(c, b);
        let done = self.blobs.delete(now, container(c), blob(b), &condition(when, current), facts);
        let expected = current.is_some() && !matches!(when, When::IsNew | When::Stale);
        assert_eq!(done.is_ok(), expected);
        if expected {
            self.model.get_mut(&container(c)).unwrap().remove(&blob(b));
        }
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

    fn compare(&self) {
        for (name, known) in &self.model {
            let page = Page { prefix: "ns/hub/".to_owned(), count_max: 100, ..Page::default() };
            let found = self.blobs.list(name, &page).unwrap();
            assert_eq!(found.next, None);
            let found = found.found.into_iter().map(|(name, blob)| {
                (name, (blob.etag, blob.metadata.get("ownerid").unwrap().to_owned(), blob.content.len()))
            });
            let found: Vec<_> = found.collect();
            let known: Vec<_> = known.iter().map(|(name, known)| (name.clone(), known.clone())).collect();
            assert_eq!(found, known);
        }
        let page = Page { count_max: 100, ..Page::default() };
        let names: Vec<_> =
            self.blobs.list_containers(&page).found.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, self.model.keys().cloned().collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_machine_behaves_like_a_map(steps in prop::collection::vec(step(), 1..60)) {
        let mut rig = Rig::default();
        for (number, step) in steps.iter().enumerate() {
            rig.run(Timestamp::from_millis(1000 * number as u64), step);
        }
        rig.crash(true);
        rig.crash(false);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 60..76_u8) {
        let with_kind: Vec<u8> = std::iter::once(kind).chain(bytes.iter().copied()).collect();
        let mut input = with_kind.as_slice();
        if Fact::decode(&mut input).is_err() {
            prop_assert_eq!(input, with_kind.as_slice());
        }
        let _ = Blobs::restore(&bytes);
        let _ = Blobs::restore(&[b"PKLB\x01", &bytes[..]].concat());
    }

    #[test]
    fn pages_cover_the_whole_list(count in 0..30_usize, size in 1..7_usize) {
        let mut blobs = Blobs::default();
        let mut facts = Vec::new();
        blobs.create_container(stamp(Timestamp::ZERO), container(0), Metadata::default(), &mut facts).unwrap();
        for number in 0..count {
            for prefix in ["a/", "b/", "c"] {
                let name = BlobName::parse(&format!("{prefix}{number}")).unwrap();
                let always = Condition::default();
                blobs.put(stamp(Timestamp::ZERO), container(0), name, NewBlob::default(), &always, &mut facts).unwrap();
            }
        }
        let (mut from, mut all) = (String::new(), Vec::new());
        loop {
            let page = Page { prefix: "b/".to_owned(), from: from.clone(), count_max: size };
            let found = blobs.list(&container(0), &page).unwrap();
            prop_assert!(found.found.len() <= size);
            all.extend(found.found.into_iter().map(|(name, _)| name.as_str().to_owned()));
            match found.next {
                Some(next) => from = next,
                None => break,
            }
        }
        let mut expected: Vec<_> = (0..count).map(|number| format!("b/{number}")).collect();
        expected.sort();
        prop_assert_eq!(all, expected);
    }
}

#[test]
fn a_full_shard_accepts_only_smaller_changes() {
    let (mut blobs, mut facts) = (Blobs::default(), Vec::new());
    blobs.create_container(stamp(Timestamp::ZERO), container(0), Metadata::default(), &mut facts).unwrap();
    let big = || NewBlob { content: Bytes::from(vec![0; 64 * 1024]), ..NewBlob::default() };
    let name = |number: usize| BlobName::parse(&format!("b{number}")).unwrap();
    let always = Condition::default();
    let mut count = 0;
    while blobs.put(stamp(Timestamp::ZERO), container(0), name(count), big(), &always, &mut facts).is_ok() {
        count += 1;
    }
    assert!((1000..1030).contains(&count), "{count} blobs of 64 KiB");
    let refused = blobs.put(stamp(Timestamp::ZERO), container(0), name(count), big(), &always, &mut facts);
    assert_eq!(refused, Err(Error::Full));
    let small = NewBlob::default();
    blobs.put(stamp(Timestamp::ZERO), container(0), name(0), small, &always, &mut facts).unwrap();
    blobs.put(stamp(Timestamp::ZERO), container(0), name(0), big(), &always, &mut facts).unwrap();
    blobs.delete(Timestamp::ZERO, container(0), name(0), &always, &mut facts).unwrap();
    blobs.put(stamp(Timestamp::ZERO), container(0), name(count), big(), &always, &mut facts).unwrap();
    let too_large = NewBlob { content: Bytes::from(vec![0; (4 << 20) + 1]), ..NewBlob::default() };
    let refused = blobs.put(stamp(Timestamp::ZERO), container(0), name(0), too_large, &always, &mut facts);
    assert_eq!(refused, Err(Error::TooLarge { size_bytes: (4 << 20) + 1 }));
}

#[test]
fn a_fact_that_does_not_fit_is_rejected() {
    let mut blobs = Blobs::default();
    assert!(blobs.apply(&Fact::ContainerDeleted { name: container(0) }).is_err());
    assert!(blobs.apply(&Fact::Deleted { container: container(0), blob: blob(0) }).is_err());
    let created = Fact::ContainerCreated {
        name: container(0),
        metadata: Metadata::default(),
        etag: Etag(5),
        at: Timestamp::ZERO,
    };
    blobs.apply(&created).unwrap();
    assert!(blobs.apply(&created).is_err(), "the etag is reused");
}
