//! The operations that a signature permits, and those that a call requires.

use crate::problem::Problem;

/// The operations that a signature permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Permit {
    /// The request is signed with the key itself, which permits everything in the account.
    Owner,
    /// `srt` and `sp` of an account signature.
    Account { resources: String, permissions: String },
    /// `sp` of a signature for one container, blob or queue. The signature includes the path, so a valid one belongs to
    /// it.
    Service { permissions: String, is_object: bool },
}

/// The resource of a call, in the categories of an account signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Service,
    /// A container or a queue.
    Container,
    /// A blob or a message.
    Object,
}

/// The permissions that a call requires. One of the letters is sufficient; without letters, no signature of that kind
/// permits the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) resource: Resource,
    pub(crate) of_account: &'static str,
    pub(crate) of_service: &'static str,
}

impl Resource {
    fn letter(self) -> char {
        match self {
            Resource::Service => 's',
            Resource::Container => 'c',
            Resource::Object => 'o',
        }
    }
}

impl Permit {
    pub(crate) fn check(&self, needs: Needs) -> Result<(), Problem> {
        match self {
            Permit::Owner => Ok(()),
            Permit::Account { resources, permissions } => {
                if !resources.contains(needs.resource.letter()) {
                    return Err(Problem::forbidden(
                        "AuthorizationResourceTypeMismatch",
                        format!(
                            "the signature is for the resource types '{resources}'; this takes '{}'",
                            needs.resource.letter()
                        ),
                    ));
                }
                has_one(permissions, needs.of_account)
            }
            // A signature for a blob does not apply to its container.
            Permit::Service { is_object: true, .. } if needs.resource != Resource::Object => Err(mismatch(
                "the signature is for one blob alone; use one for its container, or the key of the account",
            )),
            Permit::Service { .. } if needs.of_service.is_empty() => Err(mismatch(
                "no signature for a single container or queue allows this; use one for the account, or its key",
            )),
            Permit::Service { permissions, .. } => has_one(permissions, needs.of_service),
        }
    }
}

fn has_one(permissions: &str, wanted: &str) -> Result<(), Problem> {
    if wanted.chars().any(|letter| permissions.contains(letter)) {
        return Ok(());
    }
    let wanted: Vec<String> = wanted.chars().map(|letter| format!("'{letter}'")).collect();
    let wanted = wanted.join(" or ");
    Err(mismatch(format!("the signature has the permissions '{permissions}'; this takes {wanted}")))
}

fn mismatch(text: impl Into<String>) -> Problem {
    Problem::forbidden("AuthorizationPermissionMismatch", text)
}
