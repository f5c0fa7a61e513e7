//! Worker groups.

use std::time::Duration;

use peeklock::handler::HandlerError;
use peeklock::processor::State;
use peeklock::worker_group::WorkerGroup;

use crate::rig::{LOCK, Rig, until};

#[tokio::test(start_paused = true)]
async fn a_group_stops_all_its_processors_and_reports_each() {
    let rig = Rig::start().await;
    rig.send(0..4).await;
    let handle = || tokio::time::sleep(Duration::from_secs(5));
    let one = rig.client.processor("q").name("one").handler(handle).start().await.unwrap();
    let two = rig.client.processor("q").name("two").handler(handle).start().await.unwrap();
    until(&one, |status| status.running == 1).await;
    until(&two, |status| status.running == 1).await;
    let group = WorkerGroup::new().add(one).add(two).deadline(LOCK);
    assert!(group.health().is_ready());
    let report = group.run_until(std::future::ready(())).await;
    assert!(!report.has_failed());
    assert_eq!(report.to_string(), "one stopped: 1 completed, 0 failed; two stopped: 1 completed, 0 failed");
    rig.assert_unlocked(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_processor_ends_the_group() {
    let rig = Rig::start().await;
    rig.send(0..1).await;
    let fatal = || async { Err::<(), _>(HandlerError::fatal("no configuration")) };
    let good = rig.client.processor("q").name("good").handler(|| async {}).start().await.unwrap();
    good.pause().await.unwrap();
    let bad = rig.client.processor("q").name("bad").handler(fatal).start().await.unwrap();
    let report = WorkerGroup::new().add(good).add(bad).run_until(std::future::pending()).await;
    assert!(report.has_failed());
    assert_eq!(report.workers[0].1, State::Stopped);
    rig.assert_unlocked(1).await;
}
