//! Tests of blobs in shards: confirmed changes survive a crash, with and without a snapshot; ETags are never reused; of
//! two concurrent claims of a blob one succeeds; leases last for their duration; and containers of all shards form one
//! list and share one budget.

use std::time::Duration;

use crate::common::Rig;
use bytes::Bytes;
use peeklock_broker::blob::{
    BlobName, Condition, ContainerName, Error as Refused, LeaseAction, LeaseError, LeaseId, LeaseSpan,
    Metadata, NewBlob, Page, StockKind, Tag,
};
use peeklock_broker::{AdminError, BLOB_BYTES_MAX, Error};
use peeklock_types::{EntityName, Etag, Placement, ShardId};

fn container(name: &str) -> ContainerName {
    ContainerName::parse(name).unwrap()
}

fn blob(name: &str) -> BlobName {
    BlobName::parse(name).unwrap()
}

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    let mut metadata = Metadata::default();
    pairs.iter().for_each(|(name, value)| metadata.add(name, value).unwrap());
    metadata
}

fn if_match(etag: Etag) -> Condition {
    Condition { if_match: Some(Tag::Is(etag)), ..Condition::default() }
}

fn if_new() -> Condition {
    Condition { if_none_match: Some(Tag::Any), ..Condition::default() }
}

fn refused(error: AdminError) -> Refused {
    match error {
        AdminError::Refused(Error::Blob(error)) => *error,
        other => panic!("{other}"),
    }
}

const OWNERSHIP: &str = "localhost/homes/$default/ownership/3";

async fn claim(rig: &Rig, owner: &str, condition: Condition) -> Result<Etag, Refused> {
    let (container, blob) = (container("checkpoints"), blob(OWNERSHIP));
    let new = NewBlob { metadata: metadata(&[("ownerid", owner)]), ..NewBlob::default() };
    let claimed = rig.broker.put_blob(container, blob, new, condition).await;
    claimed.map(|(etag, _)| etag).map_err(refused)
}

