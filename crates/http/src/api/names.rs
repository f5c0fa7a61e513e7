//! The names in the path of a request.

use peeklock_filter::RuleName;
use peeklock_types::{ConsumerGroup, EntityKind, EntityName};

use super::call::Call;
use crate::entity;
use crate::problem::Problem;
use crate::request::shown;

/// The names in a path, each with the key of its place in the path.
#[derive(Default)]
pub(super) struct Names {
    /// The innermost entity; `None` for the namespace.
    entity: Option<(PathKind, EntityName)>,
    rule: Option<RuleName>,
    policy: Option<String>,
    number: Option<String>,
    consumer_group: Option<ConsumerGroup>,
    partition: Option<String>,
}

#[derive(Clone, Copy)]
enum PathKind {
    Entity(EntityKind),
    QueueGroup,
    Hub,
}

impl Names {
    pub(super) fn read(path: &str, segments: &[String]) -> Result<Self, Problem> {
        let mut names = Names::default();
        for (part, text) in path.trim_start_matches('/').split('/').zip(segments) {
            let Some(key) = peeklock_api::parameters(part).next() else { continue };
            match key {
                "queue" => names.plain(PathKind::Entity(EntityKind::Queue), text)?,
                "topic" => names.plain(PathKind::Entity(EntityKind::Topic), text)?,
                "queueGroup" => names.plain(PathKind::QueueGroup, text)?,
                "hub" => names.plain(PathKind::Hub, text)?,
                "subscription" => {
                    let topic =
                        names.entity.take().map(|(_, topic)| topic).ok_or_else(|| missing("topic"))?;
                    let name = EntityName::subscription(&topic, text)?;
                    names.entity = Some((PathKind::Entity(EntityKind::Subscription), name));
                }
                "rule" => names.rule = Some(RuleName::parse(text)?),
                "consumerGroup" => {
                    let group = ConsumerGroup::parse(text);
                    names.consumer_group = Some(group.map_err(|error| Problem::bad(error.to_string()))?);
                }
                "policy" => names.policy = Some(text.clone()),
                "number" => names.number = Some(text.clone()),
                _ => names.partition = Some(text.clone()),
            }
        }
        Ok(names)
    }

    fn plain(&mut self, kind: PathKind, text: &str) -> Result<(), Problem> {
        self.entity = Some((kind, plain_name(text)?));
        Ok(())
    }

    /// Returns the entity on which a right is required, or the empty path of the namespace.
    pub(super) fn authorised_path(&self) -> &str {
        self.entity.as_ref().map_or("", |(_, name)| name.as_str())
    }
}

impl<Q, B> Call<Q, B> {
    pub(super) fn entity(&self) -> Result<EntityName, Problem> {
        self.scope().cloned().ok_or_else(|| missing("entity"))
    }

    /// Returns the entity of a policy; `None` for the namespace.
    pub(super) fn scope(&self) -> Option<&EntityName> {
        self.names.entity.as_ref().map(|(_, name)| name)
    }

    pub(super) fn rule_name(&self) -> Result<RuleName, Problem> {
        self.names.rule.clone().ok_or_else(|| missing("rule"))
    }

    pub(super) fn policy_name(&self) -> Result<&str, Problem> {
        self.names.policy.as_deref().ok_or_else(|| missing("policy"))
    }

    pub(super) fn message_number(&self) -> Result<&str, Problem> {
        self.names.number.as_deref().ok_or_else(|| missing("message"))
    }

    pub(super) fn consumer_group(&self) -> Result<ConsumerGroup, Problem> {
        self.names.consumer_group.clone().ok_or_else(|| missing("consumer group"))
    }

    pub(super) fn partition(&self) -> Result<u32, Problem> {
        let text = self.names.partition.as_deref().ok_or_else(|| missing("partition"))?;
        text.parse().map_err(|_| {
            let given = shown(text);
            Problem::NotFound(format!("there is no partition '{given}'; they are numbered from 0"))
        })
    }

    /// Returns whether the path is that of a topic.
    pub(super) fn is_topic(&self) -> bool {
        matches!(self.names.entity, Some((PathKind::Entity(EntityKind::Topic), _)))
    }

    /// Rejects the request if the entity in the path does not exist or has another kind than the path specifies.
    pub(super) async fn check_entity(&self) -> Result<(), Problem> {
        let broker = &self.namespace.broker;
        match self.names.entity.clone() {
            Some((PathKind::Entity(kind), name)) => entity::show(broker, name, kind).await.map(drop),
            Some((PathKind::Hub, name)) => Ok(broker.hub(name).await.map(drop)?),
            Some((PathKind::QueueGroup, _)) | None => Ok(()),
        }
    }
}

/// Parses the name of a queue, topic, queue group or hub.
pub(super) fn plain_name(text: &str) -> Result<EntityName, Problem> {
    let name = EntityName::parse(text)?;
    if name.is_subscription() {
        let text = format!("'{name}' is a subscription; its address is /api/topics/TOPIC/subscriptions/NAME");
        return Err(Problem::NotFound(text));
    }
    Ok(name)
}

/// Returns the error for a route whose path lacks a name that its handler needs.
fn missing(what: &str) -> Problem {
    Problem::bad(format!("the path names no {what}"))
}
