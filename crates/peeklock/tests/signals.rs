//! A worker group under the signals of the operating system. It is a program of its own, because a signal reaches all groups of a process.

#![cfg(unix)]
#![allow(clippy::unwrap_used, dead_code, reason = "a test that meets the unexpected fails")]

#[path = "processor/rig.rs"]
mod rig;
#[path = "common/stranger.rs"]
mod stranger;

use std::process::Command;
use std::time::Duration;

use peeklock::processor::State;
use peeklock::worker_group::WorkerGroup;

use rig::{Rig, until};

fn send(signal: &str) {
    let id = std::process::id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

#[tokio::test]
async fn signals_pause_resume_and_stop_in_two_steps() {
    let rig = Rig::start().await;
    rig.send(0..1).await;
    let handler = std::future::pending::<()>;
    let builder = rig.client.processor("q").handler(handler).cancel_grace(Duration::from_millis(10));
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let group = WorkerGroup::new().add(processor.clone()).deadline(Duration::from_secs(3600));
    let running = tokio::spawn(group.run_until(std::future::pending()));
    // The group listens to signals before its first await.
    tokio::task::yield_now().await;
    send("-TSTP");
    until(&processor, |status| status.state == State::Paused).await;
    send("-USR1");
    send("-CONT");
    until(&processor, |status| status.state == State::Running).await;
    send("-TERM");
    until(&processor, |status| status.state == State::Draining).await;
    send("-TERM");
    let report = running.await.unwrap();
    assert_eq!(report.workers[0].2.unwrap().cancelled, 1, "the second signal did not wait for the deadline");
    rig.assert_unlocked(1).await;
}
