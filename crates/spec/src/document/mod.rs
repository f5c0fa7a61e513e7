//! JSON and TOML documents, read into our own types with the place of every value at hand, so that an error can point at it.

mod json;
mod nearest;
mod problem;
mod read;
mod toml;

pub use nearest::nearest;
pub use problem::Problem;

use serde::de::DeserializeOwned;

/// A document nests no deeper than this: it is read by recursion.
pub const DOCUMENT_DEPTH_MAX: usize = 32;

/// A value with its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// In bytes from the start.
    pub(crate) at: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    /// Above the largest `i64`.
    Unsigned(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(Vec<(Key, Node)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) at: usize,
    pub(crate) text: String,
}

/// Reads JSON. Comments and trailing commas are taken, as in the emulators' own `Config.json`; a key that is given twice is not.
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    json::parse(text).and_then(|root| read::read(&root)).map_err(|fault| fault.locate(text))
}

/// Like [`from_json`] for bytes that may be anything.
pub fn from_json_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    from_json(utf8(bytes)?)
}

pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    toml::parse(text).and_then(|root| read::read(&root)).map_err(|fault| fault.locate(text))
}

fn utf8(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).and_then(|good| std::str::from_utf8(good).ok());
        let good = good.unwrap_or_default();
        problem::Fault::new(good.len(), "a byte that is not UTF-8; save the text as UTF-8").locate(good)
    })
}
