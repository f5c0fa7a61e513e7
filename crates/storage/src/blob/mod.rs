//! The Blob calls of checkpoint stores, event processors and message stores: containers, block blobs of limited size,
//! their metadata, leases, and lists. All other calls are rejected with an explanation.

mod block;
mod container;
mod headers;
mod lease;
mod list;
mod object;
mod refusal;
mod sum;
mod upload;

use axum::body::Body;
use axum::response::Response;
use peeklock_broker::blob::{BlobName, ContainerName};
use peeklock_web::shown;

use crate::auth::Permit;
use crate::call::Call;
use crate::problem::Problem;

pub(crate) use upload::Uploads;

/// The list of supported calls in the text of a rejection.
const SERVED: &str = "served are: create, delete, lease and list containers, and read and set their properties and metadata; put (block blobs \
                      of at most 4 MiB, also in blocks), read, lease, delete and list blobs, and read and set their properties and metadata";

enum Asked {
    ListContainers,
    CreateContainer(ContainerName),
    DeleteContainer(ContainerName),
    ShowContainer(ContainerName),
    SetContainerMetadata(ContainerName),
    ListBlobs(ContainerName),
    Put(Place),
    PutBlock(Place),
    PutBlockList(Place),
    ListBlocks(Place),
    /// For a blob, or without one for the container.
    Lease(ContainerName, Option<BlobName>),
    SetMetadata(Place),
    Read(Place),
    Metadata(Place),
    Delete(Place),
}

/// The address of a blob.
type Place = (ContainerName, BlobName);

pub(crate) async fn answer(call: &Call<'_>, permit: &Permit, body: &mut Body) -> Result<Response, Problem> {
    let asked = asked(call)?;
    headers::check_unknown(call)?;
    match asked {
        Asked::ListContainers => list::containers(call, permit).await,
        Asked::CreateContainer(name) => container::create(call, permit, name).await,
        Asked::DeleteContainer(name) => container::delete(call, permit, name).await,
        Asked::ShowContainer(name) => container::show(call, permit, name).await,
        Asked::SetContainerMetadata(name) => container::set_metadata(call, permit, name).await,
        Asked::ListBlobs(name) => list::blobs(call, permit, name).await,
        Asked::PutBlock(place) => block::put(call, permit, place, body).await,
        Asked::PutBlockList(place) => block::put_list(call, permit, place, body).await,
        Asked::ListBlocks(place) => block::list(call, permit, place).await,
        Asked::Lease(container, blob) => lease::act(call, permit, container, blob).await,
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
                ("PUT", Some("container"), Some("metadata")) => Asked::SetContainerMetadata(name()?),
                ("PUT", Some("container"), Some("lease")) => Asked::Lease(name()?, None),
                ("GET", Some("container"), Some("list")) => Asked::ListBlobs(name()?),
                _ => return Err(not_served(call)),
            }
        }
        (Some(container), Some(blob)) => {
            let place = || Ok::<_, Problem>((container_name(container)?, blob_name(blob)?));
            match kind {
                ("PUT", None, None) => Asked::Put(place()?),
                ("PUT", None, Some("block")) => Asked::PutBlock(place()?),
                ("PUT", None, Some("blocklist")) => Asked::PutBlockList(place()?),
                ("GET", None, Some("blocklist")) => Asked::ListBlocks(place()?),
                ("PUT", None, Some("lease")) => {
                    let (container, blob) = place()?;
                    Asked::Lease(container, Some(blob))
                }
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
