//! Entities as ATOM entries. Every element is present, in the order of the service's contracts, because the SDKs read
//! most of them without a check for their presence.

use std::time::Duration;

use peeklock_access::Policy;
use peeklock_broker::{EntityInfo, engine::Counts};
use peeklock_spec::{iso8601, show_time};
use peeklock_types::{EntityKind, EntityName, QueueSettings, QueueStatus, Tier, Timestamp};
use peeklock_web::xml::{ATOM, COUNTS, INSTANCE, SERVICE_BUS, Writer};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::path::AtomPath;
use super::version::Version;

pub(super) const BYTES_PER_MEGABYTE: u64 = 1 << 20;
pub(super) const BYTES_PER_KILOBYTE: u32 = 1 << 10;
/// The size in the description of an entity without a limit: the service's maximum.
pub(super) const UNLIMITED_MEGABYTES: u64 = 81_920;
/// The size of an entity that is created without one: the service's default.
pub(super) const DEFAULT_MEGABYTES: u64 = 1024;
/// The window in a description if none is set: the service's default.
pub(super) const DUPLICATE_WINDOW_DEFAULT: Duration = Duration::from_secs(600);

/// The characters that are escaped in a path. `$` is not, because JavaScript reads the names of rules from their
/// addresses.
const PATH: AsciiSet = CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'%');

/// Values of the request that its answer repeats.
pub(super) struct Context<'a> {
    /// Scheme, host and port.
    pub(super) base: String,
    pub(super) authority: &'a str,
    pub(super) namespace: &'a str,
    pub(super) version: Version,
    pub(super) tier: Tier,
}

impl Context<'_> {
    pub(super) fn address(&self, path: &AtomPath) -> String {
        let text = path.to_text();
        format!("{}/{}?api-version={}", self.base, utf8_percent_encode(&text, &PATH), self.version.name())
    }
}

/// Begins an `entry` or a `feed`. The root element of a document declares the namespaces.
pub(super) fn begin_atom(writer: &mut Writer, name: &'static str, is_root: bool) {
    let attributes: &[(&str, &str)] = if is_root { &[("xmlns", ATOM)] } else { &[] };
    writer.begin(name, attributes);
}

/// The ATOM envelope of one description.
pub(super) struct Entry<'a> {
    pub(super) path: &'a AtomPath,
    pub(super) title: &'a str,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

impl Entry<'_> {
    pub(super) fn write(
        &self,
        writer: &mut Writer,
        context: &Context<'_>,
        is_root: bool,
        root: &'static str,
        content: impl FnOnce(&mut Writer),
    ) {
        let address = context.address(self.path);
        begin_atom(writer, "entry", is_root);
        writer.text("id", &address);
        writer.text_with("title", &[("type", "text")], self.title);
        writer.text("published", &show_date(self.created_at));
        writer.text("updated", &show_date(self.updated_at));
        writer.begin("author", &[]);
        writer.text("name", context.namespace);
        writer.end();
        writer.empty("link", &[("rel", "self"), ("href", &address)]);
        writer.begin("content", &[("type", "application/xml")]);
        writer.begin(root, &[("xmlns", SERVICE_BUS), ("xmlns:i", INSTANCE)]);
        content(writer);
        writer.end();
        writer.end();
        writer.end();
    }
}

pub(super) fn write_entity(
    writer: &mut Writer,
    context: &Context<'_>,
    is_root: bool,
    entity: &EntityInfo,
    policies: &[Policy],
) {
    let path = match entity.kind {
        EntityKind::Subscription => AtomPath::Subscription(entity.name.clone()),
        EntityKind::Queue | EntityKind::Topic => AtomPath::Entity(entity.name.clone()),
    };
    let title = entity.name.topic_and_subscription().map_or(entity.name.as_str(), |(_, name)| name);
    let entry = Entry { path: &path, title, created_at: entity.created_at, updated_at: entity.updated_at };
    let root = root_name(entity.kind);
    entry.write(writer, context, is_root, root, |writer| match entity.kind {
        EntityKind::Queue => write_queue(writer, context, entity, policies),
        EntityKind::Topic => write_topic(writer, context, entity, policies),
        EntityKind::Subscription => write_subscription(writer, context, entity),
    });
}

pub(super) fn root_name(kind: EntityKind) -> &'static str {
    match kind {
        EntityKind::Queue => "QueueDescription",
        EntityKind::Topic => "TopicDescription",
        EntityKind::Subscription => "SubscriptionDescription",
    }
}

