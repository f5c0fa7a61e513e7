//! Measures a broker without clients.

use std::time::Duration;

use anyhow::Result;

use crate::Arguments;
use crate::broker::Broker;
use crate::report::{Row, Target};

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let idle = Duration::from_secs(if arguments.quick { 2 } else { 10 });
    let (mut ready, mut memory, mut disk, mut cpu) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions {
        let broker = Broker::start_with(&arguments.data, &[])?;
        ready.push(broker.ready_after.as_secs_f64() * 1e3);
        // The background work of the start is done by then.
        std::thread::sleep(Duration::from_secs(1));
        let before = broker.cpu_time()?;
        std::thread::sleep(idle);
        cpu.push((broker.cpu_time()?.saturating_sub(before)).as_secs_f64() / idle.as_secs_f64() * 1e3);
        memory.push(broker.resident_bytes()? as f64 / MIB);
        disk.push(broker.disk_bytes()? as f64 / MIB);
    }
    Ok(vec![
        Row::new("empty broker: ready after", "ms", ready).target(Target::AtMost(100.0)),
        Row::new("empty broker: resident memory", "MiB", memory).target(Target::AtMost(20.0)),
        Row::new("empty broker: disk used", "MiB", disk).target(Target::AtMost(64.0)),
        Row::new("empty broker: CPU when idle", "ms/s", cpu).target(Target::AtMost(1.0)),
    ])
}
