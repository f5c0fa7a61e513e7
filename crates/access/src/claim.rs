//! The rights that a peer has proved, and the key or issuer that they depend on.

use crate::right::{Right, Rights};
use crate::scope::Scope;
use crate::secret::Secret;

/// The rights that a peer has proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The scope of the token.
    pub(crate) scope: Scope,
    pub(crate) rights: Rights,
    /// The expiry in seconds since 1970; `None` if the claim is valid as long as the connection.
    pub(crate) expires_at_s: Option<u64>,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A key of a policy at the time of the check.
    Key { place: Scope, policy: String, secret: Secret },
    /// A trusted issuer. The claim is valid until it expires.
    Issuer,
}

impl Claim {
    pub fn allows(&self, right: Right, scope: &Scope, now_s: u64) -> bool {
        let in_place = match &self.origin {
            Origin::Key { place, .. } => place.owns(scope),
            Origin::Issuer => true,
        };
        in_place && self.rights.has(right) && self.scope.covers(scope) && !self.has_expired(now_s)
    }

    pub fn has_expired(&self, now_s: u64) -> bool {
        self.expires_at_s.is_some_and(|end| end <= now_s)
    }

    pub fn expires_at_s(&self) -> Option<u64> {
        self.expires_at_s
    }

    /// Returns the scope of the token. A later claim for the same scope replaces it.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns whether the key or issuer is valid for the whole namespace, whatever the scope of the token.
    pub fn is_of_namespace(&self) -> bool {
        match &self.origin {
            Origin::Key { place, .. } => *place == Scope::NAMESPACE,
            Origin::Issuer => true,
        }
    }

    pub fn rights(&self) -> Rights {
        self.rights
    }
}
