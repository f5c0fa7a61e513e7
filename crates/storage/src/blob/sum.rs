//! The MD5 of a content: a check of the received bytes, and a property of the stored blob.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::HeaderName;
use md5::{Digest, Md5};

use crate::call::Call;
use crate::problem::Problem;

pub(super) const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The maximum size of a content that is hashed on the current thread; larger ones use a blocking thread.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// Returns the MD5 of a body in base64 and compares it with the one in the request.
pub(super) async fn checked(call: &Call<'_>, content: &Bytes) -> Result<String, Problem> {
    let given = given(call)?;
    let sum = of(content.clone()).await;
    if let Some(given) = given.filter(|given| *given != sum) {
        let text = format!("the content has the MD5 {sum}, and Content-MD5 is {given}; send it again");
        return Err(Problem::bad("Md5Mismatch", text));
    }
    Ok(sum)
}

fn given(call: &Call<'_>) -> Result<Option<String>, Problem> {
    let Some(text) = call.header(CONTENT_MD5) else { return Ok(None) };
    let text = text.trim();
    let is_sum = BASE64.decode(text).is_ok_and(|bytes| bytes.len() == 16);
    let wrong = || Problem::bad("InvalidMd5", "Content-MD5 is not a sum of 128 bits in base64");
    if is_sum { Ok(Some(text.to_owned())) } else { Err(wrong()) }
}

/// Returns the MD5 of a content in base64.
pub(super) async fn of(content: Bytes) -> String {
    let sum = |content: &[u8]| BASE64.encode(Md5::digest(content));
    if content.len() <= AT_ONCE_BYTES_MAX {
        return sum(&content);
    }
    let on_thread = content.clone();
    let done = tokio::task::spawn_blocking(move || sum(&on_thread)).await;
    done.unwrap_or_else(|_| sum(&content))
}
