//! Queues, topics and subscriptions: lists, descriptions, changes.

use peeklock_engine::{Engine, QueueView};
use peeklock_journal::Log;
use peeklock_types::{EntityKind, EntityName, Timestamp};

use crate::batch::PeerId;
use crate::measure::measure_page;
use crate::reply::{EntityInfo, Error};
use crate::request::entities::{
    Create, Delete, EntityRequest, ExplainMessage, Find, Found, List, Listing, MeasureEntities, Named, Names,
    Show, ShowOrder, Update,
};
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    pub(super) fn execute_entity(&mut self, now: Timestamp, peer: PeerId, request: EntityRequest) {
        match request {
            EntityRequest::Find(asked) => self.answer(peer, asked, |shard, Find { name }| shard.find(name)),
            EntityRequest::Create(asked) => {
                self.answer(peer, asked, |shard, request| shard.create(now, request))
            }
            EntityRequest::Update(asked) => {
                self.answer(peer, asked, |shard, Update { name, settings, expected }| {
                    let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                    engine.check_revision(&name, expected)?;
                    engine.update_queue(now, &name, *settings, out)?;
                    show(engine, name)
                });
            }
            EntityRequest::Delete(asked) => self.answer(peer, asked, |shard, Delete { name, expected }| {
                let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                engine.check_revision(&name, expected)?;
                engine.delete_queue(now, &name, out)?;
                Ok(())
            }),
            EntityRequest::Show(asked) => {
                self.answer(peer, asked, |shard, Show { name }| show(&shard.state.engine, name))
            }
            EntityRequest::List(asked) => self.answer(peer, asked, |shard, List { what, after, top }| {
                let engine = &shard.state.engine;
                let found = list(engine, &what, after.as_ref())?;
                Ok(found.take(top).map(|queue| describe(engine, queue)).collect())
            }),
            EntityRequest::Names(asked) => self.answer(peer, asked, |shard, Names { what }| {
                Ok(list(&shard.state.engine, &what, None)?.map(|queue| queue.name.clone()).collect())
            }),
            EntityRequest::ShowOrder(asked) => self.answer(peer, asked, |shard, ShowOrder { name }| {
                let entity = shard.entity(name)?;
                Ok(shard.state.engine.order_view(now, entity).map(Box::new))
            }),
            EntityRequest::ExplainMessage(asked) => {
                self.answer(peer, asked, |shard, ExplainMessage { name, number }| {
                    let entity = shard.entity(name)?;
                    Ok(shard.state.engine.explain_message(now, entity, number)?)
                });
            }
            EntityRequest::MeasureEntities(asked) => {
                self.answer(peer, asked, |shard, MeasureEntities { after, top }| {
                    Ok(measure_page(&shard.state.engine, now, after.as_ref(), top))
                });
            }
        }
    }

    fn find(&self, name: EntityName) -> Result<Named, Error> {
        match find(&self.state.engine, &name) {
            Some(found) => Ok(Named::Entity(found)),
            None => self.state.hubs.hub(&name).map(Named::Hub).map_err(|_| missing(name)),
        }
    }

    pub(super) fn create(&mut self, now: Timestamp, request: Create) -> Result<EntityInfo, Error> {
        let Create { name, kind, settings, rule } = request;
        if self.state.hubs.contains_hub(&name) {
            return Err(Error::NameTaken { name, is_hub: true });
        }
        let (engine, out) = (&mut self.state.engine, &mut self.output);
        match kind {
            EntityKind::Queue | EntityKind::Topic => {
                engine.create(now, name.clone(), kind, *settings, out)?
            }
            EntityKind::Subscription => {
                engine.create_subscription(now, name.clone(), *settings, rule.map(|rule| *rule), out)?
            }
        };
        show(engine, name)
    }
}

pub(crate) fn missing(name: EntityName) -> Error {
    peeklock_engine::Error::NoSuchQueue { name }.into()
}

fn find(engine: &Engine, name: &EntityName) -> Option<Found> {
    let queue = engine.find(name).and_then(|entity| engine.queue(entity))?;
    let settings = queue.settings;
    let forwards = settings.forward_to.is_some() || settings.forward_dead_letters_to.is_some();
    let is_topic = queue.kind == EntityKind::Topic;
    Some(Found {
        entity: queue.entity,
        kind: queue.kind,
        requires_session: settings.requires_session,
        lock_duration: settings.lock_duration,
        max_message_size_bytes: settings.max_message_size_bytes,
        needs_message_id: settings.duplicate_window.is_some() || forwards || is_topic,
        needs_view: engine.needs_view(queue.entity),
    })
}

pub(super) fn show(engine: &Engine, name: EntityName) -> Result<EntityInfo, Error> {
    let found = engine.find(&name).and_then(|entity| engine.queue(entity));
    let queue = found.ok_or_else(|| missing(name))?;
    Ok(describe(engine, queue))
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
