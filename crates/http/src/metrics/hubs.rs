//! Metrics of event hubs, their partitions and consumer groups.

use std::collections::BTreeMap;

use peeklock_broker::hubs::{HubView, StreamView};
use peeklock_broker::{AdminError, Lag, PartitionInfo};
use peeklock_types::Timestamp;

use super::family::{Family, Kind, Labels};
use crate::progress::{Progress, progress};
use crate::state::Namespace;

/// The maximum size of the metrics of all hubs.
const SIZE_BYTES_MAX: usize = 16 << 20;
/// The number of hubs that one request to the broker returns.
const PAGE_COUNT: usize = 64;
/// The maximum number of partitions with metrics of their own; a hub with more has only totals.
const PARTITIONS_TOLD_MAX: u32 = 64;
/// The maximum number of consumer groups of one hub, the first by name.
const GROUPS_TOLD_MAX: usize = 100;

pub(super) struct Hubs {
    partitions: Family,
    received: Family,
    events: Family,
    size_bytes: Family,
    readers: Family,
    received_bytes: Family,
    read: Family,
    read_bytes: Family,
    partition_received: Family,
    partition_begin: Family,
    partition_size_bytes: Family,
    partition_readers: Family,
    group_lag_events: Family,
    group_lag_seconds: Family,
    lag_events: Family,
    lag_seconds: Family,
    /// The number of hubs that are omitted because of the size limit.
    pub(super) left_out_count: u64,
}

impl Default for Hubs {
    fn default() -> Self {
        let gauge = |name: &str, help| Family::new(name, Kind::Gauge, help);
        let counter = |name: &str, help| Family::new(name, Kind::Counter, help);
        Hubs {
            partitions: gauge("peeklock_hub_partitions", "Partitions of a hub"),
            received: counter(
                "peeklock_hub_received_total",
                "Events that a hub has taken since it was created",
            ),
            events: gauge("peeklock_hub_events", "Events of a hub that retention has left"),
            size_bytes: gauge("peeklock_hub_size_bytes", "Bytes of all events of a hub"),
            readers: gauge("peeklock_hub_readers", "Readers of a hub"),
            received_bytes: counter(
                "peeklock_hub_received_bytes_total",
                "Bytes of events that a hub has taken since the broker was started",
            ),
            read: counter(
                "peeklock_hub_read_total",
                "Events that readers of a hub were handed since the broker was started, each for itself",
            ),
            read_bytes: counter("peeklock_hub_read_bytes_total", "Bytes of these events, about"),
            partition_received: counter(
                "peeklock_hub_partition_received_total",
                "Events that a partition has taken since its hub was created; also the next sequence number",
            ),
            partition_begin: gauge(
                "peeklock_hub_partition_begin_sequence_number",
                "Sequence number of the oldest event of a partition",
            ),
            partition_size_bytes: gauge(
                "peeklock_hub_partition_size_bytes",
                "Bytes of all events of a partition",
            ),
            partition_readers: gauge("peeklock_hub_partition_readers", "Readers of a partition"),
            group_lag_events: gauge(
                "peeklock_hub_group_lag_events",
                "Events behind the checkpoints of a consumer group, of all partitions that it has one in",
            ),
            group_lag_seconds: gauge(
                "peeklock_hub_group_lag_seconds",
                "Age of the oldest event behind a checkpoint of a consumer group, about; 0 if there is none",
            ),
            lag_events: gauge(
                "peeklock_hub_lag_events",
                "Events behind the checkpoint of a consumer group in a partition",
            ),
            lag_seconds: gauge(
                "peeklock_hub_lag_seconds",
                "Age of the oldest of these events, about; 0 if there is none",
            ),
            left_out_count: 0,
        }
    }
}

impl Hubs {
    /// Adds all hubs of a namespace. `labels` are common to all metrics of the namespace.
    pub(super) async fn measure(&mut self, namespace: &Namespace, labels: &Labels) -> Result<(), AdminError> {
        let mut after = None;
        loop {
            let page = namespace.broker.hubs(after, PAGE_COUNT).await?;
            for hub in &page {
                // A hub that is deleted meanwhile is omitted.
                match self.measure_hub(namespace, labels, hub).await {
                    Err(AdminError::Stopped(error)) => return Err(error.into()),
                    Ok(()) | Err(AdminError::Refused(_)) => {}
                }
            }
            match page.last() {
                Some(last) => after = Some(last.name.clone()),
                None => return Ok(()),
            }
        }
    }

