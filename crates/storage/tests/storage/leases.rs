//! Tests leases and MD5 checksums over HTTP: the statuses, codes and headers that SDKs evaluate. The state transitions
//! are tested in the blobs crate.

use std::time::Duration;

use crate::common::Client;

type Headers<'a> = &'a [(&'a str, &'a str)];

const PUT: Headers<'static> = &[("x-ms-blob-type", "BlockBlob")];
const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";
const MD5_OF_HELLO: &str = "XUFAKrxLKna5cZ2REBfFkg==";

struct Place<'a> {
    client: &'a Client,
    path: &'a str,
}

impl Place<'_> {
    async fn act(&self, action: &str, headers: Headers<'_>) -> (u16, String, crate::common::Answer) {
        let all = [&[("x-ms-lease-action", action)], headers].concat();
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let answer = self.client.send("PUT", &format!("{}{separator}comp=lease", self.path), &all, "").await;
        (answer.status, answer.code().to_owned(), answer)
    }

    async fn expect(
        &self,
        action: &str,
        headers: Headers<'_>,
        status: u16,
        code: &str,
    ) -> crate::common::Answer {
        let (got, got_code, answer) = self.act(action, headers).await;
        assert_eq!((got, got_code.as_str()), (status, code), "{action} {headers:?}: {}", answer.body);
        answer
    }

    async fn state(&self) -> [Option<String>; 3] {
        let shown = self.client.send("HEAD", self.path, &[], "").await;
        ["x-ms-lease-status", "x-ms-lease-state", "x-ms-lease-duration"]
            .map(|name| shown.header(name).map(str::to_owned))
    }

    async fn expect_state(&self, status: &str, state: &str, duration: Option<&str>) {
        let expected = [Some(status), Some(state), duration].map(|text| text.map(str::to_owned));
        assert_eq!(self.state().await, expected, "{}", self.path);
    }
}

async fn start() -> Client {
    let client = Client::start().await;
    client.send("PUT", "/box?restype=container", &[], "").await;
    client.send("PUT", "/box/a", PUT, "hello").await;
    client
}

