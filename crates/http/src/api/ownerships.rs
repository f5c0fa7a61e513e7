//! Ownerships of partitions in a consumer group.

use http::StatusCode;
use peeklock_access::Right;
use peeklock_api::{Claim, OwnershipInfo, Page, ownerships};
use peeklock_broker::hubs::Ownership;
use peeklock_spec::show_time;

use super::call::{Answer, Call};
use super::route::{Route, route};
use crate::problem::Problem;
use crate::request::{Condition, tag};
use peeklock_types::Etag;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&ownerships::LIST, Right::Listen, Call::list_ownerships),
        route(&ownerships::SHOW, Right::Listen, Call::show_ownership),
        route(&ownerships::PUT, Right::Listen, Call::put_ownership),
    ]
}

fn info(ownership: &Ownership) -> OwnershipInfo {
    OwnershipInfo {
        partition: ownership.partition,
        owner: ownership.owner.clone(),
        epoch: ownership.epoch,
        etag: tag(ownership.etag.0),
        modified_at: show_time(ownership.modified_at),
    }
}

impl Call {
    /// Returns the ownerships in one page, which has room for all partitions of a hub.
    async fn list_ownerships(self) -> Result<Answer<Page<OwnershipInfo>>, Problem> {
        let found = self.namespace.broker.ownerships(self.entity()?, self.consumer_group()?).await?;
        Ok(Answer::ok(Page::whole(found.iter().map(info))))
    }

    async fn show_ownership(self) -> Result<Answer<OwnershipInfo>, Problem> {
        let partition = self.partition()?;
        let found = self.namespace.broker.ownerships(self.entity()?, self.consumer_group()?).await?;
        let found = found.iter().find(|ownership| ownership.partition == partition);
        let ownership = found.ok_or_else(|| {
            Problem::NotFound(format!("nobody has owned partition {partition} yet; claim it"))
        })?;
        Ok(Answer::ok(info(ownership)).tagged(ownership.etag.0))
    }
}

impl Call<(), Claim> {
    async fn put_ownership(self) -> Result<Answer<OwnershipInfo>, Problem> {
        let owner = self.body.owner.clone();
        let expected = match self.head.condition() {
            Condition::IsNew => None,
            Condition::Revision(etag) => Some(Etag(etag)),
            Condition::Unknown => {
                return Err(Problem::Precondition(
                    "no ownership ever had this tag; read it again".to_owned(),
                ));
            }
            Condition::None | Condition::Exists => {
                return Err(Problem::bad(
                    "a claim says what it has read: send If-Match with the ownership's etag, or If-None-Match: * if there was none",
                ));
            }
        };
        let (name, group, partition) = (self.entity()?, self.consumer_group()?, self.partition()?);
        let ownership = self.namespace.broker.claim(name, group, partition, owner, expected).await?;
        let status = if expected.is_none() { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Answer::with_status(status, info(&ownership)).tagged(ownership.etag.0))
    }
}
