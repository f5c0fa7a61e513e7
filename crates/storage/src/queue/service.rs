//! Calls on the service itself: the list of queues, and its properties, which are read-only.

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode};
use peeklock_broker::{EntityInfo, Listing, Page, PageStart};
use peeklock_types::EntityName;
use peeklock_web::shown;
use peeklock_web::xml::{Element, Writer, read};

use super::{Request, refusal};
use crate::answer::{empty, xml};
use crate::auth::Resource;
use crate::problem::Problem;
use crate::time::http_date;

const LIST_COUNT_MAX: u64 = 5000;
/// The number of queues that one request to the broker returns.
const PAGE_COUNT: usize = 1000;
const PROPERTIES_SIZE_BYTES_MAX: usize = 64 * 1024;

impl Request<'_, '_> {
    pub(super) async fn service(self, body: Body) -> Result<Response, Problem> {
        let is_service = self.call.query("restype") == Some("service");
        match (self.method(), self.comp(), is_service) {
            (&Method::GET, "list", _) => self.list().await,
            (&Method::GET, "properties", true) => self.show_properties(),
            (&Method::PUT, "properties", true) => self.set_properties(body).await,
            (&Method::GET, "stats", true) => self.show_stats(),
            _ => Err(self.unknown()),
        }
    }

    async fn list(self) -> Result<Response, Problem> {
        self.may(Resource::Service, "l", "")?;
        let call = self.call;
        let (prefix, marker) =
            (call.query("prefix").unwrap_or_default(), call.query("marker").unwrap_or_default());
        let given = call.query_number("maxresults", 1, u64::MAX)?;
        let max = usize::try_from(given.unwrap_or(LIST_COUNT_MAX).min(LIST_COUNT_MAX)).unwrap_or(usize::MAX);
        let with_metadata =
            call.query("include").is_some_and(|what| what.split(',').any(|what| what == "metadata"));
        let mut found = self.find_all(prefix, marker, max + 1).await?;
        let is_more = found.len() > max;
        found.truncate(max);
        let next = found.last().filter(|_| is_more).map(|queue| queue.name.as_str());

        let mut writer = Writer::document();
        writer.begin("EnumerationResults", &[("ServiceEndpoint", &call.endpoint())]);
        writer.optional("Prefix", call.query("prefix"));
        writer.optional("Marker", call.query("marker"));
        if let Some(given) = given {
            writer.number("MaxResults", given);
        }
        writer.begin("Queues", &[]);
        for queue in &found {
            writer.begin("Queue", &[]);
            writer.text("Name", queue.name.as_str());
            if with_metadata {
                writer.begin("Metadata", &[]);
                queue.metadata.0.iter().for_each(|(name, value)| writer.text(name, value));
                writer.end();
            }
            writer.end();
        }
        writer.end();
        writer.text("NextMarker", next.unwrap_or_default());
        writer.end();
        Ok(xml(StatusCode::OK, writer))
    }

    /// Returns queues after `marker`, the name of the last listed queue. Queues with a '/' in their names are omitted,
    /// because they cannot be addressed here.
    async fn find_all(&self, prefix: &str, marker: &str, max: usize) -> Result<Vec<EntityInfo>, Problem> {
        let mut start = match marker {
            "" => PageStart::Skip(0),
            marker => PageStart::After(EntityName::parse(marker).map_err(|_| {
                let text = format!(
                    "'{}' is none of our markers; give the NextMarker of the last list",
                    shown(marker)
                );
                Problem::bad("InvalidMarker", text)
            })?),
        };
        let mut found = Vec::new();
        loop {
            let page = Page { start: start.clone(), top: PAGE_COUNT };
            let queues = self.call.account.broker.list(Listing::Queues, page).await;
            let queues = queues.map_err(|error| refusal::of(&error))?;
            let is_last = queues.len() < PAGE_COUNT;
            if let Some(last) = queues.last() {
                start = PageStart::After(last.name.clone());
            }
            let is_meant = |queue: &EntityInfo| {
                queue.name.as_str().starts_with(prefix) && !queue.name.as_str().contains('/')
            };
            found.extend(queues.into_iter().filter(is_meant));
            if is_last || found.len() >= max {
                found.truncate(max);
                return Ok(found);
            }
        }
    }

    /// Returns the properties: logging and metrics are off, and cross-origin requests are not permitted.
    fn show_properties(self) -> Result<Response, Problem> {
        self.may(Resource::Service, "r", "")?;
        let mut writer = Writer::document();
        writer.begin("StorageServiceProperties", &[]);
        writer.begin("Logging", &[]);
        writer.text("Version", "1.0");
        ["Delete", "Read", "Write"].iter().for_each(|what| writer.bool(what, false));
        no_retention(&mut writer);
        writer.end();
        for metrics in ["HourMetrics", "MinuteMetrics"] {
            writer.begin(metrics, &[]);
            writer.text("Version", "1.0");
            writer.bool("Enabled", false);
            no_retention(&mut writer);
            writer.end();
        }
        writer.empty("Cors", &[]);
        writer.end();
        Ok(xml(StatusCode::OK, writer))
    }

    async fn set_properties(self, body: Body) -> Result<Response, Problem> {
        self.may(Resource::Service, "w", "")?;
        let body = self.call.read_body(body, PROPERTIES_SIZE_BYTES_MAX).await?;
        match first_change(&read(&body)?) {
            None => Ok(empty(StatusCode::ACCEPTED)),
            Some(what) => Err(Problem::not_supported(format!(
                "the properties of the service cannot be changed: '{}' would be; leave it off or out",
                shown(what)
            ))),
        }
    }

    fn show_stats(self) -> Result<Response, Problem> {
        self.may(Resource::Service, "r", "")?;
        let mut writer = Writer::document();
        writer.begin("StorageServiceStats", &[]);
        writer.begin("GeoReplication", &[]);
        writer.text("Status", "live");
        writer.text("LastSyncTime", &http_date(self.call.now()));
        writer.end();
        writer.end();
        Ok(xml(StatusCode::OK, writer))
    }
}

fn no_retention(writer: &mut Writer) {
    writer.begin("RetentionPolicy", &[]);
    writer.bool("Enabled", false);
    writer.end();
}

/// Returns the first property that is enabled, or the first cross-origin rule.
fn first_change(properties: &Element) -> Option<&str> {
    let is_on =
        |element: &Element| element.trimmed().eq_ignore_ascii_case("true") || element.name == "CorsRule";
    if is_on(properties) {
        return Some(&properties.name);
    }
    properties.children.iter().find_map(first_change)
}
