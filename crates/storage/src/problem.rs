//! Rejections of requests, in the error format of the storage services.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use peeklock_broker::{AdminError, BEHIND_RETRY_AFTER, Error};
use peeklock_web::BodyError;
use peeklock_web::xml::{Writer, XmlError};

use crate::answer::ERROR_CODE;

/// A rejection. SDKs evaluate the status and the code; the text is for people and contains the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) text: String,
    pub(crate) retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Problem { status, code, text: text.into(), retry_after: None }
    }

    /// Returns the rejection of a valid call that is not supported.
    pub(crate) fn not_supported(text: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", text)
    }

    pub(crate) fn authentication(text: impl Into<String>) -> Self {
        let text = format!("the request could not be authenticated: {}", text.into());
        Problem::new(StatusCode::FORBIDDEN, "AuthenticationFailed", text)
    }

    pub(crate) fn forbidden(code: &'static str, text: impl Into<String>) -> Self {
        Problem::new(StatusCode::FORBIDDEN, code, text)
    }

    pub(crate) fn bad(code: &'static str, text: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, code, text)
    }

    pub(crate) fn header(name: &str, text: impl std::fmt::Display) -> Self {
        Problem::bad("InvalidHeaderValue", format!("the header '{name}' {text}"))
    }

    pub(crate) fn missing_header(name: &str) -> Self {
        Problem::bad("MissingRequiredHeader", format!("the header '{name}' is missing; send it"))
    }

    pub(crate) fn query(name: &str, text: impl std::fmt::Display) -> Self {
        Problem::bad("InvalidQueryParameterValue", format!("the query's '{name}' {text}"))
    }

    pub(crate) fn out_of_range(name: &str, text: impl std::fmt::Display) -> Self {
        Problem::bad("OutOfRangeQueryParameterValue", format!("the query's '{name}' {text}"))
    }

    pub(crate) fn not_found(code: &'static str, text: impl Into<String>) -> Self {
        Problem::new(StatusCode::NOT_FOUND, code, text)
    }

    pub(crate) fn conflict(code: &'static str, text: impl Into<String>) -> Self {
        Problem::new(StatusCode::CONFLICT, code, text)
    }

    pub(crate) fn method(method: &http::Method, known: &str) -> Self {
        let text = format!("{} is not possible here; use {known}", peeklock_web::shown(method.as_str()));
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "UnsupportedHttpVerb", text)
    }

    pub(crate) fn busy(text: impl Into<String>) -> Self {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "ServerBusy", text)
    }

    /// Builds the answer. The answer to a `HEAD` has neither a content type nor a content length.
    // SDK quirk: .NET parses the body of every error that has a content type, and the answer to a `HEAD` has no body.
    pub(crate) fn into_response(self, is_head: bool) -> Response {
        let body = if is_head { no_body() } else { self.document().into() };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if !is_head {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        }
        headers.insert(ERROR_CODE, HeaderValue::from_static(self.code));
        if let Some(retry_after) = self.retry_after {
            // Rounded up to whole seconds, so that a client does not retry too early.
            let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }

    fn document(&self) -> String {
        let mut writer = Writer::document();
        writer.begin("Error", &[]);
        writer.text("Code", self.code);
        writer.text("Message", &self.text);
        writer.end();
        writer.finish()
    }
}

/// Returns an empty body of unknown length: the router adds a header for a known one, even for zero.
fn no_body() -> Body {
    Body::from_stream(Body::empty().into_data_stream())
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        let text = error.to_string();
        match error {
            BodyError::TooLarge { .. } => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", text)
            }
            BodyError::Incomplete => Problem::bad("InvalidInput", text),
            BodyError::Slow { .. } => Problem::new(StatusCode::REQUEST_TIMEOUT, "OperationTimedOut", text),
        }
    }
}

impl From<XmlError> for Problem {
    fn from(error: XmlError) -> Self {
        Problem::bad("InvalidXmlDocument", error.to_string())
    }
}

/// Converts the errors that every call of the broker can return. Calls with more specific codes convert those errors
/// first.
impl From<&AdminError> for Problem {
    fn from(error: &AdminError) -> Self {
        let text = error.to_string();
        match error {
            AdminError::Refused(Error::DiskFull) => {
                Problem::new(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorage", text)
            }
            AdminError::Refused(Error::Behind) => {
                Problem { retry_after: Some(BEHIND_RETRY_AFTER), ..Problem::busy(text) }
            }
            AdminError::Refused(_) => Problem::bad("InvalidInput", text),
            AdminError::Stopped(_) => Problem::busy(text),
        }
    }
}

impl From<AdminError> for Problem {
    fn from(error: AdminError) -> Self {
        Problem::from(&error)
    }
}
