use std::ops::Range;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_RANGE, HeaderName, RANGE};
use http::{Method, StatusCode};
use peeklock_broker::blob::limits::CONTENT_BYTES_MAX;
use peeklock_broker::blob::{Blob, Condition, NewBlob, Tag};
use peeklock_http::shown;

use super::headers::{
    check_sums, condition, metadata as metadata_of, of_content, put_metadata, put_properties, put_state,
};
use super::{Place, condition_not_met, refused, too_large};
use crate::answer::{empty, put_header};
use crate::auth::{Needs, Permit, Resource};
use crate::call::Call;
use crate::problem::Problem;

const ENCRYPTED: HeaderName = HeaderName::from_static("x-ms-request-server-encrypted");

fn needs(letters: &'static str) -> Needs {
    Needs { resource: Resource::Object, of_account: letters, of_service: letters }
}

pub(super) async fn put(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
    body: Body,
) -> Result<Response, Problem> {
    permit.check(needs("cw"))?;
    check_kind(call)?;
    check_sums(call)?;
    let mut condition = condition(call)?;
    // Who may only create must not replace.
    let may_replace = permit.check(needs("w")).is_ok();
    if !may_replace {
        condition.if_none_match = Some(Tag::Any);
    }
    let (metadata, headers) = (metadata_of(call)?, of_content(call));
    let content = call.read_body(body, CONTENT_BYTES_MAX).await.map_err(|problem| match problem.status {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => problem,
    })?;
    let new = NewBlob { metadata, headers, content };
    let put = call.account.broker.put_blob(container, blob, new, condition).await;
    let (etag, at) = put.map_err(refused).map_err(|problem| match problem.code {
        "BlobAlreadyExists" if !may_replace => Problem::forbidden("UnauthorizedBlobOverwrite", problem.text),
        _ => problem,
    })?;
    let mut response = empty(StatusCode::CREATED);
    put_state(&mut response, etag, at);
    put_header(&mut response, &ENCRYPTED, "false");
    Ok(response)
}

fn check_kind(call: &Call<'_>) -> Result<(), Problem> {
    let Some(kind) = call.header("x-ms-blob-type") else {
        return Err(Problem::missing_header("x-ms-blob-type"));
    };
    if kind != "BlockBlob" {
        return Err(Problem::not_supported(format!(
            "blobs of the type '{}' are not supported; put a BlockBlob",
            shown(&kind)
        )));
    }
    Ok(())
}

pub(super) async fn set_metadata(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
) -> Result<Response, Problem> {
    permit.check(needs("w"))?;
    let (metadata, condition) = (metadata_of(call)?, condition(call)?);
    let set = call.account.broker.set_blob_metadata(container, blob, metadata, condition).await;
    let (etag, at) = set.map_err(refused)?;
    let mut response = empty(StatusCode::OK);
    put_state(&mut response, etag, at);
    put_header(&mut response, &ENCRYPTED, "false");
    Ok(response)
}

pub(super) async fn delete(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
) -> Result<Response, Problem> {
    permit.check(needs("d"))?;
    if call.header("x-ms-delete-snapshots").is_some_and(|what| what != "include") {
        return Err(Problem::not_supported("there are no snapshots here; delete the blob itself"));
    }
    call.account.broker.delete_blob(container, blob, condition(call)?).await.map_err(refused)?;
    let mut response = empty(StatusCode::ACCEPTED);
    put_header(&mut response, &HeaderName::from_static("x-ms-delete-type-permanent"), "true");
    Ok(response)
}

/// Content and properties, or of a `HEAD` the properties alone.
pub(super) async fn read(call: &Call<'_>, permit: &Permit, place: Place) -> Result<Response, Problem> {
    let blob = match find(call, permit, place).await? {
        Ok(blob) => blob,
        Err(unchanged) => return Ok(unchanged),
    };
    let size = blob.content.len();
    let range = if call.method() == Method::GET { range(call, size)? } else { None };
    let (status, part) = match &range {
        Some(range) => (StatusCode::PARTIAL_CONTENT, blob.content.slice(range.clone())),
        None => (StatusCode::OK, blob.content.clone()),
    };
    let mut response = Response::new(Body::from(part));
    *response.status_mut() = status;
    put_properties(&mut response, &blob);
    let md5 = HeaderName::from_static(if range.is_some() { "x-ms-blob-content-md5" } else { "content-md5" });
    if let Some(sum) = &blob.headers.content_md5 {
        put_header(&mut response, &md5, sum);
    }
    if let Some(Range { start, end }) = range {
        put_header(&mut response, &CONTENT_RANGE, &format!("bytes {start}-{}/{size}", end - 1));
    }
    Ok(response)
}

pub(super) async fn metadata(call: &Call<'_>, permit: &Permit, place: Place) -> Result<Response, Problem> {
    let blob = match find(call, permit, place).await? {
        Ok(blob) => blob,
        Err(unchanged) => return Ok(unchanged),
    };
    let mut response = empty(StatusCode::OK);
    put_state(&mut response, blob.etag, blob.modified_at);
    put_metadata(&mut response, &blob.metadata);
    Ok(response)
}

/// A blob to read, or the answer for those who have it already.
async fn find(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
) -> Result<Result<Blob, Response>, Problem> {
    permit.check(needs("r"))?;
    let condition: Condition = condition(call)?;
    let blob = call.account.broker.blob(container, blob).await.map_err(refused)?;
    if !condition.fits_wanted(blob.etag, blob.modified_at) {
        return Err(condition_not_met(
            "the condition of the request is not met: the blob is in another state",
        ));
    }
    if condition.is_unchanged(blob.etag, blob.modified_at) {
        let mut response = empty(StatusCode::NOT_MODIFIED);
        put_state(&mut response, blob.etag, blob.modified_at);
        put_header(&mut response, &crate::answer::ERROR_CODE, "ConditionNotMet");
        return Ok(Err(response));
    }
    Ok(Ok(blob))
}

/// `bytes=FROM-` or `bytes=FROM-TO`. What is no range of bytes is no range, as HTTP has it.
fn range(call: &Call<'_>, size: usize) -> Result<Option<Range<usize>>, Problem> {
    let Some(text) = call.header("x-ms-range").or_else(|| call.header(RANGE)) else { return Ok(None) };
    let Some((from, to)) = text.trim().strip_prefix("bytes=").and_then(|text| text.split_once('-')) else {
        return Ok(None);
    };
    let Ok(from) = from.parse::<usize>() else { return Ok(None) };
    let end = match to.parse::<usize>() {
        Ok(to) => to.saturating_add(1).min(size),
        Err(_) if to.is_empty() => size,
        Err(_) => return Ok(None),
    };
    if from >= end {
        let text = format!("the blob has {size} bytes, and the range begins at {from}");
        return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange", text));
    }
    Ok(Some(from..end))
}
