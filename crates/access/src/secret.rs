//! The keys of policies: generated at random, compared in constant time, never printed.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq;

pub const SECRET_CHARS_MAX: usize = 256;
const GENERATED_BYTES: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no key could be made: the system gives no random bytes ({0})")]
pub struct NoRandomBytes(String);

/// The text of a key. It has no printed form; [`Secret::expose`] returns the text.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Secret(text.into())
    }

    /// Generates 256 random bits in base64, as Azure does.
    pub fn generate() -> Result<Self, NoRandomBytes> {
        let mut bytes = [0; GENERATED_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| NoRandomBytes(error.to_string()))?;
        Ok(Secret(BASE64.encode(bytes).into()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares in a time that depends only on the lengths.
    pub fn matches(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other.0.as_bytes())
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed_and_secrets_differ() {
        let (one, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.expose().len(), 44);
        assert!(!format!("{one:?}").contains(one.expose()));
        assert!(one.matches(one.expose().as_bytes()) && !one.matches(b""));
    }
}
