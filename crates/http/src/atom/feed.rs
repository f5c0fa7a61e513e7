//! Lists in pages.

use axum::response::Response;
use http::StatusCode;
use peeklock_broker::{Listing, Page, PageStart};
use peeklock_types::Timestamp;
use peeklock_web::xml::Writer;

use super::describe::{begin_atom, show_date, write_entity};
use super::path::AtomPath;
use super::rule::write_rule;
use super::{Call, FEED, respond};
use crate::problem::Problem;

/// The default size of a page, as in the service.
const PAGE_COUNT_DEFAULT: usize = 100;

impl Call<'_> {
    pub(super) async fn list(&self, path: AtomPath) -> Result<Response, Problem> {
        let (skip, top) =
            (self.number("$skip")?.unwrap_or(0), self.number("$top")?.unwrap_or(PAGE_COUNT_DEFAULT));
        let top = top.clamp(1, self.state.limits().page_count_max);
        // One item more than requested shows whether there is a next page.
        let page = Page { start: PageStart::Skip(skip), top: top.saturating_add(1) };
        let broker = &self.namespace.broker;
        let what = match &path {
            AtomPath::Queues => Listing::Queues,
            AtomPath::Topics => Listing::Topics,
            AtomPath::Subscriptions { topic } => Listing::Subscriptions { topic: topic.clone() },
            AtomPath::Rules { subscription } => {
                let rules = broker.rules(subscription.clone(), skip, page.top).await?;
                let feed = self.feed(&path, skip, top, &rules, |writer, rule| {
                    write_rule(writer, &self.context, false, subscription, rule);
                });
                return Ok(feed);
            }
            AtomPath::Hubs | AtomPath::ConsumerGroups { .. } | AtomPath::Partitions { .. } => {
                return self.list_hub_things(&path, skip, top).await;
            }
            _ => return Err(self.head.not_allowed("PUT, DELETE")),
        };
        let entities = broker.list(what, page).await?;
        Ok(self.feed(&path, skip, top, &entities, |writer, entity| {
            write_entity(writer, &self.context, false, entity, &self.policies(entity));
        }))
    }

    fn number(&self, name: &str) -> Result<Option<usize>, Problem> {
        let number = self.head.query_number(name)?;
        Ok(number.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }

    /// Returns the feed of one page. SDK quirk: Python interprets a second link as the link to the next page and
    /// requires both numbers in it.
    pub(super) fn feed<T>(
        &self,
        path: &AtomPath,
        skip: usize,
        top: usize,
        entries: &[T],
        write: impl Fn(&mut Writer, &T),
    ) -> Response {
        let address = self.context.address(path);
        let mut writer = Writer::document();
        begin_atom(&mut writer, "feed", true);
        writer.text_with("title", &[("type", "text")], title(path));
        writer.text("id", &address);
        writer.text("updated", &show_date(self.updated()));
        writer.empty("link", &[("rel", "self"), ("href", &address)]);
        if entries.len() > top {
            let next = format!("{address}&$skip={}&$top={top}", skip.saturating_add(top));
            writer.empty("link", &[("rel", "next"), ("href", &next)]);
        }
        for entry in entries.iter().take(top) {
            write(&mut writer, entry);
        }
        writer.end();
        respond(StatusCode::OK, FEED, None, writer)
    }

    fn updated(&self) -> Timestamp {
        self.namespace.now()
    }
}

fn title(path: &AtomPath) -> &'static str {
    match path {
        AtomPath::Queues => "Queues",
        AtomPath::Topics => "Topics",
        AtomPath::Subscriptions { .. } => "Subscriptions",
        AtomPath::Hubs => "EventHubs",
        AtomPath::ConsumerGroups { .. } => "ConsumerGroups",
        AtomPath::Partitions { .. } => "Partitions",
        _ => "Rules",
    }
}
