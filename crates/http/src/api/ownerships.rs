//! Who owns which partition for a consumer group.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_api::OwnershipInfo;
use peeklock_broker::hubs::{Etag, Ownership};
use peeklock_spec::show_time;
use serde::Deserialize;

use super::{Call, json, shape};
use crate::problem::Problem;
use crate::request::{Condition, tag};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClaimBody {
    /// Empty gives the partition up.
    owner: String,
}

fn tell(ownership: &Ownership) -> OwnershipInfo {
    OwnershipInfo {
        partition: ownership.partition,
        owner: ownership.owner.clone(),
        epoch: ownership.epoch,
        etag: tag(ownership.etag.0),
        modified_at: show_time(ownership.modified_at),
    }
}

impl Call<'_> {
    /// A hub has few enough partitions for one answer.
    pub(super) async fn list_ownerships(&self) -> Result<Response, Problem> {
        let found = self.namespace.broker.ownerships(self.entity()?, self.group()?).await?;
        let items = found.iter().map(tell).collect();
        json(StatusCode::OK, None, &shape::Page { items, next: None })
    }

    pub(super) async fn show_ownership(&self) -> Result<Response, Problem> {
        let partition = self.partition()?;
        let found = self.namespace.broker.ownerships(self.entity()?, self.group()?).await?;
        let found = found.iter().find(|ownership| ownership.partition == partition);
        let ownership = found.ok_or_else(|| {
            Problem::NotFound(format!("nobody has owned partition {partition} yet; claim it"))
        })?;
        json(StatusCode::OK, Some(ownership.etag.0), &tell(ownership))
    }

    pub(super) async fn put_ownership(&self, body: Body) -> Result<Response, Problem> {
        let ClaimBody { owner } = self.body(body).await?;
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
        let (name, group, partition) = (self.entity()?, self.group()?, self.partition()?);
        let ownership = self.namespace.broker.claim(name, group, partition, owner, expected).await?;
        let status = if expected.is_none() { StatusCode::CREATED } else { StatusCode::OK };
        json(status, Some(ownership.etag.0), &tell(&ownership))
    }
}
