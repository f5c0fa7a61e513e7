use std::fmt;
use std::sync::Arc;

use crate::limits;

/// Name of a session: any text, also an empty one. Unlike entity names it is compared letter by letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Arc<str>);

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
        Ok(SessionId(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
