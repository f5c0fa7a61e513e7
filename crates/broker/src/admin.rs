//! Entities and rules: what there is, and how it changes.

use peeklock_engine::{Engine, QueueView};
use peeklock_journal::Log;
use peeklock_types::{EntityKind, EntityName, Timestamp};

use crate::execute::{Answered, done};
use crate::hub::HubAnswer;
use crate::reply::{Answer, EntityInfo, Error, Found, RuleInfo};
use crate::request::{Listing, Request};
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    pub(crate) fn execute_catalog(&mut self, now: Timestamp, request: Request) -> Answered {
        let (engine, out) = (&mut self.state.engine, &mut self.output);
        Some(match request {
            Request::Find { ticket, name } => {
                let hub =
                    || self.state.hubs.hub(&name).ok().map(|hub| Answer::Hub(Box::new(HubAnswer::Hub(hub))));
                (ticket, find(engine, &name).or_else(hub).ok_or_else(|| missing(name)))
            }
            Request::Create { ticket, name, .. } if self.state.hubs.contains_hub(&name) => {
                (ticket, Err(Error::NameTaken { name, is_hub: true }))
            }
            Request::Create { ticket, name, kind, settings, rule } => {
                let created = match kind {
                    EntityKind::Queue | EntityKind::Topic => {
                        engine.create(now, name.clone(), kind, *settings, out)
                    }
                    EntityKind::Subscription => {
                        engine.create_subscription(now, name.clone(), *settings, rule.map(|rule| *rule), out)
                    }
                };
                let shown = created.map_err(Error::from).and_then(|_| show(engine, name));
                (ticket, shown)
            }
            Request::Update { ticket, name, settings, expected } => {
                let updated = engine
                    .check_revision(&name, expected)
                    .and_then(|()| engine.update_queue(now, &name, *settings, out));
                (ticket, updated.map_err(Error::from).and_then(|_| show(engine, name)))
            }
            Request::Delete { ticket, name, expected } => {
                let deleted = engine
                    .check_revision(&name, expected)
                    .and_then(|()| engine.delete_queue(now, &name, out).map(|_| ()));
                (ticket, done(deleted))
            }
            Request::Show { ticket, name } => (ticket, show(engine, name)),
            Request::List { ticket, what, after, top } => {
                let found = list(engine, &what, after.as_ref());
                let described = found.map(|found| found.take(top).map(|queue| describe(engine, queue)));
                (ticket, described.map(|described| Answer::Entities(described.collect())))
            }
            Request::Names { ticket, what } => {
                let names =
                    list(engine, &what, None).map(|found| found.map(|queue| queue.name.clone()).collect());
                (ticket, names.map(Answer::Names))
            }
            _ => return None,
        })
    }

    pub(crate) fn execute_rules(&mut self, now: Timestamp, request: Request) -> Answered {
        let (engine, out) = (&mut self.state.engine, &mut self.output);
        Some(match request {
            Request::AddRule { ticket, name, rule } => {
                (ticket, done(engine.add_rule(now, &name, *rule, out)))
            }
            Request::ReplaceRule { ticket, name, rule } => {
                (ticket, done(engine.replace_rule(now, &name, *rule, out)))
            }
            Request::RemoveRule { ticket, name, rule } => {
                (ticket, done(engine.remove_rule(now, &name, &rule, out)))
            }
            Request::ShowRule { ticket, name, rule } => {
                let found = engine.rules(&name).and_then(|mut rules| {
                    let found = rules.find(|found| found.rule.name == rule).map(rule_info);
                    found.ok_or_else(|| peeklock_engine::Error::NoSuchRule { name: name.clone(), rule })
                });
                (ticket, found.map(|rule| Answer::Rules(vec![rule])).map_err(Error::from))
            }
            Request::ListRules { ticket, name, skip, top } => {
                let rules =
                    engine.rules(&name).map(|rules| rules.skip(skip).take(top).map(rule_info).collect());
                (ticket, rules.map(Answer::Rules).map_err(Error::from))
            }
            Request::Explain { ticket, name, view } => {
                (ticket, engine.explain(&name, &view).map(Answer::Explained).map_err(Error::from))
            }
            _ => return None,
        })
    }
}

fn rule_info(rule: peeklock_engine::RuleView<'_>) -> RuleInfo {
    RuleInfo { rule: rule.rule.clone(), created_at: rule.created_at }
}

pub(crate) fn missing(name: EntityName) -> Error {
    peeklock_engine::Error::NoSuchQueue { name }.into()
}

fn find(engine: &Engine, name: &EntityName) -> Option<Answer> {
    let queue = engine.find(name).and_then(|entity| engine.queue(entity))?;
    let settings = queue.settings;
    let forwards = settings.forward_to.is_some() || settings.forward_dead_letters_to.is_some();
    let is_topic = queue.kind == EntityKind::Topic;
    Some(Answer::Found(Found {
        entity: queue.entity,
        kind: queue.kind,
        requires_session: settings.requires_session,
        max_message_size_bytes: settings.max_message_size_bytes,
        needs_message_id: settings.duplicate_window.is_some() || forwards || is_topic,
        needs_view: engine.needs_view(queue.entity),
    }))
}

pub(crate) fn show(engine: &Engine, name: EntityName) -> Result<Answer, Error> {
    let found = engine.find(&name).and_then(|entity| engine.queue(entity));
    let queue = found.ok_or_else(|| missing(name))?;
    Ok(Answer::Entities(vec![describe(engine, queue)]))
}

fn list<'e>(
    engine: &'e Engine,
    what: &Listing,
    after: Option<&'e EntityName>,
) -> Result<Box<dyn Iterator<Item = QueueView<'e>> + 'e>, Error> {
    let all = || engine.queues_after(after).filter(|queue| !queue.name.is_internal());
    let of_kind = |kind| all().filter(move |queue| queue.kind == kind);
    Ok(match what {
        Listing::All => Box::new(all()),
        Listing::Queues => Box::new(of_kind(EntityKind::Queue)),
        Listing::Topics => Box::new(of_kind(EntityKind::Topic)),
        Listing::Subscriptions { topic } => {
            let found = engine.find(topic).and_then(|entity| engine.queue(entity));
            let found = found.filter(|queue| queue.kind == EntityKind::Topic);
            let no_topic = || peeklock_engine::Error::NoSuchTopic { name: topic.clone() };
            let entity = found.ok_or_else(no_topic)?.entity;
            let all = engine.subscriptions(entity).filter_map(|entity| engine.queue(entity));
            Box::new(all.filter(move |queue| after.is_none_or(|after| queue.name > after)))
        }
    })
}

fn describe(engine: &Engine, queue: QueueView<'_>) -> EntityInfo {
    let mut counts = queue.counts;
    let is_topic = queue.kind == EntityKind::Topic;
    if is_topic {
        counts.size_bytes = engine.topic_size(queue.entity);
    }
    let (sql_rule_count, correlation_rule_count) = engine.rule_counts(queue.entity);
    EntityInfo {
        name: queue.name.clone(),
        kind: queue.kind,
        settings: queue.settings.clone(),
        metadata: queue.metadata.clone(),
        counts,
        created_at: queue.created_at,
        updated_at: queue.updated_at,
        accessed_at: queue.used_at,
        revision: queue.revision,
        subscription_count: if is_topic { engine.subscriptions(queue.entity).count() } else { 0 },
        sql_rule_count,
        correlation_rule_count,
        rule_count: queue.rule_count,
    }
}
