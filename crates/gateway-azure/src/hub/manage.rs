//! Requests to `$management` that are about hubs, and their responses.

use peeklock_access::Scope;
use peeklock_amqp::{Array, Symbol, Text, Value};
use peeklock_broker::hubs::{Checkpoint, Error as HubError, HubView, Ownership, StreamView};
use peeklock_broker::request::hubs::{
    Claim, ListCheckpoints, ListOwnerships, SetCheckpoint, ShowHub, ShowPartition,
};
use peeklock_broker::{Error, Partition, PartitionInfo};
use peeklock_message::timestamp;
use peeklock_types::{EntityName, Timestamp};
use rustc_hash::FxHashMap;

use super::address::{HubAddress, HubPart};
use super::attach::parse_partition;
use super::error::{hub_refusal, refusal_of};
use super::operation::{HubOperation, hub_of, is_for_hub};
use super::run::time_or_unset;
use crate::access::Access;
use crate::connection::context::Context;
use crate::connection::request::HubWaiter;
use crate::error::{RETRY_AFTER_MS, Refusal, in_millis};
use crate::hub::Hubs;
use crate::management::respond::respond;
use crate::management::{Received, ReplyTo};

/// The limit on requests of one connection that wait for their shards.
const PENDING_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct HubRequests {
    requests: FxHashMap<u32, PendingHubRequest>,
    next: u32,
}

struct PendingHubRequest {
    reply_to: ReplyTo,
    name: EntityName,
    operation: HubOperation,
}

impl Hubs {
    /// Handles a request for a hub. Returns whether the request was one.
    pub(crate) fn on_hub_management(
        &mut self,
        context: &mut Context<'_>,
        access: &mut Access,
        received: &Received,
    ) -> bool {
        if !is_for_hub(&received.request) {
            return false;
        }
        if let Err(refusal) = self.start_hub_request(context, access, received) {
            self.respond_hub_refused(context, received.reply_to.clone(), refusal);
        }
        true
    }

    fn start_hub_request(
        &mut self,
        context: &mut Context<'_>,
        access: &mut Access,
        Received { reply_to, path, request, .. }: &Received,
    ) -> Result<(), Refusal> {
        if self.requests.requests.len() >= PENDING_MAX {
            let text = format!("{PENDING_MAX} requests of this connection wait for their answers already");
            return Err(Refusal::new(503, peeklock_amqp::condition::SERVER_BUSY, text));
        }
        let name = hub_of(request, path.as_ref())?;
        let operation = HubOperation::read(request)?;
        let token = request.property("security_token").and_then(Value::as_str);
        access.check_any_right(context, operation.rights(), &Scope::from(&name), token)?;
        let number = self.requests.insert(PendingHubRequest {
            reply_to: reply_to.clone(),
            name: name.clone(),
            operation: operation.clone(),
        });
        let shard = context.namespace.broker.place(&name);
        match operation {
            HubOperation::ReadHub | HubOperation::ReadPartition(_) | HubOperation::Checkpoint { .. } => {
                context.ask(shard, HubWaiter::Management(number), ShowHub { name });
            }
            HubOperation::Claim { group, partition, owner, expected } => {
                context.ask_numbered(shard, number, Claim { name, group, partition, owner, expected });
            }
            HubOperation::Ownerships { group } => {
                context.ask_numbered(shard, number, ListOwnerships { name, group });
            }
            HubOperation::Checkpoints { group } => {
                context.ask_numbered(shard, number, ListCheckpoints { name, group });
            }
        }
        Ok(())
    }

    /// Handles the description of a hub: the request continues with a partition, or is answered.
    pub(crate) fn on_hub_shown(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        result: Result<HubView, Error>,
    ) {
        let Some((pending, view)) = self.hub_answer(context, number, result) else { return };
        let partition = match &pending.operation {
            HubOperation::ReadPartition(partition) => parse_partition(partition),
            HubOperation::Checkpoint { partition, .. } => Some(*partition),
            HubOperation::ReadHub
            | HubOperation::Claim { .. }
            | HubOperation::Ownerships { .. }
            | HubOperation::Checkpoints { .. } => {
                return self.respond_hub(context, pending, describe_hub(&view));
            }
        };
        match partition_of(partition, &view) {
            Ok(at) => self.ask_partition(context, pending, at),
            Err(error) => self.refuse_hub(context, pending, &error),
        }
    }

    /// Handles the description of a partition: the request continues with the checkpoint, or is answered.
    pub(crate) fn on_partition_shown(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        result: Result<PartitionInfo, Error>,
    ) {
        let Some((pending, info)) = self.hub_answer(context, number, result) else { return };
        let HubOperation::Checkpoint { sequence, .. } = pending.operation else {
            let body = describe_partition(&pending.name, &info, context.now);
            return self.respond_hub(context, pending, body);
        };
        match check_end(sequence, &info) {
            Ok(()) => self.ask_checkpoint(context, pending),
            Err(error) => self.refuse_hub(context, pending, &error),
        }
    }

