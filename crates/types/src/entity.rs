use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::limits;

/// The name of a queue, a topic or a subscription (`topic/Subscriptions/name`), as its creator wrote it. Two names that
/// differ only in case are the same name.
#[derive(Clone)]
pub struct EntityName {
    text: Arc<str>,
    folded: Arc<str>,
    /// The end of the topic's part, in both forms. `None` if the name is not that of a subscription.
    topic_end: Option<TopicEnd>,
}

#[derive(Clone, Copy)]
struct TopicEnd {
    text: u16,
    folded: u16,
}

/// The kind of an entity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntityKind {
    #[default]
    Queue,
    /// Copies each message to its subscriptions.
    Topic,
    /// A queue that gets the messages of its topic that its rules match.
    Subscription,
}

impl fmt::Display for EntityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EntityKind::Queue => "queue",
            EntityKind::Topic => "topic",
            EntityKind::Subscription => "subscription",
        })
    }
}

/// Separates the names of a topic and its subscription. As a part of any other name it would be ambiguous.
const SUBSCRIPTIONS: &str = "Subscriptions";
/// Words between an entity and one of its parts in addresses. A key of the entity is valid for its parts.
const PART_WORDS: [&str; 3] = ["ConsumerGroups", "Partitions", "Publishers"];
const SELF_TEST: &str = "$self-test";
const BETWEEN_FOLDED: &str = "/subscriptions/";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the entity name is empty; give it 1 to {max} characters", max = limits::ENTITY_NAME_CHARS_MAX)]
    Empty,
    #[error("the entity name has {count} characters; at most {max} are allowed", max = limits::ENTITY_NAME_CHARS_MAX)]
    TooLong { count: usize },
    #[error(
        "the entity name '{name}' has the character {found:?} at position {position}; use letters, digits, '.', '-', '_', '~' and one '/' \
         between parts, and start with a letter, a digit or '_'"
    )]
    Character { name: String, found: char, position: usize },
    #[error(
        "the entity name '{name}' has the part '{part}', which HTTP clients remove from addresses; use another name"
    )]
    DotPart { name: String, part: String },
    #[error("'{name}' is not an address that this broker serves")]
    Reserved { name: String },
    #[error(
        "'{name}' has the part 'Subscriptions', which stands between the name of a topic and that of one of its subscriptions: \
         write topic/Subscriptions/name, with no '/' in the last part"
    )]
    Subscription { name: String },
    #[error(
        "the entity name '{name}' has the word '{word}' between other parts, where it separates an entity from a part of it, such as a \
         partition of a hub; use another name"
    )]
    PartWord { name: String, word: String },
    #[error("the subscription name has {count} characters; at most {max} are allowed", max = limits::SUBSCRIPTION_NAME_CHARS_MAX)]
    SubscriptionTooLong { count: usize },
}

