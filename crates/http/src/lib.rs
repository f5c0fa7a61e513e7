//! Management over HTTP: ATOM for the Azure SDKs, JSON for other clients, health, metrics, and a description of the
//! API.
//!
//! The crate translates between requests and the broker; it has no rules of its own about entities or messages. It never
//! listens: a server exposes the [`router`] on its sockets.

mod api;
mod atom;
mod auth;
mod entity;
mod health;
mod metrics;
mod problem;
mod progress;
mod request;
mod runtime;
mod state;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::Method;

pub use api::check_sample;
pub use atom::check_body as check_atom_body;
pub use peeklock_web::Limits;
pub use state::{Arrival, HttpState, Namespace};

use request::Head;

/// Answers every request that is not for a WebSocket. The caller adds the extensions [`http::uri::Scheme`] and
/// [`Arrival`] to a request: they determine the links in answers, and the access to values that only local programs may
/// read.
pub fn router(state: HttpState) -> Router {
    Router::new().fallback(async move |request: Request| answer(&state, request).await)
}

async fn answer(state: &HttpState, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let is_json = parts.uri.path().starts_with("/api/");
    let head = match Head::new(parts) {
        Ok(head) => head,
        Err(problem) if is_json => return problem.into_json(),
        Err(problem) => return problem.into_xml(),
    };
    match surface(&head) {
        Surface::Health if head.parts.method == Method::GET || head.parts.method == Method::HEAD => {
            health::answer(state.health()).await
        }
        Surface::Health => head.not_allowed("GET").into_json(),
        Surface::Metrics if head.parts.method == Method::GET || head.parts.method == Method::HEAD => {
            metrics::answer(state, &head).await
        }
        Surface::Metrics => head.not_allowed("GET").into_json(),
        Surface::Json => api::answer(state, head, body).await,
        Surface::Atom => atom::answer(state, head, body).await,
        Surface::Root => atom::answer_root(state, &head),
    }
}

enum Surface {
    Health,
    Metrics,
    Json,
    Atom,
    Root,
}

/// Selects the API of a request. Entities can have names such as `health`, `metrics` or `api/…`; management clients are
/// recognised by their version parameter.
fn surface(head: &Head) -> Surface {
    let words: Vec<&str> = head.segments.iter().map(String::as_str).collect();
    match words.as_slice() {
        _ if head.query("api-version").is_some() => Surface::Atom,
        ["health"] => Surface::Health,
        ["metrics"] => Surface::Metrics,
        ["api", ..] => Surface::Json,
        [] => Surface::Root,
        _ => Surface::Atom,
    }
}
