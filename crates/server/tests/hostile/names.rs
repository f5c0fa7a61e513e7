//! Names that try to refer to another entity.

use crate::support::{root_token, start};
use crate::wire::Wire;

fn tricks() -> Vec<String> {
    let mut tricks: Vec<_> = [
        "..",
        ".",
        "../orders",
        "orders/..",
        "orders/../invoices",
        "orders/./x",
        "//",
        "///orders//x",
        "orders//x",
        "orders%2f..%2finvoices",
        "%2e%2e",
        "%2e%2e%2fetc%2fpasswd",
        "..%2f..%2fkeys.json",
        "orders%00",
        "orders\0",
        "%",
        "%zz",
        "%ff%fe",
        "$",
        "$cbs/x",
        "$namespace",
        "orders/$",
        "orders/$management/x",
        "orders/$DeadLetterQueue/$DeadLetterQueue",
        "orders/$Transfer",
        "orders/Subscriptions",
        "orders/Subscriptions/",
        "orders/Subscriptions//",
        "orders/Subscriptions/a/b",
        "a/Subscriptions/../b",
        "orders;x",
        "orders?x",
        "orders#x",
        "orders\r\nX: y",
        " orders",
        "orders ",
        "*",
        "orders/*",
        "~",
        "-a",
        "\u{202e}sredro",
        "CON",
        "orders\\..\\invoices",
        "sb://",
        "sb://h",
        "://",
        "a://b://c",
    ]
    .map(str::to_owned)
    .into();
    tricks.push("x".repeat(261));
    tricks.push("x".repeat(60_000));
    tricks.push("a/".repeat(130) + "a");
    tricks.push("/".repeat(30_000));
    tricks.push("%25".repeat(10_000));
    tricks
}

/// A twisted name never opens a link to an existing entity.
#[tokio::test]
async fn twisted_names_refer_to_nothing() {
    let rig = start().await;
    for name in tricks() {
        let mut wire = Wire::root(&rig).await;
        wire.put_receiver(0, &name);
        wire.flush().await;
        let granted = wire.granted().await;
        // The part after '?' or '#' does not belong to the name.
        let is_plain = matches!(name.as_str(), "orders?x" | "orders#x");
        assert!(granted.is_err() || is_plain, "{:?}", name.chars().take(40).collect::<String>());
    }
    rig.still_works().await;
}

#[tokio::test]
async fn twisted_names_create_nothing() {
    let rig = start().await;
    let token = root_token();
    let before = rig.http_status("GET", "/api/queues", &token, "").await.1;
    for name in tricks() {
        let encoded: String = name
            .bytes()
            .take(20_000)
            .map(|byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            })
            .collect();
        for path in [format!("/api/queues/{encoded}"), format!("/{encoded}?api-version=2021-05")] {
            let (status, answer) = rig.http_status("PUT", &path, &token, "{}").await;
            let is_fine = matches!(name.as_str(), "CON") && status < 300;
            assert!((400..500).contains(&status) || is_fine, "{path}: {answer}");
        }
    }
    let after = rig.http_status("GET", "/api/queues", &token, "").await.1;
    assert!(!after.contains("passwd") && !after.contains(".."), "{before} {after}");
    rig.still_works().await;
}
