//! Creates the entities of a scenario, and at the end, when all is at rest, counts and drains them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use peeklock_broker::Broker;
use peeklock_client::{Outcome, ReceiveMode, ReceiverBuilder, SequenceNumber, Session};
use peeklock_filter::RuleName;
use peeklock_types::{EntityKind, EntityName, QueueSettings};
use tokio::time::timeout;

use crate::client::{Connected, PATIENCE, Party, ask, peeked, seen, session_id};
use crate::hub_audit;
use crate::log::{Counted, Event, Part, Peeked, QueueIndex, Seen, SessionNumber};
use crate::scenario::{Rule, Scenario};

/// The time without a delivery after which a queue counts as empty.
const EMPTY_AFTER: Duration = Duration::from_secs(10);
/// The time without a delivery after which a session counts as empty; shorter than any session's lock.
const SESSION_EMPTY_AFTER: Duration = Duration::from_secs(1);
const CREDIT: u32 = 50;
const PEEK_COUNT: u32 = 200;
/// The interval between checks for remaining locks.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const START_LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn create_entities(party: &Party) -> bool {
    let broker = loop {
        match party.world.office.broker() {
            Some(broker) => break broker,
            None => tokio::time::sleep(START_LOOK_EVERY).await,
        }
    };
    let created = Setup { broker, scenario: &party.world.scenario }.create().await;
    if let Err(why) = &created {
        party.log(Event::Trouble { what: why.clone() });
    }
    created.is_ok()
}

/// Creates the entities of a scenario. Errors name the part that failed.
struct Setup<'a> {
    broker: Broker,
    scenario: &'a Scenario,
}

impl Setup<'_> {
    async fn create(&self) -> Result<(), String> {
        let subscriptions = self.scenario.topics.iter().flat_map(|topic| &topic.subscriptions);
        let rules: BTreeMap<_, _> = subscriptions.map(|sub| (sub.queue, &sub.rules)).collect();
        // Later queues are created first, because queues forward to later ones. Subscriptions forward to queues, and
        // need their topic.
        for (n, queue) in self.scenario.queues.iter().enumerate().rev() {
            if !rules.contains_key(&n) {
                self.create_one(&queue.name, EntityKind::Queue, &queue.settings).await?;
            }
        }
        for topic in &self.scenario.topics {
            self.create_one(&topic.name, EntityKind::Topic, &topic.settings).await?;
        }
        for (n, rules) in rules {
            let Some(queue) = self.scenario.queues.get(n) else { continue };
            self.create_one(&queue.name, EntityKind::Subscription, &queue.settings).await?;
            self.give_rules(&queue.name, rules).await?;
        }
        match &self.scenario.hub {
            Some(hub) => hub_audit::create(&self.broker, hub).await,
            None => Ok(()),
        }
    }

    async fn create_one(&self, name: &str, kind: EntityKind, settings: &QueueSettings) -> Result<(), String> {
        let failed = |why: &dyn fmt::Display| format!("{name}: {why}");
        let parsed = EntityName::parse(name).map_err(|why| failed(&why))?;
        let created = self.broker.create(parsed, kind, settings.clone(), None).await;
        created.map(|_| ()).map_err(|why| failed(&why))
    }

    async fn give_rules(&self, name: &str, rules: &[Rule]) -> Result<(), String> {
        let failed = |why: &dyn fmt::Display| format!("the rules of {name}: {why}");
        let parsed = EntityName::parse(name).map_err(|why| failed(&why))?;
        for rule in rules {
            let rule = rule.spelled().map_err(|why| failed(&why))?;
            self.broker.add_rule(parsed.clone(), rule).await.map_err(|why| failed(&why))?;
        }
        let removed = self.broker.remove_rule(parsed, RuleName::default_rule()).await;
        removed.map_err(|why| failed(&why))
    }
}

pub(crate) async fn take_out(mut party: Party) {
    tokio::time::sleep(party.world.scenario.rest()).await;
    for queue in 0..party.world.scenario.queues.len() {
        wait_for_rest(&party, queue).await;
    }
    party.log(Event::Resting);
    check_topics(&party).await;
    for queue in 0..party.world.scenario.queues.len() {
        if let Err(step) = try_take_out(&mut party, queue).await {
            party.log(Event::Trouble { what: format!("queue {queue} could not be emptied: {step}") });
        }
    }
}

/// Returns the counts of a queue or a topic; `None` while no broker runs.
pub(crate) async fn count(party: &Party, name: &str) -> Option<Counted> {
    let name = EntityName::parse(name).ok()?;
    let broker = party.world.office.broker()?;
    let counts = timeout(PATIENCE, broker.show(name)).await.ok()?.ok()?.counts;
    Some(Counted {
        active: counts.active_count,
        locked: counts.locked_count,
        deferred: counts.deferred_count,
        dead_letter: counts.dead_letter_count,
        scheduled: counts.scheduled_count,
        transfers: counts.transfer_count + counts.transfer_dead_letter_count,
    })
}

