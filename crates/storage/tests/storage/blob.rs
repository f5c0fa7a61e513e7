//! Tests Blob Storage over HTTP: authorisation, the statuses, codes and headers that SDKs evaluate, and that no part of
//! a request is silently ignored.

use crate::common::{Client, WRONG_KEY};

type Headers<'a> = &'a [(&'a str, &'a str)];

const PUT: Headers<'static> = &[("x-ms-blob-type", "BlockBlob")];

#[tokio::test]
async fn a_blob_is_created_changed_listed_and_deleted() {
    let client = Client::start().await;
    let created = client.send("PUT", "/checkpoints?restype=container", &[("x-ms-meta-A", "b")], "").await;
    assert_eq!((created.status, created.header("x-ms-meta-a")), (201, None));
    let shown = client.send("HEAD", "/checkpoints?restype=container", &[], "").await;
    assert_eq!((shown.status, shown.header("x-ms-meta-a")), (200, Some("b")));
    let headers = [PUT, &[("if-none-match", "*"), ("x-ms-meta-ownerid", "anna")]].concat();
    let put = client.send("PUT", "/checkpoints/ns/hub/%24default/ownership/0", &headers, "").await;
    assert_eq!(put.status, 201);
    let etag = put.header("etag").unwrap().to_owned();
    let again = client.send("PUT", "/checkpoints/ns/hub/$default/ownership/0", &headers, "").await;
    assert_eq!((again.status, again.code()), (409, "BlobAlreadyExists"));
    let stale = [("if-match", "\"0x123\""), ("x-ms-meta-ownerid", "bert")];
    let refused =
        client.send("PUT", "/checkpoints/ns/hub/$default/ownership/0?comp=metadata", &stale, "").await;
    assert_eq!((refused.status, refused.code()), (412, "ConditionNotMet"));
    let fresh = [("if-match", etag.trim_matches('"')), ("x-ms-meta-ownerid", "bert")];
    let renewed =
        client.send("PUT", "/checkpoints/ns/hub/$default/ownership/0?comp=metadata", &fresh, "").await;
    assert_eq!(renewed.status, 200);
    assert_ne!(renewed.header("etag"), Some(&*etag));
    let list = "/checkpoints?restype=container&comp=list&prefix=ns%2Fhub%2F&include=metadata";
    let listed = client.send("GET", list, &[], "").await;
    let tag = renewed.header("etag").unwrap().trim_matches('"');
    for part in [
        "<Name>ns/hub/$default/ownership/0</Name>",
        &format!("<Etag>{tag}</Etag>"),
        "<ownerid>bert</ownerid>",
        "<NextMarker></NextMarker>",
    ] {
        assert!(listed.body.contains(part), "{part}: {}", listed.body);
    }
    assert_eq!(client.send("DELETE", "/checkpoints/ns/hub/$default/ownership/0", &[], "").await.status, 202);
    let gone = client.send("HEAD", "/checkpoints/ns/hub/$default/ownership/0", &[], "").await;
    assert_eq!((gone.status, gone.code()), (404, "BlobNotFound"));
    assert_eq!(client.send("DELETE", "/checkpoints?restype=container", &[], "").await.status, 202);
    let gone = client.send("GET", "/checkpoints/x", &[], "").await;
    assert_eq!((gone.status, gone.code()), (404, "ContainerNotFound"));
}

#[tokio::test]
async fn errors_have_the_format_of_the_service() {
    let client = Client::start().await;
    let refused =
        client.send("GET", "/nowhere?restype=container", &[("x-ms-client-request-id", "own-1")], "").await;
    assert_eq!((refused.status, refused.code()), (404, "ContainerNotFound"));
    assert!(refused.body.starts_with(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>ContainerNotFound</Code><Message>"
    ));
    assert_eq!(refused.header("x-ms-client-request-id"), Some("own-1"));
    assert_eq!(refused.header("x-ms-version"), Some("2021-12-02"));
    assert_eq!(refused.header("content-type"), Some("application/xml"));
    assert_eq!(refused.header("x-ms-request-id").unwrap().len(), 36);
    let head = client.send("HEAD", "/nowhere?restype=container", &[], "").await;
    assert_eq!((head.status, head.code()), (404, "ContainerNotFound"));
    assert_eq!((head.header("content-type"), head.header("content-length")), (None, None));
    let old = client.send("GET", "/?comp=list", &[("x-ms-version", "2009-09-19")], "").await;
    assert_eq!((old.status, old.code()), (400, "InvalidHeaderValue"));
}

