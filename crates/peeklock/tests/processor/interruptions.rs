//! Interruptions: handlers that started and did not end, because their processor stops.

use std::time::Duration;

use peeklock::handler::HandlerError;
use peeklock::processor::State;
use peeklock_types::QueueSettings;

use crate::rig::{Rig, a_moment, settings, until};

/// Starts a processor whose handler never ends, and stops it at once.
async fn interrupt(rig: &Rig) {
    let processor = rig.client.processor("q").handler(std::future::pending::<()>).start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let report = processor.stop(Duration::ZERO).await.unwrap();
    assert_eq!(report.cancelled, 1);
    a_moment().await;
}

#[tokio::test(start_paused = true)]
async fn interruptions_count_after_twenty_so_that_nothing_loops_forever() {
    let rig = Rig::with(QueueSettings { max_delivery_count: 3, ..settings() }).await;
    rig.send(["1"]).await;
    for _ in 0..20 {
        interrupt(&rig).await;
        rig.assert_uncounted().await;
    }
    let is_waiting = async |rig: &Rig| rig.waiting().await.first().map(|message| message.delivery_count());
    interrupt(&rig).await;
    assert_eq!(is_waiting(&rig).await, Some(1));
    interrupt(&rig).await;
    assert_eq!(is_waiting(&rig).await, Some(2));
    interrupt(&rig).await;
    assert_eq!(is_waiting(&rig).await, None);
    assert_eq!(rig.dead_letters().await[0].dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
}

#[tokio::test(start_paused = true)]
async fn a_fatal_error_is_an_interruption() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    for count in 1..=22 {
        let handle = || async { Err::<(), _>(HandlerError::fatal("no disk")) };
        let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
        until(&processor, |status| status.state == State::Failed).await;
        a_moment().await;
        assert_eq!(rig.waiting().await[0].delivery_count(), u32::saturating_sub(count, 20));
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_were_not_started_never_count() {
    let rig = Rig::with(QueueSettings { max_delivery_count: 100, ..settings() }).await;
    rig.send(["started", "prefetched"]).await;
    for _ in 0..30 {
        let builder = rig.client.processor("q").prefetch(5).handler(std::future::pending::<()>);
        let processor = builder.start().await.unwrap();
        until(&processor, |status| status.held == 2).await;
        processor.stop(Duration::ZERO).await.unwrap();
        a_moment().await;
    }
    let counts: Vec<_> = rig.waiting().await.iter().map(|message| message.delivery_count()).collect();
    assert_eq!(counts, [10, 0], "of the one that was started, and of the one that was prefetched");
}

#[tokio::test(start_paused = true)]
async fn another_broker_counts_no_interruption() {
    let rig = Rig::elsewhere(QueueSettings { max_delivery_count: 3, ..settings() }).await;
    rig.send(["1"]).await;
    for _ in 0..30 {
        interrupt(&rig).await;
    }
    rig.assert_unlocked(1).await;
    rig.assert_uncounted().await;
}
