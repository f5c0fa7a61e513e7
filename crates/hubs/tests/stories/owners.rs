use peeklock_hubs::{Checkpoint, CheckpointBy, Error, Ownership};
use peeklock_types::{ConsumerGroup, Etag, HubId, limits};

use crate::shard::{Shard, at, group, name, settings};

fn with_hub() -> Shard {
    let mut shard = Shard::default();
    shard
        .hubs
        .create_hub(at(0), name("meters"), HubId(1), settings(), &[group("audit")], &mut shard.out)
        .unwrap();
    shard
}

fn claim(shard: &mut Shard, owner: &str, expected: Option<Etag>) -> Result<Ownership, Error> {
    let group = ConsumerGroup::default_group();
    shard.hubs.claim(at(5), &name("meters"), &group, 0, owner, expected, &mut shard.out)
}

fn checkpoint(
    shard: &mut Shard,
    sequence: Option<u64>,
    by: &CheckpointBy,
) -> Result<Option<Checkpoint>, Error> {
    let group = ConsumerGroup::default_group();
    shard.hubs.checkpoint(at(6), &name("meters"), &group, 0, sequence, by, &mut shard.out)
}

#[test]
fn only_the_newest_etag_can_claim() {
    let mut shard = with_hub();
    assert_eq!(claim(&mut shard, "a", Some(Etag(1))), Err(Error::NeverOwned));
    let first = claim(&mut shard, "a", None).unwrap();
    assert_eq!((first.epoch, first.modified_at), (1, at(5)));
    let current = Box::new(first.clone());
    assert_eq!(claim(&mut shard, "b", None), Err(Error::StaleEtag { current }));
    let renewed = claim(&mut shard, "a", Some(first.etag)).unwrap();
    assert_eq!(renewed.epoch, 1);
    assert!(matches!(claim(&mut shard, "b", Some(first.etag)), Err(Error::StaleEtag { .. })));
    let second = claim(&mut shard, "b", Some(renewed.etag)).unwrap();
    assert!(second.epoch > renewed.epoch);
    let released = claim(&mut shard, "", Some(second.etag)).unwrap();
    assert_eq!((released.epoch, released.owner.as_str()), (second.epoch, ""));
    assert!(matches!(claim(&mut shard, "a", None), Err(Error::StaleEtag { .. })));
    let again = claim(&mut shard, "b", Some(released.etag)).unwrap();
    assert!(again.epoch > released.epoch, "the partition was given up in between");
    let long = "x".repeat(limits::OWNER_CHARS_MAX + 1);
    assert!(matches!(claim(&mut shard, &long, None), Err(Error::OwnerName { .. })));
    assert_eq!(shard.hubs.ownerships(&name("meters"), &ConsumerGroup::default_group()).unwrap().len(), 1);
    assert_eq!(shard.hubs.ownerships(&name("meters"), &group("audit")), Ok(vec![]));
    shard.check();
}

#[test]
fn a_recreated_consumer_group_has_no_former_owner() {
    let mut shard = with_hub();
    let audit = group("audit");
    let mut first = None;
    for _ in 0..2 {
        let owned = shard.hubs.claim(at(5), &name("meters"), &audit, 0, "a", None, &mut shard.out).unwrap();
        assert!(first.replace(owned.epoch).is_none_or(|former| former < owned.epoch));
        shard.hubs.delete_group(&name("meters"), &audit, &mut shard.out).unwrap();
        shard.hubs.create_group(at(6), &name("meters"), audit.clone(), None, &mut shard.out).unwrap();
    }
    shard.check();
}

#[test]
fn missing_entities_have_no_owner() {
    let mut shard = with_hub();
    let mut claim = |hub: &str, group, partition| {
        shard.hubs.claim(at(0), &name(hub), &group, partition, "a", None, &mut shard.out).unwrap_err()
    };
    assert!(matches!(claim("other", group("audit"), 0), Error::NoSuchHub { .. }));
    assert!(matches!(claim("meters", group("other"), 0), Error::NoSuchGroup { .. }));
    assert!(matches!(claim("meters", group("audit"), 4), Error::NoSuchPartition { count: 4, .. }));
}

