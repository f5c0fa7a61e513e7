//! One authorised request, and its answer.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderValue, StatusCode};
use peeklock_api::Query;
use peeklock_spec::{Document, Misfit};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::names::Names;
use crate::problem::Problem;
use crate::request::{Head, read_body, shown, tag};
use crate::state::{HttpState, Namespace};

const JSON: &str = "application/json";
/// The size of a page if the query has none.
const PAGE_COUNT_DEFAULT: usize = 100;

/// A request that the token permits, with its query and body.
pub(super) struct Call<Q = (), B = ()> {
    pub(super) state: HttpState,
    pub(super) namespace: Namespace,
    pub(super) head: Head,
    pub(super) names: Names,
    pub(super) query: Q,
    pub(super) body: B,
    /// The parsed JSON of the body, for errors that report a position in it.
    document: Option<Document>,
}

/// A success.
pub(super) struct Answer<A> {
    status: StatusCode,
    revision: Option<u64>,
    body: A,
}

impl Call {
    pub(super) fn new(state: HttpState, namespace: Namespace, head: Head, names: Names) -> Self {
        Call { state, namespace, head, names, query: (), body: (), document: None }
    }

    /// Parses the query and, if the endpoint has one, the body.
    pub(super) async fn read<Q: Query, B: DeserializeOwned>(
        self,
        body: Option<Body>,
    ) -> Result<Call<Q, B>, Problem> {
        let query = Q::read(|name| self.head.query(name)).map_err(|wrong| {
            let given = shown(self.head.query(wrong.name).unwrap_or_default());
            Problem::bad(format!("the query's '{}' is '{given}'; give {}", wrong.name, wrong.wanted))
        })?;
        let document = match body {
            Some(body) => Some(self.document(body).await?),
            None => None,
        };
        let body = match &document {
            Some(document) => document.read().map_err(wrong_body)?,
            // Only `()` is the type of an absent body.
            None => serde_json::from_value(serde_json::Value::Null)
                .map_err(|error| Problem::Unavailable(error.to_string()))?,
        };
        let Call { state, namespace, head, names, .. } = self;
        Ok(Call { state, namespace, head, names, query, body, document })
    }

    async fn document(&self, body: Body) -> Result<Document, Problem> {
        self.head.check_content_type(&[JSON], JSON)?;
        let limits = self.state.limits();
        document(&read_body(body, limits.body_size_bytes_max, limits.body_time_max).await?)
    }
}

impl<Q, B> Call<Q, B> {
    /// Returns the call without its body, and the body.
    pub(super) fn split(self) -> (Call<Q>, B) {
        let Call { state, namespace, head, names, query, body, document } = self;
        (Call { state, namespace, head, names, query, body: (), document }, body)
    }

    /// Returns an error with the position of a misfit in the body.
    pub(super) fn wrong_place(&self, misfit: Misfit) -> Problem {
        let path: Vec<&str> = misfit.path.iter().map(String::as_str).collect();
        match &self.document {
            Some(document) => wrong_body(document.problem(&path, misfit.message)),
            None => Problem::bad(misfit.message),
        }
    }

    /// Returns the number of items on a page, within the limits.
    pub(super) fn page_count(&self, asked: Option<u64>) -> usize {
        let count = asked.map_or(PAGE_COUNT_DEFAULT, |count| usize::try_from(count).unwrap_or(usize::MAX));
        count.clamp(1, self.state.limits().page_count_max)
    }
}

impl<A> Answer<A> {
    pub(super) fn with_status(status: StatusCode, body: A) -> Self {
        Answer { status, revision: None, body }
    }

    pub(super) fn ok(body: A) -> Self {
        Answer::with_status(StatusCode::OK, body)
    }

    pub(super) fn created(body: A) -> Self {
        Answer::with_status(StatusCode::CREATED, body)
    }

    /// Adds the `ETag` of a revision.
    #[must_use]
    pub(super) fn tagged(self, revision: u64) -> Self {
        Answer { revision: Some(revision), ..self }
    }
}

impl Answer<()> {
    /// Returns an answer without content.
    pub(super) fn done() -> Self {
        Answer::with_status(StatusCode::NO_CONTENT, ())
    }
}

impl<A: Serialize> Answer<A> {
    pub(super) fn into_response(self) -> Result<Response, Problem> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        if self.status == StatusCode::NO_CONTENT {
            return Ok(response);
        }
        let body = serde_json::to_vec(&self.body).map_err(|error| Problem::Unavailable(error.to_string()))?;
        *response.body_mut() = body.into();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        if let Some(tag) = self.revision.and_then(|revision| HeaderValue::from_str(&tag(revision)).ok()) {
            response.headers_mut().insert(ETAG, tag);
        }
        Ok(response)
    }
}

/// Parses a body outside of a request.
pub(super) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    document(body)?.read().map_err(wrong_body)
}

/// Parses the JSON of a body. An empty body is equal to `{}`.
fn document(body: &Bytes) -> Result<Document, Problem> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    peeklock_spec::utf8(body).and_then(Document::json).map_err(wrong_body)
}

fn wrong_body(error: peeklock_spec::Problem) -> Problem {
    Problem::bad(format!("the body is not as it should be: {error}"))
}