#[tokio::test]
async fn reads_support_ranges_and_conditions() {
    let client = Client::start().await;
    client.send("PUT", "/box?restype=container", &[], "").await;
    let put = client.send("PUT", "/box/a", PUT, "hello").await;
    let etag = put.header("etag").unwrap();
    let part = client.send("GET", "/box/a", &[("x-ms-range", "bytes=1-2")], "").await;
    assert_eq!((part.status, part.header("content-range"), &*part.body), (206, Some("bytes 1-2/5"), "el"));
    let rest = client.send("GET", "/box/a", &[("range", "bytes=3-100")], "").await;
    assert_eq!((rest.status, &*rest.body), (206, "lo"));
    let beyond = client.send("GET", "/box/a", &[("range", "bytes=5-")], "").await;
    assert_eq!((beyond.status, beyond.code()), (416, "InvalidRange"));
    let known = client.send("GET", "/box/a", &[("if-none-match", etag)], "").await;
    assert_eq!((known.status, known.code(), &*known.body), (304, "ConditionNotMet", ""));
    let other = client.send("GET", "/box/a", &[("if-match", "\"0x9\"")], "").await;
    assert_eq!((other.status, other.code()), (412, "ConditionNotMet"));
    for (method, path) in
        [("GET", "/box/b"), ("HEAD", "/box/b"), ("PUT", "/box/b?comp=metadata"), ("DELETE", "/box/b")]
    {
        let missing = client.send(method, path, &[("if-match", etag)], "").await;
        assert_eq!((missing.status, missing.code()), (412, "ConditionNotMet"), "{method}");
    }
}