#[test]
fn a_former_owner_moves_no_checkpoint() {
    let mut shard = with_hub();
    let by = |owner: &str, epoch| CheckpointBy::Owner { owner: owner.into(), epoch };
    let too_early = checkpoint(&mut shard, Some(1), &by("a", 1));
    assert!(matches!(too_early, Err(Error::NotOwner { current_epoch: 0, .. })));
    let first = claim(&mut shard, "a", None).unwrap();
    assert_eq!(checkpoint(&mut shard, Some(7), &by("a", 1)).unwrap().unwrap().sequence, 7);
    let second = claim(&mut shard, "b", Some(first.etag)).unwrap();
    let former = checkpoint(&mut shard, Some(9), &by("a", 1));
    assert!(matches!(former, Err(Error::NotOwner { current_epoch: 2, .. })));
    assert!(matches!(checkpoint(&mut shard, Some(9), &by("b", 1)), Err(Error::NotOwner { .. })));
    let owned = Error::Owned { current: "b".into(), current_epoch: 2 };
    assert_eq!(checkpoint(&mut shard, Some(9), &CheckpointBy::Anyone), Err(owned));
    assert_eq!(checkpoint(&mut shard, Some(8), &by("b", 2)).unwrap().unwrap().sequence, 8);
    claim(&mut shard, "", Some(second.etag)).unwrap();
    assert!(matches!(checkpoint(&mut shard, Some(9), &by("b", 2)), Err(Error::NotOwner { .. })));
    assert!(matches!(checkpoint(&mut shard, Some(9), &by("", 2)), Err(Error::NotOwner { .. })));
    checkpoint(&mut shard, Some(9), &CheckpointBy::Anyone).unwrap();
    shard.check();
}

#[test]
fn checkpoints_go_forward_unless_they_are_reset() {
    let mut shard = with_hub();
    checkpoint(&mut shard, Some(7), &CheckpointBy::Anyone).unwrap();
    let facts = shard.out.facts.len();
    assert_eq!(checkpoint(&mut shard, Some(7), &CheckpointBy::Anyone).unwrap().unwrap().sequence, 7);
    assert_eq!(shard.out.facts.len(), facts, "the checkpoint had this value already");
    let back = Error::Backwards { current: 7, found: 6, at: at(6) };
    assert_eq!(checkpoint(&mut shard, Some(6), &CheckpointBy::Anyone), Err(back));
    assert_eq!(checkpoint(&mut shard, None, &CheckpointBy::Anyone), Err(Error::OnlyReset));
    checkpoint(&mut shard, Some(2), &CheckpointBy::Reset).unwrap();
    let (hub, default) = (name("meters"), ConsumerGroup::default_group());
    assert_eq!(shard.hubs.checkpoints(&hub, &default).unwrap()[0].1.sequence, 2);
    assert_eq!(checkpoint(&mut shard, None, &CheckpointBy::Reset), Ok(None));
    assert_eq!(shard.hubs.checkpoints(&hub, &default), Ok(vec![]));
    assert_eq!(checkpoint(&mut shard, None, &CheckpointBy::Reset), Ok(None));
    shard.check();
}

#[test]
fn no_etag_is_reused_even_if_all_else_is_deleted() {
    let mut shard = with_hub();
    let first = claim(&mut shard, "a", None).unwrap();
    shard.hubs.delete_hub(&name("meters"), None, &mut shard.out).unwrap();
    shard.hubs.create_hub(at(9), name("meters"), HubId(2), settings(), &[], &mut shard.out).unwrap();
    assert!(claim(&mut shard, "b", None).unwrap().etag > first.etag);
    assert!(matches!(claim(&mut shard, "a", Some(first.etag)), Err(Error::StaleEtag { .. })));
    shard.check();
}
