//! Lists of containers and of blobs.

use axum::response::Response;
use http::StatusCode;
use peeklock_broker::blob::limits::PAGE_COUNT_MAX;
use peeklock_broker::blob::{Blob, BlobName, ContainerName, ContainerView, Lease, Metadata, Page};
use peeklock_types::Timestamp;
use peeklock_web::shown;
use peeklock_web::xml::Writer;

use super::headers::{lease_texts, tag};
use super::refusal::refused;
use crate::answer::xml;
use crate::auth::{Needs, Permit, Resource};
use crate::call::Call;
use crate::problem::Problem;
use crate::time::http_date;

/// The values of `include`. Only `metadata` has an effect, because the broker stores none of the others.
const INCLUDABLE: [&str; 13] = [
    "metadata",
    "deleted",
    "system",
    "snapshots",
    "uncommittedblobs",
    "copy",
    "tags",
    "versions",
    "deletedwithversions",
    "immutabilitypolicy",
    "legalhold",
    "permissions",
    "",
];

pub(super) async fn containers(call: &Call<'_>, permit: &Permit) -> Result<Response, Problem> {
    permit.check(Needs { resource: Resource::Service, of_account: "l", of_service: "" })?;
    let with_metadata = includes_metadata(call)?;
    let page = page(call)?;
    let found = call.account.broker.containers(page.clone()).await.map_err(refused)?;
    let mut writer = Writer::document();
    writer.begin("EnumerationResults", &[("ServiceEndpoint", &endpoint(call))]);
    put_page(&mut writer, call, &page);
    writer.begin("Containers", &[]);
    for (name, view) in &found.found {
        put_container(&mut writer, name, view, with_metadata, call.now());
    }
    writer.end();
    writer.text("NextMarker", found.next.as_deref().unwrap_or_default());
    writer.end();
    Ok(xml(StatusCode::OK, writer))
}

pub(super) async fn blobs(
    call: &Call<'_>,
    permit: &Permit,
    container: ContainerName,
) -> Result<Response, Problem> {
    permit.check(Needs { resource: Resource::Container, of_account: "l", of_service: "l" })?;
    let with_metadata = includes_metadata(call)?;
    let page = page(call)?;
    let found = call.account.broker.blobs(container.clone(), page.clone()).await.map_err(refused)?;
    let mut writer = Writer::document();
    let attributes = [("ServiceEndpoint", &*endpoint(call)), ("ContainerName", container.as_str())];
    writer.begin("EnumerationResults", &attributes);
    put_page(&mut writer, call, &page);
    writer.begin("Blobs", &[]);
    for (name, blob) in &found.found {
        put_blob(&mut writer, name, blob, with_metadata, call.now());
    }
    writer.end();
    writer.text("NextMarker", found.next.as_deref().unwrap_or_default());
    writer.end();
    Ok(xml(StatusCode::OK, writer))
}

fn endpoint(call: &Call<'_>) -> String {
    let mut endpoint = call.endpoint();
    if !endpoint.ends_with('/') {
        endpoint.push('/');
    }
    endpoint
}

fn includes_metadata(call: &Call<'_>) -> Result<bool, Problem> {
    // SDK quirk: .NET sends the names of its enumeration, such as `Metadata`.
    let include = call.query("include").unwrap_or_default().to_ascii_lowercase();
    let mut parts = include.split(',').map(str::trim);
    if let Some(unknown) = parts.clone().find(|part| !INCLUDABLE.contains(part)) {
        return Err(Problem::query("include", format!("has '{}', which is unknown", shown(unknown))));
    }
    Ok(parts.any(|part| part == "metadata"))
}

/// Parses the page of a list. A marker is the first name of a page.
fn page(call: &Call<'_>) -> Result<Page, Problem> {
    let text = |name| call.query(name).unwrap_or_default().to_owned();
    // As in the service, a larger number than the limit is accepted and reduced to the limit.
    let count_max = call.query_number("maxresults", 1, u64::MAX)?.unwrap_or(u64::MAX);
    let count_max = usize::try_from(count_max).unwrap_or(usize::MAX).min(PAGE_COUNT_MAX);
    Ok(Page { prefix: text("prefix"), from: text("marker"), count_max })
}

fn put_page(writer: &mut Writer, call: &Call<'_>, page: &Page) {
    writer.text("Prefix", &page.prefix);
    writer.text("Marker", &page.from);
    if call.query("maxresults").is_some() {
        writer.number("MaxResults", page.count_max);
    }
}

fn put_container(
    writer: &mut Writer,
    name: &ContainerName,
    view: &ContainerView,
    with_metadata: bool,
    now: Timestamp,
) {
    writer.begin("Container", &[]);
    writer.text("Name", name.as_str());
    writer.begin("Properties", &[]);
    writer.text("Last-Modified", &http_date(view.modified_at));
    writer.text("Etag", &format!("\"{}\"", tag(view.etag)));
    put_lease(writer, view.lease.as_ref(), now);
    writer.bool("HasImmutabilityPolicy", false);
    writer.bool("HasLegalHold", false);
    writer.end();
    if with_metadata {
        put_metadata(writer, &view.metadata);
    }
    writer.end();
}

fn put_blob(writer: &mut Writer, name: &BlobName, blob: &Blob, with_metadata: bool, now: Timestamp) {
    writer.begin("Blob", &[]);
    writer.text("Name", name.as_str());
    writer.begin("Properties", &[]);
    writer.text("Creation-Time", &http_date(blob.created_at));
    writer.text("Last-Modified", &http_date(blob.modified_at));
    writer.text("Etag", &tag(blob.etag));
    writer.number("Content-Length", blob.content.len());
    let headers = &blob.headers;
    let content_type = headers.content_type.as_deref().unwrap_or("application/octet-stream");
    writer.text("Content-Type", content_type);
    writer.optional("Content-Encoding", headers.content_encoding.as_deref());
    writer.optional("Content-Language", headers.content_language.as_deref());
    writer.optional("Content-MD5", headers.content_md5.as_deref());
    writer.optional("Cache-Control", headers.cache_control.as_deref());
    writer.optional("Content-Disposition", headers.content_disposition.as_deref());
    writer.text("BlobType", "BlockBlob");
    put_lease(writer, blob.lease.as_ref(), now);
    writer.bool("ServerEncrypted", false);
    writer.end();
    if with_metadata {
        put_metadata(writer, &blob.metadata);
    }
    writer.end();
}

fn put_lease(writer: &mut Writer, lease: Option<&Lease>, now: Timestamp) {
    let (status, state, duration) = lease_texts(lease, now);
    writer.text("LeaseStatus", status);
    writer.text("LeaseState", state);
    writer.optional("LeaseDuration", duration);
}

fn put_metadata(writer: &mut Writer, metadata: &Metadata) {
    writer.begin("Metadata", &[]);
    for (name, value) in metadata.iter() {
        writer.text(name, value);
    }
    writer.end();
}
