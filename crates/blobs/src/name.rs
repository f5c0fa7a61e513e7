use std::fmt;
use std::sync::Arc;

use crate::limits::{BLOB_NAME_CHARS_MAX, CONTAINER_NAME_CHARS_MAX, CONTAINER_NAME_CHARS_MIN};

/// The name of a container: part of an address, in one spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerName(Arc<str>);

/// The name of a blob in its container: nearly any text; slashes have no meaning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName(Arc<str>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error(
        "the name of a container has from {CONTAINER_NAME_CHARS_MIN} to {CONTAINER_NAME_CHARS_MAX} characters: a to z, 0 to 9, and single '-' between \
         them"
    )]
    Container,
    #[error(
        "the name of a blob has from 1 to {BLOB_NAME_CHARS_MAX} characters, and none that XML cannot carry"
    )]
    Blob,
}

impl ContainerName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (CONTAINER_NAME_CHARS_MIN..=CONTAINER_NAME_CHARS_MAX).contains(&text.len())
            && text.bytes().all(is_known)
            && text.split('-').all(|part| !part.is_empty());
        if fits { Ok(ContainerName(text.into())) } else { Err(NameError::Container) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl BlobName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let is_known = |char: char| !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}');
        let fits = !text.is_empty()
            && text.len() <= BLOB_NAME_CHARS_MAX * 4
            && text.chars().count() <= BLOB_NAME_CHARS_MAX
            && text.chars().all(is_known);
        if fits { Ok(BlobName(text.into())) } else { Err(NameError::Blob) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for BlobName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for ContainerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_containers_follow_the_rules_of_the_service() {
        for name in ["abc", "a-b-c", "000", &"x".repeat(63)] {
            assert_eq!(ContainerName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", "ab", "Abc", "a--b", "-abc", "abc-", "a.b", "$root", "a/b", "äöü", &"x".repeat(64)]
        {
            assert_eq!(ContainerName::parse(name), Err(NameError::Container), "{name}");
        }
    }

    #[test]
    fn names_of_blobs_are_nearly_any_text() {
        for name in ["a", "ns/hub/$default/ownership/0", "ä ö/ü?#%", &"ü".repeat(1024)] {
            assert_eq!(BlobName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", "a\nb", "\0", "\u{ffff}", &"ü".repeat(1025)] {
            assert_eq!(BlobName::parse(name), Err(NameError::Blob), "{name}");
        }
    }
}
