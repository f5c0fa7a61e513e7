//! What gets a clear error while a processor runs: the kind, the code and the text that the error handler and the status get, and where the
//! messages are afterwards. Errors of single calls are in `consumers` and `survival`, that of a directory in use in `embedded`.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::admin::{Queue, QueueStatus};
use peeklock::handler::{Context, HandlerError, Json, Text, TimeoutLayer};
use peeklock::processor::{ErrorContext, ErrorSource, Processor, Renew, State, Status};
use peeklock::testing::TestBroker;
use peeklock::{Client, Delayed, Kind, Message, Retry};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A broker with the queue `orders`, a client, and the errors that processors report.
struct Given {
    broker: TestBroker,
    client: Client,
    errors: Arc<Mutex<Vec<ErrorContext>>>,
}

impl Given {
    async fn queue(queue: Queue) -> Self {
        let broker = TestBroker::start().await;
        broker.create_queue("orders", queue).await;
        let client = broker.client().await;
        Given { broker, client, errors: Arc::default() }
    }

    async fn with(texts: &[&str]) -> Self {
        let given = Self::queue(Queue::new().lock_duration(MINUTE)).await;
        given.send(texts).await;
        given
    }

    async fn send(&self, texts: &[&str]) {
        let sender = self.client.sender("orders").await.unwrap();
        for text in texts {
            sender.send(Message::text(*text).message_id((*text).to_owned())).await.unwrap();
        }
    }

    fn on_error(&self) -> impl Fn(ErrorContext) -> std::future::Ready<()> + Send + Sync + 'static {
        let errors = Arc::clone(&self.errors);
        move |error| {
            errors.lock().unwrap().push(error);
            std::future::ready(())
        }
    }

    /// Asserts that exactly one error was reported, and returns it.
    fn only_error(&self) -> ErrorContext {
        let errors = self.errors.lock().unwrap();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors[0].clone()
    }

    fn first_error(&self) -> ErrorContext {
        self.errors.lock().unwrap().first().expect("an error was reported").clone()
    }

    /// Asserts that one message is dead-lettered, with a reason, and that nothing else is left.
    async fn assert_dead(&self, reason: &str) {
        let dead = self.broker.dead_letters("orders").await;
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0].dead_letter_reason(), Some(reason));
        assert_eq!((self.broker.held_locks("orders").await, self.broker.waiting("orders").await), (0, 0));
    }
}

#[track_caller]
fn assert_error(error: &ErrorContext, source: ErrorSource, kind: Kind, code: &str, parts: &[&str]) {
    assert_eq!((error.source, error.error.kind(), error.error.code()), (source, kind, code), "{error:?}");
    let text = error.error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

async fn until(processor: &Processor, fits: impl Fn(&Status) -> bool) -> Status {
    let mut status = processor.status();
    status.wait_for(|status| fits(status)).await.unwrap().clone()
}

async fn stop(processor: &Processor) {
    processor.stop(MINUTE).await.unwrap();
}

#[tokio::test]
async fn a_ladder_of_retries_that_does_not_fit_the_queue_is_refused_at_the_start() {
    let given = Given::queue(Queue::new().max_delivery_count(5)).await;
    given.send(&["a"]).await;
    let handle = || async { Err::<(), _>(HandlerError::retry("it fails")) };
    let long = Retry::immediate(2).then(Delayed::fixed(SECOND, 9));
    let refused = given.client.processor("orders").handler(handle).retry(long).start().await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.code(), refused.is_transient()),
        (Kind::Invalid, "E-RETRY-01", false)
    );
    assert_eq!(
        refused.to_string(),
        "E-RETRY-01 The retry policy has 10 attempts, but queue \"orders\" dead-letters a message after 5 deliveries. Use fewer delayed \
         retries, or raise the limit with \"peeklock queue update orders --max-delivery 10\"."
    );
    assert_eq!((given.broker.held_locks("orders").await, given.broker.waiting("orders").await), (0, 1));
    // The default policy does not fit either; one that fits uses all deliveries.
    assert!(given.client.processor("orders").handler(handle).start().await.is_err());
    let short = Retry::never().then(Delayed::fixed(SECOND, 4));
    let processor = given.client.processor("orders").handler(handle).retry(short).start().await.unwrap();
    until(&processor, |status| status.failed == 5).await;
    stop(&processor).await;
    given.assert_dead("MaxAttempts").await;
}