#[tokio::test]
async fn claims_survive_a_crash_and_one_of_two_succeeds() {
    let rig = Rig::start().await;
    rig.broker.create_container(container("checkpoints"), Metadata::default()).await.unwrap();
    let (one, other) = tokio::join!(claim(&rig, "a", if_new()), claim(&rig, "b", if_new()));
    assert_eq!([&one, &other].iter().filter(|claimed| claimed.is_ok()).count(), 1);
    let etag = one.or(other).unwrap();
    let rig = rig.crash().await;
    let found = rig.broker.blob(container("checkpoints"), blob(OWNERSHIP)).await.unwrap();
    assert_eq!(found.etag, etag);
    assert!(matches!(claim(&rig, "c", if_new()).await, Err(Refused::BlobExists { .. })));
    let renewed = claim(&rig, "c", if_match(etag)).await.unwrap();
    assert_ne!(renewed, etag);
    assert_eq!(
        claim(&rig, "d", if_match(etag)).await,
        Err(Refused::ConditionNotMet { current: Some(renewed) })
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_contains_blobs_and_their_etags() {
    let rig = Rig::start().await;
    rig.broker.create_container(container("checkpoints"), metadata(&[("a", "b")])).await.unwrap();
    let first = claim(&rig, "a", if_new()).await.unwrap();
    for shard in 0..Placement::SHARD_COUNT_DEFAULT {
        rig.journal.ask_snapshot(ShardId(shard));
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let second = claim(&rig, "b", if_match(first)).await.unwrap();
    let checkpoints = container("checkpoints");
    rig.broker.delete_blob(checkpoints.clone(), blob(OWNERSHIP), if_match(second)).await.unwrap();
    let rig = rig.crash().await;
    assert_eq!(rig.broker.container(checkpoints.clone()).await.unwrap().metadata.get("a"), Some("b"));
    let gone = rig.broker.blob(checkpoints, blob(OWNERSHIP)).await.unwrap_err();
    assert!(matches!(refused(gone), Refused::NoSuchBlob { .. }));
    let third = claim(&rig, "c", if_new()).await.unwrap();
    assert!(third > second, "an ETag was reused");
}

#[tokio::test]
async fn containers_of_all_shards_form_one_list() {
    let rig = Rig::start().await;
    let names: Vec<String> = (0..20).map(|number| format!("box-{number:02}")).collect();
    for name in &names {
        rig.broker.create_container(container(name), Metadata::default()).await.unwrap();
    }
    rig.broker.create_container(container("other"), Metadata::default()).await.unwrap();
    let (mut all, mut from) = (Vec::new(), String::new());
    loop {
        let page = Page { prefix: "box-".to_owned(), from, count_max: 7 };
        let found = rig.broker.containers(page).await.unwrap();
        assert!(found.found.len() <= 7);
        all.extend(found.found.into_iter().map(|(name, _)| name.to_string()));
        match found.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(all, names);
}

#[tokio::test]
async fn checkpoints_of_stock_stores_are_found_by_hub() {
    let rig = Rig::start().await;
    rig.broker.create_container(container("checkpoints"), Metadata::default()).await.unwrap();
    claim(&rig, "a", if_new()).await.unwrap();
    let checkpoint =
        NewBlob { metadata: metadata(&[("offset", "7"), ("sequencenumber", "7")]), ..NewBlob::default() };
    let name = blob("localhost/homes/$default/checkpoint/3");
    rig.broker.put_blob(container("checkpoints"), name, checkpoint, Condition::default()).await.unwrap();
    let found = rig.broker.stock_checkpoints(&EntityName::parse("Homes").unwrap()).await.unwrap();
    let kinds: Vec<_> = found.into_iter().map(|found| (found.record.partition, found.record.kind)).collect();
    let checkpoint = StockKind::Checkpoint { offset: Some("7".to_owned()), sequence_number: Some(7) };
    assert_eq!(kinds, [(3, checkpoint), (3, StockKind::Ownership { owner: "a".to_owned() })]);
    let none = rig.broker.stock_checkpoints(&EntityName::parse("other").unwrap()).await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test(start_paused = true)]
async fn leases_survive_a_crash_and_expire_on_time() {
    let rig = Rig::start().await;
    rig.broker.create_container(container("checkpoints"), Metadata::default()).await.unwrap();
    claim(&rig, "a", if_new()).await.unwrap();
    let (id, span) = (LeaseId(1), LeaseSpan::Fixed(Duration::from_secs(30)));
    let place = || (container("checkpoints"), blob(OWNERSHIP));
    let acquire = LeaseAction::Acquire { id, span };
    let (c, b) = place();
    rig.broker.lease_blob(c, Some(b), acquire, Condition::default()).await.unwrap();
    let rig = rig.crash().await;
    let always = Condition::default();
    assert_eq!(claim(&rig, "b", always.clone()).await, Err(Refused::Lease(LeaseError::IdMissing)));
    let leased = Condition { lease_id: Some(id), ..always.clone() };
    claim(&rig, "c", leased.clone()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(claim(&rig, "d", leased).await, Err(Refused::Lease(LeaseError::Lost)));
    claim(&rig, "e", always.clone()).await.unwrap();
    let (c, b) = place();
    let renewed = rig.broker.lease_blob(c, Some(b), LeaseAction::Renew { id }, always).await.unwrap_err();
    assert_eq!(refused(renewed), Refused::Lease(LeaseError::IdMismatchWithLeaseOperation));
}

#[tokio::test]
async fn large_blobs_of_all_shards_share_a_budget() {
    let rig = Rig::start().await;
    for name in ["box", "other"] {
        rig.broker.create_container(container(name), Metadata::default()).await.unwrap();
    }
    assert_ne!(Placement::default().of_container("box"), Placement::default().of_container("other"));
    let content = Bytes::from(vec![7; 4 << 20]);
    let put = async |name: &str, number: usize| {
        let new = NewBlob { content: content.clone(), ..NewBlob::default() };
        let blob = blob(&number.to_string());
        rig.broker.put_blob(container(name), blob, new, Condition::default()).await.map_err(refused)
    };
    let count = BLOB_BYTES_MAX / content.len() - 1;
    for number in 0..count {
        put("box", number).await.unwrap();
    }
    assert_eq!(put("other", count).await, Err(Refused::Full));
    rig.broker.delete_blob(container("box"), blob("0"), Condition::default()).await.unwrap();
    put("other", count).await.unwrap();
    let rig = rig.crash().await;
    let found = rig.broker.blob(container("other"), blob(&count.to_string())).await.unwrap();
    assert_eq!(found.content, content);
    let new = NewBlob { content: content.clone(), ..NewBlob::default() };
    let full = rig.broker.put_blob(container("box"), blob("0"), new, Condition::default()).await;
    assert_eq!(refused(full.unwrap_err()), Refused::Full);
}
