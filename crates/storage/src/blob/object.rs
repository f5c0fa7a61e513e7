//! Block blobs: put, get, delete, their properties and their metadata.

use std::mem::take;
use std::ops::Range;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_RANGE, HeaderName, RANGE};
use http::{Method, StatusCode};
use peeklock_broker::blob::{Blob, Condition, Error as BlobError, NewBlob, Tag, check_read};
use peeklock_broker::{AdminError, Error};
use peeklock_web::shown;

use super::headers::{
    condition, metadata as metadata_of, of_content, put_metadata, put_properties, put_state,
};
use super::refusal::{condition_not_met, of_lease, refused};
use super::{Place, sum, upload};
use crate::answer::{empty, put_header};
use crate::auth::{Needs, Permit, Resource};
use crate::call::Call;
use crate::problem::Problem;

pub(super) const ENCRYPTED: HeaderName = HeaderName::from_static("x-ms-request-server-encrypted");

pub(super) fn needs(letters: &'static str) -> Needs {
    Needs { resource: Resource::Object, of_account: letters, of_service: letters }
}

pub(super) async fn put(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
    body: &mut Body,
) -> Result<Response, Problem> {
    permit.check(needs("cw"))?;
    check_kind(call)?;
    let mut condition = condition(call)?;
    let may_replace = may_replace(permit, &mut condition);
    let (metadata, mut headers) = (metadata_of(call)?, of_content(call));
    let upload = upload::read(call, take(body)).await?;
    let sum = sum::checked(call, &upload.content).await?;
    headers.content_md5.get_or_insert_with(|| sum.clone());
    let new = NewBlob { metadata, headers, content: upload.content.clone(), blocks: Vec::new() };
    let put = call.account.broker.put_blob(container, blob, new, condition).await;
    let (etag, at) = put.map_err(|error| refused_put(error, may_replace))?;
    let mut response = empty(StatusCode::CREATED);
    put_state(&mut response, etag, at);
    put_header(&mut response, &sum::CONTENT_MD5, &sum);
    put_header(&mut response, &ENCRYPTED, "false");
    Ok(response)
}

/// Returns whether the permit includes replacing a blob. Otherwise adds the condition that the blob does not exist.
pub(super) fn may_replace(permit: &Permit, condition: &mut Condition) -> bool {
    let may_replace = permit.check(needs("w")).is_ok();
    if !may_replace {
        condition.if_none_match = Some(Tag::Any);
    }
    may_replace
}

pub(super) fn refused_put(error: AdminError, may_replace: bool) -> Problem {
    let problem = refused(error);
    match problem.code {
        "BlobAlreadyExists" if !may_replace => Problem::forbidden("UnauthorizedBlobOverwrite", problem.text),
        _ => problem,
    }
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

/// Returns content and properties; for a `HEAD` only the properties.
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
    let wants_sum = call.header("x-ms-range-get-content-md5").is_some_and(|text| text.trim() == "true");
    let sum_of_part = if range.is_some() && wants_sum { Some(sum::of(part.clone()).await) } else { None };
    let mut response = Response::new(Body::from(part));
    *response.status_mut() = status;
    put_properties(&mut response, &blob, call.now());
    if let Some(sum) = sum_of_part {
        put_header(&mut response, &sum::CONTENT_MD5, &sum);
    }
    let of_blob =
        if range.is_some() { HeaderName::from_static("x-ms-blob-content-md5") } else { sum::CONTENT_MD5 };
    if let Some(sum) = &blob.headers.content_md5 {
        put_header(&mut response, &of_blob, sum);
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

/// Returns the blob to read, or the answer for a client that already has its current state.
async fn find(
    call: &Call<'_>,
    permit: &Permit,
    (container, blob): Place,
) -> Result<Result<Blob, Response>, Problem> {
    permit.check(needs("r"))?;
    let condition: Condition = condition(call)?;
    let found = call.account.broker.blob(container, blob).await;
    let blob = found.map_err(|error| match &error {
        AdminError::Refused(Error::Blob(missing))
            if condition.if_match.is_some() && matches!(**missing, BlobError::NoSuchBlob { .. }) =>
        {
            condition_not_met("the condition of the request is not met: there is no such blob")
        }
        _ => refused(error),
    })?;
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
    check_read(blob.lease.as_ref(), call.now(), condition.lease_id).map_err(of_lease)?;
    Ok(Ok(blob))
}

/// Parses `bytes=FROM-` or `bytes=FROM-TO`. As in HTTP, a value in another unit or form is ignored.
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