impl EntityName {
    /// Parses the name of a queue or a topic, or that of a subscription as `topic/Subscriptions/name`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let folded = text.to_lowercase();
        let is_between = |part: &str| part.eq_ignore_ascii_case(SUBSCRIPTIONS);
        if !text.split('/').any(is_between) {
            check(text)?;
            return Ok(EntityName { text: text.into(), folded: folded.into(), topic_end: None });
        }
        let mut parts = text.rsplitn(3, '/');
        let (name, between, topic) = (parts.next(), parts.next(), parts.next());
        let ambiguous = || NameError::Subscription { name: text.to_owned() };
        let (Some(name), Some(topic), true) = (name, topic, between.is_some_and(is_between)) else {
            return Err(ambiguous());
        };
        Self::subscription(&Self::parse(topic)?, name).map_err(|error| match error {
            NameError::Subscription { .. } => ambiguous(),
            error => error,
        })
    }

    /// Returns the name of the queue with which the broker tests itself. [`EntityName::parse`] rejects this name, so no
    /// client can reach the queue; lists omit it.
    pub fn self_test() -> Self {
        EntityName { text: SELF_TEST.into(), folded: SELF_TEST.into(), topic_end: None }
    }

    pub fn is_internal(&self) -> bool {
        self.text.starts_with('$')
    }

    /// Parses a name that the broker stored itself.
    pub fn parse_stored(text: &str) -> Result<Self, NameError> {
        if text == SELF_TEST { Ok(Self::self_test()) } else { Self::parse(text) }
    }

    /// Checks that the address of a new entity cannot be that of a part of another entity, such as `hub/Partitions/0`: the keys of the other
    /// entity would be valid for it. Names of stored entities are not checked, so that older ones stay reachable.
    pub fn check_new(&self) -> Result<(), NameError> {
        let (topic, _) = self.topic_and_subscription().unwrap_or((&self.text, ""));
        let parts: Vec<&str> = topic.split('/').collect();
        let between = parts.get(1..parts.len().saturating_sub(1)).unwrap_or_default();
        let is_word = |part: &&&str| PART_WORDS.iter().any(|word| part.eq_ignore_ascii_case(word));
        match between.iter().find(is_word) {
            Some(word) => Err(NameError::PartWord { name: self.text.to_string(), word: (*word).to_owned() }),
            None => Ok(()),
        }
    }

    /// Returns the name of a topic's subscription.
    pub fn subscription(topic: &EntityName, name: &str) -> Result<Self, NameError> {
        let text = format!("{topic}/{SUBSCRIPTIONS}/{name}");
        if topic.is_subscription() || name.contains('/') || name.eq_ignore_ascii_case(SUBSCRIPTIONS) {
            return Err(NameError::Subscription { name: text });
        }
        check(name)?;
        let count = name.chars().count();
        if count > limits::SUBSCRIPTION_NAME_CHARS_MAX {
            return Err(NameError::SubscriptionTooLong { count });
        }
        let folded = format!("{}{BETWEEN_FOLDED}{}", topic.folded, name.to_lowercase());
        // A topic name has at most 260 characters, which take far fewer than `u16::MAX` bytes in both forms.
        let end = |text: &str| u16::try_from(text.len()).unwrap_or(u16::MAX);
        let topic_end = Some(TopicEnd { text: end(&topic.text), folded: end(&topic.folded) });
        Ok(EntityName { text: text.into(), folded: folded.into(), topic_end })
    }

    pub fn is_subscription(&self) -> bool {
        self.topic_end.is_some()
    }

    /// Returns the names of a subscription's topic and of the subscription itself.
    pub fn topic_and_subscription(&self) -> Option<(&str, &str)> {
        let (topic, rest) = self.text.split_at_checked(self.topic_end?.text.into())?;
        Some((topic, rest.get(BETWEEN_FOLDED.len()..)?))
    }

    /// Returns the topic of a subscription.
    pub fn topic(&self) -> Option<EntityName> {
        let (topic, _) = self.topic_and_subscription()?;
        Some(EntityName { text: topic.into(), folded: self.shard_key().into(), topic_end: None })
    }

    /// Returns the part of the name that determines the shard: a topic's subscriptions are in the shard of their topic.
    pub(crate) fn shard_key(&self) -> &str {
        let end = self.topic_end.map(|end| usize::from(end.folded));
        end.and_then(|end| self.folded.get(..end)).unwrap_or(&self.folded)
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the form that decides whether two names are the same.
    pub fn folded(&self) -> &str {
        &self.folded
    }
}

/// Checks the length and the characters of a name.
fn check(text: &str) -> Result<(), NameError> {
    let count = text.chars().count();
    if count == 0 {
        return Err(NameError::Empty);
    }
    if count > limits::ENTITY_NAME_CHARS_MAX {
        return Err(NameError::TooLong { count });
    }
    if let Some((position, found)) = misplaced(text, count) {
        return Err(NameError::Character { name: text.to_owned(), found, position });
    }
    match text.split('/').find(|part| matches!(*part, "." | "..")) {
        Some(part) => Err(NameError::DotPart { name: text.to_owned(), part: part.to_owned() }),
        None => Ok(()),
    }
}