    /// Handles the answer to the last request to a shard about a hub.
    pub(crate) fn on_hub_told<T>(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        result: Result<T, Error>,
        describe: impl FnOnce(T) -> Value,
    ) {
        if let Some((pending, answer)) = self.hub_answer(context, number, result) {
            self.respond_hub(context, pending, describe(answer));
        }
    }

    /// Returns the request with its answer. Sends the response if the shard has rejected the request.
    fn hub_answer<T>(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        result: Result<T, Error>,
    ) -> Option<(PendingHubRequest, T)> {
        let pending = self.requests.requests.remove(&number)?;
        match result {
            Ok(answer) => Some((pending, answer)),
            Err(error) => {
                let refusal = refusal_of(&error, &pending.address());
                self.respond_hub_refused(context, pending.reply_to, refusal);
                None
            }
        }
    }

    fn refuse_hub(&mut self, context: &mut Context<'_>, pending: PendingHubRequest, error: &HubError) {
        let refusal = hub_refusal(error, Some(&pending.address()));
        self.respond_hub_refused(context, pending.reply_to, refusal);
    }

    fn respond_hub(&mut self, context: &mut Context<'_>, pending: PendingHubRequest, body: Value) {
        let properties = vec![("status-code", Value::Int(200)), ("status-description", Value::from("OK"))];
        respond(context, pending.reply_to, properties, body);
    }

    fn ask_checkpoint(&mut self, context: &mut Context<'_>, pending: PendingHubRequest) {
        let HubOperation::Checkpoint { group, partition, sequence, by } = pending.operation.clone() else {
            return;
        };
        let name = pending.name.clone();
        let shard = context.namespace.broker.place(&name);
        let number = self.requests.insert(pending);
        let sequence = Some(sequence);
        context.ask_numbered(shard, number, SetCheckpoint { name, group, partition, sequence, by });
    }

    fn ask_partition(&mut self, context: &mut Context<'_>, pending: PendingHubRequest, partition: Partition) {
        let shard = context.namespace.broker.place_partition(&pending.name, partition.number);
        let number = self.requests.insert(pending);
        context.ask_numbered(shard, number, ShowPartition { partition, after: None });
    }

    fn respond_hub_refused(&mut self, context: &mut Context<'_>, reply_to: ReplyTo, refusal: Refusal) {
        let refusal = refusal.at(&context.host);
        let mut properties = vec![
            ("status-code", Value::Int(refusal.status)),
            ("status-description", Value::from(refusal.description.clone())),
            // SDK quirk: the SDK for Python looks up the description under the name that Service Bus uses.
            ("statusDescription", Value::from(refusal.description.clone())),
            ("error-condition", Value::Symbol(Symbol::from_static(refusal.condition))),
        ];
        properties.extend(refusal.retry_after.map(|span| (RETRY_AFTER_MS, Value::Ulong(in_millis(span)))));
        respond(context, reply_to, properties, Value::Map(Vec::new()));
    }
}

impl HubRequests {
    fn insert(&mut self, request: PendingHubRequest) -> u32 {
        let number = self.next;
        // Far fewer than 2^32 requests are in flight at a time, so a number is free again when the counter wraps
        // around.
        self.next = self.next.wrapping_add(1);
        self.requests.insert(number, request);
        number
    }
}

impl PendingHubRequest {
    /// Returns the subject of the request, for error texts.
    fn address(&self) -> HubAddress {
        match &self.operation {
            HubOperation::ReadPartition(partition) => {
                HubAddress { hub: self.name.clone(), part: HubPart::Partition(partition.clone()) }
            }
            _ => HubAddress::whole(self.name.clone()),
        }
    }
}

fn partition_of(number: Option<u32>, view: &HubView) -> Result<Partition, HubError> {
    let count = view.settings.partition_count;
    match number.filter(|number| *number < count) {
        Some(number) => Ok(Partition { hub: view.id, number }),
        None => Err(HubError::NoSuchPartition {
            name: view.name.clone(),
            partition: number.unwrap_or(u32::MAX),
            count,
        }),
    }
}

/// Rejects a sequence number beyond the end of the partition: the event that the peer has read belongs to another hub.
fn check_end(given: u64, info: &PartitionInfo) -> Result<(), HubError> {
    let StreamView { partition, next_sequence, .. } = info.view;
    if given < next_sequence {
        return Ok(());
    }
    Err(HubError::BeyondEnd { partition, given, last: long(next_sequence) - 1 })
}

// SDKs require exact types.

pub(crate) fn describe_claim(ownership: &Ownership) -> Value {
    map(describe_ownership(ownership))
}

pub(crate) fn describe_ownerships(all: &[Ownership]) -> Value {
    let all = all.iter().map(|ownership| map(describe_ownership(ownership))).collect();
    map(vec![("ownerships", Value::List(all))])
}

pub(crate) fn describe_set_checkpoint(checkpoint: Option<&Checkpoint>) -> Value {
    map(checkpoint.map(describe_checkpoint).unwrap_or_default())
}