    async fn measure_hub(
        &mut self,
        namespace: &Namespace,
        labels: &Labels,
        hub: &HubView,
    ) -> Result<(), AdminError> {
        if self.families().map(Family::size_bytes).sum::<usize>() >= SIZE_BYTES_MAX {
            self.left_out_count += 1;
            return Ok(());
        }
        let labels = labels.with("hub", hub.name.as_str());
        let partitions = namespace.broker.partitions(hub).await?;
        let tells_partitions = hub.settings.partition_count <= PARTITIONS_TOLD_MAX;
        self.add_hub(&labels, &partitions);
        if tells_partitions {
            partitions.iter().for_each(|partition| self.add_partition(&labels, &partition.view));
        }
        let stock = namespace.broker.stock_checkpoints(&hub.name).await?;
        for group in hub.groups.iter().map(|group| &group.name).take(GROUPS_TOLD_MAX) {
            let found = progress(&namespace.broker, hub, group, &stock).await?;
            // Consumer groups that store their checkpoints elsewhere have no known lag. Of two checkpoints for a
            // partition, the newest counts.
            let mut lags: BTreeMap<u32, Lag> = BTreeMap::new();
            for Progress { lag, .. } in found {
                let Some(checkpoint) = lag.checkpoint else { continue };
                let known = lags.get(&lag.partition).and_then(|known| known.checkpoint);
                if known.is_none_or(|known| known.at < checkpoint.at) {
                    lags.insert(lag.partition, lag);
                }
            }
            if !lags.is_empty() {
                let labels = labels.with("group", group.as_str());
                self.add_lags(&labels, namespace.now(), lags.values(), tells_partitions);
            }
        }
        Ok(())
    }

    fn add_hub(&mut self, labels: &Labels, partitions: &[PartitionInfo]) {
        let sum = |of: fn(&PartitionInfo) -> u64| partitions.iter().map(of).fold(0, u64::saturating_add);
        self.partitions.add(labels, partitions.len());
        self.received.add(labels, sum(|partition| partition.view.next_sequence));
        self.events
            .add(labels, sum(|found| found.view.next_sequence.saturating_sub(found.view.begin_sequence)));
        self.size_bytes.add(labels, sum(|partition| partition.view.size_bytes));
        self.readers.add(labels, sum(|partition| partition.view.readers.len() as u64));
        self.received_bytes.add(labels, sum(|partition| partition.traffic.received_bytes));
        self.read.add(labels, sum(|partition| partition.traffic.read_events));
        self.read_bytes.add(labels, sum(|partition| partition.traffic.read_bytes));
    }

    fn add_partition(&mut self, labels: &Labels, stream: &StreamView) {
        let labels = labels.with("partition", &stream.partition.to_string());
        self.partition_received.add(&labels, stream.next_sequence);
        self.partition_begin.add(&labels, stream.begin_sequence);
        self.partition_size_bytes.add(&labels, stream.size_bytes);
        self.partition_readers.add(&labels, stream.readers.len());
    }

    fn add_lags<'l>(
        &mut self,
        labels: &Labels,
        now: Timestamp,
        lags: impl Iterator<Item = &'l Lag>,
        tells_partitions: bool,
    ) {
        let (mut events, mut longest) = (0_u64, 0.0_f64);
        for lag in lags {
            let seconds = lag.oldest_at.map_or(0.0, |at| now.since(at).as_secs_f64());
            events = events.saturating_add(lag.events);
            longest = longest.max(seconds);
            if tells_partitions {
                let labels = labels.with("partition", &lag.partition.to_string());
                self.lag_events.add(&labels, lag.events);
                self.lag_seconds.add(&labels, seconds);
            }
        }
        self.group_lag_events.add(labels, events);
        self.group_lag_seconds.add(labels, longest);
    }

    pub(super) fn families(&self) -> impl Iterator<Item = &Family> {
        [
            &self.partitions,
            &self.received,
            &self.events,
            &self.size_bytes,
            &self.readers,
            &self.received_bytes,
            &self.read,
            &self.read_bytes,
            &self.partition_received,
            &self.partition_begin,
            &self.partition_size_bytes,
            &self.partition_readers,
            &self.group_lag_events,
            &self.group_lag_seconds,
            &self.lag_events,
            &self.lag_seconds,
        ]
        .into_iter()
    }
}
