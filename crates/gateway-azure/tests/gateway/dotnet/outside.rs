//! Events outside the recorded connections: entities, existing messages, another client.

use std::time::Duration;

use peeklock_amqp::connection::LinkId;
use peeklock_amqp::{Attach, DeliveryState, Message, Role, Source, Target};
use peeklock_types::{ConsumerGroup, EntityKind, EntityName, HubSettings, QueueSettings, QueueStatus};

use crate::support::{Client, Rig};

/// Clients that stay connected during the replay.
#[derive(Default)]
pub(super) struct Outside {
    clients: Vec<Client>,
}

impl Outside {
    /// Performs the event after the `!` of a line in a recording; see `tests/dotnet/README.md`.
    pub(super) async fn happens(&mut self, rig: &Rig, text: &str) {
        let words: Vec<_> = text.split(' ').collect();
        match words[..] {
            ["queue", name, ref settings @ ..] => rig.queue(name, queue_settings(settings)).await,
            ["update", name, ref settings @ ..] => {
                rig.broker.update(entity(name), queue_settings(settings), None).await.unwrap();
            }
            ["topic", name] => create(rig, name, EntityKind::Topic).await,
            ["subscription", path] => create(rig, path, EntityKind::Subscription).await,
            ["hub", name, partitions, ref groups @ ..] => hub(rig, name, partitions, groups).await,
            ["messages", address, count] => send(rig, address, count, ["id", "m"], None).await,
            ["messages", address, count, "of", session] => {
                send(rig, address, count, ["id", "m"], Some(session)).await;
            }
            ["events", address, count] => send(rig, address, count, ["", "e"], None).await,
            ["another", "holds", session, "of", queue] => {
                let mut client = rig.client().await;
                let (queue, session) = (String::leak(queue.to_owned()), session.to_owned());
                client.session(queue, session).await.unwrap();
                self.clients.push(client);
            }
            _ => panic!("not an outside event: {text}"),
        }
    }
}

fn entity(name: &str) -> EntityName {
    EntityName::parse(name).unwrap()
}

fn queue_settings(words: &[&str]) -> QueueSettings {
    let mut settings = QueueSettings::default();
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("sessions", _) => settings.requires_session = true,
            ("send-disabled", _) => settings.status = QueueStatus::SendDisabled,
            ("lock-s", seconds) => settings.lock_duration = Duration::from_secs(seconds.parse().unwrap()),
            ("max-delivery-count", count) => settings.max_delivery_count = count.parse().unwrap(),
            _ => panic!("not a setting of a queue: {word}"),
        }
    }
    settings
}

async fn create(rig: &Rig, name: &str, kind: EntityKind) {
    rig.broker.create(entity(name), kind, QueueSettings::default(), None).await.unwrap();
}

async fn hub(rig: &Rig, name: &str, partitions: &str, groups: &[&str]) {
    let settings = HubSettings { partition_count: partitions.parse().unwrap(), ..HubSettings::default() };
    let groups = groups.iter().map(|group| ConsumerGroup::parse(group).unwrap()).collect();
    rig.broker.create_hub(entity(name), settings, groups).await.unwrap();
}

/// Sends messages with numbered ids and bodies, starting at 0. If the id prefix is empty, the messages have no id.
async fn send(rig: &Rig, address: &str, count: &str, [id, body]: [&str; 2], session: Option<&str>) {
    let mut client = rig.client().await;
    let link = sender(&mut client, address).await;
    for number in 0..count.parse().unwrap() {
        let number: u32 = number;
        let mut message = Message::data(format!("{body}{number}"));
        if !id.is_empty() {
            message = message.with_message_id(format!("{id}{number}"));
        }
        message.properties.group_id = session.map(|session| session.to_owned().into());
        assert_eq!(client.send(link, &message).await, DeliveryState::Accepted);
    }
}

async fn sender(client: &mut Client, address: &str) -> LinkId {
    let (source, target) = (Some(Source::default()), Some(Target::with_address(address.to_owned())));
    client.attach(Attach { source, target, ..Attach::new("", 0, Role::Sender) }).await.unwrap().0
}
