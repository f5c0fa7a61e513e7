//! Shared access policies of the namespace, of queues and of topics.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_access::{Policy, Which};
use peeklock_spec::PolicySpec;
use peeklock_types::EntityName;

use super::shape::{KeyName, PolicyShape, RegenerateBody};
use super::{Call, done, json, shape};
use crate::entity;
use crate::problem::Problem;
use crate::request::{Condition, shown};

impl Call<'_> {
    fn place(&self) -> Option<&EntityName> {
        self.names.entity.as_ref()
    }

    fn policy_name(&self) -> Result<&str, Problem> {
        self.names.policy.as_deref().ok_or_else(|| Problem::bad("the path names no policy"))
    }

    /// A policy cannot be longer than a page: there are a dozen at most.
    pub(super) async fn list_policies(&self) -> Result<Response, Problem> {
        let policies = self.namespace.access.policies(self.place());
        let items = policies.iter().map(|policy| self.tell(policy, false)).collect();
        json(StatusCode::OK, None, &shape::Page { items, next: None })
    }

    pub(super) async fn show_policy(&self) -> Result<Response, Problem> {
        let name = self.policy_name()?;
        let policy = self.namespace.access.policy(self.place(), name).ok_or_else(|| self.no_policy(name))?;
        json(StatusCode::OK, None, &self.tell(&policy, true))
    }

    pub(super) async fn put_policy(&self, body: Body) -> Result<Response, Problem> {
        let spec: PolicySpec = self.body(body).await?;
        if spec.entity.is_some() {
            return Err(Problem::bad("the address says which entity the policy is for; leave 'entity' out"));
        }
        let name = self.policy_name()?.to_owned();
        let is_there = self.namespace.access.policy(self.place(), &name).is_some();
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
            (self.namespace.access.clone(), self.place().cloned(), self.namespace.now());
        let (policy, is_new) =
            entity::blocking(move || access.put(place.as_ref(), &name, change, now)).await?;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        json(status, None, &self.tell(&policy, true))
    }

    pub(super) async fn delete_policy(&self) -> Result<Response, Problem> {
        let (access, place, name) =
            (self.namespace.access.clone(), self.place().cloned(), self.policy_name()?.to_owned());
        entity::blocking(move || access.remove(place.as_ref(), &name)).await?;
        Ok(done())
    }

    pub(super) async fn regenerate(&self, body: Body) -> Result<Response, Problem> {
        let body: RegenerateBody = self.body(body).await?;
        let which = match body.key {
            KeyName::Primary => Which::Primary,
            KeyName::Secondary => Which::Secondary,
        };
        let (access, place, now) =
            (self.namespace.access.clone(), self.place().cloned(), self.namespace.now());
        let name = self.policy_name()?.to_owned();
        let policy = entity::blocking(move || access.regenerate(place.as_ref(), &name, which, now)).await?;
        json(StatusCode::OK, None, &self.tell(&policy, true))
    }

    fn tell(&self, policy: &Policy, with_keys: bool) -> PolicyShape {
        PolicyShape::of(policy, self.namespace.access.is_declared(self.place(), &policy.name), with_keys)
    }

    fn no_policy(&self, name: &str) -> Problem {
        let place = self.place().map_or_else(|| "the namespace".to_owned(), |entity| format!("'{entity}'"));
        Problem::NotFound(format!("there is no policy '{}' on {place}", shown(name)))
    }
}
