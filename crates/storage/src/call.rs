//! A request without its body: its target in parts, and its account.

use std::borrow::Cow;

use axum::body::Body;
use bytes::Bytes;
use http::header::{HOST, HeaderName};
use http::request::Parts;
use http::uri::Scheme;
use http::{HeaderValue, Method};
use peeklock_types::Timestamp;
use peeklock_web::{host_of, read_body, shown};
use percent_encoding::percent_decode_str;

use crate::account::Account;
use crate::blob::Uploads;
use crate::problem::Problem;
use crate::{Limits, Service, Storage};

pub(crate) const VERSION: HeaderName = HeaderName::from_static("x-ms-version");
/// The default protocol version, for requests that specify none.
pub(crate) const VERSION_USUAL: &str = "2021-12-02";
/// The oldest supported protocol version. Earlier ones sign requests in other ways and have other lists.
const VERSION_OLDEST: &str = "2015-02-21";

/// One request with its service and account.
pub(crate) struct Call<'s> {
    pub(crate) service: Service,
    pub(crate) account: &'s Account,
    pub(crate) limits: &'s Limits,
    pub(crate) uploads: &'s Uploads,
    pub(crate) parts: Parts,
    /// The container or queue in the path, after the account.
    pub(crate) container: Option<String>,
    /// The rest of the path: a blob with all its slashes, or `messages` and the segments after it.
    pub(crate) inside: Option<String>,
    query: Vec<(String, String)>,
}

impl<'s> Call<'s> {
    pub(crate) fn new(storage: &'s Storage, service: Service, parts: Parts) -> Result<Self, Problem> {
        check_version(&parts)?;
        let (account, path) = target(storage, service, &parts)?;
        let (container, inside) = match path.split_once('/') {
            Some((container, inside)) => (container, Some(inside).filter(|inside| !inside.is_empty())),
            None => (path, None),
        };
        let container = Some(container).filter(|container| !container.is_empty());
        if container.is_none() && inside.is_some() {
            return Err(invalid_uri(
                "the path has an empty part where the name of a container or queue belongs",
            ));
        }
        let container = container.map(decode).transpose()?;
        let inside = inside.map(decode).transpose()?;
        let query = parts.uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = pairs
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(key)?.to_lowercase(), decode(value)?))
            })
            .collect::<Result<Vec<_>, Problem>>()?;
        let (limits, uploads) = (&storage.0.limits, &storage.0.uploads);
        Ok(Call { service, account, limits, uploads, parts, container, inside, query })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.account.broker.clock().now()
    }

    pub(crate) fn method(&self) -> &Method {
        &self.parts.method
    }

    /// Returns the path as sent, which is part of the signed text.
    pub(crate) fn raw_path(&self) -> &str {
        self.parts.uri.path()
    }

    /// Returns a value of the query. Names are in lower case.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn queries(&self) -> &[(String, String)] {
        &self.query
    }

    /// Returns a number in the query, within limits.
    pub(crate) fn query_number(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.query(name) else { return Ok(None) };
        let number: u64 =
            text.parse().map_err(|_| Problem::query(name, format!("is '{}'; give a number", shown(text))))?;
        if number < min || number > max {
            return Err(Problem::out_of_range(name, format!("is {number}; give one from {min} to {max}")));
        }
        Ok(Some(number))
    }

    pub(crate) fn header(&self, name: impl http::header::AsHeaderName) -> Option<Cow<'_, str>> {
        self.parts.headers.get(name).map(text_of)
    }

    /// Returns the host and port as the client wrote them.
    pub(crate) fn authority(&self) -> Cow<'_, str> {
        authority(&self.parts)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.scheme() == &Scheme::HTTPS
    }

    fn scheme(&self) -> &Scheme {
        self.parts.extensions.get::<Scheme>().unwrap_or(&Scheme::HTTP)
    }

    /// Returns the address of the account, for lists.
    pub(crate) fn endpoint(&self) -> String {
        let base = format!("{}://{}/", self.scheme(), self.authority());
        if names_account(host_of(&self.authority()), self.service, &self.account.name) {
            base
        } else {
            format!("{base}{}", self.account.name)
        }
    }

    /// Reads the body within the limits of size and time.
    pub(crate) async fn read_body(&self, body: Body, limit_bytes: usize) -> Result<Bytes, Problem> {
        Ok(read_body(body, limit_bytes, self.limits.body_time_max).await?)
    }
}

fn check_version(parts: &Parts) -> Result<(), Problem> {
    let Some(version) = parts.headers.get(VERSION) else { return Ok(()) };
    let version = text_of(version);
    if !is_version(&version) {
        let text = format!(
            "is '{}'; send one such as {VERSION_USUAL}, not before {VERSION_OLDEST}",
            shown(&version)
        );
        return Err(Problem::header("x-ms-version", text));
    }
    Ok(())
}

pub(crate) fn is_version(version: &str) -> bool {
    crate::time::parse_iso(version).is_some()
        && version.len() == VERSION_OLDEST.len()
        && version >= VERSION_OLDEST
}

/// Returns the account and the path after it. The account is in the host name, as in the services, or at the start of
/// the path, as in the emulators.
fn target<'s, 'p>(
    storage: &'s Storage,
    service: Service,
    parts: &'p Parts,
) -> Result<(&'s Account, &'p str), Problem> {
    let path = parts.uri.path().strip_prefix('/').unwrap_or_default();
    let authority = authority(parts);
    let host = host_of(&authority);
    let by_host = || storage.0.accounts.iter().find(|account| names_account(host, service, &account.name));
    if let Some(account) = by_host() {
        return Ok((account, path));
    }
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        let text = "the path names no account; addresses here begin with it, as in http://127.0.0.1:10000/devstoreaccount1";
        return Err(invalid_uri(text));
    }
    match storage.account(name) {
        Some(account) => Ok((account, rest)),
        None => Err(Problem::authentication(format!(
            "there is no storage account '{}'; the first screen of the broker has the connection string",
            shown(name)
        ))),
    }
}

/// Returns whether a host is `<account>.<service>.…`.
fn names_account(host: &str, service: Service, account: &str) -> bool {
    let mut labels = host.split('.');
    labels.next().is_some_and(|label| label.eq_ignore_ascii_case(account))
        && labels.next().is_some_and(|label| label.eq_ignore_ascii_case(service.name()))
}

fn authority(parts: &Parts) -> Cow<'_, str> {
    let of_target = || parts.uri.authority().map(|authority| Cow::from(authority.as_str()));
    parts.headers.get(HOST).map(text_of).or_else(of_target).unwrap_or_else(|| Cow::from("localhost"))
}

/// Decodes a header value, which is UTF-8 from some clients and Latin-1 from others.
pub(crate) fn text_of(value: &HeaderValue) -> Cow<'_, str> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Cow::from(text),
        Err(_) => value.as_bytes().iter().map(|byte| char::from(*byte)).collect(),
    }
}

/// Decodes percent escapes. A plus stays a plus: signatures are base64, and clients write spaces as `%20`.
fn decode(text: &str) -> Result<String, Problem> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| invalid_uri("the address is not UTF-8 behind its percent signs"))?;
    Ok(decoded.into_owned())
}

fn invalid_uri(text: &str) -> Problem {
    Problem::bad("InvalidUri", text)
}
