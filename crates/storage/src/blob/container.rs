//! Containers: create, delete, their properties and their metadata.

use axum::response::Response;
use http::{HeaderName, StatusCode};
use peeklock_broker::blob::{ContainerName, ContainerView, check_read};
use peeklock_types::Timestamp;

use super::headers::{condition, metadata, put_lease, put_metadata, put_state};
use super::refusal::{condition_not_met, of_container_lease, refused};
use crate::answer::{empty, put_header};
use crate::auth::{Needs, Permit, Resource};
use crate::call::Call;
use crate::problem::Problem;

pub(super) async fn create(
    call: &Call<'_>,
    permit: &Permit,
    name: ContainerName,
) -> Result<Response, Problem> {
    permit.check(Needs { resource: Resource::Container, of_account: "cw", of_service: "" })?;
    if let Some(access) = call.header("x-ms-blob-public-access") {
        let text =
            format!("the container cannot be open to everybody ({access}); create it without public access");
        return Err(Problem::conflict("PublicAccessNotPermitted", text));
    }
    let view = call.account.broker.create_container(name, metadata(call)?).await.map_err(refused)?;
    let mut response = empty(StatusCode::CREATED);
    put_state(&mut response, view.etag, view.modified_at);
    Ok(response)
}

pub(super) async fn set_metadata(
    call: &Call<'_>,
    permit: &Permit,
    name: ContainerName,
) -> Result<Response, Problem> {
    permit.check(Needs { resource: Resource::Container, of_account: "w", of_service: "" })?;
    let (metadata, condition) = (metadata(call)?, condition(call)?);
    let set = call.account.broker.set_container_metadata(name, metadata, condition).await;
    let (etag, at) = set.map_err(refused)?;
    let mut response = empty(StatusCode::OK);
    put_state(&mut response, etag, at);
    Ok(response)
}

pub(super) async fn delete(
    call: &Call<'_>,
    permit: &Permit,
    name: ContainerName,
) -> Result<Response, Problem> {
    permit.check(Needs { resource: Resource::Container, of_account: "d", of_service: "" })?;
    call.account.broker.delete_container(name, condition(call)?).await.map_err(refused)?;
    Ok(empty(StatusCode::ACCEPTED))
}

/// Returns properties and metadata: the service answers Get Metadata with a subset of the headers of Get Properties.
pub(super) async fn show(call: &Call<'_>, permit: &Permit, name: ContainerName) -> Result<Response, Problem> {
    permit.check(Needs { resource: Resource::Container, of_account: "r", of_service: "" })?;
    let condition = condition(call)?;
    let view = call.account.broker.container(name).await.map_err(refused)?;
    if !condition.is_met(view.etag, view.modified_at) {
        return Err(condition_not_met(
            "the condition of the request is not met: the container is in another state",
        ));
    }
    check_read(view.lease.as_ref(), call.now(), condition.lease_id).map_err(of_container_lease)?;
    Ok(properties(&view, call.now()))
}

fn properties(view: &ContainerView, now: Timestamp) -> Response {
    let mut response = empty(StatusCode::OK);
    put_state(&mut response, view.etag, view.modified_at);
    put_metadata(&mut response, &view.metadata);
    put_lease(&mut response, view.lease.as_ref(), now);
    for name in ["x-ms-has-immutability-policy", "x-ms-has-legal-hold"] {
        put_header(&mut response, &HeaderName::from_static(name), "false");
    }
    response
}
