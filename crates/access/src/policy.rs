//! Shared access policies.

use peeklock_types::{EntityName, Timestamp};

use crate::right::{Right, Rights};
use crate::scope::Scope;
use crate::secret::{SECRET_CHARS_MAX, Secret};

pub const POLICY_NAME_CHARS_MAX: usize = 256;
/// The limit on policies of the namespace and of each entity, as in Azure.
pub const POLICIES_PER_SCOPE_MAX: usize = 12;

/// A named pair of keys with their rights. Both keys are valid, so that one can be replaced while clients use the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: String,
    /// The entity of the policy; `None` for the whole namespace.
    pub scope: Option<EntityName>,
    pub rights: Rights,
    pub primary: Secret,
    pub secondary: Secret,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("a policy needs a name of 1 to {POLICY_NAME_CHARS_MAX} characters, not {count}")]
    NameLength { count: usize },
    #[error(
        "the policy name '{name}' has the character {found:?}; use letters, digits, '.', '-' and '_', and begin with a letter or digit"
    )]
    NameCharacter { name: String, found: char },
    #[error("the policy '{name}' has no rights; give it at least one of Send, Listen and Manage")]
    NoRights { name: String },
    #[error("a key of the policy '{name}' has {count} characters; give it 1 to {SECRET_CHARS_MAX}")]
    SecretLength { name: String, count: usize },
}

/// Checks the name of a policy.
pub fn check_name(name: &str) -> Result<(), PolicyError> {
    let count = name.chars().count();
    if !(1..=POLICY_NAME_CHARS_MAX).contains(&count) {
        return Err(PolicyError::NameLength { count });
    }
    let fits = |at: usize, c: char| c.is_ascii_alphanumeric() || (at > 0 && matches!(c, '.' | '-' | '_'));
    match name.chars().enumerate().find(|(at, c)| !fits(*at, *c)) {
        Some((_, found)) => Err(PolicyError::NameCharacter { name: name.to_owned(), found }),
        None => Ok(()),
    }
}

impl Policy {
    /// Returns a policy of the namespace with one given key in both places.
    pub fn with_one_key(name: impl Into<String>, secret: impl AsRef<str>, rights: &[Right]) -> Policy {
        let secret = Secret::new(secret.as_ref());
        Policy {
            name: name.into(),
            scope: None,
            rights: Rights::of(rights),
            primary: secret.clone(),
            secondary: secret,
            created_at: Timestamp::ZERO,
            modified_at: Timestamp::ZERO,
        }
    }

    pub fn check(&self) -> Result<(), PolicyError> {
        check_name(&self.name)?;
        if self.rights.is_empty() {
            return Err(PolicyError::NoRights { name: self.name.clone() });
        }
        for secret in [&self.primary, &self.secondary] {
            let count = secret.expose().chars().count();
            if !(1..=SECRET_CHARS_MAX).contains(&count) {
                return Err(PolicyError::SecretLength { name: self.name.clone(), count });
            }
        }
        Ok(())
    }

    /// Returns whether one of the keys is this text. Always compares both.
    pub fn has_secret(&self, secret: &[u8]) -> bool {
        self.primary.matches(secret) | self.secondary.matches(secret)
    }

    pub(crate) fn place(&self) -> Scope {
        Scope::of_entity(self.scope.as_ref())
    }
}
