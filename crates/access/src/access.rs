//! The policies of a namespace, and the checks of tokens and secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use peeklock_types::{EntityName, Timestamp};
use tokio::sync::watch;

use crate::claim::{Claim, Origin};
use crate::jwt::JwtKeys;
use crate::policy::{POLICIES_PER_SCOPE_MAX, Policy, PolicyError};
use crate::right::Rights;
use crate::scope::Scope;
use crate::secret::{NoRandomBytes, Secret};
use crate::store::{self, OpenError};
use crate::token::{AUDIENCE_BYTES_MAX, TOKEN_BYTES_MAX, TokenError, TokenParts, is_signature, shown};

/// The policies of one namespace. Clones share them.
///
/// Checks never wait for the disk. A change returns when the file is durable, and takes effect only then.
#[derive(Clone)]
pub struct Access(Arc<Inner>);

struct Inner {
    policies: RwLock<Arc<Policies>>,
    /// Locked while the file is replaced, so that changes are serialized.
    file: Mutex<Option<PathBuf>>,
    revision: watch::Sender<u64>,
    jwt: OnceLock<JwtKeys>,
}

#[derive(Clone, Default)]
struct Policies {
    by_scope: BTreeMap<Scope, BTreeMap<String, Held>>,
    by_name: BTreeMap<String, BTreeSet<Scope>>,
}

#[derive(Clone)]
struct Held {
    policy: Policy,
    /// Whether flags or configuration declare the policy. A declared policy takes precedence over a stored one and is
    /// not stored.
    is_declared: bool,
}

/// One of a policy's two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Primary,
    Secondary,
}

