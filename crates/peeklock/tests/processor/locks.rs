//! Lock renewal and lost locks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::handler::{Context, Text};
use peeklock::processor::{ErrorSource, Renew};
use peeklock::{Kind, Timestamp};
use peeklock_broker::Clock;
use tokio::time::{Instant, sleep};

use crate::rig::{Errors, LOCK, Rig, a_moment, settings, until};

#[tokio::test(start_paused = true)]
async fn locks_are_renewed_in_the_pump_and_not_in_the_handler() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    // The handler itself does nothing for its lock.
    let handle = || sleep(4 * LOCK);
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    let status = until(&processor, |status| status.completed == 1).await;
    assert_eq!(status.failed, 0);
    rig.assert_unlocked(0).await;
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn buffered_messages_are_renewed_too() {
    let rig = Rig::start().await;
    rig.send(0..3).await;
    let builder = rig.client.processor("q").handler(|| sleep(3 * LOCK)).prefetch(2);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 3).await;
    assert_eq!(processor.status().borrow().failed, 0);
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_fires_once_and_skips_the_settlement() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    let deliveries = Arc::<Mutex<Vec<u32>>>::default();
    let log = Arc::clone(&deliveries);
    let handle = move |context: Context| {
        log.lock().unwrap().push(context.attempt());
        async move {
            if context.attempt() == 1 {
                context.lock_lost().await;
                assert!(context.is_lock_lost());
                assert_eq!(context.complete().await.unwrap_err().kind(), Kind::LockLost);
            }
        }
    };
    let errors = Errors::default();
    let builder = rig.client.processor("q").handler(handle).auto_renew(Renew::Off).on_error(errors.handler());
    let started = Instant::now();
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 1).await;
    assert_eq!(*deliveries.lock().unwrap(), [1, 2], "the message was delivered again");
    assert!(started.elapsed() >= LOCK);
    a_moment().await;
    let [error] = &errors.seen()[..] else { panic!("{:?}", errors.seen()) };
    assert_eq!((error.source, error.error.code()), (ErrorSource::RenewLock, "E-LOCK-01"));
    assert!(error.error.to_string().contains("auto renewal is off"), "{}", error.error);
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn renewal_stops_after_its_running_time() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    let lost = Arc::<Mutex<Vec<Duration>>>::default();
    let log = Arc::clone(&lost);
    let handle = move |context: Context| {
        let log = Arc::clone(&log);
        async move {
            let started = Instant::now();
            if context.attempt() == 1 {
                context.lock_lost().await;
                log.lock().unwrap().push(started.elapsed());
            }
        }
    };
    let builder = rig.client.processor("q").handler(handle).auto_renew(Renew::UpTo(2 * LOCK));
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 1).await;
    let lost = lost.lock().unwrap()[0];
    assert!(lost >= 2 * LOCK && lost <= 3 * LOCK, "{lost:?}");
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_lock_has_passed_is_never_given_to_a_handler() {
    let rig = Rig::start().await;
    rig.send(0..4).await;
    let late = Arc::<Mutex<Vec<String>>>::default();
    let log = Arc::clone(&late);
    let handle = move |Text(body): Text, context: Context| {
        if context.lock_remaining() == Some(Duration::ZERO) {
            log.lock().unwrap().push(body);
        }
        // Longer than the lock, which nobody renews: the buffered messages lose theirs.
        sleep(LOCK + Duration::from_secs(5))
    };
    let errors = Errors::default();
    let processor = rig
        .client
        .processor("q")
        .handler(handle)
        .prefetch(3)
        .auto_renew(Renew::Off)
        .on_error(errors.handler())
        .start()
        .await
        .unwrap();
    until(&processor, |status| status.failed == 2).await;
    assert_eq!(*late.lock().unwrap(), Vec::<String>::new());
    assert!(errors.seen().iter().all(|error| error.source == ErrorSource::RenewLock));
    assert!(errors.seen().len() >= 5, "three buffered and two running messages: {:?}", errors.seen());
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_go_on_after_it_has_settled_its_message() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    let errors = Errors::default();
    let handle = |context: Context| async move {
        context.complete().await.unwrap();
        sleep(5 * LOCK).await;
        assert!(!context.is_lock_lost());
    };
    let builder = rig.client.processor("q").handler(handle).auto_complete(false).on_error(errors.handler());
    let processor = builder.start().await.unwrap();
    let status = until(&processor, |status| status.completed + status.failed == 1).await;
    assert_eq!((status.completed, errors.seen().len()), (1, 0));
    processor.stop(Duration::ZERO).await.unwrap();
}

/// The wall clocks of the broker and of this machine differ by an hour, in both directions.
#[tokio::test(start_paused = true)]
async fn a_wrong_wall_clock_does_no_harm() {
    let now = Clock::start().now().as_millis();
    for wall in [now + 3_600_000, now - 3_600_000] {
        let rig = Rig::with_clock(settings(), Clock::start_at(Timestamp::from_millis(wall))).await;
        rig.send(["1", "2"]).await;
        let errors = Errors::default();
        let handle = |context: Context| async move {
            let rest = context.lock_remaining().unwrap();
            assert!(rest > Duration::ZERO && rest <= LOCK, "{rest:?}");
            sleep(4 * LOCK).await;
            assert!(!context.is_lock_lost());
        };
        let builder = rig.client.processor("q").handler(handle).on_error(errors.handler()).max_concurrent(2);
        let processor = builder.start().await.unwrap();
        until(&processor, |status| status.completed == 2).await;
        processor.stop(Duration::ZERO).await.unwrap();
        assert!(errors.seen().is_empty(), "{:?}", errors.seen());
        // Without renewal, a buffered message loses its lock at the right moment and is not started.
        rig.send(["3", "4"]).await;
        let handle = |context: Context| async move {
            assert!(context.lock_remaining().unwrap() > Duration::ZERO);
            sleep(LOCK + Duration::from_secs(5)).await;
        };
        let builder = rig.client.processor("q").handler(handle).prefetch(1).auto_renew(Renew::Off);
        let processor = builder.on_error(errors.handler()).start().await.unwrap();
        until(&processor, |status| status.failed == 1).await;
        assert!(
            errors.seen().iter().all(|error| error.source == ErrorSource::RenewLock),
            "{:?}",
            errors.seen()
        );
        processor.stop(Duration::ZERO).await.unwrap();
    }
}
