//! The supported parts of the storage services over HTTP: the Blob calls of checkpoint stores, event processors and
//! message stores, and Queue Storage.
//!
//! The crate translates between requests and the broker in the services' formats: shared keys and shared access
//! signatures, addresses in path style and host style, XML errors. It has no rules of its own about blobs or queues. It
//! never listens: a server exposes the [`router`] of each [`Service`] on a separate socket.

mod account;
mod answer;
mod auth;
mod blob;
mod call;
mod problem;
mod queue;
mod spelling;
mod time;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use http::Method;
use http::request::Parts;
use http_body_util::BodyExt;
use peeklock_types::Timestamp;

pub use account::{
    Account, AccountKey, KeyError, NameError, WELL_KNOWN_ACCOUNT, WELL_KNOWN_KEY, check_account_name,
};
pub use peeklock_web::Limits;
pub use spelling::Spelling;

use answer::Trail;
use blob::Uploads;
use call::Call;
use problem::Problem;

/// A storage service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Blob,
    Queue,
}

impl Service {
    /// Returns the name in host names and signatures.
    fn name(self) -> &'static str {
        match self {
            Service::Blob => "blob",
            Service::Queue => "queue",
        }
    }
}

/// The state for answering requests. Clones share it.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    accounts: Vec<Account>,
    limits: Limits,
    uploads: Uploads,
    started_at: Timestamp,
    request_count: AtomicU64,
}

impl Storage {
    /// Creates the state. Account names must be unique; of equal names, the first account is used.
    pub fn new(accounts: Vec<Account>, limits: Limits) -> Self {
        let started_at = accounts.first().map_or(Timestamp::ZERO, |account| account.broker.clock().now());
        let (uploads, request_count) = (Uploads::default(), AtomicU64::new(0));
        Storage(Arc::new(Inner { accounts, limits, uploads, started_at, request_count }))
    }

    fn account(&self, name: &str) -> Option<&Account> {
        self.0.accounts.iter().find(|account| account.name == name)
    }
}

/// Answers every request to one service. The caller adds two extensions to a request: an [`http::uri::Scheme`] with the
/// scheme of the client's connection, and a [`Spelling`] with the case of names in metadata.
pub fn router(storage: Storage, service: Service) -> Router {
    Router::new().fallback(async move |request: Request| answer(&storage, service, request).await)
}

async fn answer(storage: &Storage, service: Service, request: Request) -> Response {
    let trail = Trail::of(storage, &request);
    let is_head = request.method() == Method::HEAD;
    let answered = serve(storage, service, request).await;
    trail.stamp(answered.unwrap_or_else(|problem| problem.into_response(is_head)))
}

/// Authorises a request before its body is read, and answers it.
async fn serve(storage: &Storage, service: Service, request: Request) -> Result<Response, Problem> {
    let (parts, mut body) = request.into_parts();
    let answered = answer_parts(storage, service, parts, &mut body).await;
    if answered.is_err() {
        drop_rest(body).await;
    }
    answered
}

/// Takes the body only if the call reads it.
async fn answer_parts(
    storage: &Storage,
    service: Service,
    parts: Parts,
    body: &mut Body,
) -> Result<Response, Problem> {
    let call = Call::new(storage, service, parts)?;
    let permit = auth::authorize(&call)?;
    match service {
        Service::Blob => blob::answer(&call, &permit, body).await,
        Service::Queue => queue::answer(&call, &permit, std::mem::take(body)).await,
    }
}

/// Reads the rest of a small body that was rejected unread. Otherwise the connection would close after the answer, and
/// the client's next request would fail.
async fn drop_rest(body: Body) {
    const SIZE_BYTES_MAX: u64 = 64 * 1024;
    const TIME_MAX: Duration = Duration::from_secs(1);
    if body.size_hint().upper().is_some_and(|size| size <= SIZE_BYTES_MAX) {
        let _ = tokio::time::timeout(TIME_MAX, body.collect()).await;
    }
}
