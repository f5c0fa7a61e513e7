use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::limits;

/// Name of a queue, as its creator wrote it. Two names that differ only in case are the same name.
#[derive(Clone)]
pub struct EntityName {
    text: Arc<str>,
    folded: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the entity name is empty; give it 1 to {max} characters", max = limits::ENTITY_NAME_CHARS_MAX)]
    Empty,
    #[error("the entity name has {count} characters; at most {max} are allowed", max = limits::ENTITY_NAME_CHARS_MAX)]
    TooLong { count: usize },
    #[error(
        "the entity name '{name}' has the character {found:?}; use letters, digits, '.', '-', '_', '~' and '/' between parts, and start and \
         end with a letter or digit"
    )]
    Character { name: String, found: char },
    #[error("'{name}' is not an address that this broker serves")]
    Reserved { name: String },
}

impl EntityName {
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let count = text.chars().count();
        if count == 0 {
            return Err(NameError::Empty);
        }
        if count > limits::ENTITY_NAME_CHARS_MAX {
            return Err(NameError::TooLong { count });
        }
        let bad = |found| NameError::Character { name: text.to_owned(), found };
        if let Some(found) =
            text.chars().find(|c| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '_' | '~' | '/'))
        {
            return Err(bad(found));
        }
        for part in text.split('/') {
            let edge_is_fine = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !edge_is_fine(part.chars().next()) || !edge_is_fine(part.chars().next_back()) {
                return Err(bad(part.chars().next().unwrap_or('/')));
            }
        }
        Ok(EntityName { text: text.into(), folded: text.to_lowercase().into() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The form that decides whether two names are the same.
    pub fn folded(&self) -> &str {
        &self.folded
    }
}

impl PartialEq for EntityName {
    fn eq(&self, other: &Self) -> bool {
        self.folded == other.folded
    }
}

impl Eq for EntityName {}

impl PartialOrd for EntityName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EntityName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.folded.cmp(&other.folded)
    }
}

impl Hash for EntityName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded.hash(state);
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text)
    }
}

/// Which part of a queue is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubQueue {
    #[default]
    Main,
    DeadLetter,
    /// On the way to another queue. Has no address: nobody receives from it.
    Transfer,
    /// Could not be brought to another queue.
    TransferDeadLetter,
}

impl SubQueue {
    pub const ALL: [SubQueue; 4] =
        [SubQueue::Main, SubQueue::DeadLetter, SubQueue::Transfer, SubQueue::TransferDeadLetter];
}

/// A queue or one of its parts: `orders`, `orders/$DeadLetterQueue`, `orders/$Transfer/$DeadLetterQueue`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntityPath {
    pub name: EntityName,
    pub sub_queue: SubQueue,
}

impl EntityPath {
    /// The longer one first: the other is its end.
    const SUFFIXES: [(&str, SubQueue); 2] = [
        ("/$transfer/$deadletterqueue", SubQueue::TransferDeadLetter),
        ("/$deadletterqueue", SubQueue::DeadLetter),
    ];

    pub fn parse(text: &str) -> Result<Self, NameError> {
        let without = |suffix: &str| {
            let (name, end) = text.split_at_checked(text.len().checked_sub(suffix.len())?)?;
            end.eq_ignore_ascii_case(suffix).then_some(name)
        };
        let found =
            Self::SUFFIXES.iter().find_map(|(suffix, sub_queue)| Some((without(suffix)?, *sub_queue)));
        let (name, sub_queue) = found.unwrap_or((text, SubQueue::Main));
        if name.starts_with('$') || name.contains("/$") {
            return Err(NameError::Reserved { name: text.to_owned() });
        }
        Ok(EntityPath { name: EntityName::parse(name)?, sub_queue })
    }
}

impl fmt::Display for EntityPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sub_queue {
            SubQueue::Main => self.name.fmt(f),
            SubQueue::DeadLetter => write!(f, "{}/$DeadLetterQueue", self.name),
            SubQueue::Transfer => write!(f, "{}/$Transfer", self.name),
            SubQueue::TransferDeadLetter => write!(f, "{}/$Transfer/$DeadLetterQueue", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_compare_without_case_and_print_as_written() {
        let one = EntityName::parse("Orders").unwrap();
        assert_eq!(one, EntityName::parse("oRDERS").unwrap());
        assert_eq!(one.to_string(), "Orders");
    }

    #[test]
    fn bad_names_say_what_is_wrong() {
        assert_eq!(EntityName::parse("").unwrap_err(), NameError::Empty);
        assert!(matches!(EntityName::parse("a b"), Err(NameError::Character { found: ' ', .. })));
        assert!(matches!(EntityName::parse("/a"), Err(NameError::Character { .. })));
        assert!(matches!(EntityName::parse("a//b"), Err(NameError::Character { .. })));
        assert!(matches!(EntityName::parse(&"x".repeat(261)), Err(NameError::TooLong { count: 261 })));
    }

    #[test]
    fn the_dead_letter_queue_is_part_of_its_queue() {
        let path = EntityPath::parse("Orders/$deadLetterQueue").unwrap();
        assert_eq!(path.sub_queue, SubQueue::DeadLetter);
        assert_eq!(path.to_string(), "Orders/$DeadLetterQueue");
        let path = EntityPath::parse("Orders/$transfer/$deadletterqueue").unwrap();
        assert_eq!(path.sub_queue, SubQueue::TransferDeadLetter);
        assert_eq!(path.to_string(), "Orders/$Transfer/$DeadLetterQueue");
        assert!(matches!(EntityPath::parse("orders/$Transfer"), Err(NameError::Reserved { .. })));
        assert!(matches!(EntityPath::parse("$cbs"), Err(NameError::Reserved { .. })));
    }
}
