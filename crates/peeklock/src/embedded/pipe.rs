//! The byte stream between a client and the broker in the same process.

use tokio::io::DuplexStream;

/// The bytes in flight in each direction: as many as either side reads at once.
const PIPE_BYTES: usize = 256 * 1024;

/// Returns the end of the client and the end of the broker.
pub(super) fn pipe() -> (DuplexStream, DuplexStream) {
    tokio::io::duplex(PIPE_BYTES)
}
