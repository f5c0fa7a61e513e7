use std::collections::BTreeMap;

use crate::limits::{METADATA_BYTES_MAX, METADATA_COUNT_MAX};

/// The owner's metadata of a blob or container: texts by name. HTTP header names ignore case, so names that differ only
/// in case are one; the first spelling is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(BTreeMap<String, Text>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    name: String,
    value: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error(
        "the metadata has the name '{name}'; names are made of letters, digits and '_', and do not begin with a digit"
    )]
    Name { name: String },
    #[error("the value of '{name}' in the metadata has a character that HTTP cannot carry")]
    Value { name: String },
    #[error("the metadata has more than {METADATA_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the metadata has more than {METADATA_COUNT_MAX} names")]
    TooMany,
}

impl Metadata {
    /// Adds a name, or appends to its value, like a repeated header.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), MetadataError> {
        if !is_name(name) {
            return Err(MetadataError::Name { name: name.chars().take(80).collect() });
        }
        if value.chars().any(char::is_control) {
            return Err(MetadataError::Value { name: name.to_owned() });
        }
        if self.size_bytes() + name.len() + value.len() + 1 > METADATA_BYTES_MAX {
            return Err(MetadataError::TooLarge);
        }
        let folded = name.to_ascii_lowercase();
        let is_full = self.0.len() >= METADATA_COUNT_MAX;
        match self.0.get_mut(&folded) {
            Some(known) => {
                known.value.push(',');
                known.value.push_str(value);
            }
            None if is_full => return Err(MetadataError::TooMany),
            None => {
                self.0.insert(folded, Text { name: name.to_owned(), value: value.to_owned() });
            }
        }
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(&name.to_ascii_lowercase()).map(|text| text.value.as_str())
    }

    /// Iterates by name, with the original spelling.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.values().map(|text| (text.name.as_str(), text.value.as_str()))
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.0.values().map(|text| text.name.len() + text.value.len()).sum()
    }
}

/// Returns whether the name is a C# identifier of characters that HTTP permits in header names.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_keeps_its_spelling_and_order() {
        let mut metadata = Metadata::default();
        metadata.add("OwnerId", "a b ü").unwrap();
        metadata.add("a_1", "").unwrap();
        metadata.add("ownerid", "c").unwrap();
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("a_1", ""), ("OwnerId", "a b ü,c")]);
        assert_eq!((metadata.get("ownerid"), metadata.get("OWNERID")), (Some("a b ü,c"), Some("a b ü,c")));
    }

    #[test]
    fn invalid_and_oversized_metadata_is_rejected() {
        let mut metadata = Metadata::default();
        for name in ["", "1a", "a-b", "a b", "ü"] {
            assert!(matches!(metadata.add(name, "x"), Err(MetadataError::Name { .. })), "{name}");
        }
        assert!(matches!(metadata.add("a", "x\ny"), Err(MetadataError::Value { .. })));
        assert_eq!(metadata.add("a", &"x".repeat(METADATA_BYTES_MAX)), Err(MetadataError::TooLarge));
        for number in 0..METADATA_COUNT_MAX {
            metadata.add(&format!("n{number}"), "").unwrap();
        }
        assert_eq!(metadata.add("more", ""), Err(MetadataError::TooMany));
    }
}
