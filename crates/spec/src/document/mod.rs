//! JSON and TOML documents. Every value keeps its place in the text, so that an error can point at it.

mod json;
mod nearest;
mod problem;
mod read;
mod toml;

pub use nearest::nearest;
pub use problem::Problem;

use serde::de::DeserializeOwned;

/// The limit of nesting, because documents are read recursively.
pub const DOCUMENT_DEPTH_MAX: usize = 32;

/// A value with its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// The offset in bytes from the start of the text.
    pub(crate) at: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    /// A number above the largest `i64`.
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

/// A parsed document, which can be read as different types and gives errors a place.
#[derive(Clone, Debug)]
pub struct Document {
    text: String,
    root: Node,
}

impl Document {
    /// Parses JSON. It accepts comments and trailing commas, which the emulators' `Config.json` contains, and rejects duplicate keys.
    pub fn json(text: &str) -> Result<Self, Problem> {
        let root = json::parse(text).map_err(|fault| fault.locate(text))?;
        Ok(Document { text: text.to_owned(), root })
    }

    pub fn toml(text: &str) -> Result<Self, Problem> {
        let root = toml::parse(text).map_err(|fault| fault.locate(text))?;
        Ok(Document { text: text.to_owned(), root })
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        read::read(&self.root).map_err(|fault| fault.locate(&self.text))
    }

    /// Returns whether there is a value at this path. An item of a list is written as its number from 1: `[2]`.
    pub fn has(&self, path: &[&str]) -> bool {
        path.iter().try_fold(&self.root, |node, key| node.child(key).map(|(_, child)| child)).is_some()
    }

    /// Returns an error at the value of this path, or at its nearest existing parent.
    pub fn problem(&self, path: &[&str], message: impl Into<String>) -> Problem {
        let (mut node, mut at) = (&self.root, self.root.at);
        for key in path {
            let Some((key_at, child)) = node.child(key) else { break };
            // For a table or list, the error points at its key.
            at = if matches!(child.value, Value::Table(_) | Value::List(_)) { key_at } else { child.at };
            node = child;
        }
        let fault = problem::Fault::new(at, message);
        path.iter().rev().fold(fault, |fault, key| fault.under(key)).locate(&self.text)
    }
}

impl Node {
    /// Returns the value of a key, and the place of the key.
    fn child(&self, key: &str) -> Option<(usize, &Node)> {
        match &self.value {
            Value::Table(entries) => {
                let find =
                    |is_it: &dyn Fn(&str) -> bool| entries.iter().find(|(known, _)| is_it(&known.text));
                // A name may contain dashes, so an exact match comes first.
                let found =
                    find(&|known| known == key).or_else(|| find(&|known| read::is_spelling(known, key)));
                found.map(|(known, node)| (known.at, node))
            }
            Value::List(nodes) => {
                let number: usize = key.strip_prefix('[')?.strip_suffix(']')?.parse().ok()?;
                nodes.get(number.checked_sub(1)?).map(|node| (node.at, node))
            }
            _ => None,
        }
    }
}

/// Reads JSON like [`Document::json`].
pub fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    json::parse(text).and_then(|root| read::read(&root)).map_err(|fault| fault.locate(text))
}

/// Like [`from_json`], for bytes.
pub fn from_json_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    from_json(utf8(bytes)?)
}

pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    toml::parse(text).and_then(|root| read::read(&root)).map_err(|fault| fault.locate(text))
}

/// Returns the text, or an error at the first byte that is not UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).and_then(|good| std::str::from_utf8(good).ok());
        let good = good.unwrap_or_default();
        problem::Fault::new(good.len(), "a byte that is not UTF-8; save the text as UTF-8").locate(good)
    })
}