#[tokio::test]
async fn unsupported_calls_are_rejected_and_change_nothing() {
    let client = Client::start().await;
    client.send("PUT", "/box?restype=container", &[], "").await;
    client.send("PUT", "/box/a", PUT, "hello").await;
    let page_blob = [("x-ms-blob-type", "PageBlob")];
    let tagged = [PUT, &[("x-ms-tags", "a=b")]].concat();
    let cases: [(&str, &str, Headers<'_>); 7] = [
        ("PUT", "/box/a?comp=snapshot", &[]),
        ("PUT", "/box/a", &page_blob),
        ("PUT", "/box/a", &tagged),
        ("GET", "/box?restype=container&comp=list&delimiter=/", &[]),
        ("GET", "/box?restype=container&comp=acl", &[]),
        ("GET", "/?restype=service&comp=properties", &[]),
        ("POST", "/?comp=batch", &[]),
    ];
    for (method, path, headers) in cases {
        let refused = client.send(method, path, headers, "").await;
        assert_eq!((refused.status, refused.code()), (501, "NotImplemented"), "{method} {path}");
        assert!(refused.body.contains("<Message>"), "{}", refused.body);
    }
    let large = client.send("PUT", "/box/a", PUT, &"x".repeat((4 << 20) + 1)).await;
    assert_eq!((large.status, large.code()), (413, "RequestBodyTooLarge"));
    let untyped = client.send("PUT", "/box/a", &[], "").await;
    assert_eq!((untyped.status, untyped.code()), (400, "MissingRequiredHeader"));
    assert_eq!(client.send("GET", "/box/a", &[], "").await.body, "hello");
}

#[tokio::test]
async fn names_and_metadata_are_checked() {
    let client = Client::start().await;
    for name in ["ab", "UPPER", "a--b", "%24root"] {
        let refused = client.send("PUT", &format!("/{name}?restype=container"), &[], "").await;
        assert_eq!((refused.status, refused.code()), (400, "InvalidResourceName"), "{name}");
    }
    client.send("PUT", "/box?restype=container", &[], "").await;
    let refused = client.send("PUT", "/box/a%0Ab", PUT, "").await;
    assert_eq!((refused.status, refused.code()), (400, "InvalidResourceName"));
    let not_utf8 = client.send("PUT", "/box/%ff", PUT, "").await;
    assert_eq!((not_utf8.status, not_utf8.code()), (400, "InvalidUri"));
    let odd = [PUT, &[("x-ms-meta-a-b", "x")]].concat();
    let refused = client.send("PUT", "/box/a", &odd, "").await;
    assert_eq!((refused.status, refused.code()), (400, "InvalidMetadata"));
    let much = "x".repeat(9000);
    let much = [PUT, &[("x-ms-meta-a", much.as_str())]].concat();
    let refused = client.send("PUT", "/box/a", &much, "").await;
    assert_eq!((refused.status, refused.code()), (400, "MetadataTooLarge"));
}

#[tokio::test]
async fn only_a_recent_signature_with_the_right_key_is_accepted() {
    let client = Client::start().await;
    let path = "/box?restype=container";
    let wrong = client.clone().with_key(WRONG_KEY).send("PUT", path, &[], "").await;
    assert_eq!((wrong.status, wrong.code()), (403, "AuthenticationFailed"));
    let unsigned = client.unsigned("PUT", &format!("/devstoreaccount1{path}"), &[]).await;
    assert_eq!((unsigned.status, unsigned.code()), (401, "NoAuthenticationInformation"));
    let bearer =
        client.unsigned("PUT", &format!("/devstoreaccount1{path}"), &[("authorization", "Bearer x")]).await;
    assert_eq!((bearer.status, bearer.code()), (403, "AuthenticationFailed"));
    for minutes in [-16, 16] {
        let refused = client.clone().with_clock(minutes).send("PUT", path, &[], "").await;
        assert_eq!((refused.status, refused.code()), (403, "AuthenticationFailed"), "{minutes}");
        assert!(refused.body.contains("set the clock"), "{}", refused.body);
    }
    let nobody = client.unsigned("GET", "/nobody/box?restype=container", &[]).await;
    assert_eq!((nobody.status, nobody.code()), (403, "AuthenticationFailed"));
    let nothing = client.unsigned("GET", "/", &[]).await;
    assert_eq!((nothing.status, nothing.code()), (400, "InvalidUri"));
    for minutes in [-14, 14] {
        let status = client.clone().with_clock(minutes).send("HEAD", path, &[], "").await.status;
        assert_eq!(status, 404, "{minutes}: accepted, and the rejected requests created nothing");
    }
}

#[tokio::test]
async fn headers_are_signed_in_either_order_and_by_either_scheme() {
    let client = Client::start().await;
    // By bytes, the underscore sorts after the digit; in the order of the service, before it.
    let metadata = [("x-ms-meta-a1", "1"), ("x-ms-meta-a_1", "2"), ("x-ms-meta-ab", "3")];
    let sorted = [metadata[1], metadata[0], metadata[2]];
    assert_eq!(client.send_sorted("PUT", "/one?restype=container", &metadata).await.status, 201);
    assert_eq!(client.send_sorted("PUT", "/two?restype=container", &sorted).await.status, 201);
    let wrong = [metadata[2], metadata[0], metadata[1]];
    assert_eq!(client.send_sorted("PUT", "/three?restype=container", &wrong).await.status, 403);
    assert_eq!(client.send_lite("GET", "/?comp=list").await.status, 200);
}

#[tokio::test]
async fn the_account_can_be_in_the_host_name() {
    let client = Client::start().await;
    let host = [("host", "devstoreaccount1.blob.example.org:10000")];
    let created = client.send_at("PUT", "/box?restype=container", &host).await;
    assert_eq!(created.status, 201);
    let listed = client.send_at("GET", "/?comp=list", &host).await;
    assert!(
        listed.body.contains("ServiceEndpoint=\"http://devstoreaccount1.blob.example.org:10000/\""),
        "{}",
        listed.body
    );
    assert!(listed.body.contains("<Name>box</Name>"));
    let listed = client.send("GET", "?comp=list", &[], "").await;
    assert!(
        listed.body.contains("ServiceEndpoint=\"http://127.0.0.1:10000/devstoreaccount1/\""),
        "{}",
        listed.body
    );
}

#[tokio::test]
async fn signatures_permit_the_resources_that_they_name() {
    let client = Client::start().await;
    client.send("PUT", "/box?restype=container", &[], "").await;
    client.send("PUT", "/box/a", PUT, "hello").await;
    let read = |sas: String| {
        let client = client.clone();
        async move { client.unsigned("GET", &format!("/devstoreaccount1/box/a?{sas}"), &[]).await }
    };
    assert_eq!(read(client.account_sas("r", "b", "o", 60)).await.status, 200);
    assert_eq!(read(client.account_sas("r", "b", "o", -60)).await.code(), "AuthenticationFailed");
    assert_eq!(read(client.account_sas("w", "b", "o", 60)).await.code(), "AuthorizationPermissionMismatch");
    assert_eq!(read(client.account_sas("r", "q", "o", 60)).await.code(), "AuthorizationServiceMismatch");
    assert_eq!(
        read(client.account_sas("r", "b", "sc", 60)).await.code(),
        "AuthorizationResourceTypeMismatch"
    );
    assert_eq!(
        read(client.account_sas("r", "b", "o", 60).replace("sp=r", "sp=rw")).await.code(),
        "AuthenticationFailed"
    );
    assert_eq!(
        read(client.account_sas("r", "b", "o", 60) + "&sip=1.2.3.4").await.code(),
        "AuthenticationFailed"
    );
    assert_eq!(read(client.blob_sas("r", "box/a", "b")).await.status, 200);
    assert_eq!(read(client.blob_sas("r", "box", "c")).await.status, 200);
    assert_eq!(read(client.blob_sas("r", "box/b", "b")).await.code(), "AuthenticationFailed");
    assert_eq!(read(client.blob_sas("l", "box", "c")).await.code(), "AuthorizationPermissionMismatch");
    let list =
        format!("/devstoreaccount1/box?restype=container&comp=list&{}", client.blob_sas("l", "box", "c"));
    assert_eq!(client.unsigned("GET", &list, &[]).await.status, 200);
    let delete = format!("/devstoreaccount1/box?restype=container&{}", client.blob_sas("rwdl", "box", "c"));
    assert_eq!(client.unsigned("DELETE", &delete, &[]).await.code(), "AuthorizationPermissionMismatch");
    let create_only = format!("/devstoreaccount1/box/a?{}", client.blob_sas("c", "box", "c"));
    assert_eq!(client.unsigned("PUT", &create_only, PUT).await.code(), "UnauthorizedBlobOverwrite");
    let lease = format!("/devstoreaccount1/box/a?comp=lease&{}", client.blob_sas("r", "box/a", "b"));
    let acquire = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15")];
    assert_eq!(client.unsigned("PUT", &lease, &acquire).await.code(), "AuthorizationPermissionMismatch");
}
