//! Decides which web pages may use the broker.
//!
//! A browser sends the requests of any page to the programs on its machine. Clients of the broker are not browsers, so three headers that
//! browsers always send keep foreign pages out:
//!
//! - `Host`: a page whose own name was made to resolve to 127.0.0.1 (DNS rebinding) still sends that name. Listeners on loopback accept IP
//!   addresses, names of this machine, names of Azure's services and configured names only. Other listeners require keys of their own.
//! - `Origin`: a page that opens a WebSocket or sends a request with effects is named here. It must come from the broker itself or be allowed
//!   by name.
//! - `Sec-Fetch-Site`: a page that loads an image or a script has no `Origin`, but is called `cross-site` here.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use axum::body::Body;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Response, StatusCode};
use peeklock_web::{host_of, shown};

use super::Visit;
use super::http::plain;

/// Hosts that only Azure's own DNS resolves. Clients send them to a broker that stands in for the service.
const AZURE_HOSTS: [&str; 2] = [".servicebus.windows.net", ".core.windows.net"];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const PRIVATE_NETWORK_REQUEST: HeaderName = HeaderName::from_static("access-control-request-private-network");
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");
/// How long a browser may remember the answer to its question, in seconds.
const PREFLIGHT_TIME_S: &str = "600";

/// The web pages and host names that the listeners accept, beside those of this machine.
#[derive(Clone, Debug, Default)]
pub struct WebPages {
    /// Host names in requests to loopback listeners.
    pub hosts: Vec<String>,
    /// The origins of pages that may use the broker from a browser.
    pub origins: Vec<WebOrigin>,
}

/// The origin of web pages, such as `https://shop.example:8443`: scheme, host, and the port unless it is that of the scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin {
    scheme: String,
    authority: String,
}

/// The error of a text that is no origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the origin of a web page; write scheme, host and port without a path, such as https://shop.example or http://localhost:3000"
)]
pub struct NotAnOrigin;

impl FromStr for WebOrigin {
    type Err = NotAnOrigin;

    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let (scheme, authority) = text.split_once("://").ok_or(NotAnOrigin)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let is_authority = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:[]".contains(&byte);
        let fits = !scheme.is_empty()
            && !authority.is_empty()
            && scheme.bytes().all(is_scheme)
            && authority.bytes().all(is_authority);
        if !fits {
            return Err(NotAnOrigin);
        }
        let scheme = scheme.to_ascii_lowercase();
        let authority = without_port_of(&scheme, authority).to_ascii_lowercase();
        Ok(WebOrigin { scheme, authority })
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// Removes the port if it is that of the scheme.
fn without_port_of<'a>(scheme: &str, authority: &'a str) -> &'a str {
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return authority,
    };
    authority.strip_suffix(port).unwrap_or(authority)
}

impl WebPages {
    /// Adds a host name that loopback listeners accept.
    pub(crate) fn with_hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts.extend(hosts);
        self
    }

    /// Returns the allowed origin of the request, or `None` if no foreign page has sent it; or the response that rejects it.
    pub(crate) fn admit<B>(
        &self,
        request: &Request<B>,
        scheme: &Scheme,
        visit: Visit,
    ) -> Result<Option<HeaderValue>, Box<Response<Body>>> {
        let headers = request.headers();
        let written = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
        let addressed = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let hosts: Vec<&[u8]> = written.chain(addressed).collect();
        if visit.is_loopback
            && let Some(host) = hosts.iter().find(|host| !self.is_host(host))
        {
            return Err(refusal(StatusCode::MISDIRECTED_REQUEST, foreign_host(host)));
        }
        let mut allowed = None;
        for origin in headers.get_all(header::ORIGIN) {
            if hosts.iter().any(|host| is_same(origin.as_bytes(), scheme, host)) {
                continue;
            }
            if !self.is_allowed(origin.as_bytes()) {
                return Err(refusal(StatusCode::FORBIDDEN, foreign_origin(origin.as_bytes())));
            }
            allowed = Some(origin.clone());
        }
        let is_cross_site = headers.get_all(SEC_FETCH_SITE).iter().any(|site| site == "cross-site");
        if is_cross_site && allowed.is_none() {
            return Err(refusal(StatusCode::FORBIDDEN, FOREIGN_PAGE.to_owned()));
        }
        Ok(allowed)
    }

    fn is_host(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let host = host_of(host).to_ascii_lowercase();
        let host = host.strip_suffix('.').unwrap_or(&host);
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        // A page with an IP address in its own address cannot have been rebound.
        address.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || AZURE_HOSTS.iter().any(|suffix| host.ends_with(suffix))
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    fn is_allowed(&self, origin: &[u8]) -> bool {
        parse(origin).is_some_and(|origin| self.origins.contains(&origin))
    }
}

