//! A storage service over a journal in memory, and a client that signs requests like the SDKs.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http_body_util::BodyExt;
use peeklock_broker::{Broker, Running};
use peeklock_journal::MemoryJournal;
use peeklock_storage::{
    Account, AccountKey, Limits, Service, Storage, WELL_KNOWN_ACCOUNT, WELL_KNOWN_KEY, router,
};
use peeklock_types::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ring::hmac;
use tower::ServiceExt;

pub(crate) const WRONG_KEY: &str = "bm90IHRoZSByaWdodCBvbmU=";
const HOST: &str = "127.0.0.1:10000";
const SAS_VERSION: &str = "2021-06-08";

#[derive(Clone)]
pub(crate) struct Client {
    broker: Broker,
    _running: Arc<Running>,
    routes: axum::Router,
    key: &'static str,
    clock_minutes: i64,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn code(&self) -> &str {
        self.header("x-ms-error-code").unwrap_or_default()
    }
}

impl Client {
    pub(crate) async fn start() -> Self {
        let (broker, running, _) = Broker::open(&MemoryJournal::new(), |_, _| None).await.unwrap();
        let key = AccountKey::parse(WELL_KNOWN_KEY).unwrap();
        let account = Account { name: WELL_KNOWN_ACCOUNT.to_owned(), key, broker: broker.clone() };
        let routes = router(Storage::new(vec![account], Limits::default()), Service::Blob);
        Client { broker, _running: Arc::new(running), routes, key: WELL_KNOWN_KEY, clock_minutes: 0 }
    }

    pub(crate) fn with_key(self, key: &'static str) -> Self {
        Client { key, ..self }
    }

    pub(crate) fn with_clock(self, clock_minutes: i64) -> Self {
        Client { clock_minutes, ..self }
    }

    /// Sends a request; `path` follows the account.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.signed(method, &format!("/{WELL_KNOWN_ACCOUNT}{path}"), headers, body, true).await
    }

    /// Sends a request whose target is the recorded one.
    pub(crate) async fn replay(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.signed(method, target, headers, body, true).await
    }

    /// Sends a request with the account in the host name.
    pub(crate) async fn send_at(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.signed(method, path, headers, "", true).await
    }

    /// Sends a request whose headers are signed in the given order.
    pub(crate) async fn send_sorted(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.signed(method, &format!("/{WELL_KNOWN_ACCOUNT}{path}"), headers, "", false).await
    }

    async fn signed(
        &self,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
        body: &str,
        sort: bool,
    ) -> Answer {
        let date = self.date();
        let mut own = vec![("x-ms-date", date.as_str())];
        own.extend(headers.iter().filter(|(name, _)| name.starts_with("x-ms-")));
        let version = ("x-ms-version", "2021-12-02");
        if !headers.iter().any(|(name, _)| *name == version.0) {
            own.push(version);
        }
        if sort {
            own.sort_by_key(|(name, _)| name.to_lowercase());
        }
        let mut text = format!("{method}\n");
        let length = if body.is_empty() { String::new() } else { body.len().to_string() };
        for name in [
            "",
            "",
            "length",
            "content-md5",
            "content-type",
            "",
            "if-modified-since",
            "if-match",
            "if-none-match",
            "",
            "range",
        ] {
            let found = headers.iter().find(|(header, _)| *header == name).map(|(_, value)| *value);
            text += if name == "length" { &length } else { found.unwrap_or_default() };
            text += "\n";
        }
        for (name, value) in &own {
            text += &format!("{}:{value}\n", name.to_lowercase());
        }
        text += &resource(uri);
        let mut all = own.clone();
        all.extend(headers.iter().filter(|(name, _)| !name.starts_with("x-ms-")));
        let authorization = format!("SharedKey {WELL_KNOWN_ACCOUNT}:{}", self.sign(&text));
        all.push(("authorization", &authorization));
        if !body.is_empty() {
            all.push(("content-length", &length));
        }
        self.request(method, uri, &all, body).await
    }

    pub(crate) async fn send_lite(&self, method: &str, path: &str) -> Answer {
        let (date, uri) = (self.date(), format!("/{WELL_KNOWN_ACCOUNT}{path}"));
        let (plain, query) = uri.split_once('?').unwrap();
        let text = format!("{method}\n\n\n\nx-ms-date:{date}\n/{WELL_KNOWN_ACCOUNT}{plain}?{query}");
        let authorization = format!("SharedKeyLite {WELL_KNOWN_ACCOUNT}:{}", self.sign(&text));
        self.request(method, &uri, &[("x-ms-date", &date), ("authorization", &authorization)], "").await
    }

    pub(crate) async fn unsigned(&self, method: &str, uri: &str, headers: &[(&str, &str)]) -> Answer {
        self.request(method, uri, headers, "").await
    }

    async fn request(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", HOST);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        Answer::of(self.routes.clone().oneshot(request).await.unwrap()).await
    }

    /// Returns an account signature with these permissions, services and resource types, valid for some minutes.
    pub(crate) fn account_sas(&self, sp: &str, ss: &str, srt: &str, minutes: i64) -> String {
        let se = self.iso(minutes);
        let text = format!("{WELL_KNOWN_ACCOUNT}\n{sp}\n{ss}\n{srt}\n\n{se}\n\n\n{SAS_VERSION}\n\n");
        let sig = utf8_percent_encode(&self.sign(&text), NON_ALPHANUMERIC).to_string();
        format!("sv={SAS_VERSION}&ss={ss}&srt={srt}&sp={sp}&se={se}&sig={sig}")
    }

    pub(crate) fn blob_sas(&self, sp: &str, path: &str, sr: &str) -> String {
        let se = self.iso(60);
        let text = format!(
            "{sp}\n\n{se}\n/blob/{WELL_KNOWN_ACCOUNT}/{path}\n\n\n\n{SAS_VERSION}\n{sr}\n\n\n\n\n\n\n"
        );
        let sig = utf8_percent_encode(&self.sign(&text), NON_ALPHANUMERIC).to_string();
        format!("sv={SAS_VERSION}&sr={sr}&sp={sp}&se={se}&sig={sig}")
    }

    fn sign(&self, text: &str) -> String {
        let key = BASE64.decode(self.key).unwrap();
        BASE64.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes()))
    }

    fn at(&self, minutes: i64) -> Timestamp {
        let span = Duration::from_secs(60 * minutes.unsigned_abs());
        let now = self.broker.clock().now();
        if minutes < 0 { now - span } else { now + span }
    }

    fn date(&self) -> String {
        let since = Duration::from_millis(self.at(self.clock_minutes).as_millis());
        httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
    }

    /// Formats a time some minutes from now. The tests need at most a day.
    fn iso(&self, minutes: i64) -> String {
        let date = httpdate::fmt_http_date(
            std::time::UNIX_EPOCH + Duration::from_millis(self.at(minutes).as_millis()),
        );
        let parts: Vec<&str> = date.split([' ', ',']).filter(|part| !part.is_empty()).collect();
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = months.iter().position(|month| *month == parts[2]).unwrap() + 1;
        format!("{}-{month:02}-{}T{}Z", parts[3], parts[1], parts[4])
    }
}

fn resource(uri: &str) -> String {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            format!("\n{name}:{}", percent_decode_str(value).decode_utf8().unwrap())
        })
        .collect();
    pairs.sort();
    format!("/{WELL_KNOWN_ACCOUNT}{path}{}", pairs.concat())
}