#[tokio::test]
async fn a_session_processor_refuses_a_ladder_that_does_not_fit_as_well() {
    let given = Given::queue(Queue::new().sessions(true).max_delivery_count(3)).await;
    let refused = given.client.session_processor("orders").handler(|| async {}).start().await.unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (Kind::Invalid, "E-RETRY-01"));
}

#[tokio::test]
async fn prefetch_on_a_queue_with_classes_is_refused_at_the_start() {
    let given = Given::queue(Queue::new().classes(["high", "normal", "low"])).await;
    given.send(&["a", "b"]).await;
    let refused =
        given.client.processor("orders").handler(|| async {}).prefetch(20).start().await.unwrap_err();
    assert_eq!((refused.kind(), refused.code(), refused.is_transient()), (Kind::Invalid, "E-PRIO-02", false));
    assert_eq!(
        refused.to_string(),
        "E-PRIO-02 Prefetch 20 was refused for priority source \"orders\": buffered low messages would run before new high ones. Remove \
         prefetch."
    );
    assert_eq!((given.broker.held_locks("orders").await, given.broker.waiting("orders").await), (0, 2));
    let processor = given.client.processor("orders").handler(|| async {}).start().await.unwrap();
    until(&processor, |status| status.completed == 2).await;
    stop(&processor).await;
}

#[tokio::test]
async fn a_panic_names_the_handler_and_the_message() {
    let given = Given::with(&["a"]).await;
    let handle = |Text(body): Text| async move { assert_ne!(body, "a", "the stock is empty") };
    let builder = given.client.processor("orders").handler(handle).retry(Retry::never());
    let processor = builder.on_error(given.on_error()).start().await.unwrap();
    let status = until(&processor, |status| status.failed == 1).await;
    assert_eq!(status.last_error.unwrap().code(), "E-HAND-02");
    stop(&processor).await;
    let parts = [
        "The handler of \"orders\" panicked on message a, attempt 1: ",
        "the stock is empty",
        "dead-lettered with reason Panic",
    ];
    assert_error(&given.only_error(), ErrorSource::Handler, Kind::Panic, "E-HAND-02", &parts);
    given.assert_dead("Panic").await;
}

#[tokio::test]
async fn each_error_of_a_handler_says_what_happens_to_the_message() {
    let given = Given::with(&["a"]).await;
    let handle = |context: Context| async move {
        match context.attempt() {
            1 => Err(HandlerError::retry("no stock")),
            2 => Err(HandlerError::retry_after(MINUTE)("busy")),
            _ => Err::<(), _>(HandlerError::poison("no such item")),
        }
    };
    let retry = Retry::immediate(1).then(Delayed::fixed(5 * SECOND, 3));
    let builder = given.client.processor("orders").handler(handle).retry(retry);
    let processor = builder.on_error(given.on_error()).start().await.unwrap();
    until(&processor, |status| status.failed == 3).await;
    stop(&processor).await;
    let texts: Vec<_> = given.errors.lock().unwrap().iter().map(|error| error.error.to_string()).collect();
    assert_eq!(
        texts,
        [
            "E-HAND-01 The handler of \"orders\" failed on message a, attempt 1: no stock. It is called again at once.",
            "E-HAND-01 The handler of \"orders\" failed on message a, attempt 1: no stock. The message is delivered again after 5.0s.",
            "E-HAND-01 The handler of \"orders\" failed on message a, attempt 2: busy. The message is delivered again after 60.0s.",
            "E-HAND-01 The handler of \"orders\" failed on message a, attempt 3: no such item. The message was dead-lettered with reason \
             HandlerPoison. Correct the cause, and send it again.",
        ]
    );
    given.assert_dead("HandlerPoison").await;
}

