//! Adds strain to a drawn scenario, by a random generator of its own, to reach states in which mistakes show.

use std::time::Duration;

use fastrand::Rng;
use peeklock_types::ExpiredPosition;

use super::draw::{one_in, pick};
use super::hub::PLAIN;
use super::{Hub, HubReader, Publisher, Scenario};

/// The number of readers that compete for one partition without an owner level; five are permitted.
const THRONG: usize = 9;
/// The longest pause of publishers of a hub with short retention.
const BUSY_PAUSE_MS_MAX: u64 = 200;

/// Leaves one world in two unchanged.
pub(super) fn add(seed: u64, scenario: &mut Scenario) {
    let rng = &mut Rng::with_seed(seed ^ 0x57a1f);
    if rng.bool() {
        return;
    }
    scenario.machine.disk_work_ms_max = pick(rng, &[0, 10, 200, 3_000], 10);
    let Some(hub) = &mut scenario.hub else { return };
    for publisher in hub.publishers.iter_mut().filter(|publisher| publisher.is_numbered) {
        publisher.is_wired = rng.bool();
    }
    if let Some(processors) = &mut hub.processors {
        processors.is_wired = rng.bool();
    }
    match rng.u32(0..3) {
        0 => throng(rng, hub),
        1 => forget_soon(rng, hub),
        _ => {
            scenario.machine.disk_work_ms_max = pick(rng, &[200, 3_000], 200);
            lag_behind(rng, hub);
        }
    }
}

/// Lets the clock step during the runs of every second world with a clock that steps at all.
pub(super) fn step_clock(seed: u64, scenario: &mut Scenario) {
    let rng = &mut Rng::with_seed(seed ^ 0xc10c);
    scenario.machine.steps_in_runs = scenario.machine.clock_step_ms_max > 0 && rng.bool();
}

/// Lets reads of the disk fail for a while, in one world in three. Bodies are then read from the disk soon.
pub(super) fn fail_reads(seed: u64, scenario: &mut Scenario) {
    let rng = &mut Rng::with_seed(seed ^ 0xeead5);
    if one_in(rng, 3) {
        scenario.machine.failing_reads_max = pick(rng, &[3, 12, 40], 12);
        scenario.wal.hot_cache_bytes = 4 << 10;
    }
}

/// Adds more readers without an owner level than permitted, which retry again and again.
fn throng(rng: &mut Rng, hub: &mut Hub) {
    let reader = |rng: &mut Rng| HubReader {
        group: PLAIN,
        partition: Some(0),
        level: None,
        is_wired: rng.bool(),
        credit: pick(rng, &[7, 50], 50),
        window_bytes: 10_000,
        work_ms_max: pick(rng, &[50, 1000], 50),
    };
    // A reader with an owner level would displace all of them.
    hub.readers.retain(|reader| reader.level.is_none());
    hub.readers.extend((0..THRONG).map(|_| reader(rng)));
    hub.publishers.iter_mut().for_each(busy);
}

/// Retires events soon, with readers that do not keep up: each gets an error, and none is moved on silently.
fn forget_soon(rng: &mut Rng, hub: &mut Hub) {
    hub.settings.expired_position = ExpiredPosition::Refuse;
    hub.settings.retention = Some(Duration::from_secs(rng.u64(1..8)));
    hub.settings.retention_bytes = one_in(rng, 2).then_some(1 << 20);
    hub.readers.truncate(2);
    hub.readers.extend((0..4).map(|_| slow_reader(rng, &[3_000, 8_000])));
    hub.publishers.iter_mut().for_each(busy);
}

/// Adds readers that are far behind, while their events are moved.
fn lag_behind(rng: &mut Rng, hub: &mut Hub) {
    hub.settings.retention = None;
    hub.settings.retention_bytes = None;
    hub.readers.extend((0..4).map(|_| slow_reader(rng, &[0, 200, 1_000])));
    hub.publishers.iter_mut().for_each(busy);
}

fn slow_reader(rng: &mut Rng, work_ms: &[u64]) -> HubReader {
    HubReader {
        group: PLAIN,
        partition: one_in(rng, 2).then_some(0),
        level: None,
        is_wired: rng.bool(),
        credit: pick(rng, &[1, 7, 50], 7),
        window_bytes: pick(rng, &[1, 10_000], 1),
        work_ms_max: pick(rng, work_ms, 200),
    }
}

fn busy(publisher: &mut Publisher) {
    publisher.pause_ms_max = publisher.pause_ms_max.min(BUSY_PAUSE_MS_MAX);
}