fn parse(origin: &[u8]) -> Option<WebOrigin> {
    std::str::from_utf8(origin).ok()?.parse().ok()
}

/// Returns whether a page of this origin was loaded from the host of the request. The scheme is not compared, because a proxy may have
/// removed TLS.
fn is_same(origin: &[u8], scheme: &Scheme, host: &[u8]) -> bool {
    let (Some(origin), Ok(host)) = (parse(origin), std::str::from_utf8(host)) else { return false };
    let as_sent = without_port_of(&origin.scheme, host);
    let as_received = without_port_of(scheme.as_str(), host);
    matches!(origin.scheme.as_str(), "http" | "https")
        && (origin.authority.eq_ignore_ascii_case(as_sent)
            || origin.authority.eq_ignore_ascii_case(as_received))
}

const FOREIGN_PAGE: &str = "A web page of another origin has sent this request, so it was refused. If the page is yours, start the broker with \
     --allow-origin and the origin of the page, such as --allow-origin http://localhost:3000.";

fn foreign_origin(origin: &[u8]) -> String {
    let origin = shown(&String::from_utf8_lossy(origin));
    format!(
        "A web page of the origin '{origin}' has sent this request, and that origin is not allowed here. If the page is yours, start the \
         broker with --allow-origin {origin}."
    )
}

fn foreign_host(host: &[u8]) -> String {
    let host = shown(&String::from_utf8_lossy(host));
    let name = host_of(&host);
    format!(
        "The host '{name}' is not a name of this broker, which listens on this machine only. A web page could have sent the request under \
         that name. Connect to localhost, or start the broker with --allow-host {name}."
    )
}

fn refusal(status: StatusCode, text: String) -> Box<Response<Body>> {
    Box::new(plain(status, text))
}

