//! Session processors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::handler::{Context, HandlerError, Text};
use peeklock::processor::ErrorSource;
use peeklock::session_processor::SessionState;
use peeklock::{Client, Message};
use peeklock_types::QueueSettings;
use tokio::time::{Instant, sleep};

use crate::rig::{Errors, LOCK, Rig, a_moment, settings, until};

const SECOND: Duration = Duration::from_secs(1);

type Log = Arc<Mutex<Vec<String>>>;

async fn rig() -> Rig {
    Rig::with(QueueSettings { requires_session: true, ..settings() }).await
}

async fn send(client: &Client, messages: &[(&str, &str)]) {
    let sender = client.sender("q").await.unwrap();
    for (session, body) in messages {
        let message = Message::text(*body).session_id((*session).to_owned());
        sender.send(message).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_run_side_by_side_and_each_in_order() {
    let rig = rig().await;
    let messages = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3"), ("b", "b2"), ("c", "c1")];
    send(&rig.client, &messages).await;
    let (log, running) = (Log::default(), Arc::<Mutex<(u32, u32)>>::default());
    let (lines, count) = (Arc::clone(&log), Arc::clone(&running));
    let handle = move |Text(body): Text| {
        let (lines, count) = (Arc::clone(&lines), Arc::clone(&count));
        async move {
            let now = {
                let mut count = count.lock().unwrap();
                count.0 += 1;
                count.1 = count.1.max(count.0);
                count.0
            };
            assert!(now <= 2, "two sessions with one call each");
            sleep(SECOND).await;
            lines.lock().unwrap().push(body);
            count.lock().unwrap().0 -= 1;
        }
    };
    let builder = rig.client.session_processor("q").handler(handle).max_sessions(2);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 6).await;
    let of = |session: &str| -> Vec<String> {
        log.lock().unwrap().iter().filter(|body| body.starts_with(session)).cloned().collect()
    };
    assert_eq!(
        (of("a"), of("b"), of("c")),
        (
            vec!["a1".to_owned(), "a2".to_owned(), "a3".to_owned()],
            vec!["b1".to_owned(), "b2".to_owned()],
            vec!["c1".to_owned()]
        )
    );
    assert_eq!(running.lock().unwrap().1, 2, "side by side");
    processor.stop(LOCK).await.unwrap();
    rig.assert_unlocked(0).await;
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_session_is_a_typed_value_for_its_next_holder() {
    async fn add(Text(body): Text, total: SessionState<u64>) -> Result<(), HandlerError> {
        let number: u64 = body.parse()?;
        total.store(&(total.load().await?.unwrap_or_default() + number)).await?;
        Ok(())
    }
    let rig = rig().await;
    for round in 1..=3 {
        send(&rig.client, &[("a", "5"), ("a", "7")]).await;
        let processor = rig.client.session_processor("q").handler(add).start().await.unwrap();
        until(&processor, |status| status.completed == 2).await;
        processor.stop(LOCK).await.unwrap();
        let receiver = rig.client.receiver("q").session("a").manual_credit().open().await.unwrap();
        let total = SessionState::<u64>::of(receiver.session().unwrap());
        assert_eq!(total.load().await.unwrap(), Some(12 * round));
        let wrong = SessionState::<Vec<String>>::of(receiver.session().unwrap());
        assert_eq!(wrong.load().await.unwrap_err().code(), "E-SESS-06");
        receiver.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_let_go_and_running_is_not_idle() {
    let rig = rig().await;
    send(&rig.client, &[("a", "1")]).await;
    let log = Log::default();
    let (opened, closed) = (Arc::clone(&log), Arc::clone(&log));
    let (start, end) = (Arc::<Mutex<Option<Instant>>>::default(), Arc::<Mutex<Option<Instant>>>::default());
    let (opened_at, closed_at) = (Arc::clone(&start), Arc::clone(&end));
    let processor = rig
        .client
        .session_processor("q")
        .handler(|| sleep(30 * SECOND))
        .idle(2 * SECOND)
        .on_open(move |session| {
            opened.lock().unwrap().push(format!("open {}", session.id()));
            *opened_at.lock().unwrap() = Some(Instant::now());
            std::future::ready(())
        })
        .on_close(move |session| {
            closed.lock().unwrap().push(format!("close {}", session.id()));
            *closed_at.lock().unwrap() = Some(Instant::now());
            std::future::ready(())
        })
        .start()
        .await
        .unwrap();
    until(&processor, |status| status.sessions == 1).await;
    until(&processor, |status| status.sessions == 0).await;
    assert_eq!(*log.lock().unwrap(), ["open a", "close a"]);
    let held = end.lock().unwrap().unwrap() - start.lock().unwrap().unwrap();
    assert_eq!(held.as_secs(), 32, "the running time and the idle time");
    processor.stop(LOCK).await.unwrap();
}

/// Works on a busy session and another one, and returns how many messages of the busy one went first.
async fn started_before_the_other(rig: &Rig) -> usize {
    let many: Vec<_> = (0..10).map(|_| ("busy", "x")).collect();
    send(&rig.client, &many).await;
    send(&rig.client, &[("other", "y")]).await;
    let log = Log::default();
    let lines = Arc::clone(&log);
    let handle = move |context: Context| {
        lines.lock().unwrap().push(context.session().unwrap().id().to_owned());
        sleep(SECOND)
    };
    let builder = rig.client.session_processor("q").handler(handle).max_sessions(1).max_hold_count(3);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 11).await;
    let turn = log.lock().unwrap().iter().position(|session| session == "other").unwrap();
    processor.stop(LOCK).await.unwrap();
    rig.assert_unlocked(0).await;
    turn
}

#[tokio::test(start_paused = true)]
async fn no_session_starves_another() {
    assert_eq!(started_before_the_other(&rig().await).await, 3, "as many as max_hold_count");
    // Another broker may give the busy session again, so the processor takes the other one before it lets the busy one go.
    let elsewhere = Rig::elsewhere(QueueSettings { requires_session: true, ..settings() }).await;
    assert!(started_before_the_other(&elsewhere).await <= 9, "before the busy session was empty");
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_lock_drops_that_session_once_with_one_error() {
    let rig = rig().await;
    let (client, plug) = rig.other_client().await;
    send(&rig.client, &[("a", "1"), ("a", "2"), ("a", "3")]).await;
    let lost = Arc::<Mutex<u32>>::default();
    let counter = Arc::clone(&lost);
    let handle = move |context: Context| {
        let counter = Arc::clone(&counter);
        async move {
            context.lock_lost().await;
            *counter.lock().unwrap() += 1;
        }
    };
    let errors = Errors::default();
    let builder =
        client.session_processor("q").handler(handle).calls_per_session(2).on_error(errors.handler());
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.running == 2).await;
    plug.pull();
    until(&processor, |status| status.sessions == 0).await;
    assert_eq!(*lost.lock().unwrap(), 2, "each running handler was told");
    a_moment().await;
    let of_lock: Vec<_> =
        errors.seen().into_iter().filter(|error| error.source == ErrorSource::RenewLock).collect();
    assert_eq!(of_lock.len(), 1, "{of_lock:?}");
    tokio::time::sleep(2 * LOCK).await;
    rig.assert_unlocked(3).await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_lets_sessions_go_and_a_stop_leaves_no_lock() {
    let rig = rig().await;
    send(&rig.client, &[("a", "1"), ("a", "2"), ("b", "1")]).await;
    let started = Arc::<Mutex<BTreeMap<String, u32>>>::default();
    let log = Arc::clone(&started);
    let handle = move |context: Context| {
        let session = context.session().unwrap().id().to_owned();
        *log.lock().unwrap().entry(session).or_default() += 1;
        sleep(10 * SECOND)
    };
    let processor = rig.client.session_processor("q").handler(handle).start().await.unwrap();
    until(&processor, |status| status.running == 2).await;
    processor.pause_and_drain().await.unwrap();
    assert_eq!(processor.status().borrow().completed, 2);
    rig.assert_unlocked(1).await;
    // Another receiver can have the session.
    let other = rig.client.receiver("q").session("a").manual_credit().open().await.unwrap();
    other.close().await.unwrap();
    processor.resume().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let report = processor.stop(Duration::ZERO).await.unwrap();
    assert_eq!((report.cancelled, report.stuck), (1, 0));
    rig.assert_unlocked(1).await;
    rig.assert_uncounted().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_cannot_be_used_is_reported_at_the_start() {
    let rig = Rig::start().await;
    let missing = rig.client.session_processor("nowhere").handler(|| async {}).start().await;
    assert_eq!(missing.unwrap_err().code(), "E-ENT-04");
    assert!(
        rig.client.session_processor("q").handler(|| async {}).start().await.is_err(),
        "q has no sessions"
    );
}