pub(crate) fn describe_checkpoints(all: &[(u32, Checkpoint)]) -> Value {
    let all = all.iter().map(|(partition, checkpoint)| {
        let mut entries = describe_checkpoint(checkpoint);
        entries.insert(0, ("partition", partition.to_string().into()));
        map(entries)
    });
    map(vec![("checkpoints", Value::List(all.collect()))])
}

fn map(entries: Vec<(&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
}

fn time(at: Timestamp) -> Value {
    Value::Timestamp(timestamp(at))
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn describe_hub(view: &HubView) -> Value {
    let count = view.settings.partition_count;
    let ids = (0..count).map(|number| Text::from(number.to_string()));
    map(vec![
        ("name", view.name.as_str().to_owned().into()),
        ("type", "com.microsoft:eventhub".into()),
        ("created_at", time(view.created_at)),
        ("partition_count", Value::Int(i32::try_from(count).unwrap_or(i32::MAX))),
        // SDK quirk: Java, .NET and Rust reject a list in place of the array.
        ("partition_ids", Value::Array(Array::strings(ids))),
        ("georeplication_factor", Value::Int(1)),
    ])
}

fn describe_partition(name: &EntityName, info: &PartitionInfo, now: Timestamp) -> Value {
    let view = &info.view;
    let last = long(view.next_sequence) - 1;
    // The value that the service returns for a partition that never had an event.
    let begin = if view.next_sequence == 0 { -1 } else { long(view.begin_sequence) };
    map(vec![
        ("name", name.as_str().to_owned().into()),
        ("type", "com.microsoft:partition".into()),
        ("partition", view.partition.to_string().into()),
        ("begin_sequence_number", Value::Long(begin)),
        ("last_enqueued_sequence_number", Value::Long(last)),
        ("last_enqueued_offset", last.to_string().into()),
        ("last_enqueued_time_utc", time_or_unset(view.last_enqueued_at)),
        ("is_partition_empty", Value::Boolean(view.is_empty())),
        ("begin_sequence_number_epoch", Value::Int(-1)),
        ("last_enqueued_sequence_number_epoch", Value::Int(-1)),
        ("runtime_info_retrieval_time_utc", time(now)),
    ])
}

fn describe_ownership(ownership: &Ownership) -> Vec<(&'static str, Value)> {
    vec![
        ("partition", ownership.partition.to_string().into()),
        ("owner", ownership.owner.clone().into()),
        ("epoch", Value::Long(long(ownership.epoch))),
        ("etag", ownership.etag.0.to_string().into()),
        ("last-modified", time(ownership.modified_at)),
    ]
}

fn describe_checkpoint(checkpoint: &Checkpoint) -> Vec<(&'static str, Value)> {
    vec![
        ("sequence-number", Value::Long(long(checkpoint.sequence))),
        ("offset", checkpoint.sequence.to_string().into()),
        ("last-modified", time(checkpoint.at)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock_broker::hubs::Traffic;

    fn partition(begin_sequence: u64, next_sequence: u64) -> Value {
        let view = StreamView {
            partition: 3,
            begin_sequence,
            next_sequence,
            last_enqueued_at: (next_sequence > 0).then_some(Timestamp::from_millis(5)),
            first_enqueued_at: None,
            size_bytes: 0,
            extent_count: 0,
            readers: Vec::new(),
        };
        let info = PartitionInfo { view, enqueued_after: None, traffic: Traffic::default() };
        describe_partition(&EntityName::parse("clicks").unwrap(), &info, Timestamp::from_millis(9))
    }

    #[test]
    fn a_partition_description_has_the_types_that_sdks_require() {
        let found = partition(2, 7);
        let expected = [
            ("name", Value::from("clicks")),
            ("type", "com.microsoft:partition".into()),
            ("partition", "3".into()),
            ("begin_sequence_number", Value::Long(2)),
            ("last_enqueued_sequence_number", Value::Long(6)),
            ("last_enqueued_offset", "6".into()),
            ("last_enqueued_time_utc", Value::Timestamp(5)),
            ("is_partition_empty", false.into()),
            ("last_enqueued_sequence_number_epoch", Value::Int(-1)),
        ];
        for (key, value) in expected {
            assert_eq!(found.lookup(key), Some(&value), "{key}");
        }
    }

    #[test]
    fn an_empty_partition_differs_from_an_emptied_one() {
        let never = partition(0, 0);
        assert_eq!(never.lookup("begin_sequence_number"), Some(&Value::Long(-1)));
        assert_eq!(never.lookup("last_enqueued_sequence_number"), Some(&Value::Long(-1)));
        assert_eq!(never.lookup("last_enqueued_offset"), Some(&"-1".into()));
        assert_eq!(never.lookup("last_enqueued_time_utc"), Some(&Value::Timestamp(-62_135_596_800_000)));
        assert_eq!(never.lookup("is_partition_empty"), Some(&true.into()));
        let emptied = partition(7, 7);
        assert_eq!(emptied.lookup("begin_sequence_number"), Some(&Value::Long(7)));
        assert_eq!(emptied.lookup("last_enqueued_offset"), Some(&"6".into()));
        assert_eq!(emptied.lookup("is_partition_empty"), Some(&true.into()));
    }
}