/// Returns the answer to a browser that asks whether an allowed page may send a request.
pub(crate) fn preflight<B>(request: &Request<B>, origin: &HeaderValue) -> Option<Response<Body>> {
    let headers = request.headers();
    let method = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    if request.method() != Method::OPTIONS {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answers = response.headers_mut();
    answers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(names) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if headers.contains_key(PRIVATE_NETWORK_REQUEST) {
        answers.insert(PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    answers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_TIME_S));
    show_to(&mut response, origin);
    Some(response)
}

/// Lets the allowed page read the response.
pub(crate) fn show_to(response: &mut Response<Body>, origin: &HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::listen::Door;

    fn pages() -> WebPages {
        let origins =
            vec!["https://shop.example".parse().unwrap(), "http://localhost:3000/".parse().unwrap()];
        WebPages { hosts: vec!["broker.example".to_owned()], origins }
    }

    /// Returns the status of the rejection, or the allowed origin.
    fn ask(is_loopback: bool, headers: &[(&str, &str)]) -> Result<Option<String>, StatusCode> {
        let mut request = Request::builder().uri("/api/queues");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        let visit = Visit { door: Door::Any, is_loopback, from, has_seat: true };
        let admitted = pages().admit(&request.body(()).unwrap(), &Scheme::HTTP, visit);
        admitted
            .map(|origin| origin.map(|origin| origin.to_str().unwrap().to_owned()))
            .map_err(|response| response.status())
    }

    #[test]
    fn a_loopback_listener_accepts_names_of_this_machine_and_configured_ones() {
        for host in [
            "localhost",
            "LocalHost:5300",
            "localhost.:5300",
            "east.localhost:5300",
            "127.0.0.1:5300",
            "[::1]:5300",
            "192.0.2.1",
            "Shop.servicebus.windows.net",
            "devstoreaccount1.blob.core.windows.net:443",
            "broker.example:5300",
        ] {
            assert_eq!(ask(true, &[("host", host)]), Ok(None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "evil-localhost", "1.2.3.4.evil.example", ""] {
            assert_eq!(ask(true, &[("host", host)]), Err(StatusCode::MISDIRECTED_REQUEST), "{host}");
            assert_eq!(ask(false, &[("host", host)]), Ok(None), "{host}");
        }
        assert_eq!(ask(true, &[]), Ok(None), "a client of HTTP/1.0 sends no host");
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(ask(true, &two), Err(StatusCode::MISDIRECTED_REQUEST));
    }

    #[test]
    fn a_foreign_origin_is_rejected_unless_it_is_allowed() {
        let from = |origin: &str| ask(false, &[("host", "localhost:5300"), ("origin", origin)]);
        assert_eq!(from("http://localhost:5300"), Ok(None));
        assert_eq!(from("https://LOCALHOST:5300"), Ok(None), "a proxy has removed TLS");
        assert_eq!(from("https://shop.example:443"), Ok(Some("https://shop.example:443".to_owned())));
        assert_eq!(from("http://localhost:3000"), Ok(Some("http://localhost:3000".to_owned())));
        for foreign in [
            "http://localhost",
            "http://localhost:3001",
            "http://shop.example",
            "https://shop.example.evil",
            "null",
            "",
            "chrome-extension://localhost:5300",
        ] {
            assert_eq!(from(foreign), Err(StatusCode::FORBIDDEN), "{foreign}");
        }
    }

    #[test]
    fn the_port_of_the_scheme_may_be_omitted() {
        let same = |origin: &str, host: &str| {
            assert_eq!(ask(false, &[("host", host), ("origin", origin)]), Ok(None), "{origin} {host}");
        };
        same("https://broker.example", "broker.example");
        same("https://broker.example", "broker.example:443");
        same("http://broker.example", "broker.example:80");
        same("http://[::1]:5300", "[::1]:5300");
    }

    #[test]
    fn a_page_without_an_origin_is_known_by_its_site() {
        let site = |site: &str| ask(true, &[("host", "localhost"), ("sec-fetch-site", site)]);
        assert_eq!(site("cross-site"), Err(StatusCode::FORBIDDEN));
        for own in ["none", "same-origin", "same-site"] {
            assert_eq!(site(own), Ok(None), "{own}");
        }
        let allowed =
            [("host", "localhost"), ("origin", "https://shop.example"), ("sec-fetch-site", "cross-site")];
        assert_eq!(ask(true, &allowed), Ok(Some("https://shop.example".to_owned())));
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_nothing_else() {
        for text in ["https://a.example", "HTTP://A:80", "http://[::1]:3000", "tauri://localhost"] {
            assert!(text.parse::<WebOrigin>().is_ok(), "{text}");
        }
        assert_eq!("HTTP://A:80".parse::<WebOrigin>().unwrap().to_string(), "http://a");
        for text in
            ["*", "null", "a.example", "https://", "https://a/b", "https://a,https://b", "https://u@a"]
        {
            assert_eq!(text.parse::<WebOrigin>(), Err(NotAnOrigin), "{text}");
        }
    }

    #[test]
    fn an_allowed_page_gets_the_answer_to_its_question() {
        let request = Request::builder()
            .method(Method::OPTIONS)
            .header("access-control-request-method", "PUT")
            .header("access-control-request-headers", "authorization,x-ms-date")
            .header("access-control-request-private-network", "true")
            .body(())
            .unwrap();
        let origin = HeaderValue::from_static("https://shop.example");
        let response = preflight(&request, &origin).unwrap();
        let answer = |name: &str| response.headers().get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert_eq!(answer("access-control-allow-origin"), "https://shop.example");
        assert_eq!(answer("access-control-allow-methods"), "PUT");
        assert_eq!(answer("access-control-allow-headers"), "authorization,x-ms-date");
        assert_eq!(answer("access-control-allow-private-network"), "true");
        assert_eq!(answer("vary"), "Origin");
        assert!(preflight(&Request::new(()), &origin).is_none());
    }
}