/// Makes the same calls on a blob and on a container.
#[tokio::test(start_paused = true)]
async fn the_five_lease_calls_are_answered_like_the_service() {
    let client = start().await;
    for path in ["/box/a", "/box?restype=container"] {
        let place = Place { client: &client, path };
        place.expect_state("unlocked", "available", None).await;
        place.expect("break", &[], 409, "LeaseNotPresentWithLeaseOperation").await;
        place.expect("renew", &[("x-ms-lease-id", A)], 409, "LeaseIdMismatchWithLeaseOperation").await;
        let (fixed, proposed) = (("x-ms-lease-duration", "15"), ("x-ms-proposed-lease-id", A));
        let acquired = place.expect("acquire", &[fixed, proposed], 201, "").await;
        assert_eq!(acquired.header("x-ms-lease-id"), Some(A));
        place.expect_state("locked", "leased", Some("fixed")).await;
        place.expect("acquire", &[fixed], 409, "LeaseAlreadyPresent").await;
        tokio::time::sleep(Duration::from_secs(16)).await;
        place.expect_state("unlocked", "expired", None).await;
        place.expect("renew", &[("x-ms-lease-id", A)], 200, "").await;
        let changed = [("x-ms-lease-id", A), ("x-ms-proposed-lease-id", B)];
        let answer = place.expect("change", &changed, 200, "").await;
        assert_eq!(answer.header("x-ms-lease-id"), Some(B));
        let broken = place.expect("break", &[("x-ms-lease-break-period", "10")], 202, "").await;
        assert_eq!(broken.header("x-ms-lease-time"), Some("10"));
        place.expect_state("locked", "breaking", None).await;
        let infinite = ("x-ms-lease-duration", "-1");
        let again = [infinite, ("x-ms-proposed-lease-id", B)];
        place.expect("acquire", &again, 409, "LeaseIsBreakingAndCannotBeAcquired").await;
        place.expect("renew", &[("x-ms-lease-id", B)], 409, "LeaseIsBrokenAndCannotBeRenewed").await;
        let changed = [("x-ms-lease-id", B), ("x-ms-proposed-lease-id", A)];
        place.expect("change", &changed, 409, "LeaseIsBreakingAndCannotBeChanged").await;
        tokio::time::sleep(Duration::from_secs(11)).await;
        place.expect_state("unlocked", "broken", None).await;
        let acquired = place.expect("acquire", &[infinite], 201, "").await;
        let id = acquired.header("x-ms-lease-id").unwrap().to_owned();
        place.expect_state("locked", "leased", Some("infinite")).await;
        place.expect("release", &[("x-ms-lease-id", &id)], 200, "").await;
        place.expect_state("unlocked", "available", None).await;
        for (action, headers) in [
            ("acquire", &[][..]),
            ("acquire", &[("x-ms-lease-duration", "14")]),
            ("acquire", &[infinite, ("x-ms-proposed-lease-id", "me")]),
            ("break", &[("x-ms-lease-break-period", "61")]),
            ("renew", &[]),
            ("keep", &[]),
        ] {
            assert_eq!(place.act(action, headers).await.0, 400, "{action} {headers:?}");
        }
        let stale = [infinite, ("if-match", "\"0x9\"")];
        place.expect("acquire", &stale, 412, "ConditionNotMet").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_a_condition_of_every_call() {
    let client = start().await;
    let blob = Place { client: &client, path: "/box/a" };
    let acquire = [("x-ms-lease-duration", "15"), ("x-ms-proposed-lease-id", A)];
    let with = |id: &'static str| ("x-ms-lease-id", id);
    let changes = [
        ("PUT", "/box/a", PUT, "new"),
        ("PUT", "/box/a?comp=metadata", &[], ""),
        ("DELETE", "/box/a", &[], ""),
    ];
    let check = async |given: Option<(&'static str, &'static str)>, status: u16, code: &str| {
        for (method, path, headers, body) in changes {
            let all = [headers, given.as_slice()].concat();
            let answer = client.send(method, path, &all, body).await;
            assert_eq!((answer.status, answer.code()), (status, code), "{method} {path} {given:?}");
        }
    };
    check(Some(with(A)), 412, "LeaseNotPresentWithBlobOperation").await;
    blob.expect("acquire", &acquire, 201, "").await;
    check(None, 412, "LeaseIdMissing").await;
    check(Some(with(B)), 412, "LeaseIdMismatchWithBlobOperation").await;
    let read = client.send("GET", "/box/a", &[with(B)], "").await;
    assert_eq!((read.status, read.code()), (412, "LeaseIdMismatchWithBlobOperation"));
    assert_eq!(client.send("GET", "/box/a", &[], "").await.body, "hello");
    let put = client.send("PUT", "/box/a", &[PUT, &[with(A)]].concat(), "mine").await;
    assert_eq!(put.status, 201);
    let listed = client.send("GET", "/box?restype=container&comp=list", &[], "").await;
    let lease = "<LeaseStatus>locked</LeaseStatus><LeaseState>leased</LeaseState><LeaseDuration>fixed</LeaseDuration>";
    assert!(listed.body.contains(lease), "{}", listed.body);
    tokio::time::sleep(Duration::from_secs(16)).await;
    check(Some(with(A)), 412, "LeaseLost").await;
    assert_eq!(client.send("PUT", "/box/a?comp=metadata", &[], "").await.status, 200);
    blob.expect("renew", &[with(A)], 409, "LeaseIdMismatchWithLeaseOperation").await;

    let container = Place { client: &client, path: "/box?restype=container" };
    container.expect("acquire", &acquire, 201, "").await;
    let delete = async |headers: Headers<'_>| {
        let answer = client.send("DELETE", "/box?restype=container", headers, "").await;
        (answer.status, answer.code().to_owned())
    };
    assert_eq!(delete(&[]).await, (412, "LeaseIdMissing".to_owned()));
    assert_eq!(delete(&[with(B)]).await, (412, "LeaseIdMismatchWithContainerOperation".to_owned()));
    let shown = client.send("HEAD", "/box?restype=container", &[with(B)], "").await;
    assert_eq!((shown.status, shown.code()), (412, "LeaseIdMismatchWithContainerOperation"));
    assert_eq!(
        client.send("PUT", "/box/b", PUT, "").await.status,
        201,
        "the container's lease does not restrict its blobs"
    );
    assert_eq!(delete(&[with(A)]).await, (202, String::new()));
}

#[tokio::test]
async fn checksums_are_checked_stored_and_returned() {
    let client = start().await;
    let put = async |sum: &str, body: &str| {
        let answer = client.send("PUT", "/box/b", &[PUT, &[("content-md5", sum)]].concat(), body).await;
        (answer.status, answer.code().to_owned(), answer.header("content-md5").map(str::to_owned))
    };
    assert_eq!(put(MD5_OF_HELLO, "hello").await, (201, String::new(), Some(MD5_OF_HELLO.to_owned())));
    assert_eq!(put(MD5_OF_HELLO, "hallo").await, (400, "Md5Mismatch".to_owned(), None));
    for bad in ["?", "YQ=="] {
        assert_eq!(put(bad, "hello").await, (400, "InvalidMd5".to_owned(), None));
    }
    // The service also computes the MD5 of a body without one.
    for path in ["/box/a", "/box/b"] {
        let read = client.send("GET", path, &[], "").await;
        assert_eq!((read.header("content-md5"), &*read.body), (Some(MD5_OF_HELLO), "hello"));
    }
    let ranged = [("x-ms-range", "bytes=1-2"), ("x-ms-range-get-content-md5", "true")];
    let part = client.send("GET", "/box/a", &ranged, "").await;
    assert_eq!(part.header("x-ms-blob-content-md5"), Some(MD5_OF_HELLO));
    assert_eq!(part.header("content-md5"), Some("ZcEJEdi4WRIZoh66z0baAQ=="));
}
