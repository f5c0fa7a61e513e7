//! Tests blobs in blocks over HTTP.

use crate::common::Client;

fn list(parts: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{parts}</BlockList>")
}

#[tokio::test]
async fn a_block_list_creates_a_blob() {
    let client = Client::start().await;
    client.send("PUT", "/box?restype=container", &[], "").await;
    for (id, body) in [("MDA%3D", "world"), ("MDE%3D", "hello ")] {
        let put = client.send("PUT", &format!("/box/a?comp=block&blockid={id}"), &[], body).await;
        assert_eq!(put.status, 201, "{}", put.body);
    }
    assert_eq!(client.send("GET", "/box/a", &[], "").await.code(), "BlobNotFound");
    let commit = "/box/a?comp=blocklist";
    let unknown = client.send("PUT", commit, &[], &list("<Latest>MDI=</Latest>")).await;
    assert_eq!((unknown.status, unknown.code()), (400, "InvalidBlockList"));
    let headers =
        [("x-ms-blob-content-type", "text/plain"), ("content-type", "application/xml"), ("x-ms-meta-a", "b")];
    let both = list("<Latest>MDE=</Latest><Uncommitted>MDA=</Uncommitted>");
    let made = client.send("PUT", commit, &headers, &both).await;
    assert_eq!((made.status, made.header("etag").is_some()), (201, true), "{}", made.body);
    let read = client.send("GET", "/box/a", &[], "").await;
    assert_eq!((&*read.body, read.header("content-type")), ("hello world", Some("text/plain")));
    assert_eq!(read.header("x-ms-meta-a"), Some("b"));
    let less = client.send("PUT", commit, &[], &list("<Committed>MDA=</Committed>")).await;
    assert_eq!(less.status, 201);
    assert_eq!(client.send("GET", "/box/a", &[], "").await.body, "world");
    client.send("PUT", "/box/a?comp=block&blockid=MDI%3D", &[], "x").await;
    let shown = client.send("GET", "/box/a?comp=blocklist&blocklisttype=all", &[], "").await;
    let parts = "<CommittedBlocks><Block><Name>MDA=</Name><Size>5</Size></Block></CommittedBlocks>\
                 <UncommittedBlocks><Block><Name>MDI=</Name><Size>1</Size></Block></UncommittedBlocks>";
    assert!(shown.body.contains(parts), "{}", shown.body);
    for (path, code) in [
        ("/box/a?comp=block", "InvalidQueryParameterValue"),
        ("/box/a?comp=block&blockid=%3F", "InvalidQueryParameterValue"),
        ("/box/a?comp=block&blockid=MDAwMDAw", "InvalidBlobOrBlock"),
    ] {
        let refused = client.send("PUT", path, &[], "x").await;
        assert_eq!((refused.status, refused.code()), (400, code), "{path}");
    }
}
