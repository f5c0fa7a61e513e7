//! Operations on entities that ATOM and JSON share.

use peeklock_access::ChangeError;
use peeklock_broker::hubs::HubView;
use peeklock_broker::{AdminError, Broker, EntityInfo, RuleInfo};
use peeklock_filter::{Rule, RuleName};
use peeklock_types::{ConsumerGroup, EntityKind, EntityName, HubSettings, QueueSettings};

use crate::problem::Problem;
use crate::request::Condition;
use crate::state::Namespace;

/// The maximum number of attempts of a change that conflicts with concurrent changes.
pub(crate) const ATTEMPT_COUNT_MAX: usize = 3;

/// Returns the entity if it has this kind. An entity of another kind is reported as missing.
pub(crate) async fn show(broker: &Broker, name: EntityName, kind: EntityKind) -> Result<EntityInfo, Problem> {
    let entity = broker.show(name).await?;
    if entity.kind == kind {
        return Ok(entity);
    }
    Err(Problem::NotFound(format!("'{}' is a {}, not a {kind}", entity.name, entity.kind)))
}

/// Creates an entity. First removes policies of an earlier entity with the same name that deleted itself when idle, so
/// that their keys are not valid for the new one.
pub(crate) async fn create(
    namespace: &Namespace,
    name: EntityName,
    kind: EntityKind,
    settings: QueueSettings,
    rule: Option<Rule>,
) -> Result<EntityInfo, Problem> {
    let created = namespace.broker.create(name.clone(), kind, settings, rule).await?;
    let access = namespace.access.clone();
    blocking(move || access.forget_entity(&name)).await?;
    Ok(created)
}

/// Deletes an entity with everything that belongs to it. With `kind`, an entity of another kind is not deleted.
pub(crate) async fn delete(
    namespace: &Namespace,
    name: EntityName,
    kind: Option<EntityKind>,
    condition: Condition,
) -> Result<(), Problem> {
    let expected = match condition {
        Condition::None | Condition::Exists => None,
        Condition::Revision(revision) => Some(revision),
        Condition::Unknown | Condition::IsNew => return Err(changed_meanwhile(&name)),
    };
    if let Some(kind) = kind {
        show(&namespace.broker, name.clone(), kind).await?;
    }
    namespace.broker.delete(name.clone(), expected).await?;
    let access = namespace.access.clone();
    blocking(move || access.forget_entity(&name)).await
}

/// Creates a hub; see [`create`].
pub(crate) async fn create_hub(
    namespace: &Namespace,
    name: EntityName,
    settings: HubSettings,
    groups: Vec<ConsumerGroup>,
) -> Result<HubView, Problem> {
    let created = namespace.broker.create_hub(name.clone(), settings, groups).await?;
    let access = namespace.access.clone();
    blocking(move || access.forget_entity(&name)).await?;
    Ok(created)
}

/// Deletes a hub; see [`delete`].
pub(crate) async fn delete_hub(
    namespace: &Namespace,
    name: EntityName,
    expected: Option<u64>,
) -> Result<(), Problem> {
    namespace.broker.delete_hub(name.clone(), expected).await?;
    let access = namespace.access.clone();
    blocking(move || access.forget_entity(&name)).await
}

/// Rejects the request if a rule does not have the expected state.
pub(crate) async fn check_rule(
    broker: &Broker,
    subscription: &EntityName,
    name: &RuleName,
    condition: &Condition,
) -> Result<(), Problem> {
    if *condition == Condition::None {
        return Ok(());
    }
    let found = rule(broker, subscription, name).await?;
    match condition {
        Condition::Revision(revision) if *revision == found.created_at.as_millis() => Ok(()),
        Condition::None | Condition::Exists => Ok(()),
        _ => Err(Problem::Precondition(format!("the rule '{name}' has changed meanwhile; read it again"))),
    }
}

pub(crate) async fn rule(
    broker: &Broker,
    subscription: &EntityName,
    name: &RuleName,
) -> Result<RuleInfo, Problem> {
    Ok(broker.rule(subscription.clone(), name.clone()).await?)
}

pub(crate) fn changed_meanwhile(name: &EntityName) -> Problem {
    Problem::Precondition(format!("'{name}' is not in the state that the request expects; read it again"))
}

/// Converts the error of a change. A change without an expected revision can conflict with another one and is then
/// retried.
pub(crate) fn update_problem(error: AdminError, was_expected: bool) -> Problem {
    match Problem::from(error) {
        Problem::Precondition(text) if !was_expected => Problem::Conflict(text),
        problem => problem,
    }
}

/// Runs blocking disk work on a separate thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ChangeError> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Problem::from),
        Err(error) => Err(Problem::Unavailable(format!("the change was cut off: {error}"))),
    }
}

impl From<ChangeError> for Problem {
    fn from(error: ChangeError) -> Self {
        let text = error.to_string();
        match error {
            ChangeError::Policy(_) => Problem::BadRequest(text),
            ChangeError::NoSuchPolicy { .. } => Problem::NotFound(text),
            ChangeError::Declared { .. } => Problem::Conflict(text),
            ChangeError::TooMany { .. } => Problem::Quota(text),
            ChangeError::Random(_) | ChangeError::Store(_) => Problem::Unavailable(text),
        }
    }
}
