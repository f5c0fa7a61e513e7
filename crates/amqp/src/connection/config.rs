//! The values that a connection announces to its peer, and every limit that it enforces.

use std::time::Duration;

use bytes::Bytes;

use crate::{Fields, Symbol, Text};

/// The settings of a connection: the values that it announces, and its limits. The defaults are those of a server; see
/// [`Config::client`].
#[derive(Debug, Clone)]
pub struct Config {
    pub container_id: Text,
    /// The host name in open and in sasl-init: a client names its namespace, a server omits it.
    pub hostname: Option<Text>,
    /// The largest frame we accept. Also the largest we send, even to a peer that accepts more, so that one large
    /// message does not delay everything else on the connection.
    pub max_frame_size_bytes: u32,
    /// The highest channel a peer may use: one less than the number of sessions it may have.
    pub channel_max: u16,
    /// The highest handle a peer may use on a session: one less than the number of links it may have there. Values
    /// above [`Config::HANDLE_MAX_LIMIT`] are lowered to it.
    pub handle_max: u32,
    /// The advertised `idle-time-out`. A peer that is silent for twice as long is disconnected.
    pub idle_timeout: Option<Duration>,
    /// The time from the start of the connection to the peer's open.
    pub handshake_timeout: Duration,
    /// The time to wait for the peer's close after ours.
    pub close_timeout: Duration,
    /// Transfer frames that a peer may send on a session before our next flow.
    pub incoming_window: u32,
    /// The transfer-id of the first frame we send on a session.
    pub next_outgoing_id: u32,
    /// The delivery-id of the first delivery we send on a session.
    // SDK quirk: pyamqp settles its own sends by any disposition with their id, whatever its role. A server that starts
    // high keeps its ids apart from those of such a client.
    pub first_delivery_id: u32,
    /// The properties in open.
    pub properties: Option<Fields>,
    pub offered_capabilities: Vec<Symbol>,
    pub desired_capabilities: Vec<Symbol>,
    /// The mechanisms that a server offers to a peer that starts with SASL.
    pub sasl_mechanisms: Vec<Symbol>,
    pub limits: Limits,
}

/// Limits on the memory that a peer can make us use.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Links of the whole connection.
    pub links_max: usize,
    /// Largest message on a link whose attach names no `max-message-size`.
    pub message_size_bytes_max: u64,
    /// Deliveries of several frames that are larger than this are handed up in parts, see
    /// [`Event::Part`](super::Event::Part), on links that permit parts. By default every delivery is handed up whole.
    pub whole_size_bytes_max: u64,
    /// Unsettled deliveries that we received, per session. The announced window shrinks to keep below it.
    pub unsettled_incoming_max: u32,
    /// Unsettled deliveries that we sent, per session. Beyond it `send` queues nothing and returns an error.
    pub unsettled_outgoing_max: u32,
    /// Bytes of incomplete deliveries, over the whole connection.
    pub incomplete_bytes_max: usize,
    /// Bytes of sends that wait for a peer's session window, over the whole connection.
    pub blocked_bytes_max: usize,
    /// Deliveries beyond the credit that a link tolerates between two grants of credit.
    // SDK quirk: pyamqp senders assume 10000 credits of their own.
    pub overrun_max: u32,
}

/// The SASL exchange of a client: one mechanism, one message.
#[derive(Debug, Clone)]
pub struct SaslClient {
    pub mechanism: Symbol,
    pub initial_response: Option<Bytes>,
}

impl Config {
    /// Limits the table from a peer's handle to its link: 16 KiB per session.
    pub const HANDLE_MAX_LIMIT: u32 = 4095;

    /// Returns the configuration of a server, with the numbers that Service Bus announces to its clients.
    pub fn server(container_id: impl Into<Text>) -> Self {
        Self {
            container_id: container_id.into(),
            hostname: None,
            max_frame_size_bytes: 65_536,
            channel_max: 4_999,
            handle_max: 1_023,
            // SDK quirk: an idle pyamqp client sends a heartbeat only every 30 s or less often.
            idle_timeout: Some(Duration::from_secs(120)),
            handshake_timeout: Duration::from_secs(20),
            close_timeout: Duration::from_secs(10),
            incoming_window: 5_000,
            next_outgoing_id: 1,
            first_delivery_id: 65_536,
            properties: None,
            offered_capabilities: Vec::new(),
            desired_capabilities: Vec::new(),
            sasl_mechanisms: ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"].map(Symbol::from_static).to_vec(),
            limits: Limits::default(),
        }
    }

    /// Returns the configuration of a client of the namespace `hostname`.
    pub fn client(container_id: impl Into<Text>, hostname: impl Into<Text>) -> Self {
        Self {
            hostname: Some(hostname.into()),
            channel_max: 255,
            idle_timeout: Some(Duration::from_secs(60)),
            next_outgoing_id: 0,
            first_delivery_id: 0,
            sasl_mechanisms: Vec::new(),
            ..Self::server(container_id)
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            links_max: 8_192,
            message_size_bytes_max: 1_048_576,
            whole_size_bytes_max: u64::MAX,
            unsettled_incoming_max: 20_000,
            unsettled_outgoing_max: 100_000,
            incomplete_bytes_max: 64 << 20,
            blocked_bytes_max: 16 << 20,
            overrun_max: 20_000,
        }
    }
}

impl SaslClient {
    pub fn anonymous() -> Self {
        Self { mechanism: Symbol::from_static("ANONYMOUS"), initial_response: Some(Bytes::new()) }
    }

    pub fn plain(user: &str, password: &str) -> Self {
        let response = [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat();
        Self { mechanism: Symbol::from_static("PLAIN"), initial_response: Some(response.into()) }
    }
}
