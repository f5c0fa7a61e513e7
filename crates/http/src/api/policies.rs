//! Shared access policies of the namespace, of queues, topics and hubs.

use http::StatusCode;
use peeklock_access::{Policy, Right, Secret, Which};
use peeklock_api::{KeyInfo, Page, PageQuery, Regenerate, WhichKey, policies};
use peeklock_spec::{PolicySpec, show_time};

use super::call::{Answer, Call};
use super::route::{Route, route};
use crate::entity;
use crate::problem::Problem;
use crate::request::{Condition, shown};

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&policies::LIST, Right::Manage, Call::list_policies),
        route(&policies::SHOW, Right::Manage, Call::show_policy),
        route(&policies::PUT, Right::Manage, Call::put_policy),
        route(&policies::DELETE, Right::Manage, Call::delete_policy),
        route(&policies::REGENERATE, Right::Manage, Call::regenerate),
    ]
}

impl Call<PageQuery> {
    /// Returns the policies in one page: an entity has at most a dozen policies.
    async fn list_policies(self) -> Result<Answer<Page<KeyInfo>>, Problem> {
        self.check_entity().await?;
        let policies = self.namespace.access.policies(self.scope());
        Ok(Answer::ok(Page::whole(policies.iter().map(|policy| self.info(policy, false)))))
    }
}

impl Call {
    async fn show_policy(self) -> Result<Answer<KeyInfo>, Problem> {
        self.check_entity().await?;
        let name = self.policy_name()?;
        let policy = self.namespace.access.policy(self.scope(), name).ok_or_else(|| self.no_policy(name))?;
        Ok(Answer::ok(self.info(&policy, true)))
    }

    async fn delete_policy(self) -> Result<Answer<()>, Problem> {
        self.check_entity().await?;
        let (access, place, name) =
            (self.namespace.access.clone(), self.scope().cloned(), self.policy_name()?.to_owned());
        entity::blocking(move || access.remove(place.as_ref(), &name)).await?;
        Ok(Answer::done())
    }
}

impl Call<(), PolicySpec> {
    async fn put_policy(self) -> Result<Answer<KeyInfo>, Problem> {
        let spec = &self.body;
        if spec.entity.is_some() {
            return Err(Problem::bad("the address says which entity the policy is for; leave 'entity' out"));
        }
        self.check_entity().await?;
        let name = self.policy_name()?.to_owned();
        let is_there = self.namespace.access.policy(self.scope(), &name).is_some();
        match self.head.condition() {
            Condition::IsNew if is_there => {
                return Err(Problem::Exists(format!("the policy '{name}' exists already")));
            }
            Condition::None | Condition::IsNew => {}
            Condition::Exists if is_there => {}
            Condition::Exists => return Err(self.no_policy(&name)),
            Condition::Revision(_) | Condition::Unknown => {
                return Err(Problem::Precondition("policies have no tags; use If-Match: *".to_owned()));
            }
        }
        let change = spec.change();
        let (access, place, now) =
            (self.namespace.access.clone(), self.scope().cloned(), self.namespace.now());
        let (policy, is_new) =
            entity::blocking(move || access.put(place.as_ref(), &name, change, now)).await?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Answer::with_status(status, self.info(&policy, true)))
    }
}

impl Call<(), Regenerate> {
    async fn regenerate(self) -> Result<Answer<KeyInfo>, Problem> {
        let which = match self.body.key {
            WhichKey::Primary => Which::Primary,
            WhichKey::Secondary => Which::Secondary,
        };
        self.check_entity().await?;
        let (access, place, now) =
            (self.namespace.access.clone(), self.scope().cloned(), self.namespace.now());
        let name = self.policy_name()?.to_owned();
        let policy = entity::blocking(move || access.regenerate(place.as_ref(), &name, which, now)).await?;
        Ok(Answer::ok(self.info(&policy, true)))
    }
}

impl<Q, B> Call<Q, B> {
    /// Returns a policy. Only the answer for one policy is built with its keys, so that a list contains no secrets.
    fn info(&self, policy: &Policy, with_keys: bool) -> KeyInfo {
        let key = |secret: &Secret| with_keys.then(|| secret.expose().to_owned());
        KeyInfo {
            name: policy.name.clone(),
            rights: policy.rights.iter().map(|right| right.name().to_owned()).collect(),
            primary_key: key(&policy.primary),
            secondary_key: key(&policy.secondary),
            is_declared: self.namespace.access.is_declared(self.scope(), &policy.name),
            created_at: show_time(policy.created_at),
            modified_at: show_time(policy.modified_at),
        }
    }

    fn no_policy(&self, name: &str) -> Problem {
        let place = self.scope().map_or_else(|| "the namespace".to_owned(), |entity| format!("'{entity}'"));
        Problem::NotFound(format!("there is no policy '{}' on {place}", shown(name)))
    }
}