/// Waits until no lock is held. Clock steps may have made some locks long.
async fn wait_for_rest(party: &Party, queue: QueueIndex) {
    while count(party, party.world.queue_name(queue)).await.is_none_or(|counts| counts.locked > 0) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Checks that a topic keeps only messages that are not due yet.
async fn check_topics(party: &Party) {
    for topic in &party.world.scenario.topics {
        let left = count(party, &topic.name).await;
        if left != Some(Counted::default()) {
            let what = format!("{} is at rest, and says {left:?}", topic.name);
            party.log(Event::Trouble { what });
        }
    }
}

/// Drains a queue. An error names the step that failed.
async fn try_take_out(party: &mut Party, queue: QueueIndex) -> Result<(), &'static str> {
    let connected = party.connect().await;
    let counts = count(party, party.world.queue_name(queue)).await.ok_or("counting")?;
    party.log(Event::Counted { queue, counts });
    for part in [Part::Main, Part::DeadLetter] {
        let found = look(party, &connected, queue, part).await.ok_or("peeking")?;
        let place = Place { party, connected: &connected, queue, part };
        let has_sessions = party.world.scenario.queues.get(queue).is_some_and(|q| q.session_count > 0);
        if part == Part::Main && has_sessions {
            let sessions: BTreeSet<_> = found.iter().filter_map(|peeked| peeked.session).collect();
            for session in sessions {
                place.take_session(session, &found).await.ok_or("a session")?;
            }
        } else if !party.world.scenario.forwards(queue, part) {
            place.take_waiting(place.builder(), EMPTY_AFTER).await.ok_or("taking out what waits")?;
            let deferred = found.iter().filter(|peeked| peeked.is_deferred);
            place.take_deferred(deferred, None).await.ok_or("taking out what is deferred")?;
        }
    }
    let counts = count(party, party.world.queue_name(queue)).await.ok_or("counting again")?;
    party.log(Event::Emptied { queue, counts });
    Ok(())
}

/// Peeks at all messages.
async fn look(party: &Party, connected: &Connected, queue: QueueIndex, part: Part) -> Option<Vec<Peeked>> {
    let entity = party.world.entity(queue, part);
    let mut from = SequenceNumber::FIRST;
    let mut all = Vec::new();
    loop {
        let request = party.world.log.next_request();
        party.log(Event::Peeking { request, queue, part });
        let found = ask(connected.client.peek(&entity, from, PEEK_COUNT)).await.0?;
        let messages: Vec<_> =
            found.iter().map(|message| peeked(&party.world.scenario, message, queue)).collect();
        let last = messages.last().map(|message| message.sequence_number);
        all.extend(messages.iter().cloned());
        party.log(Event::Peeked { request, messages });
        match last {
            Some(last) if last >= from.0 => from = SequenceNumber(last).next(),
            _ => return Some(all),
        }
    }
}

/// The sub-queue that the auditor drains.
struct Place<'a> {
    party: &'a Party,
    connected: &'a Connected,
    queue: QueueIndex,
    part: Part,
}

impl Place<'_> {
    fn builder(&self) -> ReceiverBuilder {
        let builder = self.connected.client.receiver(self.party.world.queue_name(self.queue)).credit(CREDIT);
        if self.part == Part::DeadLetter { builder.dead_letter() } else { builder }
    }

    fn seen(&self, message: &peeklock_client::ReceivedMessage) -> Seen {
        seen(&self.party.world.scenario, message, self.queue, self.part, self.connected.run)
    }

    async fn take_waiting(&self, builder: ReceiverBuilder, empty_after: Duration) -> Option<()> {
        let mut receiver = ask(builder.open()).await.0?;
        while let Ok(next) = timeout(empty_after, receiver.next()).await {
            if let Some(session) = receiver.session() {
                ask(session.renew()).await.0?;
            }
            let delivery = next.ok()??;
            let seen = self.seen(&delivery.message().ok()?);
            self.complete(seen, delivery.settle(Outcome::Complete)).await?;
        }
        ask(receiver.close()).await.0
    }

    async fn take_session(&self, session: SessionNumber, found: &[Peeked]) -> Option<()> {
        let builder = || self.builder().session(session_id(session));
        self.take_waiting(builder(), SESSION_EMPTY_AFTER).await?;
        let receiver = ask(builder().open()).await.0?;
        let held = receiver.session()?.clone();
        let deferred = found.iter().filter(|peeked| peeked.is_deferred && peeked.session == Some(session));
        self.take_deferred(deferred, Some(&held)).await?;
        ask(receiver.close()).await.0
    }

    async fn take_deferred(
        &self,
        deferred: impl Iterator<Item = &Peeked>,
        session: Option<&Session>,
    ) -> Option<()> {
        let (client, entity) = (&self.connected.client, self.party.world.entity(self.queue, self.part));
        for number in deferred.map(|peeked| SequenceNumber(peeked.sequence_number)) {
            if let Some(session) = session {
                ask(session.renew()).await.0?;
            }
            let mode = ReceiveMode::PeekLock;
            let (found, _) = match session {
                Some(session) => ask(session.receive_deferred(&[number], mode)).await,
                None => ask(client.receive_deferred(&entity, &[number], mode)).await,
            };
            for message in found? {
                let seen = Seen { by_number: true, ..self.seen(&message) };
                let token = seen.token?;
                let settling = async {
                    match session {
                        Some(session) => session.settle(&[token], Outcome::Complete).await,
                        None => client.settle(&entity, &[token], Outcome::Complete).await,
                    }
                };
                self.complete(seen, settling).await?;
            }
        }
        Some(())
    }

    async fn complete(
        &self,
        seen: Seen,
        settling: impl Future<Output = Result<(), peeklock_client::Error>>,
    ) -> Option<()> {
        let token = seen.token?;
        self.party.log(Event::Received(seen));
        let request = self.party.world.log.next_request();
        self.party.log(Event::Settling { request, token, outcome: Outcome::Complete, transaction: None });
        let (_, answer) = ask(settling).await;
        self.party.log(Event::Settled { request, answer });
        Some(())
    }
}
