use std::collections::BTreeMap;

use crate::limits::{METADATA_BYTES_MAX, METADATA_COUNT_MAX};

/// What the owner of a blob or container keeps beside it: texts by name. HTTP does not tell upper from lower case in names, so all are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(BTreeMap<String, String>);

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
    /// Adds a name, or to what it says already, as with a header that is sent twice.
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
        let name = name.to_ascii_lowercase();
        let is_full = self.0.len() >= METADATA_COUNT_MAX;
        match self.0.get_mut(&name) {
            Some(known) => {
                known.push(',');
                known.push_str(value);
            }
            None if is_full => return Err(MetadataError::TooMany),
            None => {
                self.0.insert(name, value.to_owned());
            }
        }
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// As identifiers of C#, of those letters that HTTP allows in the names of headers.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_kept_in_lower_case_and_order() {
        let mut metadata = Metadata::default();
        metadata.add("OwnerId", "a b ü").unwrap();
        metadata.add("a_1", "").unwrap();
        metadata.add("ownerid", "c").unwrap();
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [("a_1", ""), ("ownerid", "a b ü,c")]);
        assert_eq!(metadata.get("ownerid"), Some("a b ü,c"));
    }

    #[test]
    fn what_cannot_be_carried_or_is_too_much_is_refused() {
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
