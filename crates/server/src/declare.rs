//! Creates or changes the entities that the configuration declares. Other entities stay as they are.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use peeklock_broker::{AdminError, Broker, EntityInfo, Error, engine, hubs};
use peeklock_filter::Rule;
use peeklock_spec::{HubSpec, QueueGroupSpec, QueueSpec, SubscriptionName, SubscriptionSpec, TopicSpec};
use peeklock_types::{EntityKind, EntityName, QueueSettings};
use tokio::task::JoinSet;

/// The number of entities that are created at once: enough to share the journal's syncs, and few enough that shards keep up.
const DECLARED_AT_ONCE_MAX: usize = 256;

/// The declared entities of a namespace. Settings that are left out keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entities {
    pub queues: Vec<(EntityName, QueueSpec)>,
    pub topics: Vec<(EntityName, TopicSpec)>,
    pub hubs: Vec<(EntityName, HubSpec)>,
    /// The queue groups: names that receivers use for several queues.
    pub groups: Vec<(EntityName, QueueGroupSpec)>,
}

impl FromIterator<(EntityName, QueueSettings)> for Entities {
    fn from_iter<I: IntoIterator<Item = (EntityName, QueueSettings)>>(queues: I) -> Self {
        let queues = queues.into_iter().map(|(name, settings)| (name, QueueSpec::of(&settings)));
        Entities { queues: queues.collect(), ..Entities::default() }
    }
}

/// Sets the queue groups of the broker. Their names must be free, because the messages of an entity of that name could no longer be
/// received.
pub(crate) async fn with_queue_groups(
    broker: Broker,
    groups: Vec<(EntityName, QueueGroupSpec)>,
) -> Result<Broker> {
    for (name, _) in &groups {
        if let Some(found) = find(&broker, name).await? {
            bail!(
                "'{name}' is configured as a group, but there is a {} of this name; give the group another name, or delete the {0}",
                found.kind
            );
        }
        if broker.hub(name.clone()).await.is_ok() {
            bail!(
                "'{name}' is configured as a group, but there is a hub of this name; give the group another name, or delete the hub"
            );
        }
    }
    let groups = groups.into_iter().map(|(name, spec)| (name, Arc::new(spec.settings())));
    Ok(broker.with_queue_groups(groups.collect()))
}

pub(crate) async fn declare(broker: &Broker, entities: Entities) -> Result<()> {
    let mut at_work = JoinSet::new();
    for (name, spec) in entities.queues {
        let broker = broker.clone();
        start(&mut at_work, async move { declare_queue(&broker, name, &spec).await }).await?;
    }
    for (name, spec) in entities.topics {
        let broker = broker.clone();
        start(&mut at_work, async move { declare_topic(&broker, name, spec).await }).await?;
    }
    for (name, spec) in entities.hubs {
        let broker = broker.clone();
        start(&mut at_work, async move { declare_hub(&broker, name, &spec).await }).await?;
    }
    while let Some(ended) = at_work.join_next().await {
        ended??;
    }
    Ok(())
}

