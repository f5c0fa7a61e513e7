//! The storage services over HTTP, as far as they are served: the Blob calls of checkpoint stores, event processors and message stores, and Queue Storage.
//!
//! Translates between requests and the broker, in the services' own forms: shared keys and shared access signatures, path style and host style
//! addresses, XML errors. Has no rules of its own about blobs or queues. Never listens: a server puts the [`router`] of each [`Service`]
//! behind a socket of its own.

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

/// Which of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Blob,
    Queue,
}

impl Service {
    /// As it stands in host names and signatures.
    fn name(self) -> &'static str {
        match self {
            Service::Blob => "blob",
            Service::Queue => "queue",
        }
    }
}

/// All that requests are answered from. Clones share it.
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
    /// An account's name must not repeat: the first counts.
    pub fn new(accounts: Vec<Account>, limits: Limits) -> Self {
        let started_at = accounts.first().map_or(Timestamp::ZERO, |account| account.broker.clock().now());
        let (uploads, request_count) = (Uploads::default(), AtomicU64::new(0));
        Storage(Arc::new(Inner { accounts, limits, uploads, started_at, request_count }))
    }

    fn account(&self, name: &str) -> Option<&Account> {
        self.0.accounts.iter().find(|account| account.name == name)
    }
}

/// Answers every request to one service. Whoever calls it says by an extension of the type [`http::uri::Scheme`] how the client came in, and by
/// a [`Spelling`] how names in metadata were written.
pub fn router(storage: Storage, service: Service) -> Router {
    Router::new().fallback(async move |request: Request| answer(&storage, service, request).await)
}

async fn answer(storage: &Storage, service: Service, request: Request) -> Response {
    let trail = Trail::of(storage, &request);
    let is_head = request.method() == Method::HEAD;
    let answered = serve(storage, service, request).await;
    trail.stamp(answered.unwrap_or_else(|problem| problem.into_response(is_head)))
}

/// A request is authorised before its body is read.
async fn serve(storage: &Storage, service: Service, request: Request) -> Result<Response, Problem> {
    let (parts, mut body) = request.into_parts();
    let answered = answer_parts(storage, service, parts, &mut body).await;
    if answered.is_err() {
        drop_rest(body).await;
    }
    answered
}

/// Takes the body if it reads it.
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

/// Reads what is left of a small body that was refused unread. Otherwise the connection would end behind the answer, and the client's next
/// request with it.
async fn drop_rest(body: Body) {
    const SIZE_BYTES_MAX: u64 = 64 * 1024;
    const TIME_MAX: Duration = Duration::from_secs(1);
    if body.size_hint().upper().is_some_and(|size| size <= SIZE_BYTES_MAX) {
        let _ = tokio::time::timeout(TIME_MAX, body.collect()).await;
    }
}
