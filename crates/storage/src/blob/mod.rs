//! The Blob calls that checkpoint stores make: containers, small block blobs, their metadata, and lists. All others are refused in words.

mod container;
mod headers;
mod list;
mod object;

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_broker::blob::limits::CONTENT_BYTES_MAX;
use peeklock_broker::blob::{BlobName, ContainerName, Error as BlobError};
use peeklock_broker::{AdminError, Error};
use peeklock_http::shown;

use crate::auth::Permit;
use crate::call::Call;
use crate::problem::Problem;

/// What the refusals say is there.
const SERVED: &str = "served are: create, delete and list containers and read their properties; put (one block blob of at most 64 KiB), \
                      read, delete and list blobs, and read and set their properties and metadata";

enum Asked {
    ListContainers,
    CreateContainer(ContainerName),
    DeleteContainer(ContainerName),
    ShowContainer(ContainerName),
    ListBlobs(ContainerName),
    Put(Place),
    SetMetadata(Place),
    Read(Place),
    Metadata(Place),
    Delete(Place),
}

/// Where a blob is.
type Place = (ContainerName, BlobName);

pub(crate) async fn answer(call: &Call<'_>, permit: &Permit, body: Body) -> Result<Response, Problem> {
    let asked = asked(call)?;
    headers::check_unknown(call)?;
    match asked {
        Asked::ListContainers => list::containers(call, permit).await,
        Asked::CreateContainer(name) => container::create(call, permit, name).await,
        Asked::DeleteContainer(name) => container::delete(call, permit, name).await,
        Asked::ShowContainer(name) => container::show(call, permit, name).await,
        Asked::ListBlobs(name) => list::blobs(call, permit, name).await,
        Asked::Put(place) => object::put(call, permit, place, body).await,
        Asked::SetMetadata(place) => object::set_metadata(call, permit, place).await,
        Asked::Read(place) => object::read(call, permit, place).await,
        Asked::Metadata(place) => object::metadata(call, permit, place).await,
        Asked::Delete(place) => object::delete(call, permit, place).await,
    }
}

fn asked(call: &Call<'_>) -> Result<Asked, Problem> {
    let kind = (call.method().as_str(), call.query("restype"), call.query("comp"));
    Ok(match (&call.container, &call.inside) {
        (None, _) => match kind {
            ("GET", None, Some("list")) => Asked::ListContainers,
            _ => return Err(not_served(call)),
        },
        (Some(container), None) => {
            let name = || container_name(container);
            match kind {
                ("PUT", Some("container"), None) => Asked::CreateContainer(name()?),
                ("DELETE", Some("container"), None) => Asked::DeleteContainer(name()?),
                ("GET" | "HEAD", Some("container"), None | Some("metadata")) => Asked::ShowContainer(name()?),
                ("GET", Some("container"), Some("list")) => Asked::ListBlobs(name()?),
                _ => return Err(not_served(call)),
            }
        }
        (Some(container), Some(blob)) => {
            let place = || Ok::<_, Problem>((container_name(container)?, blob_name(blob)?));
            match kind {
                ("PUT", None, None) => Asked::Put(place()?),
                ("PUT", None, Some("metadata")) => Asked::SetMetadata(place()?),
                ("GET" | "HEAD", None, None) => Asked::Read(place()?),
                ("GET" | "HEAD", None, Some("metadata")) => Asked::Metadata(place()?),
                ("DELETE", None, None) => Asked::Delete(place()?),
                _ => return Err(not_served(call)),
            }
        }
    })
}

fn not_served(call: &Call<'_>) -> Problem {
    let of_query = |name: &str| call.query(name).map(|value| format!("{name}={}", shown(value)));
    let query: Vec<String> = ["restype", "comp"].into_iter().filter_map(of_query).collect();
    let on = match (&call.container, &call.inside) {
        (None, _) => "the account",
        (Some(_), None) => "a container",
        (Some(_), Some(_)) => "a blob",
    };
    let method = shown(call.method().as_str());
    let query = if query.is_empty() { String::new() } else { format!(" with {}", query.join(" and ")) };
    Problem::not_supported(format!("{method} on {on}{query} is not supported; {SERVED}"))
}

fn container_name(text: &str) -> Result<ContainerName, Problem> {
    let wrong = |error: peeklock_broker::blob::NameError| {
        Problem::bad("InvalidResourceName", format!("'{}': {error}", shown(text)))
    };
    ContainerName::parse(text).map_err(wrong)
}

fn blob_name(text: &str) -> Result<BlobName, Problem> {
    BlobName::parse(text).map_err(|error| Problem::bad("InvalidResourceName", error.to_string()))
}

/// A refusal of the broker with the code that SDKs look for.
fn refused(error: AdminError) -> Problem {
    let AdminError::Refused(Error::Blob(blob)) = &error else { return error.into() };
    let text = error.to_string();
    match &**blob {
        BlobError::NoSuchContainer { .. } => Problem::not_found("ContainerNotFound", text),
        BlobError::NoSuchBlob { .. } => Problem::not_found("BlobNotFound", text),
        BlobError::ContainerExists { .. } => Problem::conflict("ContainerAlreadyExists", text),
        BlobError::BlobExists { .. } => Problem::conflict("BlobAlreadyExists", text),
        BlobError::ConditionNotMet { .. } => condition_not_met(text),
        BlobError::TooLarge { .. } => too_large(),
        BlobError::Header => Problem::bad("InvalidHeaderValue", text),
        BlobError::TooManyContainers | BlobError::Full => Problem::conflict("AccountLimitExceeded", text),
    }
}

fn condition_not_met(text: impl Into<String>) -> Problem {
    Problem::new(StatusCode::PRECONDITION_FAILED, "ConditionNotMet", text)
}

/// Refused before the end of the body is known.
fn too_large() -> Problem {
    let text = format!(
        "a blob holds at most {CONTENT_BYTES_MAX} bytes here, which is for checkpoints; keep large blobs elsewhere"
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", text)
}
