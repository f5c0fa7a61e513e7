//! The owners of a hub's partitions and the checkpoints of its consumer groups. The broker stores both for event processors that share a
//! hub.

use peeklock_amqp::Value;

use crate::client::Client;
use crate::error::Error;
use crate::management::Management;

const CLAIM: &str = "peeklock:claim-ownership";
const OWNERSHIPS: &str = "peeklock:list-ownerships";
const CHECKPOINT: &str = "peeklock:update-checkpoint";
const CHECKPOINTS: &str = "peeklock:list-checkpoints";

/// The owner of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The number of the partition.
    pub partition: u32,
    /// The name of the owner. Empty if the owner released the partition.
    pub owner: String,
    /// A number that increases with each new owner. A reader with this owner level disconnects readers with a lower one.
    pub epoch: u64,
    /// A value that changes with each change of the ownership. A claim contains the last value that its sender has seen.
    pub etag: String,
}

/// The partitions of a hub for one consumer group.
pub struct Partitions<'a> {
    management: Management<'a>,
    group: String,
}

impl Client {
    /// Returns the ownership and checkpoints of a consumer group.
    pub async fn partitions(&self, hub: &str, group: &str) -> Result<Partitions<'_>, Error> {
        Ok(Partitions { management: self.management(hub).await?, group: group.to_owned() })
    }
}

impl Partitions<'_> {
    fn body(&self, entries: Vec<(&'static str, Value)>) -> Vec<(Value, Value)> {
        let group = ("consumer-group", self.group.clone().into());
        [group].into_iter().chain(entries).map(|(key, value)| (key.into(), value)).collect()
    }

    /// Returns the number of partitions.
    pub async fn count(&self) -> Result<u32, Error> {
        let found = self.management.read("com.microsoft:eventhub").await?;
        self.number(&found, "partition_count")
    }

    /// Claims a partition, renews the claim, or releases it with an empty owner. `etag` is that of the last known ownership, or `None` if
    /// the partition had no owner. The broker rejects the claim if the ownership has changed since.
    pub async fn claim(&self, partition: u32, owner: &str, etag: Option<&str>) -> Result<Ownership, Error> {
        let mut entries = vec![("partition", partition.into()), ("owner", owner.to_owned().into())];
        entries.extend(etag.map(|etag| ("etag", etag.to_owned().into())));
        let found = self.management.call(CLAIM, self.body(entries)).await?;
        self.ownership(&found)
    }

    /// Returns the ownerships of all partitions that have or had an owner.
    pub async fn ownerships(&self) -> Result<Vec<Ownership>, Error> {
        let found = self.management.call(OWNERSHIPS, self.body(Vec::new())).await?;
        self.list(&found, "ownerships")?.iter().map(|entry| self.ownership(entry)).collect()
    }

    /// Stores the number of the last event that is processed. The broker rejects it if `owner` with the epoch of its claim has lost the
    /// partition, or if a later event is stored already.
    pub async fn checkpoint(&self, partition: u32, sequence: u64, owner: (&str, u64)) -> Result<(), Error> {
        let entries = vec![
            ("partition", partition.into()),
            ("sequence-number", sequence.into()),
            ("owner", owner.0.to_owned().into()),
            ("epoch", owner.1.into()),
        ];
        self.management.call(CHECKPOINT, self.body(entries)).await.map(|_| ())
    }

    /// Returns the last processed event of each partition.
    pub async fn checkpoints(&self) -> Result<Vec<(u32, u64)>, Error> {
        let found = self.management.call(CHECKPOINTS, self.body(Vec::new())).await?;
        let checkpoint =
            |entry| Ok((self.number(entry, "partition")?, self.number(entry, "sequence-number")?));
        self.list(&found, "checkpoints")?.iter().map(checkpoint).collect()
    }

    fn list<'v>(&self, found: &'v Value, key: &'static str) -> Result<&'v [Value], Error> {
        found.lookup(key).and_then(Value::as_list).ok_or_else(|| self.management.missing(key))
    }

    /// Returns a number. It may be text, because the broker sends partition numbers as text.
    fn number<T: TryFrom<i64>>(&self, found: &Value, key: &'static str) -> Result<T, Error> {
        let value = found.lookup(key);
        let number = value.and_then(|value| value.as_i64().or_else(|| value.as_str()?.parse().ok()));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| self.management.missing(key))
    }

    fn ownership(&self, found: &Value) -> Result<Ownership, Error> {
        let text = |key| {
            let text = found.lookup(key).and_then(Value::as_str);
            text.map(str::to_owned).ok_or_else(|| self.management.missing(key))
        };
        let (partition, epoch) = (self.number(found, "partition")?, self.number(found, "epoch")?);
        Ok(Ownership { partition, owner: text("owner")?, epoch, etag: text("etag")? })
    }
}
