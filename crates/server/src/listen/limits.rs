//! The limits of a listener, before authentication.

use std::time::Duration;

/// File handles that are reserved for the journal.
const HANDLES_RESERVED: u64 = 512;

/// The limits of the listeners; the gateway has those of AMQP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenLimits {
    /// Concurrent connections of all listeners together. Fewer if the limit of open files is lower.
    pub connections_max: usize,
    /// The time limit for the first bytes.
    pub first_bytes_time_max: Duration,
    pub tls_handshake_time_max: Duration,
    /// The time limit for the head of an HTTP request, and between requests.
    pub http_head_time_max: Duration,
    pub http_head_bytes_max: usize,
    pub http_headers_max: usize,
    /// The time limit of an HTTP request, from its head to the head of its response.
    pub http_request_time_max: Duration,
    /// The size limit of one WebSocket message. Clients send a few AMQP frames at a time.
    pub websocket_message_bytes_max: usize,
}

impl Default for ListenLimits {
    fn default() -> Self {
        ListenLimits {
            connections_max: 16_384,
            first_bytes_time_max: Duration::from_secs(20),
            tls_handshake_time_max: Duration::from_secs(20),
            http_head_time_max: Duration::from_secs(30),
            http_head_bytes_max: 64 * 1024,
            http_headers_max: 100,
            http_request_time_max: Duration::from_secs(60),
            websocket_message_bytes_max: 1024 * 1024,
        }
    }
}

impl ListenLimits {
    /// Returns the number of connections that the limit of file handles allows. The journal needs handles of its own, because it stops
    /// without them.
    pub(crate) fn seat_count(&self) -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let handles = limit.current.unwrap_or(u64::MAX).saturating_sub(HANDLES_RESERVED).max(32);
        self.connections_max
            .min(usize::try_from(handles).unwrap_or(usize::MAX))
            .min(tokio::sync::Semaphore::MAX_PERMITS)
    }
}
