//! The JSON API: each file has the routes of one subject with their handlers. `peeklock_api` has their paths and types.

mod call;
mod checkpoints;
mod consumer_groups;
mod entities;
mod events;
mod explain;
mod hubs;
mod messages;
mod names;
mod openapi;
mod ownerships;
mod policies;
mod queue_groups;
mod reset;
mod route;
mod rules;

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;

use crate::problem::Problem;
use crate::request::Head;
use crate::state::HttpState;
use route::Route;

pub(crate) use consumer_groups::check_metadata;
pub use explain::check_body as check_sample;

static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let subjects = [
        openapi::routes(),
        entities::routes(),
        messages::routes(),
        explain::routes(),
        rules::routes(),
        hubs::routes(),
        events::routes(),
        consumer_groups::routes(),
        checkpoints::routes(),
        reset::routes(),
        ownerships::routes(),
        queue_groups::routes(),
        policies::routes(),
    ];
    subjects.into_iter().flatten().collect()
});

pub(crate) async fn answer(state: &HttpState, head: Head, body: Body) -> Response {
    handle(state, head, body).await.unwrap_or_else(Problem::into_json)
}

async fn handle(state: &HttpState, head: Head, body: Body) -> Result<Response, Problem> {
    let (route, names) = route::find(&ROUTES, &head)?;
    route.run(state, head, names, body).await
}
