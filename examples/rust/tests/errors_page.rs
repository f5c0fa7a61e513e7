//! `docs/errors.md` is the table of codes in the crate `peeklock`. After a change of the table, run this test with [`WRITE`] set.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::fmt::Write;

use peeklock::CODES;

/// The environment variable that makes the test write the page.
const WRITE: &str = "PEEKLOCK_WRITE_DOCS";

const HEAD: &str = "\
# Error codes

Each error of the [Rust SDK](rust-sdk.md) has a code. `Error::code()` returns it, and the text of the error begins with it. `Error::kind()` is for
programs: kinds and codes are stable, texts are not. The tests compare this page with the table in the crate.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for code in CODES {
        let (name, kind) = (code.code, code.kind);
        write!(page, "\n## {name}\n\n{} Kind: `{kind:?}`.\n\n", code.what).unwrap();
        write!(page, "- Why: {}\n- What to do: {}\n", code.why, code.remedy).unwrap();
    }
    page
}

#[test]
fn the_page_of_error_codes_has_every_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page(), "docs/errors.md is not current; run this test with {WRITE}=1");
}
