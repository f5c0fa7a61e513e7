//! The rejection of a request, for ATOM and JSON clients.

use std::time::Duration;

use axum::response::Response;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use peeklock_access::TokenError;
use peeklock_api::{Refusal, RefusalText};
use peeklock_broker::blob::Error as BlobsError;
use peeklock_broker::engine::Error as EngineError;
use peeklock_broker::hubs::Error as HubsError;
use peeklock_broker::{AdminError, BEHIND_RETRY_AFTER, Error};
use peeklock_filter::{RuleError, RuleNameError};
use peeklock_types::{NameError, SettingsError};
use peeklock_web::BodyError;
use peeklock_web::xml::{Writer, XmlError};

/// A rejection. Its text is for people and contains the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Unauthorized(String),
    /// The token is valid, but does not permit this request.
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{method} is not possible here; use {allow}")]
    Method { method: String, allow: String },
    #[error("{0}")]
    Exists(String),
    /// The request conflicts with a concurrent operation; the same request can succeed later.
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Precondition(String),
    #[error("the body has more than {limit_bytes} bytes; send less, or raise the limit on management bodies")]
    TooLarge { limit_bytes: usize },
    #[error("the body's content type is '{given}'; send {wanted}")]
    MediaType { given: String, wanted: &'static str },
    #[error("the body did not come within {seconds} s; send the request again")]
    Slow { seconds: u64 },
    #[error("{0}")]
    Quota(String),
    /// A rate limit is exceeded.
    #[error("{text}")]
    Throttled { text: String, retry_after: Duration },
    #[error("{0}")]
    Unavailable(String),
}

impl Problem {
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Problem::BadRequest(text.into())
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Problem::BadRequest(_) => StatusCode::BAD_REQUEST,
            Problem::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Problem::Forbidden(_) | Problem::Quota(_) => StatusCode::FORBIDDEN,
            Problem::NotFound(_) => StatusCode::NOT_FOUND,
            Problem::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Problem::Exists(_) | Problem::Conflict(_) => StatusCode::CONFLICT,
            Problem::Precondition(_) => StatusCode::PRECONDITION_FAILED,
            Problem::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Problem::MediaType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Problem::Slow { .. } => StatusCode::REQUEST_TIMEOUT,
            Problem::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
            Problem::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the code for programs. A code never changes.
    fn code(&self) -> &'static str {
        match self {
            Problem::BadRequest(_) => "badRequest",
            Problem::Unauthorized(_) => "unauthorized",
            Problem::Forbidden(_) => "forbidden",
            Problem::NotFound(_) => "notFound",
            Problem::Method { .. } => "methodNotAllowed",
            Problem::Exists(_) => "exists",
            Problem::Conflict(_) => "conflict",
            Problem::Precondition(_) => "preconditionFailed",
            Problem::TooLarge { .. } => "tooLarge",
            Problem::MediaType { .. } => "unsupportedMediaType",
            Problem::Slow { .. } => "slow",
            Problem::Quota(_) => "quotaExceeded",
            Problem::Throttled { .. } => "throttled",
            Problem::Unavailable(_) => "unavailable",
        }
    }

    pub(crate) fn into_json(self) -> Response {
        let error = RefusalText { code: self.code().to_owned(), message: self.to_string() };
        let body = Refusal { error };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        self.into_response("application/json", body)
    }

    pub(crate) fn into_xml(self) -> Response {
        // SDK quirk: on management calls the SDKs interpret 403 as "quota exceeded", so a missing right is 401, as in
        // the service.
        let problem = match self {
            Problem::Forbidden(text) => Problem::Unauthorized(text),
            other => other,
        };
        let mut detail = problem.to_string();
        // SDK quirk: JavaScript and .NET distinguish "exists" and "try again" by this word.
        if matches!(problem, Problem::Conflict(_)) {
            detail.push_str(" SubCode=40901.");
        }
        let mut writer = Writer::default();
        writer.begin("Error", &[]);
        writer.number("Code", problem.status().as_u16());
        writer.text("Detail", &detail);
        writer.end();
        problem.into_response("application/xml; charset=utf-8", writer.finish().into_bytes())
    }

    fn into_response(self, content_type: &'static str, body: Vec<u8>) -> Response {
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        match &self {
            Problem::Unauthorized(_) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("SharedAccessSignature, Bearer"));
            }
            Problem::Method { allow, .. } => {
                if let Ok(allow) = HeaderValue::from_str(allow) {
                    headers.insert(ALLOW, allow);
                }
            }
            Problem::Throttled { retry_after, .. } => {
                // Rounded up to whole seconds, so that a client does not retry too early.
                let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
            }
            _ => {}
        }
        response
    }
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { limit_bytes } => Problem::TooLarge { limit_bytes },
            BodyError::Incomplete => Problem::bad(error.to_string()),
            BodyError::Slow { seconds } => Problem::Slow { seconds },
        }
    }
}

