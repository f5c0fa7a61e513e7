use crate::right::{Right, Rights};
use crate::scope::Scope;
use crate::secret::Secret;

/// What a peer has shown that it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What the token was put for.
    pub(crate) scope: Scope,
    pub(crate) rights: Rights,
    /// Seconds since 1970; `None` while the connection lives.
    pub(crate) expires_at_s: Option<u64>,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A key of a policy, as it was then.
    Key { place: Scope, policy: String, secret: Secret },
    /// Somebody whose signatures this namespace trusts; good until it expires.
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

    /// What it was put for: a later claim for the same scope takes its place.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether what it rests on is good for the whole namespace, whatever it was put for.
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
