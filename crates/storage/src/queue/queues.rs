//! Queues: create, delete, and their metadata.

use std::time::Duration;

use axum::response::Response;
use http::header::HeaderName;
use http::{HeaderValue, Method, StatusCode};
use peeklock_broker::engine::Error as EngineError;
use peeklock_broker::{AdminError, EntityInfo, Error};
use peeklock_types::{EntityKind, EntityName, QueueSettings, limits};
use peeklock_web::xml::Writer;

use super::{Request, metadata, refusal};
use crate::answer::{empty, xml};
use crate::auth::Resource;
use crate::problem::Problem;

const COUNT: HeaderName = HeaderName::from_static("x-ms-approximate-messages-count");
const NAME_CHARS: std::ops::RangeInclusive<usize> = 3..=63;

impl Request<'_, '_> {
    pub(super) async fn queue(self, name: &EntityName) -> Result<Response, Problem> {
        match (self.method(), self.comp()) {
            (&Method::PUT, "") => self.create(name).await,
            (&Method::DELETE, "") => self.delete(name).await,
            (&Method::GET | &Method::HEAD, "metadata") => self.show_metadata(name).await,
            (&Method::PUT, "metadata") => self.set_metadata(name).await,
            (&Method::GET | &Method::HEAD, "acl") => self.show_policies(name).await,
            (&Method::PUT, "acl") => self.set_policies(name).await,
            (_, "" | "metadata" | "acl") => Err(Problem::method(self.method(), "PUT, GET, HEAD or DELETE")),
            _ => Err(self.unknown()),
        }
    }

    /// Creates a queue. Succeeds if the queue already exists with the same metadata.
    async fn create(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Container, "wc", "")?;
        check_new_name(name.as_str())?;
        let metadata = metadata::read(&self.call.parts)?;
        let broker = &self.call.account.broker;
        let created = broker.create_with_metadata(name.clone(), settings(), metadata.clone()).await;
        let Err(error) = created else { return Ok(empty(StatusCode::CREATED)) };
        if !matches!(&error, AdminError::Refused(Error::Engine(error)) if is_taken(error)) {
            return Err(refusal::of(&error));
        }
        let found = broker.show(name.clone()).await.map_err(|error| refusal::of(&error))?;
        if found.kind == EntityKind::Queue && metadata::is_same(&found.metadata, &metadata) {
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        let what = if found.kind == EntityKind::Queue { "other metadata" } else { "another kind" };
        Err(Problem::conflict("QueueAlreadyExists", format!("'{name}' exists already, with {what}")))
    }

    async fn delete(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Container, "d", "")?;
        self.find(name).await?;
        let deleted = self.call.account.broker.delete(name.clone(), None).await;
        deleted.map_err(|error| refusal::of(&error))?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    async fn show_metadata(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Container, "r", "r")?;
        let found = self.find(name).await?;
        let mut response = empty(StatusCode::OK);
        metadata::write(&found.metadata, &mut response);
        // Messages that are or will be available here: includes hidden messages, excludes deferred and dead-lettered
        // ones.
        let count = found.counts.active_count + found.counts.scheduled_count;
        response.headers_mut().insert(COUNT, HeaderValue::from(count));
        Ok(response)
    }

    async fn set_metadata(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Container, "w", "")?;
        let metadata = metadata::read(&self.call.parts)?;
        self.find(name).await?;
        let set = self.call.account.broker.set_metadata(name.clone(), metadata).await;
        set.map_err(|error| refusal::of(&error))?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// Returns an empty list: stored access policies are not supported.
    async fn show_policies(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Container, "", "")?;
        self.find(name).await?;
        let mut writer = Writer::document();
        writer.empty("SignedIdentifiers", &[]);
        Ok(xml(StatusCode::OK, writer))
    }

    async fn set_policies(self, name: &EntityName) -> Result<Response, Problem> {
        self.may(Resource::Container, "", "")?;
        self.find(name).await?;
        Err(Problem::not_supported(
            "stored access policies are not kept; sign with the key of the account, or put everything into the signature",
        ))
    }

    async fn find(&self, name: &EntityName) -> Result<EntityInfo, Problem> {
        let found = self.call.account.broker.show(name.clone()).await.map_err(|error| refusal::of(&error))?;
        if found.kind == EntityKind::Queue {
            return Ok(found);
        }
        Err(Problem::not_found("QueueNotFound", format!("'{name}' is a {}, not a queue", found.kind)))
    }
}

fn is_taken(error: &EngineError) -> bool {
    matches!(error, EngineError::AlreadyExists { .. })
}

/// Returns the settings of a storage queue: the highest delivery limit, so that messages are practically never
/// dead-lettered, and no default time to live, because each message specifies its own.
fn settings() -> QueueSettings {
    QueueSettings {
        lock_duration: Duration::from_secs(30),
        max_delivery_count: limits::DELIVERY_COUNT_MAX,
        ..QueueSettings::default()
    }
}

/// Checks the name of a new queue against the rules of the service, which are narrower than those of the broker.
fn check_new_name(name: &str) -> Result<(), Problem> {
    if !NAME_CHARS.contains(&name.chars().count()) {
        let text = format!("the name '{name}' has {} characters; use 3 to 63", name.chars().count());
        return Err(Problem::bad("OutOfRangeInput", text));
    }
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let has_stray_dash = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    if !name.bytes().all(is_known) || has_stray_dash {
        return Err(refusal::bad_name(name));
    }
    Ok(())
}