async fn start(
    at_work: &mut JoinSet<Result<()>>,
    work: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<()> {
    if at_work.len() >= DECLARED_AT_ONCE_MAX
        && let Some(ended) = at_work.join_next().await
    {
        ended??;
    }
    at_work.spawn(work);
    Ok(())
}

async fn declare_queue(broker: &Broker, name: EntityName, spec: &QueueSpec) -> Result<()> {
    declare_entity(broker, &name, EntityKind::Queue, |settings| spec.apply(settings), None).await.map(drop)
}

async fn declare_topic(broker: &Broker, name: EntityName, spec: TopicSpec) -> Result<()> {
    declare_entity(broker, &name, EntityKind::Topic, |settings| spec.apply(settings), None).await?;
    let subscriptions = spec.subscriptions.map_or_else(Vec::new, |named| named.0);
    for (subscription, spec) in subscriptions {
        declare_subscription(broker, &name, &subscription, &spec).await?;
    }
    Ok(())
}

async fn declare_subscription(
    broker: &Broker,
    topic: &EntityName,
    name: &SubscriptionName,
    spec: &SubscriptionSpec,
) -> Result<()> {
    let name = EntityName::subscription(topic, name.as_str())?;
    let rules = match &spec.rules {
        Some(named) => {
            let rules = named.0.iter().map(|(rule, spec)| spec.rule(rule.clone()));
            Some(rules.collect::<Result<Vec<_>, _>>().with_context(|| format!("a rule of '{name}'"))?)
        }
        None => None,
    };
    let first = rules.as_ref().and_then(|rules| rules.first().cloned());
    declare_entity(broker, &name, EntityKind::Subscription, |settings| spec.apply(settings), first).await?;
    match rules {
        Some(rules) => {
            declare_rules(broker, &name, rules).await.with_context(|| format!("the rules of '{name}'"))
        }
        None => Ok(()),
    }
}

/// Creates the entity, or changes the settings that differ.
async fn declare_entity(
    broker: &Broker,
    name: &EntityName,
    kind: EntityKind,
    apply: impl Fn(&mut QueueSettings),
    rule: Option<Rule>,
) -> Result<EntityInfo> {
    let Some(found) = find(broker, name).await? else {
        let mut settings = QueueSettings::default();
        apply(&mut settings);
        let created = broker.create(name.clone(), kind, settings, rule).await;
        return created.with_context(|| format!("cannot create the {kind} '{name}' as configured"));
    };
    if found.kind != kind {
        bail!(
            "'{name}' is configured as a {kind}, but there is a {} of this name; delete it, or give the {kind} another name",
            found.kind
        );
    }
    let mut settings = found.settings.clone();
    apply(&mut settings);
    if settings == found.settings {
        return Ok(found);
    }
    let updated = broker.update(name.clone(), settings, None).await;
    updated.with_context(|| format!("cannot change the {kind} '{name}' to what is configured"))
}

/// Creates the hub, or adds the settings, partitions and consumer groups that it lacks.
async fn declare_hub(broker: &Broker, name: EntityName, spec: &HubSpec) -> Result<()> {
    if let Some(found) = find(broker, &name).await? {
        bail!(
            "'{name}' is configured as a hub, but there is a {} of this name; delete it, or give the hub another name",
            found.kind
        );
    }
    let found = match broker.hub(name.clone()).await {
        Ok(found) => found,
        Err(AdminError::Refused(Error::Hub(error))) if matches!(*error, hubs::Error::NoSuchHub { .. }) => {
            let created = broker.create_hub(name.clone(), spec.settings(), spec.groups()).await;
            created.with_context(|| format!("cannot create the hub '{name}' as configured"))?;
            return Ok(());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot look for '{name}'")),
    };
    let mut settings = found.settings.clone();
    spec.apply(&mut settings);
    let changing = || format!("cannot change the hub '{name}' to what is configured");
    if settings != found.settings {
        broker.update_hub(name.clone(), settings, None).await.with_context(changing)?;
    }
    for group in spec.groups() {
        if found.groups.iter().all(|known| known.name != group) {
            broker.create_group(name.clone(), group, None).await.with_context(changing)?;
        }
    }
    Ok(())
}

async fn find(broker: &Broker, name: &EntityName) -> Result<Option<EntityInfo>> {
    match broker.show(name.clone()).await {
        Ok(found) => Ok(Some(found)),
        Err(AdminError::Refused(Error::Engine(error)))
            if matches!(*error, engine::Error::NoSuchQueue { .. } | engine::Error::NoSuchTopic { .. }) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot look for '{name}'")),
    }
}

/// Replaces the rules of the subscription. New rules are added before old ones are removed, so that no message is missed in between.
async fn declare_rules(broker: &Broker, name: &EntityName, rules: Vec<Rule>) -> Result<()> {
    let found = broker.rules(name.clone(), 0, usize::MAX).await?;
    for rule in &rules {
        match found.iter().find(|known| known.rule.name == rule.name) {
            None => broker.add_rule(name.clone(), rule.clone()).await?,
            Some(known) if known.rule != *rule => broker.replace_rule(name.clone(), rule.clone()).await?,
            Some(_) => {}
        }
    }
    for known in found {
        if !rules.iter().any(|rule| rule.name == known.rule.name) {
            broker.remove_rule(name.clone(), known.rule.name).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_broker::Running;
    use peeklock_journal::MemoryJournal;
    use peeklock_spec::{NamespaceSpec, from_toml};
    use peeklock_types::EntityName;

    async fn broker() -> (Broker, Running) {
        let opened = Broker::open(&MemoryJournal::new(), peeklock_message::describe).await;
        let (broker, running, _) = opened.unwrap();
        (broker, running)
    }

    fn entities(text: &str) -> Entities {
        let spec: NamespaceSpec = from_toml(text).unwrap();
        spec.check().unwrap();
        Entities { queues: spec.queues.0, topics: spec.topics.0, hubs: spec.hubs.0, groups: spec.groups.0 }
    }

    fn name(text: &str) -> EntityName {
        EntityName::parse(text).unwrap()
    }

    async fn rule_names(broker: &Broker) -> Vec<String> {
        let rules = broker.rules(name("news/Subscriptions/all"), 0, 100).await.unwrap();
        rules.into_iter().map(|known| known.rule.name.to_string()).collect()
    }

    #[tokio::test]
    async fn missing_entities_are_created_and_different_ones_are_changed() {
        let (broker, _running) = broker().await;
        let first = "[queues.orders]\nmax-delivery-count = 3\n[topics.news.subscriptions.all]\nmax-delivery-count = 4";
        declare(&broker, entities(first)).await.unwrap();
        assert_eq!(rule_names(&broker).await, ["$Default"]);
        let before = broker.show(name("orders")).await.unwrap();
        let second = "[queues.orders]\nlock-duration = '5s'\n[topics.news.subscriptions.all.rules.high]\nsql = 'a > 1'";
        declare(&broker, entities(second)).await.unwrap();
        let after = broker.show(name("orders")).await.unwrap();
        assert_eq!(after.settings.lock_duration.as_secs(), 5);
        assert_eq!(after.settings.max_delivery_count, 3, "a setting that is not declared stays");
        assert!(after.revision > before.revision);
        assert_eq!(rule_names(&broker).await, ["high"]);
        // A second declaration changes nothing.
        declare(&broker, entities(second)).await.unwrap();
        assert_eq!(broker.show(name("orders")).await.unwrap().revision, after.revision);
        let third = "[topics.news.subscriptions.all.rules]\nhigh.sql = 'a > 2'\nlow.match = 'none'";
        declare(&broker, entities(third)).await.unwrap();
        assert_eq!(rule_names(&broker).await, ["high", "low"]);
        declare(&broker, entities("[topics.news.subscriptions.all.rules]")).await.unwrap();
        assert_eq!(rule_names(&broker).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_setting_that_cannot_be_changed_is_named() {
        let (broker, _running) = broker().await;
        declare(&broker, entities("[queues.orders]\n[topics.news]")).await.unwrap();
        let refused = async |text| format!("{:#}", declare(&broker, entities(text)).await.unwrap_err());
        let told = refused("[queues.orders]\nrequires-session = true").await;
        assert!(
            told.contains("cannot change the queue 'orders'") && told.contains("'requires session'"),
            "{told}"
        );
        let told = refused("[queues.news]").await;
        assert!(told.contains("'news' is configured as a queue, but there is a topic"), "{told}");
        let told = refused("[topics.orders]").await;
        assert!(told.contains("'orders' is configured as a topic, but there is a queue"), "{told}");
    }

    #[tokio::test]
    async fn a_queue_group_needs_a_free_name() {
        let (broker, _running) = broker().await;
        declare(&broker, entities("[queues.work]")).await.unwrap();
        let groups = |text| entities(text).groups;
        let told =
            with_queue_groups(broker.clone(), groups("[groups.work]\nmembers = ['a']")).await.err().unwrap();
        assert!(told.to_string().contains("'work' is configured as a group, but there is a queue"), "{told}");
        let broker =
            with_queue_groups(broker, groups("[groups.pool]\nmembers = ['a', 'work']")).await.unwrap();
        assert_eq!(broker.queue_groups().len(), 1);
        assert!(broker.create_queue(name("pool"), QueueSettings::default()).await.is_err());
    }

    #[tokio::test]
    async fn hubs_are_created_and_extended() {
        let (broker, _running) = broker().await;
        declare(&broker, entities("[hubs.meters]\npartition-count = 2\nconsumer-groups = ['a']"))
            .await
            .unwrap();
        let before = broker.hub(name("meters")).await.unwrap();
        assert_eq!((before.settings.partition_count, before.groups.len()), (2, 2));
        let more =
            "[hubs.meters]\npartition-count = 3\nretention = '7d'\nconsumer-groups = ['b', '$Default']";
        declare(&broker, entities(more)).await.unwrap();
        let after = broker.hub(name("meters")).await.unwrap();
        assert_eq!(
            (after.settings.partition_count, after.groups.len()),
            (3, 3),
            "a setting that is not declared stays"
        );
        assert_eq!(broker.partitions(&after).await.unwrap().len(), 3);
        // A second declaration changes nothing.
        declare(&broker, entities(more)).await.unwrap();
        assert_eq!(broker.hub(name("meters")).await.unwrap().revision, after.revision);
        let refused = async |text| format!("{:#}", declare(&broker, entities(text)).await.unwrap_err());
        let told = refused("[hubs.meters]\npartition-count = 1").await;
        assert!(
            told.contains("cannot change the hub 'meters'") && told.contains("cannot have fewer"),
            "{told}"
        );
        declare(&broker, entities("[queues.orders]")).await.unwrap();
        let told = refused("[hubs.orders]").await;
        assert!(told.contains("'orders' is configured as a hub, but there is a queue"), "{told}");
        let told = refused("[queues.meters]").await;
        assert!(told.contains("event hub"), "{told}");
    }

    #[tokio::test]
    async fn a_thousand_queues_are_created_at_once() {
        let (broker, _running) = broker().await;
        let text: String = (0..1000).map(|n| format!("[queues.q{n}]\n")).collect();
        declare(&broker, entities(&text)).await.unwrap();
        assert!(broker.show(name("q999")).await.is_ok());
    }
}
