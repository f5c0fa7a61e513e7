//! One HTTP/1.1 connection to the JSON API of a broker.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use peeklock_api::{Endpoint, Query, Refusal};
use serde::Serialize;
use tokio::time::timeout;

use super::error::AdminError;
use super::subject::Subject;
use crate::client::Options;
use crate::sas::Signer;
use crate::shared::ANSWER_TIME_MAX;
use crate::target::Credentials;
use crate::transport::Tcp;
use crate::{Connector, Target};

/// The size limit of an answer. A page of a thousand entities has approximately 1 MiB, so a server that sends more is not a broker.
const ANSWER_SIZE_BYTES_MAX: usize = 64 << 20;

/// The code of a rejection that has the status of a missing right, although no right is missing.
const QUOTA: &str = "quotaExceeded";

/// The code of a rejection because another request changes the subject at the same time. It does not mean that the subject exists.
const CONFLICT: &str = "conflict";

/// A client that connects with its first request, and again when the broker has closed the connection in the meantime.
pub(super) struct Http {
    target: Target,
    connector: Arc<dyn Connector>,
    authorization: Authorization,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// The proof of a key in a request.
enum Authorization {
    None,
    Signed(Signer),
    /// The same header for every request.
    Constant(String),
}

/// The condition of a request. If it is not met, the broker changes nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum If {
    Any,
    IsNew,
    Exists,
    /// The subject still has this revision.
    Is(u64),
}

pub(super) struct Call<'a> {
    method: Method,
    uri: String,
    subject: &'a Subject,
    condition: If,
    /// Whether the request also affects other entities, so that a token for this one is not enough.
    reaches_out: bool,
    /// The body as JSON.
    body: Option<Vec<u8>>,
}

impl<'a> Call<'a> {
    pub(super) fn new<Q: Query, B, A>(
        endpoint: &Endpoint<Q, B, A>,
        subject: &'a Subject,
        query: &Q,
        condition: If,
    ) -> Self {
        let names = subject.names();
        let names: Vec<_> = names.iter().map(|(key, name)| (*key, name.as_str())).collect();
        let (method, uri) = (endpoint.method.clone(), endpoint.uri(&names, query));
        Call { method, uri, subject, condition, reaches_out: false, body: None }
    }

    pub(super) fn with_body(self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("bodies have text keys and only numbers that JSON allows");
        Call { body: Some(body), ..self }
    }

    pub(super) fn reaching_out(self, reaches_out: bool) -> Self {
        Call { reaches_out, ..self }
    }
}

impl Http {
    pub(super) fn new(target: &Target, options: &Options) -> Self {
        let connector = Arc::new(Tcp { target: target.clone(), options: options.clone() });
        let authorization = Signer::of_target(target).map_or(Authorization::None, Authorization::Signed);
        Self { target: target.clone(), connector, authorization, connection: None }
    }

    pub(super) fn over(target: &Target, connector: Arc<dyn Connector>) -> Self {
        let authorization = match &target.credentials {
            // A secret does not expire. The broker's clock may be far ahead of this one, in tests on virtual time.
            Credentials::Plain { user, secret } => {
                let pair = BASE64.encode(format!("{user}:{secret}"));
                Authorization::Constant(format!("Basic {pair}"))
            }
            _ => Signer::of_target(target).map_or(Authorization::None, Authorization::Signed),
        };
        Self { target: target.clone(), connector, authorization, connection: None }
    }

    /// Sends a request and returns the body of the answer. A status other than success is an error.
    pub(super) async fn call(&mut self, call: Call<'_>) -> Result<Bytes, AdminError> {
        let request =
            self.request(&call).map_err(|error| AdminError::Request { reason: error.to_string() })?;
        let connection = self.connect().await?;
        let answer = timeout(ANSWER_TIME_MAX, answer(connection, request)).await;
        let address = self.target.address();
        match answer {
            Ok(Ok((status, body))) if (200..300).contains(&status) => Ok(body),
            Ok(Ok((status, body))) => Err(refusal(call.subject, call.condition, status, &body)),
            Ok(Err(failure)) => {
                self.connection = None;
                Err(failure.into_error(address))
            }
            Err(_) => {
                // A late answer on this connection would be read as the answer to the next request.
                self.connection = None;
                Err(AdminError::NoAnswer { address, after: ANSWER_TIME_MAX })
            }
        }
    }