/// A change of a policy. Absent values stay as they are; absent keys of a new policy are generated.
#[derive(Clone, Debug, Default)]
pub struct PolicyChange {
    pub rights: Option<Rights>,
    pub primary: Option<Secret>,
    pub secondary: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("there is no policy '{name}' on {scope}")]
    NoSuchPolicy { name: String, scope: Scope },
    #[error(
        "the policy '{name}' is declared where the broker was started (flags or configuration); change it there"
    )]
    Declared { name: String },
    #[error("{scope} has {POLICIES_PER_SCOPE_MAX} policies, the most that are allowed; remove one first")]
    TooMany { scope: Scope },
    #[error(transparent)]
    Random(#[from] NoRandomBytes),
    #[error("the policies could not be stored, and stay as they were: {0}")]
    Store(#[from] std::io::Error),
}

impl Access {
    /// Opens the declared policies and those of the file, if one is given. A declared policy replaces a stored one with
    /// the same name and scope.
    pub fn open(file: Option<PathBuf>, declared: Vec<Policy>) -> Result<Access, OpenError> {
        let mut policies = Policies::default();
        for policy in declared {
            policy.check()?;
            let name = policy.name.clone();
            if policies.insert(Held { policy, is_declared: true }).is_some() {
                return Err(OpenError::DeclaredTwice { name });
            }
        }
        let stored = file.as_deref().map_or_else(|| Ok(Vec::new()), store::load)?;
        for policy in stored {
            if policies.get(&policy.place(), &policy.name).is_none() {
                policies.insert(Held { policy, is_declared: false });
            }
        }
        Ok(Access(Arc::new(Inner {
            policies: RwLock::new(Arc::new(policies)),
            file: Mutex::new(file),
            revision: watch::channel(0).0,
            jwt: OnceLock::new(),
        })))
    }

    /// Accepts bearer tokens of this issuer as well. Only the first call has an effect.
    pub fn with_jwt(self, keys: JwtKeys) -> Access {
        let _ = self.0.jwt.set(keys);
        self
    }

    /// Checks a token for `audience`: a shared access signature, or a bearer token if enabled.
    pub fn check_token(&self, token: &str, audience: &str, now_s: u64) -> Result<Claim, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong(token.len()));
        }
        if audience.len() > AUDIENCE_BYTES_MAX {
            return Err(TokenError::AudienceTooLong(audience.len()));
        }
        let asked = Scope::parse(audience);
        if !is_signature(token) {
            return self.check_bearer(token, asked, now_s);
        }
        let parts = TokenParts::parse(token)?;
        let (origin, rights) =
            self.signer(&parts, &asked).ok_or_else(|| TokenError::Signature(shown(&parts.key_name)))?;
        if parts.expires_at_s <= now_s {
            return Err(TokenError::Expired(now_s - parts.expires_at_s));
        }
        let signed = parts.scope();
        if !signed.covers(&asked) {
            return Err(TokenError::Scope { signed, asked });
        }
        Ok(Claim { scope: asked, rights, expires_at_s: Some(parts.expires_at_s), origin })
    }

    /// Checks a name and a secret from SASL PLAIN. The claim covers the whole connection.
    pub fn check_secret(&self, name: &str, secret: &[u8]) -> Option<Claim> {
        let policies = self.policies_now();
        let held = policies.named(name).find(|held| held.policy.has_secret(secret))?;
        let place = held.policy.place();
        let secret = Secret::new(std::str::from_utf8(secret).ok()?);
        let origin = Origin::Key { place: place.clone(), policy: held.policy.name.clone(), secret };
        Some(Claim { scope: place, rights: held.policy.rights, expires_at_s: None, origin })
    }

    /// Returns false once the key of the claim was removed or replaced, or its policy lost a right. The expiry is not
    /// checked.
    pub fn is_current(&self, claim: &Claim) -> bool {
        let Origin::Key { place, policy, secret } = &claim.origin else { return true };
        let policies = self.policies_now();
        policies.get(place, policy).is_some_and(|held| {
            held.policy.rights.includes(claim.rights) && held.policy.has_secret(secret.expose().as_bytes())
        })
    }

    /// Returns a counter of changes, so that holders of claims can call [`Access::is_current`] after each.
    pub fn revision(&self) -> watch::Receiver<u64> {
        self.0.revision.subscribe()
    }

    /// Returns whether any policy has this text as a key.
    pub fn uses_secret(&self, secret: &[u8]) -> bool {
        let policies = self.policies_now();
        policies.by_scope.values().flat_map(BTreeMap::values).any(|held| held.policy.has_secret(secret))
    }

    /// Returns the name of a policy with a key of fewer characters.
    pub fn shorter_secret(&self, chars_min: usize) -> Option<String> {
        let policies = self.policies_now();
        let mut all = policies.by_scope.values().flat_map(BTreeMap::values).map(|held| &held.policy);
        let is_short = |secret: &Secret| secret.expose().chars().count() < chars_min;
        let found = all.find(|policy| is_short(&policy.primary) || is_short(&policy.secondary))?;
        Some(found.name.clone())
    }

    /// Returns the names of all policies in all scopes.
    pub fn key_names(&self) -> Vec<String> {
        self.policies_now().by_name.keys().cloned().collect()
    }

    pub fn knows_key_name(&self, name: &str) -> bool {
        self.policies_now().by_name.contains_key(name)
    }

    /// Returns the policies of the namespace (`None`) or of one entity, sorted by name.
    pub fn policies(&self, scope: Option<&EntityName>) -> Vec<Policy> {
        let policies = self.policies_now();
        let here = policies.by_scope.get(&Scope::of_entity(scope));
        here.into_iter().flat_map(BTreeMap::values).map(|held| held.policy.clone()).collect()
    }

    pub fn policy(&self, scope: Option<&EntityName>, name: &str) -> Option<Policy> {
        self.policies_now().get(&Scope::of_entity(scope), name).map(|held| held.policy.clone())
    }

    /// Returns whether flags or configuration declare the policy, so that it cannot be changed.
    pub fn is_declared(&self, scope: Option<&EntityName>, name: &str) -> bool {
        self.policies_now().get(&Scope::of_entity(scope), name).is_some_and(|held| held.is_declared)
    }

    /// Creates or changes a policy. Returns whether it is new.
    pub fn put(
        &self,
        scope: Option<&EntityName>,
        name: &str,
        change: PolicyChange,
        now: Timestamp,
    ) -> Result<(Policy, bool), ChangeError> {
        self.change(|policies| {
            let place = Scope::of_entity(scope);
            let old = policies.changeable(&place, name)?;
            if old.is_none() && policies.count(&place) >= POLICIES_PER_SCOPE_MAX {
                return Err(ChangeError::TooMany { scope: place });
            }
            let is_new = old.is_none();
            let policy = merge(old, scope, name, change, now)?;
            policy.check()?;
            policies.insert(Held { policy: policy.clone(), is_declared: false });
            Ok((policy, is_new))
        })
    }

    pub fn remove(&self, scope: Option<&EntityName>, name: &str) -> Result<(), ChangeError> {
        self.change(|policies| {
            let place = Scope::of_entity(scope);
            if policies.changeable(&place, name)?.is_none() {
                return Err(ChangeError::NoSuchPolicy { name: name.to_owned(), scope: place });
            }
            policies.remove(&place, name);
            Ok(())
        })
    }

    /// Replaces one key by a new one. Tokens signed with the other key stay valid.
    pub fn regenerate(
        &self,
        scope: Option<&EntityName>,
        name: &str,
        which: Which,
        now: Timestamp,
    ) -> Result<Policy, ChangeError> {
        if self.policy(scope, name).is_none() {
            let scope = Scope::of_entity(scope);
            return Err(ChangeError::NoSuchPolicy { name: name.to_owned(), scope });
        }
        let secret = Some(Secret::generate()?);
        let change = match which {
            Which::Primary => PolicyChange { primary: secret, ..PolicyChange::default() },
            Which::Secondary => PolicyChange { secondary: secret, ..PolicyChange::default() },
        };
        Ok(self.put(scope, name, change, now)?.0)
    }

    /// Removes the policies of a deleted entity, so that a later entity of the same name does not inherit them.
    pub fn forget_entity(&self, entity: &EntityName) -> Result<(), ChangeError> {
        let place = Scope::from(entity);
        if !self.policies_now().has_stored_within(&place) {
            return Ok(());
        }
        self.change(|policies| {
            policies.remove_within(&place);
            Ok(())
        })
    }

    fn check_bearer(&self, token: &str, asked: Scope, now_s: u64) -> Result<Claim, TokenError> {
        let keys = self.0.jwt.get().ok_or(TokenError::Kind)?;
        let token = token.strip_prefix("Bearer ").unwrap_or(token).trim();
        let bearer = keys.check(token, now_s)?;
        let expires_at_s = Some(bearer.expires_at_s);
        Ok(Claim { scope: asked, rights: bearer.rights, expires_at_s, origin: Origin::Issuer })
    }

    /// Returns the policy that signed the token: one of the entity itself, else one of a scope above it.
    fn signer(&self, parts: &TokenParts<'_>, asked: &Scope) -> Option<(Origin, Rights)> {
        let policies = self.policies_now();
        let scopes = policies.by_name.get(&parts.key_name)?;
        asked.upwards().find_map(|above| {
            let place = scopes.get(above).filter(|place| place.owns(asked))?;
            let policy = &policies.get(place, &parts.key_name)?.policy;
            let secret = parts.signer(policy)?;
            Some((Origin::Key { place: place.clone(), policy: policy.name.clone(), secret }, policy.rights))
        })
    }

    fn policies_now(&self) -> Arc<Policies> {
        // No code panics while it holds the lock, and the map is always complete.
        Arc::clone(&self.0.policies.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the file first and then changes memory, so that no change is visible that a crash could revert.
    fn change<T>(
        &self,
        decide: impl FnOnce(&mut Policies) -> Result<T, ChangeError>,
    ) -> Result<T, ChangeError> {
        let file = self.0.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut policies = Policies::clone(&self.policies_now());
        let result = decide(&mut policies)?;
        if let Some(path) = &*file {
            store::save(path, policies.stored())?;
        }
        *self.0.policies.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policies);
        self.0.revision.send_modify(|revision| *revision += 1);
        Ok(result)
    }
}

