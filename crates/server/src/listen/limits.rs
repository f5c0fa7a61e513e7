//! What a listener allows, before anybody knows who a peer is.

use std::time::Duration;

/// File handles that are left to the journal.
const HANDLES_RESERVED: u64 = 512;

/// Limits of the listeners; those of AMQP itself are the gateway's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenLimits {
    /// Connections served at the same time, of all listeners together; fewer if the process may not open so many files.
    pub connections_max: usize,
    /// How long a peer may take to show what it speaks.
    pub first_bytes_time_max: Duration,
    pub tls_handshake_time_max: Duration,
    /// How long a peer may take to send the head of an HTTP request, and to come up with the next one.
    pub http_head_time_max: Duration,
    pub http_head_bytes_max: usize,
    pub http_headers_max: usize,
    /// How long an HTTP request may take from its head to the head of its response.
    pub http_request_time_max: Duration,
    /// What a peer may put into one message of a WebSocket. Clients send a few AMQP frames at a time.
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
    /// As many as the process may have file handles for, with the journal in mind: a journal without handles stops.
    pub(crate) fn seat_count(&self) -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let handles = limit.current.unwrap_or(u64::MAX).saturating_sub(HANDLES_RESERVED).max(32);
        self.connections_max
            .min(usize::try_from(handles).unwrap_or(usize::MAX))
            .min(tokio::sync::Semaphore::MAX_PERMITS)
    }
}
