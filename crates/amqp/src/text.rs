//! `Text` and `Symbol`: strings that were checked once and are cheap to clone.

use std::borrow::Borrow;
use std::fmt;

use bytes::Bytes;

/// The bytes are not ASCII, so they are no AMQP symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a symbol may hold ASCII characters only")]
pub struct NotAscii;

/// An AMQP string: UTF-8, checked when it is created.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Bytes);

/// An AMQP symbol: ASCII, checked when it is created.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(Bytes);

impl Text {
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Creates a text from UTF-8 bytes, without copying them.
    pub fn from_utf8(bytes: Bytes) -> Result<Self, std::str::Utf8Error> {
        std::str::from_utf8(&bytes)?;
        Ok(Self(bytes))
    }
}

impl Symbol {
    /// Creates a symbol from a literal. Panics when the literal is not ASCII, which is our mistake and never a peer's.
    pub const fn from_static(text: &'static str) -> Self {
        assert!(text.is_ascii(), "a symbol literal must be ASCII");
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// Creates a symbol from ASCII bytes, without copying them.
    pub fn from_ascii(bytes: Bytes) -> Result<Self, NotAscii> {
        if bytes.is_ascii() { Ok(Self(bytes)) } else { Err(NotAscii) }
    }

    pub fn parse(text: &str) -> Result<Self, NotAscii> {
        if text.is_ascii() { Ok(Self(Bytes::copy_from_slice(text.as_bytes()))) } else { Err(NotAscii) }
    }

    /// Returns the same characters as a string.
    pub fn to_text(&self) -> Text {
        Text(self.0.clone())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

macro_rules! checked_string {
    ($name:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                std::str::from_utf8(&self.0).expect("checked when the value was made")
            }

            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            pub fn len(&self) -> usize {
                self.0.len()
            }

            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&'static str> for $name {
            fn from(text: &'static str) -> Self {
                Self::from_static(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other.as_bytes()
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == other.as_bytes()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
    };
}

checked_string!(Text);
checked_string!(Symbol);

// `Borrow<str>` is not implemented: the hash is over bytes, and `str` adds a terminator to its hash.
impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Symbol {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}
