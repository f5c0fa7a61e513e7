//! The limits of one request.

use std::time::Duration;

/// Limits of the resources that one request uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum size of a request body.
    pub body_size_bytes_max: usize,
    /// The maximum time from the first byte of a body to its last.
    pub body_time_max: Duration,
    /// The maximum number of entities, rules or messages in one response.
    pub page_count_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // The largest rule that the limits of a filter permit is well below half a megabyte of XML.
        Limits { body_size_bytes_max: 1 << 20, body_time_max: Duration::from_secs(30), page_count_max: 1000 }
    }
}