    pub(super) fn malformed(&self, reason: impl ToString) -> AdminError {
        AdminError::Malformed { address: self.target.address(), reason: reason.to_string() }
    }

    fn request(&self, call: &Call<'_>) -> hyper::http::Result<Request<Full<Bytes>>> {
        let mut request =
            Request::builder().method(&call.method).uri(&call.uri).header(HOST, self.target.address());
        request = match &self.authorization {
            Authorization::None => request,
            Authorization::Signed(signer) => {
                let entity = if call.reaches_out { String::new() } else { call.subject.token_entity() };
                request.header(AUTHORIZATION, signer.token(&entity))
            }
            Authorization::Constant(header) => request.header(AUTHORIZATION, header),
        };
        request = match call.condition {
            If::Any => request,
            If::IsNew => request.header(IF_NONE_MATCH, "*"),
            If::Exists => request.header(IF_MATCH, "*"),
            If::Is(revision) => request.header(IF_MATCH, format!("\"{revision}\"")),
        };
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(call.body.clone().unwrap_or_default()));
        request.body(body)
    }

    async fn connect(&mut self) -> Result<&mut SendRequest<Full<Bytes>>, AdminError> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            return Ok(self.connection.insert(connection));
        }
        let connection = self.dial().await?;
        Ok(self.connection.insert(connection))
    }

    async fn dial(&self) -> Result<SendRequest<Full<Bytes>>, AdminError> {
        let stream = self.connector.connect().await?;
        let (requests, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.malformed(error))?;
        // The task ends with the last handle. A pending call gets its error.
        tokio::spawn(connection);
        Ok(requests)
    }
}

enum Failure {
    Lost(String),
    Strange(String),
}

impl Failure {
    fn into_error(self, address: String) -> AdminError {
        match self {
            Failure::Lost(reason) => AdminError::ConnectionLost { address, reason },
            Failure::Strange(reason) => AdminError::Malformed { address, reason },
        }
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse() { Failure::Strange(error.to_string()) } else { Failure::Lost(error.to_string()) }
    }
}

async fn answer(
    connection: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), Failure> {
    let response: Response<Incoming> = connection.send_request(request).await?;
    let status = response.status().as_u16();
    match Limited::new(response.into_body(), ANSWER_SIZE_BYTES_MAX).collect().await {
        Ok(body) => Ok((status, body.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::Strange(format!("the answer has more than {ANSWER_SIZE_BYTES_MAX} bytes")))
        }
        Err(error) => Err(Failure::Lost(error.to_string())),
    }
}

fn refusal(subject: &Subject, condition: If, status: u16, body: &[u8]) -> AdminError {
    let told = subject.to_string();
    let (code, reason) = match serde_json::from_slice::<Refusal>(body) {
        Ok(Refusal { error }) => (error.code, error.message),
        // The body is not from the JSON API. Its start may help the user.
        Err(_) => (String::new(), String::from_utf8_lossy(body).chars().take(200).collect()),
    };
    let not_found = || {
        let missing = subject.missing();
        AdminError::NotFound { subject: missing.to_string(), remedy: missing.remedy() }
    };
    match status {
        403 if code == QUOTA => AdminError::Refused { subject: told, status, code, reason },
        401 | 403 => AdminError::Unauthorized { subject: told, reason },
        404 if matches!(subject, Subject::OfHub { .. }) && !reason.is_empty() => {
            AdminError::Missing { reason }
        }
        // A new subject cannot be missing. The broker's message names the missing part.
        404 if condition != If::IsNew => not_found(),
        412 if condition == If::Exists => not_found(),
        412 if matches!(condition, If::Is(_)) => AdminError::Changed { subject: told },
        409 | 412 if condition == If::IsNew && code != CONFLICT => {
            AdminError::Exists { subject: subject.rival(), remedy: subject.change() }
        }
        _ => AdminError::Refused { subject: told, status, code, reason },
    }
}