fn write_queue(writer: &mut Writer, context: &Context<'_>, entity: &EntityInfo, policies: &[Policy]) {
    let settings = &entity.settings;
    writer.text("LockDuration", &iso8601::show(settings.lock_duration));
    writer.number("MaxSizeInMegabytes", megabytes(settings.max_size_bytes));
    writer.bool("RequiresDuplicateDetection", settings.duplicate_window.is_some());
    writer.bool("RequiresSession", settings.requires_session);
    writer.text("DefaultMessageTimeToLive", &iso8601::show_or_infinite(settings.default_time_to_live));
    writer.bool("DeadLetteringOnMessageExpiration", settings.dead_letter_on_expiration);
    write_duplicate_window(writer, settings);
    writer.number("MaxDeliveryCount", settings.max_delivery_count);
    writer.bool("EnableBatchedOperations", settings.batched_operations);
    writer.number("SizeInBytes", entity.counts.size_bytes);
    writer.number("MessageCount", entity.counts.message_count());
    writer.bool("IsAnonymousAccessible", false);
    write_policies(writer, policies);
    writer.text("Status", status_name(settings.status));
    write_dates(writer, entity);
    writer.bool("SupportOrdering", settings.support_ordering);
    write_counts(writer, &entity.counts);
    writer.text("AutoDeleteOnIdle", &iso8601::show_or_infinite(settings.auto_delete_on_idle));
    writer.bool("EnablePartitioning", settings.partitioning);
    writer.text("EntityAvailabilityStatus", "Available");
    writer.bool("EnableExpress", settings.express);
    write_target(writer, context, "ForwardTo", settings.forward_to.as_ref());
    writer.optional("UserMetadata", settings.user_metadata.as_deref());
    write_target(writer, context, "ForwardDeadLetteredMessagesTo", settings.forward_dead_letters_to.as_ref());
    write_message_size(writer, context, settings);
}

fn write_topic(writer: &mut Writer, context: &Context<'_>, entity: &EntityInfo, policies: &[Policy]) {
    let settings = &entity.settings;
    writer.text("DefaultMessageTimeToLive", &iso8601::show_or_infinite(settings.default_time_to_live));
    writer.number("MaxSizeInMegabytes", megabytes(settings.max_size_bytes));
    writer.bool("RequiresDuplicateDetection", settings.duplicate_window.is_some());
    write_duplicate_window(writer, settings);
    writer.bool("EnableBatchedOperations", settings.batched_operations);
    writer.number("SizeInBytes", entity.counts.size_bytes);
    writer.bool("FilteringMessagesBeforePublishing", false);
    writer.bool("IsAnonymousAccessible", false);
    write_policies(writer, policies);
    writer.text("Status", status_name(settings.status));
    write_dates(writer, entity);
    writer.bool("SupportOrdering", settings.support_ordering);
    write_counts(writer, &entity.counts);
    writer.number("SubscriptionCount", entity.subscription_count);
    writer.number("SqlFilterCount", entity.sql_rule_count);
    writer.number("CorrelationFilterCount", entity.correlation_rule_count);
    writer.text("AutoDeleteOnIdle", &iso8601::show_or_infinite(settings.auto_delete_on_idle));
    writer.bool("EnablePartitioning", settings.partitioning);
    writer.text("EntityAvailabilityStatus", "Available");
    writer.bool("EnableSubscriptionPartitioning", false);
    writer.bool("EnableExpress", settings.express);
    writer.optional("UserMetadata", settings.user_metadata.as_deref());
    write_message_size(writer, context, settings);
}

fn write_subscription(writer: &mut Writer, context: &Context<'_>, entity: &EntityInfo) {
    let settings = &entity.settings;
    writer.text("LockDuration", &iso8601::show(settings.lock_duration));
    writer.bool("RequiresSession", settings.requires_session);
    writer.text("DefaultMessageTimeToLive", &iso8601::show_or_infinite(settings.default_time_to_live));
    writer.bool("DeadLetteringOnMessageExpiration", settings.dead_letter_on_expiration);
    writer.bool("DeadLetteringOnFilterEvaluationExceptions", settings.dead_letter_on_filter_error);
    writer.number("MessageCount", entity.counts.message_count());
    writer.number("MaxDeliveryCount", settings.max_delivery_count);
    writer.bool("EnableBatchedOperations", settings.batched_operations);
    writer.text("Status", status_name(settings.status));
    write_target(writer, context, "ForwardTo", settings.forward_to.as_ref());
    write_dates(writer, entity);
    write_counts(writer, &entity.counts);
    write_target(writer, context, "ForwardDeadLetteredMessagesTo", settings.forward_dead_letters_to.as_ref());
    writer.text("AutoDeleteOnIdle", &iso8601::show_or_infinite(settings.auto_delete_on_idle));
    writer.text("EntityAvailabilityStatus", "Available");
    writer.optional("UserMetadata", settings.user_metadata.as_deref());
}

fn write_duplicate_window(writer: &mut Writer, settings: &QueueSettings) {
    let window = settings.duplicate_window.or(settings.unused_duplicate_window);
    let window = window.unwrap_or(DUPLICATE_WINDOW_DEFAULT);
    writer.text("DuplicateDetectionHistoryTimeWindow", &iso8601::show(window));
}