#[tokio::test]
async fn a_handler_that_exceeds_its_time_is_named() {
    let given = Given::with(&["a"]).await;
    let handle = || tokio::time::sleep(MINUTE);
    let builder = given.client.processor("orders").handler(handle).layer(TimeoutLayer::new(SECOND));
    let builder = builder.retry(Retry::never()).on_error(given.on_error());
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.failed == 1).await;
    stop(&processor).await;
    let parts = ["exceeded its time on message a, attempt 1", "dead-lettered with reason HandlerTimeout"];
    assert_error(&given.only_error(), ErrorSource::Handler, Kind::Timeout, "E-HAND-03", &parts);
    given.assert_dead("HandlerTimeout").await;
}

#[tokio::test]
async fn a_fatal_error_stops_the_processor_and_hands_everything_back() {
    let given = Given::with(&["a", "b", "c"]).await;
    let handle = || async { Err::<(), _>(HandlerError::fatal("the database is gone")) };
    let builder = given.client.processor("orders").handler(handle).prefetch(2).on_error(given.on_error());
    let processor = builder.start().await.unwrap();
    let ended = processor.ended().await;
    assert_eq!(ended.state, State::Failed);
    let error = ended.last_error.unwrap();
    assert_eq!((error.kind(), error.code()), (Kind::Handler, "E-HAND-01"));
    assert!(
        error
            .to_string()
            .contains("the database is gone. The message was handed back, and the processor stops."),
        "{error}"
    );
    given.broker.settle().await;
    assert_eq!((given.broker.held_locks("orders").await, given.broker.waiting("orders").await), (0, 3));
    let counted: u32 =
        given.broker.messages("orders").await.iter().map(|message| message.delivery_count()).sum();
    assert_eq!(counted, 0);
}

#[tokio::test]
async fn a_body_that_does_not_deserialise_is_dead_lettered_at_once() {
    let given = Given::with(&["no JSON"]).await;
    let handle = |Json(_): Json<Vec<u32>>| async {};
    let processor =
        given.client.processor("orders").handler(handle).on_error(given.on_error()).start().await.unwrap();
    until(&processor, |status| status.failed == 1).await;
    stop(&processor).await;
    let parts = [
        "cannot read the body of message no JSON, attempt 1",
        "dead-lettered with reason DeserializeFailed",
        "Correct the sender, or the type of the handler's argument",
    ];
    assert_error(&given.only_error(), ErrorSource::Handler, Kind::Malformed, "E-HAND-04", &parts);
    given.assert_dead("DeserializeFailed").await;
}

#[tokio::test]
async fn a_lock_that_is_lost_while_the_handler_runs_is_named_with_the_remedy() {
    let given = Given::with(&["a"]).await;
    let handle = |context: Context| async move {
        if context.attempt() == 1 {
            context.lock_lost().await;
        }
    };
    let builder = given.client.processor("orders").handler(handle).auto_renew(Renew::Off);
    let processor = builder.on_error(given.on_error()).start().await.unwrap();
    until(&processor, |status| status.completed == 1).await;
    stop(&processor).await;
    let parts = [
        "The lock of message a in \"orders\" was lost",
        "auto renewal is off",
        "It will be delivered again",
        "Raise auto_renew, or raise the lock",
    ];
    assert_error(&given.only_error(), ErrorSource::RenewLock, Kind::LockLost, "E-LOCK-01", &parts);
    assert_eq!((given.broker.completed("orders"), given.broker.messages("orders").await.len()), (1, 0));
}

#[tokio::test]
async fn a_queue_that_is_disabled_meanwhile_is_named_and_the_processor_goes_on_with_it() {
    let given = Given::with(&["a"]).await;
    let processor = given
        .client
        .processor("orders")
        .handler(|| async {})
        .on_error(given.on_error())
        .start()
        .await
        .unwrap();
    until(&processor, |status| status.completed == 1).await;
    given.send(&[]).await;
    let admin = given.broker.admin();
    admin.update_queue("orders", Queue::new().status(QueueStatus::ReceiveDisabled)).await.unwrap();
    given.send(&["b"]).await;
    given.broker.advance(MINUTE).await;
    let parts = ["\"orders\" is disabled", "Set its status to active"];
    let error = given.first_error();
    assert_error(&error, error.source, Kind::WrongEntity, "E-ENT-05", &parts);
    assert_eq!((given.broker.held_locks("orders").await, given.broker.waiting("orders").await), (0, 1));
    admin.update_queue("orders", Queue::new().status(QueueStatus::Active)).await.unwrap();
    until(&processor, |status| status.completed == 2).await;
    stop(&processor).await;
}

