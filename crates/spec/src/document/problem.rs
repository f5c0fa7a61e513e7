use std::fmt;

/// An error in a document: its place, the defect and the correct form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The path of the value, such as `queues.orders.lock-duration`; empty at the top.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// An error before its line is known: the innermost invalid value, and its path.
#[derive(Debug)]
pub(crate) struct Fault {
    at: Option<usize>,
    /// The keys, with the innermost first.
    path: Vec<String>,
    message: String,
}

impl Fault {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Fault { at: Some(at), path: Vec::new(), message: message.into() }
    }

    pub(crate) fn unplaced(message: impl Into<String>) -> Self {
        Fault { at: None, path: Vec::new(), message: message.into() }
    }

    /// Sets the place, unless a narrower one is set.
    pub(crate) fn at(mut self, at: usize) -> Self {
        self.at.get_or_insert(at);
        self
    }

    pub(crate) fn under(mut self, key: &str) -> Self {
        self.path.push(key.to_owned());
        self
    }

    pub(crate) fn locate(self, text: &str) -> Problem {
        let mut at = self.at.unwrap_or(0).min(text.len());
        while !text.is_char_boundary(at) {
            at = at.saturating_sub(1);
        }
        let before = text.get(..at).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let path = self.path.iter().rev().map(String::as_str).collect::<Vec<_>>().join(".");
        Problem {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            path,
            message: self.message,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}