impl From<XmlError> for Problem {
    fn from(error: XmlError) -> Self {
        Problem::bad(error.to_string())
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Problem::bad(error.to_string())
    }
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        Problem::bad(error.to_string())
    }
}

impl From<RuleError> for Problem {
    fn from(error: RuleError) -> Self {
        Problem::bad(error.to_string())
    }
}

impl From<RuleNameError> for Problem {
    fn from(error: RuleNameError) -> Self {
        Problem::bad(error.to_string())
    }
}

impl From<&AdminError> for Problem {
    fn from(error: &AdminError) -> Self {
        let text = error.to_string();
        match error {
            AdminError::Refused(Error::Engine(error)) => of_engine(error, text),
            AdminError::Refused(Error::Hub(error)) => of_hubs(error, text),
            AdminError::Refused(Error::Blob(error)) => of_blobs(error, text),
            AdminError::Refused(Error::NameTaken { .. }) => Problem::Exists(text),
            AdminError::Refused(Error::DiskFull | Error::Quota(_)) => Problem::Quota(text),
            AdminError::Refused(Error::Behind) => {
                Problem::Throttled { text, retry_after: BEHIND_RETRY_AFTER }
            }
            AdminError::Refused(_) => Problem::BadRequest(text),
            AdminError::Stopped(_) => Problem::Unavailable(text),
        }
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        Problem::from(&error)
    }
}

fn of_engine(error: &EngineError, text: String) -> Problem {
    match error {
        EngineError::AlreadyExists { .. } | EngineError::RuleExists { .. } => Problem::Exists(text),
        EngineError::NoSuchQueue { .. }
        | EngineError::NoSuchTopic { .. }
        | EngineError::NoSuchEntity { .. }
        | EngineError::NoSuchRule { .. }
        | EngineError::NoSuchMessage { .. } => Problem::NotFound(text),
        EngineError::Throttled { retry_after, .. } => Problem::Throttled { text, retry_after: *retry_after },
        EngineError::RevisionChanged { .. } => Problem::Precondition(text),
        EngineError::StillSending { .. } => Problem::Conflict(text),
        EngineError::TopicFull { .. } | EngineError::NoEntityLeft => Problem::Quota(text),
        _ => Problem::BadRequest(text),
    }
}

fn of_hubs(error: &HubsError, text: String) -> Problem {
    match error {
        HubsError::NoSuchHub { .. }
        | HubsError::NoSuchGroup { .. }
        | HubsError::NoSuchPartition { .. }
        | HubsError::NoSuchStream { .. }
        | HubsError::StreamGone { .. }
        | HubsError::NoCheckpoint => Problem::NotFound(text),
        HubsError::HubExists { .. } | HubsError::GroupExists { .. } => Problem::Exists(text),
        HubsError::Changed { .. } | HubsError::StaleEtag { .. } | HubsError::NeverOwned => {
            Problem::Precondition(text)
        }
        HubsError::NotOwner { .. }
        | HubsError::Owned { .. }
        | HubsError::Backwards { .. }
        | HubsError::OwnerLevel { .. }
        | HubsError::NoOwnerLevel { .. } => Problem::Conflict(text),
        HubsError::TooManyGroups { .. } => Problem::Quota(text),
        HubsError::TooManyReaders { .. } => Problem::Throttled { text, retry_after: Duration::from_secs(1) },
        _ => Problem::BadRequest(text),
    }
}

fn of_blobs(error: &BlobsError, text: String) -> Problem {
    match error {
        BlobsError::NoSuchContainer { .. } | BlobsError::NoSuchBlob { .. } => Problem::NotFound(text),
        BlobsError::ContainerExists { .. } | BlobsError::BlobExists { .. } => Problem::Exists(text),
        BlobsError::ConditionNotMet { .. } => Problem::Precondition(text),
        BlobsError::Lease(_) | BlobsError::ContainerLease(_) => Problem::Conflict(text),
        BlobsError::TooManyContainers | BlobsError::TooManyBlobs | BlobsError::Full => Problem::Quota(text),
        BlobsError::TooLarge { .. }
        | BlobsError::Header
        | BlobsError::NoSuchBlock
        | BlobsError::BlockIdLength
        | BlobsError::TooManyBlocks => Problem::BadRequest(text),
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        Problem::Unauthorized(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttled_answer_has_the_retry_time() {
        let path = peeklock_types::EntityPath::parse("jobs").unwrap();
        let what = "the rate of sending".to_owned();
        let over = EngineError::Throttled { path, what, retry_after: Duration::from_millis(1200) };
        let problem = || Problem::from(AdminError::Refused(over.clone().into()));
        for response in [problem().into_json(), problem().into_xml()] {
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()[RETRY_AFTER], "2", "rounded up to whole seconds");
        }
        assert!(problem().to_string().contains("in 1200 ms"), "{}", problem());
    }
}
