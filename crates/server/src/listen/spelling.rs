//! The spelling of header names in a request and its response.
//!
//! Hyper shows header names in lower case. It stores their spelling in a private extension of the request, and writes a response with the
//! same extension in that spelling. Only hyper can read or create the extension, so this module lets hyper do it on an in-memory connection
//! with one request and one response.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use hyper::http::{Extensions, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use peeklock_storage::Spelling;

/// Returns the spelling of the metadata headers, if there are any.
pub(crate) async fn of<B>(request: &Request<B>) -> Option<Spelling> {
    let mut headers = HeaderMap::new();
    for name in request.headers().keys().filter(|name| name.as_str().starts_with(Spelling::PREFIX)) {
        headers.insert(name.clone(), HeaderValue::from_static("-"));
    }
    if headers.is_empty() {
        return None;
    }
    let (_, written) = exchange(Vec::new(), headers, request.extensions().clone()).await?;
    let lines = String::from_utf8(written).ok()?;
    let names = lines.split("\r\n").filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    let is_ours = |name: &&str| {
        name.get(..Spelling::PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(Spelling::PREFIX))
    };
    Some(Spelling(names.filter(is_ours).map(str::to_owned).collect()))
}

/// Makes hyper write the response with its [`Spelling`].
pub(crate) async fn apply(response: &mut Response<Body>) {
    let Some(Spelling(names)) = response.extensions_mut().remove() else { return };
    if names.iter().all(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase())) {
        return;
    }
    if let Some((kept, _)) = exchange(names, HeaderMap::new(), Extensions::new()).await {
        response.extensions_mut().extend(kept);
    }
}

/// Returns the extension of a request with these header names, and the text of a response.
async fn exchange(
    names: Vec<String>,
    headers: HeaderMap,
    beside: Extensions,
) -> Option<(Extensions, Vec<u8>)> {
    let lines: String = names.iter().map(|name| format!("{name}: -\r\n")).collect();
    let asked = format!("GET / HTTP/1.1\r\n{lines}\r\n");
    let (kept, answer) = (Mutex::new(None), Mutex::new(Some((headers, beside))));
    let service = service_fn(|request: Request<hyper::body::Incoming>| {
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.into_parts().0.extensions);
        let mut response = Response::new(Body::empty());
        if let Some((headers, beside)) = answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            (*response.headers_mut(), *response.extensions_mut()) = (headers, beside);
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut builder = http1::Builder::new();
    // The input ends after the request, which must be answered nevertheless.
    builder.half_close(true);
    builder.keep_alive(false).preserve_header_case(true).max_headers(names.len().max(1));
    let stream = TokioIo::new(tokio::io::join(asked.as_bytes(), Vec::new()));
    let ended = builder.serve_connection(stream, service).without_shutdown().await.ok()?;
    let (_, written) = ended.io.into_inner().into_inner();
    Some((kept.into_inner().unwrap_or_else(PoisonError::into_inner)?, written))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]
mod tests {
    use super::*;

    /// The spelling of a request is read, and a response is written with a given spelling.
    #[tokio::test]
    async fn header_names_keep_their_spelling() {
        let names = ["x-ms-meta-OwnerId", "X-MS-Meta-a_1", "Content-Type"].map(str::to_owned).to_vec();
        let (beside, _) = exchange(names, HeaderMap::new(), Extensions::new()).await.unwrap();
        let mut request = Request::builder()
            .header("x-ms-meta-ownerid", "anna")
            .header("x-ms-meta-a_1", "")
            .header("content-type", "text/plain")
            .body(())
            .unwrap();
        *request.extensions_mut() = beside;
        let mut told = of(&request).await.unwrap();
        told.0.sort();
        assert_eq!(told.0, ["X-MS-Meta-a_1", "x-ms-meta-OwnerId"]);

        let mut response = Response::new(Body::empty());
        response.headers_mut().insert("x-ms-meta-ownerid", HeaderValue::from_static("anna"));
        response.extensions_mut().insert(told);
        apply(&mut response).await;
        let (parts, _) = response.into_parts();
        let (_, written) = exchange(Vec::new(), parts.headers, parts.extensions).await.unwrap();
        let written = String::from_utf8(written).unwrap();
        assert!(written.contains("\r\nx-ms-meta-OwnerId: anna\r\n"), "{written}");
    }

    #[tokio::test]
    async fn a_request_without_metadata_has_no_spelling() {
        assert_eq!(of(&Request::new(())).await, None);
    }
}