#[tokio::test]
async fn a_queue_that_is_deleted_meanwhile_is_named_and_the_processor_waits_for_its_successor() {
    let given = Given::with(&["a"]).await;
    let processor = given
        .client
        .processor("orders")
        .handler(|| async {})
        .on_error(given.on_error())
        .start()
        .await
        .unwrap();
    until(&processor, |status| status.completed == 1).await;
    given.broker.admin().delete_queue("orders").await.unwrap();
    given.broker.advance(MINUTE).await;
    let parts = ["orders", "peeklock queue create orders", "check the name"];
    let error = given.first_error();
    assert_error(&error, error.source, Kind::NotFound, "E-ENT-04", &parts);
    given.broker.create_queue("orders", Queue::new()).await;
    // The sender of a queue that was deleted is a new one.
    given.client.sender("orders").await.unwrap().send(Message::text("b")).await.unwrap();
    until(&processor, |status| status.completed == 2).await;
    stop(&processor).await;
}

#[tokio::test]
async fn a_queue_that_needs_sessions_meanwhile_is_named_with_the_remedy() {
    let given = Given::with(&["a"]).await;
    let processor = given
        .client
        .processor("orders")
        .handler(|| async {})
        .on_error(given.on_error())
        .start()
        .await
        .unwrap();
    until(&processor, |status| status.completed == 1).await;
    given.broker.admin().delete_queue("orders").await.unwrap();
    given.broker.create_queue("orders", Queue::new().sessions(true)).await;
    let sender = given.client.sender("orders").await.unwrap();
    sender.send(Message::text("b").session_id("table-7")).await.unwrap();
    given.broker.advance(MINUTE).await;
    let errors = given.errors.lock().unwrap().clone();
    let error = errors.iter().find(|error| error.error.code() == "E-SESS-02").unwrap();
    let parts = ["Queue \"orders\" requires sessions", "session_processor(\"orders\")"];
    assert_error(error, ErrorSource::Connect, Kind::WrongEntity, "E-SESS-02", &parts);
    stop(&processor).await;
    assert_eq!((given.broker.held_locks("orders").await, given.broker.waiting("orders").await), (0, 1));
}

#[tokio::test]
async fn a_broker_that_is_away_for_longer_than_the_retries_is_reported_and_nothing_is_lost() {
    let given = Given::with(&["a"]).await;
    let handle = |context: Context| async move {
        // The first handler completes its message while the broker is away.
        if context.attempt() == 1 {
            tokio::time::sleep(10 * SECOND).await;
        }
    };
    let processor =
        given.client.processor("orders").handler(handle).on_error(given.on_error()).start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    given.broker.refuse_connections(true);
    given.broker.cut_connections();
    let sender = given.client.sender("orders");
    let refused = sender.await.err().unwrap();
    assert_eq!(
        (refused.kind(), refused.code(), refused.is_transient()),
        (Kind::Connection, "E-CONN-01", true)
    );
    assert!(refused.to_string().contains("Check the host name, the port and the network."), "{refused}");
    given.broker.advance(5 * MINUTE).await;
    assert_eq!(processor.status().borrow().state, State::Running);
    let errors = given.errors.lock().unwrap().clone();
    assert!(errors.iter().any(|error| error.error.kind() == Kind::Connection), "{errors:?}");
    given.broker.refuse_connections(false);
    given.send(&["b"]).await;
    until(&processor, |status| status.completed == 2).await;
    stop(&processor).await;
    assert!(given.broker.messages("orders").await.is_empty());
    assert_eq!(given.broker.completed("orders"), 2);
}
