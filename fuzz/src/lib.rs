//! Fuzz targets: each takes arbitrary bytes and must return without a panic, in bounded time and memory.
//!
//! The targets are plain functions, so that a test can replay the corpus. The program calls them with mutated inputs.

pub mod bounds;
mod codec;
mod connection;
pub mod coverage;
mod filter;
mod json;
pub mod mutate;
mod xml;

pub use codec::fuzz_codec;
pub use connection::fuzz_connection;
pub use filter::fuzz_filter;
pub use json::fuzz_json;
pub use xml::fuzz_xml;

/// The greatest length of an input. Longer inputs find no other faults and take longer.
pub const INPUT_LEN_MAX: usize = 64 << 10;

/// The code that a fuzz target tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Codec,
    Connection,
    Filter,
    Json,
    Xml,
}

impl Target {
    pub fn run(self, input: &[u8]) {
        match self {
            Self::Codec => fuzz_codec(input),
            Self::Connection => fuzz_connection(input),
            Self::Filter => fuzz_filter(input),
            Self::Json => fuzz_json(input),
            Self::Xml => fuzz_xml(input),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Codec => "codec",
            Self::Connection => "connection",
            Self::Filter => "filter",
            Self::Json => "json",
            Self::Xml => "xml",
        }
    }
}
