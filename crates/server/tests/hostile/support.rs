//! A server under attack, and a good client that must not be affected.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_access::{Policy, PolicyChange, Right, Rights, Secret, sign};
use peeklock_amqp::Message;
use peeklock_client::{Client, ReceiveMode};
use peeklock_server::{Addresses, AmqpLimits, ListenLimits, Options, Server};
use peeklock_types::{EntityName, QueueSettings, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::log;

pub(crate) const ROOT: &str = "root";
pub(crate) const ROOT_SECRET: &str = "6fb1c3e0d5a94d7b-not-for-logs";
/// The time limit for steps that should be fast.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) server: Server,
    _data: tempfile::TempDir,
}

/// Returns short limits, so that slow peers are disconnected soon.
pub(crate) fn impatient() -> (ListenLimits, AmqpLimits) {
    // The limits are long enough for good clients on a busy machine.
    let little = Duration::from_secs(4);
    let listen = ListenLimits {
        first_bytes_time_max: little,
        tls_handshake_time_max: little,
        http_head_time_max: little,
        http_request_time_max: little,
        ..ListenLimits::default()
    };
    (listen, AmqpLimits { unauthenticated_time_max: little, ..AmqpLimits::default() })
}

pub(crate) async fn start() -> Rig {
    start_with(ListenLimits::default(), AmqpLimits::default()).await
}

pub(crate) async fn start_with(limits: ListenLimits, amqp_limits: AmqpLimits) -> Rig {
    log::start();
    let data = tempfile::tempdir().unwrap();
    let loopback: Option<SocketAddr> = Some("127.0.0.1:0".parse().unwrap());
    let queue = |name: &str| (EntityName::parse(name).unwrap(), QueueSettings::default());
    let options = Options {
        data: data.path().to_owned(),
        listen: Addresses { amqp: loopback, amqp_tls: loopback, http: loopback, https: loopback },
        keys: vec![Policy::with_one_key(ROOT, ROOT_SECRET, &[Right::Manage])],
        limits,
        amqp_limits,
        entities: ["orders", "invoices", "own/1"].map(queue).into_iter().collect(),
        ..Options::default()
    };
    Rig { server: Server::start(options).await.unwrap(), _data: data }
}

impl Rig {
    pub(crate) fn amqp(&self) -> SocketAddr {
        self.server.addresses.amqp.unwrap()
    }

    pub(crate) fn http(&self) -> SocketAddr {
        self.server.addresses.http.unwrap()
    }

    pub(crate) fn tls(&self) -> SocketAddr {
        self.server.addresses.amqp_tls.unwrap()
    }

    pub(crate) async fn good(&self) -> Client {
        let target = format!("amqp://{ROOT}:{ROOT_SECRET}@{}", self.amqp());
        timeout(PATIENCE, Client::connect(&target)).await.expect("a good client connects").unwrap()
    }

    /// Asserts that a good client can send and receive.
    pub(crate) async fn still_works(&self) {
        let work = async {
            let client = self.good().await;
            client.sender("own/1").await.unwrap().send(&Message::data("still here")).await.unwrap();
            let mut receiver =
                client.receiver("own/1").mode(ReceiveMode::ReceiveAndDelete).open().await.unwrap();
            let delivery = receiver.next().await.unwrap().unwrap();
            assert_eq!(delivery.message().unwrap().body_text(), "still here");
            client.close().await;
        };
        timeout(PATIENCE, work).await.expect("a good client is served");
        log::assert_clean();
    }

    /// Creates a policy of one entity.
    pub(crate) fn policy(&self, entity: &str, name: &str, rights: &[Right]) -> Secret {
        let entity = EntityName::parse(entity).unwrap();
        let change = PolicyChange { rights: Some(Rights::of(rights)), ..PolicyChange::default() };
        self.server.access.put(Some(&entity), name, change, Timestamp::ZERO).unwrap().0.primary
    }

    /// Sends a request and returns everything up to the end of the connection.
    pub(crate) async fn http_text(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.http()).await.unwrap();
        // A peer that sends too much is disconnected before its end.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the broker answers");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Returns the status of an authorized request.
    pub(crate) async fn http_status(
        &self,
        method: &str,
        path: &str,
        token: &str,
        body: &str,
    ) -> (u16, String) {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let answer = self.http_text(&request).await;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no status in {answer:?}")), answer)
    }
}

/// Returns a token that expires in so many seconds.
pub(crate) fn token(name: &str, secret: &Secret, resource: &str, life_s: i64) -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let end = now_s.saturating_add_signed(life_s).to_string();
    let resource = resource.replace(':', "%3a").replace('/', "%2f");
    let signature = sign(secret, &resource, &end).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={end}&skn={name}")
}

pub(crate) fn root_token() -> String {
    token(ROOT, &Secret::new(ROOT_SECRET), "sb://localhost/", 600)
}