fn write_dates(writer: &mut Writer, entity: &EntityInfo) {
    writer.text("CreatedAt", &show_date(entity.created_at));
    writer.text("UpdatedAt", &show_date(entity.updated_at));
    writer.text("AccessedAt", &show_date(entity.accessed_at));
}

/// Writes the counts of messages. SDK quirk: JavaScript requires one attribute on this element and reads the counts by
/// its prefix.
fn write_counts(writer: &mut Writer, counts: &Counts) {
    writer.begin("CountDetails", &[("xmlns:d2p1", COUNTS)]);
    writer.number("d2p1:ActiveMessageCount", counts.active_count);
    writer.number("d2p1:DeadLetterMessageCount", counts.dead_letter_count);
    writer.number("d2p1:ScheduledMessageCount", counts.scheduled_count);
    writer.number("d2p1:TransferMessageCount", counts.transfer_count);
    writer.number("d2p1:TransferDeadLetterMessageCount", counts.transfer_dead_letter_count);
    writer.end();
}

fn write_message_size(writer: &mut Writer, context: &Context<'_>, settings: &QueueSettings) {
    if context.version.has_message_size() {
        writer.number("MaxMessageSizeInKilobytes", kilobytes(settings.max_message_size_bytes));
    }
}

fn write_target(writer: &mut Writer, context: &Context<'_>, name: &str, target: Option<&EntityName>) {
    if let Some(target) = target {
        writer.text(name, &format!("sb://{}/{target}", context.authority));
    }
}

pub(super) fn write_policies(writer: &mut Writer, policies: &[Policy]) {
    if policies.is_empty() {
        return writer.empty("AuthorizationRules", &[]);
    }
    writer.begin("AuthorizationRules", &[]);
    for policy in policies {
        writer.begin("AuthorizationRule", &[("i:type", "SharedAccessAuthorizationRule")]);
        writer.text("ClaimType", "SharedAccessKey");
        writer.text("ClaimValue", "None");
        writer.begin("Rights", &[]);
        for right in policy.rights.iter() {
            writer.text("AccessRights", right.name());
        }
        writer.end();
        writer.text("CreatedTime", &show_date(policy.created_at));
        writer.text("ModifiedTime", &show_date(policy.modified_at));
        writer.text("KeyName", &policy.name);
        writer.text("PrimaryKey", policy.primary.expose());
        writer.text("SecondaryKey", policy.secondary.expose());
        writer.end();
    }
    writer.end();
}

/// Writes the feed at the root of a namespace. It is empty, because the service lists relays there. The subtitle names
/// the broker's own pages.
pub(super) fn write_root(writer: &mut Writer, base: &str, now: Timestamp) {
    begin_atom(writer, "feed", true);
    writer.text_with("title", &[("type", "text")], "Publicly Listed Services");
    let subtitle = "This is the list of publicly-listed services currently available. \
        Peeklock: /health reports whether the broker works, /metrics its load, /api/openapi.json describes its API.";
    writer.text_with("subtitle", &[("type", "text")], subtitle);
    writer.text("id", &format!("{base}/"));
    writer.text("updated", &show_date(now));
    writer.text("generator", "Service Bus 1.1");
    writer.end();
}

/// Writes the namespace as in `$namespaceinfo`. As in the service, only premium namespaces have messaging units.
pub(super) fn write_namespace(writer: &mut Writer, context: &Context<'_>, created_at: Timestamp) {
    let path = AtomPath::Namespace;
    let entry = Entry { path: &path, title: context.namespace, created_at, updated_at: created_at };
    entry.write(writer, context, true, "NamespaceInfo", |writer| {
        writer.text("CreatedTime", &show_date(created_at));
        match context.tier {
            Tier::Premium => {
                writer.text("MessagingSKU", "Premium");
                writer.number("MessagingUnits", 1);
            }
            Tier::Standard => writer.text("MessagingSKU", "Standard"),
        }
        writer.text("ModifiedTime", &show_date(created_at));
        writer.text("Name", context.namespace);
        writer.text("NamespaceType", "Messaging");
    });
}

pub(super) fn megabytes(max_size_bytes: Option<u64>) -> u64 {
    max_size_bytes.map_or(UNLIMITED_MEGABYTES, |bytes| bytes.div_ceil(BYTES_PER_MEGABYTE))
}

pub(super) fn kilobytes(max_message_size_bytes: u32) -> u32 {
    max_message_size_bytes.div_ceil(BYTES_PER_KILOBYTE)
}

pub(super) fn status_name(status: QueueStatus) -> &'static str {
    match status {
        QueueStatus::Active => "Active",
        QueueStatus::SendDisabled => "SendDisabled",
        QueueStatus::ReceiveDisabled => "ReceiveDisabled",
        QueueStatus::Disabled => "Disabled",
    }
}

/// Formats a time with the seven fractional digits of .NET.
pub(super) fn show_date(at: Timestamp) -> String {
    let shown = show_time(at);
    shown.strip_suffix('Z').map_or_else(|| shown.clone(), |date| format!("{date}0000Z"))
}
