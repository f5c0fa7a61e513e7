use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::limits;

/// The id of a session: any text, also an empty one. Two ids that differ only in case are the same session, as with
/// entity names.
#[derive(Clone)]
pub struct SessionId {
    /// The id as it was written, followed by the form that is compared, unless both are the same.
    both: Arc<str>,
    text_end: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session id has {count} characters; at most {max} are allowed", max = limits::SESSION_ID_CHARS_MAX)]
pub struct SessionIdError {
    count: usize,
}

impl SessionId {
    pub fn parse(text: &str) -> Result<Self, SessionIdError> {
        let count = text.chars().count();
        if count > limits::SESSION_ID_CHARS_MAX {
            return Err(SessionIdError { count });
        }
        // The permitted number of characters takes far fewer than `u16::MAX` bytes.
        let text_end = u16::try_from(text.len()).unwrap_or(u16::MAX);
        // Each message of a session has its id, and most ids are plain. A plain id needs only one allocation.
        let is_plain = text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
        let folded = if is_plain { String::new() } else { text.to_lowercase() };
        let both = if is_plain || folded == text { text.into() } else { [text, &folded].concat().into() };
        Ok(SessionId { both, text_end })
    }

    /// Returns the id as it was written.
    pub fn as_str(&self) -> &str {
        self.both.get(..self.text_end.into()).unwrap_or(&self.both)
    }

    /// Returns the form that decides whether two ids are the same.
    fn folded(&self) -> &str {
        self.both.get(self.text_end.into()..).filter(|folded| !folded.is_empty()).unwrap_or(&self.both)
    }
}

impl PartialEq for SessionId {
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for SessionId {}

impl PartialOrd for SessionId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SessionId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.folded().cmp(other.folded())
    }
}

impl Hash for SessionId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded().hash(state);
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_compare_without_case_and_print_as_written() {
        let [one, same, other] = ["Straße 7", "STRAßE 7", "Straße 8"].map(|id| SessionId::parse(id).unwrap());
        assert_eq!(one, same);
        assert!(one < other && same < other);
        assert_eq!((one.to_string(), same.as_str()), ("Straße 7".to_owned(), "STRAßE 7"));
        let [empty, small, foreign] = ["", "small", "kölsch"].map(|id| SessionId::parse(id).unwrap());
        assert_eq!((empty.as_str(), small.as_str(), foreign.as_str()), ("", "small", "kölsch"));
        assert_eq!(foreign, SessionId::parse("KÖLSCH").unwrap());
        assert!(empty < small && small == SessionId::parse("SMALL").unwrap());
    }
}
