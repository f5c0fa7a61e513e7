//! Headers and bodies that all answers have in common.

use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use peeklock_web::xml::Writer;

use crate::Storage;
use crate::call::{VERSION, VERSION_USUAL, is_version};

pub(crate) const ERROR_CODE: HeaderName = HeaderName::from_static("x-ms-error-code");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
/// The maximum length of an id that an answer repeats, as in the services; longer values are ignored.
const CLIENT_REQUEST_ID_BYTES_MAX: usize = 1024;

/// The ids in an answer: the client's own id, and the number of the request.
pub(crate) struct Trail {
    request_id: String,
    client_request_id: Option<HeaderValue>,
    version: HeaderValue,
}

impl Trail {
    pub(crate) fn of(storage: &Storage, request: &Request) -> Self {
        let headers = request.headers();
        let fits = |id: &&HeaderValue| id.len() <= CLIENT_REQUEST_ID_BYTES_MAX;
        Trail {
            request_id: request_id(storage),
            client_request_id: headers.get(&CLIENT_REQUEST_ID).filter(fits).cloned(),
            version: version(headers),
        }
    }

    pub(crate) fn stamp(self, mut response: Response) -> Response {
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&self.request_id) {
            headers.insert(REQUEST_ID, id);
        }
        if let Some(id) = self.client_request_id {
            headers.insert(CLIENT_REQUEST_ID, id);
        }
        headers.insert(VERSION, self.version);
        headers.insert(http::header::SERVER, HeaderValue::from_static("Peeklock"));
        response
    }
}

fn version(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(&VERSION).filter(|version| version.to_str().is_ok_and(is_version));
    given.cloned().unwrap_or(HeaderValue::from_static(VERSION_USUAL))
}

/// Returns a unique id in the form of a GUID. It differs from the ids of this server and of earlier ones.
fn request_id(storage: &Storage) -> String {
    let number = storage.0.request_count.fetch_add(1, Ordering::Relaxed);
    let started = storage.0.started_at.as_millis();
    let (high, low) = (number >> 48, number & 0xffff_ffff_ffff);
    format!("{:08x}-{:04x}-4000-{:04x}-{low:012x}", (started >> 16) & 0xffff_ffff, started & 0xffff, high)
}

/// Returns an answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Returns an answer with a document.
pub(crate) fn xml(status: StatusCode, document: Writer) -> Response {
    let mut response = Response::new(Body::from(document.finish()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// Adds a header whose value is stored text. A value that is invalid in HTTP is omitted; such values are never stored.
pub(crate) fn put_header(response: &mut Response, name: &HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_bytes(&latin(value)) {
        response.headers_mut().insert(name, value);
    }
}

/// Encodes a header value as Latin-1 if possible, otherwise as UTF-8. SDK quirk: clients encode and decode headers as
/// Latin-1.
fn latin(text: &str) -> Vec<u8> {
    let latin: Option<Vec<u8>> = text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect();
    latin.unwrap_or_else(|| text.as_bytes().to_vec())
}
