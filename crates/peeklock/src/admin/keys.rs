//! Access keys.

use peeklock_client::{AdminError, KeyInfo, KeyScope, Right, RightList, WhichKey};

use super::{Admin, entity};
use crate::error::Error;

/// The entities for which a key is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope<'a> {
    /// All entities.
    Namespace,
    /// One queue.
    Queue(&'a str),
    /// One topic with its subscriptions.
    Topic(&'a str),
    /// One event hub.
    Hub(&'a str),
}

impl<'a> From<&'a KeyScope> for Scope<'a> {
    fn from(scope: &'a KeyScope) -> Self {
        match scope {
            KeyScope::Namespace => Scope::Namespace,
            KeyScope::Queue(name) => Scope::Queue(name.as_str()),
            KeyScope::Topic(name) => Scope::Topic(name.as_str()),
            KeyScope::Hub(name) => Scope::Hub(name.as_str()),
        }
    }
}

impl Scope<'_> {
    fn parse(self) -> Result<KeyScope, Error> {
        Ok(match self {
            Scope::Namespace => KeyScope::Namespace,
            Scope::Queue(name) => KeyScope::Queue(entity(name)?),
            Scope::Topic(name) => KeyScope::Topic(entity(name)?),
            Scope::Hub(name) => KeyScope::Hub(entity(name)?),
        })
    }
}

impl Admin {
    /// Creates a key with new secrets. The answer has the secrets.
    ///
    /// ```no_run
    /// # async fn example(admin: peeklock::admin::Admin) -> Result<(), peeklock::Error> {
    /// use peeklock::admin::{Right, Scope};
    ///
    /// let key = admin.create_key(Scope::Queue("orders"), "shop", [Right::Send]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn create_key(
        &self,
        scope: Scope<'_>,
        name: &str,
        rights: impl IntoIterator<Item = Right>,
    ) -> Result<KeyInfo, Error> {
        let (scope, rights) = (scope.parse()?, rights.into_iter().collect::<RightList>());
        attempts!(self, Always, |admin, is_repeated| {
            match admin.create_key(&scope, name, rights).await {
                Err(AdminError::Exists { .. }) if is_repeated => admin.key(&scope, name).await,
                created => created,
            }
        })
    }

    /// Returns a key with its secrets.
    pub async fn key(&self, scope: Scope<'_>, name: &str) -> Result<KeyInfo, Error> {
        let scope = scope.parse()?;
        attempts!(self, Always, |admin| admin.key(&scope, name).await)
    }

    /// Lists the keys of the namespace or of one entity, without their secrets.
    pub async fn keys(&self, scope: Scope<'_>) -> Result<Vec<KeyInfo>, Error> {
        let scope = scope.parse()?;
        attempts!(self, Always, |admin| admin.keys(&scope).await)
    }

    /// Replaces one of the two secrets of a key. The broker then rejects the old secret.
    pub async fn rotate_key(&self, scope: Scope<'_>, name: &str, which: WhichKey) -> Result<KeyInfo, Error> {
        let scope = scope.parse()?;
        attempts!(self, Unsent, |admin| admin.rotate_key(&scope, name, which).await)
    }

    /// Removes a key. The broker detaches the links that use it.
    pub async fn remove_key(&self, scope: Scope<'_>, name: &str) -> Result<(), Error> {
        let scope = scope.parse()?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.remove_key(&scope, name).await {
                Err(AdminError::NotFound { .. }) if is_repeated => Ok(()),
                removed => removed,
            }
        })
    }
}
