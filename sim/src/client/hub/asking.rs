//! The requests about ownership and checkpoints over AMQP, as a processor sends them with our own client.

use peeklock_amqp::condition;
use peeklock_client::{Client, Error, Ownership, Partitions};

use super::call::Listed;
use super::wire::hub_address;
use super::{Party, group_name};
use crate::log::{Answer, Event, Owned};
use crate::scenario::GroupIndex;

impl Party {
    async fn of_group<T>(
        &mut self,
        group: GroupIndex,
        question: impl AsyncFnOnce(Partitions<'_>) -> Result<T, Error>,
    ) -> Result<T, Option<Error>> {
        let (hub, group) = (hub_address(self), group_name(group, &mut self.rng));
        let ask = async |client: &Client| question(client.partitions(&hub, group.as_str()).await?).await;
        self.over_wire(ask).await
    }

    pub(super) async fn list_over_wire(&mut self, group: GroupIndex) -> Option<Listed> {
        let question = async |partitions: Partitions<'_>| {
            let (count, ownerships) = (partitions.count().await?, partitions.ownerships().await?);
            Ok((count, ownerships, partitions.checkpoints().await?))
        };
        let (partition_count, ownerships, checkpoints) = self.of_group(group, question).await.ok()?;
        let owned = ownerships.into_iter().map(|ownership| self.owned(ownership)).collect();
        Some(Listed { partition_count, owned, checkpoints })
    }

    /// Claims a partition. A refusal does not contain the current record.
    pub(super) async fn claim_over_wire(
        &mut self,
        group: GroupIndex,
        partition: u32,
        owner: &str,
        expected: Option<u64>,
    ) -> (Answer, Option<Owned>) {
        let etag = expected.map(|etag| etag.to_string());
        let question =
            async |partitions: Partitions<'_>| partitions.claim(partition, owner, etag.as_deref()).await;
        match self.of_group(group, question).await {
            Ok(ownership) => (Answer::Done, Some(self.owned(ownership))),
            Err(why) => (answer(why), None),
        }
    }

    pub(super) async fn checkpoint_over_wire(
        &mut self,
        group: GroupIndex,
        partition: u32,
        sequence: u64,
        (owner, epoch): &(String, u64),
    ) -> Answer {
        let question = async |partitions: Partitions<'_>| {
            partitions.checkpoint(partition, sequence, (owner, *epoch)).await
        };
        self.of_group(group, question).await.map_or_else(answer, |()| Answer::Done)
    }

    fn owned(&self, ownership: Ownership) -> Owned {
        let Ownership { partition, owner, epoch, etag } = ownership;
        let etag = etag.parse().unwrap_or_else(|_| {
            self.log(Event::Trouble { what: format!("'{etag}' is no etag of this broker") });
            0
        });
        Owned { partition, owner, epoch, etag }
    }
}

fn answer(why: Option<Error>) -> Answer {
    let Some(why) = why else { return Answer::Unknown };
    let is_lost =
        matches!(&why, Error::Refused { condition, .. } if &**condition == condition::PARTITION_NOT_OWNED);
    Answer::Refused { lock_lost: is_lost, why: why.to_string() }
}
