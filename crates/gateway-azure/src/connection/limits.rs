//! The limits of one connection. The listener enforces limits on the number of connections.

use std::time::Duration;

use peeklock_amqp::connection::Config;
use peeklock_broker::PeerId;
use peeklock_types::limits;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    pub sessions_per_connection_max: u16,
    pub links_per_connection_max: usize,
    /// The numbers for the links of a connection, which are reused in turn. Links that exist at the same time have
    /// different numbers.
    pub link_numbers_per_connection_max: u32,
    pub frame_size_bytes_max: u32,
    /// The limit on the size of a message, even if its entity permits larger ones.
    pub message_size_bytes_max: u32,
    /// Tokens that a connection may hold at the same time.
    pub tokens_per_connection_max: usize,
    /// The time that a connection may be without a valid token.
    pub unauthenticated_time_max: Duration,
    /// The input that is permitted in that time.
    pub unauthenticated_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // The limits that Service Bus announces to its clients, where it announces any.
            sessions_per_connection_max: 5_000,
            links_per_connection_max: 8_192,
            link_numbers_per_connection_max: PeerId::RECEIVERS_MAX,
            frame_size_bytes_max: 65_536,
            message_size_bytes_max: u32::MAX,
            // A client that puts more tokens than it can have links is faulty.
            tokens_per_connection_max: 4_096,
            unauthenticated_time_max: Duration::from_secs(20),
            // A handshake with a large token needs less than a tenth of it.
            unauthenticated_bytes_max: 256 * 1024,
        }
    }
}

impl Limits {
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::server("peeklock");
        config.channel_max = self.sessions_per_connection_max.saturating_sub(1);
        config.max_frame_size_bytes = self.frame_size_bytes_max.max(peeklock_amqp::FRAME_SIZE_BYTES_MIN);
        config.handshake_timeout = self.unauthenticated_time_max;
        config.limits.links_max = self.links_per_connection_max;
        config.limits.whole_size_bytes_max = limits::MESSAGE_SIZE_BYTES_MAX as u64;
        config
    }
}