/// Returns the first character that is not permitted at its position, and that position, counted from 1. The service
/// documents that names start and end with a letter or digit, but accepts others at the end and at the edges of parts.
fn misplaced(text: &str, count: usize) -> Option<(usize, char)> {
    let mut before = '/';
    for (position, found) in (1..).zip(text.chars()) {
        let fits = match found {
            '/' => before != '/' && position < count,
            '.' | '-' | '~' => position > 1,
            found => found.is_alphanumeric() || found == '_',
        };
        if !fits {
            return Some((position, found));
        }
        before = found;
    }
    None
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

/// A part of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubQueue {
    #[default]
    Main,
    DeadLetter,
    /// Messages in transit to another queue. This part has no address, so that clients cannot receive from it.
    Transfer,
    /// Messages that could not be transferred to another queue.
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
    /// The suffixes of addresses. The longer suffix is first, because it ends with the shorter one.
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
    fn errors_of_bad_names_state_the_problem() {
        assert_eq!(EntityName::parse("").unwrap_err(), NameError::Empty);
        let wrong = [
            ("a b", ' ', 2),
            ("/a", '/', 1),
            ("a//b", '/', 3),
            ("a/b/", '/', 4),
            ("-a", '-', 1),
            ("ä-?--", '?', 3),
        ];
        for (name, found, position) in wrong {
            let error = NameError::Character { name: name.to_owned(), found, position };
            assert_eq!(EntityName::parse(name).unwrap_err(), error);
        }
        let text = EntityName::parse("shop/or:ders").unwrap_err().to_string();
        assert!(
            text.starts_with("the entity name 'shop/or:ders' has the character ':' at position 8;"),
            "{text}"
        );
        assert!(matches!(EntityName::parse("a/../b"), Err(NameError::DotPart { .. })));
        assert!(matches!(EntityName::parse(&"x".repeat(261)), Err(NameError::TooLong { count: 261 })));
    }

    #[test]
    fn names_that_frameworks_use_are_accepted() {
        let names = ["MassTransit/Fault--Shop/Order--", "_a/.b./-c-/_d_", "a-", "a.", "a/..b", "ä/ö~"];
        for name in names {
            assert_eq!(EntityName::parse(name).unwrap().as_str(), name);
            assert_eq!(EntityPath::parse(&format!("{name}/$DeadLetterQueue")).unwrap().name.as_str(), name);
        }
        let topic = EntityName::parse("shop/order--").unwrap();
        assert!(EntityName::subscription(&topic, "audit-").is_ok());
    }

    #[test]
    fn clients_cannot_name_the_queue_of_the_self_test() {
        let name = EntityName::self_test();
        assert!(name.is_internal());
        assert_eq!(EntityName::parse_stored(name.as_str()).unwrap(), name);
        assert!(EntityName::parse(name.as_str()).is_err());
        assert!(EntityPath::parse(name.as_str()).is_err());
        assert!(!EntityName::parse_stored("orders").unwrap().is_internal());
    }

    #[test]
    fn a_subscription_belongs_to_its_topic() {
        let name = EntityName::parse("Shop/Orders/subscriptions/Audit").unwrap();
        assert_eq!(name.to_string(), "Shop/Orders/Subscriptions/Audit");
        assert_eq!(name, EntityName::parse("shop/orders/SUBSCRIPTIONS/audit").unwrap());
        assert_eq!(name.topic_and_subscription(), Some(("Shop/Orders", "Audit")));
        let topic = EntityName::parse("SHOP/orders").unwrap();
        assert_eq!(name.topic(), Some(topic.clone()));
        assert_eq!(EntityName::subscription(&topic, "audit").unwrap(), name);
        let placement = crate::Placement::default();
        assert_eq!(placement.of(&name), placement.of(&topic));
        assert_eq!(topic.topic(), None);
        let path = EntityPath::parse("shop/orders/Subscriptions/audit/$DeadLetterQueue").unwrap();
        assert_eq!((path.name, path.sub_queue), (name, SubQueue::DeadLetter));
    }

    #[test]
    fn a_name_with_subscriptions_elsewhere_is_rejected() {
        let ambiguous = [
            "Subscriptions",
            "subscriptions/a",
            "a/subscriptions",
            "a/Subscriptions/b/c",
            "a/subscriptions/b/subscriptions/c",
        ];
        for name in ambiguous {
            assert!(matches!(EntityName::parse(name), Err(NameError::Subscription { .. })), "{name}");
        }
        let long = format!("a/Subscriptions/{}", "x".repeat(51));
        assert!(matches!(EntityName::parse(&long), Err(NameError::SubscriptionTooLong { count: 51 })));
        assert!(matches!(EntityName::parse("a/Subscriptions/"), Err(NameError::Empty)));
    }

    #[test]
    fn a_new_entity_cannot_have_the_address_of_a_part() {
        let check = |name: &str| EntityName::parse(name).unwrap().check_new();
        for name in [
            "orders/partitions/9",
            "a/b/Publishers/p",
            "orders/consumergroups/g/x",
            "a/PARTITIONS/t/Subscriptions/s",
        ] {
            assert!(matches!(check(name), Err(NameError::PartWord { .. })), "{name}");
        }
        for name in
            ["partitions/9", "orders/partitions", "orders/partitions2/9", "t/Subscriptions/partitions", "a/b"]
        {
            assert_eq!(check(name), Ok(()), "{name}");
        }
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