fn merge(
    old: Option<&Policy>,
    scope: Option<&EntityName>,
    name: &str,
    change: PolicyChange,
    now: Timestamp,
) -> Result<Policy, ChangeError> {
    let key = |given: Option<Secret>, old: Option<&Secret>| match given.or_else(|| old.cloned()) {
        Some(secret) => Ok(secret),
        None => Secret::generate(),
    };
    let rights = change.rights.or_else(|| old.map(|old| old.rights));
    Ok(Policy {
        name: name.to_owned(),
        scope: scope.cloned(),
        rights: rights.unwrap_or(Rights::NONE),
        primary: key(change.primary, old.map(|old| &old.primary))?,
        secondary: key(change.secondary, old.map(|old| &old.secondary))?,
        created_at: old.map_or(now, |old| old.created_at),
        modified_at: now,
    })
}

impl Policies {
    fn get(&self, place: &Scope, name: &str) -> Option<&Held> {
        self.by_scope.get(place)?.get(name)
    }

    fn count(&self, place: &Scope) -> usize {
        self.by_scope.get(place).map_or(0, BTreeMap::len)
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &Held> {
        let places = self.by_name.get(name).into_iter().flatten();
        places.filter_map(move |place| self.get(place, name))
    }

    fn stored(&self) -> impl Iterator<Item = &Policy> {
        let all = self.by_scope.values().flat_map(BTreeMap::values);
        all.filter(|held| !held.is_declared).map(|held| &held.policy)
    }

    /// Returns the policy, if it may be changed.
    fn changeable(&self, place: &Scope, name: &str) -> Result<Option<&Policy>, ChangeError> {
        match self.get(place, name) {
            Some(held) if held.is_declared => Err(ChangeError::Declared { name: name.to_owned() }),
            held => Ok(held.map(|held| &held.policy)),
        }
    }

    fn insert(&mut self, held: Held) -> Option<Held> {
        let (place, name) = (held.policy.place(), held.policy.name.clone());
        self.by_name.entry(name.clone()).or_default().insert(place.clone());
        self.by_scope.entry(place).or_default().insert(name, held)
    }

    fn remove(&mut self, place: &Scope, name: &str) {
        if let Some(here) = self.by_scope.get_mut(place) {
            here.remove(name);
            if here.is_empty() {
                self.by_scope.remove(place);
            }
        }
        if let Some(places) = self.by_name.get_mut(name) {
            places.remove(place);
            if places.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    fn has_stored_within(&self, entity: &Scope) -> bool {
        self.stored_within(entity).next().is_some()
    }

    fn stored_within<'a>(&'a self, entity: &'a Scope) -> impl Iterator<Item = (&'a Scope, &'a str)> {
        // Names below a scope sort after it.
        let below = self
            .by_scope
            .range(entity.clone()..)
            .take_while(|(place, _)| place.as_str().starts_with(entity.as_str()));
        let owned = below.filter(|(place, _)| entity.owns(place));
        owned.flat_map(|(place, here)| {
            let stored = here.values().filter(|held| !held.is_declared);
            stored.map(move |held| (place, held.policy.name.as_str()))
        })
    }

    fn remove_within(&mut self, entity: &Scope) {
        let found: Vec<_> =
            self.stored_within(entity).map(|(place, name)| (place.clone(), name.to_owned())).collect();
        for (place, name) in found {
            self.remove(&place, &name);
        }
    }
}

impl std::borrow::Borrow<str> for Scope {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests;
