//! Hubs as text.

use std::io::{self, Write};

use peeklock::low_level::{CheckpointInfo, HubInfo};
use peeklock_spec::{show_duration, show_expired_position, show_size, show_status};
use peeklock_types::{ExpiredPosition, HubSettings, QueueStatus};

use crate::checkpoint::seconds;
use crate::describe::Page;
use crate::table::Table;

/// The number of consumer groups that a page shows.
pub(super) const GROUPS_SHOWN_MAX: usize = 20;
/// The number of partitions that a page shows. With more, it shows only their sums; `--json` has all of them.
const PARTITIONS_SHOWN_MAX: usize = 64;

pub(super) fn table(hubs: &[HubInfo]) -> Table {
    let mut table =
        Table::new().text("NAME").number("PARTITIONS").text("RETENTION").number("GROUPS").text("STATUS");
    for hub in hubs {
        let settings = hub.spec.settings();
        let groups = hub.spec.consumer_groups.as_ref().map_or(0, Vec::len);
        table.row([
            hub.name.clone(),
            settings.partition_count.to_string(),
            settings.retention.map_or_else(|| "for ever".to_owned(), show_duration),
            groups.to_string(),
            show_status(settings.status).to_owned(),
        ]);
    }
    table
}

/// Summarizes the settings: `4 partitions, kept for 1d`.
pub(super) fn in_short(settings: &HubSettings) -> String {
    let partitions = crate::serve::plural(settings.partition_count.into(), "partition");
    let kept = settings
        .retention
        .map_or_else(|| "kept for ever".to_owned(), |span| format!("kept for {}", show_duration(span)));
    let mut parts = vec![partitions, kept];
    if let Some(bytes) = settings.retention_bytes {
        parts.push(format!("up to {} in each", show_size(bytes)));
    }
    if settings.status != QueueStatus::Active {
        parts.push(show_status(settings.status).to_owned());
    }
    parts.join(", ")
}

/// Writes the page of a hub. `lags` has the checkpoints of each consumer group by partition.
pub(super) fn hub(
    out: &mut Vec<u8>,
    hub: &HubInfo,
    lags: &[(String, Vec<CheckpointInfo>)],
) -> io::Result<()> {
    let settings = hub.spec.settings();
    writeln!(out, "Hub '{}'", hub.name)?;
    let mut page = Page(out);
    page.line("Partitions", &settings.partition_count)?;
    page.line("Retention", &settings.retention.map_or_else(|| "for ever".to_owned(), show_duration))?;
    if let Some(bytes) = settings.retention_bytes {
        page.line("Retention by size", &format!("{} in each partition", show_size(bytes)))?;
    }
    if settings.expired_position != ExpiredPosition::Refuse {
        page.line("Expired position", &show_expired_position(settings.expired_position))?;
    }
    page.line("Status", &show_status(settings.status))?;
    if let Some(text) = &settings.user_metadata {
        page.line("User metadata", text)?;
    }
    page.line("Created", &hub.created_at)?;
    page.line("Updated", &hub.updated_at)?;
    if let Some(runtime) = &hub.runtime {
        page.line("Events", &runtime.event_count)?;
        page.line("Bytes", &runtime.size_bytes)?;
        page.line("Readers", &runtime.reader_count)?;
        page.line("Bytes in since start", &runtime.received_bytes)?;
        page.line("Bytes out since start", &runtime.read_bytes)?;
    }
    partitions(out, hub)?;
    groups(out, lags)?;
    let count = hub.spec.consumer_groups.as_ref().map_or(0, Vec::len);
    if count > lags.len() {
        writeln!(
            out,
            "and {} consumer groups more; see `peeklock hub group list {}`",
            count - lags.len(),
            hub.name
        )?;
    }
    Ok(())
}

fn partitions(out: &mut Vec<u8>, hub: &HubInfo) -> io::Result<()> {
    let Some(runtime) = hub.runtime.as_ref().filter(|found| found.partitions.len() <= PARTITIONS_SHOWN_MAX)
    else {
        return Ok(());
    };
    let table =
        Table::new().number("PARTITION").number("FIRST").number("LAST").number("EVENTS").number("BYTES");
    let mut table = table.number("READERS").text("LAST ENQUEUED");
    for partition in &runtime.partitions {
        table.row([
            partition.partition.to_string(),
            partition.begin_sequence_number.to_string(),
            partition.last_sequence_number.to_string(),
            partition.event_count.to_string(),
            partition.size_bytes.to_string(),
            partition.readers.len().to_string(),
            partition.last_enqueued_at.clone().unwrap_or_default(),
        ]);
    }
    table.write(out)
}

fn groups(out: &mut Vec<u8>, lags: &[(String, Vec<CheckpointInfo>)]) -> io::Result<()> {
    let table = Table::new().text("GROUP").number("CHECKPOINTS").number("OWNED").number("LAG");
    let mut table = table.number("LAG SECONDS");
    for (group, lags) in lags {
        let count = |is: fn(&CheckpointInfo) -> bool| lags.iter().filter(|lag| is(lag)).count().to_string();
        let events = lags.iter().map(|lag| lag.lag_events).fold(0, u64::saturating_add);
        let longest = lags.iter().map(|lag| lag.lag_seconds).fold(0.0, f64::max);
        table.row([
            group.clone(),
            count(|lag| lag.sequence_number.is_some()),
            count(|lag| lag.owner.is_some()),
            events.to_string(),
            seconds(longest),
        ]);
    }
    table.write(out)
}
