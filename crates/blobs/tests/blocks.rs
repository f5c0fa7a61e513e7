//! Guards blobs in blocks: the list determines the content, and uncommitted blocks are stored, counted and dropped.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use bytes::Bytes;
use peeklock_blobs::{
    BlobHeaders, BlobName, Blobs, BlockId, BlockSource, Condition, ContainerName, Error, Fact, Metadata,
    NewBlob, Stamp,
};
use peeklock_types::Timestamp;
use proptest::prelude::*;

#[derive(Default)]
struct Rig {
    blobs: Blobs,
    log: Vec<u8>,
}

fn place() -> (ContainerName, BlobName) {
    (ContainerName::parse("blocks").unwrap(), BlobName::parse("a").unwrap())
}

fn id(number: u8) -> BlockId {
    BlockId::parse(&format!("AAA{}", char::from(b'A' + number))).unwrap()
}

fn stamp(now: Timestamp) -> Stamp {
    Stamp { now, size_bytes_max: 16 << 20 }
}

impl Rig {
    fn new() -> Self {
        let mut rig = Rig::default();
        rig.change(|blobs, out| {
            blobs.create_container(stamp(Timestamp::ZERO), place().0, Metadata::default(), out).map(|_| ())
        })
        .unwrap();
        rig
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut Blobs, &mut Vec<Fact>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut facts = Vec::new();
        let done = change(&mut self.blobs, &mut facts);
        facts.iter().for_each(|fact| fact.encode(&mut self.log));
        done
    }

    fn stage(&mut self, now: Timestamp, number: u8, content: &[u8]) -> Result<(), Error> {
        let content = Bytes::copy_from_slice(content);
        self.change(|blobs, out| blobs.stage(stamp(now), place(), id(number), content, None, out))
    }

    fn commit(&mut self, list: &[(BlockSource, u8)]) -> Result<(), Error> {
        let list: Vec<_> = list.iter().map(|(source, number)| (*source, id(*number))).collect();
        let (of_blob, always) = ((Metadata::default(), BlobHeaders::default()), Condition::default());
        self.change(|blobs, out| {
            blobs.commit(stamp(Timestamp::ZERO), place(), &list, of_blob, &always, out).map(|_| ())
        })
    }

    fn content(&self) -> Option<Bytes> {
        let (container, blob) = place();
        self.blobs.blob(&container, &blob).ok().map(|blob| blob.content.clone())
    }

    /// Checks that replay and a snapshot give the same state.
    fn check_replay(&self) {
        let mut restored = Blobs::default();
        let mut log = self.log.as_slice();
        while !log.is_empty() {
            restored.apply(&Fact::decode(&mut log).unwrap()).unwrap();
        }
        assert_eq!(restored, self.blobs);
        let snapshot = self.blobs.snapshot().concat();
        assert_eq!(Blobs::restore(&snapshot).unwrap(), self.blobs);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_list_of_blocks_is_the_content(
        rounds in prop::collection::vec(
            (
                prop::collection::vec((0..4_u8, prop::collection::vec(any::<u8>(), 1..9)), 0..6),
                prop::collection::vec((0..3_u8, 0..4_u8), 0..5),
            ),
            1..6,
        )
    ) {
        let mut rig = Rig::new();
        let mut waiting = std::collections::BTreeMap::new();
        let mut inside: Vec<(u8, Vec<u8>)> = Vec::new();
        for (staged, list) in rounds {
            for (number, content) in staged {
                rig.stage(Timestamp::ZERO, number, &content).unwrap();
                waiting.insert(number, content);
            }
            let sources = [BlockSource::Committed, BlockSource::Uncommitted, BlockSource::Latest];
            let list: Vec<_> = list.into_iter().map(|(source, id)| (sources[usize::from(source)], id)).collect();
            let part = |(source, number): &(BlockSource, u8)| {
                let wait = waiting.get(number).cloned();
                let old = inside.iter().find(|(known, _)| known == number).map(|(_, content)| content.clone());
                match source {
                    BlockSource::Committed => old,
                    BlockSource::Uncommitted => wait,
                    BlockSource::Latest => wait.or(old),
                }.map(|content| (*number, content))
            };
            let expected: Option<Vec<(u8, Vec<u8>)>> = list.iter().map(part).collect();
            let done = rig.commit(&list);
            match expected {
                None => prop_assert_eq!(done, Err(Error::NoSuchBlock)),
                Some(blocks) => {
                    prop_assert_eq!(done, Ok(()));
                    let content: Vec<u8> = blocks.iter().flat_map(|(_, content)| content.clone()).collect();
                    prop_assert_eq!(rig.content().unwrap(), content);
                    inside = blocks;
                    waiting.clear();
                }
            }
            rig.check_replay();
        }
    }
}

#[test]
fn uncommitted_blocks_are_dropped_after_a_week() {
    let mut rig = Rig::new();
    let before = rig.blobs.size_bytes();
    rig.stage(Timestamp::ZERO, 0, b"hello").unwrap();
    let (container, blob) = place();
    assert_eq!(rig.content(), None, "a blob exists only when its list is committed");
    assert_eq!(rig.blobs.blocks(&container, &blob).unwrap().1.len(), 1);
    let week = Duration::from_secs(7 * 24 * 3600);
    let other = BlobName::parse("b").unwrap();
    let late = stamp(Timestamp::ZERO + week);
    rig.change(|blobs, out| {
        blobs.stage(late, (container.clone(), other.clone()), id(0), Bytes::new(), None, out)
    })
    .unwrap();
    assert!(matches!(rig.blobs.blocks(&container, &blob), Err(Error::NoSuchBlob { .. })));
    let always = Condition::default();
    rig.change(|blobs, out| blobs.put(late, container, other, NewBlob::default(), &always, out).map(|_| ()))
        .unwrap();
    rig.check_replay();
    rig.change(|blobs, out| {
        let (container, _) = place();
        blobs.delete(Timestamp::ZERO, container, BlobName::parse("b").unwrap(), &Condition::default(), out)
    })
    .unwrap();
    assert_eq!(rig.blobs.size_bytes(), before, "all counted bytes are returned");
}

#[test]
fn blocks_have_limits() {
    let mut rig = Rig::new();
    rig.stage(Timestamp::ZERO, 0, b"x").unwrap();
    let (long, content) = (BlockId::parse("AAAAAAAA").unwrap(), Bytes::from_static(b"x"));
    let refused =
        rig.change(|blobs, out| blobs.stage(stamp(Timestamp::ZERO), place(), long, content, None, out));
    assert_eq!(refused, Err(Error::BlockIdLength));
    let mib4 = vec![0; 4 << 20];
    let refused = rig.stage(Timestamp::ZERO, 1, &vec![0; (4 << 20) + 1]);
    assert_eq!(refused, Err(Error::TooLarge { size_bytes: (4 << 20) + 1 }));
    (1..4).for_each(|number| rig.stage(Timestamp::ZERO, number, &mib4).unwrap());
    assert_eq!(rig.stage(Timestamp::ZERO, 4, &mib4), Err(Error::Full));
    rig.stage(Timestamp::ZERO, 3, &mib4).unwrap();
    let both = [(BlockSource::Latest, 1), (BlockSource::Latest, 0)];
    assert_eq!(rig.commit(&both), Err(Error::TooLarge { size_bytes: (4 << 20) + 1 }));
    rig.commit(&[(BlockSource::Latest, 3)]).unwrap();
    assert_eq!(rig.content().unwrap().len(), 4 << 20);
    rig.check_replay();
}
